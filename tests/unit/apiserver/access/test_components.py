"""What the parts of the control plane may do, where a role cannot say it."""

from dataclasses import replace

import pytest

from clusterspace.apis.consumers import CLUSTER_CONSUMERS, CONSUMER_LABEL
from clusterspace.apis.identities import CONTROLLERS_USER, FLEET_USER
from clusterspace.apiserver.access.components import (
    deletion_refusal_of,
    lendable,
    limit_of,
    only_marks,
)
from clusterspace.apiserver.access.default_roles import COMPONENT_BINDINGS, COMPONENT_ROLES
from clusterspace.apiserver.access.rbac import EVERYTHING, Rule, missing_atoms, read_rules
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.kube.objects import Object, namespace_of
from clusterspace.kube.resources import ResourceInfo

FLEET = User(FLEET_USER)
CONTROLLERS = User(CONTROLLERS_USER)
JANE = User("jane")
RUNS = "placement.kubernetes-fleet.io/clusterstagedupdateruns"
RBAC = "rbac.authorization.k8s.io"


def request(verb: str, resource: str, namespace: str = "", **more: str) -> RequestInfo:
    group, _, plural = resource.rpartition("/")
    return RequestInfo(
        method="",
        path="",
        verb=verb,
        is_resource=True,
        group=group,
        resource=plural,
        namespace=namespace,
        subresource=more.get("subresource", ""),
    )


def through_proxy(verb: str, inner: RequestInfo) -> RequestInfo:
    outer = request(verb, "cluster.karmada.io/clusters", subresource="proxy")
    return replace(outer, proxied=inner)


@pytest.mark.parametrize(
    ("user", "info", "name"),
    [
        (FLEET, request("list", "/secrets", "karmada-cluster"), ""),
        (CONTROLLERS, through_proxy("get", request("list", "/pods", "shop")), "west"),
        (CONTROLLERS, through_proxy("get", request("list", "metrics.k8s.io/pods", "shop")), "west"),
        (
            CONTROLLERS,
            through_proxy("get", request("get", "external.metrics.k8s.io/queue", "shop")),
            "west",
        ),
        (CONTROLLERS, request("update", RUNS, subresource="progress"), ""),
        (CONTROLLERS, request("list", "/secrets"), ""),
        (CONTROLLERS, request("delete", "/secrets", "karmada-cluster"), "west"),
        (CONTROLLERS, request("delete", "/namespaces"), "karmada-es-west"),
        (CONTROLLERS, request("delete", "/namespaces"), "fleet-member-west"),
        (CONTROLLERS, request("delete", f"{RBAC}/clusterroles"), "fleet-role-west"),
        (CONTROLLERS, request("patch", "apps/deployments", "shop", subresource="status"), "web"),
        (JANE, request("delete", "/namespaces"), "shop"),
        (JANE, request("impersonate", "/users"), "carl"),
    ],
)
def test_roles_decide_about_what_a_part_needs_and_about_everybody_else(
    user: User, info: RequestInfo, name: str
) -> None:
    assert limit_of(user, info, name) == ""


@pytest.mark.parametrize(
    ("user", "info", "name"),
    [
        (FLEET, request("list", "/secrets"), ""),
        (FLEET, request("get", "/secrets", "shop"), "till"),
        (CONTROLLERS, request("update", "/secrets", "shop"), "till"),
        (CONTROLLERS, request("deletecollection", "/secrets", "shop"), ""),
        (CONTROLLERS, request("delete", "/namespaces"), "shop"),
        (CONTROLLERS, request("delete", "/namespaces"), "karmada-cluster"),
        (CONTROLLERS, request("delete", f"{RBAC}/clusterroles"), "view"),
        (CONTROLLERS, request("deletecollection", f"{RBAC}/clusterroles"), ""),
        (CONTROLLERS, request("get", "cluster.karmada.io/clusters", subresource="proxy"), "west"),
        (CONTROLLERS, through_proxy("get", request("list", "/secrets", "shop")), "west"),
        (CONTROLLERS, through_proxy("get", request("get", "/pods", "shop")), "west"),
        (CONTROLLERS, through_proxy("get", request("watch", "/pods", "shop")), "west"),
        (CONTROLLERS, through_proxy("patch", request("patch", "/pods", "shop")), "west"),
        (
            CONTROLLERS,
            through_proxy("get", request("get", "/pods", "shop", subresource="log")),
            "west",
        ),
        (
            CONTROLLERS,
            through_proxy("create", request("create", "metrics.k8s.io/pods", "shop")),
            "west",
        ),
        (CONTROLLERS, request("create", "/pods", "shop", subresource="exec"), "till"),
        (CONTROLLERS, request("escalate", f"{RBAC}/clusterroles"), "fleet-role-west"),
        (CONTROLLERS, request("bind", f"{RBAC}/roles", "fleet-member-west"), "fleet-role-west"),
        (JANE, request("impersonate", "/users"), CONTROLLERS_USER),
        (JANE, request("impersonate", "/users"), "system:karmada:agent:west"),
        (JANE, request("impersonate", "/groups"), "system:karmada:agents"),
    ],
)
def test_no_role_gets_past_a_limit(user: User, info: RequestInfo, name: str) -> None:
    assert limit_of(user, info, name)


SECRETS = ResourceInfo("", "v1", "Secret", "secrets", "secret", True, ())


