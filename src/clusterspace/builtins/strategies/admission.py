"""What the server's own admission plug-ins add to new objects.

Protection finalizers keep a volume or claim that is in use; pods get the default priority and
stay five minutes on a node that went away; nodes start out as not ready.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

from clusterspace.kube.objects import Object, find_at, metadata_of, with_metadata, with_value
from clusterspace.kube.resources import GroupKind

_Admit: TypeAlias = Callable[[Object], Object]

_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_SECONDS_ON_A_LOST_NODE: Final = 300

# The classes every cluster has; others are objects the caller may look up.
_SYSTEM_PRIORITIES: Final = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}


def admit_new(kind: GroupKind, new: Object) -> Object:
    """Return the object as the built-in plug-ins let it pass."""
    admit = _ADMIT.get((kind.group, kind.kind))
    return admit(new) if admit else new


def _protected_by(finalizer: str) -> _Admit:
    def admit(new: Object) -> Object:
        held = cast("list[str]", metadata_of(new).get("finalizers") or [])
        if finalizer in held:
            return new
        return with_metadata(new, finalizers=[*held, finalizer])

    return admit


def _admit_node(node: Object) -> Object:
    taints = cast("list[Object]", find_at(node, "spec", "taints") or [])
    not_ready = {"key": _NOT_READY, "effect": "NoSchedule"}
    if not_ready in taints:
        return node
    return with_value(node, [*taints, not_ready], "spec", "taints")


def _admit_pod(pod: Object) -> Object:
    spec = cast("Object", pod["spec"])
    priority = _SYSTEM_PRIORITIES.get(spec.get("priorityClassName", ""), 0)
    filled = {"priority": priority, "preemptionPolicy": "PreemptLowerPriority", **spec}
    tolerations = cast("list[Object]", spec.get("tolerations") or [])
    added = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _SECONDS_ON_A_LOST_NODE,
        }
        for key in (_NOT_READY, _UNREACHABLE)
        if not any(_tolerates(each, key) for each in tolerations)
    ]
    if tolerations or added:
        filled["tolerations"] = [*tolerations, *added]
    return pod if filled == spec else {**pod, "spec": filled}


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and (
        toleration.get("effect", "") in ("", "NoExecute")
    )


_ADMIT: Final[Mapping[tuple[str, str], _Admit]] = {
    ("", "Node"): _admit_node,
    ("", "PersistentVolume"): _protected_by("kubernetes.io/pv-protection"),
    ("", "PersistentVolumeClaim"): _protected_by("kubernetes.io/pvc-protection"),
    ("", "Pod"): _admit_pod,
    ("storage.k8s.io", "VolumeAttributesClass"): _protected_by("kubernetes.io/vac-protection"),
}
