"""Karmada's own karmada-search beside our fleet API server: the same registries, the same lists.

Both stand on one hub and the same simulated members. Whoever has karmada-search says where in
KARMADA_ASSETS; it keeps nothing in the etcd that it wants to have.
"""

import json
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.registries import CACHED_FROM, RESOURCE_REGISTRIES
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Trust
from clusterspace.errors import ClusterError
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, PODS, config_map, namespace, pod
from clusterspace.testing.hubs import free_port, real_component_for_test, real_program_for_test
from clusterspace.testing.stage import until_ready
from clusterspace.testing.steps import until, until_equal

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

API = "/apis/search.karmada.io/v1alpha1"
CACHE, PROXY = f"{API}/search/cache", f"{API}/proxying/karmada/proxy"
MEMBERS = ("member1", "member2")
COUNT = 100


@dataclass
class Both:
    """Two servers that are asked the same."""

    site: Site
    ours: Connection
    theirs: Connection

    async def ask(self, path: str, **headers: str) -> tuple[Any, Any]:
        """Return what both answer: ours, then theirs."""
        request = ApiRequest("GET", path, headers=tuple(headers.items()))
        ours, theirs = [await each.exchange(request) for each in (self.ours, self.theirs)]
        return json.loads(ours.body), json.loads(theirs.body)

    async def until_alike(self, path: str, seen: Callable[[Any], Any]) -> Any:
        """Ask until both show the same; theirs has to fill a cache first."""
        answered: Any = None

        async def is_so() -> bool:
            nonlocal answered
            answered = [seen(each) for each in await self.ask(path)]
            return bool(answered[0]) and answered[0] == answered[1]

        try:
            await until(is_so, 60)
        except AssertionError:
            raise AssertionError(f"{path}: ours {answered[0]}, theirs {answered[1]}") from None
        return answered[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Both]:
    directory = tmp_path_factory.mktemp("search")
    program = Path(os.environ.get("KARMADA_ASSETS", "")) / "karmada-search"
    if "KARMADA_ASSETS" not in os.environ or not program.exists():
        pytest.skip("no karmada-search: set KARMADA_ASSETS to where Karmada's programs are")
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(fleet_site(directory, members=(), sims=MEMBERS))
        await stack.enter_async_context(site.fleet.controllers())
        for name in MEMBERS:
            await until_ready(site.fleet, name)
            client = site.members[name].client
            await client.create(ResourcePath(NAMESPACES), namespace("shop"))
            for at in range(COUNT):
                made = pod(f"{name}-{at:03}", namespace="shop")
                await client.create(ResourcePath(PODS, "shop"), made)
        etcd, peers, port = free_port(), free_port(), free_port()
        etcd_url = f"http://127.0.0.1:{etcd}"
        await stack.enter_async_context(
            real_component_for_test(
                "etcd",
                directory,
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                "--unsafe-no-fsync",
            )
        )
        kubeconfig = directory / "karmada-search.kubeconfig"
        kubeconfig.write_text(json.dumps(hub_kubeconfig(site)))
        flags = [
            *(
                f"--{each}kubeconfig={kubeconfig}"
                for each in ("", "authentication-", "authorization-")
            ),
            "--authentication-skip-lookup",
            f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={directory / 'certificates'}",
        ]
        await stack.enter_async_context(real_program_for_test(str(program), directory, *flags))
        settings = ConnectionSettings(
            "karmada-search",
            f"https://127.0.0.1:{port}",
            Trust(skips_verification=True),
            AuthInfo(token=ROOT),
        )
        theirs = Connection(settings, clock=SystemClock(), random=Random(1))
        stack.push_async_callback(theirs.close)

        async def is_ready() -> bool:
            try:
                return (await theirs.exchange(ApiRequest("GET", "/readyz"))).status == 200
            except ClusterError:
                return False

        await until(is_ready, 120)
        yield Both(site, site.connection(ROOT), theirs)


def hub_kubeconfig(site: Site) -> Object:
    cluster = {"server": site.hub.settings.server, "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hub",
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [{"name": "root", "user": {"token": ROOT}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "root"}}],
    }


