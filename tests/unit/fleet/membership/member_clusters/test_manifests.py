from tests.unit.fleet.membership.member_clusters.invitations import member_cluster

from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.fleet.membership.member_clusters.inviting import invitation, restored


def test_rights_beyond_the_members_own_namespaces_each_name_what_they_are_about() -> None:
    shared = (manifests.lease_role(member_cluster()), manifests.cluster_role(member_cluster()))
    for role in shared:
        for rule in role["rules"]:
            assert rule["resourceNames"] == ["west"]
            assert "create" not in rule["verbs"]
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])


def test_everything_of_an_invitation_goes_with_its_membercluster() -> None:
    for each in invitation(member_cluster()):
        (owner,) = each.wanted["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == (
            "MemberCluster",
            "uid-1",
            True,
        )


def test_the_namespace_comes_first_and_orders_come_after_the_right_to_read_them() -> None:
    kinds = [each.kind for each in invitation(member_cluster())]
    assert kinds[:4] == ["Namespace", "Role", "RoleBinding", "InternalMemberCluster"]


def test_an_object_as_it_is_to_be_is_left_as_it_is() -> None:
    for each in invitation(member_cluster()):
        assert restored(each.wanted, each.wanted) == each.wanted


def test_labels_that_others_added_survive_a_repair() -> None:
    wanted = manifests.namespace(member_cluster())
    present = {**wanted, "metadata": {**wanted["metadata"], "labels": {"team": "a"}}}
    labels = restored(present, wanted)["metadata"]["labels"]
    assert labels == {"team": "a", "kubernetes-fleet.io/is-fleet-resource": "true"}
