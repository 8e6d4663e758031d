"""MemberCluster and InternalMemberCluster: the declarative door into the fleet, and its rules.

Names, labels, finalizers, conditions and reasons are KubeFleet's, so that its users and its agents
find what they expect. What is ours alone begins with `clusterspace.io/` or says so.
"""

from collections.abc import Iterable
from typing import Any, Final, cast

from clusterspace.apis.clusters import KEEP_ON_LEAVE, cluster_name_causes
from clusterspace.apis.identities import AGENT_USER_PREFIX, AGENTS
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import label_value_problems, qualified_name_problems
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource

GROUP: Final = "cluster.kubernetes-fleet.io"
MEMBER_CLUSTERS: Final = GroupVersionResource(GROUP, "v1beta1", "memberclusters")
INTERNAL_MEMBER_CLUSTERS: Final = GroupVersionResource(GROUP, "v1beta1", "internalmemberclusters")
FLEET_WORKS: Final = GroupVersionResource("placement.kubernetes-fleet.io", "v1beta1", "works")
KIND: Final = "MemberCluster"
INTERNAL_KIND: Final = "InternalMemberCluster"

NAMESPACE_PREFIX: Final = "fleet-member-"
FINALIZER: Final = "kubernetes-fleet.io/membercluster-finalizer"
FLEET_WORK_FINALIZER: Final = "kubernetes-fleet.io/work-cleanup"
NAME_LABEL: Final = "kubernetes-fleet.io/member-name"
FLEET_LABEL: Final = "kubernetes-fleet.io/is-fleet-resource"

"""Annotation of a MemberCluster: `true` lets what was placed stay on the member when it leaves."""

FORCE_LEAVE: Final = "clusterspace.io/force-leave"
"""Annotation of a MemberCluster: `true` gives a dead agent up at once, not after the time set."""

JOIN: Final = "Join"
LEAVE: Final = "Leave"

AGENT: Final = "clusterspace.io/agent"
"""Annotation of a Cluster: whose agent works there, where that is not ours."""
KUBEFLEET: Final = "kubefleet"

MEMBER_AGENT: Final = "MemberAgent"
"""The agent whose word counts; others may report too, and are passed on unheard."""

READY_TO_JOIN: Final = "ReadyToJoin"
JOINED: Final = "Joined"
HEALTHY: Final = "Healthy"
HEARTBEAT: Final = "HeartbeatReceived"
"""Ours: whether the agent is heard. Being silent is not having left, so Joined stays."""
LEAVING: Final = "Leaving"
"""Ours: what a leave is about to do, said before it does anything."""

NODE_COUNT: Final = "kubernetes-fleet.io/node-count"
KUBERNETES_VERSION: Final = "k8s.io/k8s-version"
CLUSTER_ID: Final = "clusterspace.io/cluster-id"
"""Property by which our agent tells who its cluster is: the same cluster twice is refused."""

DEFAULT_PERIOD_SECONDS: Final = 60
SILENT_PERIODS: Final = 1.5
"""After how many of them without a heartbeat a member is silent: one was due and did not come."""

_RBAC: Final = "rbac.authorization.k8s.io"
_KINDS: Final = ("User", "Group", "ServiceAccount")
_EVERYBODY: Final = frozenset(
    {"system:authenticated", "system:unauthenticated", "system:serviceaccounts"}
)
_ACCOUNTS_OF: Final = "system:serviceaccounts:"
_NOBODY: Final = "system:anonymous"
_MASTERS: Final = "system:masters"


def member_namespace(cluster_name: str) -> str:
    """Return the namespace on the hub that a member shares with it."""
    return NAMESPACE_PREFIX + cluster_name


def identity_of(member_cluster: Object) -> Object:
    """Return who the agent of a member is, as a subject of bindings."""
    given: Object = find_at(member_cluster, "spec", "identity") or {}
    subject = {key: given[key] for key in ("kind", "name", "namespace") if given.get(key)}
    if subject.get("kind") == "ServiceAccount":
        return subject
    return {**subject, "apiGroup": given.get("apiGroup") or _RBAC}


