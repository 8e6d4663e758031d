"""Processes that run scripts, so that no script can hold up whoever needs its answer.

A worker that does not answer in time is killed: it may be matching a pattern that never ends, which
nothing inside can interrupt. The next question begins a new one.
"""

import asyncio
import sys
from contextlib import suppress
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import ScriptFailed
from clusterspace.fleet.interpretation.lua_sandbox import HEADER

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
        first, second = await self._ask([script, function, arguments])
        return first, second

    async def check(self, script: str) -> None:
        """Raise what is wrong with how a script is written."""
        await self._ask([script, "", []])

    async def _ask(self, question: list[Any]) -> list[Any]:
        raw = msgspec.json.encode(question)
        async with self._turn:
            process = self._process
            if process is None or process.returncode is not None:
                process = await self._start()
            try:
                answer = await asyncio.wait_for(_exchange(process, raw), self._answer_seconds)
            except TimeoutError:
                raise ScriptFailed(f"it took longer than {self._answer_seconds:g} s") from None
            except (asyncio.IncompleteReadError, ConnectionError):
                raise ScriptFailed("it took its process down") from None
            else:
                process = None
            finally:
                # Also when whoever asked is cancelled: its answer would be the next one's.
                if process is not None:
                    await self._end(process)
        decoded = msgspec.json.decode(answer)
        if "error" in decoded:
            raise ScriptFailed(decoded["error"])
        return decoded["values"]

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
            nothing = msgspec.json.encode(["", "", []])
            await asyncio.wait_for(_exchange(process, nothing), START_SECONDS)
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


async def _exchange(process: asyncio.subprocess.Process, raw: bytes) -> bytes:
    questions = cast("asyncio.StreamWriter", process.stdin)
    answers = cast("asyncio.StreamReader", process.stdout)
    questions.write(HEADER.pack(len(raw)) + raw)
    await questions.drain()
    (size,) = HEADER.unpack(await answers.readexactly(HEADER.size))
    return await answers.readexactly(size)
