"""What a migration took, on more clusters than it came from, or on others instead.

    spread   policies name the new clusters as well ──> healthy there ──> done
    move     the same ──> eviction tasks, held ──> policies name the new clusters alone ──> tasks
             let go: controllers remove each old copy when what replaces it is healthy

All of it is said by policies and by the bindings' own eviction tasks, so that controllers go on
with whatever was said. What a crash leaves:

    after                 left behind                        whoever goes on
    other policies        the same objects, same clusters    finds them
    the new clusters      both have everything               waits for health, or goes back
    tasks that are held   both have it, none is removed      says the rest, or goes back
    the old ones out      the same: tasks are held still     lets them go
    tasks let go          controllers remove the old copies  waits for the end

The way back is the same way: `move --to` where it came from. What holds data does not go: a volume
is of its cluster, and taking its claim away would delete it.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.interpreter.templates import pruned
from clusterspace.apis.migrations import NAME_LABEL
from clusterspace.apis.works import name_for, preserves_resources, resource_for
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import AlreadyExists, CannotMigrate, NotServed
from clusterspace.fleet.execution.takeover import users_differences
from clusterspace.fleet.migration.apply import all_of, is_of, policy_for, selector_of
from clusterspace.fleet.migration.groups import Group, Spread, group_path, notes_on, plan_groups
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.fleet.migration.undo import work_path
from clusterspace.fleet.migration.waiting import Waiting
from clusterspace.fleet.propagation.bindings import targets_of
from clusterspace.fleet.propagation.eviction.decisions import (
    GRACEFULLY,
    all_healthy,
    is_scheduled,
    state_of,
    tasks_of,
    with_tasks,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.times import format_time

PRODUCER: Final = "clusterspace-migration"
MOVED: Final = "Moved"
_FOR_EVER: Final = 2**31 - 1
"""Seconds of grace: an old copy goes when the new one is healthy, and never for want of time."""

_PLACES: Final = ("spec", "placement", "clusterAffinity", "clusterNames")
_PRESERVES: Final = ("spec", "preserveResourcesOnDeletion")

Result = TypeVar("Result")
Edit = Callable[[Object], Object]
"""From a binding to what it is to be."""
Progress = Callable[[str, int, int], None]
"""Told what is waited for, how many have come to it, and how many there are."""


@dataclass(frozen=True, slots=True)
class SpreadRequest:
    """Where a migration's objects are to be."""

    to: tuple[str, ...]
    is_move: bool = False
    at_once: int = 20
    patience: float = 600.0


