"""Group commit: one thread writes, and all writes that wait share one fsync.

    event loop                          writer thread
    submit(write) ──── queue ────────>  take everything that waits
                                        decide each write against what is committed
                                        one transaction, one fsync
    publish, then answer  <── one call ─┘

While the disk works on one batch, the next one gathers; the slower the disk, the larger the
batches. The queue needs no bound of its own: every caller waits for its own write.
"""

import asyncio
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apiserver.store.files import StoreFile
from clusterspace.apiserver.store.index import Put, Write, check_guard, decide
from clusterspace.apiserver.store.interface import Event, KeyValue, Revision
from clusterspace.errors import StoreClosed, StoreError, StoreFull
from clusterspace.telemetry import metrics

_log = structlog.get_logger(__name__)

STORE_FAILED = 74
"""The exit code of a process whose disk failed: EX_IOERR of sysexits.h."""

MAXIMUM_BATCH = 512
MAXIMUM_BATCH_BYTES = 8 * 1024 * 1024
"""A batch larger than this gains nothing and makes its first write wait for its last."""

EndProcess: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Submission:
    """A write that waits for its commit."""

    write: Write
    answer: asyncio.Future[Event]


@dataclass(frozen=True, slots=True)
class Chore:
    """Something else to do with the file, between two commits."""

    run: Callable[[], None]
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Decided:
    """A submission with its outcome."""

    submission: Submission
    outcome: Event | StoreError


def end_process(reason: str) -> None:
    """End this process at once, with a last line that says why.

    After a failed fsync the kernel may drop the pages it could not write and let the next fsync
    succeed, so only a new process that reads the file again knows what is on the disk.
    """
    _log.critical("the store's disk failed, so this process ends", reason=reason)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STORE_FAILED)


def decide_batch(
    submissions: Sequence[Submission], heads: dict[str, KeyValue], revision: Revision
) -> list[Decided]:
    """Decide writes in order, each against what is committed and those before it.

    A write that loses its comparison costs the others nothing, not even a revision.
    """
    changed: dict[str, KeyValue | None] = {}
    decisions: list[Decided] = []

    def find(key: str) -> KeyValue | None:
        # Not `changed.get(key) or …`: a delete earlier in the batch is a None that counts.
        return changed[key] if key in changed else heads.get(key)

    for submission in submissions:
        key = submission.write.key
        current = find(key)
        try:
            check_guard(submission.write, find)
            event = decide(submission.write, current, Revision(revision + 1))
        except StoreError as refusal:
            decisions.append(Decided(submission, refusal))
            continue
        revision = event.revision
        changed[key] = None if event.is_delete else event.item
        decisions.append(Decided(submission, event))
    return decisions


