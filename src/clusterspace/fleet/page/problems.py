"""What is broken, where, and why, decided from objects alone: the first screen in Python.

    Clusters, bindings, Events of repairs ──> find_problems, cluster_rows ──> `clusterspace top`

The page decides the same in a browser (`static/model.js`). Neither can run the other's code, so
one suite has both judge the same fleets, made-up ones by the hundred, and compares every word:
`tests/component/gateway/test_page_and_top_agree.py`. Whoever changes a rule changes it in both.

What a cluster says of an object is whatever its API server likes to say: only what has the right
type counts.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from clusterspace.apis.clusters import DELETIONS_PAUSED, conditions_of, taints_of
from clusterspace.errors import Malformed
from clusterspace.kube.conditions import find_condition, is_true
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, uid_of
from clusterspace.kube.quantities import parse_quantity

ORDER: Final = ("cluster", "apply", "schedule", "health", "drift", "eviction", "paused")
"""The worst first."""
STATES: Final = ("unwell", "silent", "leaving", "joining", "well")
REPAIRED: Final = "DriftRepaired"
"""The reason of the Events that are read for repairs."""
REPAIRS_ARE_MANY: Final = 3
"""Once or twice somebody was mistaken; from here on somebody or something insists."""
RESOURCES: Final = ("cpu", "memory", "pods")

_WORDS: Final = {
    "cluster": "Cluster",
    "apply": "Not applied",
    "schedule": "Not scheduled",
    "health": "Not ready",
    "drift": "Put back",
    "eviction": "Moving",
    "paused": "Paused",
    "unwell": "Unwell",
    "silent": "Silent",
}
_REPAIR: Final = re.compile(r"Put back in the cluster (\S+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Whether a cluster is well, and since when and why not."""

    name: str
    since: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """How an object is in one cluster, as that was last reported."""

    cluster: str
    wanted: int | None = None
    is_reported: bool = False
    is_applied: bool = False
    health: str = ""
    message: str = ""
    ready: int | None = None

    @property
    def is_short(self) -> bool:
        """Whether fewer replicas are ready than there should be."""
        return self.ready is not None and self.wanted is not None and self.ready < self.wanted

    @property
    def trouble(self) -> str:
        """What is wrong there: "apply", "health", or empty."""
        if not self.is_reported:
            return ""
        if not self.is_applied:
            return "apply"
        return "health" if self.health == "Unhealthy" or self.is_short else ""


@dataclass(frozen=True, slots=True)
class Eviction:
    """An object that is on its way out of a cluster."""

    cluster: str
    reason: str
    since: str


@dataclass(frozen=True, slots=True)
class Placement:
    """What the first screen needs of a binding, and no more: a fleet may have many thousand."""

    uid: str
    what: str
    places: tuple[Place, ...]
    evictions: tuple[Eviction, ...]
    unscheduled: str | None = None
    """Why the object has no cluster, empty if nobody says; None for one that has."""
    unscheduled_since: str = ""
    applied_since: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """What was put back in a cluster, and how often: one Event."""

    what: str
    cluster: str
    fields: str
    count: int
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it should be, in words."""

    kind: str
    word: str
    what: str
    cluster: str
    why: str
    since: str = ""
    key: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One cluster of the first screen."""

    name: str
    state: ClusterState
    version: str
    nodes: str
    shares: tuple[int | None, ...]
    """How much is asked for of each of `RESOURCES`, in percent; None where that is not known."""
    placed: int
    failing: int
    taints: str
    is_paused: bool


def cluster_state(cluster: Object) -> ClusterState:
    """Return whether a cluster is well."""
    metadata = metadata_of(cluster)
    if metadata.get("deletionTimestamp"):
        return ClusterState("leaving", _text(metadata.get("deletionTimestamp")))
    ready = find_condition(conditions_of(cluster), "Ready")
    if ready is None:
        return ClusterState("joining", _text(metadata.get("creationTimestamp")))
    name = {"True": "well", "False": "unwell"}.get(_text(ready.get("status")), "silent")
    why = "" if name == "well" else _text(ready.get("message")) or _text(ready.get("reason"))
    return ClusterState(name, _text(ready.get("lastTransitionTime")), why)


