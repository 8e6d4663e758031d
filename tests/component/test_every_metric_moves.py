"""Whatever the metrics page promises is measured: hub, controllers, gateway and agents move it."""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.registry import Collector
from tests.component.gateway.fleet_site import (
    MASTERS_TRAVEL,
    TOKENS,
    Site,
    grant,
    using,
    write_member,
)
from tests.component.gateway.watch_streams import watching
from tests.component.invited_members import Invited
from tests.component.serving.wire import RawClient, get, request

from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.fleet.membership import manifests
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.fleet import FleetSettings, running_fleet
from clusterspace.roots.hub import HubSettings, running_hub
from clusterspace.roots.sim import SimSettings, running_sim
from clusterspace.telemetry import fleet_metrics, metrics
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.hubs import client_for_test, part_of_hub
from clusterspace.testing.stage import Fleet, Side
from clusterspace.testing.steps import until

FLOW_SCHEMAS, PRIORITY_LEVELS = (
    GroupVersionResource("flowcontrol.apiserver.k8s.io", "v1", plural)
    for plural in ("flowschemas", "prioritylevelconfigurations")
)

PAGE = Path("docs/reference/metrics.md")
CONSTANT = {"clusterspace_build_info"}
"""Always 1, by its own description: that it is there is all it tells."""

ELSEWHERE = {"kubernetes_healthcheck", "kubernetes_healthchecks"}
"""At `/metrics/slis`, which `test_hub_answers.py` asks."""

OF_ETCD = {
    "etcd_request_duration_seconds",
    "etcd_request_errors",
    "clusterspace_store_reloads",
}
"""Of a hub on etcd: `test_etcd_store.py` has one, and sees them move."""

OF_EVICTIONS = {
    "clusterspace_evictions",
    "clusterspace_evictions_braked",
    "clusterspace_evictions_suspended",
}
"""Off here, as they are unless turned on: `test_propagation_eviction.py` sees them move."""


Samples = dict[tuple[str, str, frozenset[tuple[str, str]]], float]


class Moves:
    """Which metrics have changed since it was made."""

    def __init__(self) -> None:
        self._first = self._samples()
        self._gauges = metrics.REGISTRY.restricted_registry(
            [family.name for family in metrics.REGISTRY.collect() if family.type == "gauge"]
        )
        self.moved: set[str] = set()

    def look(self) -> None:
        self._compare(self._samples())

    async def look_at_gauges(self) -> None:
        """Look again and again at what goes up and comes down, until cancelled."""
        while True:
            self._compare(self._samples(self._gauges))
            await asyncio.sleep(0.01)

    def _compare(self, samples: Samples) -> None:
        changed = (each for each, value in samples.items() if self._first.get(each, 0.0) != value)
        self.moved.update(family for family, _, _ in changed)

    @staticmethod
    def _samples(registry: Collector = metrics.REGISTRY) -> Samples:
        return {
            (family.name, sample.name, frozenset(sample.labels.items())): sample.value
            for family in registry.collect()
            for sample in family.samples
        }


def documented() -> set[str]:
    """Return the names on the page as the registry has them: counters without their ending."""
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    return {name.removesuffix("_total") for name in listed}


@asynccontextmanager
async def product(directory: Path) -> AsyncGenerator[Site]:
    """Run a hub on a disk and a gateway before it; `east` is a simulated member with a node."""
    async with AsyncExitStack() as stack:
        (directory / "hub").mkdir()
        tokens = directory / "tokens.csv"
        tokens.write_text(TOKENS)
        hub = HubSettings(
            directory / "hub",
            port=0,
            token_auth_file=tokens,
            member_cidrs=LOOPBACK,
            identities=MASTERS_TRAVEL,
        )
        await stack.enter_async_context(running_hub(hub))
        reached = read_kubeconfig([directory / "hub" / "kubeconfig"]).settings(cluster="hub")
        client = await stack.enter_async_context(client_for_test(reached))
        fleet = Fleet(Side(reached, client), directory, stack)
        for name in ("east", "west"):
            await stack.enter_async_context(
                running_sim(SimSettings(name, directory / name, nodes=1))
            )
        gateway = FleetSettings(
            part_of_hub(directory / "hub", "fleet"),
            directory / "fleet",
            port=0,
            member_cidrs=LOOPBACK,
            limits=FleetLimits(list_seconds=5.0),
            identities=MASTERS_TRAVEL,
        )
        running = await stack.enter_async_context(running_fleet(gateway))
        site = Site(fleet, running)
        stack.push_async_callback(site.close)
        for name in ("east", "west"):
            own = read_kubeconfig([directory / name / "kubeconfig"]).settings(cluster=name)
            side = Side(own, await stack.enter_async_context(client_for_test(own)))
            site.members[name] = side
        yield site


@pytest.mark.sqlite("the commits of a file are counted; those of etcd move elsewhere")
async def test_every_documented_metric_moves_when_the_product_runs(
    tmp_path: Path, logged_errors: list[str]
) -> None:
    async with product(tmp_path) as site, asyncio.TaskGroup() as group:
        # Other tests of this process may have called a cluster the same, and left it silent.
        with suppress(KeyError):
            fleet_metrics.cluster_forgotten("east")
        fleet_metrics.hub_doubts(itself=False)
        moves = Moves()
        looking = group.create_task(moves.look_at_gauges())
        invited = Invited(site.fleet)
        async with invited.controllers():
            await site.fleet.join("east", site.members["east"])
            await site.wait_for("east")
            await ask_the_gateway(site)
            await break_connections(site)
            await watch_without_reading(site)
            await fill_a_level(site)
            await fail_to_place(site, moves)
            await invite_and_let_go(invited, site.members["west"])
            await fall_silent(site, moves)
        looking.cancel()
        moves.look()

    page = documented()
    assert page, "the page lists nothing"
    assert page - moves.moved - CONSTANT - ELSEWHERE - OF_ETCD - OF_EVICTIONS == set()
    assert [each for each in logged_errors if "the hub suspects itself" not in each] == []


