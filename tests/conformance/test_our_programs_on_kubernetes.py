"""Our controllers and our gateway with a kube-apiserver for a hub: it has our kinds, no more."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from tests.component.serving.certificates import Authority

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.crds import definitions
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings, Pem, Trust
from clusterspace.fleet.membership import manifests
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import find_at, name_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.controllers import run_controllers
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.settings import FleetSettings
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.hubs import (
    MASTERS_TRAVEL,
    client_for_test,
    real_controllers_for_test,
    real_server_for_test,
)
from clusterspace.testing.stage import Fleet, Side, quick, until_ready
from clusterspace.testing.steps import stop, until

pytestmark = pytest.mark.slow

CRDS = ResourcePath(GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
WEB = ResourcePath(DEPLOYMENTS, "default", "web")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    """Run a kube-apiserver that has our kinds, and our controllers."""
    directory = tmp_path / "hub"
    directory.mkdir()
    Authority(directory)  # whom the hub's certificates are of, as the gateway asks it
    known_by = f"--client-ca-file={directory / 'ca.crt'}"
    async with (
        real_server_for_test(directory, known_by, name="hub") as real,
        # Not those of workloads: a hub runs none.
        real_controllers_for_test(
            real, directory, "namespace-controller", "garbage-collector-controller"
        ),
        client_for_test(real.settings) as client,
        AsyncExitStack() as stack,
    ):
        hub = Side(real.settings, client)
        for definition in definitions():
            await hub.client.create(CRDS, definition)

        async def are_served() -> bool:
            held = await hub.client.list_objects(CRDS)
            return all(
                is_true(find_at(each, "status", "conditions"), "Established") for each in held
            )

        await until(are_served)
        controllers = asyncio.create_task(run_controllers(quick(hub.settings), SystemClock()))
        try:
            yield Fleet(hub, tmp_path, stack)
        finally:
            await stop(controllers)


async def test_a_deployment_goes_out_and_comes_back_and_the_view_shows_both(
    fleet: Fleet, tmp_path: Path
) -> None:
    west = await fleet.add_sim("west", nodes=1)
    await fleet.join("west", west)
    await until_ready(fleet, "west")
    await fleet.hub.client.create(WEB.collection, deployment("web", replicas=2))
    selector = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    policy = {
        "apiVersion": PROPAGATION_POLICIES.api_version,
        "kind": "PropagationPolicy",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "resourceSelectors": [selector],
            "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
        },
    }
    await fleet.hub.client.create(ResourcePath(PROPAGATION_POLICIES, "default"), policy)

    await until(lambda: west.client.find(WEB))

    async def is_told() -> bool:
        template = await fleet.hub.client.get(WEB)
        return find_at(template, "status", "readyReplicas") == 2

    await until(is_told)
    settings = FleetSettings(
        hub=fleet.hub.settings,
        data_dir=tmp_path / "fleet",
        port=0,
        member_cidrs=LOOPBACK,
        identities=MASTERS_TRAVEL,
    )
    async with running_fleet(settings) as running:
        authority = (tmp_path / "fleet" / "pki" / "ca.crt").read_bytes()
        as_admin = ConnectionSettings(
            "fleet", running.url, Trust(Pem(authority)), fleet.hub.settings.identity
        )
        view = Connection(as_admin, clock=SystemClock(), random=Random(1))
        try:

            async def shown() -> set[str]:
                listed = await ClusterClient(view).list_objects(WEB.collection)
                return {name_of(each) for each in listed}

            async def shows_both() -> bool:
                return await shown() == {"web", "web.clusterspace.west"}

            await until(shows_both)
        finally:
            await view.close()

    await fleet.unjoin("west", member=west.settings)
    assert await fleet.hub.client.find(manifests.cluster_path("west")) is None
