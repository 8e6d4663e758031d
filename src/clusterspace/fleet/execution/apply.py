"""One manifest of a Work, put on the member: decided, paced, applied, remembered.

Nothing is ever overwritten unseen: every update is one PUT at the version that was looked at.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apis.fleet_placements import (
    COMPARISON,
    FULL_COMPARISON,
    TAKE_OVER,
    generation_of,
)
from clusterspace.apis.interpreters import RETAIN
from clusterspace.apis.works import APPLIED, why_not_ordered
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, WriteOptions
from clusterspace.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    InternalError,
    InterpretationFailed,
    Invalid,
    Malformed,
    MethodNotAllowed,
    NotFound,
    NotServed,
    RequestEntityTooLarge,
)
from clusterspace.fleet.execution.evidence import encode, is_proved_elsewhere, read_running
from clusterspace.fleet.execution.member_informers import MemberInformers
from clusterspace.fleet.execution.report import (
    MOST_FIELDS,
    ManifestResult,
    WorkReporter,
    conflict_text,
    drift_text,
)
from clusterspace.fleet.execution.takeover import (
    FIELD_MANAGER,
    TakeoverDecision,
    Update,
    decide,
    is_ours,
    keeps_drift,
    plan_update,
    subject_text,
    users_differences,
)
from clusterspace.fleet.interpretation.interpreter import RETRY_SECONDS, Interpreter
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
    resource_version_of,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")

CALM_SECONDS: Final = 300.0
"""When to look again at what the member tells us of by itself; in case it does not."""

_REFUSALS: Final = (
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotServed,
    RequestEntityTooLarge,
)
"""What a member says about a manifest; all else is about the member, and passes.

