from clusterspace.apiserver.access.grants import Binding, Grants, NamespacedName, Subject
from clusterspace.apiserver.access.rbac import Rule
from clusterspace.apiserver.http.request_info import RequestInfo, read_request
from clusterspace.apiserver.http.users import User

GET_PODS = Rule(("get",), ("",), ("pods",))
JANE = User("jane", ("devs",))
INFO = read_request("GET", "/api/v1/namespaces/shop/pods/web", "")
ELSEWHERE = read_request("GET", "/api/v1/namespaces/other/pods/web", "")


READER = NamespacedName("", "reader")


def bound(namespace: str, *subjects: Subject, role: NamespacedName = READER) -> Binding:
    return Binding(NamespacedName(namespace, "b"), role, subjects)


def filled(*bindings: Binding) -> Grants:
    grants = Grants()
    grants.put_role(NamespacedName("", "reader"), (GET_PODS,))
    for binding in bindings:
        grants.put_binding(binding)
    return grants


def may(grants: Grants, user: User, info: RequestInfo = INFO) -> bool:
    return grants.of_user(user, info.namespace).find(info, info.name) is not None


def test_a_role_binding_holds_in_its_namespace_only() -> None:
    grants = filled(bound("shop", Subject("User", "jane")))

    assert may(grants, JANE)
    assert not may(grants, JANE, ELSEWHERE)


def test_a_cluster_role_binding_holds_everywhere() -> None:
    grants = filled(bound("", Subject("Group", "devs")))

    assert may(grants, JANE)
    assert may(grants, JANE, ELSEWHERE)


def test_a_user_is_not_the_group_of_the_same_name() -> None:
    grants = filled(bound("", Subject("Group", "jane")))

    assert not may(grants, JANE)


def test_a_service_account_is_known_by_its_user_name() -> None:
    grants = filled(bound("", Subject("ServiceAccount", "bot", "ci")))

    assert may(grants, User("system:serviceaccount:ci:bot"))
    assert not may(grants, User("bot"))


def test_a_role_of_another_namespace_is_another_role() -> None:
    local = NamespacedName("shop", "reader")
    grants = Grants()
    grants.put_role(NamespacedName("other", "reader"), (GET_PODS,))
    grants.put_binding(bound("shop", Subject("User", "jane"), role=local))

    assert not may(grants, JANE)
    grants.put_role(local, (GET_PODS,))
    assert may(grants, JANE)


def test_what_is_taken_away_is_gone_at_once() -> None:
    grants = filled(bound("shop", Subject("User", "jane")))
    assert may(grants, JANE)

    grants.put_binding(bound("shop", Subject("User", "joe")))
    assert not may(grants, JANE)
    assert may(grants, User("joe"))

    grants.remove_role(NamespacedName("", "reader"))
    assert not may(grants, User("joe"))


def test_the_reason_is_kubernetes_own() -> None:
    grants = filled(bound("shop", Subject("Group", "devs")))

    grant = grants.of_user(JANE, "shop").find(INFO, "web")

    assert grant is not None
    assert grant.decision.reason == (
        'RBAC: allowed by RoleBinding "b/shop" of ClusterRole "reader" to Group "devs"'
    )


def test_more_users_than_are_remembered_all_get_the_right_answer() -> None:
    grants = filled(bound("shop", Subject("User", "jane")))

    answers = [may(grants, User(f"user-{number}")) for number in range(10_050)]

    assert not any(answers)
    assert may(grants, JANE)
