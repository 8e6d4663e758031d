"""What a join makes on a member goes away with the role it is made for."""

from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, labels_of

ROLE: Object = {"metadata": {"name": "karmada-controller-manager:karmada-west", "uid": "1"}}
OTHER: Object = {"metadata": {"name": "karmada-controller-manager:karmada-east", "uid": "2"}}


def owners(kube_object: Object) -> list[str]:
    return [each["uid"] for each in kube_object["metadata"]["ownerReferences"]]


def test_everything_on_the_member_is_owned_by_the_role_of_the_hub() -> None:
    made = [
        manifests.member_namespace("hub-1", ROLE),
        manifests.service_account("karmada-west", "hub-1", ROLE),
        manifests.role_binding(ROLE, "karmada-west", "hub-1"),
        manifests.impersonator_role("hub-1", ROLE),
    ]

    assert [owners(each) for each in made] == [["1"]] * 4
    assert all(labels_of(each) == {"karmada.io/system": "true"} for each in made)


def test_what_two_hubs_share_has_two_owners() -> None:
    shared = manifests.with_owner(manifests.member_namespace("hub-1", ROLE), OTHER)

    assert owners(shared) == ["1", "2"]
    assert manifests.with_owner(shared, OTHER) is shared


def test_a_role_made_anew_takes_the_place_of_the_old_one() -> None:
    anew = {"metadata": {**ROLE["metadata"], "uid": "9"}}

    owned = manifests.with_owner(manifests.member_namespace("hub-1", ROLE), anew)

    assert owners(owned) == ["9"]


def test_a_cluster_says_only_what_is_known() -> None:
    endpoint = manifests.Endpoint("https://west:6443")

    spec = manifests.cluster("west", "id-1", endpoint, manifests.Location(region="eu"))["spec"]

    assert sorted(spec) == [
        "apiEndpoint", "id", "impersonatorSecretRef", "region", "secretRef", "syncMode",
    ]  # fmt: skip
