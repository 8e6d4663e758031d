"""`/metrics` and `/healthz` of a process that serves nothing else."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.requests import Request
from clusterspace.telemetry import metrics

_TEXT: Final = "text/plain; charset=utf-8"
_DRAIN_SECONDS: Final = 1.0


@asynccontextmanager
async def serving_metrics(host: str, port: int) -> AsyncGenerator[int]:
    """Serve for as long as the block lasts; yield the port, which the system chooses for 0."""
    server = HttpServer(_answer)
    await server.listen(host, port)
    try:
        yield server.addresses[0][1]
    finally:
        await server.drain(_DRAIN_SECONDS)


async def _answer(request: Request) -> Response:
    if request.path == "/metrics":
        return Response(200, (("Content-Type", metrics.CONTENT_TYPE),), metrics.render())
    if request.path in ("/healthz", "/livez", "/readyz"):
        return Response(200, (("Content-Type", _TEXT),), b"ok")
    return Response(404, (("Content-Type", _TEXT),), b"404 page not found\n")
