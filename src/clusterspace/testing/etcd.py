"""etcd for tests: real members over TLS, and a proxy in front that understands only what kine does.

Where no etcd is found the asking test is skipped, by name.
"""

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import grpc
import grpc.aio
import msgspec
import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdClient, EtcdSettings
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import StoreError
from clusterspace.kube.protobuf.wire import read_fields, write_bytes_field
from clusterspace.roots import hub
from clusterspace.roots.local.load_balancer import LoadBalancer
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.hub_stores import ETCD, obey_environment
from clusterspace.testing.hubs import ASSETS, MASTERS_TRAVEL, free_port
from clusterspace.testing.steps import stop

_START_SECONDS: Final = 60.0


def find_program(name: str) -> Path | None:
    """Return a program from where controller authors have them or from PATH, or None."""
    directory = Path(os.environ.get("KUBEBUILDER_ASSETS") or ASSETS)
    if (directory / name).exists():
        return directory / name
    found = shutil.which(name)
    return None if found is None else Path(found)


def find_etcd() -> Path | None:
    """Return etcd's program, or None where there is none."""
    return find_program("etcd")


@dataclass(slots=True)
class EtcdMember:
    """One process of an etcd cluster."""

    program: Path
    name: str
    url: str
    arguments: list[str]
    directory: Path
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, on the data it had."""
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                self.program,
                *self.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def kill(self) -> None:
        """End it as a power failure does."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def freeze(self) -> None:
        """Stop it where it is."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)


@dataclass(slots=True)
class EtcdCluster:
    """A running etcd cluster, and how to reach it."""

    settings: EtcdSettings
    members: list[EtcdMember] = field(default_factory=list[EtcdMember])

    def at(self, prefix: str) -> EtcdSettings:
        """Return the settings of a store in a part of its own."""
        return replace(self.settings, prefix=prefix)

    async def until_ready(self) -> None:
        """Wait until its quorum answers."""
        async with asyncio.timeout(_START_SECONDS):
            while True:
                try:
                    client = await EtcdClient.open(self.settings)
                except StoreError:
                    continue
                try:
                    await client.read(messages.RANGE, messages.range_request(b"/"))
                except StoreError:
                    continue
                finally:
                    await client.close()
                return


@asynccontextmanager
async def etcd_for_test(
    directory: Path, *, members: int = 1, tls: bool = True, is_durable: bool = False
) -> AsyncGenerator[EtcdCluster]:
    """Run an etcd cluster; `is_durable` for tests that kill it and count what is left.

    TLS is the business of a relay in front of each member: builds of etcd for tests of controllers
    have no flags for it.
    """
    program = find_etcd()
    if program is None:
        pytest.skip("no etcd: set KUBEBUILDER_ASSETS to where it is, or have it in PATH")
    names = [f"member-{number}" for number in range(members)]
    peers = {name: f"http://127.0.0.1:{free_port()}" for name in names}
    ports = {name: free_port() for name in names}
    async with AsyncExitStack() as stack:
        urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        settings = EtcdSettings(tuple(urls.values()))
        if tls:
            front, settings = _with_tls(directory)
            relays = [stack.enter_context(_TlsRelay(front, port)) for port in ports.values()]
            servers = tuple(f"https://127.0.0.1:{relay.port}" for relay in relays)
            settings = replace(settings, servers=servers)
        cluster = EtcdCluster(settings)
        for name in names:
            arguments = [
                f"--name={name}",
                f"--data-dir={directory / name}",
                f"--listen-client-urls={urls[name]}",
                f"--advertise-client-urls={urls[name]}",
                f"--listen-peer-urls={peers[name]}",
                f"--initial-advertise-peer-urls={peers[name]}",
                f"--initial-cluster={','.join(f'{each}={url}' for each, url in peers.items())}",
                *([] if is_durable else ["--unsafe-no-fsync"]),
            ]
            member = EtcdMember(program, name, urls[name], arguments, directory)
            cluster.members.append(member)
            stack.push_async_callback(member.kill)
            await member.start()
        await cluster.until_ready()
        yield cluster


def _with_tls(directory: Path) -> tuple[ssl.SSLContext, EtcdSettings]:
    now = SystemClock().now()
    authority = Authority.create("etcd of tests", now)
    server = authority.issue_server(("127.0.0.1", "localhost"), now)
    client = authority.issue_client("hub", (), now)
    files = {
        "ca.crt": authority.pair.certificate,
        "server.pem": server.certificate + server.key,
        "hub.crt": client.certificate,
        "hub.key": client.key,
    }
    for name, data in files.items():
        (directory / name).write_bytes(data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    context.load_verify_locations(directory / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    settings = EtcdSettings(
        (),
        ca_file=directory / "ca.crt",
        cert_file=directory / "hub.crt",
        key_file=directory / "hub.key",
    )
    return context, settings


class _TlsRelay:
    """Ends TLS in front of one member; in a thread of its own, as tests have loops of their own."""

    def __init__(self, context: ssl.SSLContext, target: int) -> None:
        self.port = free_port()
        self._context = context
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"TLS in front of {target}")

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        open_relays: set[asyncio.Task[None]] = set()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            open_relays.add(task)
            try:
                inner_reader, inner_writer = await asyncio.open_connection(
                    "127.0.0.1", self._target
                )
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, inner_writer))
                    group.create_task(_copy(inner_reader, writer))
            except (OSError, asyncio.CancelledError):
                pass
            finally:
                open_relays.discard(task)
                writer.transport.abort()

        async with await asyncio.start_server(relay, "127.0.0.1", self.port, ssl=self._context):
            self._listening.set()
            try:
                await asyncio.Event().wait()
            finally:
                for task in open_relays:
                    task.cancel()
                if open_relays:
                    await asyncio.wait(open_relays)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


# -- what kine refuses ---------------------------------------------------------------------------

_Fields = dict[int, list[Any]]


def _fields(data: bytes) -> _Fields:
    found: _Fields = {}
    for each in read_fields(data, "etcd"):
        found.setdefault(each.number, []).append(each.value)
    return found


def refusal_of_txn(request: bytes) -> str:
    """Say why kine would not carry out a transaction; nothing when it would."""
    txn = _fields(request)
    compares = [_fields(each) for each in txn.get(1, [])]
    success = [_fields(each) for each in txn.get(2, [])]
    failure = [_fields(each) for each in txn.get(3, [])]
    if len(compares) != 1 or len(success) != 1 or len(failure) > 1:
        return "one comparison, one operation, and at most one other"
    compare, operation = compares[0], success[0]
    if compare.get(1, [0])[-1] != 0 or compare.get(64):
        return "only whether a key equals"
    key, target = compare[3][-1], compare.get(2, [0])[-1]
    if failure and _range_of(failure[0]) != key:
        return "otherwise the same key is read"
    if target == 0:
        is_mark = key == messages.COMPACTION_KEY and failure and 2 in operation
        return "" if is_mark else "versions are compared of compact_rev_key alone"
    if target != 2:
        return "revisions of changes are compared"
    if 2 in operation:
        put = _fields(operation[2][-1])
        if put[1][-1] != key or set(put) - {1, 2}:
            return "the compared key is put, without options"
        is_create = compare.get(6, [0])[-1] == 0
        return "" if is_create != bool(failure) else "a create reads nothing, an update does"
    if 3 in operation:
        delete = _fields(operation[3][-1])
        if delete[1][-1] != key or set(delete) - {1} or not failure:
            return "the compared key is deleted, or read"
        return ""
    return "a key is put or deleted"


def _range_of(operation: _Fields) -> bytes | None:
    if set(operation) != {1}:
        return None
    found = _fields(operation[1][-1])
    return found[1][-1] if set(found) <= {1} else None


def refusal_of_range(request: bytes) -> str:
    """Say why kine would not answer a range; nothing when it would."""
    odd = set(_fields(request)) - {1, 2, 3, 4}
    return f"a range has no options {sorted(odd)}" if odd else ""


def refusal_of_watch(request: bytes) -> str:
    """Say why kine would not take a message of a watch; nothing when it would."""
    message = _fields(request)
    if 3 in message:
        return ""
    if 1 not in message:
        return "watches are created, and asked for progress"
    odd = set(_fields(message[1][-1])) - {1, 2, 3, 4, 6}
    return f"a watch has no options {sorted(odd)}" if odd else ""


_streams: Any = grpc.stream_stream_rpc_method_handler
_answers: Any = grpc.unary_unary_rpc_method_handler


class EtcdProxy:
    """Stands in front of etcd, passes on what kine understands, and makes trouble when told to.

    It names a version of etcd and belongs to no cluster, as kine; unless it is to be as etcd.
    """

    def __init__(self, settings: EtcdSettings, *, is_kine: bool = True) -> None:
        self.settings = settings
        self._is_kine = is_kine
        """How to reach the proxy."""
        self.refused: list[str] = []
        """What kine would not have understood."""
        self.lost_answers = 0
        """How many of the next transactions are carried out, and their answers lost."""
        self.lost_requests = 0
        """How many of the next transactions are lost on their way."""
        self.late_requests = 0
        """How many of the next transactions are put aside: the caller hears nothing of them."""
        self.late: list[bytes] = []
        """Those, for the test to send them on when it likes."""
        self.is_full = False
        """Whether transactions are refused for want of room, once no more answers get lost."""
        self.fills_up = False
        """Whether the next transactions are carried out, and told that there was no room."""
        self.lost_events = 0
        """How many of the next events are left out of watches, without a word."""
        self.is_watchable = asyncio.Event()
        """Watches stand still, and new ones are not opened, while it is not set."""
        self.is_watchable.set()
        self.is_in_sync = asyncio.Event()
        """Watches are opened, and nothing more is heard of them, while it is not set."""
        self.is_in_sync.set()
        self.opened_watches = self.progress_requests = 0
        self._streams: set[Any] = set()

    def cut_watches(self) -> None:
        """End every open watch, and open none before `is_watchable` is set."""
        self.is_watchable.clear()
        for stream in self._streams:
            stream.cancel()

    async def unary(self, channel: Any, method: str, request: bytes, context: Any) -> bytes:
        """Pass one call on."""
        refusal = {messages.TXN: refusal_of_txn, messages.RANGE: refusal_of_range}.get(method)
        why = "" if refusal is None or not self._is_kine else refusal(request)
        if why:
            self.refused.append(f"{method}: {why}")
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, why)
        if method == messages.TXN and self.late_requests:
            self.late_requests -= 1
            self.late.append(request)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was cut")
        if method == messages.TXN and self.lost_requests:
            self.lost_requests -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was cut")
        if method == messages.TXN and self.is_full and not self.lost_answers:
            why = "etcdserver: mvcc: database space exceeded"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        try:
            answer: bytes = await channel.unary_unary(method)(request)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details())
            raise
        if method == messages.TXN and self.lost_answers:
            self.lost_answers -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was cut")
        if method == messages.TXN and self.fills_up:
            why = "etcdserver: mvcc: database space exceeded"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        return answer

    async def watch(
        self, channel: Any, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """Pass a stream of watches on."""
        await self.is_watchable.wait()

        async def checked() -> AsyncIterator[bytes]:
            async for request in requests:
                self.progress_requests += request == messages.progress_request()
                why = refusal_of_watch(request)
                if why:
                    self.refused.append(f"watch: {why}")
                    await context.abort(grpc.StatusCode.UNIMPLEMENTED, why)
                yield request

        stream: Any = channel.stream_stream(messages.WATCH)(checked())
        self._streams.add(stream)
        self.opened_watches += 1
        try:
            async for answer in stream:
                await self.is_watchable.wait()
                if not messages.read_watch(answer).created:
                    await self.is_in_sync.wait()
                if self.lost_events and messages.read_watch(answer).changes:
                    self.lost_events -= 1
                    continue
                yield answer
        except asyncio.CancelledError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was cut")
        finally:
            self._streams.discard(stream)
            stream.cancel()


@asynccontextmanager
async def etcd_proxy(cluster: EtcdCluster, *, is_kine: bool = True) -> AsyncGenerator[EtcdProxy]:
    """Run a proxy in front of the first member, in this event loop."""
    async with AsyncExitStack() as stack:
        target = cluster.members[0].url.removeprefix("http://")
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(target))
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        proxy = EtcdProxy(EtcdSettings((f"http://127.0.0.1:{port}",)), is_kine=is_kine)

        async def status(request: bytes, context: Any) -> bytes:
            del request, context
            # As kine says it: a version of etcd that it claims to be, and no cluster.
            return write_bytes_field(1, b"") + write_bytes_field(2, b"3.6.11")

        class Handlers(grpc.GenericRpcHandler):
            def service(self, handler_call_details: Any) -> Any:
                method = str(handler_call_details.method)
                if method == messages.WATCH:
                    return _streams(partial(proxy.watch, channel))
                if method == messages.STATUS and is_kine:
                    return _answers(status)
                return _answers(partial(proxy.unary, channel, method))

        server.add_generic_rpc_handlers((Handlers(),))
        await server.start()
        try:
            yield proxy
        finally:
            proxy.is_watchable.set()
            await server.stop(None)


# -- three hubs ----------------------------------------------------------------------------------


@asynccontextmanager
async def several_hubs_for_test(
    directory: Path, *, tokens: str = "", identities: MemberIdentities = MASTERS_TRAVEL
) -> AsyncGenerator[ConnectionSettings]:
    """Run three hubs on one etcd, in this event loop, and one address before them.

    Every connection gets to another hub. What one hub alone has in its directory is in this one.
    """
    (directory / "etcd").mkdir()
    token_file = directory / "tokens.csv" if tokens else None
    if token_file is not None:
        token_file.write_text(tokens)
    keys = directory / "encryption.json"
    keys.write_bytes(_encryption())
    port = free_port()
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(etcd_for_test(directory / "etcd"))
        ports: dict[str, int] = {}
        for number in (1, 2, 3):
            settings = HubSettings(
                directory if number == 1 else directory / f"hub-{number}",
                port=free_port(),
                etcd=etcd.settings,
                encryption_file=keys,
                endpoint=f"127.0.0.1:{port}",
                member_cidrs=LOOPBACK,
                token_auth_file=token_file,
                identities=identities,
            )
            await stack.enter_async_context(hub.running_hub(settings))
            ports[f"hub-{number}"] = settings.port
        balancer = LoadBalancer(port, ports, SystemClock())
        running = asyncio.create_task(balancer.run(), name="load balancer")
        stack.push_async_callback(stop, running)
        await balancer.wait_ready()
        yield read_kubeconfig([directory / "kubeconfig"]).settings(cluster="hub")


def _encryption() -> bytes:
    key = {"name": "one", "secret": base64.b64encode(b"0123456789abcdef" * 2).decode()}
    providers: list[dict[str, Any]] = [{"aesgcm": {"keys": [key]}}, {"identity": {}}]
    config: dict[str, Any] = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    }
    return msgspec.json.encode(config)


# -- any suite on etcd ---------------------------------------------------------------------------


@contextlib.contextmanager
def hubs_on_etcd(directory: Path) -> Generator[None]:
    """Have every hub of this process, and of programs it forks, keep its objects in one etcd."""
    program = find_etcd()
    if program is None:
        pytest.fail("no etcd: set KUBEBUILDER_ASSETS to where it is, or have it in PATH")
    url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    arguments = [
        f"--data-dir={directory / 'data'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        # No hub lives long enough to do it, and each would have to pass by all that others wrote.
        "--auto-compaction-mode=revision",
        "--auto-compaction-retention=5000",
    ]
    with (directory / "etcd.log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)  # noqa: S603
    try:
        obey_environment()
        os.environ[ETCD] = url
        yield
    finally:
        del os.environ[ETCD]
        process.kill()
        process.wait()