# Two views of the present exist, and that is on purpose. `heads` is the writer thread's: what is on
# the disk. The index is the event loop's: what readers are shown. The thread is ahead by the
# batches that it has committed and the loop has not yet taken over, never behind:
#
#     thread   decide 7,8 on heads   fsync   heads = 8   decide 9 on heads …
#     loop     index at 6 ………………………………………………… publish 7,8   index at 8   answer 7, answer 8
#
# So a compare-and-set is decided against what is durable even when readers still see less, and no
# reader sees what a crash could take back. A crash before the fsync leaves no trace of the batch; a
# crash after it leaves writes that nobody was answered, which `Store` allows ("may or may not have
# happened"). Nothing but the queue and `call_soon_threadsafe` connects the two threads.
class GroupCommit:
    """The writer thread of one store file and the queue in front of it.

    `publish` is called in the event loop with the events of each commit, before their writers are
    answered. `end_process` is called in the writer thread when the disk can no longer be trusted.
    """

    def __init__(
        self,
        file: StoreFile,
        heads: dict[str, KeyValue],
        *,
        publish: Callable[[tuple[Event, ...]], None],
        end_process: EndProcess = end_process,
        clock: Clock | None = None,
    ) -> None:
        self._file = file
        self._heads = heads
        self._publish = publish
        self._end_process = end_process
        self._clock = clock or SystemClock()
        # What follows is the event loop's, but for the queue: the thread never touches a future,
        # it asks the loop to (`_call_loop`).
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Submission | Chore] = queue.SimpleQueue()
        self._set_aside: Chore | None = None
        self._last: Chore | None = None
        self._failed = False
        self._refuses_writes = ""
        if file.is_read_only:
            self._note_full(f"{file.path}: no room on the disk")
        self._thread = threading.Thread(target=self._run, name=f"writer of {file.path.name}")
        self._thread.daemon = True  # a loop that ended without `stop` must not hang the process
        self._thread.start()

    def submit(self, write: Write) -> asyncio.Future[Event]:
        """Queue a write; the future has its event once that is on the disk."""
        answer: asyncio.Future[Event] = self._loop.create_future()
        self._queue.put(Submission(write, answer))
        return answer

    def run(self, chore: Callable[[], None]) -> asyncio.Future[None]:
        """Queue something else to do with the file, in the writer thread."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(Chore(chore, done))
        return done

    @property
    def refuses_writes(self) -> str:
        """Why the last write was refused, if that was for want of room; empty when it was not."""
        return self._refuses_writes

    def _note_full(self, reason: str) -> None:
        """Log once that the disk is full, and once that it is not any more."""
        if bool(reason) == bool(self._refuses_writes):
            return
        self._refuses_writes = reason
        if reason:
            _log.error("the store is read-only until there is room on its disk", reason=reason)
        else:
            _log.info("there is room on the disk again, and the store is written to")

    async def stop(self) -> None:
        """Finish everything queued before, close the file, end the thread."""
        # Behind everything queued so far: those writes are committed and answered first. Whatever
        # came behind it would never be answered, so the store checks that it is open, without an
        # await in between, before it queues anything.
        self._last = Chore(self._file.close, self._loop.create_future())
        self._queue.put(self._last)
        with contextlib.suppress(StoreClosed):  # a disk that failed has nothing left to close
            await self._last.done
        self._thread.join()

    # -- in the writer thread ------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            job = self._take()
            try:
                if self._failed:
                    self._refuse(job)
                elif isinstance(job, Chore):
                    self._perform(job)
                else:
                    self._commit(job)
                    self._file.checkpoint_when_due()
            # A writer thread that died quietly would leave every caller waiting for ever.
            except Exception as error:  # noqa: BLE001 - whatever it was, the disk's state is unknown
                # Outside of tests `end_process` does not return. Where it does, everything that
                # is queued from now on is refused: going on could acknowledge a write on top of
                # one that the disk has lost.
                self._failed = True
                self._end_process(f"{self._file.path}: {type(error).__name__}: {error}")
                self._refuse(job)
            if job is self._last:
                return

    def _take(self) -> list[Submission] | Chore:
        """Wait for work, then take every write that waits, up to the next chore."""
        # A chore ends a batch and is done after it, never before: compaction and close must see
        # the file with everything that was queued ahead of them.
        job = self._set_aside or self._queue.get()
        self._set_aside = None
        if isinstance(job, Chore):
            return job
        batch, size = [job], _size_of(job)
        while len(batch) < MAXIMUM_BATCH and size < MAXIMUM_BATCH_BYTES:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if isinstance(job, Chore):
                self._set_aside = job
                break
            batch.append(job)
            size += _size_of(job)
        return batch

    def _perform(self, chore: Chore) -> None:
        try:
            chore.run()
        except StoreError as error:
            self._call_loop(_settle, chore.done, error)
        else:
            self._call_loop(_settle, chore.done, None)

    def _commit(self, batch: list[Submission]) -> None:
        decisions = decide_batch(batch, self._heads, self._file.state.revision)
        events = tuple([each.outcome for each in decisions if isinstance(each.outcome, Event)])
        started = self._clock.monotonic()
        if events:
            try:
                self._file.append(events)
            except StoreError as error:
                # The file is as it was (full, or locked), so the whole batch is refused: some of
                # its writes were decided on top of others that did not happen either.
                decisions = [Decided(each, type(error)(*error.args)) for each in batch]
                events = ()
                if isinstance(error, StoreFull):
                    self._call_loop(self._note_full, str(error))
        # From here on the writes are on the disk. `heads` moves before the loop hears of it, so
        # that the next batch is decided on what is durable, whenever the loop gets to publish.
        for event in events:
            self._advance(event)
        if events and self._refuses_writes:
            self._call_loop(self._note_full, "")
        self._call_loop(self._deliver, events, decisions)
        if events:
            seconds = self._clock.monotonic() - started
            self._call_loop(metrics.commit_finished, len(events), seconds)

    def _advance(self, event: Event) -> None:
        if event.is_delete:
            del self._heads[event.key]
        else:
            self._heads[event.key] = event.item

    def _deliver(self, events: tuple[Event, ...], decisions: list[Decided]) -> None:
        # In the event loop. Published first, answered after: whoever was answered finds their
        # write when they read, and its event in every watch that has caught up.
        if events:
            self._publish(events)
        for decided in decisions:
            _settle(decided.submission.answer, decided.outcome)

    def _refuse(self, job: list[Submission] | Chore) -> None:
        futures = [job.done] if isinstance(job, Chore) else [s.answer for s in job]
        for future in futures:
            self._call_loop(_settle, future, StoreClosed("the store's disk failed"))

    def _call_loop(self, callback: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who waited
            self._loop.call_soon_threadsafe(callback, *arguments)


def _settle(future: asyncio.Future[Any], outcome: object) -> None:
    if future.done():  # the caller gave up waiting
        return
    if isinstance(outcome, StoreError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _size_of(submission: Submission) -> int:
    return len(submission.write.value) if isinstance(submission.write, Put) else 0
