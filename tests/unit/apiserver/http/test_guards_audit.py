import asyncio
import json
from contextlib import nullcontext
from typing import Any

import pytest

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.guards import Audit
from clusterspace.apiserver.http.messages import Headers, Request, Response
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import User
from clusterspace.errors import Conflict
from clusterspace.testing.clocks import ManualClock

PATH = "/api/v1/namespaces/shop/configmaps"


class FakeRequest(Request):
    """A request that has only what the audit looks at."""

    def __init__(self, *, is_upgrade: bool = False) -> None:
        self.headers = Headers(())
        self.is_upgrade = is_upgrade

    @property
    def peer_address(self) -> str:
        return "192.0.2.7"


def call_of(
    method: str, path: str = PATH, query: str = "", *, is_upgrade: bool = False
) -> RequestContext:
    request = FakeRequest(is_upgrade=is_upgrade)
    context = RequestContext(request, read_request(method, path, query), "id-1")
    context.user = User("jane", ("devs",))
    return context


async def told(
    context: RequestContext, outcome: Response | BaseException | None
) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []

    async def rest(_: RequestContext) -> Response | None:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    fails = pytest.raises(type(outcome)) if isinstance(outcome, BaseException) else nullcontext()
    with fails:
        await Audit(ManualClock(), lines.append)(context, rest)
    return [json.loads(json.dumps(line)) for line in lines]


async def test_a_read_is_not_told() -> None:
    assert await told(call_of("GET"), Response(200)) == []


async def test_a_shell_that_is_opened_with_get_is_told() -> None:
    shell = call_of("GET", "/api/v1/namespaces/shop/pods/web/exec", is_upgrade=True)

    (line,) = await told(shell, None)

    assert (line["resource"], line["subresource"], line["name"]) == ("pods", "exec", "web")


async def test_a_write_tells_who_what_and_which_object() -> None:
    body = [b'{"kind":"ConfigMap","metadata":{"name":"web-7","uid":"u-1"},', b'"data":{"k":"v"}}']

    (line,) = await told(call_of("POST"), Response(201, (), body))

    del line["time"]
    assert line == {
        "requestId": "id-1",
        "user": "jane",
        "groups": ["devs"],
        "sourceIP": "192.0.2.7",
        "verb": "create",
        "version": "v1",
        "resource": "configmaps",
        "namespace": "shop",
        "name": "web-7",
        "uid": "u-1",
        "code": 201,
    }


async def test_a_delete_tells_the_uid_of_what_is_gone() -> None:
    body = b'{"kind":"Status","metadata":{},"details":{"name":"web","uid":"u-1"}}'

    (line,) = await told(call_of("DELETE", f"{PATH}/web"), Response(200, (), body))

    assert (line["name"], line["uid"]) == ("web", "u-1")


@pytest.mark.parametrize(
    ("failure", "code"),
    [(Conflict("no"), 409), (KeyError("bug"), 500), (asyncio.CancelledError(), 504)],
)
async def test_a_write_that_failed_is_told_too(failure: BaseException, code: int) -> None:
    (line,) = await told(call_of("PUT", f"{PATH}/web"), failure)

    assert line["code"] == code


async def test_a_dry_run_is_told_as_one() -> None:
    (line,) = await told(call_of("POST", query="dryRun=All"), Response(201, (), b"yaml: 1"))

    assert line["dryRun"] is True
    assert "uid" not in line
