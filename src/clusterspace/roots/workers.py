"""Several processes behind the address of one fleet API server: see decision 0072.

    supervisor   listens, gives each connection to the next worker that is ready, starts workers
                 again that end, has one authority for all of them
    worker       a whole fleet API server, but for the address: `fleet.py`

What workers have to know of each other they tell each other: `aio/siblings.py`.
"""

import asyncio
import contextlib
import hashlib
import os
import secrets
import signal
import socket
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.byte_streams import SocketStream
from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.siblings import Packet, PacketSocket, Shared, Siblings
from clusterspace.aio.tasks import Supervisor, report, restarts
from clusterspace.apiserver.http.agent_tunnels import AgentTunnels
from clusterspace.apiserver.http.listener import HttpServer, bind
from clusterspace.apiserver.http.messages import Handler, Request, Response
from clusterspace.client.settings import AuthInfo
from clusterspace.errors import SiblingGone, WorkersFailed
from clusterspace.roots.installation import (
    Installation,
    server_url,
    worker_directory,
    write_private,
)
from clusterspace.roots.kubeconfigs import FLEET_CONTEXT, kubeconfig_of
from clusterspace.roots.processes import LIFELINE, server_identity, stop_event
from clusterspace.roots.settings import FleetSettings
from clusterspace.telemetry import metrics

_log = structlog.get_logger(__name__)

_PLACE: Final = "CLUSTERSPACE_FLEET_WORKER"
"""In the environment of a worker: its number and the port of all of them."""
_SUPERVISOR: Final = 0
"""The file that a worker has its supervisor at: the one that every start of a process passes on."""
_ACCEPTS_AT_ONCE: Final = 64
_ACCEPT_PAUSE_SECONDS: Final = 1.0
_HEALTHY_AFTER_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 15.0
_FILES_SECONDS: Final = 1.0
_MOST_CLAIMS: Final = 10_000
"""One-time codes that were used; they end after a minute anyway."""


# -- a worker --------------------------------------------------------------------------------------


class Coworkers:
    """The other workers of a fleet API server, of which there may be none."""

    def __init__(self, siblings: Siblings | None = None) -> None:
        self.siblings = siblings

    @property
    def is_first(self) -> bool:
        """Whether this worker does what one of them has to do for all."""
        return self.siblings is None or self.siblings.own_number == 1

    async def heard(self) -> None:
        """Wait until all workers know what one of them has noted."""
        if self.siblings is not None:
            await self.siblings.heard()

    def answer_when_heard(self, handler: Handler) -> Handler:
        """Return a handler whose answers are sent once all workers know what they rest on."""
        siblings = self.siblings
        if siblings is None:
            return handler

        async def handle(request: Request) -> Response | None:
            response = await handler(request)
            await siblings.heard()
            return response

        return handle

    async def sealing_key(self) -> bytes:
        """Return what browsers on their way to an issuer are known by; empty: whatever will do."""
        return b"" if self.siblings is None else await self.siblings.secret()

    async def claim_code(self, code: str) -> bool:
        """Whether a one-time code was used at no other worker."""
        if self.siblings is None:
            return True
        return await self.siblings.claim(hashlib.sha256(code.encode(errors="replace")).digest())

    async def read_metrics(self) -> bytes:
        """Return what all workers have measured; one that has just ended is missing."""
        if self.siblings is None:
            return metrics.render()
        pages = {self.siblings.own_number: metrics.render()}
        for number in self.siblings.numbers:
            with contextlib.suppress(SiblingGone):
                pages[number] = await self.siblings.ask(number, "metrics")
        return metrics.render_together(dict(sorted(pages.items())))

    async def listen(
        self, server: HttpServer, settings: FleetSettings, shared: Mapping[str, Shared]
    ) -> int:
        """Have a server take connections, and know what the other workers know; return the port."""
        siblings = self.siblings
        if siblings is None:
            await server.listen(settings.host, settings.port)
            return server.addresses[0][1]

        def adopt(address: bytes, file: int) -> None:
            server.adopt(socket.socket(fileno=file), address.decode())

        siblings.take("connection", adopt)
        siblings.answer("metrics", lambda _: metrics.render())
        for name, each in shared.items():
            siblings.share(name, each)
        await siblings.join()
        return settings.port

    def share_tunnels(self, tunnels: AgentTunnels, data_dir: Path, tasks: Supervisor) -> None:
        """Have tunnels that agents open at the wrong worker carried by the right one.

        To an agent each worker is a server of its own, and it cannot choose to whom of them its
        connection is given. Whether it may open a tunnel is decided where that comes in, and goes
        on to be: it ends there.
        """
        siblings = self.siblings
        if siblings is None:
            return

        def pass_on(server: str, cluster: str) -> socket.socket | None:
            for number in siblings.numbers:
                if server_identity(worker_directory(data_dir.parent, number)) == server:
                    here, there = socket.socketpair()
                    here.setblocking(False)
                    if siblings.hand_over(number, "tunnel", cluster.encode(), there.detach()):
                        return here
                    here.close()
            return None

        def take(cluster: bytes, file: int) -> None:
            end, name = socket.socket(fileno=file), cluster.decode()
            end.setblocking(False)
            tasks.spawn(f"tunnel {name}", lambda: tunnels.carry(SocketStream(end), name))

        tunnels.pass_on = pass_on
        siblings.take("tunnel", take)

    def ready(self) -> None:
        """Have connections come from now on."""
        if self.siblings is not None:
            self.siblings.ready()
            _log.info("worker is ready", worker=self.siblings.own_number)

    async def leave(self) -> None:
        """Have no more connections come."""
        if self.siblings is not None:
            await self.siblings.leave()

    def close(self) -> None:
        """End all that is open to the others."""
        if self.siblings is not None:
            self.siblings.close()


