"""The faults do what their names say; everything else is passed on as it comes."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.component.fake_clusters import asked_by, connected

from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ClusterTimeout, ClusterUnreachable
from clusterspace.testing.faults import (
    Delay,
    Drop,
    FaultProxy,
    Freeze,
    Reorder,
    Reply,
    Truncate,
    fault_proxy,
    is_write,
)


class Way:
    """A connection through a proxy to a cluster that answers with the path it was asked for."""

    def __init__(self, proxy: FaultProxy, connection: Connection, asked: list[str]) -> None:
        self.proxy = proxy
        self.connection = connection
        self.asked = asked

    async def post(self, path: str = "/a") -> bytes:
        return (
            await self.connection.exchange(ApiRequest("POST", path, body=b"hello", seconds=2))
        ).body


@pytest.fixture
async def way() -> AsyncIterator[Way]:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path_qs} {await request.text()}")
        return web.json_response({"path": request.path}, headers={"Warning": "199 - x"})

    async with (
        asked_by(answer) as upstream,
        fault_proxy(upstream) as proxy,
        connected(proxy.settings) as connection,
    ):
        yield Way(proxy, connection, asked)


async def test_without_a_fault_everything_passes(way: Way):
    answer = await way.connection.exchange(ApiRequest("POST", "/a", (("b", "c d"),), body=b"hello"))

    assert (answer.status, answer.body) == (200, b'{"path": "/a"}')
    assert answer.headers["warning"] == "199 - x"
    assert way.asked == ["POST /a?b=c+d hello"]


async def test_a_fault_is_for_the_requests_and_the_times_it_was_told(way: Way):
    rule = way.proxy.inject(Reply(503, b"busy"), when=is_write, times=1)

    assert (await way.connection.exchange(ApiRequest("GET", "/a"))).status == 200
    assert await way.post() == b"busy"
    assert await way.post() == b'{"path": "/a"}'
    assert rule.hits == 1


@pytest.mark.parametrize(("fault", "arrives"), [(Drop(), 0), (Drop(is_after=True), 1)])
async def test_a_dropped_request_arrives_or_not(way: Way, fault: Drop, arrives: int):
    way.proxy.inject(fault)

    with pytest.raises(ClusterUnreachable):
        await way.post()

    assert len(way.asked) == arrives


async def test_a_truncated_answer_breaks_off_and_a_frozen_one_never_ends(way: Way):
    way.proxy.inject(Truncate(5))
    with pytest.raises(ClusterUnreachable, match="broke"):
        await way.post()
    way.proxy.inject(Freeze(5))
    with pytest.raises(ClusterTimeout):
        await way.post()


async def test_a_delayed_answer_takes_its_time(way: Way):
    way.proxy.inject(Delay(0.1))
    started = time.monotonic()

    await way.post()

    assert time.monotonic() - started >= 0.1


async def test_reordered_requests_arrive_the_other_way_round(way: Way):
    way.proxy.inject(Reorder())

    async with asyncio.TaskGroup() as group:
        group.create_task(way.post("/first"))
        await asyncio.sleep(0.05)
        group.create_task(way.post("/second"))

    assert [each.split()[1] for each in way.asked] == ["/second", "/first"]
