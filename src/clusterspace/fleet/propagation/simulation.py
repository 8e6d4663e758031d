"""What would become of workloads if something were otherwise: on values, touching nothing.

    live objects ──┬── clusters are left: drained by a person, or dead
                   ├── workloads are placed anew
                   └── a policy is applied that is not there yet

Each question is answered by the functions with which the controllers decide, in the order in which
they would: what one workload takes is not there for the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, cast

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    DRAIN_TAINT,
    UNREACHABLE_TAINT,
    conditions_of,
    is_pull,
    taints_of,
)
from clusterspace.apis.exclusive import exclusiveness_of_work
from clusterspace.apis.fleet_placements import parent_of, placement_text
from clusterspace.apis.interpreter.templates import dependencies_in
from clusterspace.apis.quotas import amounts_at, growth_of, taken_by, why_exceeded
from clusterspace.apis.works import (
    binding_key_of,
    cluster_of,
    clusters_of,
    manifests_of,
    placement_of,
    template_of,
)
from clusterspace.client.requests import key_of
from clusterspace.controllers.controller import request_for
from clusterspace.errors import Malformed
from clusterspace.fleet.propagation.eviction.decisions import (
    GRACEFULLY,
    NEVER,
    NO_EXECUTE,
    find_evicting,
    look_dead,
    new_task,
    seconds_tolerated,
    state_of,
    tasks_of,
    with_tasks,
)
from clusterspace.fleet.propagation.eviction.taint_policies import in_order, tainted
from clusterspace.fleet.propagation.scheduler.decisions import (
    Counts,
    Decision,
    Reason,
    plan_for,
    with_targets,
)
from clusterspace.fleet.propagation.scheduler.demands import is_to_schedule
from clusterspace.fleet.propagation.scheduler.filters import (
    Rejection,
    candidate_of,
    taint_text,
)
from clusterspace.fleet.propagation.scheduler.peers import NO_PEERS, is_in_a_group, peers_among
from clusterspace.fleet.propagation.scheduler.reservations import Reservations
from clusterspace.fleet.propagation.works.exclusive import (
    MARGIN_SECONDS,
    no_promise,
    proven_after,
    why_never_proven,
)
from clusterspace.kube.conditions import FALSE, UNKNOWN
from clusterspace.kube.objects import (
    Object,
    find_at,
    name_of,
    namespace_of,
    with_value,
)
from clusterspace.kube.quantities import ZERO, Quantity
from clusterspace.kube.times import format_time, parse_time

AVAILABLE: Final = "available"
EXCLUSIVE: Final = "exclusive"

_CLAIM: Final = "PersistentVolumeClaim"


class Outcome(Enum):
    """What would become of a workload."""

    MOVES = "moves"
    LEAVES = "leaves"
    """It runs elsewhere as it is, and nothing starts there for it."""
    STAYS = "stays"
    STOPS = "stops"
    """It runs nowhere until somebody does something."""
    PLACED = "placed"


@dataclass(frozen=True, slots=True)
class Preview:
    """One workload: where it is, where it would be, and why."""

    kind: str
    namespace: str
    name: str
    outcome: Outcome
    before: Counts
    after: Counts
    why: str = ""
    """Why it stays, or what its move waits for."""
    kept_data: str = ""
    """What of it does not move along."""
    workload_class: str = AVAILABLE
    others: tuple[Rejection, ...] = ()
    """Why each of the other clusters would not be used."""

    @property
    def key(self) -> str:
        """Kind and name, as commands take them."""
        return f"{self.kind.lower()}/{self.name}"


@dataclass(frozen=True, slots=True)
class LiveFleet:
    """What the hub has of all that decides where workloads are."""

    clusters: tuple[Object, ...] = ()
    bindings: tuple[Object, ...] = ()
    works: tuple[Object, ...] = ()
    leases: tuple[Object, ...] = ()
    taint_policies: tuple[Object, ...] = ()
    quotas: tuple[Object, ...] = ()
    """The FederatedResourceQuotas."""

    def on(self, names: Iterable[str]) -> tuple[Object, ...]:
        """Return the bindings that are on one of these clusters, as the scheduler takes them."""
        chosen = frozenset(names)
        found = (b for b in self.bindings if any(c.name in chosen for c in clusters_of(b)))
        return by_priority(found)


def by_priority(bindings: Iterable[Object]) -> tuple[Object, ...]:
    """Return bindings in the order in which the scheduler takes them when all are in line."""

    def order(binding: Object) -> tuple[int, str, str]:
        priority = int(find_at(binding, "spec", "schedulePriority", "priority") or 0)
        return -priority, namespace_of(binding), name_of(binding)

    return tuple(sorted(bindings, key=order))


@dataclass(frozen=True, slots=True)
class Leaving:
    """What would become of all that is on clusters that are left."""

    previews: tuple[Preview, ...]
    notes: tuple[str, ...] = ()
    """What is true of all of it."""


def drained(fleet: LiveFleet, name: str, clock: Clock) -> Leaving:
    """Return what becomes of all that is on a cluster when a person drains it."""
    taint = {"key": DRAIN_TAINT, "effect": NO_EXECUTE}
    clusters = tuple(
        with_value(each, [*_others_than(each, DRAIN_TAINT), taint], "spec", "taints")
        if name_of(each) == name
        else each
        for each in fleet.clusters
    )
    suspects = look_dead(state_of(each) for each in clusters)
    notes = (f"nobody is evicted at present: {suspects}",) if suspects else ()
    dead = replace(fleet, clusters=clusters)
    return Leaving(_left(dead, {name: (taint,)}, clock, are_silent=False), notes)


def failed(fleet: LiveFleet, names: Sequence[str], clock: Clock) -> Leaving:
    """Return what becomes of all that is on clusters when they fall silent and stay so."""
    clusters: list[Object] = []
    taints: dict[str, tuple[Object, ...]] = {}
    notes: list[str] = []
    policies = in_order(fleet.taint_policies)
    for cluster in fleet.clusters:
        name = name_of(cluster)
        if name not in names:
            clusters.append(cluster)
            continue
        silent = {"type": "Ready", "status": UNKNOWN if is_pull(cluster) else FALSE}
        said = [each for each in conditions_of(cluster) if each.get("type") != "Ready"]
        dead = with_value(cluster, [*said, silent], "status", "conditions")
        after = tainted(dead, policies, clock.now(), may_evict=True)
        taints[name] = tuple(each for each in after if each.get("effect") == NO_EXECUTE)
        if not taints[name]:
            notes.append(
                f"nothing leaves {name} by itself: no ClusterTaintPolicy gives a cluster that is "
                "not ready a taint with effect NoExecute; what follows is for the case that one did"
            )
            taints[name] = ({"key": UNREACHABLE_TAINT, "effect": NO_EXECUTE},)
        unreachable = {"key": UNREACHABLE_TAINT, "effect": "NoSchedule"}
        known = [*_others_than(dead, UNREACHABLE_TAINT), unreachable, *taints[name]]
        clusters.append(with_value(dead, known, "spec", "taints"))
    suspects = look_dead(state_of(each) for each in clusters)
    if suspects:
        notes.append(f"nobody would be evicted: {suspects}")
    notes.append("the controllers evict only with --enable-no-execute-taint-eviction")
    if pushed := [
        name_of(each) for each in clusters if not is_pull(each) and name_of(each) in taints
    ]:
        notes.append(
            f"from {', '.join(pushed)} only once a second place does not reach it, either: a fleet "
            "API server, or controllers that stand by (--eviction-witnesses)"
        )
    dead_fleet = replace(fleet, clusters=tuple(clusters))
    previews = _left(dead_fleet, taints, clock, are_silent=True)
    if suspects:
        previews = tuple(
            replace(each, outcome=Outcome.STAYS, after=each.before, why=suspects)
            for each in previews
        )
    return Leaving(previews, tuple(notes))


def placed_anew(fleet: LiveFleet, bindings: Iterable[Object], clock: Clock) -> tuple[Preview, ...]:
    """Return what becomes of workloads that somebody asks to have placed anew."""
    trial = Trial(fleet.clusters, fleet.bindings, clock, fleet.quotas)
    previews: list[Preview] = []
    for binding in by_priority(bindings):
        last = find_at(binding, "status", "lastScheduledTime")
        asked = max(clock.now(), parse_time(str(last)) + 1 if last else 0.0)
        anew = with_value(binding, format_time(asked), "spec", "rescheduleTriggeredAt")
        preview = _preview(binding)
        if why := _why_not_scheduled(binding):
            previews.append(replace(preview, why=why))
            continue
        decision = trial.decide(anew)
        preview = replace(preview, after=decision.targets, others=others_of(decision))
        if not decision.is_success:
            preview = replace(preview, why=decision.message)
        elif preview.after == preview.before:
            preview = replace(preview, why="it is where it would be placed")
        else:
            preview = replace(preview, outcome=Outcome.MOVES)
        previews.append(preview)
    return tuple(previews)


def placed_first(
    bindings: Iterable[Object],
    clusters: Sequence[Object],
    clock: Clock,
    beside: Iterable[Object] = (),
    quotas: Iterable[Object] = (),
) -> tuple[Preview, ...]:
    """Return where bindings that nobody has written yet would be placed, one after the other.

    `beside` are the bindings there are: some of them may have to be together, or apart.
    """
    trial = Trial(clusters, beside, clock, quotas)
    previews: list[Preview] = []
    for binding in by_priority(bindings):
        decision = trial.decide(binding)
        outcome = Outcome.PLACED if decision.is_success else Outcome.STAYS
        why = "" if decision.is_success else decision.message
        preview = _preview(binding)
        previews.append(
            replace(
                preview,
                outcome=outcome,
                after=decision.targets,
                why=why,
                others=others_of(decision),
            )
        )
    return tuple(previews)


class Trial:
    """Decisions of the scheduler, one after the other: what one takes is not there for the next."""

    def __init__(
        self,
        clusters: Iterable[Object],
        bindings: Iterable[Object],
        clock: Clock,
        quotas: Iterable[Object] = (),
    ) -> None:
        self._reservations = Reservations(clock)
        self._reported = {
            name_of(each): candidate_of(each) for each in sorted(clusters, key=name_of)
        }
        self._bindings = {key_of(namespace_of(each), name_of(each)): each for each in bindings}
        self._quotas = [(each, self._used_of(each)) for each in quotas]

    def decide(self, binding: Object) -> Decision:
        """Decide about one binding as the scheduler does, and note what it takes."""
        key = key_of(namespace_of(binding), name_of(binding))
        peers = NO_PEERS
        if is_in_a_group(binding):
            peers = peers_among(binding, self._bindings.values())
        candidates = self._reservations.apply(self._reported, request_for(key))
        decision = plan_for(binding, candidates, peers)
        if why := self._charge(key, binding, decision):
            # As the scheduler has it: it stays where it is, with what it has.
            current = {each.name: each.replicas for each in clusters_of(binding)}
            decision = replace(decision, targets=current, reason=Reason.QUOTA_EXCEEDED, message=why)
        self._reservations.reserve(request_for(key), binding, decision.targets, self._reported)
        self._bindings[key] = with_targets(binding, decision)
        return decision

    def _used_of(self, quota: Object) -> dict[str, Quantity]:
        """Return what is used of a quota, by its own count or by that of the bindings there are."""
        overall = amounts_at(quota, "spec", "overall")
        if find_at(quota, "status", "overallUsed") is not None:
            return dict(amounts_at(quota, "status", "overallUsed"))
        used: dict[str, Quantity] = {}
        for binding in self._bindings.values():
            if namespace_of(binding) == namespace_of(quota):
                for name, amount in taken_by(binding, overall).items():
                    used[name] = used.get(name, ZERO) + amount
        return used

    def _charge(self, key: str, binding: Object, decision: Decision) -> str:
        """Count what a decision takes in the quotas of the namespace, unless one has no room."""
        before, after = self._bindings.get(key), with_targets(binding, decision)
        pending: list[tuple[dict[str, Quantity], dict[str, Quantity]]] = []
        for quota, used in self._quotas:
            if namespace_of(quota) != namespace_of(binding):
                continue
            more = growth_of(quota, before, after)
            total = {name: used.get(name, ZERO) + amount for name, amount in more.items()}
            if why := why_exceeded(quota, more, total):
                return why
            pending.append((used, total))
        for used, total in pending:
            used.update(total)
        return ""


def others_of(decision: Decision) -> tuple[Rejection, ...]:
    """Return why clusters are not used, by name."""
    unused = (*decision.rejected, *decision.left_out)
    found = (each for each in unused if each.cluster not in decision.targets)
    return tuple(sorted(found, key=lambda each: each.cluster))


@dataclass(frozen=True, slots=True)
class _Departure:
    """What taints do to one binding, before anybody looks for another place."""

    left: tuple[str, ...]
    tasks: tuple[Object, ...]
    waits: tuple[str, ...]
    volumes: tuple[str, ...]
    is_exclusive: bool


def _departure(
    binding: Object,
    works: Mapping[str, Object],
    taints: Mapping[str, tuple[Object, ...]],
    now: float,
) -> _Departure:
    """Return which clusters a binding is to leave, with the tasks that say so."""
    tolerations = (placement_of(binding) or {}).get("clusterTolerations") or ()
    tasks, waits, left = list(tasks_of(binding)), list[str](), list[str]()
    leaving = {str(each.get("fromCluster")) for each in tasks}
    for target in clusters_of(binding):
        name = target.name
        if name not in taints:
            continue
        seconds = seconds_tolerated(taints[name], tolerations, now)
        if seconds is None:
            listed = ", ".join(taint_text(each) for each in taints[name])
            waits.append(f"its policy tolerates {listed} of {name}")
            continue
        left.append(name)
        if seconds:
            waits.append(f"its policy tolerates {name} for {seconds:g} s more")
        if name not in leaving:
            taint = find_evicting(taints[name], tolerations, now) or taints[name][0]
            because = f"its taint {taint_text(taint)} is not tolerated, or no longer"
            tasks.append(new_task(binding, target, GRACEFULLY, now, because))
    there = [
        works[each.name] for each in clusters_of(binding) if each.name in works.keys() & taints
    ]
    volumes = dict.fromkeys(name for work in there for name in _volumes_in(work))
    is_exclusive = any(exclusiveness_of_work(each) for each in there)
    return _Departure(tuple(left), tuple(tasks), tuple(waits), tuple(volumes), is_exclusive)


def _left(
    fleet: LiveFleet, taints: Mapping[str, tuple[Object, ...]], clock: Clock, *, are_silent: bool
) -> tuple[Preview, ...]:
    """Return what becomes of each workload on clusters with these taints."""
    trial = Trial(fleet.clusters, fleet.bindings, clock, fleet.quotas)
    works_of: dict[str, dict[str, Object]] = {}
    for each in fleet.works:
        works_of.setdefault(binding_key_of(each), {})[cluster_of(each)] = each
    previews: list[Preview] = []
    for binding in fleet.on(taints):
        preview = _preview(binding)
        works = works_of.get(key_of(namespace_of(binding), name_of(binding)), {})
        if why := _why_not_scheduled(binding):
            previews.append(replace(preview, why=why))
            continue
        try:
            departure = _departure(binding, works, taints, clock.now())
        except Malformed as error:
            previews.append(replace(preview, why=error.message))
            continue
        waits = list(departure.waits)
        if departure.is_exclusive:
            preview = replace(preview, workload_class=EXCLUSIVE)
        if not departure.left:
            previews.append(replace(preview, why="; ".join(waits)))
            continue
        evicted = with_tasks(binding, departure.tasks)
        decision = trial.decide(evicted)
        after = decision.targets
        others = tuple(e for e in others_of(decision) if e.cluster not in departure.left)
        preview = replace(preview, others=others, after=after)
        if not decision.is_success or not after.keys().isdisjoint(departure.left):
            # As the scheduler has it: without another place it stays where it is. On a cluster
            # that is dead that means that it does not run.
            if are_silent and preview.before.keys() <= frozenset(departure.left):
                preview = replace(preview, outcome=Outcome.STOPS, after={})
            previews.append(replace(preview, why="; ".join((*waits, decision.message))))
            continue
        is_new = any(count > preview.before.get(name, -1) for name, count in after.items())
        preview = replace(preview, outcome=Outcome.MOVES if is_new else Outcome.LEAVES)
        if is_new and departure.volumes:
            data = f"data in {', '.join(departure.volumes)} does not move along"
            preview = replace(preview, kept_data=data)
        if is_new and not departure.is_exclusive:
            waits.append("what replaces it is healthy first")
        for name in departure.left if departure.is_exclusive and is_new else ():
            said, is_never = _stop_text(fleet, works.get(name, {}), name, are_silent=are_silent)
            waits.append(said)
            if is_never:
                preview = replace(preview, outcome=Outcome.STOPS, after={})
        if any(each.get("purgeMode") == NEVER for each in departure.tasks):
            waits.append("the old copy stays until a person says that it may go (purgeMode Never)")
        previews.append(replace(preview, why="; ".join(waits)))
    return tuple(previews)


def _stop_text(fleet: LiveFleet, work: Object, name: str, *, are_silent: bool) -> tuple[str, bool]:
    """Return what the next copy of an exclusive workload waits for, and whether in vain."""
    if not are_silent:
        return f"starts when {name} has stopped it", False
    cluster = next((each for each in fleet.clusters if name_of(each) == name), None)
    if why := why_never_proven(name, work, cluster):
        return f"{name} cannot say that it has stopped it{why}", True
    lease = next((each for each in fleet.leases if name_of(each) == name), Object())
    after = proven_after(work, lease, MARGIN_SECONDS)
    if after is None:
        return f"{name} cannot say that it has stopped it{no_promise(name, cluster)}", True
    return f"starts {after:g} s after {name} was last heard, when its lease has run out", False


def _preview(binding: Object) -> Preview:
    template = template_of(binding)
    placed = {each.name: each.replicas for each in clusters_of(binding)}
    return Preview(template.kind, template.namespace, template.name, Outcome.STAYS, placed, placed)


def _why_not_scheduled(binding: Object) -> str:
    """Return why a binding is none of the scheduler's business; empty when it is."""
    if is_to_schedule(binding):
        return ""
    if parent := parent_of(binding):
        return f"{placement_text(parent)} places it, and taints do not evict what it has placed"
    if find_at(binding, "spec", "suspension", "scheduling"):
        return "its scheduling is suspended"
    return "it follows no policy of this scheduler any more"


def _volumes_in(work: Object) -> list[str]:
    """Return the volume claims of what a Work holds, by name."""
    names: dict[str, None] = {}
    for manifest in manifests_of(work):
        templates = cast("list[Object]", find_at(manifest, "spec", "volumeClaimTemplates") or [])
        names |= dict.fromkeys(str(find_at(each, "metadata", "name")) for each in templates)
        needed = (e for e in dependencies_in(manifest) if e.kind == _CLAIM)
        names |= dict.fromkeys(str(each.name) for each in needed)
    return list(names)


def _others_than(cluster: Object, key: str) -> list[Object]:
    return [each for each in taints_of(cluster) if each.get("key") != key]
