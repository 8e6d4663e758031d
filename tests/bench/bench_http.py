"""What a keep-alive GET of 2 KB costs the server in CPU time: `python -m tests.bench.bench_http`.

The server runs in a process of its own; the load comes from this one over plain TCP and over TLS.
"""

import asyncio
import multiprocessing
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop
from tests.component.serving.certificates import Authority

from clusterspace.apiserver.http.listener import HttpServer, server_context
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.requests import Request

BODY = b"x" * 2048
HEADERS = (("Content-Type", "application/json"), ("Audit-Id", "0d7cfe4e"))
REQUEST = (
    b"GET /api/v1/namespaces/default/pods/web HTTP/1.1\r\nHost: 127.0.0.1:5443\r\n"
    b"User-Agent: kubectl/v1.35\r\nAccept: application/json\r\nAuthorization: Bearer abcdef\r\n"
    b"Accept-Encoding: gzip\r\nKubectl-Session: 1\r\n\r\n"
)
CONNECTIONS = 32
SECONDS = 3.0


async def answer(_request: Request) -> Response:
    return Response(200, HEADERS, BODY)


async def serve(pipe: Pipe, tls: ssl.SSLContext | None) -> None:
    server = HttpServer(answer, tls=tls)
    await server.listen("127.0.0.1", 0)
    pipe.send(server.addresses[0][1])
    await asyncio.to_thread(pipe.recv)
    pipe.send(cpu_seconds())
    await asyncio.to_thread(pipe.recv)
    pipe.send(cpu_seconds())
    await server.drain(0)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run_server(
    pipe: Pipe, certificates: Path | None, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    tls = (
        server_context(certificates / "tls.crt", certificates / "tls.key") if certificates else None
    )
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(serve(pipe, tls))


async def ask_until(port: int, tls: ssl.SSLContext | None, end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    head = b""
    asked = 0
    while time.monotonic() < end:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(BODY))
        asked += 1
    assert head.startswith(b"HTTP/1.1 200 OK")
    writer.close()
    return asked


async def load(port: int, tls: ssl.SSLContext | None, seconds: float) -> int:
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask_until(port, tls, end)) for _ in range(CONNECTIONS)]
    return sum(task.result() for task in tasks)


def measure(
    name: str, certificates: Path | None, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=run_server, args=(theirs, certificates, loop_factory))
    process.start()
    port = ours.recv()
    tls = ssl.create_default_context(cafile=str(certificates / "ca.crt")) if certificates else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(load(port, tls, 0.5))
        ours.send(None)
        before = ours.recv()
        asked = runner.run(load(port, tls, SECONDS))
    ours.send(None)
    cpu = ours.recv() - before
    process.join()
    print(f"{name:16} {cpu / asked * 1e6:6.1f} us CPU/request  {asked / SECONDS:8.0f} requests/s")


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        certificates = Path(directory)
        Authority(certificates).issue("tls", host="127.0.0.1")
        measure("plain, uvloop", None, uvloop.new_event_loop)
        measure("plain, asyncio", None, asyncio.new_event_loop)
        measure("TLS, uvloop", certificates, uvloop.new_event_loop)
        measure("TLS, asyncio", certificates, asyncio.new_event_loop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
