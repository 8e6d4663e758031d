"""How many replicas a template wants, and what each of them needs of a cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.apis.interpreter import kinds
from clusterspace.apis.interpreter.pod_templates import pod_spec_of
from clusterspace.builtins.resource_lists import effective
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.resources import GroupKind


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many there are to be, and `replicaRequirements` as bindings write it, if any."""

    count: int
    requirements: Object | None = None


def replicas_in(template: Object) -> Replicas | None:
    """Return what a template wants; None for kinds that have no replicas."""
    count_in = _COUNTS.get(kinds.kind_of(template))
    if count_in is None:
        return None
    return Replicas(count_in(template), _requirements_in(pod_spec_of(template) or {}))


def _wanted(template: Object) -> int:
    return int(find_at(template, "spec", "replicas") or 0)


def _pods_at_once(job: Object) -> int:
    """Return how many pods of a Job run at once: never more than are left to complete."""
    parallelism = int(find_at(job, "spec", "parallelism") or 0)
    completions = find_at(job, "spec", "completions")
    return parallelism if completions is None else min(parallelism, int(completions))


def _one(_: Object) -> int:
    return 1


_COUNTS: Final[Mapping[GroupKind, Callable[[Object], int]]] = {
    kinds.DEPLOYMENT: _wanted,
    kinds.REPLICA_SET: _wanted,
    kinds.STATEFUL_SET: _wanted,
    kinds.JOB: _pods_at_once,
    kinds.POD: _one,
}


def _requirements_in(pod_spec: Object) -> Object | None:
    found = {"nodeClaim": _node_claim_in(pod_spec), "resourceRequest": _requests_in(pod_spec)}
    return {key: value for key, value in found.items() if value} or None


def _node_claim_in(pod_spec: Object) -> Object:
    """Return what a pod asks of its node."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    asked: dict[str, Any] = {
        "hardNodeAffinity": find_at(pod_spec, "affinity", "nodeAffinity", required),
        "nodeSelector": pod_spec.get("nodeSelector"),
        "tolerations": pod_spec.get("tolerations"),
    }
    return {key: value for key, value in asked.items() if value}


def _requests_in(pod_spec: Object) -> dict[str, str]:
    """Return what one pod takes of its cluster, without what it takes none of."""
    complete = {
        **pod_spec,
        "containers": _with_requests(pod_spec.get("containers")),
        "initContainers": _with_requests(pod_spec.get("initContainers")),
    }
    taken = {**effective(complete, "requests"), **_overhead_in(complete)}
    return {name: text for name, text in taken.items() if parse_quantity(text).nanos > 0}


def _overhead_in(pod_spec: Object) -> dict[str, str]:
    """Return the requests that the pod's runtime adds to, with what it adds."""
    requests = effective(pod_spec, "requests")
    overhead: dict[str, str] = pod_spec.get("overhead") or {}
    return {
        name: str(parse_quantity(requests.get(name, "0")) + parse_quantity(text))
        for name, text in overhead.items()
    }


def _with_requests(containers: list[Object] | None) -> list[Object]:
    """Return the containers with a request where there is only a limit, as members set it."""
    return [_with_own_requests(container) for container in containers or ()]


def _with_own_requests(container: Object) -> Object:
    resources: Object = container.get("resources") or {}
    limits: Object = resources.get("limits") or {}
    requests: Object = {**limits, **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}
