"""What the eight operations take from a script, and what they do not."""

import asyncio
from typing import Any

import pytest

from clusterspace.apis.interpreters import SCRIPT_FIELDS
from clusterspace.errors import ScriptFailed
from clusterspace.fleet.interpretation.customizations import OPERATIONS, Operation
from clusterspace.fleet.interpretation.lua_workers import LuaWorker

BY_NAME = {each.name: each for each in OPERATIONS}
SITE = {
    "apiVersion": "example.io/v1",
    "kind": "Site",
    "metadata": {"name": "shop", "labels": {}},
    "spec": {"size": 3, "tags": [], "rules": [{"hosts": []}]},
}


class Returned:
    """A script that returns this, whatever it is given."""

    def __init__(self, first: Any, second: Any = None) -> None:
        self._returned = (first, second)

    async def call(self, script: str, function: str, *arguments: Any) -> tuple[Any, Any]:
        return self._returned

    async def check(self, script: str) -> None:
        pass


async def results(name: str, first: Any, second: Any = None, *given: Any) -> tuple[Any, ...]:
    return await BY_NAME[name].run(Returned(first, second), "", *(given or (SITE,)))


@pytest.mark.parametrize(
    ("name", "returned"),
    [
        ("InterpretReplica", (None, None)),
        ("InterpretReplica", (1.5, None)),
        ("InterpretReplica", (True, None)),
        ("InterpretReplica", (1, "much")),
        ("InterpretReplica", (1, {"resourceRequest": {"cpu": "much"}})),
        ("InterpretReplica", (1, {"resourceRequest": {"cpu": {"much": 1}}})),
        ("InterpretComponent", ("web", None)),
        ("InterpretComponent", ([1], None)),
        ("InterpretHealth", (None, None)),
        ("InterpretHealth", ("true", None)),
        ("InterpretDependency", ({"kind": "Secret"}, None)),
        ("Retain", ([], None)),
        ("ReviseReplica", (None, None)),
        ("InterpretStatus", (None, None)),
        ("AggregateStatus", ("Running", None)),
    ],
)
async def test_what_is_not_of_its_shape_is_refused_with_a_sentence(
    name: str, returned: tuple[Any, Any]
) -> None:
    with pytest.raises(ScriptFailed, match="not"):
        await results(name, *returned)


async def test_what_is_empty_stays_what_it_was_and_what_a_script_left_empty_goes() -> None:
    same = {
        "metadata": {"name": "shop", "labels": {}},
        "spec": {"size": 3, "tags": {}, "rules": [{"hosts": {}}], "made": {}},
    }

    (revised,) = await results("ReviseReplica", same, None, SITE, 3)

    assert revised == {"metadata": SITE["metadata"], "spec": SITE["spec"]}


async def test_replicas_come_with_quantities_as_bindings_write_them() -> None:
    required = {"resourceRequest": {"cpu": 2, "memory": "1408.000000Mi", "gpu": 0.5}}

    count, requirements = await results("InterpretReplica", 3, required)

    assert count == 3
    assert requirements == {"resourceRequest": {"cpu": "2", "memory": "1408Mi", "gpu": "500m"}}
    assert await results("InterpretReplica", 3) == (3, None)


async def test_dependencies_come_once_and_in_order() -> None:
    secret, settings = (
        {"apiVersion": "v1", "kind": kind, "name": "a"} for kind in ("Secret", "ConfigMap")
    )

    assert await results("InterpretDependency", [secret, settings, dict(secret)]) == (
        [settings, secret],
    )
    assert await results("InterpretDependency", {}) == ([],)


# -- in a process ----------------------------------------------------------------------------------


async def test_a_script_that_nothing_interrupts_is_ended_with_its_process() -> None:
    worker = LuaWorker(answer_seconds=0.3)
    endless = "function F() return ('a'):rep(40):find(('a?'):rep(40) .. ('a'):rep(40)) end"
    try:
        with pytest.raises(ScriptFailed, match=r"longer than 0\.3 s"):
            await worker.call(endless, "F")
        await worker.close()
        worker = LuaWorker(answer_seconds=30)
        assert await worker.call("function F(a) return a end", "F", 3) == (3, None)
    finally:
        await worker.close()


async def test_who_stops_waiting_leaves_no_answer_to_the_next() -> None:
    worker = LuaWorker(answer_seconds=30)
    slow = "function F() for i = 1, 3000000 do end return 'of the first' end"
    try:
        await worker.check("return 1")
        first = asyncio.create_task(worker.call(slow, "F"))
        second = asyncio.create_task(worker.call("function F() return 'of the second' end", "F"))
        await asyncio.sleep(0)
        first.cancel()

        assert (await second)[0] == "of the second"
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(ScriptFailed, match="expected near"):
            await worker.check("function F(")
    finally:
        await worker.close()


def test_every_operation_finds_its_script() -> None:
    scripts = {SCRIPT_FIELDS[each.name]: {"luaScript": each.function} for each in OPERATIONS}
    customization = {"spec": {"customizations": scripts}}

    def found(operation: Operation) -> str:
        return operation.script_in(customization)

    assert [found(each) for each in OPERATIONS] == [each.function for each in OPERATIONS]
    assert OPERATIONS[0].script_in({"spec": {}}) == ""
