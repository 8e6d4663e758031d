"""Watchdogs are placed on the Push clusters that have leased copies, where an image is set."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.component.reconcilers import reconciling
from tests.component.works_site import Site

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.exclusive import EXCLUSIVE
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.propagation.watchdogs import WatchdogWorks
from clusterspace.kube.objects import Object
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until_equal

KINDS = ["ClusterRole", "ClusterRoleBinding", "Deployment", "ServiceAccount"]


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        site = Site(hub_client)
        for name, mode in (("push", "Push"), ("pull", "Pull"), ("idle", "Push")):
            await site.join(name, mode)
        yield site


def leased_work(cluster: str) -> Object:
    copy = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "db"}}
    return {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "name": "db",
            "namespace": execution_namespace(cluster),
            "annotations": {EXCLUSIVE: "leased"},
        },
        "spec": {"workload": {"manifests": [copy]}},
    }


async def placed(site: Site, cluster: str) -> list[str]:
    """Return the kinds of what is placed on a cluster of its watchdog."""
    works = await site.hub_client.list_objects(ResourcePath(WORKS, execution_namespace(cluster)))
    manifests = [each for work in works for each in manifests_of(work)]
    named = [each for each in manifests if each["metadata"]["name"] == "clusterspace-watchdog"]
    return sorted(str(each["kind"]) for each in named)


async def test_who_stops_leased_copies_is_placed_where_nobody_else_does(site: Site) -> None:
    caches = HubCaches(site.hub_client)
    async with reconciling(caches, WatchdogWorks(site.hub_client, caches, "example.com/w:1")):
        for name in ("push", "pull"):
            work = leased_work(name)
            await site.hub_client.create(ResourcePath(WORKS, execution_namespace(name)), work)
        await until_equal(lambda: placed(site, "push"), KINDS)
        await settled()
        assert [await placed(site, each) for each in ("pull", "idle")] == [[], []]


async def test_without_an_image_nothing_is_placed(site: Site) -> None:
    caches = HubCaches(site.hub_client)
    async with reconciling(caches, WatchdogWorks(site.hub_client, caches, "")):
        work = leased_work("push")
        await site.hub_client.create(ResourcePath(WORKS, execution_namespace("push")), work)
        await settled()
        assert await placed(site, "push") == []