def is_everybody(kind: str, name: str) -> bool:
    """Whether a subject is no one's own: a group that nobody is put into, or who did not log in.

    Every account of a namespace is one of `system:serviceaccounts:NAMESPACE`, also one that a
    tenant makes there tomorrow.
    """
    is_open = name in _EVERYBODY or name.startswith(_ACCOUNTS_OF)
    return (kind == "Group" and is_open) or name == _NOBODY


def names_user(identity: Object, user_name: str, groups: Iterable[str]) -> bool:
    """Whether somebody is who an identity names."""
    kind, name = identity.get("kind"), str(identity.get("name"))
    match kind:
        case "User":
            return name == user_name
        case "Group":
            return name in groups
        case "ServiceAccount":
            return user_name == f"system:serviceaccount:{identity.get('namespace')}:{name}"
        case _:
            return False


def is_registered_agent(member_cluster: Object) -> bool:
    """Whether the identity is that of the cluster's registration, which ends with the Cluster."""
    identity = identity_of(member_cluster)
    own = AGENT_USER_PREFIX + name_of(member_cluster)
    return (identity.get("kind"), identity.get("name")) == ("User", own)


def period_of(spec_holder: Object) -> int:
    """Return how many seconds there are between two heartbeats."""
    return int(find_at(spec_holder, "spec", "heartbeatPeriodSeconds") or DEFAULT_PERIOD_SECONDS)


def taints_of(member_cluster: Object) -> tuple[Object, ...]:
    """Return the taints people set."""
    return tuple(find_at(member_cluster, "spec", "taints") or ())


def conditions_of(kube_object: Object) -> list[Object]:
    """Return the conditions of a MemberCluster or InternalMemberCluster."""
    return list(find_at(kube_object, "status", "conditions") or ())


def agent_statuses(kube_object: Object) -> list[Object]:
    """Return the status of each agent."""
    return list(find_at(kube_object, "status", "agentStatus") or ())


def find_agent_status(kube_object: Object) -> Object | None:
    """Return the status of the member agent, or None."""
    statuses = agent_statuses(kube_object)
    return next((each for each in statuses if each.get("type") == MEMBER_AGENT), None)


def cluster_id_of(internal: Object) -> str:
    """Return who the agent says its cluster is, or an empty text."""
    return property_of(internal, CLUSTER_ID)


def heartbeat_of(kube_object: Object) -> str:
    """Return when the member agent was last heard, by its own clock; empty if it never was."""
    return str((find_agent_status(kube_object) or {}).get("lastReceivedHeartbeat") or "")


def property_of(kube_object: Object, name: str) -> str:
    """Return a property that an agent reported, or an empty text."""
    return str(find_at(kube_object, "status", "properties", name, "value") or "")


def whose_agent(internal: Object) -> str | None:
    """Return whose agent reports here: KubeFleet's, ours (an empty text), or None while unknown.

    Both count the nodes of their cluster, and ours says besides which cluster it is. One that has
    done neither yet is nobody's: an agent of ours whose cluster does not answer looks like that.
    """
    if cluster_id_of(internal):
        return ""
    return KUBEFLEET if property_of(internal, NODE_COUNT) else None


def has_kubefleet_agent(cluster: Object) -> bool:
    """Whether KubeFleet's own agent works for a Cluster."""
    return annotations_of(cluster).get(AGENT) == KUBEFLEET


def keeps_resources(member_cluster: Object) -> bool:
    """Whether what was placed stays on the member when it leaves."""
    return annotations_of(member_cluster).get(KEEP_ON_LEAVE) == "true"


def is_forced_out(member_cluster: Object) -> bool:
    """Whether its agent is not to be waited for when it leaves."""
    return annotations_of(member_cluster).get(FORCE_LEAVE) == "true"


