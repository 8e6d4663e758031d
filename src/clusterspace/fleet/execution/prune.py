"""Delete what a Work no longer asks for, or hand it over: recorded, live-read, by UID.

    look at the object, live ──ours?──> note its UID on the Work ──> delete that UID ──> let go

The look is never from a cache: an object that was handed to somebody else a moment ago has the same
UID as before. The note comes before the delete, so that whoever goes on after a crash knows which
object was meant, and never takes a new one for it. And a budget says how many objects may go before
a person has to look.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isinf
from typing import Any, Final

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    CLUSTERS,
    DELETIONS_PAUSED,
    DELETIONS_RESUMED,
    TOO_MANY_DELETIONS,
    WORK_FINALIZER,
    WORKS,
    conditions_of,
    keeps_on_leave,
)
from clusterspace.apis.exclusive import exclusiveness_of_work
from clusterspace.apis.works import (
    DELETION_ASKED,
    identifier_of,
    manifests_of,
    preserves_resources,
)
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import (
    Client,
    ClusterClient,
    DeleteOptions,
    Propagation,
    WriteOptions,
)
from clusterspace.controllers.commit import commit, release
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Cache
from clusterspace.errors import (
    Conflict,
    Malformed,
    MalformedObject,
    MalformedTimestamp,
    NotFound,
    NotServed,
)
from clusterspace.fleet.execution.contents import (
    NAMESPACES,
    WITH_CONTENTS,
    Contents,
    KeptNamespaces,
    read_contents,
    stamped_by,
)
from clusterspace.fleet.execution.member_informers import MemberInformers
from clusterspace.fleet.execution.takeover import (
    FIELD_MANAGER,
    KEPT_COPY_OF,
    is_ours,
    template_uid_of,
    without_stamps,
)
from clusterspace.fleet.execution.withdrawn import WithdrawnObjects, withdrawn_of
from clusterspace.kube.conditions import FALSE, TRUE, Condition, is_true, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    finalizers_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.times import parse_time

# -- the budget of deletions, and the pause ----------------------------------------------------

# Whatever goes wrong upstream, a policy that matches nothing any more, a hub restored from an old
# backup, a bug of ours: it ends here, as too many Works that go at once. What is about to be
# deleted counts as much as what was, so that a great wave is stopped before its first object.
#
# It counts what nobody asked for. A person who deletes a template asks for its copies to go, and
# whoever withdraws them has looked, live, that it is gone, and says so on the Work. What
# follows from a policy, a label, a scheduler's change of mind or a list that was empty is counted.
# What was put there within these ten minutes counts for seconds: somebody tries things out. A
# wave of such things is still stopped, and nothing that anybody has come to rely on goes uncounted.
#
# The pause is a condition of the Cluster, so it outlives us and people see it. It ends when a
# person says so, by `clusterspace resume`.


_log = structlog.get_logger(__name__)

FREE_DELETIONS: Final = 10
LARGEST_SHARE: Final = 0.2
WINDOW_SECONDS: Final = 600.0
NEW_SECONDS: Final = 15.0
"""For how long the deletion of an object counts that was there for less than the window."""
_CLOCKS_APART: Final = 60.0
"""How far the clocks of hub and member may differ for an object to be taken for new."""

OFF: Final = "off"
_LIMITS: Final = re.compile(r"(\d{1,9})(?:/(\d{1,3})%)?")


@dataclass(frozen=True, slots=True)
class DeletionLimits:
    """How many objects may go from a member in ten minutes that nobody asked to be deleted.

    More than so many, and more than such a share of what is there, need a person's word.
    """

    objects: float = FREE_DELETIONS
    share: float = LARGEST_SHARE

    def __str__(self) -> str:
        return OFF if isinf(self.objects) else f"{self.objects:g}/{self.share * 100:g}%"


def read_limits(text: str) -> DeletionLimits:
    """Read `10/20%`, `10` or `off`; Malformed when it is none of these."""
    if text == OFF:
        return DeletionLimits(inf)
    found = _LIMITS.fullmatch(text)
    if found is None or int(found[2] or 0) > 100:
        where = "--deletion-budget"
        why = f"{text!r} is no budget: OBJECTS/PERCENT% such as 10/20%, OBJECTS alone, or off"
        raise MalformedObject(why, place=where)
    return DeletionLimits(int(found[1]), int(found[2]) / 100 if found[2] else 0.0)


PAUSED: Final = DELETIONS_PAUSED

APPROVED_UNTIL: Final = "clusterspace.io/deletions-approved-until"
"""Annotation of a Cluster: Works that were deleted by then may go, a person said so."""


@dataclass(frozen=True, slots=True)
class DeletionCounts:
    """How many objects go from one member, and how many stay."""

    staying: int
    pending: int
    """Objects that are to be deleted and are still there."""
    recent: int
    """Objects that were deleted within the window."""
    limits: DeletionLimits = DeletionLimits()

    @property
    def is_too_much(self) -> bool:
        """Whether deleting all of this needs a person's word."""
        going = self.pending + self.recent
        total = self.staying + going
        return going > self.limits.objects and going > self.limits.share * total

    @property
    def message(self) -> str:
        """The message of the pause."""
        going = self.pending + self.recent
        return (
            f"{going} of {self.staying + going} objects were to be deleted within"
            f" {WINDOW_SECONDS / 60:g} minutes though nobody deleted their templates,"
            f" {self.recent} of them are (the budget is {self.limits}):"
            " nothing more of the kind is deleted until `clusterspace resume` says so"
        )


