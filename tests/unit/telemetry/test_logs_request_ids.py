import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.telemetry.logs import (
    accept_request_id,
    current_request_id,
    make_request_id,
    request_id_of,
)

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_a_made_id_is_new_each_time():
    assert UUID.fullmatch(make_request_id())
    assert make_request_id() != make_request_id()


@pytest.mark.parametrize("offered", ["a", "11111111-1111-1111-1111-111111111111", "trace.7_b"])
def test_a_good_id_of_the_caller_is_kept(offered: str):
    assert accept_request_id(offered) == offered


@pytest.mark.parametrize("offered", [None, "", "a b", 'a"b', "a\nb", "x" * 65, "-a", "é"])
def test_an_id_unfit_for_a_log_is_replaced(offered: str | None):
    assert UUID.fullmatch(accept_request_id(offered))


@given(st.text())
def test_any_offered_id_gives_one_fit_for_a_log(offered: str):
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", accept_request_id(offered))


def test_there_is_no_id_outside_a_request():
    with request_id_of("outer"):
        with request_id_of("inner"):
            assert current_request_id() == "inner"
        assert current_request_id() == "outer"
    assert current_request_id() == ""


async def test_each_task_keeps_the_id_it_was_started_under():
    seen: dict[str, str] = {}

    async def serve(name: str) -> None:
        await asyncio.sleep(0)
        seen[name] = current_request_id()

    async with asyncio.TaskGroup() as group:
        for name in ("one", "two"):
            with request_id_of(name):
                group.create_task(serve(name))
    assert seen == {"one": "one", "two": "two"}
