"""What every process has: an end that is asked for, and `/metrics` where it serves no API."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock, measure_stalls
from clusterspace.aio.memory import give_back_freed
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.authority import organizations
from clusterspace.client.settings import ConnectionSettings
from clusterspace.roots.clients import read_pem
from clusterspace.telemetry import metrics

_log = structlog.get_logger(__name__)

LIFELINE: Final = "CLUSTERSPACE_LIFELINE"
"""Set for a process that must end when another does: `stdin`, or the path of a named pipe.

The other one keeps the writing end of it open, and the system closes that however it ends.
"""

_LISTENING: Final = os.O_RDONLY | os.O_NONBLOCK
_TEXT: Final = "text/plain; charset=utf-8"
_DRAIN_SECONDS: Final = 1.0


def stop_event(*, again: asyncio.Event | None = None) -> asyncio.Event:
    """Return an event that is set once the process is to end; `again`, when asked twice."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop() -> None:
        if again is not None and stopped.is_set():
            again.set()
        stopped.set()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    if lifeline := os.environ.get(LIFELINE):
        is_inherited = lifeline == "stdin"
        pipe = sys.stdin.fileno() if is_inherited else os.open(lifeline, _LISTENING)

        def look() -> None:
            # Nothing is ever written to it: what can be read is its end.
            with suppress(BlockingIOError):
                if not os.read(pipe, 1):
                    loop.remove_reader(pipe)
                    stopped.set()

        loop.add_reader(pipe, look)
        if not is_inherited:
            look()  # whoever was gone before we opened it leaves no end to be read
    return stopped


def warn_of_full_rights(component: str, settings: ConnectionSettings) -> None:
    """Say so when a component was given an administrator's kubeconfig, and which one would do."""
    certificate = read_pem(settings.identity.certificate)
    if certificate and MASTERS in organizations(certificate):
        _log.warning(
            "this part has an administrator's rights at the hub and needs few of them",
            part=component,
            instead=f"--hub-kubeconfig DATA_DIR_OF_THE_HUB/parts/{component}/kubeconfig",
        )


def process_tasks(clock: Clock) -> Tasks:
    """Return the background tasks of every process that serves an API."""
    return {
        "event loop": lambda: measure_stalls(clock, metrics.loop_stalled),
        "freed memory": lambda: give_back_freed(clock),
    }


@asynccontextmanager
async def serving_metrics(host: str, port: int) -> AsyncGenerator[int]:
    """Serve `/metrics` and `/healthz` for as long as the block lasts; yield the port.

    The system chooses one for 0.
    """

    async def answer(request: Request) -> Response:
        if request.path == "/metrics":
            return Response(200, (("Content-Type", metrics.CONTENT_TYPE),), metrics.render())
        if request.path in ("/healthz", "/livez", "/readyz"):
            return Response(200, (("Content-Type", _TEXT),), b"ok")
        return Response(404, (("Content-Type", _TEXT),), b"404 page not found\n")

    server = HttpServer(answer)
    await server.listen(host, port)
    try:
        yield server.addresses[0][1]
    finally:
        await server.drain(_DRAIN_SECONDS)
