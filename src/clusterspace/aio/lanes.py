"""A thread for work that is too long for the event loop, shared fairly by those who bring it.

The interpreter runs one thread at a time, so a second thread makes nothing quicker. What it buys
is that the loop gets a turn every millisecond while a long piece of work goes on:

    loop    ▮ ▮  ▮ ▮ ▮ ▮ ▮  ▮ ▮
    lane     ▮▮▮▮ ▮ ▮ ▮ ▮ ▮▮▮         the work of alice, then bob's, then alice's next

One thread, not many: two would take turns with the loop as three equals, and the loop would wait
twice as long for its own. The interpreter changes threads between steps of Python code only; one
call into C that takes long still stops everything, so what is decoded or compared in one call must
be bounded by whoever brings the work. The collector of cycles is such a call, and looks at every
part of a large object again and again while more are made, so it rests while the lane works.

Two threads meet here, the loop's and the lane's:

    _waiting, _count    under the lock of `_changed`; neither thread keeps it for longer than it
                        takes to move one entry, so the loop never waits for a piece of work
    a job's future      the loop's alone; the lane asks whether it is cancelled, and has the loop
                        settle it
"""

import asyncio
import gc
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

Result = TypeVar("Result")

TURN_SECONDS: Final = 0.001
"""How long the lane may go on while the loop waits for its turn, at most; servers have less, as
`event_loop.run` says. Python's own figure is 5 ms, which every step of the loop would then wait."""


class Run(Protocol):
    """Where a step is carried out; the step is a plain function without effects."""

    async def __call__(self, work: Callable[[], Result]) -> Result:
        """Return the result of the work, or raise its exception."""
        ...


async def at_once(work: Callable[[], Result]) -> Result:
    """Carry out a step here and now."""
    return work()


class LaneIsFull(Exception):
    """Too much is waiting already."""


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]


class Lane:
    """Runs one piece of work at a time, in turns by owner.

    Somebody with a hundred pieces waiting delays another owner's first one by one piece.
    """

    def __init__(self, name: str, *, room: int = 256, room_each: int = 64) -> None:
        self._name = name
        self._room = room
        self._room_each = room_each
        self._waiting: dict[str, deque[_Job]] = {}
        """Work by owner, in the order of whose turn it is; nobody is in here with nothing."""
        self._count = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    async def run(self, owner: str, work: Callable[[], Result]) -> Result:
        """Return the result of the work, or raise its exception; LaneIsFull when there is no room.

        A caller that is cancelled before its turn is passed over. Work that has begun goes on to
        its end, and nobody learns how it ended: it must have no effects but its result.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future())
        with self._changed:
            queue = self._waiting.get(owner)
            if self._count >= self._room or (queue is not None and len(queue) >= self._room_each):
                raise LaneIsFull(f"{self._count} pieces of work are waiting")
            self._waiting.setdefault(owner, deque()).append(job)
            self._count += 1
            if self._thread is None:
                # Not before there is work: most processes never need it. The figure is the
                # process's, and matters only once there is a second busy thread. A daemon, because
                # a process that ends must not wait for work whose result nobody will read.
                sys.setswitchinterval(min(sys.getswitchinterval(), TURN_SECONDS))
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        # The lock is free before anything is awaited: the lane takes the job out under it.
        return cast("Result", await job.answer)

    def _serve(self) -> None:
        """Work on one job after the other, in the lane's own thread, for as long as it lives."""
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                owner, queue = next(iter(self._waiting.items()))
                job = queue.popleft()
                # To the end of the line, behind everybody who has waited for this one. An owner
                # with nothing left is taken out, or the names of all users would pile up.
                del self._waiting[owner]
                if queue:
                    self._waiting[owner] = queue
                self._count -= 1
            # Only a hint: the loop may cancel it in this very moment. Then the work is done in
            # vain, and `_settle` drops its result.
            if not job.answer.cancelled():
                result: Any = None
                failure: BaseException | None = None
                # Plain objects have no cycles: counting references frees them. Between two pieces
                # of work the collector may look again, with only their results still there. It is
                # the collector of the whole process that rests, so work must end.
                gc.disable()
                try:
                    result = job.work()
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever brought it
                    failure = error
                finally:
                    gc.enable()
                # Not settled here: a future has no lock, and setting it from another thread puts
                # its waiters in line without waking a loop that sleeps in its selector.
                with suppress(RuntimeError):  # the loop has closed: nobody is waiting any more
                    job.loop.call_soon_threadsafe(_settle, job.answer, result, failure)
                del result, failure
            # The loop may be gone, and what the work held with it: keep nothing until the next.
            del job


class Turns:
    """How many may go on at once with something large in hand; the rest wait, in turns by owner.

    Long work is done in several steps with waits between them. If every one that waits for its
    next step held what the last one made of three megabytes, a hundred of them would be gigabytes.
    """

    def __init__(self, *, at_once: int, room: int, room_each: int) -> None:
        self._free = at_once
        self._room = room
        self._room_each = room_each
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits by owner, in the order of whose turn it is; nobody is in here with nobody."""

    async def take(self, owner: str) -> None:
        """Wait for a turn; LaneIsFull when too many do. Every turn is given back."""
        # Nobody can be waiting while a turn is free: `give_back` hands a turn to whoever waits and
        # frees it only when there is nobody. So who comes now does not overtake anyone.
        if self._free > 0:
            self._free -= 1
            return
        queue = self._waiting.setdefault(owner, deque())
        if len(queue) >= self._room_each or sum(map(len, self._waiting.values())) >= self._room:
            if not queue:
                del self._waiting[owner]
            raise LaneIsFull("too many wait for their turn")
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # The turn may have come in the same step of the loop in which the wait was given up: it
            # must go on to the next, or there would be one less for ever. One that never came stays
            # in its queue as a cancelled future, and is passed over when its turn comes.
            if turn.done() and not turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Let the next one go on."""
        while self._waiting:
            owner, queue = next(iter(self._waiting.items()))
            turn = queue.popleft()
            del self._waiting[owner]
            if queue:
                self._waiting[owner] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _settle(answer: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is not None:
        answer.set_exception(failure)
    else:
        answer.set_result(result)


HEAVY: Final = Lane("heavy work")
"""The process's one lane: what it shares with the loop is the interpreter, and there is one."""

LARGE_OBJECTS: Final = Turns(at_once=2, room=128, room_each=32)
"""Who has a large object in hand. One is worked on while another waits for the disk; each of the
largest is 50 MB, and when the collector looks at all there is it looks at every part of them."""