def sources(body: Any) -> dict[str, str]:
    return {
        f"{each['metadata'].get('namespace')}/{each['metadata']['name']}": each["metadata"][
            "annotations"
        ][CACHED_FROM]
        for each in body["items"]
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def registered(both: Both) -> Both:
    selectors = [
        {"apiVersion": "v1", "kind": "Pod"},
        {"apiVersion": "v1", "kind": "Node"},
        {"apiVersion": "apps/v1", "kind": "Deployment"},
    ]
    spec = {"targetCluster": {"clusterNames": list(MEMBERS)}, "resourceSelectors": selectors}
    made: Object = {
        "apiVersion": "search.karmada.io/v1alpha1",
        "kind": "ResourceRegistry",
        "metadata": {"name": "all"},
        "spec": spec,
    }
    await both.site.hub.client.create(ResourcePath(RESOURCE_REGISTRIES), made)
    return both


@pytest.mark.parametrize(
    "path",
    [
        f"{CACHE}/api/v1/nodes",
        f"{CACHE}/api/v1/pods",
        f"{CACHE}/api/v1/namespaces/shop/pods",
        f"{CACHE}/api/v1/namespaces/shop/pods/member1-007",
        f"{PROXY}/api/v1/nodes",
        f"{PROXY}/api/v1/namespaces/shop/pods",
        f"{PROXY}/api/v1/namespaces/shop/pods?labelSelector=none%3Dsuch,!other",
    ],
)
async def test_both_list_the_same_from_the_same_clusters(registered: Both, path: str):
    if "none" in path:
        ours, theirs = await registered.ask(path)
        assert ours["items"] == theirs["items"] == []
        return
    found = await registered.until_alike(path, sources)

    assert set(found.values()) <= set(MEMBERS)


async def test_both_get_the_same_object_and_miss_the_same(registered: Both):
    path = f"{PROXY}/api/v1/namespaces/shop/pods"

    def seen(body: Any) -> Any:
        metadata = body["metadata"]
        return metadata["uid"], metadata["name"], metadata["annotations"][CACHED_FROM]

    await registered.until_alike(f"{path}/member2-042", seen)
    ours, theirs = await registered.ask(f"{path}/nobody")
    keys = ("code", "reason", "message")
    assert [ours[each] for each in keys] == [theirs[each] for each in keys]


async def test_both_give_pages_of_the_same_list(registered: Both):
    path = f"{PROXY}/api/v1/namespaces/shop/pods"
    await registered.until_alike(path, sources)
    found: list[list[str]] = []
    for connection in (registered.ours, registered.theirs):
        names: list[str] = []
        token = ""
        while True:
            query = (("limit", "30"), *((("continue", token),) if token else ()))
            answer = await connection.ask(ApiRequest("GET", path, query))
            page = json.loads(answer.body)
            names += [each["metadata"]["name"] for each in page["items"]]
            token = page["metadata"].get("continue", "")
            if not token:
                break
        found.append(names)

    assert sorted(found[0]) == sorted(found[1])
    assert len(found[0]) == len(set(found[0])) == 2 * COUNT


async def test_a_namespace_counts_in_both_proxies_and_in_our_cache(registered: Both):
    client = registered.site.members["member1"].client
    for inside in ("shop", "default"):
        made = config_map("settings", namespace=inside)
        await client.create(ResourcePath(CONFIG_MAPS, inside), made)
    selector = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop"}
    made = {
        "apiVersion": "search.karmada.io/v1alpha1",
        "kind": "ResourceRegistry",
        "metadata": {"name": "settings"},
        "spec": {
            "targetCluster": {"clusterNames": ["member1"]},
            "resourceSelectors": [selector],
        },
    }
    await registered.site.hub.client.create(ResourcePath(RESOURCE_REGISTRIES), made)

    def settings(body: Any) -> set[str]:
        return {each for each in sources(body) if each.endswith("/settings")}

    proxied = await registered.until_alike(f"{PROXY}/api/v1/configmaps", settings)

    async def cached() -> list[set[str]]:
        return [settings(each) for each in await registered.ask(f"{CACHE}/api/v1/configmaps")]

    assert proxied == {"shop/settings"}
    await until_equal(cached, [{"shop/settings"}, {"shop/settings", "default/settings"}], 60)


async def test_how_long_both_take_is_printed(registered: Both, capsys: pytest.CaptureFixture[str]):
    """No bound: one of them answers from its memory, the other asks the members."""
    for path in (f"{CACHE}/api/v1/pods", f"{PROXY}/api/v1/pods"):
        await registered.until_alike(path, sources)
        took: list[float] = []
        for connection in (registered.ours, registered.theirs):
            request = ApiRequest("GET", path)
            seconds: list[float] = []
            for _ in range(10):
                started = time.perf_counter()
                await connection.ask(request)
                seconds.append(time.perf_counter() - started)
            took.append(sorted(seconds)[5])
        with capsys.disabled():
            print(
                f"\n{path}: ours {took[0] * 1000:.0f} ms, karmada-search {took[1] * 1000:.0f} ms, "
                f"{took[0] / took[1]:.2f}x"
            )
