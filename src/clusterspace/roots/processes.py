"""What every process has: an end that is asked for, and `/metrics` where it serves no API."""

import asyncio
import gc
import hashlib
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock, SystemClock, Waiting, measure_stalls
from clusterspace.aio.memory import give_back_freed
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.http.connections import CountedConnections
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.messages import Handler, Request, Response
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.authority import organizations
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import ApiError, ClusterError, KubeconfigMissing
from clusterspace.roots.clients import read_pem
from clusterspace.roots.settings import ServerSettings
from clusterspace.telemetry import metrics

_log = structlog.get_logger(__name__)

LIFELINE: Final = "CLUSTERSPACE_LIFELINE"
"""Set for a process that must end when another does: `stdin`, or the path of a named pipe.

The other one keeps the writing end of it open, and the system closes that however it ends.
"""

_LISTENING: Final = os.O_RDONLY | os.O_NONBLOCK
_TEXT: Final = "text/plain; charset=utf-8"
_DRAIN_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 1.0

Result = TypeVar("Result")


def process_identity() -> str:
    """Return a name that no other process has or ever had: whoever holds a Lease is called so.

    Host and number are for people. In containers every process may be number 1 of its host.
    """
    return f"{socket.gethostname()}_{os.getpid()}_{uuid4().hex[:8]}"


def server_identity(data_dir: Path) -> str:
    """Return what agents know a server by: the same after a restart, and another for each server.

    >>> len(server_identity(Path("data")))
    16
    """
    place = f"{socket.gethostname()}:{data_dir.resolve()}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]


def raise_file_limit() -> None:
    """Let this process, and those it starts, have as many open files as it may give itself.

    Every member, client and watch is a socket. Shells allow 1,024 by default, for the sake of
    programs that use select(), which we do not; the hard limit is the operator's.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems have a limit of their own below the one that they tell.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def stop_event(*, again: asyncio.Event | None = None) -> asyncio.Event:
    """Return an event that is set once the process is to end; `again`, when asked twice.

    Every command that stays asks for it first, so this is where its limits are raised.
    """
    raise_file_limit()
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


async def stay_until(stopped: asyncio.Event, part: str, **fields: object) -> None:
    """Say that a part is ready, where and how it is reached, and wait until it is to stop."""
    # What is alive now stays alive: the collector need not look at it again. True of a process with
    # one server; where many come and go, as in tests, each would keep what the last one left.
    gc.freeze()
    # A look at everything takes 100 ms once two thousand watches are open, and everybody waits for
    # it. By default it comes with every 70,000 objects that stay, several times a minute under
    # load; now with every 1.4 million. Cycles that die young are found as before, in a millisecond.
    gc.set_threshold(700, 20, 100)
    _log.info(f"{part} is ready", **fields)
    await stopped.wait()
    _log.info(f"{part} is stopping")


@asynccontextmanager
async def cancelled_by(stopped: asyncio.Event) -> AsyncGenerator[None]:
    """Leave the block when the process is to end: for what waits before it can serve."""
    try:
        async with asyncio.timeout(None) as deadline:

            async def end() -> None:
                await stopped.wait()
                deadline.reschedule(0)

            ending = asyncio.create_task(end(), name="end of the wait")  # noqa: TID251
            try:
                yield
            finally:
                ending.cancel()
                await asyncio.wait([ending])
    except TimeoutError:
        if not stopped.is_set():
            raise


async def read_when_there(read: Callable[[], ConnectionSettings]) -> ConnectionSettings:
    """Return what a kubeconfig says; as long as there is no such file, wait for it and say so.

    A file that is there and says nothing sensible is UnusableKubeconfig at once: that is not mended
    by waiting.
    """
    clock = SystemClock()
    waiting = Waiting(clock, "the hub's kubeconfig")
    while True:
        try:
            settings = await asyncio.to_thread(read)
        except KubeconfigMissing as missing:
            waiting.failed(str(missing))
            await clock.sleep(_LOOK_SECONDS)
        else:
            waiting.over()
            return settings


async def answer_of(
    ask: Callable[[], Awaitable[Result]], clock: Clock, what: str, **fields: object
) -> Result:
    """Return an answer that a process cannot start without; until there is one, say so and wait."""
    waiting = Waiting(clock, what, **fields)
    delays = clocks.exponential(0.2, _LOOK_SECONDS * 2)
    while True:
        try:
            answer = await ask()
        except (ApiError, ClusterError) as error:
            waiting.failed(str(error))
            await clock.sleep(next(delays))
        else:
            waiting.over()
            return answer


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


def api_server(
    handler: Handler, tls: ssl.SSLContext, settings: ServerSettings, clock: Clock
) -> HttpServer:
    """Return the server of an API: its connections are counted, and limited as the settings say."""
    return HttpServer(
        handler,
        tls=tls,
        limits=settings.connections,
        observer=CountedConnections(),
        clock=clock,
    )


@asynccontextmanager
async def serving_metrics(
    host: str, port: int, standing: Callable[[], tuple[bool, str]] | None = None
) -> AsyncGenerator[int]:
    """Serve `/metrics`, `/healthz` and `/readyz` for as long as the block lasts; yield the port.

    The system chooses one for 0. `standing` says whether the process is ready, and what it does.
    """

    async def answer(request: Request) -> Response:
        if request.path == "/metrics":
            return Response(200, (("Content-Type", metrics.CONTENT_TYPE),), metrics.render())
        if request.path == "/readyz" and standing is not None:
            is_ready, words = standing()
            text = f"ok\n{words}\n" if is_ready else f"{words}\n"
            return Response(200 if is_ready else 503, (("Content-Type", _TEXT),), text.encode())
        if request.path in ("/healthz", "/livez", "/readyz"):
            return Response(200, (("Content-Type", _TEXT),), b"ok")
        return Response(404, (("Content-Type", _TEXT),), b"404 page not found\n")

    server = HttpServer(answer)
    await server.listen(host, port)
    try:
        yield server.addresses[0][1]
    finally:
        await server.drain(_DRAIN_SECONDS)
