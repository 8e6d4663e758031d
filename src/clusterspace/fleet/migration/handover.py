"""What another hub places handed over to this one, and back: what all kinds of hubs have in common.

    over   its policies let go ──> namespaces, overrides, templates ──> policies, and we go on
    back   what is ours goes, members keep their objects ──> its policies go on

At no moment do two hubs write to an object. What an item stands for, how the other hub lets go and
how members get to know us is said by the class for its kind: karmada_handover.py,
kubefleet_handover.py. A policy is whatever places objects there, be it called a placement.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import migrations
from clusterspace.apis.works import report_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    CannotMigrate,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    NotServed,
)
from clusterspace.fleet.execution.takeover import template_uid_of
from clusterspace.fleet.migration.apply import ApplyOptions, Progress, all_of, is_of
from clusterspace.fleet.migration.hub_planning import POLICY_RANK
from clusterspace.fleet.migration.judgement import template_for
from clusterspace.fleet.migration.plan import PlanItem
from clusterspace.fleet.migration.progress import (
    Chunk,
    Item,
    MigrationStore,
    Phase,
    Record,
    State,
    count_states,
)
from clusterspace.fleet.migration.undo import work_path
from clusterspace.fleet.migration.waiting import FIRST_LOOK, Waiting
from clusterspace.kube.objects import Object, uid_of

_SERVED_SECONDS: Final = 30.0

GONE: Final = "it is gone from the other hub: plan again"

Place = tuple[Chunk, int]
"""Where an item is."""


class Handover:
    """Hands what another hub places over to this one, or back, from wherever that stands."""

    def __init__(
        self,
        store: MigrationStore,
        other: Client,
        members: Mapping[str, Client],
        options: ApplyOptions,
        clock: Clock,
        progress: Progress = lambda _counts, _total: None,
    ) -> None:
        self._store = store
        self._hub = store.hub
        self._other = other
        self._members = members
        self._options = options
        self._clock = clock
        self._progress = progress
        self._waiting = Waiting(clock, options.patience)
        self._chunks: list[Chunk] = []

    # -- what each kind of hub says for itself ----------------------------------------------------

    def let_go(self, theirs: Object) -> Object:
        """Return a policy of the other hub by which it writes to no member."""
        raise NotImplementedError

    async def stand_still(self, _policies: list[Place]) -> None:
        """Wait until the other hub has let go of what policies place, where that is told there."""

    async def take_one(self, item: Item) -> Item:
        """Take one item that is no policy."""
        raise NotImplementedError

    async def take_policy(self, item: Item) -> Item:
        """Have a policy on this hub, which goes on with what it places."""
        raise NotImplementedError

    async def confirm(self, item: Item) -> Item:
        """See that members bear our marks, where that comes after the policies."""
        return item

    async def give_back(self) -> Counter[State]:
        """Hand back all that was taken; CannotMigrate names what cannot be, after all else was."""
        raise NotImplementedError

    # -- over -------------------------------------------------------------------------------------

    async def take(self) -> Counter[State]:
        """Take over what is left to take; CannotMigrate at the first surprise."""
        record = await self._begin()
        if record.phase in (Phase.UNDOING.value, Phase.UNDONE.value):
            raise CannotMigrate(
                f"migration {record.name} was taken back: plan anew, under another name"
            )
        if record.is_paused:
            raise CannotMigrate(f"migration {record.name} is paused")
        await self._tell(Phase.APPLYING)
        try:
            places = [(c, i) for c, i in self._places() if _is_to_take(c.items[i])]
            policies = [(c, i) for c, i in places if is_policy(c.items[i].plan)]
            for chunk, index in policies:
                chunk.items[index] = await self._suspend(chunk, index)
                await self._store.write(chunk)
            self._stop_at_surprises([c.items[i] for c, i in policies])
            await self.stand_still(policies)
            await self._write(policies)
            self._stop_at_surprises([c.items[i] for c, i in policies])
            others = [each for each in places if each not in policies]
            for batch in batches(others, self._options.at_once):
                if (await self._store.record()).is_paused:
                    raise CannotMigrate(f"migration {record.name} is paused")
                # Before anything is made: an undo after a crash right here looks at all of them.
                for chunk, index in batch:
                    chunk.items[index] = chunk.items[index].now(State.TAKING)
                await self._write(batch)
                done = await self._do(batch, self.take_one, record.items)
                self._stop_at_surprises(done)
            # The last: from here on our policies decide where what they name is.
            for work, some in ((self.take_policy, policies), (self.confirm, others)):
                for batch in batches(some, self._options.at_once):
                    done = await self._do(batch, work, record.items)
                    self._stop_at_surprises(done)
        except CannotMigrate as error:
            await self._tell(Phase.STOPPED, str(error))
            raise
        except (ClusterError, Forbidden) as error:
            why = f"{error}; nothing is lost: `clusterspace migrate apply {record.name}` goes on"
            with suppress(ClusterError, ApiError):
                await self._tell(Phase.STOPPED, why)
            raise CannotMigrate(why) from error
        counts = count_states(self._chunks)
        is_over = not counts[State.PENDING] and not counts[State.TAKING]
        await self._tell(Phase.APPLIED if is_over else Phase.STOPPED)
        return counts

    async def _suspend(self, chunk: Chunk, index: int) -> Item:
        """Have the other hub write nothing more to members for a policy, and delete nothing."""
        item = chunk.items[index]
        if item.state not in (State.PENDING, State.TAKING):
            return item
        path = item.plan.path
        theirs = await self._other.find(path)
        if theirs is None or uid_of(theirs) != item.plan.uid:
            return item.now(State.REFUSED, GONE)
        if item.state is State.PENDING:
            name = migrations.originals_name(self._store.name, chunk.number, index)
            kept = await self._store.keep(name, [theirs])
            item = item.now(State.TAKING, originals=kept.get(uid_of(theirs), ""))
            # Known before it is done: an undo that finds it suspended knows what it was.
            chunk.items[index] = item
            await self._store.write(chunk)
        await commit_change(self._other, path, self.let_go)
        return item.now(State.TAKING)

    async def _make_namespace(self, item: Item) -> Item:
        """Have a namespace on the hub for what goes into it; that of members is left as it is."""
        theirs = await self._other.get(item.plan.path)
        try:
            made = await self._hub.create(
                item.plan.path.collection, template_for(theirs, self._store.name)
            )
        except AlreadyExists:
            made = await self._hub.get(item.plan.path)
            if not is_of(made, self._store.name):
                return item.now(State.SKIPPED, "the hub has it already")
        return item.now(State.TAKEN, template_uid=uid_of(made))

    async def _carry(self, item: Item, desired: Object) -> Item:
        """Make an object on this hub; another one of its name is never touched."""
        path = item.plan.path
        deadline = self._clock.monotonic() + _SERVED_SECONDS
        while True:
            try:
                made = await self._hub.create(path.collection, desired)
                break
            except AlreadyExists:
                made = await self._hub.get(path)
                break
            except (Conflict, NotServed) as error:
                # The hub begins to serve a kind a moment after its definition is there.
                if self._clock.monotonic() > deadline:
                    return item.now(State.REFUSED, f"the hub refuses it: {error.message}")
                await self._clock.sleep(FIRST_LOOK)
            except ApiError as error:
                return item.now(State.REFUSED, f"the hub refuses it: {error.message}")
        if not is_of(made, self._store.name):
            why = "the hub has an object of this name, which is not touched"
            return item.now(State.REFUSED, why)
        return item.now(State.TAKEN, template_uid=uid_of(made))

    async def _until_taken(self, path: ResourcePath, cluster: str, uid: str) -> Object | None:
        """Wait until a member's object is of the template with this UID; return it, or None."""

        async def taken() -> Object | None:
            live = await self._members[cluster].find(path)
            return live if live is not None and template_uid_of(live) == uid else None

        return await self._waiting.until_seen(taken)

    async def _why_not_taken(self, kind: str, path: ResourcePath, cluster: str) -> str:
        work = await self._hub.find(work_path(kind, path, cluster))
        if work is None:
            return "there is no Work for it; do the controllers run? `clusterspace status` says"
        return report_of(work).message or "the cluster has not said anything about its Work"

    # -- back -------------------------------------------------------------------------------------

    async def _stop_at_kept(self, places: list[Place]) -> None:
        """Raise when something stays on this hub: until it is gone members might have two hubs."""
        kept = [c.items[i] for c, i in places if c.items[i].state is not State.UNDONE]
        if kept:
            more = f" (and {len(kept) - 1} more)" if kept[1:] else ""
            why = f"{kept[0].plan.title}{more} stays on this hub: {kept[0].reason}"
            await self._tell(Phase.UNDOING, why)
            raise CannotMigrate(why)

    async def _delete_ours(self, path: ResourcePath) -> None:
        """Delete an object of this hub, if the migration made it."""
        ours = await self._hub.find(path)
        if ours is not None and is_of(ours, self._store.name):
            with suppress(NotFound):
                await self._hub.delete(path, DeleteOptions(uid_of(ours)))

    # -- both -------------------------------------------------------------------------------------

    async def _begin(self) -> Record:
        record = await self._store.record()
        self._chunks = [await self._store.chunk(each) for each in range(record.chunks)]
        return record

    async def _tell(self, phase: Phase, message: str = "") -> None:
        await self._store.tell(phase, count_states(self._chunks), self._clock.now(), message)

    def _places(self) -> Iterator[Place]:
        for chunk in self._chunks:
            for index in range(len(chunk.items)):
                yield chunk, index

    async def _do(
        self, places: list[Place], work: Callable[[Item], Coroutine[Any, Any, Item]], total: int
    ) -> list[Item]:
        """Do one thing to some items, side by side; return them as they are then."""
        results = await all_of(work(chunk.items[index]) for chunk, index in places)
        for (chunk, index), item in zip(places, results, strict=True):
            chunk.items[index] = item
        await self._write(places)
        self._progress(count_states(self._chunks), total)
        return results

    async def _write(self, places: list[Place]) -> None:
        for chunk in {chunk.number: chunk for chunk, _ in places}.values():
            await self._store.write(chunk)

    def _stop_at_surprises(self, items: list[Item]) -> None:
        surprises = [each for each in items if _is_surprise(each)]
        if surprises and not self._options.goes_on:
            first, name = surprises[0], self._store.name
            raise CannotMigrate(
                f"stopped at {first.plan.title}: {first.reason}. `clusterspace migrate apply "
                f"{name}` goes on without it, `clusterspace migrate undo {name}` hands all back"
            )


def is_policy(planned: PlanItem) -> bool:
    """Whether an item is of what places others."""
    return planned.rank == POLICY_RANK


def _is_to_take(item: Item) -> bool:
    return item.state in (State.PENDING, State.TAKING)


def _is_surprise(item: Item) -> bool:
    return item.state is State.REFUSED or bool(item.reason and item.state is not State.SKIPPED)


def batches(places: list[Place], at_once: int) -> Iterator[list[Place]]:
    """Yield items to be done side by side, in their order; never one with what it needs."""
    batch: list[Place] = []
    for chunk, index in places:
        rank = chunk.items[index].plan.rank
        if batch and (len(batch) == at_once or batch[0][0].items[batch[0][1]].plan.rank != rank):
            yield batch
            batch = []
        batch.append((chunk, index))
    if batch:
        yield batch
