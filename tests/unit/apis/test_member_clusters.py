import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apis.member_clusters import (
    has_member_cluster,
    identity_of,
    is_owned_by,
    keeps_resources,
    member_cluster_causes,
    names_user,
    owner_reference,
    period_of,
)
from clusterspace.kube.objects import Object

ACCOUNT: Object = {"kind": "ServiceAccount", "name": "agent", "namespace": "fleet-system"}
TAINT: Object = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def member_cluster(name: str = "west", identity: Object | None = None, **spec: object) -> Object:
    return {
        "apiVersion": "cluster.kubernetes-fleet.io/v1beta1",
        "kind": "MemberCluster",
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {"identity": ACCOUNT if identity is None else identity, **spec},
    }


def complaints(held: Object, *, is_new: bool = True) -> list[str]:
    return [f"{each.field}: {each.message}" for each in member_cluster_causes(held, is_new=is_new)]


@pytest.mark.parametrize(
    "identity",
    [
        ACCOUNT,
        {"kind": "User", "name": "jane"},
        {"kind": "Group", "name": "west-agents"},
        {"kind": "User", "name": "system:karmada:agent:west"},
    ],
    ids=["account", "user", "group", "own agent"],
)
def test_an_identity_that_can_be_bound_is_accepted(identity: Object) -> None:
    assert complaints(member_cluster(identity=identity)) == []


@pytest.mark.parametrize(
    ("identity", "complaint"),
    [
        ({"kind": "Robot", "name": "r"}, 'spec.identity.kind: Unsupported value: "Robot"'),
        ({"kind": "ServiceAccount", "name": "a"}, "spec.identity.namespace: Required value"),
        ({"kind": "Group", "name": "system:authenticated"}, "everybody would be this member's"),
        ({"kind": "Group", "name": "system:serviceaccounts:a"}, "everybody would be this member's"),
        ({"kind": "User", "name": "system:anonymous"}, "everybody would be this member's"),
        ({"kind": "Group", "name": "system:masters"}, "administrators are no member's agent"),
        ({"kind": "User", "name": "system:karmada:agent:east"}, "not the agent of west"),
        ({"kind": "Group", "name": "system:karmada:agents"}, "not the agent of west"),
    ],
    ids=[
        "kind",
        "nowhere",
        "everybody",
        "all accounts of a namespace",
        "anonymous",
        "masters",
        "other agent",
        "all agents",
    ],
)
def test_an_identity_that_cannot_be_meant_is_refused(identity: Object, complaint: str) -> None:
    (found,) = complaints(member_cluster(identity=identity))
    assert complaint in found


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5))
def test_what_is_of_no_type_that_fits_is_left_to_the_schema(anything: object) -> None:
    held = member_cluster(taints=anything)
    held["spec"]["identity"] = anything
    assert complaints(held) == []


@pytest.mark.parametrize(
    "name", ["a" * 49, "West", "-west", "west-", "we.st", "w_st", "all"], ids=repr
)
def test_a_name_that_no_cluster_can_have_is_refused_when_it_is_new(name: str) -> None:
    assert any(each.startswith("metadata.name") for each in complaints(member_cluster(name)))
    assert complaints(member_cluster(name), is_new=False) == []


@pytest.mark.parametrize("name", ["w", "west", "west-1", "1-west", "a" * 48])
def test_a_name_that_a_cluster_can_have_is_accepted(name: str) -> None:
    assert complaints(member_cluster(name)) == []


def test_every_bad_taint_is_named_at_once_with_its_place() -> None:
    taints = [{**TAINT, "key": "a b"}, TAINT, {**TAINT, "value": "?"}, TAINT]
    found = complaints(member_cluster(taints=taints))
    places = [each.partition(":")[0] for each in found]
    assert places == ["spec.taints[0].key", "spec.taints[2].value", "spec.taints[3]"]


def test_one_key_may_have_two_values() -> None:
    assert complaints(member_cluster(taints=[TAINT, {**TAINT, "value": "no"}])) == []


@pytest.mark.parametrize(
    ("identity", "user", "groups", "is_meant"),
    [
        ({"kind": "User", "name": "jane"}, "jane", (), True),
        ({"kind": "User", "name": "jane"}, "joe", ("jane",), False),
        ({"kind": "Group", "name": "devs"}, "joe", ("devs",), True),
        ({"kind": "Group", "name": "devs"}, "devs", (), False),
        (ACCOUNT, "system:serviceaccount:fleet-system:agent", (), True),
        (ACCOUNT, "system:serviceaccount:other:agent", (), False),
        ({"kind": "Robot", "name": "joe"}, "joe", (), False),
    ],
)
def test_an_identity_names_those_it_means(
    identity: Object, user: str, groups: tuple[str, ...], is_meant: bool
) -> None:
    assert names_user(identity, user, groups) is is_meant


def test_users_and_groups_are_bound_in_the_group_of_rbac_and_accounts_in_none() -> None:
    user = member_cluster(identity={"kind": "User", "name": "jane"})
    assert identity_of(user)["apiGroup"] == "rbac.authorization.k8s.io"
    assert "apiGroup" not in identity_of(member_cluster(identity={**ACCOUNT, "apiGroup": ""}))


def test_what_an_earlier_membercluster_of_the_name_made_is_not_this_ones() -> None:
    earlier, now = member_cluster(), member_cluster()
    now["metadata"]["uid"] = "another"
    cluster: Object = {"metadata": {"ownerReferences": [owner_reference(earlier)]}}
    assert is_owned_by(cluster, earlier)
    assert not is_owned_by(cluster, now)
    assert has_member_cluster(cluster)
    assert not has_member_cluster({"metadata": {}})


@given(st.sampled_from(["", "false", "True", "yes", "1"]))
def test_only_the_word_true_keeps_resources(text: str) -> None:
    held = member_cluster()
    held["metadata"]["annotations"] = {"clusterspace.io/keep-resources-on-leave": text}
    assert not keeps_resources(held)
    held["metadata"]["annotations"] = {"clusterspace.io/keep-resources-on-leave": "true"}
    assert keeps_resources(held)


def test_without_a_period_a_heartbeat_is_due_every_minute() -> None:
    assert period_of(member_cluster()) == 60
    assert period_of(member_cluster(heartbeatPeriodSeconds=5)) == 5
