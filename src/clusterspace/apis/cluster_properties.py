"""Properties of clusters: what placements of KubeFleet pick by, besides labels.

    kubernetes-fleet.io/node-count                          nodes
    resources.kubernetes-fleet.io/allocatable-RESOURCE      what its nodes offer to pods
    resources.kubernetes-fleet.io/available-RESOURCE        what pods leave of that
    resources.kubernetes-fleet.io/total-RESOURCE            what its nodes have

The first three are known of every Cluster. What a MemberCluster's agent reports, the last and
properties of its own among it, is known of clusters that came by that door.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from clusterspace.apis.member_clusters import NODE_COUNT
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import qualified_name_problems
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import ZERO, MalformedQuantity, Quantity, parse_quantity

RESOURCES: Final = "resources.kubernetes-fleet.io/"
TOTAL: Final = "total"
ALLOCATABLE: Final = "allocatable"
AVAILABLE: Final = "available"
_CAPACITIES: Final = (TOTAL, ALLOCATABLE, AVAILABLE)
_USAGE: Final = {"capacity": TOTAL, "allocatable": ALLOCATABLE, "available": AVAILABLE}

Properties = Mapping[str, Quantity]
"""Values by name; what is no quantity cannot be compared, and is left out."""


def properties_of(cluster: Object) -> dict[str, Quantity]:
    """Return what a Cluster reported last, whatever door it came by."""
    found: dict[str, Quantity] = {}
    nodes = find_at(cluster, "status", "nodeSummary", "totalNum")
    if nodes is not None:
        found |= _read(NODE_COUNT, nodes)
    allocatable: Object = find_at(cluster, "status", "resourceSummary", "allocatable") or {}
    allocated: Object = find_at(cluster, "status", "resourceSummary", "allocated") or {}
    for resource, amount in allocatable.items():
        offered = _read("", amount).get("")
        used = _read("", allocated.get(resource, "0")).get("", ZERO)
        if offered is not None:
            found[f"{RESOURCES}{ALLOCATABLE}-{resource}"] = offered
            found[f"{RESOURCES}{AVAILABLE}-{resource}"] = max(offered - used, ZERO)
    return found


def reported_properties(member_cluster: Object) -> dict[str, Quantity]:
    """Return what the agent of a MemberCluster reported last."""
    found: dict[str, Quantity] = {}
    reported: Object = find_at(member_cluster, "status", "properties") or {}
    for name, each in reported.items():
        found |= _read(name, find_at(each, "value"))
    for part, capacity in _USAGE.items():
        amounts: Object = find_at(member_cluster, "status", "resourceUsage", part) or {}
        for resource, amount in amounts.items():
            found |= _read(f"{RESOURCES}{capacity}-{resource}", amount)
    return found


def _read(name: str, value: object) -> dict[str, Quantity]:
    with suppress(MalformedQuantity):
        return {name: parse_quantity(str(value))}
    return {}


@dataclass(frozen=True, slots=True)
class PropertyRequirement:
    """What the value of a property must be like."""

    name: str
    operator: str
    value: Quantity | None
    """None cannot be met: what was written is no quantity."""

    def refusal(self, properties: Properties) -> str | None:
        """Return why a cluster does not meet it; None when it does."""
        actual = properties.get(self.name)
        if actual is None:
            return f"it reports no {self.name}"
        if self.value is None:
            return f"{self.name} is compared with what is no quantity"
        if _holds(actual.nanos, self.operator, self.value.nanos):
            return None
        return f"its {self.name} is {actual}, and must be {self.operator} {self.value}"


@dataclass(frozen=True, slots=True)
class PropertySorter:
    """By which property clusters are liked more or less."""

    name: str
    is_ascending: bool

    def share(self, properties: Properties, fleet: Sequence[Properties]) -> float:
        """Return from 0 to 1 how well a cluster does among all; 0 where nothing can be told."""
        values = [each[self.name].nanos for each in fleet if self.name in each]
        actual = properties.get(self.name)
        if actual is None or not values or min(values) == max(values):
            return 0.0
        position = (actual.nanos - min(values)) / (max(values) - min(values))
        return 1.0 - position if self.is_ascending else position


def requirements_of(term: Object) -> tuple[PropertyRequirement, ...]:
    """Return what a term asks of properties; all of it must hold."""
    expressions: list[Object] = find_at(term, "propertySelector", "matchExpressions") or []
    return tuple(
        PropertyRequirement(
            str(each.get("name") or ""),
            str(each.get("operator") or ""),
            _read("", next(iter(each.get("values") or ()), None)).get(""),
        )
        for each in expressions
    )


def sorter_of(term: Object) -> PropertySorter | None:
    """Return the property that a preference goes by, if it does."""
    sorter: Object = term.get("propertySorter") or {}
    if not sorter.get("name"):
        return None
    return PropertySorter(str(sorter["name"]), sorter.get("sortOrder") == "Ascending")


def property_causes(term: Object, field: str, *, is_required: bool) -> Iterator[Cause]:
    """Yield what is wrong with how a term goes by properties."""
    if is_required and term.get("propertySorter") is not None:
        why = "clusters that are required are not sorted: it belongs to a preference"
        yield causes.forbidden(f"{field}.propertySorter", why)
    if not is_required and term.get("propertySelector") is not None:
        why = "clusters that are preferred are sorted: it belongs to what is required"
        yield causes.forbidden(f"{field}.propertySelector", why)
    if is_required:
        expressions: list[Object] = find_at(term, "propertySelector", "matchExpressions") or []
        for index, each in enumerate(expressions):
            where = f"{field}.propertySelector.matchExpressions[{index}]"
            yield from _name_causes(str(each.get("name") or ""), f"{where}.name")
            values: list[object] = each.get("values") or []
            if len(values) != 1:
                yield causes.invalid(f"{where}.values", values, "exactly one is compared with")
            elif not _read("", values[0]):
                yield causes.invalid(f"{where}.values[0]", values[0], "is no quantity")
        wanted = requirements_of(term)
        for name in sorted({each.name for each in wanted}):
            about = [each for each in wanted if each.name == name]
            if _is_impossible(about):
                why = f"no value of {name} meets all of them"
                yield causes.invalid(f"{field}.propertySelector.matchExpressions", name, why)
    elif term.get("propertySorter") is not None:
        name = str(find_at(term, "propertySorter", "name") or "")
        yield from _name_causes(name, f"{field}.propertySorter.name")


def _name_causes(name: str, field: str) -> Iterator[Cause]:
    if not name.startswith(RESOURCES):
        yield from (causes.invalid(field, name, why) for why in qualified_name_problems(name))
        return
    capacity, _, resource = name.removeprefix(RESOURCES).partition("-")
    if capacity not in _CAPACITIES or not resource:
        why = f"must be {RESOURCES} and one of {', '.join(_CAPACITIES)} with -RESOURCE"
        yield causes.invalid(field, name, why)


def _is_impossible(wanted: Sequence[PropertyRequirement]) -> bool:
    """Whether no value meets all of these, which are about one property."""
    # Twice the amounts, so that there is a whole number between any two. A condition changes at the
    # values it names and nowhere else: these, and one between each two and beyond either end, stand
    # for all numbers.
    known = [(each.operator, each.value.nanos * 2) for each in wanted if each.value is not None]
    values = sorted({value for _, value in known})
    between = [(low + high) // 2 for low, high in pairwise(values)]
    ends = [values[0] - 1, values[-1] + 1] if values else []
    return bool(values) and not any(
        all(_holds(number, operator, value) for operator, value in known)
        for number in (*values, *between, *ends)
    )


def _holds(number: int, operator: str, value: int) -> bool:
    order = (number > value) - (number < value)
    met = {"Gt": (1,), "Ge": (0, 1), "Lt": (-1,), "Le": (-1, 0), "Eq": (0,), "Ne": (-1, 1)}
    return order in met.get(operator, ())
