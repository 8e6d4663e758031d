"""JSON answers as YAML: the same text whole and in steps, and others have their turn."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from clusterspace.aio.lanes import HEAVY
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Headers, Request, Response
from clusterspace.apiserver.http.request_info import JSON, YAML, RequestInfo
from clusterspace.apiserver.http.responses import as_yaml, yaml_bytes


class FakeRequest(Request):
    """A request that has only what a context looks at."""

    def __init__(self) -> None:
        self.headers = Headers(())


def a_context() -> RequestContext:
    return RequestContext(FakeRequest(), RequestInfo("GET", "/", "list"), "id-1")


def a_list(count: int) -> dict[str, Any]:
    item = {"metadata": {"name": "a"}, "data": {"k": "v: 1\n" * 40, "long": "word " * 60}}
    head = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}}
    return {**head, "items": [item] * count}


@pytest.mark.parametrize(
    "value",
    [
        a_list(0),
        a_list(1),
        a_list(400),
        {"kind": "Table", "columnDefinitions": [{"name": "Name"}], "rows": [{"cells": ["a", 1]}]},
        {"kind": "ConfigMap", "metadata": {"name": "a"}, "items": {"no": "list"}},
        {"items": None},
        {},
    ],
)
async def test_steps_make_the_same_text(value: Any) -> None:
    headers = [("Audit-Id", "id-1"), ("Content-Type", JSON)]
    response = Response(200, headers, msgspec.json.encode(value))

    answered = await as_yaml(a_context(), response)

    assert b"".join(cast("list[bytes]", answered.body)) == yaml_bytes(value)
    assert answered.headers == [("Audit-Id", "id-1"), ("Content-Type", YAML)]


async def test_what_is_no_json_stays_as_it_is() -> None:
    response = Response(502, [("Content-Type", "text/html")], b"<html>")

    assert await as_yaml(a_context(), response) is response


async def test_others_have_their_turn_while_a_long_list_is_written() -> None:
    done: list[str] = []

    async def write_long() -> None:
        await as_yaml(a_context(), Response(200, (), msgspec.json.encode(a_list(2000))))
        done.append("list")

    async def work() -> None:
        await HEAVY.run("somebody else", lambda: None)
        done.append("other")

    async with asyncio.TaskGroup() as group:
        group.create_task(write_long())
        await asyncio.sleep(0)
        for _ in range(3):
            await work()

    assert done == ["other", "other", "other", "list"]
