"""The workers that controllers share: answers are remembered, and who runs away waits."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.errors import ScriptFailed
from clusterspace.fleet.interpretation.lua_workers import LuaPool
from clusterspace.testing.clocks import ManualClock

COUNT = "function GetReplicas(obj) return obj.spec.size end"
ENDLESS = """function GetReplicas(obj)
  return string.find(string.rep("a", 99), string.rep("a*", 99) .. "b")
end"""


@pytest.fixture
async def pool() -> AsyncIterator[LuaPool]:
    made = LuaPool(ManualClock(), answer_seconds=0.5)
    yield made
    await made.close()


async def test_what_was_asked_of_a_version_is_not_run_again(pool: LuaPool) -> None:
    for _ in range(3):
        assert await pool.call(COUNT, "GetReplicas", {"spec": {"size": 3}}) == (3, None)
    assert pool.runs == 1

    assert await pool.call(COUNT, "GetReplicas", {"spec": {"size": 4}}) == (4, None)
    assert pool.runs == 2

    changed = COUNT.replace("obj.spec.size", "obj.spec.size * 2")
    assert await pool.call(changed, "GetReplicas", {"spec": {"size": 3}}) == (6, None)
    assert pool.runs == 3


async def test_many_who_ask_the_same_at_once_have_it_run_once(pool: LuaPool) -> None:
    asked = [pool.call(COUNT, "GetReplicas", {"spec": {"size": 3}}) for _ in range(20)]

    assert set(await asyncio.gather(*asked)) == {(3, None)}
    assert pool.runs == 1


async def test_a_failure_is_not_remembered(pool: LuaPool) -> None:
    for _ in range(2):
        with pytest.raises(ScriptFailed):
            await pool.call("function GetReplicas(obj) return obj.no.thing end", "GetReplicas", {})

    assert pool.runs == 2


async def test_others_go_on_beside_many_calls_of_a_script_without_end(pool: LuaPool) -> None:
    traps = [
        asyncio.create_task(pool.call(ENDLESS, "GetReplicas", {"number": number}))
        for number in range(4)
    ]
    await asyncio.sleep(0)

    assert await pool.call(COUNT, "GetReplicas", {"spec": {"size": 3}}) == (3, None)
    assert not all(each.done() for each in traps)

    failures = await asyncio.gather(*traps, return_exceptions=True)
    assert all(isinstance(each, ScriptFailed) for each in failures)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        # Small in Lua, and 200 MB where each text is written out.
        ("local s, t = ('x'):rep(1e6), {} for i = 1, 200 do t[i] = s end return t", "more than"),
        ("local t = {} for i = 1, 40 do t = {a = t, b = t} end return t", "longer than"),
        ("return (('a'):rep(1e6)):match(('a?'):rep(1e6))", "its process down"),
        ("return (('('):rep(1e6)):match('(.-)*' .. ('%b()'):rep(1000))", "longer than"),
        ("local function f(...) return f(1, ...) end return f()", "longer than|its process down"),
        ("return require('kube').resourceAdd(('9'):rep(1e7))", "quantity|longer than"),
    ],
)
async def test_what_nothing_in_the_process_ends_costs_nobody_else(
    pool: LuaPool, body: str, says: str
) -> None:
    hostile = pool.call(f"function GetReplicas(obj) {body} end", "GetReplicas", {})
    beside = pool.call(COUNT, "GetReplicas", {"spec": {"size": 3}})

    failure, answer = await asyncio.gather(hostile, beside, return_exceptions=True)

    assert isinstance(failure, ScriptFailed)
    assert re.search(says, str(failure)) or "longer than" in str(failure)
    assert answer == (3, None)
    assert await pool.call(COUNT, "GetReplicas", {"spec": {"size": 4}}) == (4, None)


async def test_a_script_that_keeps_running_away_waits_for_its_next_turn() -> None:
    pool = LuaPool(SystemClock(), answer_seconds=0.2)
    try:
        for _ in range(3):
            with pytest.raises(ScriptFailed, match="longer than"):
                await pool.call(ENDLESS, "GetReplicas", {})

        with pytest.raises(ScriptFailed, match="3 times in a row"):
            await pool.call(ENDLESS, "GetReplicas", {})
        assert pool.runs == 3
        assert await pool.call(COUNT, "GetReplicas", {"spec": {"size": 3}}) == (3, None)
    finally:
        await pool.close()
