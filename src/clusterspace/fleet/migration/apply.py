"""A plan carried out: objects taken in their order, each exactly once or not at all.

    judged anew ──> original kept ──> Taking ──> policy ──> template ──> member stamped ──> Taken

For each batch the hub is written in this order, and what a crash leaves is:

    after            left behind                     whoever goes on
    the original     a Secret nobody needs           judges again, and replaces it
    Taking           nothing on the member           makes the template, if it is not there
    the policy       a policy that selects nothing   finds it
    the template     an object that is being taken   knows it by its annotation, and waits for it
    Taken            all of it                       goes on with the next

The template is what has the member's object taken: it bears the name of the migration, and nobody
else's template of that name is ever touched. On the member nothing is written here; that is what
`execution` does, as for every other template.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apis import migrations, policies, stamps
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.migrations import NAME_LABEL
from clusterspace.apis.works import report_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    CannotMigrate,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotServed,
    RequestEntityTooLarge,
)
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.migration.judgement import Judge, pod_template_of, template_for
from clusterspace.fleet.migration.plan import Allow, PlanItem, objection_to, planned_owner
from clusterspace.fleet.migration.progress import (
    Chunk,
    Item,
    MigrationStore,
    Phase,
    Record,
    State,
    Tally,
)
from clusterspace.fleet.migration.selection import DEFINITION, NAMESPACE, hub_effect, why_left
from clusterspace.fleet.migration.spool import Spool
from clusterspace.fleet.migration.waiting import FIRST_LOOK, Waiting
from clusterspace.fleet.propagation.bindings import Claim, read_policy, with_claim
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    resource_version_of,
    uid_of,
    with_value,
)

_REFUSALS: Final = (BadRequest, Forbidden, Invalid, NotServed, RequestEntityTooLarge)
_SERVED_SECONDS: Final = 30.0
"""How long a definition may take on the hub before its objects can be made there."""

_LOST: Final = (State.REFUSED, State.SKIPPED, State.UNDONE)
"""What no policy has to carry."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How a plan is carried out."""

    at_once: int = 20
    goes_on: bool = False
    """Whether it goes on after a surprise."""
    patience: float = 120.0
    """Seconds in which an object must have been taken, once its template is there."""


Progress = Callable[[Counter[State], int], None]
"""Told how many items are in which state, and how many there are."""