def summarize(binding: Object) -> Placement:
    """Return what counts of a binding."""
    spec: Object = binding.get("spec") or {}
    status: Object = binding.get("status") or {}
    places = {
        _text(each.get("name")): Place(_text(each.get("name")), _count(each.get("replicas")))
        for each in spec.get("clusters") or ()
    }
    for each in status.get("aggregatedStatus") or ():
        name, reported = _text(each.get("clusterName")), each.get("status")
        ready = _count(find_at(reported, "readyReplicas"))
        if ready is None and _count(find_at(reported, "replicas")) is not None:
            ready = 0
        places[name] = Place(
            cluster=name,
            wanted=places[name].wanted if name in places else None,
            is_reported=True,
            is_applied=each.get("applied") is True,
            health=_text(each.get("health")) or "Unknown",
            message=_text(each.get("appliedMessage")),
            ready=ready,
        )
    conditions = status.get("conditions") or ()
    scheduled = find_condition(conditions, "Scheduled")
    applied = find_condition(conditions, "FullyApplied") or {}
    why, since = None, ""
    if scheduled is not None and scheduled.get("status") != "True":
        why = _text(scheduled.get("message")) or _text(scheduled.get("reason"))
        since = _text(scheduled.get("lastTransitionTime"))
    return Placement(
        uid=uid_of(binding),
        what=_named(spec.get("resource") or {}),
        places=tuple(places.values()),
        evictions=tuple(
            Eviction(
                _text(each.get("fromCluster")),
                _text(each.get("reason")),
                _text(each.get("creationTimestamp")),
            )
            for each in spec.get("gracefulEvictionTasks") or ()
        ),
        unscheduled=why,
        unscheduled_since=since,
        applied_since=_text(applied.get("lastTransitionTime")),
    )


def read_repair(event: Object) -> Repair | None:
    """Return what an Event says was put back; None for one that is about something else."""
    about: Object = event.get("involvedObject") or {}
    found = _REPAIR.fullmatch(_text(event.get("message")))
    if found is None or about.get("kind") == "Work" or event.get("reason") != REPAIRED:
        return None
    first, last = (_text(event.get(f"{each}Timestamp")) for each in ("first", "last"))
    return Repair(_named(about), found[1], found[2], _count(event.get("count")) or 1, first, last)


def find_problems(
    clusters: Sequence[Object], placements: Sequence[Placement], repairs: Iterable[Repair]
) -> tuple[Problem, ...]:
    """Return everything that is not as it should be, the worst first."""
    # What a silent cluster last said is old, and is said with the cluster.
    silent = {name_of(each) for each in clusters if cluster_state(each).name == "silent"}
    problems = [
        *_of_clusters(clusters, count_places(placements)),
        *(each for one in placements for each in _of_placement(one, silent)),
        *_of_repairs(repairs),
    ]
    return tuple(sorted(problems, key=lambda each: (ORDER.index(each.kind), each.key)))


def _of_clusters(
    clusters: Iterable[Object], counts: Mapping[str, tuple[int, int]]
) -> Iterator[Problem]:
    for cluster in clusters:
        name, state = name_of(cluster), cluster_state(cluster)
        if state.name in ("unwell", "silent"):
            placed = counts.get(name, (0, 0))[0] if state.name == "silent" else 0
            of = f"{placed} object{'' if placed == 1 else 's'}"
            stale = f"what is known of {of} there is that old" if placed else ""
            why = "; ".join(filter(None, (state.why, stale)))
            found = _problem("cluster", f"Cluster {name}", "", why, state.since)
            yield replace(found, word=_WORDS[state.name])
        paused = find_condition(conditions_of(cluster), DELETIONS_PAUSED)
        if paused is not None and paused.get("status") == "True":
            why = _text(paused.get("message")) or "Deletions there are paused."
            since = _text(paused.get("lastTransitionTime"))
            yield _problem("paused", f"Cluster {name}", "", why, since)


