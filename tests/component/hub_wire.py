"""A hub to test against, in this process or in one of its own, and a client that speaks to it."""

import asyncio
import base64
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Generator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from tests.component.serving.wire import Answer, RawClient

from clusterspace.apiserver.http.connections import Limits
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.programs import Program

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0
START_PATIENCE = 30.0
"""The first start of all compiles everything, perhaps beside other tests."""

TOKENS = """\
admin-token,admin,admin-uid,"system:masters"
viewer-token,viewer,viewer-uid,viewers
worker-token,worker,worker-uid,workers
flood-token,flood,flood-uid,workers
manager-token,system:kube-controller-manager,manager-uid
"""
ADMIN = "admin-token"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


def request_bytes(
    method: str,
    path: str,
    *headers: str,
    body: bytes = b"",
    content_type: str = JSON,
    token: str = ADMIN,
) -> bytes:
    """Return one request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: hub", f"Authorization: Bearer {token}", *headers]
    if body:
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def config_map(name: str, **members: Any) -> dict[str, Any]:
    """Return a small ConfigMap; `labels` and `finalizers` and such go into its metadata."""
    data = members.pop("data", {})
    metadata = {"name": name, **members}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def secret(name: str, **members: Any) -> dict[str, Any]:
    """Return a small Secret: unlike ConfigMaps, nobody but the test makes any in `default`."""
    data = {key: encoded(text) for key, text in members.pop("data", {}).items()}
    return {**config_map(name, **members), "kind": "Secret", "data": data}


def encoded(text: str) -> str:
    """Return text as a Secret carries it."""
    return base64.b64encode(text.encode()).decode()


@dataclass(frozen=True)
class Event:
    """One watch event, and the bytes it came as."""

    type: str
    object: dict[str, Any]
    raw: bytes

    @property
    def name(self) -> str:
        return self.object["metadata"]["name"]

    @property
    def revision(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])


class WatchStream:
    """An open watch."""

    def __init__(self, connection: RawClient, answer_headers: dict[str, str]) -> None:
        self._connection = connection
        self.headers = answer_headers

    async def next(self) -> Event | None:
        """Return the next event, or None when the hub has ended the stream."""
        raw = await self._connection.chunk()
        if not raw:
            return None
        decoded = msgspec.json.decode(raw)
        return Event(decoded["type"], decoded["object"], raw)

    async def take(self, count: int) -> list[Event]:
        """Return this many events; fewer only if the stream ended."""
        found = [await self.next() for _ in range(count)]
        return [each for each in found if each is not None]

    async def until(self, name: str) -> list[Event]:
        """Return the events up to and with the first about this name."""
        found: list[Event] = []
        while not found or found[-1].name != name:
            event = await self.next()
            assert event is not None, f"the watch ended before {name!r} came"
            found.append(event)
        return found

    async def rest(self) -> list[Event]:
        """Return what is left until the stream ends."""
        return [event async for event in self]

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event]:
        while (event := await self.next()) is not None:
            yield event

    async def is_quiet(self, seconds: float = 0.15) -> bool:
        """Whether nothing comes for a while."""
        try:
            async with asyncio.timeout(seconds):
                await self._connection.reader.readexactly(1)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._connection.vanish()


class HubClient:
    """Speaks to one hub over TLS: one kept connection for requests, one for each watch."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, token: str = ADMIN) -> None:
        self.host, self.port, self.tls, self.token = host, port, tls, token
        self._kept: RawClient | None = None
        self._opened: list[RawClient] = []

    async def connect(self) -> RawClient:
        """Open a connection of its own."""
        reader, writer = await asyncio.open_connection(
            self.host, self.port, ssl=self.tls, limit=2**24
        )
        connection = RawClient(reader, writer)
        self._opened.append(connection)
        return connection

    async def ask(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        token: str = "",
        agent: str = "test",
        headers: Sequence[str] = (),
    ) -> Answer:
        """Send one request and return its answer; a broken connection raises and is forgotten."""
        body = content if isinstance(content, bytes) else b""
        if content is not None and not isinstance(content, bytes):
            body = msgspec.json.encode(content)
        raw = request_bytes(
            method,
            path,
            f"Accept: {accept}",
            f"User-Agent: {agent}",
            *headers,
            body=body,
            content_type=content_type,
            token=token or self.token,
        )
        connection = self._kept or await self.connect()
        self._kept = None  # until the answer is whole, nobody may use it again
        answer = await connection.ask(raw)
        if answer.headers.get("connection") == "close":
            connection.close()
        else:
            self._kept = connection
        return answer

    async def do(self, method: str, path: str, content: Any = None, **how: Any) -> Any:
        """Send a request that must succeed; return its body."""
        answer = await self.ask(method, path, content, **how)
        assert answer.status < 300, (method, path, answer.status, answer.body[:500])
        return msgspec.json.decode(answer.body)

    async def refused(self, method: str, path: str, content: Any = None, **how: Any) -> int:
        """Send a request that must be refused with a Status; return the code."""
        answer = await self.ask(method, path, content, **how)
        assert answer.status >= 400, (method, path, answer.status, answer.body[:500])
        answer.status_message()
        return answer.status

    async def watch(self, path: str, query: str = "", *, accept: str = JSON) -> WatchStream:
        """Open a watch that must begin with 200."""
        connection = await self.connect()
        whole = f"{path}?watch=1" + (f"&{query}" if query else "")
        raw = request_bytes("GET", whole, f"Accept: {accept}", token=self.token)
        await connection.send(raw)
        status, headers = await connection.head()
        assert status == 200, (whole, status)
        return WatchStream(connection, headers)

    def close(self) -> None:
        for connection in self._opened:
            connection.vanish()