@dataclass(frozen=True, slots=True)
class Place:
    """Which worker a process is."""

    number: int
    port: int

    def open(self, on_orphaned: Callable[[], None]) -> Coworkers:
        """Return what is known of the others; `on_orphaned` hears that this worker has to end."""
        supervisor = socket.socket(fileno=os.dup(_SUPERVISOR))
        return Coworkers(Siblings(supervisor, self.number, on_orphaned))


def find_place() -> Place | None:
    """Return which worker this process is; None for one that is no worker."""
    number, _, port = os.environ.get(_PLACE, "").partition(":")
    return Place(int(number), int(port)) if number else None


# -- the supervisor --------------------------------------------------------------------------------


class _Worker:
    """A worker process, started again when it ends."""

    def __init__(self, number: int, others: "_Workers", clock: Clock) -> None:
        self.number = number
        self.packets: PacketSocket | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.has_joined = False
        self.is_ready = False
        self.was_ready = asyncio.Event()
        self._others = others
        self._clock = clock

    async def run(self, port: int) -> None:
        """Keep the process running; WorkersFailed if it ends before it was ever ready."""
        delays = _delays()
        while not self._others.is_stopping:
            started = self._clock.monotonic()
            code = await self._run_once(port)
            if self._others.is_stopping:
                return
            if not self.was_ready.is_set():
                why = f"worker {self.number} ended with {code} before it was ready: see above"
                raise WorkersFailed(why)
            _log.error("a worker has ended", worker=self.number, code=code)
            if self._clock.monotonic() - started >= _HEALTHY_AFTER_SECONDS:
                delays = _delays()
            await self._clock.sleep(next(delays))

    async def _run_once(self, port: int) -> int:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, _PLACE: f"{self.number}:{port}"}
        if environment.get(LIFELINE) == "stdin":
            del environment[LIFELINE]  # the socket there ends with us, too
        with there:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "clusterspace", *sys.argv[1:],
                stdin=there.fileno(), start_new_session=True, env=environment,
            )  # fmt: skip
        self.packets = PacketSocket(here, self._receive, lambda: None)
        try:
            return await self.process.wait()
        finally:
            self.is_ready = self.has_joined = False
            self._others.changed()
            self.packets.close()
            self.packets = None

    def send_signal(self, number: int) -> None:
        """Send the process a signal, if there is one."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def _receive(self, packet: Packet, _file: int) -> None:
        packets = self.packets
        if packets is None:
            return
        match packet.kind:
            case "join":
                self._others.introduce(self, packets)
            case "ready":
                self.is_ready = True
                self.was_ready.set()
                self._others.changed()
            case "leave":
                self.is_ready = False
                self._others.changed()
                packets.send(Packet("left"))
            case "secret":
                packets.send(Packet("reply", packet.number, "", self._others.secret))
            case "claim":
                is_first = self._others.claim(packet.body)
                packets.send(Packet("reply", packet.number, "", b"yes" if is_first else b""))
            case "deaf":
                self._others.end(packet.number)
            case _:
                _log.error("a worker says what is not understood", kind=packet.kind)


class _Workers:
    """All workers, and the sockets that they serve."""

    def __init__(self, count: int, clock: Clock) -> None:
        self.all = [_Worker(number, self, clock) for number in range(1, count + 1)]
        self.secret = secrets.token_bytes(32)
        self.is_stopping = False
        self._claimed: OrderedDict[bytes, None] = OrderedDict()
        self._listening: list[socket.socket] = []
        self._is_accepting = False
        self._next = 0
        self._loop = asyncio.get_running_loop()

    @contextlib.asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncGenerator[int]:
        """Listen for as long as the block lasts; yield the port."""
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self._listening.append(bind(family, address))
            yield self._listening[0].getsockname()[1]
        finally:
            listening, self._listening = self._listening, []
            for each in listening:
                self._loop.remove_reader(each)
                each.close()

    async def run(self, port: int) -> None:
        """Keep all workers running until they are to stop; all end with the first that fails."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in self.all:
                    group.create_task(each.run(port), name=f"worker {each.number}")
        except* WorkersFailed as failed:
            raise failed.exceptions[0] from None
        finally:
            self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send all workers a signal."""
        for each in self.all:
            each.send_signal(number)

    def introduce(self, new: _Worker, packets: PacketSocket) -> None:
        """Give a worker that is new a socket to each of the others."""
        for other in self.all:
            if other is new or not other.has_joined or other.packets is None:
                continue
            one, another = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            other.packets.send(Packet("sibling", new.number), one.detach())
            packets.send(Packet("sibling", other.number), another.detach())
        packets.send(Packet("introduced"))
        new.has_joined = True

    def claim(self, name: bytes) -> bool:
        """Whether this name was said for the first time."""
        if name in self._claimed:
            return False
        self._claimed[name] = None
        if len(self._claimed) > _MOST_CLAIMS:
            self._claimed.popitem(last=False)
        return True

    def end(self, number: int) -> None:
        """End a worker that does not hear what it would have to know."""
        for worker in self.all:
            if worker.number == number:
                _log.error("a worker is ended that does not hear", worker=number)
                worker.send_signal(signal.SIGKILL)

    def changed(self) -> None:
        """Accept connections as long as there is a worker to serve them; others wait."""
        is_accepting = any(each.is_ready for each in self.all)
        if is_accepting != self._is_accepting:
            self._is_accepting = is_accepting
            for each in self._listening:
                if is_accepting:
                    self._loop.add_reader(each, self._accept, each)
                else:
                    self._loop.remove_reader(each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("cannot accept connections", reason=str(error))
                self._loop.remove_reader(listening)
                self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._accept_again, listening)
                return
            ready = [each for each in self.all if each.is_ready]
            if not ready:
                accepted.close()
                return
            # In turns: connections are long, and what each will ask for is not known.
            self._next += 1
            packets = ready[self._next % len(ready)].packets
            address = str(peer[0]) if peer else ""
            if packets is None:
                accepted.close()
            else:
                packets.send(Packet("connection", body=address.encode()), accepted.detach())

    def _accept_again(self, listening: socket.socket) -> None:
        if self._is_accepting and listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)


async def supervise(settings: FleetSettings) -> None:
    """Run the workers of a fleet API server until told to stop."""
    if sys.platform != "linux":
        raise WorkersFailed("--workers: several processes at one address are for Linux")
    clock, installation = SystemClock(), Installation(settings.data_dir)
    hurry = asyncio.Event()
    stopped = stop_event(again=hurry)
    installation.make_authority(clock.now())
    installation.carry_authority()
    workers = _Workers(settings.workers, clock)
    async with workers.listening(settings.host, settings.port) as port:
        endpoint = settings.endpoint
        url = f"https://{endpoint}" if endpoint else server_url(settings.host, port)

        def write_kubeconfig() -> None:
            bundle = installation.load_authorities().bundle
            content = kubeconfig_of({FLEET_CONTEXT: url}, bundle, AuthInfo())
            write_private(installation.kubeconfig, content)

        async def follow_authority() -> None:
            known = installation.key_files()
            while True:
                await clock.sleep(_FILES_SECONDS)
                if (found := installation.key_files()) != known:
                    installation.carry_authority()
                    write_kubeconfig()
                    known = found

        async def become_ready() -> None:
            for each in workers.all:
                await each.was_ready.wait()
            write_kubeconfig()
            say_ready(url, settings.data_dir, workers=settings.workers)

        async def stop() -> None:
            """Once told to, ask all to end, each in its own time, and end those that do not."""
            await stopped.wait()
            _log.info("fleet is stopping")
            workers.is_stopping = True
            workers.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.shutdown_delay + _STOP_SECONDS):
                    await hurry.wait()
            workers.send_signal(signal.SIGKILL)

        async with Supervisor(clock, report) as tasks:
            tasks.keep("authority of the workers", follow_authority, restart=restarts)
            tasks.spawn("readiness", become_ready)
            tasks.spawn("end", stop)
            await workers.run(port)


def say_ready(url: str, data_dir: Path, **more: object) -> None:
    """Say that a fleet API server can be used, and how."""
    kubeconfig = Installation(data_dir).kubeconfig
    command = f"KUBECONFIG={kubeconfig}:KUBECONFIG_OF_THE_HUB kubectl"
    _log.info("fleet is ready", url=url, connect_with=command, **more)


def _delays() -> Iterator[float]:
    return clocks.exponential(0.2, 4.0)
