"""When a process is to end: a signal, or the end of whoever started it."""

import asyncio
import os
import signal
import sys
from typing import Final

LIFELINE: Final = "CLUSTERSPACE_LIFELINE"
"""Set to `stdin` for a process that must end when its standard input does."""

_STDIN: Final = "stdin"


def stop_event(*, again: asyncio.Event | None = None) -> asyncio.Event:
    """Return an event that is set once the process is to end; `again`, when told twice."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop() -> None:
        if again is not None and stopped.is_set():
            again.set()
        stopped.set()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    if os.environ.get(LIFELINE) == _STDIN:
        _hang_on(loop, sys.stdin.fileno(), stopped)
    return stopped


def _hang_on(loop: asyncio.AbstractEventLoop, pipe: int, stopped: asyncio.Event) -> None:
    """Set the event when the other end of the pipe is closed; nothing is ever written to it."""

    def look() -> None:
        if not os.read(pipe, 1):
            loop.remove_reader(pipe)
            stopped.set()

    loop.add_reader(pipe, look)
