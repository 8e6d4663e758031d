from typing import Any

import pytest

from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.access.grants import Binding, NamespacedName, RoleCache, Subject
from clusterspace.apiserver.access.rbac import RBAC_GROUP, Rule
from clusterspace.apiserver.admission.escalation import EscalationGuard
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.errors import Forbidden, NotFound
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import ResourceInfo

JANE = User("jane", ("devs", "system:authenticated"))


def resource(plural: str, kind: str, *, namespaced: bool) -> ResourceInfo:
    return ResourceInfo(RBAC_GROUP, "v1", kind, plural, kind.lower(), namespaced, ())


ROLES = resource("roles", "Role", namespaced=True)
CLUSTER_ROLES = resource("clusterroles", "ClusterRole", namespaced=False)
BINDINGS = resource("rolebindings", "RoleBinding", namespaced=True)
ANY_RULE = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
HELD_RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}


class Check:
    """Compares what a write grants with what its author holds."""

    def __init__(self, guard: EscalationGuard) -> None:
        self._guard = guard

    def check(
        self, user: User, resource: ResourceInfo, new: Object, old: Object | None = None
    ) -> None:
        comparison = self._guard.find_comparison(user, resource, new, old)
        if comparison is not None:
            comparison.require_granted()


def check_with(*rules: Rule, namespace: str = "shop") -> Check:
    """Return the check as it is when Jane holds these rules in a namespace."""
    role_cache = RoleCache(MemoryStore())
    role_cache.grants.put_role(
        NamespacedName("", "held"), (Rule(("get",), ("",), ("pods",)), *rules)
    )
    subjects = (Subject("User", "jane"),)
    role_cache.grants.put_binding(
        Binding(NamespacedName(namespace, "b"), NamespacedName("", "held"), subjects)
    )
    role_cache.grants.put_role(NamespacedName("", "root"), (Rule(("*",), ("*",), ("*",)),))
    return Check(EscalationGuard(HubAuthorizer(role_cache), role_cache))


def role(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r", "namespace": "shop"}, "rules": list(rules), **more}


def binding(name: str, kind: str = "ClusterRole") -> dict[str, Any]:
    metadata = {"name": "b", "namespace": "shop"}
    return {"metadata": metadata, "roleRef": {"kind": kind, "name": name}}


def test_a_role_within_what_one_holds_passes() -> None:
    check_with().check(JANE, ROLES, role(HELD_RULE))


def test_the_refusal_names_everything_that_is_missing() -> None:
    wanted = role({**HELD_RULE, "verbs": ["get", "list"], "resources": ["pods", "secrets"]})

    with pytest.raises(Forbidden) as refused:
        check_with().check(JANE, ROLES, wanted)

    assert refused.value.message == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "jane" '
        '(groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions not '
        'currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )


def test_what_one_holds_in_a_namespace_cannot_be_granted_everywhere() -> None:
    everywhere = {"metadata": {"name": "r"}, "rules": [HELD_RULE]}

    with pytest.raises(Forbidden):
        check_with().check(JANE, CLUSTER_ROLES, everywhere)


def test_binding_a_role_needs_its_rules_or_the_verb_bind() -> None:
    with pytest.raises(Forbidden):
        check_with().check(JANE, BINDINGS, binding("root"))
    check_with().check(JANE, BINDINGS, binding("held"))
    may_bind = Rule(("bind",), (RBAC_GROUP,), ("clusterroles",), ("root",))
    check_with(may_bind).check(JANE, BINDINGS, binding("root"))


def test_a_role_that_is_not_there_cannot_be_bound() -> None:
    with pytest.raises(NotFound):
        check_with().check(JANE, BINDINGS, binding("nowhere", "Role"))


def test_only_full_authority_may_aggregate() -> None:
    gathering = {"metadata": {"name": "r"}, "rules": [], "aggregationRule": {"x": 1}}
    everything = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))

    with pytest.raises(Forbidden, match="must have cluster-admin privileges"):
        check_with().check(JANE, CLUSTER_ROLES, gathering)
    # Whoever had it changed must hold as much: the rules it lost could come back.
    plain = {"metadata": {"name": "r"}, "rules": []}
    with pytest.raises(Forbidden, match="must have cluster-admin privileges"):
        check_with().check(JANE, CLUSTER_ROLES, plain, gathering)
    check_with(*everything, namespace="").check(JANE, CLUSTER_ROLES, gathering)


def test_garbage_collection_may_touch_roles_it_does_not_hold() -> None:
    old = role(ANY_RULE)
    metadata = {**old["metadata"], "finalizers": []}

    check_with().check(JANE, ROLES, {**old, "metadata": metadata}, old)
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    with pytest.raises(Forbidden):
        check_with().check(JANE, ROLES, labelled, old)


def test_administrators_and_other_resources_pass() -> None:
    check_with().check(User("root", (MASTERS,)), ROLES, role(ANY_RULE))
    other = ResourceInfo("", "v1", "ConfigMap", "roles", "configmap", True, ())
    check_with().check(JANE, other, role(ANY_RULE))
