"""How far a reader walks who follows a Deployment from its policy to a member, and its status back.

Hub and member run in a thread of their own. What is counted is the way of the controllers, from the
events they are woken by to the requests they send, down to the socket.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.flows.test_walk_of_a_join import clusters_elsewhere
from tests.walks import Walk

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import find_at
from clusterspace.roots.controllers import run_controllers
from clusterspace.roots.membership import join_cluster
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.hubs import client_for_test, part_of_hub
from clusterspace.testing.stage import quick
from clusterspace.testing.steps import stop, until

MOST_MODULES = 80
MOST_OF_THE_FLOW = 31
"""Where the way is now, 75, and a few for what is seen when the part for a member is built
meanwhile, with what counts replicas there, and with what keeps namespaces. The last ones: whether a
Work exports a Service is asked where it is carried out; what fits is read from estimates of nodes;
affinities are read in one place, for the scheduler and for the view; room that was promised to
others is taken off; staged updates look whether what changed is theirs; groups of workloads are to
be together or apart; who interprets the kind is asked in one place; what is scaled is marked; which
state a cluster is to have is asked where policies may roll out by stages."""
BESIDE = (
    "clusterspace.fleet.membership.",
    "clusterspace.fleet.propagation.eviction.",
    "clusterspace.fleet.propagation.metrics_readers",
    "clusterspace.fleet.propagation.placements.picking",
    "clusterspace.fleet.propagation.quotas",
    "clusterspace.fleet.propagation.services.",
    "clusterspace.fleet.propagation.watchdogs",
    "clusterspace.telemetry.fleet_metrics",
    "clusterspace.testing.",
)
"""Heartbeats and looks at the member go on meanwhile, with figures of their own: another flow. So
do looks at every binding for what has to leave its cluster, or takes from a quota, at every Work
for whether it exports a Service or wants a watchdog, at where pods are that are scaled by their
metrics, and at what a member reports for those who pick clusters by it, which nothing on the way
waits for."""

POLICY = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
        "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
    },
}


@pytest.mark.asyncio
async def test_a_deployment_is_followed_to_its_member_in_few_files(tmp_path: Path) -> None:
    with clusters_elsewhere(tmp_path, has_controllers=False) as clusters:
        async with AsyncExitStack() as stack:
            hub = await stack.enter_async_context(client_for_test(clusters.hub))
            settings = quick(part_of_hub(tmp_path / "hub", "controllers"))
            controllers = asyncio.create_task(run_controllers(settings, SystemClock()))
            stack.push_async_callback(stop, controllers)
            await join_cluster(JoinRequest("west", clusters.member), clusters.hub, lambda _: None)
            binding = ResourcePath(RESOURCE_BINDINGS, "default", "web-deployment")

            async def is_applied() -> bool:
                found = await hub.find(binding) or {}
                return is_true(find_at(found, "status", "conditions"), "FullyApplied")

            with Walk() as walk:
                await hub.create(ResourcePath(PROPAGATION_POLICIES, "default"), POLICY)
                await hub.create(ResourcePath(DEPLOYMENTS, "default"), deployment("web"))
                await until(is_applied)

    print(walk)
    flows = ("clusterspace.fleet.propagation.", "clusterspace.fleet.execution.")
    passed = [each for each in walk.modules if not each.startswith(BESIDE)]
    assert len([each for each in passed if each.startswith(flows)]) <= MOST_OF_THE_FLOW
    assert len(passed) <= MOST_MODULES
