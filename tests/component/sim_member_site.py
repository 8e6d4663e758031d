"""A simulated member in this process, and a client that shows exactly what it was sent."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from clusterspace.roots.settings import SimSettings
from clusterspace.roots.sim import running_sim

PATIENCE = 30.0
RULES = "/api/v1/namespaces/kube-system/configmaps"
NAMESPACES = "/api/v1/namespaces"
TOKENS = """\
admin,admin,admin,"system:masters"
viewer,viewer,viewer,""
"""


@dataclass
class Client:
    """A client that opens a connection for every request."""

    port: int
    tls: ssl.SSLContext
    token: str = "admin"
    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])

    async def send(
        self, method: str, path: str, body: Any = None, *headers: str
    ) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        self.writers.append(writer)
        content = b"" if body is None else msgspec.json.encode(body)
        lines = (
            f"{method} {path} HTTP/1.1",
            "Host: x",
            f"Authorization: Bearer {self.token}",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
            *headers,
            "",
            "",
        )
        writer.write("\r\n".join(lines).encode() + content)
        await writer.drain()
        return reader

    async def ask(
        self, method: str, path: str, body: Any = None, *headers: str
    ) -> tuple[int, bytes]:
        """Return status and body; an answer that is cut short is an IncompleteReadError."""
        reader = await self.send(method, path, body, *headers)
        async with asyncio.timeout(PATIENCE):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status = int(head.split()[1])
            for line in head.split("\r\n"):
                if line.startswith("content-length:"):
                    return status, await reader.readexactly(int(line.split(":")[1]))
            pieces = b""
            while size := int(await reader.readuntil(b"\r\n"), 16):
                pieces += (await reader.readexactly(size + 2))[:-2]
            return status, pieces

    async def get(self, path: str) -> Any:
        """Return what must be there."""
        status, body = await self.ask("GET", path)
        assert status == 200, body
        return msgspec.json.decode(body)

    async def names(self) -> set[str]:
        listed = await self.get(NAMESPACES)
        return {each["metadata"]["name"] for each in listed["items"]}

    async def fault(self, rules: list[dict[str, Any]]) -> int:
        """Let these faults stand, instead of any others."""
        name = "clusterspace-sim-faults"
        await self.ask("DELETE", f"{RULES}/{name}")
        text = msgspec.json.encode(rules).decode()
        body = {"metadata": {"name": name}, "data": {"rules": text}}
        return (await self.ask("POST", RULES, body))[0]


@asynccontextmanager
async def member_site(directory: Path, **settings: Any) -> AsyncGenerator[Client]:
    """Run a member for as long as the block lasts; yield a client of its administrator."""
    data = directory / "data"
    tokens = _write_tokens(directory)
    wanted = SimSettings("east", data, nodes=1, token_auth_file=tokens, **settings)
    async with running_sim(wanted) as url:
        tls = ssl.create_default_context(cafile=str(data / "pki" / "ca.crt"))
        found = Client(urlsplit(url).port or 0, tls)
        yield found
        for writer in found.writers:
            writer.transport.abort()


def _write_tokens(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    tokens = directory / "tokens.csv"
    tokens.write_text(TOKENS)
    return tokens
