"""How many replicas a template wants, what each needs of a cluster, and how a share is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.interpreter import kinds
from clusterspace.apis.interpreter.kinds import (
    DEPLOYMENT,
    JOB,
    REPLICA_SET,
    STATEFUL_SET,
    kind_of,
)
from clusterspace.builtins.resource_lists import effective
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.resources import GroupKind


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many there are to be, and `replicaRequirements` as bindings write it, if any."""

    count: int
    requirements: Object | None = None


def replicas_in(template: Object) -> Replicas | None:
    """Return the replicas a template asks for; None for kinds that have no replicas."""
    match kinds.kind_of(template):
        case kinds.DEPLOYMENT | kinds.REPLICA_SET | kinds.STATEFUL_SET:
            count = int(find_at(template, "spec", "replicas") or 0)
        case kinds.JOB:
            # As many pods as run at once: never more than are left to complete.
            count = int(find_at(template, "spec", "parallelism") or 0)
            completions = find_at(template, "spec", "completions")
            count = count if completions is None else min(count, int(completions))
        case kinds.POD:
            count = 1
        case _:
            return None
    pod_spec = kinds.pod_spec_of(template) or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    asked_of_node = {
        "hardNodeAffinity": find_at(pod_spec, "affinity", "nodeAffinity", required),
        "nodeSelector": pod_spec.get("nodeSelector"),
        "tolerations": pod_spec.get("tolerations"),
    }
    complete = {**pod_spec}
    for field in ("containers", "initContainers"):
        containers: list[Object] = pod_spec.get(field) or []
        complete[field] = [_with_requests(container) for container in containers]
    taken = effective(complete, "requests")
    # What the pod's runtime adds is taken as well.
    overhead: dict[str, str] = pod_spec.get("overhead") or {}
    for name, text in overhead.items():
        taken[name] = str(parse_quantity(taken.get(name, "0")) + parse_quantity(text))
    requirements = {
        "nodeClaim": {key: value for key, value in asked_of_node.items() if value},
        "resourceRequest": {
            name: text for name, text in taken.items() if parse_quantity(text).nanos > 0
        },
    }
    return Replicas(count, {key: value for key, value in requirements.items() if value} or None)


def _with_requests(container: Object) -> Object:
    """Return a container with a request where there is only a limit, as members set it."""
    resources: Object = container.get("resources") or {}
    limits: Object = resources.get("limits") or {}
    requests: Object = {**limits, **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


_FIELDS: Final[Mapping[GroupKind, str]] = {
    DEPLOYMENT: "replicas",
    REPLICA_SET: "replicas",
    STATEFUL_SET: "replicas",
    JOB: "parallelism",
}
"""Which field of a kind's spec says how many pods run at once."""


def with_replicas(manifest: Object, replicas: int) -> Object:
    """Return the manifest with this many replicas; the same one for kinds that have none."""
    field = _FIELDS.get(kind_of(manifest))
    if field is None or find_at(manifest, "spec", field) == replicas:
        return manifest
    return with_value(manifest, replicas, "spec", field)


def find_completions(manifest: Object) -> int | None:
    """Return how many pods of a Job must succeed; None for other kinds, or when any will do."""
    return find_at(manifest, "spec", "completions") if kind_of(manifest) == JOB else None


def with_completions(manifest: Object, completions: int) -> Object:
    """Return the Job with this many completions."""
    return with_value(manifest, completions, "spec", "completions")