class Application:
    """Carries out one migration, from wherever it stands."""

    def __init__(
        self,
        store: MigrationStore,
        member: Client,
        judge: Judge,
        options: ApplyOptions,
        clock: Clock,
        progress: Progress = lambda _counts, _total: None,
    ) -> None:
        self._store = store
        self._hub = store.hub
        self._member = member
        self._judge = judge
        self._options = options
        self._clock = clock
        self._progress = progress
        self._waiting = Waiting(clock, options.patience)
        self._tally = Tally()
        self._carried = CarriedItems()
        self._claims: dict[ResourcePath, Claim | None] = {}
        """The policies that are there, and the claim that says so on what they carry."""

    async def run(self) -> Counter[State]:
        """Take what is left to take; CannotMigrate at the first surprise, unless told to go on."""
        record = await self._store.record()
        if record.phase in (Phase.UNDOING.value, Phase.UNDONE.value):
            raise CannotMigrate(
                f"migration {record.name} was taken back: plan anew, under another name"
            )
        async for chunk in self._store.chunks(record):
            self._tally.note(chunk)
            self._carried.note(chunk)
        self._judge.planned_kinds = frozenset()
        await self._tell(Phase.APPLYING)
        try:
            for number in range(record.chunks):
                if not self._tally.has(number, State.PENDING, State.TAKING):
                    continue
                # Of the items one chunk is in memory, and of objects a batch.
                chunk = await self._store.chunk(number)
                for batch in _batches(chunk, self._options.at_once):
                    await self._require_go(record)
                    surprises = await self._take(chunk, batch)
                    self._tally.note(chunk)
                    self._progress(self._tally.counts, record.items)
                    if surprises and not self._options.goes_on:
                        raise CannotMigrate(self._stopped_text(record, surprises))
        except CannotMigrate as error:
            await self._tell(Phase.STOPPED, str(error))
            raise
        except (ClusterError, Forbidden) as error:
            taken = self._tally.counts[State.TAKEN]
            why = (
                f"{error}; {taken} of {record.items} are taken, and nothing is lost: "
                f"`clusterspace migrate apply {record.name}` goes on"
            )
            # It may be the hub that does not answer: then nobody can be told but whoever waits.
            with suppress(ClusterError, ApiError):
                await self._tell(Phase.STOPPED, why)
            raise CannotMigrate(why) from error
        await self._trim_policies()
        counts = self._tally.counts
        is_over = not counts[State.PENDING] and not counts[State.TAKING]
        await self._tell(Phase.APPLIED if is_over else Phase.STOPPED)
        return counts

    async def _require_go(self, record: Record) -> None:
        """Raise unless the migration is to go on; asked before every batch."""
        now = await self._store.record()
        if now.is_paused:
            await self._tell(Phase.PAUSED)
            raise CannotMigrate(
                f"migration {now.name} is paused: `clusterspace migrate apply {now.name}` goes on"
            )
        if now.phase == Phase.UNDOING.value:
            raise CannotMigrate(f"migration {record.name} is being taken back")

    async def _tell(self, phase: Phase, message: str = "") -> None:
        await self._store.tell(phase, self._tally.counts, self._clock.now(), message)

    def _stopped_text(self, record: Record, surprises: list[Item]) -> str:
        first, more = surprises[0], len(surprises) - 1
        others = f" (and {more} more)" if more else ""
        taken = self._tally.counts[State.TAKEN]
        return (
            f"stopped at {first.plan.title}{others}: {first.reason}; {taken} of {record.items} are "
            f"taken. `clusterspace migrate apply {record.name}` goes on without it, "
            f"`clusterspace migrate undo {record.name}` gives all of them back"
        )

    # -- one batch ------------------------------------------------------------------------------

    async def _take(self, chunk: Chunk, batch: list[int]) -> list[Item]:
        """Take some items of a chunk, side by side; return those that were a surprise."""
        before: dict[int, Object] = {}
        for index, judged in zip(
            batch, await all_of(self._examine(chunk.items[index]) for index in batch), strict=True
        ):
            chunk.items[index], live = judged
            if live is not None:
                before[index] = live
        new = {i: live for i, live in before.items() if chunk.items[i].state is State.PENDING}
        if new:
            name = migrations.originals_name(self._store.name, chunk.number, min(new))
            kept = await self._store.keep(name, new.values())
            for index, live in new.items():
                if uid_of(live) in kept:
                    where = kept[uid_of(live)]
                    chunk.items[index] = chunk.items[index].now(State.TAKING, originals=where)
                else:
                    why = "it is too large for its original to be kept on the hub"
                    chunk.items[index] = chunk.items[index].now(State.REFUSED, why)
        await self._store.write(chunk)
        self._carried.drop_lost(chunk, batch)
        going = [i for i in batch if chunk.items[i].state is State.TAKING]
        await self._ensure_policies([chunk.items[i].plan for i in going])
        results = await all_of(self._take_one(chunk.items[i], before.get(i)) for i in going)
        for index, item in zip(going, results, strict=True):
            chunk.items[index] = item
        await self._store.write(chunk)
        self._carried.drop_lost(chunk, batch)
        return [chunk.items[i] for i in batch if _is_surprise(chunk.items[i])]

    async def _examine(self, item: Item) -> tuple[Item, Object | None]:
        """Return what is to become of an item, and its object if that is still to be taken."""
        try:
            return await self._examine_read(item)
        except Forbidden as error:
            # About this object, and not about the others: rights often differ by kind.
            return item.now(State.REFUSED, f"it may not be read: {error.message}"), None

    async def _examine_read(self, item: Item) -> tuple[Item, Object | None]:
        planned = item.plan
        template = await self._find_template(planned)
        if template is not None and is_being_deleted(template):
            return item.now(State.REFUSED, "the hub is deleting an object of this name"), None
        if template is not None and is_of(template, self._store.name):
            # Made by us before a crash: there is nothing left to decide.
            return item.now(State.TAKING, template_uid=uid_of(template)), None
        if template is not None and kind_of(template) == NAMESPACE:
            return item.now(State.SKIPPED, "the hub has it already"), None
        if template is not None:
            why = "the hub has an object of this name, which is not touched"
            return item.now(State.REFUSED, why), None
        live = await self._member.find(planned.path)
        if live is None:
            return item.now(State.SKIPPED, "it is gone from the member"), None
        if uid_of(live) != planned.uid:
            why = "another object of this name is there since the plan was made: plan again"
            return item.now(State.REFUSED, why), None
        if why := why_left(live):
            return item.now(State.REFUSED, why), None
        if is_managed(live) and Allow.OWNER not in planned.allow:
            return item.now(State.REFUSED, "a hub has taken it since the plan was made"), None
        # Whose it is, and what its kind does on the hub, is asked of what is there and not of the
        # file: Argo CD may have come since, and an entry can be edited.
        planned = msgspec.structs.replace(
            planned, owner=planned_owner(live), hub_effect=hub_effect(kind_of(live))
        )
        is_old = resource_version_of(live) != planned.resource_version
        if is_old or not planned.checksum:
            # Most changes are of a status. What it would be now is the member's to say.
            judged = await self._judge.judge(
                planned.path, live, retains_replicas=planned.retains_replicas
            )
            live = judged.live
            worse = objection_to(planned, judged.verdict, judged.reason)
            if worse:
                why = f"it has changed since the plan was made, and {worse}" if is_old else worse
                return item.now(State.REFUSED, why), None
        elif why := objection_to(planned):
            return item.now(State.REFUSED, why), None
        return item, live

    async def _find_template(self, planned: PlanItem) -> Object | None:
        """Return the hub's object of that name; a kind that it does not serve has none."""
        try:
            return await self._hub.find(planned.path)
        except NotServed:
            return None

    async def _take_one(self, item: Item, live: Object | None) -> Item:
        """Make the template, unless it is there, and wait until the member's object bears it."""
        planned, name = item.plan, self._store.name
        if live is not None:
            template = template_for(live, name, retains_replicas=planned.retains_replicas)
            claim = self._claims.get(planned.policy_path) if planned.policy_path else None
            if claim is not None:
                # The detector would write just this: it finds it done, and saves a write of each.
                template = with_claim(template, claim)
            try:
                made = await self._make(planned, template)
            except _REFUSALS as error:
                return item.now(State.REFUSED, f"the hub refuses it: {error.message}")
            except NotFound:
                why = f"namespace {planned.namespace} is not on the hub, and the plan leaves it out"
                return item.now(State.REFUSED, why)
            if not is_of(made, name):
                why = "the hub has an object of this name, which is not touched"
                return item.now(State.REFUSED, why)
            item = item.now(State.TAKING, template_uid=uid_of(made))
        if planned.group_version_kind.group_kind == NAMESPACE:
            return item.now(State.TAKEN)  # the member's own is left as it is
        if planned.group_version_kind.group_kind == DEFINITION:
            await self._until_established(planned)
        return await self._until_taken(item, live)

    async def _make(self, planned: PlanItem, template: Object) -> Object:
        deadline = self._clock.monotonic() + _SERVED_SECONDS
        while True:
            try:
                return await self._hub.create(planned.path.collection, template)
            except AlreadyExists:
                return await self._hub.get(planned.path)
            except (Conflict, NotServed):
                # The hub begins to serve a kind a moment after its definition is there.
                if self._clock.monotonic() > deadline:
                    raise
                await self._clock.sleep(FIRST_LOOK)

    async def _until_established(self, planned: PlanItem) -> None:
        async def established() -> Object | None:
            definition = await self._hub.find(planned.path)
            is_so = is_true(find_at(definition, "status", "conditions"), "Established")
            return definition if is_so else None

        await Waiting(self._clock, _SERVED_SECONDS).until_seen(established)

    async def _until_taken(self, item: Item, before: Object | None) -> Item:
        """Wait until the member's object bears the migration's name; judge what became of it."""
        planned = item.plan

        async def taken() -> Object | None:
            found = await self._member.find(planned.path)
            is_taken = found is not None and is_managed(found) and is_of(found, self._store.name)
            return found if is_taken else None

        live = await self._waiting.until_seen(taken)
        if live is None:
            why = await self._why_not_taken(planned)
            return item.now(State.TAKING, f"it was not taken in time: {why}")
        if uid_of(live) != planned.uid:
            return item.now(State.TAKEN, "it was deleted and made anew while it was being taken")
        if before is None:
            before = await self._store.original(item) or live
        may_restart = Allow.RESTART in planned.allow
        if pod_template_of(live) != pod_template_of(before) and not may_restart:
            return item.now(State.TAKEN, "its pods are being replaced, for their template changed")
        return item.now(State.TAKEN)

    async def _why_not_taken(self, planned: PlanItem) -> str:
        """Return the word of the hub about an object that is not taken."""
        space = execution_namespace(self._judge.traits.name)
        name = stamps.work_name(planned.kind, planned.namespace, planned.name)
        work = await self._hub.find(ResourcePath(WORKS, space, name))
        if work is None:
            return "there is no Work for it; do the controllers run? `clusterspace status` says"
        return report_of(work).message or "the cluster has not said anything about its Work"

    # -- policies ---------------------------------------------------------------------------------

    async def _ensure_policies(self, planned: list[PlanItem]) -> None:
        """Have the policies there that are to carry these objects, before their templates are.

        A template that is there first could be claimed by another policy, and go where nobody wants
        it. The policy names its objects, and whether they may overwrite is said by their own
        annotation: whatever else comes to bear one of these names overwrites nothing.
        """
        for path in dict.fromkeys(each.policy_path for each in planned):
            if path is None or path in self._claims:
                continue
            named = self._carried.by(path)
            policy = policy_for(path, self._store.name, self._judge.traits.name, named)
            try:
                present = await self._hub.create(path.collection, policy)
            except AlreadyExists:
                present = await self._hub.get(path)
                if labels_of(present).get(NAME_LABEL) != self._store.name:
                    raise CannotMigrate(
                        f"{path} is there already and is not this migration's: rename it, or plan "
                        "under another name"
                    ) from None
            except NotFound:
                # Its namespace is not on the hub: each of its objects will say so.
                continue
            found = read_policy(present).claim  # the hub gave it an ID when it was made
            self._claims[path] = found if found.policy_id else None

    async def _trim_policies(self) -> None:
        """Take out of the policies what was not taken in the end."""
        for path in self._carried.losers:
            await write_selectors(self._hub, path, self._store.name, self._carried.by(path))


