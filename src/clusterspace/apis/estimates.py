"""What a cluster can still take, node by node and by quotas: `status.estimate` of a Cluster.

    nodes, pods, quotas ──membership/room──> status.estimate ──> scheduler: how many replicas fit

Nodes that are alike (labels, taints) are one group, and of a group equal rooms are one entry with
a count. It is bounded however large the cluster is, and what is rounded is rounded down:

    labels: {os: linux}                              of every node
    omittedLabels: [kubernetes.io/hostname]          too many values to tell
    nodes:
    - labels: {zone: a}
      taints: [{key: gpu, effect: NoSchedule}]
      rooms: [{count: 3, free: {cpu: 1500m, memory: 4Gi, pods: "97"}}]
    quotas:
    - {namespace: shop, name: compute, free: {requests.cpu: "2"}}
    staleSince: 2026-03-01T10:20:00Z                 it could not be asked since

What a group does not tell of (an omitted label, a node's name) is taken to be as asked: too much
by a node or two, and never without end.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, cast

from clusterspace.builtins.quota_usage import PODS as POD_RESOURCE
from clusterspace.builtins.quota_usage import is_in_scope, usage_of
from clusterspace.errors import MalformedQuantity
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity
from clusterspace.kube.selectors import node_expression_holds, tolerates

Amounts: TypeAlias = Mapping[str, Quantity]

PODS: Final = "pods"
_ONE: Final = Quantity(10**9)
_REPELLING: Final = ("NoSchedule", "NoExecute")

MOST_GROUPS: Final = 20
MOST_ROOMS: Final = 400
MOST_LABELS: Final = 64
MOST_QUOTAS: Final = 300
"""A Cluster is read whole by everybody who follows it, so an estimate is tens of kilobytes."""

_ROUNDED_BITS: Final = (5, 4, 3, 2)
"""Leading bits that amounts keep when there are too many different rooms."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one replica asks of a node, and which quotas count it."""

    each: Amounts = field(default_factory=dict[str, Quantity])
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    node_terms: tuple[Object, ...] = ()
    tolerations: tuple[Object, ...] = ()
    namespace: str = ""
    priority_class: str = ""

    def is_repelled_by(self, taints: Iterable[Object]) -> bool:
        """Whether a taint keeps it away."""
        return any(
            taint.get("effect") in _REPELLING
            and not any(tolerates(each, taint) for each in self.tolerations)
            for taint in taints
        )

    def selects(self, labels: Mapping[str, str], omitted: frozenset[str]) -> bool:
        """Whether nodes with these labels would do, as far as that is known."""
        asked = {key: value for key, value in self.node_selector.items() if key not in omitted}
        if not asked.items() <= labels.items():
            return False
        for term in self.node_terms:
            expressions = cast("list[Object]", term.get("matchExpressions") or [])
            # A term without any requirement selects nothing. By fields nodes are chosen by name.
            if not expressions and not term.get("matchFields"):
                continue
            known = (each for each in expressions if each.get("key") not in omitted)
            if all(node_expression_holds(each, labels) for each in known):
                return True
        return not self.node_terms


