"""The worked example of docs/resource-versions.md, carried out to the letter."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web
from tests.component.gateway.fleet_site import ROOT, Site, fake_member, fleet_site
from tests.component.gateway.watch_streams import Watching, watching

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.gateway.merge import versions
from clusterspace.testing.builders import NAMESPACES, namespace

PAGE = Path(__file__).resolve().parents[3] / "docs" / "resource-versions.md"
CLUSTERS = ("east", "west")
PATIENCE = 30.0


@dataclass(frozen=True)
class Block:
    """One fenced block: who does what, and the text of it."""

    actor: str
    action: str
    text: str


def read_blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of the page that say who they are about, in order."""
    for title, text in re.findall(r"^```\w+ (.+?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        actor, _, action = title.partition(" ")
        yield Block(actor, action, text.strip())


@dataclass
class FakeMember:
    """A cluster that answers what the page says, and writes down what it is asked."""

    asked: asyncio.Queue[tuple[str, str, Any]] = field(default_factory=asyncio.Queue)
    answers: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    streams: list[asyncio.Queue[str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = [pair for pair in parse_qsl(request.query_string) if pair[0] != "timeoutSeconds"]
        body = await request.json() if request.can_read_body else None
        await self.asked.put((f"{request.method} {request.path}", str(query), body))
        if request.query.get("watch") != "true":
            answer = await self.answers.get()
            return web.Response(text=answer, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        lines: asyncio.Queue[str] = asyncio.Queue()
        self.streams.append(lines)
        while True:
            line = await lines.get()
            await response.write(json.dumps(json.loads(line)).encode() + b"\n")


@dataclass
class Play:
    """The client and the clusters, on the stage of one test."""

    site: Site
    members: dict[str, FakeMember]
    stack: list[Any] = field(default_factory=list)
    stream: Watching | None = None
    read: int = 0
    asking: asyncio.Task[Any] | None = None
    last: Any = None
    done: int = 0

    async def perform(self, block: Block) -> None:
        async with asyncio.timeout(PATIENCE):
            if block.actor == "client":
                await (self._ask(block.text) if block.action == "asks" else self._get(block.text))
            elif block.actor == "the":
                self._compare_vector(block.text)
            elif block.action == "is asked":
                await self._compare_asked(block)
            elif block.action == "answers":
                await self.members[block.actor].answers.put(block.text)
            else:
                await self.members[block.actor].streams[-1].put(block.text)
        self.done += 1

    async def _ask(self, text: str) -> None:
        head, _, body = text.partition("\n\n")
        method, _, target = head.partition(" ")
        if "watch=1" not in target:
            sent = json.loads(body) if body else None
            self.asking = asyncio.create_task(self.site.ask(method, target, sent))
            return
        await self.hang_up()
        opened = watching(self.site.connection(ROOT), target)
        self.stack.append(opened)
        self.stream, self.read = await opened.__aenter__(), 0

    async def hang_up(self) -> None:
        while self.stack:
            await self.stack.pop().__aexit__(None, None, None)

    async def _get(self, text: str) -> None:
        if self.asking is not None:
            answer, self.asking = await self.asking, None
            assert answer.code == 200, answer.body
            self.last = answer.body
        else:
            assert self.stream is not None
            self.read += 1
            await self.stream.until(lambda each: len(each.lines) >= self.read)
            self.last = self.stream.events[self.read - 1]
        assert self.last == json.loads(text)

    def _compare_vector(self, text: str) -> None:
        shown = self.last.get("object", self.last)
        vector = versions.decode(shown["metadata"]["resourceVersion"], CLUSTERS)
        assert ", ".join(f"{each} {vector[each]}" for each in sorted(vector)) == text

    async def _compare_asked(self, block: Block) -> None:
        head, _, body = block.text.partition("\n\n")
        method, _, target = head.partition(" ")
        parts = urlsplit(target)
        wanted = (f"{method} {parts.path}", str(parse_qsl(parts.query)))
        asked = await self.members[block.actor].asked.get()
        assert asked == (*wanted, json.loads(body) if body else None)


@asynccontextmanager
async def stage(directory: Path) -> AsyncGenerator[Play]:
    members = {name: FakeMember() for name in CLUSTERS}
    async with fleet_site(directory, members=(), federation=False) as site:
        if await site.hub.client.find(ResourcePath(NAMESPACES, "", "karmada-cluster")) is None:
            await site.hub.client.create(ResourcePath(NAMESPACES), namespace("karmada-cluster"))
        east, west = (fake_member(site, name, members[name].handle) for name in CLUSTERS)
        async with east, west:
            play = Play(site, members)
            yield play
            await play.hang_up()


async def test_the_worked_example_happens_just_so(tmp_path: Path):
    page = PAGE.read_text()
    blocks = list(read_blocks(page))
    assert page.count("```") == 2 * len(blocks), "a block of the page is about nobody"

    async with stage(tmp_path) as play:
        for block in blocks:
            await play.perform(block)

        assert all(member.asked.empty() for member in play.members.values())
        assert play.stream is not None
        assert len(play.stream.lines) == play.read
    assert play.done == len(blocks) > 0


def test_vectors_are_as_long_as_the_page_says():
    said = re.search(r"(\d+) characters for ten clusters, ([\d.]+) KB for 500", PAGE.read_text())
    ten, many = (
        versions.encode({f"m{n}": str(10**9 + n) for n in range(count)}) for count in (10, 500)
    )

    assert said is not None
    assert (len(ten), f"{len(many) / 1000:.1f}") == (int(said[1]), said[2])
