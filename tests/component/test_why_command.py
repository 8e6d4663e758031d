"""`clusterspace why` against a running hub: one screen for people, JSON for programs."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from click.testing import CliRunner, Result
from tests.component.scheduler_site import Fleet, running_scheduler

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.cli.commands.why import why
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import labels_of, with_metadata
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, deployment, namespace
from clusterspace.testing.hubs import client_for_test, hub_for_test


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        yield Fleet(hub_client)


async def ask(directory: Path, *words: str) -> Result:
    arguments = [*words, "--kubeconfig", str(directory / "kubeconfig")]
    return await asyncio.to_thread(CliRunner().invoke, why, arguments)


async def place_web(fleet: Fleet) -> None:
    """Leave a Deployment as detector, scheduler and works leave it."""
    await fleet.join("member1")
    await fleet.join("member2")
    selector = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    policy = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"resourceSelectors": [selector], "placement": {}},
    }
    made = await fleet.hub_client.create(ResourcePath(PROPAGATION_POLICIES, "default"), policy)
    template = with_metadata(
        deployment("web", replicas=2),
        labels={stamps.POLICY_ID: labels_of(made)[stamps.POLICY_ID]},
        annotations={stamps.POLICY_NAME: "web", stamps.POLICY_NAMESPACE: "default"},
    )
    await fleet.hub_client.create(ResourcePath(DEPLOYMENTS, "default"), template)
    async with running_scheduler(fleet.hub_client):
        place = await fleet.bind("web", {"clusterAffinity": {"clusterNames": ["member1"]}})
        binding = await fleet.until_told(place, "Success")
    await fleet.hub_client.create(ResourcePath(NAMESPACES), namespace("karmada-es-member1"))
    work = {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "name": stamps.work_name("Deployment", "default", "web"),
            "labels": {stamps.BINDING_ID: labels_of(binding)[stamps.BINDING_ID]},
        },
        "spec": {"workload": {"manifests": [deployment("web")]}},
    }
    await fleet.hub_client.create(ResourcePath(WORKS, "karmada-es-member1"), work)


async def test_an_object_is_followed_to_its_clusters(fleet: Fleet, tmp_path: Path) -> None:
    await place_web(fleet)

    shown = await ask(tmp_path, "deploy/web")
    read = await ask(tmp_path, "deployment", "web", "-o", "json")

    work_name = stamps.work_name("Deployment", "default", "web")
    assert shown.exit_code == 0, shown.output
    lines = [line.strip("│├└─ ") for line in shown.output.splitlines()]
    assert re.fullmatch(r"binding web-deployment: Success \d+s ago", lines.pop(2))
    # Nobody is at the address that the cluster has here.
    assert lines.pop(3).startswith("member1 does not answer: ")
    assert lines == [
        "Deployment web in default  It is placed on 1 cluster, and not applied on member1;"
        " what is said of member1 is old.",
        "follows PropagationPolicy default/web: selects it by name",
        "member1 placed with 2 replicas",
        f"Work {work_name} waits for the cluster",
        "member2 rejected: did not match the placement cluster affinity constraint",
    ]
    told = json.loads(read.output)
    assert told["policy"]["name"] == "default/web"
    assert [each["standing"] for each in told["clusters"]] == ["placed", "rejected"]


async def test_what_cannot_be_found_is_told_in_a_sentence(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.hub_client.create(ResourcePath(DEPLOYMENTS, "default"), deployment("alone"))

    absent = await ask(tmp_path, "deploy/absent")
    unknown = await ask(tmp_path, "gadget/web")
    unreadable = await ask(tmp_path, "web")
    alone = await ask(tmp_path, "deploy/alone")

    assert absent.exit_code == 1
    assert 'deployments.apps "absent" not found' in absent.output
    assert "the hub serves nothing called gadget" in unknown.output
    assert "write KIND/NAME, such as deployment/web" in unreadable.output
    assert "It stays on the hub: no policy selects it." in alone.output
