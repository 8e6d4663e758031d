"""FederatedResourceQuota of policy.karmada.io: how much a namespace may use in the whole fleet.

    spec.overall             the limit; what bindings of the namespace may take in all clusters
    spec.staticAssignments   a ResourceQuota for each cluster that is named
    status                   the limit, what is taken of it, and what each cluster says

What a binding takes is what one replica asks for, times the replicas in its `spec.clusters`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from clusterspace.apis.clusters import LONGEST_NAME as LONGEST_CLUSTER_NAME
from clusterspace.apis.works import clusters_of
from clusterspace.builtins.validation.resources import check_quantity, check_resource_name
from clusterspace.errors import Cause, MalformedQuantity
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity
from clusterspace.kube.resources import GroupVersionResource

GROUP: Final = "policy.karmada.io"
KIND: Final = "FederatedResourceQuota"
FEDERATED_RESOURCE_QUOTAS: Final = GroupVersionResource(
    GROUP, "v1alpha1", "federatedresourcequotas"
)

NAMESPACE_LABEL: Final = "federatedresourcequota.karmada.io/namespace"
NAME_LABEL: Final = "federatedresourcequota.karmada.io/name"
"""Labels of the Works that carry a quota to its clusters."""

LONGEST_NAME: Final = 63
"""The name is the value of a label."""

PODS: Final = "pods"
_REQUESTS: Final = "requests."
_COMPUTE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})

Amounts: TypeAlias = Mapping[str, Quantity]


def amounts_at(kube_object: Object, *path: str) -> dict[str, Quantity]:
    """Return the quantities at a place, without those that cannot be read."""
    found = cast("Mapping[str, Any]", find_at(kube_object, *path) or {})
    amounts: dict[str, Quantity] = {}
    for name, text in found.items():
        try:
            amounts[name] = parse_quantity(str(text))
        except MalformedQuantity:
            # Of a binding that was written by hand: what nobody can read nobody can count.
            continue
    return amounts


def assignments_of(quota: Object) -> dict[str, Object]:
    """Return what each cluster is to limit the namespace to, by its name."""
    listed = cast("list[Object]", find_at(quota, "spec", "staticAssignments") or [])
    assigned: dict[str, Object] = {}
    for each in listed:
        assigned.setdefault(str(each.get("clusterName") or ""), each.get("hard") or {})
    return assigned


def taken_by(binding: Object, names: Mapping[str, object]) -> dict[str, Quantity]:
    """Return what a binding takes up of the resources named; those it does not need are left out.

    Of a workload with several components every cluster runs one whole set.
    """
    targets = clusters_of(binding)
    components = cast("list[Object]", find_at(binding, "spec", "components") or [])
    sets = [(each, int(each.get("replicas") or 0) * len(targets)) for each in components] or [
        (cast("Object", binding.get("spec") or {}), sum(each.replicas for each in targets))
    ]
    taken: dict[str, Quantity] = {}
    for described, replicas in sets:
        asked = amounts_at(described, "replicaRequirements", "resourceRequest")
        for name in names:
            each = Quantity(10**9) if name == PODS else asked.get(name.removeprefix(_REQUESTS))
            if each and replicas:
                taken[name] = taken.get(name, ZERO) + each * replicas
    return taken


def growth_of(quota: Object, old: Object | None, new: Object) -> dict[str, Quantity]:
    """Return how much more a binding takes of what a quota limits than it did before."""
    overall = amounts_at(quota, "spec", "overall")
    before = {} if old is None else taken_by(old, overall)
    return {
        name: amount - before.get(name, ZERO)
        for name, amount in taken_by(new, overall).items()
        if amount > before.get(name, ZERO)
    }


def why_exceeded(quota: Object, more: Amounts, total: Amounts) -> str:
    """Return why a quota does not allow what is taken more, which makes this total; or nothing."""
    overall = amounts_at(quota, "spec", "overall")
    for name in sorted(more):
        if total[name] > overall[name]:
            return (
                f"{KIND}({namespace_of(quota)}/{name_of(quota)}) exceeded for resource "
                f"{name}: requested sum {total[name]}, limit {overall[name]}."
            )
    return ""


def uncounted(quota: Object) -> list[str]:
    """Return the resources of a quota that bindings say nothing about."""
    overall = cast("Mapping[str, Any]", find_at(quota, "spec", "overall") or {})
    return [name for name in sorted(overall) if not _is_counted(name)]


def _is_counted(name: str) -> bool:
    bare = name.removeprefix(_REQUESTS)
    if name == PODS or bare in _COMPUTE or bare.startswith("hugepages-"):
        return True
    # Devices and the like, which are named after whoever hands them out.
    return "/" in bare and not bare.startswith("count/") and "storageclass" not in bare


def quota_causes(quota: Object) -> tuple[Cause, ...]:
    """Return every reason why a quota cannot be as it is."""
    found: list[Cause] = []
    name = name_of(quota)
    if len(name) > LONGEST_NAME:
        why = f"must be no more than {LONGEST_NAME} characters"
        found.append(causes.invalid("metadata.name", name, why))
    overall = cast("Mapping[str, Any]", find_at(quota, "spec", "overall") or {})
    found += _amount_causes(overall, "spec.overall")
    sums: dict[str, Quantity] = {}
    seen: set[str] = set()
    listed = cast("list[Object]", find_at(quota, "spec", "staticAssignments") or [])
    for index, each in enumerate(listed):
        place = f"spec.staticAssignments[{index}]"
        cluster = str(each.get("clusterName") or "")
        problems = [*dns1123_label_problems(cluster)]
        if len(cluster) > LONGEST_CLUSTER_NAME:
            problems.append(f"must be no more than {LONGEST_CLUSTER_NAME} characters")
        found += [causes.invalid(f"{place}.clusterName", cluster, why) for why in problems]
        if cluster in seen:
            found.append(causes.duplicate(f"{place}.clusterName", cluster))
        seen.add(cluster)
        hard = cast("Mapping[str, Any]", each.get("hard") or {})
        found += _amount_causes(hard, f"{place}.hard")
        for resource in hard:
            if resource not in overall:
                why = "assignment resourceName is not exist in overall"
                found.append(causes.invalid(f"{place}.hard[{resource}]", resource, why))
        for resource, amount in amounts_at(each, "hard").items():
            sums[resource] = sums.get(resource, ZERO) + amount
    for resource, limit in amounts_at(quota, "spec", "overall").items():
        if resource in sums and limit < sums[resource]:
            why = "overall is less than assignments"
            found.append(causes.invalid(f"spec.overall[{resource}]", str(limit), why))
    return tuple(found)


def _amount_causes(amounts: Mapping[str, Any], place: str) -> Iterator[Cause]:
    for name, text in amounts.items():
        field = f"{place}[{name}]"
        yield from check_resource_name(name, field)
        try:
            yield from check_quantity(name, str(text), field)
        except MalformedQuantity as error:
            yield causes.invalid(field, str(text), error.message)