async def ask_the_gateway(site: Site) -> None:
    for side in (site.hub, site.members["east"]):
        await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
    before = lists_of_config_maps()
    assert (await site.ask("GET", "/api/v1/namespaces/shop/configmaps")).code == 200
    # By the hub, by east, and by the gateway that asked both.
    assert lists_of_config_maps() - before == 3
    assert (await site.ask("GET", "/api/v1/namespaces/shop/inventions")).code == 404
    assert b"inventions" not in metrics.render()
    async with watching(site.connection("root-token"), "/api/v1/configmaps?watch=1"):
        pass
    assert (await site.ask("GET", "/api/v1/pods", token="wrong")).code == 401


def lists_of_config_maps() -> float:
    labels = {"verb": "list", "group": "", "version": "v1", "resource": "configmaps"}
    labels |= {"subresource": "", "scope": "namespace", "code": "200"}
    return metrics.REGISTRY.get_sample_value("apiserver_request_total", labels) or 0.0


async def break_connections(site: Site) -> None:
    url = urlsplit(site.url)
    _, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(b"this is no handshake\r\n\r\n")
    await writer.drain()
    writer.close()


async def watch_without_reading(site: Site) -> None:
    """Watch ConfigMaps on the hub and read nothing, while much is written."""
    url = urlsplit(site.hub.settings.server)
    tls = ssl.create_default_context(cafile=str(site.directory / "hub" / "pki" / "ca.crt"))
    client = RawClient(*await asyncio.open_connection(url.hostname, url.port, ssl=tls))
    try:
        path = "/api/v1/namespaces/shop/configmaps?watch=1"
        await client.send(get(path, "Authorization: Bearer root-token"))
        await client.head()
        client.stop_reading()
        before = metrics.REGISTRY.get_sample_value("clusterspace_watchers_evicted_total")
        place = ResourcePath(CONFIG_MAPS, "shop")
        for number in range(40):
            large = config_map(f"large-{number}", namespace="shop", data={"k": "v" * 900_000})
            await site.hub.client.create(place, large)
            evicted = metrics.REGISTRY.get_sample_value("clusterspace_watchers_evicted_total")
            if evicted != before:
                return
        raise AssertionError("the watch was never too slow")
    finally:
        client.vanish()


async def fill_a_level(site: Site) -> None:
    """Have one request of jane served, one waiting and one refused, for want of seats."""
    await grant(site.hub, "jane", using("configmaps"), "maps-of-jane")
    level = level_called("small", queues=1, length=1)
    await site.hub.client.create(ResourcePath(PRIORITY_LEVELS), level)
    await site.hub.client.create(ResourcePath(FLOW_SCHEMAS), schema_for("jane", "small"))
    url = urlsplit(site.hub.settings.server)
    tls = ssl.create_default_context(cafile=str(site.directory / "hub" / "pki" / "ca.crt"))
    clients = [
        RawClient(*await asyncio.open_connection(url.hostname, url.port, ssl=tls)) for _ in range(3)
    ]
    path, login = "/api/v1/namespaces/shop/configmaps", "Authorization: Bearer jane-token"
    kind, length = "Content-Type: application/json", "Content-Length: 3000"
    try:
        await clients[0].send(request("POST", path, login, kind, length) + b'{"kind":')
        asked = [asyncio.create_task(client.ask(get(path, login))) for client in clients[1:]]
        refused = next(asyncio.as_completed(asked))
        assert (await refused).status == 429
        clients[0].vanish()
        assert sorted([(await each).status for each in asked]) == [200, 429]
    finally:
        for client in clients:
            client.vanish()


def level_called(name: str, *, queues: int, length: int) -> dict[str, Any]:
    queuing = {"queues": queues, "handSize": 1, "queueLengthLimit": length}
    limited = {
        "nominalConcurrencyShares": 1,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing},
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": limited},
    }


def schema_for(user: str, level: str) -> dict[str, Any]:
    rules = {
        "subjects": [{"kind": "User", "user": {"name": user}}],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": [""], "resources": ["*"], "namespaces": ["*"]}
        ],
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": f"{level}-for-{user}"},
        "spec": {
            "matchingPrecedence": 50,
            "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rules],
        },
    }


async def fail_to_place(site: Site, moves: Moves) -> None:
    """Have a member join that cannot be reached: what is to be looked at there is tried again."""
    await write_member(site.hub.client, "nowhere", "https://127.0.0.1:9")

    def is_retried() -> bool:
        moves.look()
        return "workqueue_retries" in moves.moved and "workqueue_depth" in moves.moved

    await until(is_retried)


async def invite_and_let_go(invited: Invited, member: Side) -> None:
    await invited.invite()
    async with invited.agent(member):
        await invited.until_joined()
        await invited.let_go()
        await invited.until_gone()


async def fall_silent(site: Site, moves: Moves) -> None:
    """Have most of the fleet be clusters whose agents say nothing: the hub suspects itself."""
    for name in ("a", "b", "c", "d", "e"):
        made = manifests.cluster(name, name, manifests.Endpoint(""), manifests.NOWHERE)
        made["spec"]["syncMode"] = "Pull"
        await site.hub.client.create(manifests.cluster_path(name).collection, made)

    def suspects() -> bool:
        return "clusterspace_hub_suspects_itself" in moves.moved

    await until(suspects)
