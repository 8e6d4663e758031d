"""The right to read metrics is placed on the Pull clusters that autoscaled pods are in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.component.reconcilers import reconciling
from tests.component.works_site import Site

from clusterspace.apis.autoscalers import FEDERATED_HPAS
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.propagation.metrics_readers import NAME, MetricsReaders
from clusterspace.kube.objects import Object, name_of, with_value
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until_equal

KINDS = ["ClusterRole", "ClusterRoleBinding"]
AUTOSCALER: Object = {
    "apiVersion": "autoscaling.karmada.io/v1alpha1",
    "kind": "FederatedHPA",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 5,
    },
}


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        site = Site(hub_client)
        for name, mode in (("push", "Push"), ("pull", "Pull"), ("later", "Pull"), ("idle", "Pull")):
            await site.join(name, mode)
        yield site


async def test_pull_clusters_get_it_with_their_first_pods_and_keep_it(site: Site) -> None:
    hub = site.hub_client

    async def placed(cluster: str) -> list[str]:
        works = await hub.list_objects(ResourcePath(WORKS, execution_namespace(cluster)))
        made = [each for work in works for each in manifests_of(work)]
        return sorted(str(each["kind"]) for each in made if name_of(each) == NAME)

    template = await site.put(DEPLOYMENTS, deployment("web"))
    binding = await site.bind(template, "push", "pull", replicas=1)
    caches = HubCaches(hub)
    async with reconciling(caches, MetricsReaders(hub, caches)):
        await settled()
        assert await placed("pull") == []

        await site.put(FEDERATED_HPAS, AUTOSCALER)
        await until_equal(lambda: placed("pull"), KINDS)

        clusters = [{"name": each, "replicas": 1} for each in ("push", "later")]
        await site.change(binding, lambda each: with_value(each, clusters, "spec", "clusters"))
        await until_equal(lambda: placed("later"), KINDS)
        await settled()
        assert [await placed(each) for each in ("push", "pull", "idle")] == [[], KINDS, []]
