"""Whatever of a member's answers is kept, is counted, for as long as it is kept."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.component.gateway.fleet_site import (
    ROOT,
    TABLE,
    Site,
    fleet_site,
    without_federation,
)
from tests.component.serving.wire import RawClient, get, request

from clusterspace.client.requests import AnswerMemory
from clusterspace.testing.hostile import Asked, Behaviour, HostileMember, answering, head, refusing
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
MAPS = "/api/v1/namespaces/shop/configmaps"
PROXY = f"/apis/cluster.karmada.io/v1alpha1/clusters/{HOSTILE}/proxy"
REVIEWS = "selfsubjectaccessreviews"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def memories() -> AsyncGenerator[list[AnswerMemory]]:
    """Every memory that is made from here on: the gateway's, and the hub's own."""
    made: list[AnswerMemory] = []
    original = AnswerMemory.__init__

    def remember(self: AnswerMemory, most_bytes: int) -> None:
        original(self, most_bytes)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnswerMemory, "__init__", remember)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    tmp_path_factory: pytest.TempPathFactory, memories: list[AnswerMemory]
) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def member(site: Site) -> AsyncGenerator[HostileMember]:
    async with hostile_in(site, refusing(500, "InternalError")) as running:
        yield running


@pytest.fixture
def behave(site: Site, member: HostileMember) -> Callable[[Behaviour], None]:
    def change(behaviour: Behaviour) -> None:
        member.behave = behaviour
        member.asked.clear()
        site.running.fleet.directory.troubles.let_go(HOSTILE)

    return change


class Endless:
    """Answers with one object that never ends, as long as anybody reads it."""

    def __init__(self, status: int = 200, most: int = 64 * MIB) -> None:
        self.sent = 0
        self.was_cut = asyncio.Event()
        self._status = status
        self._most = most

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head(self._status) + b'{"kind":"ConfigMap","apiVersion":"v1","data":"')
        try:
            while self.sent < self._most:
                writer.write(b"x" * 65536)
                await writer.drain()
                self.sent += 65536
        except ConnectionError:
            self.was_cut.set()
            raise


async def test_one_object_that_is_looked_for_is_no_larger_than_objects_are(
    site: Site, behave: Callable[[Behaviour], None]
) -> None:
    endless = Endless()
    behave(endless)
    async with without_federation(site) as beside:
        await beside.wait_for(HOSTILE)
        answer = await beside.ask("GET", f"{MAPS}/anything")

    assert answer.code != 200
    await asyncio.wait_for(endless.was_cut.wait(), 10)
    assert endless.sent < 16 * MIB


async def test_a_review_before_a_shell_is_no_longer_than_a_review(
    site: Site, behave: Callable[[Behaviour], None]
) -> None:
    endless = Endless(201)
    behave(endless)
    path = f"/clusterspaces/{HOSTILE}/api/v1/namespaces/shop/pods/web/exec?command=sh"
    client = await raw_client(site, "fleet")
    try:
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
        await client.send(request("GET", path, *bearer(), *upgrade, "Sec-WebSocket-Key: YWFh"))
        assert (await client.answer()).status >= 500
    finally:
        client.vanish()

    await asyncio.wait_for(endless.was_cut.wait(), 10)
    assert endless.sent < 8 * MIB


def bearer() -> tuple[str, ...]:
    return (f"Authorization: Bearer {ROOT}",)


async def raw_client(site: Site, which: str) -> RawClient:
    url = urlsplit(site.url if which == "fleet" else site.hub.settings.server)
    tls = ssl.create_default_context(cafile=str(site.directory / which / "pki" / "ca.crt"))
    return RawClient(*await asyncio.open_connection(url.hostname, url.port, ssl=tls))


def long_table() -> bytes:
    row = {"cells": ["web", "x" * 1024], "object": {"metadata": {"name": "web"}}}
    columns = [{"name": "Name", "type": "string"}, {"name": "Data", "type": "string"}]
    table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": columns}
    return msgspec.json.encode({**table, "metadata": {}, "rows": [row] * 8192})


@pytest.mark.parametrize(
    ("which", "path"),
    [
        ("fleet", f"/clusterspaces/{HOSTILE}{MAPS}"),
        ("fleet", f"/apis/apps/v1/namespaces/shop/clusterspaces/{HOSTILE}/deployments"),
        ("hub", f"{PROXY}{MAPS}"),
    ],
)
async def test_an_answer_that_a_client_does_not_take_still_counts(
    site: Site,
    behave: Callable[[Behaviour], None],
    memories: list[AnswerMemory],
    which: str,
    path: str,
) -> None:
    behave(answering(200, long_table()))
    client = await raw_client(site, which)
    client.stop_reading()
    try:
        await client.send(get(path, *bearer(), f"Accept: {TABLE}"))

        async def has_been_answered() -> bool:
            # The member has said all it had, and the answer waits for a client who does not read.
            return any(memory.used >= 8 * MIB for memory in memories)

        await until(has_been_answered)
        await asyncio.sleep(0)
        await site.ask("GET", "/livez")  # the handler has had every chance to return
        assert await has_been_answered()
    finally:
        client.vanish()

    async def is_free() -> bool:
        return all(memory.used == 0 for memory in memories)

    await until(is_free)
