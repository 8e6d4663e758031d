"""The Store on etcd: writes are compare-and-set on one key, reads come from an index in memory.

One watch of the prefix feeds the index, and the index feeds everybody else: lists, watches, caches.

    put ──> txn at etcd, committed by its quorum at 46 ──┐
                                                         ├──> answered
    watch ──> event 46 ──> index shows 46 ──> watchers ──┘

Every hub on one etcd has such an index; they differ only in how far they have come. `sync` asks
the quorum for its revision and returns when the index has come that far: what is read after it
shows everything that any hub acknowledged before it.
"""

import asyncio
import heapq
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor, keep_all, report
from clusterspace.apiserver.store.etcd import messages, prefix
from clusterspace.apiserver.store.etcd.client import (
    CALL_SECONDS,
    EtcdClient,
    EtcdSettings,
    WatchStream,
)
from clusterspace.apiserver.store.etcd.messages import Change, TxnAnswer, WatchAnswer
from clusterspace.apiserver.store.etcd.prefix import KeyNames
from clusterspace.apiserver.store.index import (
    Delete,
    Index,
    Put,
    Write,
    answer_to,
    checked,
    decide,
)
from clusterspace.apiserver.store.interface import (
    ABSENT,
    Event,
    EventType,
    Guard,
    KeyValue,
    Revision,
)
from clusterspace.apiserver.store.memory import IndexedStore
from clusterspace.apiserver.store.watchers import MAXIMUM_WAITING_EVENTS
from clusterspace.errors import (
    Compacted,
    FutureRevision,
    GuardChanged,
    MalformedObject,
    OutcomeUnknown,
    RevisionMismatch,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from clusterspace.telemetry import metrics

_log = structlog.get_logger(__name__)

_ASK_PROGRESS_AFTER: Final = 0.01
_ASK_PROGRESS_EVERY: Final = 0.1
"""As Kubernetes does it, while somebody waits; most events need no asking."""

_CREATE_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 0.2

_PROBE_SECONDS: Final = 2.0
_PULSE_SECONDS: Final = 0.25
_MOST_UNANSWERED: Final = 4
_MOST_UNANSWERED_BY_KINE: Final = 16
_MOST_WHILE_CATCHING_UP: Final = 40
"""A watch that leaves so many progress requests unanswered, a pulse apart, is opened anew on
another member. They are counted, and not the time: a hub that was frozen has not asked meanwhile.
kine looks at its tables once a second, and answers then. A watch from long ago is answered when
etcd has read all that happened since, whoever's it is: opened anew, it would begin that again."""

_TROUBLE_SECONDS: Final = 1.5
"""How long a write may go without an answer before the store counts as read-only."""

_WATCH_PAUSE: Final = 0.05, 1.0

VERIFY_SECONDS: Final = 300.0
"""How often what is in memory is compared with etcd, as Kubernetes compares its watch cache."""


@dataclass(order=True, slots=True)
class _Waiter:
    revision: int
    number: int
    done: asyncio.Future[None] = field(compare=False)


class EtcdStore(IndexedStore):
    """A Store on an etcd cluster, shared by any number of processes. Make one with `open`."""

    def __init__(
        self,
        client: EtcdClient,
        names: KeyNames,
        index: Index,
        *,
        clock: Clock,
        maximum_waiting_events: int,
    ) -> None:
        super().__init__(index, maximum_waiting_events=maximum_waiting_events)
        self._client = client
        self._names = names
        self._clock = clock
        self._waiters: list[_Waiter] = []
        self._waiter_count = 0
        self._wants_progress = asyncio.Event()
        self._progress_timer: asyncio.TimerHandle | None = None
        self._last_heard = clock.monotonic()
        self._own: dict[int, Write] = {}
        """What was written here and is not in the index yet, by revision."""
        self._writes = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._revision_request = messages.range_request(names.marker)
        self._requests_on_their_way = 0
        """How many requests for the revision are on their way."""
        self._sync_queued: asyncio.Future[Revision] | None = None
        self._wants_sync = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._trouble = ""
        """Why the quorum does not answer, since it last did."""
        self._is_full = False
        self._stream: WatchStream | None = None
        self._has_gone_back = False
        self._fence = 0
        """The revision of our fence, in etcd: creates that name an older one never succeed."""
        self._fencing = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        settings: EtcdSettings,
        *,
        root: str = "/registry",
        maximum_waiting_events: int = MAXIMUM_WAITING_EVENTS,
        clock: Clock | None = None,
        ahead: int | None = None,
    ) -> "EtcdStore":
        """Connect, read everything into memory, and follow it from there on.

        Keys begin with `root`, in whose place etcd has the prefix of the settings. `ahead` is for
        filling an empty prefix from elsewhere: revisions are that much higher than etcd's, and
        nobody else opens it before `finish_filling`.
        Raises `StoreUnavailable` (nobody answers), `StoreUnreadable` (too old, not let in, or the
        prefix is somebody else's).
        """
        clock = clock or SystemClock()
        client = await EtcdClient.open(settings, clock=clock)
        try:
            names = KeyNames(settings.prefix, root)
            names.ahead = await prefix.claim(client, names, settings.prefix, ahead)
            index, target = await prefix.load(client, names)
        except BaseException:
            await client.close()
            raise
        store = cls(
            client, names, index, clock=clock, maximum_waiting_events=maximum_waiting_events
        )
        store._running = asyncio.create_task(store._run(), name="etcd")  # noqa: TID251 - `close` awaits it
        try:
            await store._reach(target)
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write to the same log."""
        return True

    @property
    def is_reachable(self) -> bool:
        """Whether the quorum answered when last asked; a full one does."""
        return self._is_full or not self._trouble

    @property
    def refuses_writes(self) -> str:
        """Why writes are refused at present; empty when they are not."""
        return self._trouble

    @property
    def client(self) -> EtcdClient:
        """The connections, for whoever asks how etcd is."""
        return self._client

    # -- reading -------------------------------------------------------------------------------

    # Who comes alone asks himself. Who comes while somebody asks joins a queue, which is served by
    # a range that is sent after he joined, so the revision he gets is that of a moment within his
    # own life. A range already on its way may have been answered by the quorum before something
    # else was acknowledged, and does not count.
    async def sync(self) -> Revision:
        """Return when reads show all that any hub had acknowledged before this call."""
        self._check_open()
        if not self._requests_on_their_way:
            revision = await self._ask_revision()
        else:
            queued = self._sync_queued
            if queued is None:
                queued = self._sync_queued = asyncio.get_running_loop().create_future()
                self._wants_sync.set()
            revision = await asyncio.shield(queued)
        if self._index.revision < revision:
            await self._reach(revision)
        return self._index.revision

    async def _ask_revision(self) -> Revision:
        """Ask the quorum for its revision."""
        known = self._index.revision
        self._requests_on_their_way += 1
        try:
            answer = messages.read_range(
                await self._client.read(messages.RANGE, self._revision_request)
            )
        except StoreError as error:
            self._note_trouble(str(error))
            raise
        except asyncio.CancelledError:
            # A channel that is closed says the same to its calls as a task that is cancelled.
            task = asyncio.current_task()
            if self._closed and (task is None or not task.cancelling()):
                raise StoreClosed("the store is closed") from None
            raise
        finally:
            self._requests_on_their_way -= 1
        if self._trouble:
            self._note_trouble("")
        present = self._names.in_store(answer.revision)
        if present < known:
            # The quorum is behind what it has told us: it was restored from a backup. What is
            # in the index may never have been, as far as etcd knows.
            _log.error("etcd has gone back", from_revision=known, to=present)
            self._has_gone_back = True
            if self._stream is not None:
                self._stream.give_up("etcd has gone back")
        return present

    async def _ask_revisions(self) -> None:
        """Ask for all who wait at once, until cancelled."""
        while True:
            await self._wants_sync.wait()
            self._wants_sync.clear()
            waiting, self._sync_queued = self._sync_queued, None
            if waiting is None:
                continue
            try:
                revision = await self._ask_revision()
            except BaseException as error:
                is_over = isinstance(error, asyncio.CancelledError)
                _fail(waiting, StoreClosed("the store is closed") if is_over else error)
                if not isinstance(error, StoreError):
                    raise
                continue
            if not waiting.done():
                waiting.set_result(revision)

    async def _reach(self, revision: int) -> None:
        """Wait until the index has come to a revision."""
        if self._index.revision >= revision:
            return
        waiter = _Waiter(revision, self._waiter_count, asyncio.get_running_loop().create_future())
        self._waiter_count += 1
        heapq.heappush(self._waiters, waiter)
        self._arm_progress(_ASK_PROGRESS_AFTER)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await waiter.done
        except TimeoutError:
            raise StoreUnavailable(
                f"etcd is at revision {revision}, and its watch has only shown this hub"
                f" {self._index.revision} for {CALL_SECONDS:g} s",
                was_sent=True,
            ) from None

    def _wake_waiters(self) -> None:
        while self._waiters and self._waiters[0].revision <= self._index.revision:
            waiter = heapq.heappop(self._waiters)
            if not waiter.done.done():
                waiter.done.set_result(None)

    def _arm_progress(self, seconds: float) -> None:
        if self._progress_timer is None:
            loop = asyncio.get_running_loop()
            self._progress_timer = loop.call_later(seconds, self._ask_progress)

    def _ask_progress(self) -> None:
        # Revisions that other keys of etcd use up make no event here; only the answer to this says
        # that they have passed.
        self._progress_timer = None
        if self._waiters and not self._closed:
            self._wants_progress.set()
            self._arm_progress(_ASK_PROGRESS_EVERY)

    # -- writing -------------------------------------------------------------------------------

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        """Set the key and return it as it now is, in the logs of a quorum."""
        if expected is not None:
            return await self._write(Put(key, value, expected, guard))
        while True:
            present = self._index.get(key)
            actual = ABSENT if present is None else present.mod_revision
            with suppress(RevisionMismatch):
                return await self._write(Put(key, value, actual, guard))

    async def delete(self, key: str, *, expected: Revision, guard: Guard | None = None) -> KeyValue:
        """Delete the key and return its last value with the revision of the delete."""
        return await self._write(Delete(key, expected, guard))

    async def _write(self, write: Write) -> KeyValue:
        self._check_open()
        checked(write)
        if not self._client.is_etcd:
            write = replace(write, guard=None)  # kine compares one key, and whoever asks has looked
        self._writes += 1
        self._idle.clear()
        try:
            return await self._swap(write)
        finally:
            self._writes -= 1
            if not self._writes:
                self._idle.set()

    def _request(self, write: Write) -> bytes:
        """Return the transaction of a write; a create on etcd with the present fence."""
        names, is_etcd = self._names, self._client.is_etcd
        name = names.to_etcd(write.key)
        if isinstance(write, Delete):
            request = messages.delete_request(name, names.in_etcd(write.expected) or -1)
        elif write.expected:
            # A revision from before the move is nobody's: compared with -1, it never is.
            expected = names.in_etcd(write.expected) or -1
            request = messages.update_request(name, write.value, expected)
        elif is_etcd:
            request = messages.update_request(name, write.value, ABSENT)
        else:
            request = messages.create_request(name, write.value)
        if write.guard is not None:
            guard = names.to_etcd(write.guard.key)
            request = messages.guarded(request, guard, names.in_etcd(write.guard.revision))
        if is_etcd and not write.expected:
            request = messages.guarded(request, names.fence, self._fence)
        return request

    # A transaction whose answer was lost may have been carried out, may be carried out later, or
    # never. One that expects a revision is sent again all the same, and that is safe, because no
    # key comes back to a revision: of the two at most one finds it there.
    #
    #     first   sent, no answer           second  succeeded      the first never counts any more
    #     first   sent, no answer           second  key has moved  who moved it? The first change
    #                                                              after `expected` says: ours has
    #                                                              our value, byte for byte
    #
    # A key does come back to not being there: somebody may delete what a create has made, and the
    # second would make it once more, or the first, if it is only late. So creates also compare our
    # fence, a key of this process alone, and one without an answer is fenced off before it is sent
    # again: the fence is written, after which nothing that names its old revision is carried out,
    # and the index, brought up to there, shows whether it was before.
    #
    #     create  sent at fence 0, no answer
    #     fence   written at 46             the create is before 46, or never
    #     index   at 46 or later            shows it: answered. Does not: sent again at fence 46
    #
    # kine compares one key only. There a create is looked for, and not sent again. What cannot be
    # made out is told to the caller as just that, and nothing is claimed.
    async def _swap(self, write: Write) -> KeyValue:
        started = self._clock.monotonic()
        deadline = started + CALL_SECONDS
        since = self._index.revision
        was_sent = False
        attempts = enumerate(clocks.exponential(0.02, 0.5))
        while True:
            (attempt, pause), fence = next(attempts), self._fence
            try:
                # With kine, who creates has one attempt, and waits for it a little longer.
                least = 0.0 if write.expected or self._client.is_etcd else _CREATE_SECONDS
                request = self._request(write)
                raw = messages.read_txn(
                    await self._client.call(messages.TXN, request, attempt=attempt, least=least)
                )
            except StoreFull as error:
                self._is_full = True
                self._note_trouble(str(error))
                return await self._find_stored(write, since, error, was_sent=was_sent)
            except StoreUnavailable as error:
                was_sent = was_sent or error.was_sent
                now = self._clock.monotonic()
                goes_on = now + pause < deadline and not self._closed
                # One answer that is late, or one member that has gone, is nobody's trouble yet.
                if not goes_on or now - started >= _TROUBLE_SECONDS:
                    self._note_trouble(str(error))
                if was_sent and not write.expected:
                    found = await self._find_created(write, fence, since, str(error))
                    if found is not None:
                        return found
                    was_sent = False
                if not goes_on and not was_sent:
                    raise StoreUnavailable(str(error), was_sent=False) from None
                if not goes_on:
                    raise OutcomeUnknown(
                        f"{write.key}: etcd did not answer, so the write may or may not have been"
                        f" carried out: read it before you write it again ({error})"
                    ) from None
                await self._clock.sleep(pause)
                continue
            if not self._was_fenced_off(write, raw, fence):
                self._is_full = False
                self._note_trouble("")
                answer = replace(raw, revision=self._names.in_store(raw.revision))
                return await self._take_answer(write, answer, since, was_sent=was_sent)

    async def _take_answer(
        self, write: Write, answer: TxnAnswer, since: Revision, *, was_sent: bool
    ) -> KeyValue:
        """Return what a write has made once the index shows it, or raise why it made nothing."""
        if answer.succeeded:
            self._own[answer.revision] = write
            self._apply_own()
        try:
            await self._reach(answer.revision)
        except StoreUnavailable as error:
            if not answer.succeeded:
                raise
            raise OutcomeUnknown(f"{write.key}: it is stored, but {error}") from None
        if answer.succeeded:
            return self._written(write, Revision(answer.revision))
        if write.guard is not None and self._is_as_expected(write, answer):
            # So it was the guard, and that never comes back to where it was: whatever became of
            # requests without an answer, they have not been carried out, and never will be.
            raise GuardChanged(write.key, write.guard.key)
        return self._refused(write, answer, since, was_sent=was_sent)

    async def _find_created(
        self, write: Write, fence: int, since: Revision, why: str
    ) -> KeyValue | None:
        """Return what a create without an answer has made; None when it never will make anything.

        OutcomeUnknown when that cannot be made out.
        """
        is_etcd = self._client.is_etcd
        for pause in (0.0,) if is_etcd else (_LOOK_AGAIN_SECONDS, 0.0):
            with suppress(StoreUnavailable, Compacted):
                if is_etcd:
                    await self._fence_off(fence)
                await self.sync()
                for each in self._index.changes_of(write.key, since):
                    is_ours = isinstance(write, Put) and each.value == write.value
                    if each.previous is None and not each.is_delete and is_ours:
                        return answer_to(each)
                if is_etcd:
                    return None
            await self._clock.sleep(pause)
        raise OutcomeUnknown(
            f"{write.key}: etcd did not answer, so it may have been created, or may be yet: read it"
            f" before you create it again ({why})"
        )

    def _was_fenced_off(self, write: Write, answer: TxnAnswer, fence: int) -> bool:
        """Whether a create was refused because another's sake moved the fence on its way."""
        if answer.succeeded or write.expected or not self._client.is_etcd:
            return False
        found = answer.beside[-1]
        actual = 0 if found is None else found.mod_revision
        self._fence = max(self._fence, actual)
        return actual != fence

    async def _fence_off(self, fence: int) -> None:
        """Return when no create that names this revision of our fence is carried out any more."""
        async with self._fencing:
            if self._fence != fence:
                return  # another create has had it written since
            # Sent again, where the answer is lost, it finds the fence moved: that is as good.
            request = messages.update_request(self._names.fence, b"", fence)
            answer = messages.read_txn(await self._client.read(messages.TXN, request))
            if answer.succeeded:
                self._fence = answer.revision
            elif answer.current is not None:
                self._fence = max(self._fence, answer.current.mod_revision)

    async def _find_stored(
        self, write: Write, since: Revision, refusal: StoreFull, *, was_sent: bool
    ) -> KeyValue:
        """Return what a write has made that etcd has no room for; else raise the refusal."""
        if was_sent:
            raise OutcomeUnknown(
                f"{write.key}: etcd did not answer at first, and has no room now ({refusal})"
            ) from None
        # The member that finds itself at its quota says so of a write that it has just carried
        # out, too. It has, or it never will: its answer came after either.
        try:
            await self.sync()
        except StoreUnavailable as error:
            raise OutcomeUnknown(f"{write.key}: {refusal}, and {error}") from None
        found = self._find_put(write, since)
        if found is None:
            raise refusal
        return found

    def _find_put(self, write: Write, since: Revision) -> KeyValue | None:
        """Return what a put has made, if the index shows it: on what it expected, byte for byte."""
        with suppress(Compacted):
            for each in self._index.changes_of(write.key, since):
                was_at = ABSENT if each.previous is None else each.previous.mod_revision
                if was_at == (write.expected or ABSENT) and not each.is_delete:
                    is_ours = isinstance(write, Put) and each.value == write.value
                    return answer_to(each) if is_ours else None
        return None

    # What was written here is known before the watch brings it. It is applied at once if all before
    # it has been: the revisions between two are none when they are neighbours, and each of ours
    # changes one key. Everything else waits for the watch, which then finds these already there.
    def _apply_own(self) -> None:
        while (write := self._own.pop(self._index.revision + 1, None)) is not None:
            previous = self._index.get(write.key)
            if (ABSENT if previous is None else previous.mod_revision) != write.expected:
                return  # not as etcd compared it: then the watch knows better
            self._publish((decide(write, previous, Revision(self._index.revision + 1)),))
            self._wake_waiters()

    def _written(self, write: Write, revision: Revision) -> KeyValue:
        with suppress(Compacted):
            for event in self._index.changes_of(write.key, Revision(revision - 1)):
                if event.revision == revision:
                    return answer_to(event)
        # Everything was read anew in between: the past is not in the index, the present may be.
        present = self._index.get(write.key)
        created = revision if present is None else min(present.create_revision, revision)
        value = write.value if isinstance(write, Put) else b""
        return KeyValue(write.key, value, created, revision)

    def _refused(
        self, write: Write, answer: TxnAnswer, since: Revision, *, was_sent: bool
    ) -> KeyValue:
        """Raise RevisionMismatch, unless an earlier try of this very write is in its own way."""
        expected = write.expected or ABSENT
        if was_sent:
            try:
                changes = self._index.changes_of(write.key, since)
            except Compacted:
                raise OutcomeUnknown(
                    f"{write.key}: etcd did not answer at first, and what came of that is forgotten"
                ) from None
            for each in changes:
                was_at = ABSENT if each.previous is None else each.previous.mod_revision
                if was_at != expected:
                    continue
                if isinstance(write, Put) and not each.is_delete and each.value == write.value:
                    return answer_to(each)
                if isinstance(write, Delete) and each.is_delete:
                    raise OutcomeUnknown(f"{write.key} was deleted, by this request or by another")
        actual = ABSENT
        if answer.current is not None:
            actual = self._names.in_store(answer.current.mod_revision)
        elif not expected:
            # A create that was refused is not told by what; at its revision the index knows.
            with suppress(Compacted, FutureRevision):
                found = self._index.get(write.key, Revision(answer.revision))
                actual = ABSENT if found is None else found.mod_revision
        raise RevisionMismatch(write.key, expected, actual)

    def _is_as_expected(self, write: Write, answer: TxnAnswer) -> bool:
        """Whether the key of a guarded write that was refused is where it was expected."""
        current = answer.current
        actual = ABSENT if current is None else self._names.in_store(current.mod_revision)
        return actual == (write.expected or ABSENT)

    def _note_trouble(self, why: str) -> None:
        """Log once that etcd cannot be written, and once that it can again."""
        if not why and self._is_full:
            return  # a read that works says nothing about room for writes
        if bool(why) != bool(self._trouble):
            if why:
                _log.error("the store is read-only until etcd answers", reason=why)
            else:
                _log.info("etcd answers again, and the store is written to")
        self._trouble = why

    # -- following -----------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Feed the index from the watch, whatever happens to it, until cancelled."""
        pauses: Iterator[float] = clocks.exponential(*_WATCH_PAUSE)
        while True:
            before = self._index.revision
            try:
                if self._has_gone_back:
                    await self._reload("etcd has gone back: it was restored from a backup")
                    self._has_gone_back = False
                await self._watch_once()
            except StoreUnavailable as error:
                _log.warning("the watch of etcd broke and is opened anew", reason=str(error))
            except (Compacted, MalformedObject) as error:
                oldest = error.oldest if isinstance(error, Compacted) else 0
                with suppress(StoreUnavailable):  # then the watch finds the same gap again
                    await self._reload(str(error), oldest)
            except StoreError as error:
                _log.error("etcd cannot be watched, and is tried again", reason=str(error))
            if self._index.revision > before:
                pauses = clocks.exponential(*_WATCH_PAUSE)
            await self._clock.sleep(next(pauses))

    async def _watch_once(self) -> None:
        names = self._names
        async with self._client.watch() as stream:
            start = self._index.revision + 1
            await stream.write(messages.watch_request(names.first, names.end, names.in_etcd(start)))
            self._last_heard = self._clock.monotonic()
            self._stream = stream  # from here on `_pulse` writes: one at a time, says gRPC
            try:
                while (data := await stream.read()) is not None:
                    self._last_heard = self._clock.monotonic()
                    # What was written here is in the index before the watch brings it: nothing of
                    # it is read again. Not so with kine, whose answers name no revision.
                    known = names.in_etcd(self._index.revision) if self._client.is_etcd else 0
                    answer = messages.read_watch(data, known)
                    if answer.created or not answer.changes:
                        stream.is_catching_up = answer.created
                    self._take(answer)
            finally:
                self._stream = None
        raise StoreUnavailable("etcd ended the watch", was_sent=False)

    def _take(self, answer: WatchAnswer) -> None:
        """Bring the index up to what an answer says. Nothing is awaited: readers see all of it."""
        if answer.canceled:
            if answer.compact_revision:
                oldest = self._names.in_store(answer.compact_revision)
                raise Compacted(self._index.revision + 1, oldest)
            raise StoreUnavailable(f"etcd ended the watch: {answer.reason}", was_sent=False)
        events = tuple(self._events_of(answer.changes))
        if events:
            self._publish(events)
            self._forget_own()
        elif not answer.created and self._names.in_store(answer.revision) > self._index.revision:
            # No events, and not the greeting: an answer to a progress request. All that happened
            # up to its revision has been sent before it.
            self._advance(self._names.in_store(answer.revision))
            self._forget_own()
        self._wake_waiters()

    def _forget_own(self) -> None:
        if self._own:
            upto = self._index.revision
            self._own = {each: write for each, write in self._own.items() if each > upto}
            self._apply_own()

    def _events_of(self, changes: list[Change]) -> Iterator[Event]:
        changed: dict[str, KeyValue | None] = {}
        for change in changes:
            stored = change.stored
            revision = self._names.in_store(stored.mod_revision)
            if revision <= self._index.revision:
                continue  # the watch was opened anew: this one is known
            key = self._names.from_etcd(stored.key)
            previous = changed[key] if key in changed else self._index.get(key)
            if not change.is_delete:
                item = changed[key] = prefix.item_of(self._names, stored)
                yield Event(EventType.PUT, item, previous)
            elif previous is not None:
                changed[key] = None
                gone = KeyValue(key, b"", ABSENT, revision)
                yield Event(EventType.DELETE, gone, previous)

    async def _pulse(self) -> None:
        """Ask for progress when somebody waits for it, and now and then to hear that etcd lives."""
        most = _MOST_UNANSWERED if self._client.is_etcd else _MOST_UNANSWERED_BY_KINE
        asked_at, unanswered = self._clock.monotonic(), 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PULSE_SECONDS):
                    await self._wants_progress.wait()
            self._wants_progress.clear()
            stream, now = self._stream, self._clock.monotonic()
            if stream is None or self._last_heard > asked_at:
                unanswered = 0
            if stream is None:
                continue
            if unanswered >= (_MOST_WHILE_CATCHING_UP if stream.is_catching_up else most):
                unanswered = 0
                stream.give_up("its watch went silent")
                continue
            if now - asked_at >= _PULSE_SECONDS or not unanswered:
                asked_at, unanswered = now, unanswered + 1
            await stream.write_if_open(messages.progress_request())

    async def _probe(self) -> None:
        """Ask the quorum now and then, so that a hub without requests knows when it is cut off."""
        while True:
            await self._clock.sleep(_PROBE_SECONDS)
            with suppress(StoreUnavailable, StoreClosed):  # it is noted; and `close` ends this, too
                await self.sync()

    async def _run(self) -> None:
        async with Supervisor(self._clock, report) as tasks:
            keep_all(
                tasks,
                {
                    "watch of etcd": self._follow,
                    "pulse of the watch of etcd": self._pulse,
                    "revision of the quorum": self._ask_revisions,
                    "probe of etcd": self._probe,
                },
            )
            await asyncio.Event().wait()  # until cancelled

    async def _reload(self, why: str, at: int = 0) -> None:
        """Read everything as it was at a revision, or is now, and go on from there.

        Watchers have to list again, unless it is the same that they have seen: a gap in the log in
        which nothing happened under our prefix is nobody's trouble.
        """
        index, _ = await prefix.load(self._client, self._names, at=at)
        old = self._index
        if index.revision >= old.revision and index.holds_same_as(old):
            _log.info("the watch of etcd had a gap in which nothing changed", reason=why)
            self._advance(index.revision)
        else:
            _log.warning("everything is read from etcd anew", reason=why, revision=index.revision)
            metrics.store_reloaded("gap")
            self._own.clear()  # their revisions may be others' by now: the watch brings what counts
            self._replace_index(index, Compacted(old.revision, index.oldest))
        self._forget_own()
        self._wake_waiters()

    # -- forgetting and ending -----------------------------------------------------------------

    async def compact(self, revision: Revision) -> None:
        """Forget every older revision, in etcd and here."""
        self._check_open()
        if revision > self._index.revision:
            raise FutureRevision(revision, self._index.revision)
        if revision > self._index.oldest:
            await compact_etcd(self._client, self._names.in_etcd(revision))
        await self.forget(revision)

    async def forget(self, revision: Revision) -> None:
        """Forget every older revision here only: memory is this hub's, etcd is everybody's."""
        self._check_open()
        await self._forget(revision)

    async def verify(self) -> list[str]:
        """Compare what is held with what etcd has at the same revision; return keys that differ.

        Values are not compared: the revision of a key is never used for two of them.
        """
        at = self._index.revision
        differing: list[str] = []
        last: str | None = None
        names, keys_only = self._names, self._client.is_etcd
        async for page in prefix.pages_at(
            self._client, names, names.in_etcd(at), keys_only=keys_only
        ):
            theirs = {
                names.from_etcd(each.key): names.in_store(each.mod_revision) for each in page.items
            }
            cached = self._index.page("", start_after=last, limit=None, at=at)
            ours = {each.key: each.mod_revision for each in cached.items}
            last = max(theirs) if page.more else None
            differing += sorted(
                key
                for key in theirs.keys() | ours.keys()
                if (last is None or key <= last) and theirs.get(key) != ours.get(key)
            )
        return differing

    async def verify_forever(self) -> None:
        """Compare every few minutes; a difference is logged and counted, and all is read anew."""
        while True:
            await self._clock.sleep(VERIFY_SECONDS)
            with suppress(StoreUnavailable, Compacted):
                differing = await self.verify()
                if differing:
                    metrics.store_reloaded("difference")
                    _log.error(
                        "what is in memory differs from etcd, and is read anew",
                        keys=len(differing),
                        first=differing[0],
                    )
                    await self._reload("it differed from etcd")

    async def finish_filling(self) -> None:
        """Let others open what was filled from elsewhere."""
        await prefix.finish_filling(self._client, self._names)

    async def close(self) -> None:
        """Finish the writes already taken, end every watch, let go of the connections."""
        if self._closed:
            return
        self._closed = True
        await self._idle.wait()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._sync_queued is not None:
            _fail(self._sync_queued, StoreClosed("the store is closed"))
        for waiter in self._waiters:
            _fail(waiter.done, StoreClosed("the store is closed"))
        self._watchers.close()
        await self._client.close()


async def compact_etcd(client: EtcdClient, revision: int) -> None:
    """Have etcd forget what was superseded before a revision; what is forgotten already is fine."""
    with suppress(Compacted):
        await client.read(messages.COMPACT, messages.compact_request(revision))


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever waited may have gone: nobody needs to hear of it
