"""Faults on request, seen by a client of the member."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from tests.component.sim_member_site import NAMESPACES, PATIENCE, RULES, Client, member_site


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncGenerator[Client]:
    async with member_site(tmp_path) as found:
        yield found


async def test_every_fault_shows_and_goes_when_its_rule_goes(client: Client) -> None:
    everything = await client.names()
    selected = {"resources": ["namespaces"]}

    await client.fault([{"fault": "empty", **selected}])
    assert await client.names() == set()
    await client.fault([{"fault": "error", "code": 500, **selected}])
    assert (await client.ask("GET", NAMESPACES))[0] == 500
    await client.fault([{"fault": "shorten", **selected}])
    with pytest.raises(msgspec.DecodeError):
        await client.names()
    await client.fault([{"fault": "truncate", **selected}])
    with pytest.raises(asyncio.IncompleteReadError):
        await client.names()
    await client.fault([{"fault": "drop", **selected}])
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.names()
    await client.fault([{"fault": "latency", "seconds": 0.3, **selected}])
    started = asyncio.get_running_loop().time()
    await client.names()
    assert asyncio.get_running_loop().time() - started >= 0.3

    await client.fault([])
    assert await client.names() == everything


async def test_a_frozen_member_answers_when_it_thaws(client: Client) -> None:
    await client.fault([{"fault": "freeze", "resources": ["namespaces"]}])
    waiting = asyncio.create_task(client.names())
    await asyncio.sleep(0.3)
    assert not waiting.done()

    await client.fault([])

    assert "default" in await waiting


async def test_a_frozen_watch_falls_silent_and_then_tells_what_it_held(client: Client) -> None:
    reader = await client.send("GET", f"{RULES}?watch=true&fieldSelector=metadata.name=x")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    await client.fault([{"fault": "freeze", "verbs": ["watch"]}])
    await client.ask("POST", RULES, {"metadata": {"name": "x"}})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.3)

    await client.fault([])

    chunk = await asyncio.wait_for(reader.readuntil(b"}}\n"), PATIENCE)
    assert b'"ADDED"' in chunk


async def test_running_and_new_watches_end_with_410(client: Client) -> None:
    reader = await client.send("GET", f"{NAMESPACES}?watch=true&resourceVersion=1")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)

    await client.fault([{"fault": "expire", "resources": ["namespaces"]}])

    rest = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), PATIENCE)
    assert b'"code":410' in rest
    _, body = await client.ask("GET", f"{NAMESPACES}?watch=true")
    assert msgspec.json.decode(body)["object"]["code"] == 410


async def test_a_fault_can_be_used_up(client: Client) -> None:
    await client.fault([{"fault": "error", "times": 2, "resources": ["namespaces"]}])

    codes = [(await client.ask("GET", NAMESPACES))[0] for _ in range(3)]

    assert codes == [503, 503, 200]


async def test_rules_that_make_no_sense_are_refused(client: Client) -> None:
    assert await client.fault([{"fault": "nonsense"}]) == 400


async def test_a_member_that_drops_everything_can_still_be_healed(client: Client) -> None:
    await client.fault([{"fault": "drop"}])
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        await client.names()
        raise AssertionError("the connection was not dropped")

    assert await client.fault([]) == 201
    assert "default" in await client.names()


async def test_the_connection_of_a_watch_that_has_ended_serves_the_next_request(
    client: Client,
) -> None:
    watch = f"{NAMESPACES}?watch=true&timeoutSeconds=1&resourceVersion=0"
    reader = await client.send("GET", watch)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    assert b"chunked" in head.lower()
    async with asyncio.timeout(PATIENCE):
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        assert await reader.readexactly(2) == b"\r\n"

    # A second last chunk would be taken for the beginning of this answer.
    lines = ("GET /version HTTP/1.1", "Host: x", f"Authorization: Bearer {client.token}", "", "")
    client.writers[-1].write("\r\n".join(lines).encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)

    assert answer == b"HTTP/1.1 200 OK\r\n"
