"""What another hub places handed over to this one, without a change on any member; and back.

    over   suspend its policies ──> its Works stand still ──> template, binding ──> members bear our
           marks ──> policies, and we go on
    back   delete templates ──> members keep their objects ──> their marks again ──> delete policies
           ──> its policies go on

At no moment do two hubs write to an object: the other one is suspended before our first template is
made, and goes on after our last one is gone. Nothing is deleted on the other hub, and nothing on a
member: policies on both sides say that members keep what they have. What a crash leaves:

    after              left behind                    whoever goes on
    the original       a Secret nobody needs          replaces it
    suspended          members nobody writes to       finds it suspended
    the template       no policy claims it, so        makes its binding
                       nothing is placed
    the binding        members being stamped          waits for them
    the policy         all of it                      is done
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import migrations
from clusterspace.apis.works import (
    clusters_of,
    manifests_of,
    name_for,
    report_of,
    resource_for,
    suspends_dispatching,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions, Propagation
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
from clusterspace.fleet.execution.takeover import is_managed, template_uid_of, with_stamps_of
from clusterspace.fleet.migration.apply import ApplyOptions, Progress, all_of, is_of
from clusterspace.fleet.migration.carrying import (
    carried_binding,
    carried_policy,
    carried_template,
    is_propagation_policy,
    resumed_policy,
    suspended_policy,
)
from clusterspace.fleet.migration.hub_planning import OVERRIDE_RANK, POLICY_RANK
from clusterspace.fleet.migration.judgement import pod_template_of, template_for
from clusterspace.fleet.migration.plan import Allow, PlanItem
from clusterspace.fleet.migration.progress import (
    Chunk,
    Item,
    MigrationStore,
    Phase,
    Record,
    State,
    count_states,
)
from clusterspace.fleet.migration.selection import NAMESPACE
from clusterspace.fleet.migration.undo import why_kept, work_path
from clusterspace.fleet.migration.waiting import FIRST_LOOK, Waiting
from clusterspace.kube.objects import Object, name_of, uid_of

_ROUNDS: Final = 5
_SERVED_SECONDS: Final = 30.0

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
            policies = [(c, i) for c, i in places if _is_policy(c.items[i].plan)]
            for chunk, index in policies:
                chunk.items[index] = await self._suspend(chunk, index)
                await self._store.write(chunk)
            self._stop_at_surprises([c.items[i] for c, i in policies])
            others = [each for each in places if each not in policies]
            for batch in _batches(others, self._options.at_once):
                if (await self._store.record()).is_paused:
                    raise CannotMigrate(f"migration {record.name} is paused")
                # Before anything is made: an undo after a crash right here looks at all of them.
                for chunk, index in batch:
                    chunk.items[index] = chunk.items[index].now(State.TAKING)
                await self._write(batch)
                done = await self._do(batch, self._take_one, record.items)
                self._stop_at_surprises(done)
            # The last: from here on our policies decide where what they name is.
            for batch in _batches(policies, self._options.at_once):
                done = await self._do(batch, self._carry_policy, record.items)
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
            return item.now(State.REFUSED, "it is gone from the other hub: plan again")
        if item.state is State.PENDING:
            name = migrations.originals_name(self._store.name, chunk.number, index)
            kept = await self._store.keep(name, [theirs])
            item = item.now(State.TAKING, originals=kept.get(uid_of(theirs), ""))
            # Known before it is done: an undo that finds it suspended knows what it was.
            chunk.items[index] = item
            await self._store.write(chunk)
        await commit_change(self._other, path, suspended_policy)
        return item

    async def _take_one(self, item: Item) -> Item:
        planned, name = item.plan, self._store.name
        if planned.group_version_kind.group_kind == NAMESPACE:
            return await self._make_namespace(item)
        theirs = await self._other.find(planned.path)
        if theirs is None or uid_of(theirs) != planned.uid:
            return item.now(State.REFUSED, "it is gone from the other hub: plan again")
        if planned.rank == OVERRIDE_RANK:
            return await self._carry(item, carried_policy(theirs, name))
        binding = await self._other.find(
            ResourcePath(resource_for(planned.namespace), planned.namespace, name_for(theirs))
        )
        if binding is None:
            return item.now(State.REFUSED, "its binding is gone from the other hub: plan again")
        clusters = {each.name for each in clusters_of(binding)}
        if not clusters <= set(planned.clusters):
            more = ", ".join(sorted(clusters - set(planned.clusters)))
            return item.now(State.REFUSED, f"it is on {more} since the plan was made: plan again")
        if why := await self._until_standing_still(planned):
            return item.now(item.state, why)
        before = {each: await self._members[each].find(planned.path) for each in planned.clusters}
        made = await self._carry(item, carried_template(theirs, name))
        if made.state is not State.TAKEN:
            return made
        item = made.now(State.TAKING)
        template = await self._hub.get(planned.path)
        ours = carried_binding(binding, template, name)
        place = ResourcePath(resource_for(planned.namespace), planned.namespace, name_of(ours))
        with suppress(AlreadyExists):
            await self._hub.create(place.collection, ours)
        for cluster in planned.clusters:
            live = await self._until_taken(planned, cluster, uid_of(template))
            if live is None:
                why = await self._why_not_taken(planned, cluster)
                return item.now(State.TAKING, f"{cluster} has not taken it in time: {why}")
            was = before[cluster]
            is_same = was is not None and pod_template_of(was) == pod_template_of(live)
            if not is_same and Allow.RESTART not in planned.allow:
                return item.now(State.TAKEN, f"its pods on {cluster} are being replaced")
        return item.now(State.TAKEN)

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

    async def _carry_policy(self, item: Item) -> Item:
        if item.state is not State.TAKING:
            return item
        theirs = await self._other.get(item.plan.path)
        return await self._carry(item, carried_policy(theirs, self._store.name))

    async def _until_standing_still(self, planned: PlanItem) -> str:
        """Wait until the other hub's Works are suspended; return why they are not."""
        for cluster in planned.clusters:

            async def suspended(cluster: str = cluster) -> bool | None:
                work = await self._other.find(work_path(planned.kind, planned.path, cluster))
                return True if work is None or suspends_dispatching(work) else None

            if not await self._waiting.until_seen(suspended):
                return (
                    f"the other hub does not suspend its Work for {cluster}; do its programs run?"
                )
        return ""

    async def _until_taken(self, planned: PlanItem, cluster: str, uid: str) -> Object | None:
        async def taken() -> Object | None:
            live = await self._members[cluster].find(planned.path)
            is_taken = live is not None and is_of(live, self._store.name)
            return live if is_taken and live and template_uid_of(live) == uid else None

        return await self._waiting.until_seen(taken)

    async def _why_not_taken(self, planned: PlanItem, cluster: str) -> str:
        work = await self._hub.find(work_path(planned.kind, planned.path, cluster))
        if work is None:
            return "there is no Work for it; do the controllers run? `clusterspace status` says"
        return report_of(work).message or "the cluster has not said anything about its Work"

    # -- back -------------------------------------------------------------------------------------

    async def give_back(self) -> Counter[State]:
        """Hand back all that was taken; CannotMigrate names what cannot be, after all else was."""
        record = await self._begin()
        await self._tell(Phase.UNDOING)
        places = [(c, i) for c, i in self._places() if c.items[i].state is not State.UNDONE]
        places.reverse()
        policies = [(c, i) for c, i in places if _is_policy(c.items[i].plan)]
        overrides = [(c, i) for c, i in places if c.items[i].plan.rank == OVERRIDE_RANK]
        others = [each for each in places if each not in policies and each not in overrides]
        for batch in _batches(others, self._options.at_once):
            await self._do(batch, self._give_back_one, record.items)
        # Only when no template of ours is left: until then members might be written to by two.
        kept = [c.items[i] for c, i in others if c.items[i].state is not State.UNDONE]
        if kept:
            more = f" (and {len(kept) - 1} more)" if kept[1:] else ""
            why = f"{kept[0].plan.title}{more} stays on this hub: {kept[0].reason}"
            await self._tell(Phase.UNDOING, why)
            raise CannotMigrate(why)
        for batch in _batches([*policies, *overrides], self._options.at_once):
            await self._do(batch, self._give_back_policy, record.items)
        await self._tell(Phase.UNDONE)
        return count_states(self._chunks)

    async def _give_back_one(self, item: Item) -> Item:
        planned, name = item.plan, self._store.name
        if item.state not in (State.TAKING, State.TAKEN) or not planned.clusters:
            return item.now(State.UNDONE, item.reason)
        try:
            template = await self._hub.find(planned.path)
        except NotServed:
            template = None
        if template is not None and is_of(template, name):
            if why := await why_kept(self._hub, planned.path, template, planned.clusters):
                return item.now(item.state, why)
            with suppress(NotFound):
                options = DeleteOptions(uid_of(template), propagation=Propagation.BACKGROUND)
                await self._hub.delete(planned.path, options)
        for cluster in planned.clusters:
            if not await self._until_let_go(planned, cluster):
                why = f"its Work for {cluster} was not withdrawn in time; does the cluster answer?"
                return item.now(item.state, why)
            await self._stamp_as_theirs(planned, cluster)
        return item.now(State.UNDONE)

    async def _until_let_go(self, planned: PlanItem, cluster: str) -> bool:
        async def let_go() -> bool | None:
            if await self._hub.find(work_path(planned.kind, planned.path, cluster)) is not None:
                return None
            live = await self._members[cluster].find(planned.path)
            is_ours = live is not None and is_managed(live) and is_of(live, self._store.name)
            return None if is_ours else True

        return bool(await self._waiting.until_seen(let_go))

    async def _stamp_as_theirs(self, planned: PlanItem, cluster: str) -> None:
        """Give an object the marks by which the other hub knows it; it is suspended still."""
        work = await self._other.find(work_path(planned.kind, planned.path, cluster))
        if work is None:
            return
        meant = (planned.kind, planned.name)
        found = (m for m in manifests_of(work) if (m.get("kind"), name_of(m)) == meant)
        manifest = next(found, None)
        if manifest is None:
            return
        member = self._members[cluster]
        for _ in range(_ROUNDS):
            live = await member.find(planned.path)
            if live is None:
                return
            with suppress(Conflict):
                await member.update(planned.path, with_stamps_of(live, manifest))
                return
        raise CannotMigrate(f"somebody changes {planned.title} without a pause; undo it again")

    async def _give_back_policy(self, item: Item) -> Item:
        """Take a policy from this hub, and have the other one go on with its own."""
        planned = item.plan
        if item.state not in (State.TAKING, State.TAKEN):
            return item.now(State.UNDONE, item.reason)
        ours = await self._hub.find(planned.path)
        if ours is not None and is_of(ours, self._store.name):
            with suppress(NotFound):
                await self._hub.delete(planned.path, DeleteOptions(uid_of(ours)))
        original = await self._store.original(item)
        if original is not None and is_propagation_policy(original):
            with suppress(NotFound):
                await commit_change(
                    self._other, planned.path, lambda found: resumed_policy(found, original)
                )
        return item.now(State.UNDONE)

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


def _is_policy(planned: PlanItem) -> bool:
    return planned.rank == POLICY_RANK


def _is_to_take(item: Item) -> bool:
    return item.state in (State.PENDING, State.TAKING)


def _is_surprise(item: Item) -> bool:
    return item.state is State.REFUSED or bool(item.reason and item.state is not State.SKIPPED)


def _batches(places: list[Place], at_once: int) -> Iterator[list[Place]]:
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