class CarriedItems:
    """What the policies of a migration name, policy by policy; some are in many chunks."""

    def __init__(self) -> None:
        self._items = Spool(PlanItem)
        self.losers: dict[ResourcePath, None] = {}
        """The policies that have to name less than the plan says."""
        self.policies: dict[ResourcePath, None] = {}

    def note(self, chunk: Chunk) -> None:
        """Take what a chunk says when it is read."""
        for index, item in enumerate(chunk.items):
            path = item.plan.policy_path
            if path is not None:
                self.policies[path] = None
                self._items.add(item.plan, f"{chunk.number}/{index}", group=str(path))
        self.drop_lost(chunk, range(len(chunk.items)))

    def drop_lost(self, chunk: Chunk, indices: Iterable[int]) -> None:
        """Drop what of these items is not to be named by its policy any more."""
        for index in indices:
            item = chunk.items[index]
            if item.state in _LOST and item.plan.policy_path is not None:
                self.losers[item.plan.policy_path] = None
                self._items.remove(f"{chunk.number}/{index}")

    def by(self, policy: ResourcePath) -> list[PlanItem]:
        """Return what a policy names: no more than fit into one."""
        return list(self._items.of(str(policy)))


def policy_for(path: ResourcePath, migration: str, cluster: str, planned: list[PlanItem]) -> Object:
    """Return the policy that keeps objects on the cluster they are on, and leaves them there."""
    kind = policies.PROPAGATION_POLICY if path.namespace else policies.CLUSTER_PROPAGATION_POLICY
    inside = {"namespace": path.namespace} if path.namespace else {}
    return {
        "apiVersion": policies.API_VERSION,
        "kind": kind,
        "metadata": {"name": path.name, **inside, "labels": {NAME_LABEL: migration}},
        "spec": {
            "placement": {"clusterAffinity": {"clusterNames": [cluster]}},
            "preserveResourcesOnDeletion": True,
            "resourceSelectors": [selector_of(each) for each in planned],
        },
    }


