import asyncio
import json
from contextlib import nullcontext
from typing import Any

import pytest
from tests.component.audit_lines import flat

from clusterspace.apiserver.http.audit_events import Audit
from clusterspace.apiserver.http.audit_policy import Policy, default_policy, read_policy
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Headers, Request, Response
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import User
from clusterspace.errors import Conflict
from clusterspace.testing.clocks import ManualClock

PATH = "/api/v1/namespaces/shop/configmaps"


class FakeRequest(Request):
    """A request that has only what the audit looks at."""

    def __init__(self, target: str, *, is_upgrade: bool = False) -> None:
        self.headers = Headers(())
        self.target = target.encode()
        self.path = target.partition("?")[0]
        self.is_upgrade = is_upgrade
        self.on_answer = None

    @property
    def peer_address(self) -> str:
        return "192.0.2.7"


def call_of(
    method: str, path: str = PATH, query: str = "", *, is_upgrade: bool = False
) -> RequestContext:
    request = FakeRequest(f"{path}?{query}" if query else path, is_upgrade=is_upgrade)
    context = RequestContext(request, read_request(method, path, query), "id-1")
    context.user = User("jane", ("devs",))
    return context


async def told(
    context: RequestContext,
    outcome: Response | BaseException | None,
    policy: Policy | None = None,
) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []

    async def rest(_: RequestContext) -> Response | None:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    fails = pytest.raises(type(outcome)) if isinstance(outcome, BaseException) else nullcontext()
    with fails:
        await Audit(ManualClock(), lines.append, policy or default_policy())(context, rest)
    return [json.loads(json.dumps(line)) for line in lines]


async def test_a_read_is_not_told() -> None:
    assert await told(call_of("GET"), Response(200)) == []


async def test_a_shell_that_is_opened_with_get_is_told_when_it_begins_and_when_it_ends() -> None:
    shell = call_of("GET", "/api/v1/namespaces/shop/pods/web/exec", is_upgrade=True)

    lines = [flat(each) for each in await told(shell, None)]

    assert [each["stage"] for each in lines] == ["ResponseStarted", "ResponseComplete"]
    for line in lines:
        assert (line["resource"], line["subresource"], line["name"]) == ("pods", "exec", "web")


async def test_a_write_tells_who_what_and_which_object() -> None:
    body = [b'{"kind":"ConfigMap","metadata":{"name":"web-7","uid":"u-1"},', b'"data":{"k":"v"}}']

    (event,) = await told(call_of("POST"), Response(201, (), body))

    del event["requestReceivedTimestamp"], event["stageTimestamp"]
    assert event == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "id-1",
        "stage": "ResponseComplete",
        "requestURI": PATH,
        "verb": "create",
        "user": {"username": "jane", "groups": ["devs"]},
        "sourceIPs": ["192.0.2.7"],
        "objectRef": {
            "resource": "configmaps",
            "namespace": "shop",
            "name": "web-7",
            "uid": "u-1",
            "apiVersion": "v1",
        },
        "responseStatus": {"metadata": {}, "code": 201},
    }


async def test_a_delete_tells_the_uid_of_what_is_gone() -> None:
    body = b'{"kind":"Status","metadata":{},"details":{"name":"web","uid":"u-1"}}'

    (event,) = await told(call_of("DELETE", f"{PATH}/web"), Response(200, (), body))

    assert (flat(event)["name"], flat(event)["uid"]) == ("web", "u-1")


@pytest.mark.parametrize(
    ("failure", "code", "stage"),
    [
        (Conflict("no"), 409, "ResponseComplete"),
        (KeyError("hunter2"), 500, "Panic"),
        (asyncio.CancelledError(), 504, "ResponseComplete"),
    ],
)
async def test_a_write_that_failed_is_told_too(
    failure: BaseException, code: int, stage: str
) -> None:
    (event,) = await told(call_of("PUT", f"{PATH}/web"), failure)

    assert (flat(event)["code"], event["stage"]) == (code, stage)
    assert "hunter2" not in str(event)


async def test_a_panic_is_left_out_where_the_policy_says_so() -> None:
    quiet = read_policy(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "rules": [{"level": "Metadata", "omitStages": ["Panic"]}],
        }
    )
    lines = await told(call_of("PUT", f"{PATH}/web"), KeyError("bug"), quiet)

    assert [each["stage"] for each in lines] == ["RequestReceived"]


async def test_a_dry_run_is_told_as_one() -> None:
    (event,) = await told(call_of("POST", query="dryRun=All"), Response(201, (), b"yaml: 1"))

    assert event["requestURI"] == f"{PATH}?dryRun=All"
    assert "uid" not in event["objectRef"]


@pytest.mark.parametrize(("code", "count"), [(200, 0), (409, 1)])
async def test_a_renewed_lease_is_told_only_when_it_was_refused(code: int, count: int) -> None:
    lease = call_of("PUT", "/apis/coordination.k8s.io/v1/namespaces/shop/leases/me")
    outcome = Response(200) if code == 200 else Conflict("no")

    assert len(await told(lease, outcome)) == count