def secret(namespace: str, **metadata: object) -> Object:
    return {"kind": "Secret", "metadata": {"name": "till", "namespace": namespace, **metadata}}


def for_consumer(kind: str) -> Object:
    owner = {
        "apiVersion": CLUSTER_CONSUMERS.group_version,
        "kind": kind,
        "name": "argo",
        "uid": "1",
    }
    return secret("shop", labels={CONSUMER_LABEL: "argo"}, ownerReferences=[owner])


@pytest.mark.parametrize("old", [secret("karmada-cluster"), for_consumer("ClusterConsumer")])
def test_the_controllers_delete_credentials_that_they_wrote(old: Object) -> None:
    assert deletion_refusal_of(SECRETS, old) == ""


@pytest.mark.parametrize(
    "old", [secret("shop"), secret("shop", labels={CONSUMER_LABEL: "argo"}), for_consumer("Job")]
)
def test_no_role_lets_the_controllers_delete_other_secrets(old: Object) -> None:
    assert deletion_refusal_of(SECRETS, old)


HELD = next(each.rules for each in COMPONENT_ROLES if each.name == CONTROLLERS_USER)
WEST: Object = {"metadata": {"name": "west", "uid": "1"}}


@pytest.mark.parametrize(
    "made",
    [
        manifests.member_role(WEST),
        manifests.lease_role(WEST),
        manifests.works_role(WEST),
        manifests.cluster_role(WEST),
    ],
    ids=["member", "lease", "works", "cluster"],
)
def test_the_controllers_grant_what_an_agent_needs_where_it_needs_it(made: Object) -> None:
    rules = read_rules(made["rules"])
    lent = lendable(CONTROLLERS, HELD, namespace_of(made))

    assert not list(missing_atoms(rules, lent))
    assert list(missing_atoms(rules, lendable(CONTROLLERS, HELD, "shop")))


@pytest.mark.parametrize(
    "namespace", ["", "shop", "kube-system", "karmada-cluster", "karmada-es-west", "fleet-member-w"]
)
@pytest.mark.parametrize(
    "rule",
    [
        Rule(("patch",), (EVERYTHING,), (EVERYTHING,)),
        Rule(("delete",), ("",), ("namespaces",)),
        Rule(("delete",), ("",), ("secrets",)),
        Rule(("create",), ("",), ("configmaps",)),
        Rule(("delete",), (RBAC,), ("rolebindings",)),
        Rule(("delete",), ("cluster.karmada.io",), ("clusters",)),
        Rule(("create",), ("work.karmada.io",), ("works",)),
        Rule(("delete",), ("coordination.k8s.io",), ("leases",)),
    ],
    ids=str,
)
def test_nothing_else_is_the_controllers_to_give(rule: Rule, namespace: str) -> None:
    assert list(missing_atoms((rule,), lendable(CONTROLLERS, HELD, namespace)))
    assert lendable(JANE, (rule,), namespace) == (rule,)


def test_the_controllers_get_tokens_where_somebody_grants_them_and_not_by_their_role() -> None:
    token = request("create", "/serviceaccounts", "shop", subresource="token")

    assert limit_of(CONTROLLERS, token, "clerk") == ""
    assert list(missing_atoms((Rule(("create",), ("",), ("serviceaccounts/token",)),), HELD))


def test_the_controllers_grant_nothing_that_they_do_not_hold() -> None:
    works = Rule(("get", "list", "watch", "update", "patch"), ("work.karmada.io",), ("works",))

    assert lendable(CONTROLLERS, (works,), "karmada-es-west") == (works,)
    assert lendable(CONTROLLERS, (), "karmada-es-west") == ()


def role(**metadata: object) -> Object:
    return {"kind": "ClusterRole", "metadata": {"name": "reader", **metadata}, "rules": []}


def test_marks_of_propagation_on_a_role_change_nothing_that_it_says() -> None:
    marked = role(
        labels={"clusterpropagationpolicy.karmada.io/permanent-id": "1"},
        annotations={"clusterpropagationpolicy.karmada.io/name": "all"},
        resourceVersion="2",
    )

    assert only_marks(CONTROLLERS, marked, role())
    assert not only_marks(JANE, marked, role())


@pytest.mark.parametrize(
    "changed",
    [
        {**role(), "rules": [{"verbs": ["*"]}]},
        role(labels={"rbac.authorization.k8s.io/aggregate-to-admin": "true"}),
        role(labels={"karmada.io.example.com/x": "1"}),
        role(ownerReferences=[{"uid": "1"}]),
        role(finalizers=["example.com/hold"]),
    ],
)
def test_anything_else_on_a_role_is_more_than_a_mark(changed: Object) -> None:
    assert not only_marks(CONTROLLERS, changed, role())


def test_no_part_may_do_everything_or_grant_freely() -> None:
    rules = [rule for each in COMPONENT_ROLES for rule in each.rules]

    assert not [rule for rule in rules if EVERYTHING in rule.verbs and EVERYTHING in rule.groups]
    assert not {"escalate", "bind", "approve", "sign"} & {
        verb for each in rules for verb in each.verbs
    }
    assert {user for each in COMPONENT_BINDINGS for user in each.users} == {
        FLEET_USER,
        CONTROLLERS_USER,
    }
    assert {each.groups for each in COMPONENT_BINDINGS} == {()}