def selector_of(planned: PlanItem) -> dict[str, str]:
    """Return what means just this object in a policy."""
    inside = {"namespace": planned.namespace} if planned.namespace else {}
    named = {"apiVersion": planned.api_version, "kind": planned.kind, "name": planned.name}
    return {**named, **inside}


def _batches(chunk: Chunk, at_once: int) -> Iterator[list[int]]:
    """Yield the items still to be taken, in order; never one together with what it needs."""
    batch: list[int] = []
    for index, item in enumerate(chunk.items):
        if item.state not in (State.PENDING, State.TAKING):
            continue
        if batch and (len(batch) == at_once or chunk.items[batch[0]].plan.rank != item.plan.rank):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def is_of(kube_object: Object, migration: str) -> bool:
    """Whether a template, or the member's object, bears the name of the migration."""
    return annotations_of(kube_object).get(stamps.MIGRATION) == migration


def _is_surprise(item: Item) -> bool:
    return item.state is State.REFUSED or bool(item.reason and item.state is not State.SKIPPED)


async def write_selectors(
    hub: Client, path: ResourcePath, migration: str, planned: list[PlanItem]
) -> None:
    """Have a policy of the migration name just these objects; without any it goes.

    What people have changed in it besides, its placement above all, stays.
    """
    policy = await hub.find(path)
    if policy is None or labels_of(policy).get(NAME_LABEL) != migration:
        return
    present: list[Object] = find_at(policy, "spec", "resourceSelectors") or []
    ours = {tuple(sorted(selector_of(each).items())) for each in planned}
    remaining = [each for each in present if tuple(sorted(each.items())) in ours]
    if not remaining:
        with suppress(NotFound):
            await hub.delete(path, DeleteOptions(uid_of(policy)))
    elif len(remaining) != len(present):
        await commit(hub, path, policy, with_value(policy, remaining, "spec", "resourceSelectors"))


async def all_of(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Do things side by side; the first failure ends all of them, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the first is the reason
    return [task.result() for task in tasks]