An internal error is often about the manifest: its webhook is not there, its size is too much.
"""

_AS_US: Final = WriteOptions(field_manager=FIELD_MANAGER)
_ROUNDS: Final = 3
"""How often to decide anew, at once, when somebody writes between our look and our write."""


class Action(Enum):
    """The action taken for a manifest."""

    CREATED = "created"
    ADOPTED = "adopted"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    LEFT = "left as it is"
    WAITS = "waits"
    CONFLICTS = "conflicts"
    DRIFTED = "changed by somebody, and left so"


@dataclass(frozen=True, slots=True)
class Applied:
    """The action taken for a manifest, and the object on the member after it."""

    action: Action
    live: Object

    @property
    def is_in_force(self) -> bool:
        """Whether the member holds what the manifest asks for."""
        return self.action not in (Action.WAITS, Action.CONFLICTS, Action.DRIFTED)


BeforeTakeover = Callable[[Object], Awaitable[None]]
"""Told of an object that is about to be taken over, as it is."""

Plan: TypeAlias = Callable[[Object, Object], Awaitable[Update | None]]
"""Returns how to bring a member object to its manifest; None when there is nothing to do."""


async def apply(
    member: Client,
    path: ResourcePath,
    manifest: Object,
    cached: Object | None,
    plan: Plan,
    before_takeover: BeforeTakeover | None = None,
) -> Applied:
    """Bring one member object to its manifest, beginning with what was last seen of it."""
    # What was seen may be old, or not be there any more. The member knows, and refuses the write;
    # only then is it asked, and all is decided anew. So a stale cache costs a request, and never
    # somebody's change:
    #
    #     we saw       there is       the write is refused with     then
    #     nothing      an object      AlreadyExists                 decide whose it is
    #     version 6    version 7      Conflict                      decide on version 7
    #     version 6    nothing        NotFound                      create
    #     nothing      no namespace   NotFound                      wait for the namespace
    #
    # A create whose answer was lost is the first line: what is found then bears our own stamps, is
    # ours, says what we say, and nothing is written. In the same way two Works that place the same
    # object meet here: the first has made it, the second finds the first one's stamps on it, and
    # that is a conflict, said in its status, until the first one's Work goes.
    live = cached
    for _ in range(_ROUNDS - 1):
        try:
            return await _apply_once(member, path, manifest, live, plan, before_takeover)
        except (AlreadyExists, Conflict):
            live = await member.find(path)
        except NotFound:
            if live is None:
                raise  # not the object is missing, but the namespace it goes into
            live = await member.find(path)
    return await _apply_once(member, path, manifest, live, plan, before_takeover)


async def _apply_once(
    member: Client,
    path: ResourcePath,
    manifest: Object,
    live: Object | None,
    plan: Plan,
    before_takeover: BeforeTakeover | None,
) -> Applied:
    decision = decide(manifest, live)
    if live is None or decision is TakeoverDecision.CREATE:
        return Applied(Action.CREATED, await member.create(path.collection, manifest, _AS_US))
    planned, action = None, Action.UPDATED
    match decision:
        case TakeoverDecision.LEAVE:
            return Applied(Action.LEFT, live)
        case TakeoverDecision.WAIT:
            return Applied(Action.WAITS, live)
        case TakeoverDecision.CONFLICT:
            return Applied(Action.CONFLICTS, live)
        case TakeoverDecision.UPDATE:
            # Asked of the object that the update would be of: what a cache showed a moment ago
            # may have been the state before somebody's change.
            if keeps_drift(manifest, live):
                return Applied(Action.DRIFTED, live)
            planned = await plan(manifest, live)
        case TakeoverDecision.ADOPT:
            planned, action = await plan(manifest, live), Action.ADOPTED
        case TakeoverDecision.ADOPT_IF_SAME:
            planned, action = await plan(manifest, live), Action.ADOPTED
            if users_differences(manifest, live):
                return Applied(Action.CONFLICTS, live)
    if planned is None:
        return Applied(Action.UNCHANGED, live)
    if action is Action.ADOPTED and before_takeover is not None:
        await before_takeover(live)
    stored = await member.update(path, planned.body, _AS_US)
    if resource_version_of(stored) == resource_version_of(live):
        # The member takes what we said for what it has: written differently, meant the same.
        return Applied(Action.UNCHANGED, stored)
    return Applied(action, stored)


@dataclass(frozen=True, slots=True)
class _Settled:
    """Which generation of a Work was carried out, and what the object looked like then."""

    generation: int
    shape: int


class Applier:
    """Puts manifests on one member, and remembers which of them are as they should be."""

    def __init__(
        self,
        member: Client,
        informers: MemberInformers,
        reporter: WorkReporter,
        interpreter: Interpreter,
        clock: Clock,
    ) -> None:
        self._member = member
        self._informers = informers
        self._reporter = reporter
        self._clock = clock
        self._interpreter = interpreter
        self._pace = RepairPace(clock)
        # By Work and place in it. One key is touched by one worker at a time, for a Work is. It is
        # lost with the process, and nothing but speed with it: after a start everything is compared
        # once, and what is equal is not written. Drift that happened while nobody was there is
        # repaired then, but neither paced nor recorded as drift: we cannot know it from an order
        # that was not carried out yet.
        self._settled: dict[tuple[str, int], _Settled] = {}

    def forget(self, work_name: str) -> None:
        """Forget a Work that is gone."""
        for key in [each for each in self._settled if each[0] == work_name]:
            del self._settled[key]
            self._pace.forget(key)

    async def apply(self, work: Object, manifest: Object, ordinal: int) -> ManifestResult:
        """Bring the member to one manifest of a Work."""
        live: Object | None = None
        try:
            path = await self._informers.resource_path_of(manifest)
            resource = await self._informers.resource_of(manifest)
            why = why_not_ordered(work, manifest, is_namespaced=resource.namespaced)
            if why:
                # Not touched either way: what such a Work placed before stays, and is reported.
                problem = f"{subject_text(manifest)} is refused: {why}"
                return replace(await self.observe(work, manifest), problem=problem)
            live = await self._find_live(work, path, is_taken_over=is_proved_elsewhere(manifest))
            return await self._bring_to(work, manifest, (name_of(work), ordinal), path, live)
        except InterpretationFailed as failure:
            # Written without it, the object would lose what its member keeps.
            problem = f"{subject_text(manifest)} is not updated: {failure}"
            kept = live if live is not None and is_ours(manifest, live) else None
            return ManifestResult(manifest, live=kept, problem=problem, retry_seconds=RETRY_SECONDS)
        except _REFUSALS as refusal:
            if isinstance(refusal, NotServed):
                self._informers.forget_resources()
            problem = f"{subject_text(manifest)} was refused: {refusal.message}"
            # What was applied before is there still, and stays in the status: without an entry
            # nobody would know of it once the manifest is dropped.
            kept = live if live is not None and is_ours(manifest, live) else None
            return ManifestResult(manifest, live=kept, problem=problem, refusal=refusal)

    async def _plan(self, manifest: Object, live: Object) -> Update | None:
        return plan_update(manifest, live, await self._retained(manifest, live))

    async def _retained(self, manifest: Object, live: Object) -> Object | None:
        """Return the manifest with what the member keeps; None where our own rules say that."""
        if not self._interpreter.customizes(RETAIN, manifest):
            return None
        return await self._interpreter.retained(manifest, live)

    async def observe(self, work: Object, manifest: Object) -> ManifestResult:
        """Look at an object without touching it."""
        try:
            path = await self._informers.resource_path_of(manifest)
        except (NotServed, Malformed):
            return ManifestResult(manifest)
        live = await self._find_live(work, path)
        is_seen = live is not None and is_ours(manifest, live)
        return ManifestResult(manifest, live=live if is_seen else None)

    async def compare(self, work: Object, manifest: Object) -> ManifestResult:
        """Find out how an object differs from its manifest, without touching it."""
        try:
            path = await self._informers.resource_path_of(manifest)
            resource = await self._informers.resource_of(manifest)
        except (NotServed, Malformed) as error:
            self._informers.forget_resources()
            problem = f"{subject_text(manifest)} cannot be compared: {error}"
            return ManifestResult(manifest, problem=problem, retry_seconds=CALM_SECONDS)
        why = why_not_ordered(work, manifest, is_namespaced=resource.namespaced)
        if why:
            return ManifestResult(manifest, problem=f"{subject_text(manifest)} is refused: {why}")
        # Asked for: most of what is only compared is not ours, and so not followed.
        live = await self._member.find(path)
        generation, retained = None, None
        if live is not None:
            generation = generation_of(live)
            try:
                retained = await self._retained(manifest, live)
            except InterpretationFailed as failure:
                problem = f"{subject_text(manifest)} cannot be compared: {failure}"
                return ManifestResult(manifest, problem=problem, retry_seconds=RETRY_SECONDS)
        is_known = live is not None and is_ours(manifest, live)
        return ManifestResult(
            manifest,
            live=live if is_known else None,
            retry_seconds=CALM_SECONDS,
            blocker=path,
            differences=users_differences(manifest, live, retained),
            generation=generation,
        )

    async def _find_live(
        self, work: Object, path: ResourcePath, *, is_taken_over: bool = False
    ) -> Object | None:
        """Return the object as far as it is known; asked for only when it may well be there."""
        cached = self._informers.find(path)
        if cached is not None:
            return cached
        if is_taken_over:
            # A migration takes what is there: a create would be refused for each of thousands.
            return await self._member.find(path)
        if find_condition(find_at(work, "status", "conditions"), APPLIED) is None:
            # Never tried before: we go on as if nothing were there. If something is, the create
            # is refused with AlreadyExists, and only then is the member asked.
            return None
        await self._informers.wait_synced(path.resource)
        return self._informers.find(path) or await self._member.find(path)

    async def _bring_to(
        self,
        work: Object,
        manifest: Object,
        key: tuple[str, int],
        path: ResourcePath,
        live: Object | None,
    ) -> ManifestResult:
        generation = generation_of(work)
        if live is not None and is_ours(manifest, live) and keeps_drift(manifest, live):
            self._settled.pop(key, None)
            return self._drifted(manifest, live)
        settled = self._settled.get(key)
        if settled and live is not None and settled == _Settled(generation, shape_of(live)):
            if decide(manifest, live) is TakeoverDecision.LEAVE:
                return ManifestResult(manifest)
            return self._in_force(manifest, live)

        # Once a generation is carried out, whatever is different was done by somebody on the
        # member, or else the cache lags behind our own last write:
        #
        #     we PUT version 7           settled is the shape of 7
        #     a pod changes, we look     the cache says 6, which is not that shape: "drift"
        #     we PUT over 6              refused; asked, the member says 7: nothing to do
        #
        # It costs one request, and is not recorded, for nothing was put back.
        drift = ""
        if settled is not None and settled.generation == generation:
            if live is None:
                drift = "the whole object (deleted in the cluster)"
            elif is_ours(manifest, live) or decide(manifest, live) is TakeoverDecision.ADOPT:
                # The latter was taken from us by another owner who overwrites, as we do. Neither
                # will give in, so it is paced like any drift; both would write without end.
                update = await self._plan(manifest, live)
                drift = "" if update is None else drift_text(update, live)
        if drift:
            wait = self._pace.wait_seconds(key)
            if wait > 0:
                # Reported as it is now; whatever happens to it meanwhile brings us here earlier,
                # and is told to wait for the rest of that time.
                return ManifestResult(manifest, live=live, retry_seconds=wait)

        subject, cluster = subject_text(manifest), self._informers.cluster
        try:
            # Drift that is taken back from another owner was taken over, and noted, before.
            note = None if drift else self._noting(work, manifest)
            applied = await apply(self._member, path, manifest, live, self._plan, note)
        except NotFound:
            namespace = namespace_of(manifest)
            problem = (
                f"{subject} cannot be created: namespace {namespace}"
                f" does not exist in the cluster {cluster}"
            )
            blocker = ResourcePath(NAMESPACES, name=namespace)
            return ManifestResult(
                manifest, problem=problem, retry_seconds=CALM_SECONDS, blocker=blocker
            )
        if not applied.is_in_force:
            self._settled.pop(key, None)
            return self._not_in_force(manifest, applied, path)
        # No await from the answer of the member to here: the event of our own write, if it has not
        # come yet, finds the note of its version and wakes nobody.
        self._informers.note_written(path, applied.live)
        if keeps_drift(manifest, applied.live):
            # By a full comparison: what others added is there still, after our own write.
            return self._drifted(manifest, applied.live)
        self._settled[key] = _Settled(generation, shape_of(applied.live))
        if drift and applied.action in (Action.UPDATED, Action.CREATED):
            self._reporter.record_drift(work, manifest, drift)
        is_recreated = bool(drift) and live is None
        if applied.action is Action.LEFT:
            # In force, and not ours: the status lists what the member has of this Work.
            return ManifestResult(manifest)
        return self._in_force(manifest, applied.live, is_recreated=is_recreated)

    def _noting(self, work: Object, manifest: Object) -> BeforeTakeover:
        """Return what notes, on a Work, what runs under an object before it is taken over."""

        async def note(live: Object) -> None:
            if is_proved_elsewhere(manifest):
                return
            at = format_time(self._clock.now())
            running = await read_running(self._member, live, at)
            await self._reporter.note_taken_over(work, encode(running))

        return note

    def _not_in_force(
        self, manifest: Object, applied: Applied, path: ResourcePath
    ) -> ManifestResult:
        """Return the result of a manifest whose place is taken; a change there wakes us."""
        if applied.action is Action.DRIFTED:
            return self._drifted(manifest, applied.live)
        cluster, differences = self._informers.cluster, None
        if applied.action is Action.WAITS:
            problem = f"{subject_text(manifest)} is being deleted in the cluster {cluster}"
        else:
            update = plan_update(manifest, applied.live)
            problem = conflict_text(manifest, applied.live, cluster, update)
            if TAKE_OVER in annotations_of(manifest):
                differences = users_differences(manifest, applied.live)
        return ManifestResult(
            manifest,
            problem=problem,
            retry_seconds=CALM_SECONDS,
            blocker=path,
            differences=differences,
            generation=generation_of(applied.live),
        )

    def _drifted(self, manifest: Object, live: Object) -> ManifestResult:
        """Return the result of a manifest whose object is left as somebody changed it."""
        drifts = users_differences(manifest, live)
        paths = ", ".join(str(each["path"]) for each in drifts[:MOST_FIELDS])
        problem = (
            f"{subject_text(manifest)} was changed in the cluster {self._informers.cluster} and is"
            f" left so, as whenToApply is IfNotDrifted: {paths}"
        )
        return ManifestResult(
            manifest,
            live=live,
            problem=problem,
            retry_seconds=CALM_SECONDS,
            drifts=drifts,
            generation=generation_of(live),
        )

    def _in_force(
        self, manifest: Object, live: Object, *, is_recreated: bool = False
    ) -> ManifestResult:
        """Return the result of a manifest that the member has, with what others added to it."""
        is_full = annotations_of(manifest).get(COMPARISON) == FULL_COMPARISON
        return ManifestResult(
            manifest,
            live=live,
            is_recreated=is_recreated,
            drifts=users_differences(manifest, live) if is_full else (),
            generation=generation_of(live),
        )


_encode: Final = msgspec.json.Encoder(order="sorted").encode


def shape_of(live: Object) -> int:
    """Return a number that changes with everything a manifest can say of an object."""
    metadata = metadata_of(live)
    content = {key: value for key, value in live.items() if key not in ("metadata", "status")}
    stamped = {key: metadata.get(key) for key in ("uid", "labels", "annotations")}
    return hash(_encode([content, stamped]))


LONGEST_REPAIR_SECONDS: Final = 300.0
REPAIRED_AFTER_SECONDS: Final = 600.0
"""An object that stayed as it should be for this long is repaired at once again."""

BURST: Final = 20
PER_SECOND: Final = 5.0
"""Repairs on one member: a few at once, then so many a second."""


@dataclass(frozen=True, slots=True)
class _Repairs:
    """How often one object was repaired in a row, and when last."""

    count: int
    at: float


class RepairPace:
    """Says how long a repair has to wait, for each object and for the member as a whole."""

    # Somebody on the member who changes an object back each time, an operator or an old pipeline,
    # would otherwise have the two of us write it forever, as fast as both can:
    #
    #     we write ──> their watch fires ──> they write ──> our watch fires ──> we write …
    #
    # So drift is repaired at once the first time, then ever more slowly: after 1 s, 2 s, 4 s, up
    # to five minutes. The bound for the whole member is for the one who changes everything once.

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Asked by many workers; nothing is awaited between reading and taking, so no two of them
        # take the same token. Repairs of one object count in a row until it was calm for long.
        self._repairs: dict[Hashable, _Repairs] = {}
        self._tokens = float(BURST)
        self._filled_at = clock.monotonic()

    def wait_seconds(self, subject: Hashable) -> float:
        """Return how long to wait before repairing; a zero is taken, and counts as a repair."""
        now = self._clock.monotonic()
        last = self._repairs.get(subject)
        if last is not None and now - last.at >= REPAIRED_AFTER_SECONDS:
            last = None
        if last is not None:
            due = last.at + min(2.0 ** (last.count - 1), LONGEST_REPAIR_SECONDS)
            if due > now:
                return due - now
        self._tokens = min(self._tokens + (now - self._filled_at) * PER_SECOND, float(BURST))
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / PER_SECOND
        self._tokens -= 1
        self._repairs[subject] = _Repairs(1 if last is None else last.count + 1, now)
        return 0.0

    def forget(self, subject: Hashable) -> None:
        """Forget an object that is no longer ours to repair."""
        self._repairs.pop(subject, None)
