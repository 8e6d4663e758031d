"""The FlowSchemas and priority levels that every API server has, with Kubernetes' names and specs.

    precedence  schema                         level            distinguished by
             1  exempt *                       exempt *
             2  probes                         exempt
           100  system-leader-election         leader-election  user
           400  system-node-high               node-high        user
           500  system-nodes                   system           user
           800  kube-controller-manager        workload-high    namespace
           800  kube-scheduler                 workload-high    namespace
           900  kube-system-service-accounts   workload-high    namespace
          9000  service-accounts               workload-low     user
          9900  global-default                 global-default   user
         10000  catch-all *                    catch-all *      user

Those with a star are mandatory: a server that finds them gone or changed puts them back. The others
are suggested; whoever sets their annotation `apf.kubernetes.io/autoupdate-spec` to `false` has them
for their own. https://kubernetes.io/docs/reference/debug-cluster/flow-control/
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clusterspace.kube.objects import Object

GROUP: Final = "flowcontrol.apiserver.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
SCHEMAS: Final = "flowschemas"
LEVELS: Final = "prioritylevelconfigurations"

AUTOUPDATE: Final = "apf.kubernetes.io/autoupdate-spec"
EXEMPT: Final = "exempt"
CATCH_ALL: Final = "catch-all"

BY_USER: Final = "ByUser"
BY_NAMESPACE: Final = "ByNamespace"

_MASTERS: Final = "system:masters"
_NODES: Final = "system:nodes"
_ACCOUNTS: Final = "system:serviceaccounts"
_EVERYBODY: Final = ("system:unauthenticated", "system:authenticated")


def groups(*names: str) -> list[Object]:
    """Return subjects: groups of users."""
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def users(*names: str) -> list[Object]:
    """Return subjects: users by name."""
    return [{"kind": "User", "user": {"name": name}} for name in names]


def _accounts_of(namespace: str) -> list[Object]:
    return [{"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": namespace}}]


def resource_rule(
    verbs: Sequence[str] = ("*",),
    api_groups: Sequence[str] = ("*",),
    resources: Sequence[str] = ("*",),
    *,
    is_cluster_scoped: bool = True,
) -> Object:
    """Return a rule about requests for resources, in any namespace."""
    rule: Object = {
        "verbs": list(verbs),
        "apiGroups": list(api_groups),
        "resources": list(resources),
        "namespaces": ["*"],
    }
    return {**rule, "clusterScope": True} if is_cluster_scoped else rule


def url_rule(*urls: str, verbs: Sequence[str] = ("*",)) -> Object:
    """Return a rule about requests for what is no resource."""
    return {"verbs": list(verbs), "nonResourceURLs": list(urls)}


def rules_for(
    subjects: Iterable[Object],
    resource_rules: Iterable[Object] = (resource_rule(),),
    url_rules: Iterable[Object] = (url_rule("*"),),
) -> list[Object]:
    """Return the rules of a schema that has one entry; by default about whatever is asked."""
    entry: Object = {"subjects": list(subjects)}
    if listed := list(resource_rules):
        entry["resourceRules"] = listed
    if listed := list(url_rules):
        entry["nonResourceRules"] = listed
    return [entry]


def _metadata(name: str) -> Object:
    return {"name": name, "annotations": {AUTOUPDATE: "true"}}


def flow_schema(
    name: str, level: str, precedence: int, distinguisher: str, rules: list[Object]
) -> Object:
    """Return a FlowSchema as it is suggested."""
    spec: Object = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": rules,
    }
    if distinguisher:
        spec["distinguisherMethod"] = {"type": distinguisher}
    return {
        "apiVersion": API_VERSION,
        "kind": "FlowSchema",
        "metadata": _metadata(name),
        "spec": spec,
    }


def _level(name: str, spec: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "PriorityLevelConfiguration",
        "metadata": _metadata(name),
        "spec": dict(spec),
    }


def _queued(name: str, shares: int, lendable: int, queues: int = 128, hand: int = 6) -> Object:
    queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": 50}
    limited = {
        "nominalConcurrencyShares": shares,
        "lendablePercent": lendable,
        "limitResponse": {"type": "Queue", "queuing": queuing},
    }
    return _level(name, {"type": "Limited", "limited": limited})


MANDATORY_LEVELS: Final = (
    _level(
        CATCH_ALL,
        {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 5,
                "lendablePercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    ),
    _level(
        EXEMPT,
        {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    ),
)

MANDATORY_SCHEMAS: Final = (
    flow_schema(EXEMPT, EXEMPT, 1, "", rules_for(groups(_MASTERS))),
    flow_schema(CATCH_ALL, CATCH_ALL, 10000, BY_USER, rules_for(groups(*_EVERYBODY))),
)

SUGGESTED_LEVELS: Final = (
    _queued("system", 30, 33, queues=64),
    _queued("node-high", 40, 25, queues=64),
    _queued("leader-election", 10, 0, queues=16, hand=4),
    _queued("workload-high", 40, 50),
    _queued("workload-low", 100, 90),
    _queued("global-default", 20, 50),
)

_LEASES: Final = "coordination.k8s.io"

SUGGESTED_SCHEMAS: Final = (
    flow_schema("system-nodes", "system", 500, BY_USER, rules_for(groups(_NODES))),
    flow_schema(
        "system-node-high",
        "node-high",
        400,
        BY_USER,
        rules_for(
            groups(_NODES),
            (
                resource_rule(api_groups=("",), resources=("nodes", "nodes/status")),
                resource_rule(
                    api_groups=(_LEASES,), resources=("leases",), is_cluster_scoped=False
                ),
            ),
            (),
        ),
    ),
    flow_schema(
        "probes",
        EXEMPT,
        2,
        "",
        rules_for(
            groups(*_EVERYBODY), (), (url_rule("/healthz", "/readyz", "/livez", verbs=("get",)),)
        ),
    ),
    flow_schema(
        "system-leader-election",
        "leader-election",
        100,
        BY_USER,
        rules_for(
            (
                *users("system:kube-controller-manager", "system:kube-scheduler"),
                *_accounts_of("kube-system"),
            ),
            (
                resource_rule(
                    ("get", "create", "update"), (_LEASES,), ("leases",), is_cluster_scoped=False
                ),
            ),
            (),
        ),
    ),
    *(
        flow_schema(name, "workload-high", 800, BY_NAMESPACE, rules_for(users(f"system:{name}")))
        for name in ("kube-controller-manager", "kube-scheduler")
    ),
    flow_schema(
        "kube-system-service-accounts",
        "workload-high",
        900,
        BY_NAMESPACE,
        rules_for(_accounts_of("kube-system")),
    ),
    flow_schema("service-accounts", "workload-low", 9000, BY_USER, rules_for(groups(_ACCOUNTS))),
    flow_schema("global-default", "global-default", 9900, BY_USER, rules_for(groups(*_EVERYBODY))),
)