def read_claim(requirements: Object | None, namespace: str) -> Claim:
    """Read the `replicaRequirements` of a binding, or of one of its components."""
    asked = requirements or {}
    node = cast("Object", asked.get("nodeClaim") or {})
    return Claim(
        each=_read_amounts(asked.get("resourceRequest")),
        node_selector=node.get("nodeSelector") or {},
        node_terms=tuple(find_at(node, "hardNodeAffinity", "nodeSelectorTerms") or ()),
        tolerations=tuple(node.get("tolerations") or ()),
        namespace=namespace,
        priority_class=str(asked.get("priorityClassName") or ""),
    )


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """Nodes on which as much is free."""

    count: int
    free: Amounts

    def fits(self, claim: Claim) -> int:
        """Return how many replicas one of these nodes can take."""
        asked = {PODS: _ONE, **{name: each for name, each in claim.each.items() if each > ZERO}}
        times = (self.free.get(name, ZERO).nanos // each.nanos for name, each in asked.items())
        return max(min(times), 0)

    def without(self, claim: Claim, replicas: int) -> "NodeRoom":
        """Return the nodes with so many replicas more on each."""
        asked = {PODS: _ONE, **claim.each}
        left = {
            name: amount - asked[name] * replicas if name in asked else amount
            for name, amount in self.free.items()
        }
        return replace(self, free=left)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes with the same labels and taints."""

    labels: Mapping[str, str]
    taints: tuple[Object, ...]
    rooms: tuple[NodeRoom, ...]


@dataclass(frozen=True, slots=True)
class QuotaRoom:
    """What a ResourceQuota of the cluster still allows."""

    namespace: str
    name: str
    free: Amounts
    scopes: tuple[Object, ...] = ()

    def counts(self, claim: Claim) -> Amounts:
        """Return what one replica takes of it; nothing when it is none of its business."""
        if claim.namespace != self.namespace:
            return {}
        requests = {name: str(amount) for name, amount in claim.each.items()}
        pod: Object = {
            "metadata": {},
            "spec": {
                "containers": [{"name": "replica", "resources": {"requests": requests}}],
                "priorityClassName": claim.priority_class,
            },
        }
        quota = {"spec": {"scopeSelector": {"matchExpressions": list(self.scopes)}}}
        if not is_in_scope(POD_RESOURCE, quota, pod):
            return {}
        used = usage_of(POD_RESOURCE, pod, 0.0)
        return {name: used[name] for name in self.free if used.get(name)}


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a cluster could take when it was last asked."""

    groups: tuple[NodeGroup, ...]
    omitted: frozenset[str] = frozenset()
    quotas: tuple[QuotaRoom, ...] = ()

    def fits(self, claim: Claim) -> int:
        """Return how many replicas find a node, and are within the quotas of their namespace."""
        most = sum(room.count * room.fits(claim) for room in self._open_to(claim))
        for quota in self.quotas:
            for name, each in quota.counts(claim).items():
                most = min(most, max(quota.free[name].nanos // each.nanos, 0))
        return most

    def holds_set(self, components: Iterable[tuple[Claim, int]]) -> bool:
        """Whether all components of a workload fit beside each other."""
        left = self
        for claim, replicas in components:
            if left.fits(claim) < replicas:
                return False
            left = left.without(claim, replicas)
        return True

    def without(self, claim: Claim, replicas: int) -> "Estimate":
        """Return what is left when so many replicas have found their nodes.

        They are spread over the nodes in proportion to how many each can take, as a scheduler
        does that prefers the emptier one. Those that fit nowhere take nothing.
        """
        fits = sum(room.count * room.fits(claim) for room in self._open_to(claim))
        placed, seen, given = min(replicas, fits), 0, 0
        groups: list[NodeGroup] = []
        for group in self.groups:
            if not placed or not self._is_open(group, claim):
                groups.append(group)
                continue
            rooms: list[NodeRoom] = []
            for room in group.rooms:
                seen += room.count * room.fits(claim)
                share = placed * seen // fits - given
                given += share
                on_each, on_some = divmod(share, room.count)
                for count, more in ((on_some, on_each + 1), (room.count - on_some, on_each)):
                    if count:
                        rooms.append(replace(room, count=count).without(claim, more))
            groups.append(replace(group, rooms=_merged(rooms)))
        quotas = tuple(
            replace(
                quota,
                free={
                    **quota.free,
                    **{
                        name: quota.free[name] - each * replicas
                        for name, each in quota.counts(claim).items()
                    },
                },
            )
            for quota in self.quotas
        )
        return replace(self, groups=tuple(groups), quotas=quotas)

    def _open_to(self, claim: Claim) -> Iterable[NodeRoom]:
        return (
            room for group in self.groups if self._is_open(group, claim) for room in group.rooms
        )

    def _is_open(self, group: NodeGroup, claim: Claim) -> bool:
        is_selected = claim.selects(group.labels, self.omitted)
        return is_selected and not claim.is_repelled_by(group.taints)


def _merged(rooms: Iterable[NodeRoom]) -> tuple[NodeRoom, ...]:
    counts = Counter[tuple[tuple[str, Quantity], ...]]()
    for room in rooms:
        counts[tuple(sorted(room.free.items(), key=lambda each: each[0]))] += room.count
    return tuple(NodeRoom(count, dict(free)) for free, count in counts.items())


# -- read from a Cluster, and written to it ----------------------------------------------------


def read_estimate(written: Object) -> Estimate | None:
    """Read a `status.estimate`; None when it makes no sense: then it says nothing."""
    common: dict[str, str] = written.get("labels") or {}
    try:
        read = Estimate(
            groups=tuple(
                NodeGroup(
                    labels={**common, **(group.get("labels") or {})},
                    taints=tuple(group.get("taints") or ()),
                    rooms=tuple(
                        NodeRoom(int(room["count"]), _read_amounts(room.get("free")))
                        for room in group.get("rooms") or ()
                        if int(room["count"]) > 0
                    ),
                )
                for group in written.get("nodes") or ()
            ),
            omitted=frozenset(written.get("omittedLabels") or ()),
            quotas=tuple(
                QuotaRoom(
                    namespace=str(quota["namespace"]),
                    name=str(quota["name"]),
                    free=_read_amounts(quota.get("free")),
                    scopes=tuple(quota.get("scopes") or ()),
                )
                for quota in written.get("quotas") or ()
            ),
        )
    except (MalformedQuantity, KeyError, TypeError, ValueError, AttributeError):
        # Written by the cluster's own agent, who may write anything the schema lets through.
        return None
    return bounded(read)


def estimate_nodes(nodes: Sequence[NodeGroup]) -> Estimate | None:
    """Return an estimate of few groups and rooms, given one group for each node.

    None when the nodes are too different for that: nothing is better than a guess.
    """
    values: dict[str, set[str]] = {}
    counts = Counter[str]()
    for node in nodes:
        for key, value in node.labels.items():
            counts[key] += 1
            # One more than may be told is enough to know that there are too many.
            if len(known := values.setdefault(key, set())) <= MOST_GROUPS:
                known.add(value)
    # A cluster may have a label of its own for every node, or thousands on each: more than can be
    # told, or left out by name. All that follows is done for few labels.
    if len(values) > 2 * MOST_LABELS:
        return None
    # A node without a label has one value more of it: none.
    spread = {key: len(values[key]) + (counts[key] < len(nodes)) for key in values}
    keys = sorted(spread, key=lambda key: (spread[key], key))
    # Names of nodes are omitted first, then what has nearly as many values. The fewer labels, the
    # fewer groups: as many of them are shown as make few enough.
    possible = range(sum(spread[key] <= MOST_GROUPS for key in keys) + 1)
    fitting = bisect_right(possible, MOST_GROUPS, key=lambda n: len(_grouped(nodes, keys[:n])))
    if not fitting:
        return None
    shown, omitted = keys[: fitting - 1], keys[fitting - 1 :]
    if max(len(shown), len(omitted)) > MOST_LABELS:
        return None
    return bounded(Estimate(tuple(_grouped(nodes, shown)), frozenset(omitted)))


def write_estimate(estimate: Estimate) -> Object:
    """Return an estimate as a Cluster has it, without its quotas; the same one is the same text."""
    all_labels = [group.labels.items() for group in estimate.groups]
    common = dict(set(all_labels[0]).intersection(*all_labels[1:])) if all_labels else {}
    written: Object = {"nodes": []}
    if common:
        written["labels"] = dict(sorted(common.items()))
    if estimate.omitted:
        written["omittedLabels"] = sorted(estimate.omitted)
    for group in estimate.groups:
        own = {key: value for key, value in group.labels.items() if key not in common}
        rooms = [{"count": room.count, "free": texts(room.free)} for room in group.rooms]
        listed: Object = {"rooms": sorted(rooms, key=str)}
        if own:
            listed["labels"] = own
        if group.taints:
            listed["taints"] = list(group.taints)
        written["nodes"].append(listed)
    return written


def write_quota(quota: Object) -> Object | None:
    """Return what a ResourceQuota still allows of pods; None when it says nothing about them."""
    hard, used = (
        _read_amounts(find_at(quota, "status", part) or find_at(quota, "spec", part))
        for part in ("hard", "used")
    )
    # What pods are to have at most is not known of a template's replicas.
    free = {
        name: max(amount - used.get(name, ZERO), ZERO)
        for name, amount in hard.items()
        if name in _COUNTED or name.startswith("requests.")
    }
    free.pop("requests.storage", None)
    if not free:
        return None
    named = cast("list[str]", find_at(quota, "spec", "scopes") or [])
    scopes: list[Object] = [{"scopeName": each, "operator": "Exists"} for each in named]
    scopes += find_at(quota, "spec", "scopeSelector", "matchExpressions") or []
    return {
        "namespace": str(find_at(quota, "metadata", "namespace")),
        "name": str(find_at(quota, "metadata", "name")),
        **({"scopes": scopes} if scopes else {}),
        "free": {name: str(free[name]) for name in sorted(free)},
    }


_COUNTED: Final = frozenset({PODS, "count/pods", "cpu", "memory", "ephemeral-storage"})


def texts(amounts: Amounts) -> dict[str, str]:
    """Return amounts as they are written, without the zeros."""
    return {resource: str(amounts[resource]) for resource in sorted(amounts) if amounts[resource]}


def _read_amounts(amounts: object) -> Amounts:
    given = cast("dict[str, object]", amounts or {})
    return {resource: parse_quantity(str(amount)) for resource, amount in given.items()}


def _grouped(nodes: Sequence[NodeGroup], keys: Sequence[str]) -> list[NodeGroup]:
    """Put nodes together that have the same taints and the same values of these labels."""
    found: dict[tuple[object, ...], list[NodeGroup]] = {}
    for node in nodes:
        taints = tuple(tuple(sorted(taint.items())) for taint in node.taints)
        found.setdefault((taints, *(node.labels.get(key) for key in keys)), []).append(node)
    return [
        NodeGroup(
            labels={key: some[0].labels[key] for key in sorted(keys) if key in some[0].labels},
            taints=some[0].taints,
            rooms=_merged(room for node in some for room in node.rooms),
        )
        for _, some in sorted(found.items(), key=lambda each: str(each[0]))
    ]


def bounded(estimate: Estimate) -> Estimate:
    """Return it with few rooms: rounded down, and in the end the least of several for all."""
    groups = estimate.groups
    for bits in _ROUNDED_BITS:
        if sum(len(group.rooms) for group in groups) <= MOST_ROOMS:
            return replace(estimate, groups=groups)
        groups = tuple(
            replace(
                group,
                rooms=_merged(
                    replace(room, free={name: _floor(e, bits) for name, e in room.free.items()})
                    for room in group.rooms
                ),
            )
            for group in groups
        )
    if sum(len(group.rooms) for group in groups) <= MOST_ROOMS:
        return replace(estimate, groups=groups)
    most = max(MOST_ROOMS // len(groups), 1)
    groups = tuple(replace(group, rooms=_least_of(group.rooms, most)) for group in groups)
    return replace(estimate, groups=groups)


def _least_of(rooms: tuple[NodeRoom, ...], most: int) -> tuple[NodeRoom, ...]:
    ordered = sorted(rooms, key=lambda room: [room.free[name].nanos for name in sorted(room.free)])
    step = -(-len(ordered) // most)
    found: list[NodeRoom] = []
    for start in range(0, len(ordered), step):
        some = ordered[start : start + step]
        shared = set(some[0].free).intersection(*(room.free for room in some))
        free = {name: min(room.free[name] for room in some) for name in sorted(shared)}
        found.append(NodeRoom(sum(room.count for room in some), free))
    return _merged(found)


def _floor(amount: Quantity, bits: int) -> Quantity:
    """Return an amount with its leading bits alone."""
    unit = 10**6 if amount.nanos % 10**9 else 10**9
    whole = max(amount.nanos // unit, 0)
    dropped = max(whole.bit_length() - bits, 0)
    return Quantity((whole >> dropped << dropped) * unit, amount.form)