def tls_of(data_dir: Path) -> ssl.SSLContext:
    """Return the context of a client that trusts the hub's authority."""
    return ssl.create_default_context(cafile=str(data_dir / "pki" / "ca.crt"))


def write_tokens(data_dir: Path) -> Path:
    """Make the directory of a hub, with the tokens of its users."""
    data_dir.mkdir(parents=True, exist_ok=True)
    tokens = data_dir / "tokens.csv"
    tokens.write_text(TOKENS)
    return tokens


async def wait_until_settled(client: HubClient) -> None:
    """Wait until a new hub has made what every namespace has, and writes no more of its own."""
    revisions: list[str] = []
    while len(revisions) < 5 or len(set(revisions[-5:])) > 1:
        listed = await client.do("GET", f"{SECRETS}?limit=1")
        revisions.append(listed["metadata"]["resourceVersion"])
        await asyncio.sleep(0.01)


@asynccontextmanager
async def hub_here(
    data_dir: Path, *, store: str = "memory", limits: Limits | None = None
) -> AsyncGenerator[HubClient]:
    """Run a hub in this event loop; yield a client of its administrator."""
    settings = HubSettings(
        data_dir,
        port=0,
        store=store,
        token_auth_file=write_tokens(data_dir),
        member_cidrs=LOOPBACK,
        connections=limits or Limits(),
    )
    async with running_hub(settings) as running:
        address = urlsplit(running.url)
        assert address.hostname
        assert address.port
        client = HubClient(address.hostname, address.port, tls_of(data_dir))
        try:
            await wait_until_settled(client)
            yield client
        finally:
            client.close()


class HubProcess:
    """A hub as a user starts it, and what a user can do to it."""

    def __init__(self, data_dir: Path, command: Sequence[str], *, port: int = 0) -> None:
        """Start it; `command` is a Python module with its first words."""
        tokens = write_tokens(data_dir)
        self.data_dir = data_dir
        self.log = data_dir / "hub.log"
        (data_dir / "kubeconfig").unlink(missing_ok=True)
        options = ["--data-dir", str(data_dir), "--port", str(port), "--log-format", "json"]
        options += ["--token-auth-file", str(tokens)]
        module, *words = command
        self._process = Program(module, [*words, *options], log=self.log, directory=ROOT)
        self._started = time.monotonic()

    def wait_ready(self) -> float:
        """Wait for the kubeconfig, which appears when the hub is ready; return the seconds."""
        while not (self.data_dir / "kubeconfig").exists():
            is_late = time.monotonic() - self._started > START_PATIENCE
            if is_late or not self.is_running:
                self.kill()
                raise AssertionError(f"the hub did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.005)
        return time.monotonic() - self._started

    @property
    def address(self) -> tuple[str, int]:
        """Where a ready hub listens, as its kubeconfig says."""
        config = msgspec.yaml.decode((self.data_dir / "kubeconfig").read_bytes())
        url = urlsplit(config["clusters"][0]["cluster"]["server"])
        assert url.hostname
        assert url.port
        return url.hostname, url.port

    def client(self, token: str = ADMIN) -> HubClient:
        host, port = self.address
        return HubClient(host, port, tls_of(self.data_dir), token)

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        """How much memory the process holds."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def processor_seconds(self) -> float:
        """How long processors have worked for it: the same on a busy machine as on an idle one."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        user, system = fields[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Kill it as a power cut would, as far as a process can tell."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def bugs(self) -> list[str]:
        """Return the log lines of failures that nobody may cause from outside."""
        lines = self.log.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        strange = [line for line in lines if not line.startswith("{") and line.strip()]
        return strange + [str(each) for each in events if each["level"] in ("error", "critical")]


@contextmanager
def hub_process(
    data_dir: Path, *, store: str = "memory", command: Sequence[str] = ("clusterspace", "hub")
) -> Generator[HubProcess]:
    """Run a hub in a process of its own until the block ends."""
    hub = HubProcess(data_dir, [*command, "--store", store])
    try:
        hub.wait_ready()
        yield hub
    finally:
        hub.kill()