def _of_placement(one: Placement, silent: Container[str]) -> Iterator[Problem]:
    if one.unscheduled is not None:
        why = one.unscheduled or "has no cluster to go to"
        yield _problem("schedule", one.what, "", why, one.unscheduled_since, one.uid)
    for place in one.places:
        trouble = "" if place.cluster in silent else place.trouble
        if trouble == "apply":
            why = place.message or "could not be applied"
            yield _problem("apply", one.what, place.cluster, why, one.applied_since, one.uid)
        elif trouble == "health":
            # Of one that is unhealthy with all its replicas their number says nothing.
            why = f"{place.ready} of {place.wanted} ready" if place.is_short else "unhealthy"
            yield _problem("health", one.what, place.cluster, why, "", one.uid)
    for task in one.evictions:
        why = f"is being moved away: {task.reason}"
        yield _problem("eviction", one.what, task.cluster, why, task.since, one.uid)


def _of_repairs(repairs: Iterable[Repair]) -> Iterator[Problem]:
    groups: dict[tuple[str, str], list[Repair]] = {}
    for each in repairs:
        groups.setdefault((each.what, each.cluster), []).append(each)
    for (what, cluster), several in groups.items():
        count = sum(each.count for each in several)
        if count >= REPAIRS_ARE_MANY:
            latest = max(several, key=lambda each: (each.last, each.fields))
            why = f"changed there and put back {count} times within the hour: {latest.fields}"
            yield _problem("drift", what, cluster, why, min(each.first for each in several))


def _problem(kind: str, what: str, cluster: str, why: str, since: str, uid: str = "") -> Problem:
    return Problem(kind, _WORDS[kind], what, cluster, why, since, f"{what}/{cluster}/{uid}")


def count_places(placements: Iterable[Placement]) -> dict[str, tuple[int, int]]:
    """Return for each cluster how many objects are placed there, and how many are in trouble."""
    counts: dict[str, tuple[int, int]] = {}
    for one in placements:
        for place in one.places:
            placed, failing = counts.get(place.cluster, (0, 0))
            counts[place.cluster] = (placed + 1, failing + bool(place.trouble))
    return counts


def cluster_rows(
    clusters: Iterable[Object], placements: Iterable[Placement]
) -> tuple[ClusterRow, ...]:
    """Return a row for every cluster, those that are not well in front."""
    counts = count_places(placements)
    rows = [_row_of(each, counts) for each in clusters]
    return tuple(sorted(rows, key=lambda each: (STATES.index(each.state.name), each.name)))


def _row_of(cluster: Object, counts: Mapping[str, tuple[int, int]]) -> ClusterRow:
    nodes = find_at(cluster, "status", "nodeSummary")
    ready, total = (_count(find_at(nodes, each)) or 0 for each in ("readyNum", "totalNum"))
    placed, failing = counts.get(name_of(cluster), (0, 0))
    taints = (
        f"{each.get('key')}{'=' + str(each['value']) if each.get('value') else ''}"
        f":{each.get('effect')}"
        for each in taints_of(cluster)
    )
    return ClusterRow(
        name=name_of(cluster),
        state=cluster_state(cluster),
        version=_text(find_at(cluster, "status", "kubernetesVersion")).partition("+")[0],
        nodes="" if nodes is None else f"{ready}/{total}",
        shares=tuple(_share(cluster, each) for each in RESOURCES),
        placed=placed,
        failing=failing,
        taints=", ".join(taints),
        is_paused=is_true(conditions_of(cluster), DELETIONS_PAUSED),
    )


def _share(cluster: Object, resource: str) -> int | None:
    summary = find_at(cluster, "status", "resourceSummary")
    try:
        total = parse_quantity(str(find_at(summary, "allocatable", resource)))
        used = parse_quantity(str(find_at(summary, "allocated", resource) or "0"))
    except Malformed:
        return None
    # Half a percent more counts as one, as in a browser.
    return (200 * used.nanos // total.nanos + 1) // 2 if total.nanos > 0 else None


def _named(reference: Mapping[str, Any]) -> str:
    kind, namespace, name = (_text(reference.get(each)) for each in ("kind", "namespace", "name"))
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
