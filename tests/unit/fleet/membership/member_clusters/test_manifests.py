"""What the hub makes for a member, and what of its Cluster follows the MemberCluster."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.membership.fleet_objects import cluster
from tests.unit.fleet.membership.member_clusters.invitations import member_cluster

from clusterspace.apis.clusters import taints_of
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.fleet.membership.member_clusters.controller import invitation, restored
from clusterspace.fleet.membership.member_clusters.manifests import MIRRORED, mirrored
from clusterspace.kube.objects import Object, labels_of, with_metadata


def test_rights_beyond_the_members_own_namespaces_each_name_what_they_are_about() -> None:
    shared = (manifests.lease_role(member_cluster()), manifests.cluster_role(member_cluster()))
    for role in shared:
        for rule in role["rules"]:
            # But for what interprets kinds, which is for all to read.
            is_read = rule["apiGroups"] == ["config.karmada.io"]
            assert rule.get("resourceNames") == (None if is_read else ["west"])
            assert not is_read or set(rule["verbs"]) == {"get", "list", "watch"}
            assert "create" not in rule["verbs"]
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])


def test_everything_of_an_invitation_goes_with_its_membercluster() -> None:
    for each in invitation(member_cluster()):
        (owner,) = each.desired["metadata"]["ownerReferences"]
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
        assert restored(each.desired, each.desired) == each.desired


def test_labels_that_others_added_survive_a_repair() -> None:
    wanted = manifests.namespace(member_cluster())
    present = {**wanted, "metadata": {**wanted["metadata"], "labels": {"team": "a"}}}
    labels = restored(present, wanted)["metadata"]["labels"]
    assert labels == {"team": "a", "kubernetes-fleet.io/is-fleet-resource": "true"}


NOT_READY: Object = {
    "key": "cluster.karmada.io/not-ready",
    "effect": "NoSchedule",
    "timeAdded": "2026-01-01T00:00:00Z",
}


def taint(key: str, value: str = "") -> Object:
    body = {"key": key, "value": value, "effect": "NoSchedule"}
    return {name: text for name, text in body.items() if text}


def tainted(*taints: Object, **labels: str) -> Object:
    return member_cluster(spec={"taints": list(taints)}, metadata={"labels": labels})


def test_what_was_mirrored_goes_with_its_origin_and_the_rest_stays() -> None:
    held = mirrored(cluster(taints=[NOT_READY]), tainted(taint("gpu", "yes")))
    assert list(taints_of(held)) == [NOT_READY, taint("gpu", "yes")]
    assert list(taints_of(mirrored(held, tainted()))) == [NOT_READY]


def test_a_taint_that_was_there_before_is_not_taken_away_with_ours() -> None:
    theirs = taint("gpu")
    held = mirrored(cluster(taints=[theirs]), tainted(taint("gpu")))
    assert list(taints_of(held)) == [theirs]
    assert list(taints_of(mirrored(held, tainted()))) == [theirs]


def test_another_value_replaces_the_one_before() -> None:
    held = mirrored(cluster(), tainted(taint("gpu", "old")))
    assert list(taints_of(mirrored(held, tainted(taint("gpu", "new"))))) == [taint("gpu", "new")]


def test_labels_follow_and_those_of_others_stay() -> None:
    held = mirrored(with_metadata(cluster(), labels={"by": "hand"}), tainted(region="eu"))
    assert labels_of(held) == {"by": "hand", "region": "eu"}
    assert labels_of(mirrored(held, tainted(zone="a"))) == {"by": "hand", "zone": "a"}


def test_a_note_that_somebody_spoiled_takes_nothing_away() -> None:
    spoiled = with_metadata(cluster(taints=[NOT_READY]), annotations={MIRRORED: "{oops"})
    assert list(taints_of(mirrored(spoiled, tainted(taint("gpu"))))) == [NOT_READY, taint("gpu")]


_keys = st.sampled_from(["a", "b", "c"])
_taints: Any = st.lists(
    st.builds(taint, _keys, st.sampled_from(["", "1"])),
    max_size=4,
    unique_by=lambda each: (each["key"], each.get("value")),
)


@given(_taints, _taints, _taints)
def test_mirroring_twice_is_mirroring_once_and_theirs_are_never_lost(
    theirs: list[Object], first: list[Object], second: list[Object]
) -> None:
    once = mirrored(mirrored(cluster(taints=theirs), tainted(*first)), tainted(*second))
    assert mirrored(once, tainted(*second)) == once
    assert all(each in taints_of(once) for each in [*theirs, *second])
    assert len(taints_of(once)) == len({str(each) for each in [*theirs, *second]})
