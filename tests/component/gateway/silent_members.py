"""Members that do not answer, each in its own way."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from tests.component.gateway.fleet_site import Site, member_at

from clusterspace.fleet.membership.health import PROBES

LOOK: Final = "/livez"
"""What the fleet API server asks to find out whether a member is there."""
LOOKS: Final = (LOOK, *PROBES)
"""And what it asks besides as the second place that tells the controllers so."""
NOBODY_LISTENS: Final = "https://127.0.0.1:1"


class Frozen:
    """A member that takes requests and answers none, until it thaws."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.has_thawed = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path] += 1
        await self.has_thawed.wait()
        if request.path in LOOKS:
            return web.Response(text="ok")
        return web.json_response({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}})

    @property
    def asked_but_for_looks(self) -> int:
        return self.asked.total() - sum(self.asked[each] for each in LOOKS)


@asynccontextmanager
async def dead_member(site: Site, name: str) -> AsyncGenerator[None]:
    """Have a member that takes connections and does not even begin TLS."""

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, member_at(site, name, f"https://127.0.0.1:{port}"):
        yield
