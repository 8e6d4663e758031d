"""What the default audit policy costs of a write: `python -m tests.bench audit`.

A hub as every hub is, with its audit log on disk, creates and updates ConfigMaps and Deployments
over one kept connection. The CPU time of what audits a request, the decision and the event on the
loop and its line in the thread of the log, is taken while it runs, less what looking at a clock
takes there. It is compared with the CPU time of the whole process, all threads together: both grow
alike when the machine is busy, so the share can be trusted there too.
"""

import asyncio
import gc
import json
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clusterspace.aio import event_loop
from clusterspace.apiserver.access.audit_log import AuditLog
from clusterspace.apiserver.http.audit_events import Audit
from clusterspace.apiserver.http.audit_policy import Policy
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.builders import deployment

BUDGET_SHARE = 0.05
WRITES = 4000
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TOKEN = "bench-token"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"page": "x" * 1024}}


class Stopwatch:
    """CPU time of some calls, while everything else goes on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begun = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.seconds += time.thread_time() - begun
                self.calls += 1

        return timed


def beside(call: Callable[..., Any], extra: Callable[[], object]) -> Callable[..., Any]:
    """Have something else called before each call."""

    def both(*arguments: Any, **named: Any) -> Any:
        extra()
        return call(*arguments, **named)

    return both


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Client:
    """One kept connection; its own CPU time is told apart from the hub's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, method: str, path: str, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: hub\r\nUser-Agent: kubectl/v1.35\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(raw)}\r\n\r\n".encode()
            + raw
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self._reader.readexactly(length)


def in_thread(url: str, authority: Path) -> float:
    """Write everything from a thread with a loop of its own; return the CPU time of that."""

    async def write() -> None:
        tls = ssl.create_default_context(cafile=str(authority))
        where = urlsplit(url)
        client = Client(*await asyncio.open_connection(where.hostname, where.port, ssl=tls))
        for number in range(WRITES // 4):
            name = {"metadata": {"name": f"m-{number}"}}
            await client.ask("POST", MAPS, {**MAP, **name})
            await client.ask("PUT", f"{MAPS}/m-{number}", {**MAP, **name, "data": {"page": "y"}})
            made = deployment(f"m-{number}")
            await client.ask("POST", DEPLOYMENTS, made)
            made["spec"]["replicas"] = 3
            await client.ask("PUT", f"{DEPLOYMENTS}/m-{number}", made)

    begun = time.thread_time()
    asyncio.run(write())
    return time.thread_time() - begun


async def measure(directory: Path) -> float:
    """Return the share of a write's CPU time that auditing it takes."""
    tokens = directory / "tokens.csv"
    tokens.write_text(f"{TOKEN},bench,1,system:masters\n")
    audits = Stopwatch()
    Audit._write = audits.around(Audit._write)
    Policy.decide = audits.around(Policy.decide)
    AuditLog.write = audits.around(AuditLog.write)
    settings = HubSettings(directory / "hub", token_auth_file=tokens)
    nothing = Stopwatch()
    Audit.__call__ = beside(Audit.__call__, nothing.around(lambda: None))
    async with running_hub(settings) as hub:
        gc.freeze()  # as the hub does once it is ready
        for each in (audits, nothing):
            each.seconds, each.calls = 0.0, 0
        before = cpu_seconds()
        clients = await asyncio.to_thread(in_thread, hub.url, hub.installation.authority_file)
        taken = cpu_seconds() - before - clients
    looking = nothing.seconds / nothing.calls * audits.calls
    audit, write = (each / WRITES * 1e6 for each in (audits.seconds - looking, taken))
    print(f"a write {write:7.1f} us CPU, auditing it {audit:5.1f} us: {audit / write:.1%}")
    return audit / write


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=event_loop.new_event_loop) as runner,
    ):
        share = runner.run(measure(Path(directory)))
    is_within = share <= BUDGET_SHARE
    print(f"{'within' if is_within else 'OVER'} the budget of {BUDGET_SHARE:.0%}")
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
