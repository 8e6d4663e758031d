"""FlowSchemas and priority levels at work on a hub, over TLS."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.component.hub_wire import CONFIG_MAPS, HubClient, config_map, request_bytes, tls_of
from tests.component.serving.wire import RawClient, request

from clusterspace.apiserver.flow_control import FlowControlObjects
from clusterspace.apiserver.http.fairness.step import PriorityAndFairness
from clusterspace.roots.hub import RunningHub, running_hub
from clusterspace.roots.settings import HubSettings, RequestLimits
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
USERS = ("jane", "carl", "watcher")
TOKENS = 'admin-token,admin,admin-uid,"system:masters"\n' + "".join(
    f'{user}-token,{user},{user}-uid,"devs"\n' for user in USERS
)
FEW_WATCHES = 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RunningHub]:
    """A hub on which everybody may do everything, with few watches for each."""
    directory = tmp_path_factory.mktemp("hub")
    (directory / "tokens.csv").write_text(TOKENS)
    settings = HubSettings(
        directory, "memory", directory / "tokens.csv", requests=RequestLimits(60, 30), port=0
    )
    few = {"long_running_per_user": FEW_WATCHES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PriorityAndFairness.__init__, "__kwdefaults__", few)
        async with running_hub(settings) as hub:
            yield hub


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(running: RunningHub) -> AsyncIterator[HubClient]:
    client = client_of(running, "admin")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "everybody"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "edit",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
            for user in USERS
        ],
    }
    await client.do("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    yield client
    client.close()


def client_of(running: RunningHub, user: str) -> HubClient:
    host, _, port = running.url.removeprefix("https://").rpartition(":")
    tls = tls_of(running.installation.directory)
    return HubClient(host, int(port), tls, f"{user}-token")


@pytest_asyncio.fixture(loop_scope="module")
async def jane(running: RunningHub, hub: HubClient) -> AsyncIterator[HubClient]:
    client = client_of(running, "jane")
    yield client
    client.close()


@pytest_asyncio.fixture(loop_scope="module")
async def carl(running: RunningHub, hub: HubClient) -> AsyncIterator[HubClient]:
    client = client_of(running, "carl")
    yield client
    client.close()


def level(name: str, response: dict[str, Any], **limited: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {"limitResponse": response, **limited}},
    }


def schema(name: str, to: str, users: tuple[str, ...], **spec: Any) -> dict[str, Any]:
    rule = {
        "subjects": [{"kind": "User", "user": {"name": user}} for user in users],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["*"]}
        ],
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": 700,
            "priorityLevelConfiguration": {"name": to},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rule],
            **spec,
        },
    }


QUEUE = {"type": "Queue", "queuing": {"queues": 8, "handSize": 2, "queueLengthLimit": 2}}
ONE_SEAT = {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "lendablePercent": 0}


@asynccontextmanager
async def configured(
    hub: HubClient, a_level: dict[str, Any], a_schema: dict[str, Any]
) -> AsyncGenerator[None]:
    """Have a level and a schema in effect for as long as the block lasts."""
    await hub.do("POST", f"{GROUP}/prioritylevelconfigurations", a_level)
    made = await hub.do("POST", f"{GROUP}/flowschemas", a_schema)
    users = [each["user"]["name"] for each in a_schema["spec"]["rules"][0]["subjects"]]

    async def is_in_effect() -> bool:
        asked = await hub.ask(
            "GET",
            f"{CONFIG_MAPS}/none",
            headers=(f"Impersonate-User: {users[0]}", "Impersonate-Group: system:authenticated"),
        )
        return asked.headers["x-kubernetes-pf-flowschema-uid"] == made["metadata"]["uid"]

    try:
        await until(is_in_effect)
        yield
    finally:
        await hub.do("DELETE", f"{GROUP}/flowschemas/{a_schema['metadata']['name']}")
        await hub.do("DELETE", f"{GROUP}/prioritylevelconfigurations/{a_level['metadata']['name']}")


async def holding_a_seat(client: HubClient) -> RawClient:
    """Begin a write whose body never comes: it keeps its seat until its connection is cut."""
    connection = await client.connect()
    await connection.send(
        request(
            "POST",
            CONFIG_MAPS,
            f"Authorization: Bearer {client.token}",
            "Content-Type: application/json",
            "Content-Length: 3000",
        )
        + b'{"kind":'
    )
    return connection


async def levels(hub: HubClient) -> dict[str, list[str]]:
    """Return the rows of the dump of levels."""
    dump = await hub.ask("GET", "/debug/api_priority_and_fairness/dump_priority_levels")
    rows = [line.split(",") for line in dump.body.decode().splitlines()[1:]]
    return {row[0].strip(): [each.strip() for each in row[1:]] for row in rows}


WAITING, EXECUTING, REJECTED = 3, 4, 6


async def count(hub: HubClient, name: str, column: int) -> int:
    return int((await levels(hub))[name][column])


async def test_a_request_waits_for_the_seat_of_another_and_is_served_then(
    hub: HubClient, jane: HubClient, carl: HubClient
) -> None:
    async with configured(hub, level("one", QUEUE, **ONE_SEAT), schema("one", "one", USERS)):
        holder = await holding_a_seat(jane)
        await until(lambda: is_count(hub, "one", EXECUTING, 1))
        waiting = asyncio.create_task(carl.ask("GET", CONFIG_MAPS))
        await until(lambda: is_count(hub, "one", WAITING, 1))

        holder.vanish()
        answer = await asyncio.wait_for(waiting, 60)

        assert answer.status == 200
        await until(lambda: is_count(hub, "one", EXECUTING, 0))


async def is_count(hub: HubClient, name: str, column: int, wanted: int) -> bool:
    return await count(hub, name, column) == wanted


async def test_whoever_fills_their_queues_is_refused_and_others_are_not(
    hub: HubClient, jane: HubClient, carl: HubClient
) -> None:
    one = level("full", QUEUE, **ONE_SEAT)
    async with configured(hub, one, schema("full", "full", USERS)):
        holder = await holding_a_seat(carl)
        await until(lambda: is_count(hub, "full", EXECUTING, 1))
        clients = [await jane.connect() for _ in range(4)]
        raw = request_bytes("GET", CONFIG_MAPS, token=jane.token)
        asked = [asyncio.create_task(each.ask(raw)) for each in clients]
        await until(lambda: is_count(hub, "full", WAITING, 4))

        refused = await jane.ask("GET", CONFIG_MAPS)
        others = asyncio.create_task(carl.ask("GET", CONFIG_MAPS))
        await until(lambda: is_count(hub, "full", WAITING, 5))
        holder.vanish()

        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.body == b"Too many requests, please try again later.\n"
        assert {each.status for each in await asyncio.gather(*asked, others)} == {200}
        assert await count(hub, "full", REJECTED) == 1


async def test_a_watch_has_its_seat_only_until_it_has_begun(
    hub: HubClient, jane: HubClient
) -> None:
    name = "watching"
    async with configured(hub, level(name, QUEUE, **ONE_SEAT), schema(name, name, USERS)):
        streams = [await jane.watch(CONFIG_MAPS) for _ in range(2)]
        await until(lambda: is_count(hub, name, EXECUTING, 0))

        assert (await jane.ask("GET", CONFIG_MAPS)).status == 200
        for stream in streams:
            stream.close()


async def test_one_user_has_only_so_many_watches_and_others_have_theirs(
    running: RunningHub, hub: HubClient, carl: HubClient
) -> None:
    watcher = client_of(running, "watcher")
    streams = [await watcher.watch(CONFIG_MAPS) for _ in range(FEW_WATCHES)]
    refused = await watcher.ask("GET", f"{CONFIG_MAPS}?watch=1")
    beside = await carl.watch(CONFIG_MAPS)

    assert refused.status == 429
    assert (await watcher.ask("GET", CONFIG_MAPS)).status == 200
    streams[0].close()

    async def may_again() -> bool:
        connection = await watcher.connect()
        await connection.send(request_bytes("GET", f"{CONFIG_MAPS}?watch=1", token=watcher.token))
        status, _ = await connection.head()
        return status == 200

    await until(may_again)
    beside.close()
    watcher.close()


async def test_administrators_are_served_although_their_level_would_be_full(
    hub: HubClient, jane: HubClient
) -> None:
    closed = level("closed", QUEUE, nominalConcurrencyShares=0, borrowingLimitPercent=0)
    async with configured(hub, level("here", QUEUE), schema("here", "here", USERS)):
        await hub.do("POST", f"{GROUP}/prioritylevelconfigurations", closed)
        everybody = schema("closed", "closed", ("jane",))
        everybody["spec"]["rules"][0]["subjects"] = [{"kind": "Group", "group": {"name": "*"}}]
        everybody["spec"]["matchingPrecedence"] = 3
        await hub.do("POST", f"{GROUP}/flowschemas", everybody)
        asked = asyncio.create_task(jane.ask("GET", CONFIG_MAPS))
        try:
            await until(lambda: is_count(hub, "closed", WAITING, 1))
            assert (await hub.ask("GET", CONFIG_MAPS)).status == 200
            assert (await jane.ask("GET", "/readyz")).status == 200
        finally:
            await hub.do("DELETE", f"{GROUP}/flowschemas/closed")
            await hub.do("DELETE", f"{GROUP}/prioritylevelconfigurations/closed")
            asked.cancel()


async def test_dumps_are_for_who_may_read_them(hub: HubClient, jane: HubClient) -> None:
    for what in ("dump_priority_levels", "dump_queues", "dump_requests"):
        path = f"/debug/api_priority_and_fairness/{what}"
        assert await jane.refused("GET", path) == 403
        assert (await hub.ask("GET", path)).status == 200


async def test_what_is_kept_comes_back_and_what_is_left_to_users_stays_theirs(
    running: RunningHub, hub: HubClient
) -> None:
    objects = FlowControlObjects(running.state, None)
    path = f"{GROUP}/prioritylevelconfigurations"
    merge = "application/merge-patch+json"
    mine = {
        "metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"limited": {"nominalConcurrencyShares": 21}},
    }
    await hub.do("PATCH", f"{path}/global-default", mine, content_type=merge)
    changed = {"spec": {"limited": {"nominalConcurrencyShares": 99}}}
    await hub.do("PATCH", f"{path}/workload-low", changed, content_type=merge)
    await hub.do("DELETE", f"{path}/catch-all")
    await hub.do("DELETE", f"{GROUP}/flowschemas/probes")

    await objects.install()

    async def shares(name: str) -> int:
        found = await hub.do("GET", f"{path}/{name}")
        return found["spec"]["limited"]["nominalConcurrencyShares"]

    assert await shares("global-default") == 21
    assert await shares("workload-low") == 100
    assert await shares("catch-all") == 5
    probes = await hub.do("GET", f"{GROUP}/flowschemas/probes")
    assert probes["spec"]["priorityLevelConfiguration"] == {"name": "exempt"}
    await hub.do(
        "PATCH",
        f"{path}/global-default",
        {"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}}},
        content_type=merge,
    )
    await objects.install()
    assert await shares("global-default") == 20


async def test_without_the_mandatory_objects_requests_are_served_all_the_same(
    hub: HubClient, jane: HubClient
) -> None:
    for plural, names in (
        ("flowschemas", ("exempt", "catch-all", "global-default")),
        ("prioritylevelconfigurations", ("exempt", "catch-all", "global-default")),
    ):
        for name in names:
            await hub.do("DELETE", f"{GROUP}/{plural}/{name}")

    async def rows() -> bool:
        return set(await levels(hub)) >= {"exempt", "catch-all"} and "global-default" not in (
            await levels(hub)
        )

    await until(rows)
    assert (await jane.ask("GET", CONFIG_MAPS)).status == 200
    assert (await hub.ask("POST", CONFIG_MAPS, config_map("still"))).status == 201


async def test_without_fairness_two_bounds_are_left(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(TOKENS)
    limits = RequestLimits(2, 2, priority_and_fairness=False)
    settings = HubSettings(tmp_path, "memory", tokens, requests=limits, port=0)
    async with running_hub(settings) as running:
        admin = client_of(running, "admin")
        answer = await admin.ask("GET", CONFIG_MAPS)
        holder = await holding_a_seat(admin)

        async def is_full() -> bool:
            refused = await admin.ask("POST", CONFIG_MAPS, config_map("late"))
            return refused.status == 429 and msgspec.json.decode(refused.body)["code"] == 429

        await until(is_full)
        assert answer.status == 200
        assert "x-kubernetes-pf-flowschema-uid" not in answer.headers
        holder.vanish()
        admin.close()


async def test_a_list_that_is_made_and_sent_in_slices_has_everything_once_and_in_order(
    hub: HubClient, jane: HubClient, carl: HubClient
) -> None:
    place = "/api/v1/namespaces/many/configmaps"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "many"}}
    await hub.do("POST", "/api/v1/namespaces", namespace)
    sizes = {f"each-{number:04}": 10 for number in range(300)}
    sizes |= {f"large-{number}": 150_000 for number in range(3)}
    for name, size in sizes.items():
        await hub.do("POST", place, config_map(name, namespace="many", data={"k": "v" * size}))

    lists = await asyncio.gather(*(client.do("GET", place) for client in (jane, carl, jane)))

    for each in lists:
        items = [item for item in each["items"] if "k" in item["data"]]  # not the CA's
        shown = [(item["metadata"]["name"], len(item["data"]["k"])) for item in items]
        assert shown == list(sizes.items())
