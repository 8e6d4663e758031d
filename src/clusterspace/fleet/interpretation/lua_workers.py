"""Processes that run scripts, so that no script can hold up whoever needs its answer.

A worker that does not answer in time is killed: it may be matching a pattern that never ends, which
nothing inside can interrupt. The next question begins a new one.

Controllers share a pool of them. What was asked once is answered from memory, and a script that
keeps running away waits longer and longer for its next turn, so that others go on beside it.
"""

import asyncio
import sys
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, cast

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.errors import ScriptFailed
from clusterspace.fleet.interpretation.lua_sandbox import HEADER, MOST_ANSWER

ANSWER_SECONDS: Final = 1.0
"""How long a script has, as in Karmada."""
START_SECONDS: Final = 30.0
"""How long a process may take to begin; on a busy machine that is seconds."""


class LuaWorker:
    """One process that runs one script at a time; who comes meanwhile waits for its turn."""

    def __init__(self, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def call(self, script: str, function: str, *arguments: Any) -> tuple[Any, Any]:
        """Return the first two values of a script's function, or raise what is wrong with it."""
        return values_in(await self.ask(question(script, function, arguments)))

    async def check(self, script: str) -> None:
        """Raise what is wrong with how a script is written."""
        values_in(await self.ask(question(script, "", ())))

    async def ask(self, raw: bytes) -> bytes:
        """Return the answer to a question, both as they are on the wire."""
        async with self._turn:
            process = self._process
            if process is None or process.returncode is not None:
                process = await self._start()
            try:
                # No task of its own: there are as many questions as versions of objects.
                async with asyncio.timeout(self._answer_seconds):
                    answer = await _exchange(process, raw)
            except TimeoutError:
                raise ScriptFailed(f"it took longer than {self._answer_seconds:g} s") from None
            except (asyncio.IncompleteReadError, ConnectionError, _TooLong):
                raise ScriptFailed("it took its process down") from None
            else:
                process = None
            finally:
                # Also when whoever asked is cancelled: its answer would be the next one's.
                if process is not None:
                    await self._end(process)
        return answer

    async def _start(self) -> asyncio.subprocess.Process:
        # Isolated: neither environment nor directory say what is imported.
        code = f"import sys; sys.path[:] = {sys.path!r}; from {_SANDBOX} import main; main()"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-c",
            code,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={},
        )
        # The first answer proves that it stands; what it takes is not the script's fault.
        try:
            await asyncio.wait_for(_exchange(process, question("", "", ())), START_SECONDS)
        except BaseException:
            await self._end(process)
            raise
        self._process = process
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._process = None
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            await self._end(self._process)


_SANDBOX: Final = "clusterspace.fleet.interpretation.lua_sandbox"


def question(script: str, function: str, arguments: tuple[Any, ...]) -> bytes:
    """Return what a worker is asked: to run a function of a script, or to check it for none."""
    return msgspec.json.encode([script, function, arguments])


def values_in(answer: bytes) -> tuple[Any, Any]:
    """Return the two values of an answer, or raise what is wrong with the script."""
    decoded = msgspec.json.decode(answer)
    if "error" in decoded:
        raise ScriptFailed(decoded["error"])
    first, second = decoded["values"]
    return first, second


class _TooLong(Exception):
    """A process began an answer that none gives."""


async def _exchange(process: asyncio.subprocess.Process, raw: bytes) -> bytes:
    questions = cast("asyncio.StreamWriter", process.stdin)
    answers = cast("asyncio.StreamReader", process.stdout)
    questions.write(HEADER.pack(len(raw)) + raw)
    await questions.drain()
    (size,) = HEADER.unpack(await answers.readexactly(HEADER.size))
    if size > MOST_ANSWER:
        raise _TooLong
    return await answers.readexactly(size)


# -- a pool of them, which remembers answers ---------------------------------------------------

_WORKERS: Final = 2
_MOST_REMEMBERED: Final = 32 * 1024 * 1024
"""Bytes of answers and of what it takes to find them; the oldest go first."""
_BESIDE_AN_ANSWER: Final = 256
"""Bytes: most answers are a number or a word, and their place takes more than they do."""
_COSTLY_SECONDS: Final = 0.1
"""A failure that took longer held a worker up: an endless loop, and not a wrong field."""
_COSTLY_IN_A_ROW: Final = 3
_LONGEST_PAUSE_SECONDS: Final = 60.0
_MOST_LANES: Final = 1024


