"""Work: the manifests one cluster must hold, and what it reported back."""

from dataclasses import dataclass
from typing import Any, Final

from clusterspace.apis import stamps
from clusterspace.apis.clusters import EXECUTION_PREFIX
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import Object, annotations_of, find_at, namespace_of
from clusterspace.kube.resources import GroupVersionKind

API_VERSION: Final = "work.karmada.io/v1alpha1"
KIND: Final = "Work"

APPLIED: Final = "Applied"
DISPATCHING: Final = "Dispatching"

ALREADY_EXISTS: Final = "already exists in the cluster"
"""In what is said of a manifest whose place is taken by an object that is not ours."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
UNKNOWN: Final = "Unknown"


@dataclass(frozen=True, slots=True)
class Report:
    """What a cluster says of the one object a Work holds; `status` is None until it was read."""

    cluster: str
    is_applied: bool
    message: str = ""
    """Why it is not applied."""
    status: Object | None = None
    health: str = UNKNOWN


def cluster_of(work: Object) -> str:
    """Return the cluster a Work is for: its namespace is that cluster's execution space."""
    return namespace_of(work).removeprefix(EXECUTION_PREFIX)


def manifests_of(work: Object) -> tuple[Object, ...]:
    """Return the objects the cluster must hold."""
    return tuple(find_at(work, "spec", "workload", "manifests") or ())


def suspends_dispatching(work: Object) -> bool:
    """Whether the cluster is not to be changed for now."""
    return find_at(work, "spec", "suspendDispatching") is True


def preserves_resources(work: Object) -> bool:
    """Whether the cluster keeps its object when the Work goes."""
    return find_at(work, "spec", "preserveResourcesOnDeletion") is True


def binding_key_of(work: Object) -> str:
    """Return the key of the binding a Work is from; empty for one that is from no binding.

    A key with a namespace is a ResourceBinding's, one without a ClusterResourceBinding's.
    """
    annotations = annotations_of(work)
    name = annotations.get(stamps.BINDING_NAME)
    if name:
        return f"{annotations.get(stamps.BINDING_NAMESPACE, '')}/{name}"
    return annotations.get(stamps.CLUSTER_BINDING_NAME, "")


def report_of(work: Object) -> Report:
    """Return the cluster's report about the Work's object."""
    conditions = find_at(work, "status", "conditions")
    applied = find_condition(conditions, APPLIED) or {}
    if applied.get("status") != TRUE:
        return Report(cluster_of(work), is_applied=False, message=str(applied.get("message") or ""))
    # Only a status of the manifest the Work now holds counts; an older one is no answer.
    manifests = manifests_of(work)
    expected = identifier_of(manifests[0], 0) if manifests else None
    listed: list[Object] = find_at(work, "status", "manifestStatuses") or []
    matching = (each for each in listed if expected and each.get("identifier") == expected)
    reported = next(matching, Object())
    return Report(
        cluster_of(work),
        is_applied=True,
        status=reported.get("status"),
        health=str(reported.get("health") or UNKNOWN),
    )


def identifier_of(manifest: Object, ordinal: int) -> Object:
    """Return how a Work's status names one of its manifests; what is empty is left out."""
    kind = GroupVersionKind.of(str(manifest.get("apiVersion") or ""), str(manifest.get("kind")))
    named: dict[str, Any] = {
        "group": kind.group,
        "kind": kind.kind,
        "name": find_at(manifest, "metadata", "name"),
        "namespace": find_at(manifest, "metadata", "namespace"),
        "version": kind.version,
    }
    kept = {key: value for key, value in named.items() if value}
    # Karmada leaves the resource empty, and its readers compare whole identifiers.
    return {**kept, "ordinal": ordinal, "resource": ""}