class DeletionWindow:
    """The deletions of the last minutes on one member."""

    def __init__(self, clock: Clock, seconds: float = WINDOW_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._times: deque[float] = deque()

    def note(self, objects: int = 1) -> None:
        """Count deletions."""
        self._times.extend([self._clock.monotonic()] * objects)

    def count(self) -> int:
        """Return how many there were within the window."""
        oldest = self._clock.monotonic() - self._seconds
        while self._times and self._times[0] <= oldest:
            self._times.popleft()
        return len(self._times)

    def clear(self) -> None:
        """Begin anew: a person has looked."""
        self._times.clear()


def paused_condition(counts: DeletionCounts) -> Condition:
    """Return the condition of a Cluster on which deletions pause."""
    return Condition(PAUSED, TRUE, TOO_MANY_DELETIONS, counts.message)


def resumed_condition() -> Condition:
    """Return the condition of a Cluster on which deletions go on."""
    return Condition(PAUSED, FALSE, DELETIONS_RESUMED, "Deletions go on: a person said so")


def is_paused(cluster: Object) -> bool:
    """Whether deletions pause on a member, as far as its Cluster tells."""
    return is_true(conditions_of(cluster), PAUSED)


def approved_until(cluster: Object) -> float:
    """Return until when a Work must have been deleted for a person to have approved of it."""
    approved = annotations_of(cluster).get(APPROVED_UNTIL)
    return parse_time(approved) if approved else 0.0


WAVE_SETTLE_SECONDS: Final = 0.4
"""How long nothing more must have been heard of before a deletion that nobody asked for."""

LONGEST_WAVE_SECONDS: Final = 10.0


class DeletionWave:
    """Works that go together, heard of one by one; whoever is to delete the first waits for all."""

    # A wave has one end for all who wait in it. Were it counted from when each began to wait, the
    # first would give up and delete while its fellows are still being heard of.

    def __init__(self, clock: Clock, settle_seconds: float) -> None:
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._began = self._last_heard = float("-inf")

    def heard(self) -> None:
        """Take in that one more Work goes."""
        now = self._clock.monotonic()
        if now > self._last_heard + self._settle_seconds:
            self._began = now
        self._last_heard = now

    async def wait(self, is_enough: Callable[[], bool]) -> None:
        """Wait until nothing more is heard of, or it is enough already; not for ever."""
        # Silence counts from when we ask: on a busy hub it took us long to come here, and the
        # fellows of our Work come as slowly. Nor is it silence when we were held up ourselves.
        silent_since = self._clock.monotonic()
        while not is_enough():
            now = self._clock.monotonic()
            due = max(silent_since, self._last_heard) + self._settle_seconds
            if now >= min(due, self._began + LONGEST_WAVE_SECONDS):
                return
            await self._clock.sleep(due - now)
            if self._clock.monotonic() > due + self._settle_seconds / 4:
                silent_since = self._clock.monotonic()


class DeletionBudget:
    """The budget of one member: knows its Works, and says whether an object may be deleted."""

    # Three tasks meet here. The informer of Works says which of them go (`note_work`), the moment
    # it hears; the informer of Clusters says when a pause began or ended (`cluster_changed`); and
    # many workers ask (`permits`) and count (`note_deletion`). None of them awaits while it reads
    # or writes the counts, so no lock is needed.
    #
    # A worker that was permitted deletes the objects of its Work without asking again, so what is
    # under way in other workers may exceed the budget by as many Works as there are workers. Great
    # waves, which the budget is for, are seen whole before their first: a Work that goes is counted
    # as pending as soon as its deletion is heard of, and not when its turn in the queue comes; and
    # as long as more of them are heard of, the first waits (DeletionWave). Works of a policy that
    # moved away are deleted one by one, and a busy hub takes its time over them.
    #
    # The window is lost with the process. A restart therefore forgives what was deleted in the last
    # ten minutes, but not what is pending, and not a pause, which is on the Cluster.

    def __init__(
        self,
        hub: Client,
        find_cluster: Callable[[], Object | None],
        events: EventRecorder,
        clock: Clock,
        limits: DeletionLimits | None = None,
        *,
        settle_seconds: float = 0.0,
    ) -> None:
        self._limits = limits or DeletionLimits()
        self._wave = DeletionWave(clock, 0.0 if isinf(self._limits.objects) else settle_seconds)
        self._hub = hub
        self._find_cluster = find_cluster
        self._events = events
        self._clock = clock
        self._window = DeletionWindow(clock)
        self._window_of_new = DeletionWindow(clock, NEW_SECONDS)
        self._goes_since: dict[str, float | None] = {}
        self._is_pausing = False
        """We have written the pause, and the cache of Clusters does not show it yet."""

    def note_work(self, name: str, goes_since: float | None, *, is_asked: bool = False) -> None:
        """Remember a Work, and since when its objects are to be deleted, if they are.

        One whose end was asked for is neither here nor there: it does not count.
        """
        if is_asked and goes_since is not None:
            self._goes_since.pop(name, None)
        else:
            if goes_since is not None and self._goes_since.get(name) is None:
                self._wave.heard()
            self._goes_since[name] = goes_since

    def forget_work(self, name: str) -> None:
        """Forget a Work that is gone."""
        self._goes_since.pop(name, None)

    def note_deletion(self, goes_since: float, objects: int = 1, *, is_new: bool = False) -> None:
        """Count a deletion that was carried out, unless a person had approved of it."""
        cluster = self._find_cluster()
        # Deletions that a person approved of do not count towards the next pause: `resume` after a
        # great wave would otherwise be followed by a pause at the first object of it. Those of a
        # cluster that leaves neither: it may be back within the ten minutes.
        if cluster is not None and is_being_deleted(cluster):
            return
        if goes_since > (0.0 if cluster is None else approved_until(cluster)):
            (self._window_of_new if is_new else self._window).note(objects)

    def cluster_changed(self, before: Object | None, after: Object) -> bool:
        """Take in a change of the Cluster; return whether deletions may go on since."""
        if is_paused(after):
            self._is_pausing = False  # the cache shows it, and shows its end when that comes
        was_paused = before is not None and is_paused(before)
        is_resumed = was_paused and not is_paused(after)
        if is_resumed:
            self._window.clear()
            self._window_of_new.clear()
        return is_resumed

    async def wait_for_wave(self) -> None:
        """Wait until all that goes together was heard of, or it needs a person's word anyway."""
        await self._wave.wait(lambda: self.counts.is_too_much)

    @property
    def counts(self) -> DeletionCounts:
        """How many go and stay now, whatever a person approved of."""
        return self._count()

    def _count(self, approved: float = 0.0, beside: int = 0) -> DeletionCounts:
        going = [each for each in self._goes_since.values() if each is not None]
        return DeletionCounts(
            staying=len(self._goes_since) - len(going),
            pending=sum(each > approved for each in going) + beside,
            recent=self._window.count() + self._window_of_new.count(),
            limits=self._limits,
        )

    async def permits(self, goes_since: float, *, beside: int = 0) -> bool:
        """Whether an object may be deleted now that was to go since this time; pause if not.

        `beside` says how many more go with it, as with a namespace all that is in it.
        """
        cluster = self._find_cluster()
        if cluster is None:
            return False  # not seen yet after a start, or gone: nobody can have approved of it
        approved = approved_until(cluster)
        if is_being_deleted(cluster) or goes_since <= approved:
            # Leaving takes all that was placed along, or hands it over: that choice was made.
            return True
        if self._is_pausing or is_paused(cluster):
            return False
        counts = self._count(approved, beside)
        if not counts.is_too_much:
            return True
        # Several workers may come here before the first has written the pause. The others are
        # refused as conflicts, since all commit against the same version; their Works are tried
        # again, and find the pause. It is written before anything is refused because of it: a
        # crash in between leaves no pause, and whoever comes next counts the same and pauses.
        condition = paused_condition(counts)
        conditions = set_condition(conditions_of(cluster), condition, self._clock.now()).conditions
        paused = with_value(cluster, conditions, "status", "conditions")
        await commit(self._hub, resource_path_of(CLUSTERS, cluster), cluster, paused)
        self._is_pausing = True
        self._events.record(cluster, PAUSED, condition.message, is_warning=True)
        _log.warning("deletions paused", cluster=name_of(cluster), reason=condition.message)
        return False


# -- what goes, and what is handed over --------------------------------------------------------


DECIDED: Final = "clusterspace.io/deleting"
"""Annotation of a Work: the UIDs of the objects that were looked at and are to be deleted."""


class _Decision(msgspec.Struct, frozen=True):
    """Which objects are to go, by place, since the Work was deleted at this moment, if it was."""

    moment: str
    uids: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Doomed:
    """An object that was just looked at, is ours, and is to go."""

    path: ResourcePath
    uid: str
    created: float = 0.0
    """Since when it is there, by the member's clock; since ever, if it does not say."""

    def is_new_in(self, work: Object) -> bool:
        """Whether it came with a Work that was deleted soon after, and was not there before."""
        ordered = find_at(work, "metadata", "creationTimestamp")
        if not ordered or not is_being_deleted(work):
            return False
        since = parse_time(ordered)
        lived = deleted_at(work) - since
        return lived < WINDOW_SECONDS and self.created >= since - _CLOCKS_APART


async def find_doomed(
    member: Client, path: ResourcePath, manifest: Object, work: Object
) -> Doomed | None:
    """Look at an object, live, and return it if it is ours to delete."""
    # Three who are not deleted: one that is somebody else's by its stamps, whatever the Work says;
    # one that goes already; and, once a UID was recorded for this end of the Work, any other one.
    # The recorded one is gone then, and this is somebody's new object, perhaps from a manifest that
    # he had copied with our stamps on it.
    live = await member.find(path)
    if live is None or is_being_deleted(live) or not is_ours(manifest, live):
        return None
    recorded = _decision(work).uids.get(str(path)) if is_being_deleted(work) else None
    if recorded is not None and recorded != uid_of(live):
        return None
    created = find_at(live, "metadata", "creationTimestamp")
    return Doomed(path, uid_of(live), _read_moment(created))


async def record(hub: Client, work: Object, doomed: list[Doomed]) -> Object:
    """Note on the Work which objects are to go; return the Work as it is stored now."""
    decision = _decision(work)
    decided = _Decision(_moment(work), {**decision.uids, **{str(e.path): e.uid for e in doomed}})
    if decided == decision:
        return work
    text = msgspec.json.encode(decided).decode()
    noted = with_metadata(work, annotations={**annotations_of(work), DECIDED: text})
    return await commit(hub, resource_path_of(WORKS, work), work, noted)


def dropped_manifests(work: Object) -> list[Object]:
    """Return the objects a Work once had applied and no longer asks for, as bare manifests."""
    desired = [_named(identifier_of(each, 0)) for each in manifests_of(work)]
    statuses: list[Object] = find_at(work, "status", "manifestStatuses") or []
    dropped: list[Object] = []
    for entry in statuses:
        identifier: Object = entry.get("identifier") or {}
        if _named(identifier) in desired:
            continue
        group, version = identifier.get("group"), identifier.get("version")
        metadata = {
            "name": identifier.get("name"),
            "namespace": identifier.get("namespace"),
            "labels": dict(labels_of(work)),
        }
        dropped.append(
            {
                "apiVersion": f"{group}/{version}" if group else version,
                "kind": identifier.get("kind"),
                "metadata": {key: value for key, value in metadata.items() if value},
            }
        )
    return dropped


def _named(identifier: Mapping[str, Any]) -> Object:
    """Return group, kind, namespace and name of an identifier, without its ordinal and version."""
    return {key: identifier.get(key) for key in ("group", "kind", "namespace", "name")}


def _decision(work: Object) -> _Decision:
    """Return the decision recorded for this end of the Work, not for a manifest it once dropped."""
    # A Work may drop a manifest, list it again, and be deleted at last. The UID recorded the first
    # time is of an object that is long gone, and must not save the present one. So a record counts
    # for the deletion it was made in: the moment is that of the Work's deletion, and empty before.
    text = annotations_of(work).get(DECIDED)
    if not text:
        return _Decision(_moment(work))
    try:
        recorded = msgspec.json.decode(text, type=_Decision)
    except msgspec.DecodeError as error:
        where = f"metadata.annotations[{DECIDED}]"
        raise MalformedObject(f"{where} does not hold UIDs by place", place=where) from error
    return recorded if recorded.moment == _moment(work) else _Decision(_moment(work))


def _moment(work: Object) -> str:
    return str(metadata_of(work).get("deletionTimestamp") or "")


class Pruner:
    """Carries out the end of Works, and of manifests that a Work no longer lists."""

    def __init__(
        self,
        hub: Client,
        member: ClusterClient,
        informers: MemberInformers,
        budget: DeletionBudget,
        notes: WithdrawnObjects,
        works: Cache,
        kept: KeptNamespaces,
    ) -> None:
        self._hub = hub
        self._works = works
        self._kept = kept
        self._member = member
        self._informers = informers
        self._budget = budget
        self._notes = notes

    async def finalize(self, work: Object) -> bool:
        """Let a Work go that was deleted on the hub; return whether it is done with."""
        # Asked for live: nothing is deleted on the word of a cache. The cache may show a Work on
        # its way out whose successor, under the same name, has placed the same objects by now; a
        # hub restored from a backup may show what was long decided otherwise.
        current = await self._read_live(work)
        if current is None or not is_being_deleted(current):
            return True
        if WORK_FINALIZER not in finalizers_of(current):
            return True
        manifests = (*manifests_of(current), *dropped_manifests(current))
        # The Works of a cluster that leaves and is to keep what it has may not say so yet.
        cluster = await self._hub.find(ResourcePath(CLUSTERS, name=self._informers.cluster))
        is_leaving = cluster is not None and is_being_deleted(cluster)
        if preserves_resources(current) or (is_leaving and keeps_on_leave(cluster or {})):
            await self._hand_over(manifests, may_return=is_leaving)
        else:
            noted = await self._delete(current, manifests)
            if noted is None:
                return False
            current = noted
        # Last of all: until then whoever comes next finds the Work and can finish this. It goes at
        # the version that was read above, so that a Work that was changed meanwhile is looked at
        # again before it goes.
        await release(self._hub, resource_path_of(WORKS, work), current, WORK_FINALIZER)
        _log.info("work withdrawn", cluster=self._informers.cluster, work=name_of(work))
        return True

    async def prune(self, work: Object) -> bool:
        """Delete what a living Work no longer lists; return whether all of it could go."""
        if not dropped_manifests(work):
            return True
        # What is listed again by now, in a newer state of the Work, is not dropped any more.
        current = await self._read_live(work)
        if current is None:
            return True
        return await self._delete(current, dropped_manifests(current)) is not None

    async def _read_live(self, work: Object) -> Object | None:
        """Return the Work as it is now; None when it is gone, or another took its place."""
        current = await self._hub.find(resource_path_of(WORKS, work))
        return current if current is not None and uid_of(current) == uid_of(work) else None

    async def _hand_over(self, manifests: Sequence[Object], *, may_return: bool = False) -> None:
        """Take our stamps off objects that stay.

        Those of a cluster that leaves say what they are copies of, in case it joins again.
        """
        # A crash in between leaves some with and some without. Whoever comes next finds the Work
        # still there, and goes over all of them again: those without stamps are not ours any more.
        for manifest in manifests:
            path = await self._find_path(manifest)
            live = None if path is None else await self._member.find(path)
            if path is not None and live is not None and is_ours(manifest, live):
                options = WriteOptions(field_manager=FIELD_MANAGER)
                bare, template_uid = without_stamps(live), template_uid_of(manifest)
                if may_return and template_uid:
                    kept = {**annotations_of(bare), KEPT_COPY_OF: template_uid}
                    bare = with_metadata(bare, annotations=kept)
                await self._member.update(path, bare, options)

    async def _delete(self, work: Object, manifests: Sequence[Object]) -> Object | None:
        """Delete objects of ours; return the Work as it is now, or None when that has to wait."""
        # All are looked at before the first is deleted: the record on the Work is one write, and
        # the budget is asked once for the whole Work. What a look could not see, because the member
        # did not answer, raises here, and nothing is deleted at all: not seeing is no reason.
        #
        #     killed after     left behind                 whoever comes next
        #     the looks        nothing                     looks again
        #     the record       the objects, their UIDs     deletes those UIDs, or finds them gone
        #     a delete         some objects fewer          finds another object there, or none, and
        #                                                  goes on with the rest
        #     the finalizer    nothing                     finds no Work
        #
        # The note on the member comes before the looks: whatever is put there after we looked, by
        # a write that was long under way, appears under a note, and is removed by it.
        if not was_asked_for(work):
            await self._budget.wait_for_wave()
        found = [(await self._find_path(each), each) for each in manifests]
        places = [(path, manifest) for path, manifest in found if path is not None]
        await self._notes.note(withdrawn_of(work, [path for path, _ in places]))
        looks = [await find_doomed(self._member, *place, work) for place in places]
        doomed: list[Doomed] = []
        beside = 0
        for look, (path, manifest) in zip(looks, places, strict=True):
            if look is None:
                continue
            if path.resource == NAMESPACES:
                contents = await self._read_contents(work, path.name)
                # What is in it counts as foreign, too, when it could not be seen.
                if contents.reasons and not await self._may_go_with_contents(work, manifest):
                    # Said first: after a crash in between it is said again, and then handed over.
                    await self._kept.note(path.name, contents)
                    await self._hand_over([manifest])
                    continue
                beside += contents.count
            doomed.append(look)
        if not doomed:
            await self._make_sure_of_stop(work, places)
            return work
        goes_since, is_asked = deleted_at(work), was_asked_for(work)
        if not is_asked and not await self._budget.permits(goes_since, beside=beside):
            return None
        # What remains is a moment between the look and the delete in which somebody on the member
        # may hand one of these objects to another owner: same UID, other stamps. It is a request
        # or two long. The version of the look is no precondition, because the status of a running
        # workload changes its version several times a second, and it would never go.
        noted = await record(self._hub, work, doomed)
        # Asked again: more may have been heard of while the record was written. The record stays,
        # and says which objects are meant when a person lets them go.
        if not is_asked and not await self._budget.permits(goes_since, beside=beside):
            return None
        for each in doomed:
            # In the foreground an object is there for as long as anything that it runs.
            is_exclusive = bool(exclusiveness_of_work(work))
            how = Propagation.FOREGROUND if is_exclusive else Propagation.BACKGROUND
            options = DeleteOptions(each.uid, propagation=how)
            # By UID: when another object is there by now the member answers Conflict, and all
            # begins anew with a look at that one. One that is gone is what we wanted.
            with suppress(NotFound):
                await self._member.delete(each.path, options)
            if not is_asked:
                self._budget.note_deletion(goes_since, is_new=each.is_new_in(work))
        if beside and not is_asked:
            self._budget.note_deletion(goes_since, beside)
        await self._make_sure_of_stop(noted, places)
        return noted

    async def _make_sure_of_stop(
        self, work: Object, places: Sequence[tuple[ResourcePath, Object]]
    ) -> None:
        """Conflict while an exclusive copy is still there: its Work goes when it has stopped.

        That the Work is gone is what another cluster waits for before it starts a copy.
        """
        if not exclusiveness_of_work(work):
            return
        for path, manifest in places:
            live = await self._member.find(path)
            if live is not None and is_ours(manifest, live):
                raise Conflict(f"{path} has not stopped yet")

    async def _read_contents(self, work: Object, namespace: str) -> Contents:
        """Look at what a namespace holds; Conflict while other Works have something in it.

        Those go first, each by its own rules: one of them may have to keep what it placed.
        """
        own, work_of = name_of(work), stamped_by(namespace_of(work))
        # As they are before the look: what is listed may be withdrawn while the rest is, and an
        # object of ours without a Work, which is kept, must not be one whose Work has just gone.
        known = frozenset(self._works)
        contents = await read_contents(
            self._member,
            namespace,
            lambda each: key_of(namespace_of(work), work_of(each)) in known,
        )
        waits_for = sorted({work_of(each.metadata) for each in contents.ours} - {own})
        if waits_for:
            why = f"namespace {namespace} goes after what {', '.join(waits_for[:3])} placed in it"
            raise Conflict(why)
        if self._kept.waits_for_collector(namespace, contents):
            left = ", ".join(map(str, contents.leaving[:3]))
            raise Conflict(f"namespace {namespace} goes after what has no owner any more: {left}")
        return contents.uncollected

    async def _may_go_with_contents(self, work: Object, manifest: Object) -> bool:
        """Whether a person said that a namespace goes with all that is in it."""
        if any(annotations_of(each).get(WITH_CONTENTS) == "true" for each in (manifest, work)):
            return True
        cluster = await self._hub.find(ResourcePath(CLUSTERS, name=self._informers.cluster))
        return cluster is not None and annotations_of(cluster).get(WITH_CONTENTS) == "true"

    async def _find_path(self, manifest: Object) -> ResourcePath | None:
        """Return where a manifest is; None when the member knows no such kind, or it names nothing.

        Then there is nothing to delete, and if the member was wrong about that, it keeps it.
        """
        try:
            return await self._informers.resource_path_of(manifest)
        except (NotServed, Malformed) as error:
            self._informers.forget_resources()
            _log.warning("nothing withdrawn", cluster=self._informers.cluster, reason=str(error))
            return None


def was_asked_for(work: Object) -> bool:
    """Whether a Work goes because somebody deleted its template: such a deletion is not counted."""
    return is_being_deleted(work) and annotations_of(work).get(DELETION_ASKED) == "true"


def _read_moment(text: Any) -> float:
    """Return a time that a member told; long ago, when it cannot be read."""
    try:
        return parse_time(text) if isinstance(text, str) else 0.0
    except MalformedTimestamp:
        return 0.0


def deleted_at(work: Object) -> float:
    """Return when somebody asked for a Work to go; later than ever when nobody did."""
    moment = _moment(work)
    return parse_time(moment) if moment else float("inf")