@dataclass(slots=True)
class _Lane:
    """One script: one turn at a time, so that no script holds more than one worker."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    costly: int = 0
    """How often in a row it failed after holding up a worker."""
    resumes_at: float = 0.0


class LuaPool:
    """A few workers for all scripts of a process, and the answers they gave."""

    # An answer is found by a digest of all that it follows from: script, function and arguments. So
    # it is never old: another version of the object or of the script is another question.

    def __init__(
        self, clock: Clock, *, workers: int = _WORKERS, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._clock = clock
        self._turns = asyncio.Semaphore(workers)
        self._answer_seconds = answer_seconds
        self._all: list[LuaWorker] = []
        self._idle: list[LuaWorker] = []
        self._lanes: OrderedDict[bytes, _Lane] = OrderedDict()
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        self._remembered = 0
        self.runs = 0
        """How many questions were not answered from memory."""

    async def call(self, script: str, function: str, *arguments: Any) -> tuple[Any, Any]:
        """Return the first two values of a script's function, or raise what is wrong with it."""
        raw = question(script, function, arguments)
        key = blake2b(raw, digest_size=16).digest()
        if (known := self._recall(key)) is not None:
            return values_in(known)
        lane = self._lane_of(script)
        async with lane.turn:
            # Whoever was before us in the lane may have asked the same.
            if (known := self._recall(key)) is not None:
                return values_in(known)
            wait = lane.resumes_at - self._clock.monotonic()
            if wait > 0:
                raise ScriptFailed(
                    f"it ran away {lane.costly} times in a row, and is run again in {wait:.0f} s"
                )
            answer, failure, seconds = await self._run(raw)
        self.runs += 1
        if failure is None:
            try:
                values = values_in(answer)
            except ScriptFailed as error:
                failure = error
            else:
                lane.costly = 0
                self._remember(key, answer)
                return values
        if seconds >= _COSTLY_SECONDS:
            lane.costly += 1
            if lane.costly >= _COSTLY_IN_A_ROW:
                pause = min(2.0 ** (lane.costly - _COSTLY_IN_A_ROW), _LONGEST_PAUSE_SECONDS)
                lane.resumes_at = self._clock.monotonic() + pause
        raise failure

    async def check(self, script: str) -> None:
        """Raise what is wrong with how a script is written."""
        await self.call(script, "")

    async def _run(self, raw: bytes) -> tuple[bytes, ScriptFailed | None, float]:
        async with self._turns:
            if self._idle:
                worker = self._idle.pop()
            else:
                worker = LuaWorker(answer_seconds=self._answer_seconds)
                self._all.append(worker)
            began = self._clock.monotonic()
            try:
                return await worker.ask(raw), None, self._clock.monotonic() - began
            except ScriptFailed as failure:
                return b"", failure, self._clock.monotonic() - began
            finally:
                self._idle.append(worker)

    def _lane_of(self, script: str) -> _Lane:
        key = blake2b(script.encode(), digest_size=16).digest()
        lane = self._lanes.setdefault(key, _Lane())
        self._lanes.move_to_end(key)
        if len(self._lanes) > _MOST_LANES:
            # One that is in use goes on as it is, for whoever has it.
            self._lanes.popitem(last=False)
        return lane

    def _recall(self, key: bytes) -> bytes | None:
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
        return answer

    def _remember(self, key: bytes, answer: bytes) -> None:
        if len(answer) > _MOST_REMEMBERED // 8:
            return
        if key not in self._answers:
            self._answers[key] = answer
            self._remembered += len(answer) + _BESIDE_AN_ANSWER
        while self._remembered > _MOST_REMEMBERED:
            oldest = self._answers.popitem(last=False)[1]
            self._remembered -= len(oldest) + _BESIDE_AN_ANSWER

    async def close(self) -> None:
        """End all processes."""
        for worker in self._all:
            await worker.close()
