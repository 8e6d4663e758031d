import asyncio

import pytest

from clusterspace.apiserver.http.messages import IncomingBody
from clusterspace.errors import HttpViolation, RequestEntityTooLarge


async def test_a_body_is_returned_once_it_is_whole() -> None:
    body = IncomingBody(is_complete=False)
    body.add([b"one "], is_complete=False)
    body.want(100)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(body.read())
        await asyncio.sleep(0)
        assert not reading.done()
        body.add([b"two"], is_complete=True)

    assert (reading.result(), await body.read()) == (b"one two", b"one two")


async def test_a_body_over_its_limit_fails_at_once_and_nothing_more_is_kept() -> None:
    body = IncomingBody(is_complete=False)
    body.add([b"x" * 60], is_complete=False)
    body.want(100)
    body.add([b"x" * 60], is_complete=False)
    body.add([b"x" * 60], is_complete=True)

    with pytest.raises(RequestEntityTooLarge, match="limit is 100"):
        await body.read()

    assert body.arrived == 180


async def test_a_body_that_will_not_come_fails_where_it_is_awaited() -> None:
    body = IncomingBody(is_complete=False)
    body.want(100)
    body.fail(HttpViolation(408, "too slow"))

    with pytest.raises(HttpViolation, match="too slow"):
        await body.read()

    assert not body.is_expected
