"""What a GET, a LIST and a WATCH cost the server in CPU: `python -m tests.bench.bench_http`.

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

from clusterspace.aio.event_loop import new_event_loop
from clusterspace.apiserver.http.listener import HttpServer, server_context
from clusterspace.apiserver.http.messages import Request, Response

BODIES = {"get": b"x" * 2048, "list": b"x" * (4 << 20)}
EVENT = b"x" * 1023 + b"\n"
EVENTS = 100
HEADERS = (("Content-Type", "application/json"), ("Audit-Id", "0d7cfe4e"))
REQUEST = (
    b"GET /%b HTTP/1.1\r\nHost: 127.0.0.1:5443\r\n"
    b"User-Agent: kubectl/v1.35\r\nAccept: application/json\r\nAuthorization: Bearer abcdef\r\n"
    b"Accept-Encoding: gzip\r\nKubectl-Session: 1\r\n\r\n"
)
CONNECTIONS = 32
SECONDS = 3.0


async def answer(request: Request) -> Response | None:
    if request.path != "/watch":
        return Response(200, HEADERS, BODIES[request.path[1:]])
    # A hundred events, each written when it happens, as watches are.
    stream = request.start_stream(200, HEADERS)
    for _ in range(EVENTS):
        stream.write(EVENT)
        await stream.drain()
        await asyncio.sleep(0)
    return None


async def serve(pipe: Pipe, tls: ssl.SSLContext | None) -> None:
    server = HttpServer(answer, tls=tls)
    await server.listen("127.0.0.1", 0)
    pipe.send(server.addresses[0][1])
    for _ in range(6):  # before and after each of the three
        await asyncio.to_thread(pipe.recv)
        pipe.send(cpu_seconds())
    await asyncio.to_thread(pipe.recv)
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


async def ask_until(port: int, tls: ssl.SSLContext | None, what: str, end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1 << 20)
    head = b""
    asked = 0
    while time.monotonic() < end:
        writer.write(REQUEST % what.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if what == "watch":
            await reader.readuntil(b"\r\n0\r\n\r\n")
        else:
            await reader.readexactly(len(BODIES[what]))
        asked += 1
    assert not asked or head.startswith(b"HTTP/1.1 200 OK")
    writer.close()
    return asked


async def load(port: int, tls: ssl.SSLContext | None, what: str, seconds: float) -> int:
    end = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask_until(port, tls, what, end)) for _ in range(CONNECTIONS)]
    return sum(task.result() for task in tasks)


def measure(
    name: str, certificates: Path | None, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=run_server, args=(theirs, certificates, loop_factory))
    process.start()
    port = ours.recv()
    tls = ssl.create_default_context(cafile=str(certificates / "ca.crt")) if certificates else None
    for what in ("get", "list", "watch"):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(load(port, tls, what, 0.5))
            ours.send(None)
            before = ours.recv()
            asked = runner.run(load(port, tls, what, SECONDS))
        ours.send(None)
        cpu = ours.recv() - before
        print(
            f"{name:16} {what:6} {cpu / asked * 1e6:8.1f} us CPU/request"
            f" {asked / SECONDS:8.0f} requests/s"
        )
    ours.send(None)
    process.join()


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        certificates = Path(directory)
        Authority(certificates).issue("tls", host="127.0.0.1")
        measure("plain, ours", None, new_event_loop)
        measure("plain, asyncio", None, asyncio.new_event_loop)
        measure("TLS, ours", certificates, new_event_loop)
        measure("TLS, uvloop", certificates, uvloop.new_event_loop)
        measure("TLS, asyncio", certificates, asyncio.new_event_loop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
