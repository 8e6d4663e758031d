"""A real hub process for tests that look at it from outside, as its users do."""

import http.client
import json
import signal
import ssl
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from tests.protobuf_answers import PROTOBUF, read_event, read_list

from clusterspace.testing.programs import Program

ADMIN_TOKEN = "admin-token"
VIEWER_TOKEN = "viewer-token"
TOKENS = f"""\
{ADMIN_TOKEN},admin,admin,"system:masters"
{VIEWER_TOKEN},viewer,viewer,"viewers"
"""
JSON = "application/json"
WATCH_IN_PROTOBUF = f"{PROTOBUF};stream=watch"
MERGE_PATCH = "application/merge-patch+json"
PATIENCE = 30.0
SHOWN_LINES = 60

Json = Any
"""A decoded answer; each test knows the shape it asked for."""


@dataclass(frozen=True)
class Answer:
    """What the hub said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        if self.headers.get("content-type") == PROTOBUF:
            return read_list(self.body)
        return json.loads(self.body)


class Stream:
    """A watch: events as they come, until the hub or the test ends it."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def next(self) -> Json:
        """Return the next event; a watch that has ended has none, and that is a failure."""
        event = self._read()
        assert event is not None, "the watch ended"
        return event

    def rest(self) -> list[Json]:
        """Return every event up to the end of the watch."""
        return list(iter(self._read, None))

    def _read(self) -> Json | None:
        if self.headers["content-type"] != WATCH_IN_PROTOBUF:
            line = self._response.readline()
            return json.loads(line) if line else None
        length = self._response.read(4)
        return read_event(self._response.read(int.from_bytes(length, "big"))) if length else None


class Connections:
    """Connections to one server that are kept, one for each thread that asks."""

    def __init__(self, url: str, trust: ssl.SSLContext) -> None:
        self._place = urlsplit(url)
        self._trust = trust
        self._kept = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []

    def open(self) -> http.client.HTTPSConnection:
        """Open a connection for somebody who closes it."""
        assert self._place.hostname is not None
        return http.client.HTTPSConnection(
            self._place.hostname, self._place.port, timeout=PATIENCE, context=self._trust
        )

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Send one request and return the answer, whatever it is."""
        connection: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        is_new = connection is None
        if connection is None:
            connection = self._kept.connection = self.open()
            self._opened.append(connection)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            answered = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, answered, response.read())
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
            connection.close()
            del self._kept.connection
            if is_new:
                raise
            # It was closed while nobody asked: whatever was sent since has reached nobody.
            return self.ask(method, path, body, headers)

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


@dataclass(frozen=True)
class RunningHub:
    """A hub that answers at `url`; whoever holds its kubeconfig is its administrator."""

    url: str
    kubeconfig: Path
    authority: Path
    log: Path
    connections: Connections

    def ask(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        accept: str = JSON,
        content_type: str = JSON,
        **headers: str,
    ) -> Answer:
        """Send one request as the administrator and return the answer, whatever it is."""
        sent = {"Accept": accept, **_dashed(headers)}
        if body is not None:
            sent["Content-Type"] = content_type
        payload = None if body is None else json.dumps(body).encode()
        return self.connections.ask(method, path, payload, self._signed(sent))

    def get(self, path: str) -> Json:
        """Return the object or list at a path that must be there."""
        answer = self.ask("GET", path)
        assert answer.status == 200, f"GET {path}: {answer.status} {answer.body!r}"
        return answer.json

    def create(self, path: str, kube_object: Json) -> Json:
        """Create an object that must be accepted."""
        answer = self.ask("POST", path, kube_object)
        assert answer.status == 201, f"POST {path}: {answer.status} {answer.body!r}"
        return answer.json

    def patch(self, path: str, change: Json) -> Json:
        """Apply a merge patch that must be accepted."""
        answer = self.ask("PATCH", path, change, content_type=MERGE_PATCH)
        assert answer.status == 200, f"PATCH {path}: {answer.status} {answer.body!r}"
        return answer.json

    def watch(self, path: str, *, accept: str = JSON, **headers: str) -> Stream:
        """Open a watch; close it with `with`."""
        connection = self.connections.open()
        connection.request("GET", path, None, self._signed({"Accept": accept, **_dashed(headers)}))
        return Stream(connection)

    def errors(self) -> list[str]:
        """Return the log lines that say something went wrong inside the hub."""
        text = self.log.read_text()
        # Most lines are read by nobody: to decode them all after each test would take longer.
        lines = [
            line
            for line in text.splitlines()
            if not line.startswith("{") or "error" in line or "critical" in line
        ]
        return [line for line in lines if _level_of(line) in {"error", "critical"}]

    def last_words(self) -> str:
        """Return the end of the log, for whoever reads a failure."""
        return "\n".join(self.log.read_text().splitlines()[-SHOWN_LINES:])

    def _signed(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {ADMIN_TOKEN}", **headers}


ALLOW_LOOPBACK = ("--allow-member-cidrs", "127.0.0.0/8")
"""What parts are told whose members are on this machine."""


@contextmanager
def running_hub(directory: Path) -> Generator[RunningHub]:
    """Run a hub that keeps its objects in memory, for as long as the block lasts."""
    command = ("hub", "--port", "0", "--store", "memory", *ALLOW_LOOPBACK)
    with running_server(directory, *command, *tokens_in(directory)) as hub:
        yield hub


def tokens_in(directory: Path) -> tuple[str, str]:
    """Write down whom a server knows by token; return the option that says where."""
    tokens = directory / "tokens.csv"
    tokens.write_text(TOKENS)
    return "--token-auth-file", str(tokens)


@contextmanager
def running_server(directory: Path, *arguments: str) -> Generator[RunningHub]:
    """Run a server of ours, whose kubeconfig appears once it is ready."""
    data, log = directory / "data", directory / "server.log"
    words = [*arguments, "--data-dir", str(data), "--log-format", "json"]
    with ExitStack() as stack:
        process = Program("clusterspace", words, log=log, directory=directory)
        stack.callback(_stop, process)
        kubeconfig, authority = data / "kubeconfig", data / "pki" / "ca.crt"
        _wait_for(kubeconfig, process, log)
        trust = ssl.create_default_context(cafile=str(authority))
        url = _server_of(kubeconfig)
        connections = Connections(url, trust)
        stack.callback(connections.close)
        yield RunningHub(url, kubeconfig, authority, log, connections)


def _wait_for(kubeconfig: Path, process: Program, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not kubeconfig.exists():
        assert process.poll() is None, f"the hub ended at once:\n{log.read_text()}"
        assert time.monotonic() < deadline, f"the hub is not ready:\n{log.read_text()}"
        time.sleep(0.05)


def _stop(process: Program) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()


def _server_of(kubeconfig: Path) -> str:
    config = msgspec.yaml.decode(kubeconfig.read_bytes())
    return config["clusters"][0]["cluster"]["server"]


def _level_of(line: str) -> str:
    try:
        return json.loads(line).get("level", "")
    except ValueError:
        # Not a log line: something wrote past the log, such as a traceback at the very end.
        return "error"


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
