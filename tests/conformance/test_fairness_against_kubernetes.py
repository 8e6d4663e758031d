"""Flow control beside a real kube-apiserver: the objects it makes, and what it answers."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from clusterspace.builtins.flow_control import AUTOUPDATE
from clusterspace.client.connection import Connection
from clusterspace.client.requests import Answer, ApiRequest
from clusterspace.testing.hubs import client_for_test, hub_for_test, real_server_for_test
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
OURS = "clusterspace-"
AS_JANE = (("Impersonate-User", "jane"), ("Impersonate-Group", "system:authenticated"))


class Both:
    """Our hub and a real server."""

    def __init__(self, ours: Connection, real: Connection) -> None:
        self.ours = ours
        self.real = real

    async def ask(self, method: str, path: str, body: Any = None, *headers: tuple[str, str]) -> Any:
        """Return the answers of both."""
        return [
            await ask(server, method, path, body, *headers) for server in (self.ours, self.real)
        ]


async def ask(
    server: Connection, method: str, path: str, body: Any = None, *headers: tuple[str, str]
) -> Answer:
    raw = None if body is None else msgspec.json.encode(body)
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    said = (*headers, ("Content-Type", kind)) if raw else headers
    return await server.exchange(ApiRequest(method, path, (), said, raw, is_repeated=False))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Both]:
    directory = tmp_path_factory.mktemp("fairness")
    (directory / "ours").mkdir()
    (directory / "real").mkdir()
    async with (
        real_server_for_test(directory / "real") as real,
        client_for_test(real.settings) as real_client,
        hub_for_test(directory / "ours") as settings,
        client_for_test(settings) as our_client,
    ):
        both = Both(our_client.connection, real_client.connection)
        await until(lambda: has_judged(both.real))
        await until(lambda: has_judged(both.ours))
        yield both


async def has_judged(server: Connection) -> bool:
    answer = await ask(server, "GET", f"{GROUP}/flowschemas")
    items = msgspec.json.decode(answer.body)["items"]
    return len(items) > 10 and all(each["status"].get("conditions") for each in items)


def described(item: Any) -> Any:
    """Return what does not differ from server to server."""
    conditions = [
        {key: value for key, value in each.items() if key != "lastTransitionTime"}
        for each in item["status"].get("conditions", ())
    ]
    managers = {each["manager"] for each in item["metadata"]["managedFields"]}
    return item["metadata"]["annotations"], item["spec"], conditions, managers


@pytest.mark.parametrize("plural", ["flowschemas", "prioritylevelconfigurations"])
async def test_the_default_objects_are_the_same(both: Both, plural: str) -> None:
    ours, real = (
        {
            each["metadata"]["name"]: described(each)
            for each in msgspec.json.decode(answer.body)["items"]
            if not each["metadata"]["name"].startswith(OURS)
        }
        for answer in await both.ask("GET", f"{GROUP}/{plural}")
    )

    assert ours == real
    assert {"exempt", "catch-all", "global-default"} <= set(ours)


SEEN = ("content-type", "retry-after", "x-content-type-options", "cache-control")


async def test_whoever_is_refused_is_told_in_the_same_way(both: Both) -> None:
    level = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "nothing"},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {
                    "type": "Queue",
                    "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 1},
                },
            },
        },
    }
    rule = {
        "subjects": [{"kind": "User", "user": {"name": "jane"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/version"]}],
    }
    schema = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": "nothing-for-jane"},
        "spec": {
            "matchingPrecedence": 10,
            "priorityLevelConfiguration": {"name": "nothing"},
            "rules": [rule],
        },
    }
    served = await both.ask("GET", "/version", None, *AS_JANE)
    made = [
        await both.ask("POST", f"{GROUP}/prioritylevelconfigurations", level),
        await both.ask("POST", f"{GROUP}/flowschemas", schema),
    ]

    async def refused(server: Connection) -> Answer | None:
        # There are no seats: one waits, and the others find the queue full.
        asked = [
            asyncio.create_task(ask(server, "GET", "/version", None, *AS_JANE)) for _ in range(3)
        ]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        answer = done.pop().result()
        return answer if answer.status == 429 else None

    answers = [await until(lambda each=each: refused(each)) for each in (both.ours, both.real)]

    assert [each.status for each in served] == [200, 200]
    ours, real = ([each.body, {name: each.headers.get(name) for name in SEEN}] for each in answers)
    assert ours == real
    for at, answer in enumerate(answers):
        uids = [msgspec.json.decode(each[at].body)["metadata"]["uid"] for each in made]
        assert answer.headers["x-kubernetes-pf-prioritylevel-uid"] == uids[0]
        assert answer.headers["x-kubernetes-pf-flowschema-uid"] == uids[1]
    # Others are served as before, and so is she elsewhere.
    assert [each.status for each in await both.ask("GET", "/version")] == [200, 200]
    assert [each.status for each in await both.ask("GET", "/api", None, *AS_JANE)] == [200, 200]


async def test_what_is_mandatory_cannot_be_changed(both: Both) -> None:
    changes = [
        (
            f"{GROUP}/prioritylevelconfigurations/catch-all",
            {"spec": {"limited": {"lendablePercent": 5}}},
        ),
        (
            f"{GROUP}/prioritylevelconfigurations/exempt",
            {"spec": {"exempt": {"lendablePercent": 5}}},
        ),
        (
            f"{GROUP}/prioritylevelconfigurations/exempt",
            {"spec": {"exempt": {"lendablePercent": 500}}},
        ),
        (f"{GROUP}/flowschemas/exempt", {"spec": {"matchingPrecedence": 3}}),
        (f"{GROUP}/flowschemas/catch-all", {"spec": {"matchingPrecedence": 9000}}),
        (f"{GROUP}/flowschemas/probes", {"spec": {"matchingPrecedence": 1}}),
        (f"{GROUP}/flowschemas/probes", {"metadata": {"annotations": {AUTOUPDATE: "false"}}}),
    ]
    for path, change in changes:
        ours, real = await both.ask("PATCH", path, change)
        assert ours.status == real.status, (path, change, ours.body, real.body)
        if real.status == 422:
            said = [msgspec.json.decode(each.body) for each in (ours, real)]
            told = [
                [(cause["field"], cause["reason"]) for cause in each["details"]["causes"]]
                for each in said
            ]
            assert told[0] == told[1], said


async def test_answers_say_by_uid_how_they_were_classified(both: Both) -> None:
    for server in (both.ours, both.real):
        answer = await ask(server, "GET", "/api/v1/namespaces", None)
        listed = [
            msgspec.json.decode((await ask(server, "GET", f"{GROUP}/{plural}/exempt")).body)
            for plural in ("prioritylevelconfigurations", "flowschemas")
        ]
        uids = [each["metadata"]["uid"] for each in listed]
        assert answer.headers["x-kubernetes-pf-prioritylevel-uid"] == uids[0]
        assert answer.headers["x-kubernetes-pf-flowschema-uid"] == uids[1]


async def test_dumps_have_the_same_columns(both: Both) -> None:
    for what in (
        "dump_priority_levels",
        "dump_queues",
        "dump_requests",
        "dump_requests?includeRequestDetails=1",
    ):
        path, _, query = f"/debug/api_priority_and_fairness/{what}".partition("?")
        request = ApiRequest("GET", path, ((("includeRequestDetails", "1"),) if query else ()))
        headers = [
            [each.strip() for each in answer.body.decode().split("\n")[0].split(",")]
            for answer in [await each.exchange(request) for each in (both.ours, both.real)]
        ]
        assert headers[0] == headers[1]
