"""`clusterspace why` on a fleet with members: namespaces, copies, conflicts, a silent cluster."""

import asyncio
from pathlib import Path

from click.testing import CliRunner

from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import ALREADY_EXISTS
from clusterspace.cli.commands.why import why
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, deployment, namespace
from clusterspace.testing.stage import Fleet, move_cluster, running_fleet, until_ready
from clusterspace.testing.steps import until


async def ask(fleet: Fleet, *words: str) -> str:
    kubeconfig = fleet.directory / "hub" / "kubeconfig"
    arguments = [*words, "--kubeconfig", str(kubeconfig)]
    done = await asyncio.to_thread(CliRunner().invoke, why, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def policy(name: str) -> Object:
    selector = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"resourceSelectors": [selector], "placement": {}},
    }


async def test_why_is_right_about_namespaces_copies_conflicts_and_silence(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.controllers():
        west = await fleet.add_sim("west", nodes=1)
        await fleet.join("west", west)
        await until_ready(fleet, "west")
        hub, place = fleet.hub.client, ResourcePath(DEPLOYMENTS, "shop")
        await hub.create(ResourcePath(NAMESPACES), namespace("shop"))
        await until(lambda: west.client.find(ResourcePath(NAMESPACES, name="shop")))
        by_hand = with_metadata(deployment("api"), namespace="shop")
        await west.client.create(place, by_hand)
        for name in ("web", "api"):
            await hub.create(ResourcePath(PROPAGATION_POLICIES, "shop"), policy(name))
            await hub.create(place, with_metadata(deployment(name), namespace="shop"))
        await until(lambda: west.client.find(ResourcePath(DEPLOYMENTS, "shop", "web")))

        async def says(expected: str, *words: str) -> bool:
            return expected in await ask(fleet, *words)

        # It said that the namespace stays on the hub.
        await until(lambda: says("applied on all of them", "namespace/shop"))
        assert "west placed" in await ask(fleet, "namespace/shop")

        # It said that there is no such object.
        copy = ("deployment/web.clusterspace.west", "-n", "shop")
        await until(lambda: says("is as the hub wants it", *copy))
        assert "follows PropagationPolicy shop/web" in await ask(fleet, *copy)
        assert "the copy of Deployment shop/web" in await ask(
            fleet, "deployment/web", "-n", "shop.clusterspace.west"
        )

        # Whose the place is, from both sides, and what can be done.
        await until(lambda: says(ALREADY_EXISTS, "deployment/api", "-n", "shop"))
        advice = "clusterspace promote deployment api -n shop -C west --dry-run"
        assert advice in await ask(fleet, "deployment/api", "-n", "shop")
        foreign = await ask(fleet, "deployment/api.clusterspace.west", "-n", "shop")
        assert "leaves this one alone" in foreign

        # It said 1/1 ready of a cluster that nobody could reach.
        await move_cluster(hub, "west", "https://127.0.0.1:1")
        await until(lambda: says("west does not answer", "deployment/web", "-n", "shop"))
        assert "what is said of west is old" in await ask(fleet, "deployment/web", "-n", "shop")
        known = await ask(fleet, *copy)
        assert "west does not answer" in known
        assert "what follows is what the hub knows of it" in known