def owner_reference(member_cluster: Object) -> Object:
    """Return the reference by which things go away with their MemberCluster."""
    return {
        "apiVersion": MEMBER_CLUSTERS.api_version,
        "kind": KIND,
        "name": name_of(member_cluster),
        "uid": uid_of(member_cluster),
        "controller": True,
    }


def is_owned_by(kube_object: Object, member_cluster: Object) -> bool:
    """Whether an object was made for this MemberCluster, and not for an earlier one."""
    owners: list[Object] = metadata_of(kube_object).get("ownerReferences") or []
    return any(each.get("uid") == uid_of(member_cluster) for each in owners)


def has_member_cluster(cluster: Object) -> bool:
    """Whether a Cluster joined by a MemberCluster."""
    owners: list[Object] = metadata_of(cluster).get("ownerReferences") or []
    return any(
        each.get("kind") == KIND and str(each.get("apiVersion")).startswith(f"{GROUP}/")
        for each in owners
    )


def member_cluster_causes(member_cluster: Object, *, is_new: bool) -> tuple[Cause, ...]:
    """Return everything that is wrong with a MemberCluster beyond its schema.

    It is asked before the schema is, so what is not of the right type at all is left to that.
    """
    name = cluster_name_causes(name_of(member_cluster)) if is_new else ()
    identity: Any = find_at(member_cluster, "spec", "identity")
    subject = cast("Object", identity) if isinstance(identity, dict) else {}
    taints: Any = find_at(member_cluster, "spec", "taints")
    given = cast("list[Any]", taints) if isinstance(taints, list) else []
    masters: tuple[Cause, ...] = ()
    # Administrators are refused at first; what is there already must still be able to leave.
    if is_new and (subject.get("kind"), subject.get("name")) == ("Group", _MASTERS):
        why = "administrators are no member's agent"
        masters = (causes.invalid("spec.identity.name", _MASTERS, why),)
    return (
        *name,
        *masters,
        *_identity_causes(subject, name_of(member_cluster)),
        *_taint_causes(cast("Object", each) if isinstance(each, dict) else {} for each in given),
    )


def _identity_causes(identity: Object, cluster_name: str) -> tuple[Cause, ...]:
    kind, name = str(identity.get("kind") or ""), str(identity.get("name") or "")
    where = "spec.identity"
    if not kind or not name:
        return ()  # the schema says so
    if kind not in _KINDS:
        return (causes.not_supported(f"{where}.kind", kind, _KINDS),)
    if kind == "ServiceAccount" and not identity.get("namespace"):
        return (causes.required(f"{where}.namespace", "a service account is in a namespace"),)
    if is_everybody(kind, name):
        why = "everybody would be this member's agent"
        return (causes.invalid(f"{where}.name", name, why),)
    # The agents of other clusters are refused: the hub gives them no right beyond their own.
    is_other = kind == "User" and name.startswith(AGENT_USER_PREFIX)
    if is_other and name.removeprefix(AGENT_USER_PREFIX) == cluster_name:
        return ()
    if is_other or (kind == "Group" and name == AGENTS):
        why = f"this is not the agent of {cluster_name}, which is {AGENT_USER_PREFIX}{cluster_name}"
        return (causes.invalid("spec.identity.name", name, why),)
    return ()


def _taint_causes(taints: Iterable[Object]) -> tuple[Cause, ...]:
    found: list[Cause] = []
    seen: set[tuple[str, str, str]] = set()
    for index, taint in enumerate(taints):
        where = f"spec.taints[{index}]"
        if not isinstance(taint.get("key"), str):
            continue  # the schema says so
        key, value, effect = (str(taint.get(each) or "") for each in ("key", "value", "effect"))
        found += [causes.invalid(f"{where}.key", key, why) for why in qualified_name_problems(key)]
        found += [
            causes.invalid(f"{where}.value", value, why) for why in label_value_problems(value)
        ]
        if (key, value, effect) in seen:
            found.append(causes.duplicate(where, f"{key}={value}:{effect}"))
        seen.add((key, value, effect))
    return tuple(found)
