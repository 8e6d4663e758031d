"""How many more replicas a cluster can hold, by what it reported of its room."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from clusterspace.errors import MalformedQuantity
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity

Amounts: TypeAlias = Mapping[str, Quantity]

PODS: Final = "pods"


@dataclass(frozen=True, slots=True)
class NodeSize:
    """Nodes that have at least this much room each."""

    count: int
    at_least: Amounts


@dataclass(frozen=True, slots=True)
class Room:
    """What is free in a cluster: in all, and by sizes of nodes when it was counted that way."""

    free: Amounts
    nodes: tuple[NodeSize, ...] = ()


NO_ROOM: Final = Room({})


def room_of(cluster: Object) -> Room:
    """Return the room a Cluster reported; none when it reported nothing that can be read."""
    summary = cast("Object", find_at(cluster, "status", "resourceSummary") or {})
    try:
        return Room(_free(summary), _node_sizes(cluster, summary))
    except MalformedQuantity:
        # One cluster that reports nonsense gets nothing by room; the others are not its problem.
        return NO_ROOM


def read_amounts(held: object) -> Amounts:
    """Read a map of resources to quantities."""
    given = cast("dict[str, Any]", held or {})
    return {resource: parse_quantity(str(amount)) for resource, amount in given.items()}


def most_replicas(room: Room, each: Amounts) -> int:
    """Return how many replicas that ask for so much each there is room for."""
    asked = {resource: amount for resource, amount in each.items() if amount > ZERO}
    pods = max(room.free.get(PODS, ZERO).nanos // 10**9, 0)
    if not asked or not pods:
        return pods
    # A sum over the cluster counts crumbs on many nodes as one place; sizes of nodes do not.
    is_counted = room.nodes and all(asked.keys() <= size.at_least.keys() for size in room.nodes)
    fits = _fits_nodes(room.nodes, asked) if is_counted else _times(room.free, asked)
    return min(pods, fits)


def _fits_nodes(nodes: tuple[NodeSize, ...], asked: Amounts) -> int:
    return sum(size.count * _times(size.at_least, asked) for size in nodes)


def _times(held: Amounts, asked: Amounts) -> int:
    """Return how many times an amount fits into another."""
    times = (held.get(resource, ZERO).nanos // each.nanos for resource, each in asked.items())
    return max(min(times), 0)


def _free(summary: Object) -> Amounts:
    allocatable, allocated, allocating = (
        read_amounts(summary.get(part)) for part in ("allocatable", "allocated", "allocating")
    )
    return {
        resource: amount - allocated.get(resource, ZERO) - allocating.get(resource, ZERO)
        for resource, amount in allocatable.items()
    }


def _node_sizes(cluster: Object, summary: Object) -> tuple[NodeSize, ...]:
    counts = {
        int(each["grade"]): int(each["count"]) for each in summary.get("allocatableModelings") or ()
    }
    models = cast("list[Object]", find_at(cluster, "spec", "resourceModels") or [])
    return tuple(
        NodeSize(
            counts[int(model["grade"])],
            {str(each["name"]): parse_quantity(str(each["min"])) for each in model["ranges"]},
        )
        for model in models
        if int(model["grade"]) in counts
    )