class Spreading:
    """Brings what one migration took to other clusters, from wherever that stands."""

    def __init__(
        self,
        store: MigrationStore,
        targets: Mapping[str, Client],
        request: SpreadRequest,
        clock: Clock,
        progress: Progress = lambda _what, _done, _total: None,
    ) -> None:
        self._store = store
        self._hub = store.hub
        self._targets = targets
        self._request = request
        self._clock = clock
        self._progress = progress

    async def plan(self) -> list[Spread]:
        """Say what becomes of each object; CannotMigrate when something is in the way."""
        record = await self._store.record()
        if record.source:
            raise CannotMigrate(
                f"migration {record.name} is about another hub: its policies came along, and say "
                "where objects go"
            )
        known = {name_of(each) for each in await self._hub.list_objects(ResourcePath(CLUSTERS))}
        for name in self._request.to:
            if name not in known:
                raise CannotMigrate(f"{name} is no member: `clusterspace join {name}` makes it one")
        chunks = [await self._store.chunk(each) for each in range(record.chunks)]
        taken = [item.plan for chunk in chunks for item in chunk.items if item.state is State.TAKEN]
        if not taken:
            raise CannotMigrate(f"migration {record.name} has taken nothing that could go anywhere")
        spreads = plan_groups(taken, is_move=self._request.is_move)
        # What was separated before stays so: a policy for what is shared has been everywhere.
        aside: dict[tuple[ResourcePath, str], Group] = {}
        for path in {each.planned.policy_path for each in spreads}:
            for group in (Group.SHARED, Group.STAYS):
                policy = None if path is None else await self._policy(group_path(path, group))
                named: list[Object] = find_at(policy, "spec", "resourceSelectors") or []
                for each in named:
                    key = f"{each.get('kind')} {each.get('name')}"
                    aside |= {} if path is None else {(path, key): group}
        for index, each in enumerate(spreads):
            path, key = each.planned.policy_path, f"{each.planned.kind} {each.planned.name}"
            before = None if path is None else aside.get((path, key))
            if before is not None and each.group is not Group.STAYS:
                spreads[index] = replace(each, group=before)
        looked = await self._some(spreads, self._look_at)
        in_the_way = [why for _, why in looked if why]
        if in_the_way:
            more = f" (and {len(in_the_way) - 1} more)" if in_the_way[1:] else ""
            raise CannotMigrate(
                f"{in_the_way[0]}{more}: it would be overwritten; delete it or rename it first"
            )
        paths = {each.planned.policy_path: None for each in spreads if each.planned.policy_path}
        places, to = await self._places(paths), frozenset(self._request.to)

        def is_there(spread: Spread) -> bool:
            path = spread.planned.policy_path
            if path is None:
                return False
            # Before the groups are separated one policy speaks for all of them.
            named = frozenset(places.get(group_path(path, spread.group), places.get(path, ())))
            leaves = self._request.is_move and spread.group is Group.GOES
            return named == to if leaves else named >= to

        return [replace(each, is_there=is_there(each)) for each, _ in looked]

    async def _look_at(self, spread: Spread) -> tuple[Spread, str]:
        """Return an object with its notes, and what is in its way on the clusters it goes to."""
        planned = spread.planned
        try:
            template = await self._hub.find(planned.path)
        except NotServed:
            template = None
        if template is None or spread.group is Group.STAYS:
            return spread, ""
        for name, client in self._targets.items():
            try:
                live = await client.find(planned.path)
            except NotServed:
                continue  # its definition comes along
            if live is None or is_of(live, self._store.name):
                continue
            # What says the same is had without a change, such as what was left there before.
            if users_differences(pruned(template), live):
                return spread, f"{planned.title} is on {name} already, and says something else"
        return replace(spread, notes=notes_on(template)), ""

    async def run(self, spreads: list[Spread]) -> Counter[Group]:
        """Carry it out; CannotMigrate when something is not healthy in time: nothing is removed."""
        to = self._request.to
        paths = {each.planned.policy_path: None for each in spreads if each.planned.policy_path}
        going = [each for each in spreads if each.group is not Group.STAYS]
        if not all(each.is_there for each in going):
            for path in paths:
                await self._separate(path, [e for e in spreads if e.planned.policy_path == path])
        places = await self._places(paths)
        # Whoever comes back to a cluster it was about to leave is not evicted from it any more.
        await self._some(going, lambda each: self._edit(each, _back_to(to)))
        for path in paths:
            for group in (Group.GOES, Group.SHARED):
                place = group_path(path, group)
                if place in places:
                    wider = list(dict.fromkeys((*places[place], *to)))
                    await self._change(place, wider, _PLACES)
        await self._until(going, self._is_on_all, "healthy")
        if self._request.is_move:
            await self._leave([each for each in going if each.group is Group.GOES], places)
            if to == ((await self._store.record()).cluster,):
                # All of it is at home again. What was shared stays behind on the others, without
                # marks: they may have come to need it.
                for path in paths:
                    if (place := group_path(path, Group.SHARED)) in places:
                        await self._change(place, list(to), _PLACES)
                await self._until(going, self._is_elsewhere, "at home")
        return Counter(each.group for each in spreads)

    async def _separate(self, path: ResourcePath, spreads: list[Spread]) -> None:
        """Have each group of a policy's objects in a policy of its own, on the same clusters.

        The other policies are there before the first one lets go: claimed by name in both, an
        object stays with the one it follows until that one does not name it any more.
        """
        base = await self._policy(path)
        if base is None and any(each.group is Group.GOES for each in spreads):
            raise CannotMigrate(f"{path} is gone, which carried what the migration took")
        aside: list[Object] = []
        for group in (Group.SHARED, Group.STAYS):
            place = group_path(path, group)
            planned = [each.planned for each in spreads if each.group is group]
            present = await self._policy(place)
            selectors: list[Object] = [dict(selector_of(each)) for each in planned]
            if present is not None:
                named: list[Object] = find_at(present, "spec", "resourceSelectors") or []
                more = [each for each in selectors if each not in named]
                if more:
                    await self._change(place, [*named, *more], ("spec", "resourceSelectors"))
            elif planned and base is not None:
                made = policy_for(place, self._store.name, "", planned)
                made = with_value(made, find_at(base, "spec", "placement"), "spec", "placement")
                try:
                    await self._hub.create(place.collection, made)
                except AlreadyExists:
                    raise CannotMigrate(
                        f"{place} is there and is not this migration's: rename it first"
                    ) from None
            aside += selectors
        if base is None:
            return
        present_base: list[Object] = find_at(base, "spec", "resourceSelectors") or []
        kept = [each for each in present_base if each not in aside]
        if not kept:
            # Everything is named by another policy by now, and one that names nothing may not be.
            await self._hub.delete(path, DeleteOptions(uid_of(base)))
        elif kept != present_base:
            await self._change(path, kept, ("spec", "resourceSelectors"))

    async def _policy(self, path: ResourcePath) -> Object | None:
        found = await self._hub.find(path)
        is_ours = found is not None and labels_of(found).get(NAME_LABEL) == self._store.name
        return found if is_ours else None

    async def _places(self, paths: Iterable[ResourcePath]) -> dict[ResourcePath, tuple[str, ...]]:
        """Return the clusters that the policies of the migration name now."""
        found: dict[ResourcePath, tuple[str, ...]] = {}
        for path in paths:
            for group in Group:
                place = group_path(path, group)
                policy = await self._policy(place)
                if policy is not None:
                    found[place] = tuple(find_at(policy, *_PLACES) or ())
        return found

    async def _change(self, path: ResourcePath, value: object, field: tuple[str, ...]) -> None:
        await commit_change(self._hub, path, lambda found: with_value(found, value, *field))

    # -- leaving ----------------------------------------------------------------------------------

    async def _leave(
        self, leaving: list[Spread], places: Mapping[ResourcePath, tuple[str, ...]]
    ) -> None:
        to = self._request.to
        used = [each for each in places if any(each == e.planned.policy_path for e in leaving)]
        begun = [name for each in await self._some(leaving, self._is_leaving) for name in each]
        left = sorted({*begun, *(name for each in used for name in places[each])} - {*to})
        # Asked for, so the old copies go: policies of migrations have members keep theirs else.
        for path in used if left else ():
            await self._change(path, False, _PRESERVES)
        await self._until(leaving if left else [], self._is_removable, "prepared")
        # Held, until the policies say where it is to be: a task that ends before would have the
        # scheduler come back to the old cluster, which its policy still names.
        await self._some(leaving, lambda each: self._edit(each, self._suppressed(left)))
        for path in used:
            await self._change(path, list(to), _PLACES)
        await self._until(leaving, self._is_elsewhere, "placed")
        await self._some(leaving, lambda each: self._edit(each, _let_go))
        await self._until(leaving, lambda each, _: self._has_left(each, left), "moved")
        await self._some(leaving, lambda each: self._edit(each, _back_to(to)))
        for path in used:
            await self._change(path, True, _PRESERVES)

    async def _is_leaving(self, spread: Spread) -> list[str]:
        """Return the clusters that an object is leaving because of a move that was not finished."""
        binding = await self._hub.get(_binding_path(spread))
        return [str(each.get("fromCluster")) for each in tasks_of(binding) if _is_ours(each)]

    def _suppressed(self, clusters: list[str]) -> Edit:
        """Return what has a binding leave some clusters, as soon as it is let go."""

        def edit(binding: Object) -> Object:
            tasks = tasks_of(binding)
            present = {str(each.get("fromCluster")) for each in tasks}
            shares = {each.name: each.replicas for each in targets_of(binding)}
            for name in clusters:
                if name in shares and name not in present:
                    task: Object = {
                        "fromCluster": name,
                        "purgeMode": GRACEFULLY,
                        "reason": MOVED,
                        "message": f"migration {self._store.name} moves it",
                        "producer": PRODUCER,
                        "gracePeriodSeconds": _FOR_EVER,
                        "suppressDeletion": True,
                        "creationTimestamp": format_time(self._clock.now()),
                    }
                    more = {"replicas": shares[name]} if shares[name] else {}
                    tasks = [*tasks, {**task, **more}]
            asked = {**annotations_of(binding), stamps.MOVED_FROM: ",".join(clusters)}
            return with_metadata(with_tasks(binding, tasks), annotations=asked)

        return edit

    async def _edit(self, spread: Spread, edit: Edit) -> None:
        await commit_change(self._hub, _binding_path(spread), edit)

    # -- what is waited for -----------------------------------------------------------------------

    async def _is_on_all(self, spread: Spread, clusters: Mapping[str, Object]) -> str:
        binding = await self._hub.get(_binding_path(spread))
        missing = {*self._request.to} - {each.name for each in targets_of(binding)}
        if missing:
            return f"it is not placed on {', '.join(sorted(missing))} yet"
        states = {name: state_of(each) for name, each in clusters.items()}
        if not is_scheduled(binding) or not all_healthy(binding, states):
            reports: list[Object] = find_at(binding, "status", "aggregatedStatus") or []
            said = [
                f"{each.get('clusterName')}: {each.get('appliedMessage') or each.get('health')}"
                for each in reports
                if each.get("health") != "Healthy"
            ]
            return f"it is not healthy everywhere{': ' if said else ''}{'; '.join(said)}"
        return ""

    async def _is_removable(self, spread: Spread, _clusters: Mapping[str, Object]) -> str:
        binding = await self._hub.get(_binding_path(spread))
        return "its binding has not heard of its policy" if preserves_resources(binding) else ""

    async def _is_elsewhere(self, spread: Spread, _clusters: Mapping[str, Object]) -> str:
        binding = await self._hub.get(_binding_path(spread))
        placed = {each.name for each in targets_of(binding)}
        wrong = placed ^ {*self._request.to}
        return f"its binding says {', '.join(sorted(placed))} still" if wrong else ""

    async def _has_left(self, spread: Spread, left: list[str]) -> str:
        planned = spread.planned
        for name in left:
            path = work_path(planned.kind, planned.path, name)
            if await self._hub.find(path) is not None:
                return f"{name} has it still; the controllers remove it as soon as they may"
        return ""

    async def _until(
        self,
        spreads: list[Spread],
        look: Callable[[Spread, Mapping[str, Object]], Coroutine[Any, Any, str]],
        what: str,
    ) -> None:
        """Wait until nothing is said of any object any more."""
        remaining, reasons = list(spreads), [""]
        total = len(spreads)

        async def are_all() -> bool | None:
            nonlocal remaining
            listed = await self._hub.list_objects(ResourcePath(CLUSTERS))
            clusters = {name_of(each): each for each in listed}
            said = await self._some(remaining, lambda each: look(each, clusters))
            reasons[:] = [
                f"{each.planned.title}: {why}"
                for each, why in zip(remaining, said, strict=True)
                if why
            ]
            remaining = [each for each, why in zip(remaining, said, strict=True) if why]
            self._progress(what, total - len(remaining), total)
            return None if remaining else True

        if not await Waiting(self._clock, self._request.patience).until_seen(are_all):
            verb = "move" if self._request.is_move else "spread"
            raise CannotMigrate(
                f"{total - len(remaining)} of {total} are {what}; {reasons[0]}. Nothing is lost: "
                f"`clusterspace migrate {verb} {self._store.name} --to "
                f"{','.join(self._request.to)}` goes on, `--to` where it was goes back"
            )

    async def _some(
        self, spreads: list[Spread], work: Callable[[Spread], Coroutine[Any, Any, Result]]
    ) -> list[Result]:
        """Do one thing to all, some at a time; the first failure is raised."""
        results: list[Result] = []
        for at in range(0, len(spreads), self._request.at_once):
            results += await all_of(work(each) for each in spreads[at : at + self._request.at_once])
        return results


def _binding_path(spread: Spread) -> ResourcePath:
    planned = spread.planned
    about: Object = {"kind": planned.kind, "metadata": {"name": planned.name}}
    return ResourcePath(resource_for(planned.namespace), planned.namespace, name_for(about))


def _is_ours(task: Object) -> bool:
    return task.get("producer") == PRODUCER


def _back_to(clusters: Iterable[str]) -> Edit:
    """Return what has a binding stay on some clusters, whatever a move has said before."""
    names = frozenset(clusters)

    def edit(binding: Object) -> Object:
        tasks = tasks_of(binding)
        kept = [e for e in tasks if not (_is_ours(e) and e.get("fromCluster") in names)]
        others = {k: v for k, v in annotations_of(binding).items() if k != stamps.MOVED_FROM}
        changed = binding if kept == tasks else with_tasks(binding, kept)
        return with_metadata(changed, annotations=others or None)

    return edit


def _let_go(binding: Object) -> Object:
    """Return a binding whose tasks of ours end when what replaces the old copy is healthy."""
    return with_tasks(
        binding,
        [
            {k: v for k, v in each.items() if not _is_ours(each) or k != "suppressDeletion"}
            for each in tasks_of(binding)
        ],
    )
