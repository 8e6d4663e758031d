"""Servers that answer as a test says, for what no well-behaved cluster would do."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from aiohttp import web

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.settings import ConnectionSettings

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def fake_cluster(handle: Handle, **site: Any) -> AsyncGenerator[int]:
    """Serve on a port of its own; yield the port. A member needs TLS: `ssl_context` gives it."""
    application = web.Application()
    handlers: set[asyncio.Task[web.StreamResponse]] = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        # In a task of its own: one that never answers must not outlive the cluster.
        task = asyncio.ensure_future(handle(request))
        handlers.add(task)
        task.add_done_callback(handlers.discard)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            raise

    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.05, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, **site).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        for task in tuple(handlers):
            task.cancel()
        await runner.cleanup()


@asynccontextmanager
async def connected(settings: ConnectionSettings) -> AsyncGenerator[Connection]:
    connection = Connection(settings, clock=SystemClock(), random=Random(1))
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asked_by(handle: Handle) -> AsyncGenerator[Connection]:
    """Serve, and yield a connection to it, called `west`."""
    async with fake_cluster(handle) as port:
        settings = ConnectionSettings("west", f"http://127.0.0.1:{port}")
        async with connected(settings) as connection:
            yield connection


def status(code: int, reason: str, **details: Any) -> web.Response:
    body: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"{reason} it is",
        "reason": reason,
        "details": details,
        "code": code,
    }
    return web.json_response(body, status=code)
