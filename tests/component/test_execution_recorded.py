"""Works as a real Karmada wrote them, carried out by us: the member ends as it did there."""

import json
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import pytest
import pytest_asyncio
from tests.component.execution_site import CLUSTER, SPACE, Site, executing, two_clusters
from tests.corpus import load_scenario

from clusterspace.apis.clusters import WORKS
from clusterspace.apis.interpreter.templates import pruned
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import WriteOptions
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    with_metadata,
)
from clusterspace.testing.builders import DEPLOYMENTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

KUBECTL = WriteOptions(field_manager="kubectl-client-side-apply")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
FIELDS = ("unset", "abort", "overwrite")
CELLS = [f"c-{field}-{annotation}" for field in FIELDS for annotation in FIELDS]
_OURS = "deployment.kubernetes.io/revision"
"""Counted by a controller this member does not run."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path_factory.mktemp("site")) as site, executing(site):
        yield site


@cache
def scene(name: str) -> Any:
    """Return a scene in which the member is called as ours is."""
    return json.loads(json.dumps(load_scenario("karmada", name)).replace("member1", CLUSTER))


def seen(name: str, see: str) -> Any:
    return next(each["objects"] for each in scene(name)["steps"] if each.get("see") == see)


def recorded_work(name: str, see: str, object_name: str) -> Object:
    works = [each for each in seen(name, see)["items"] if each["metadata"]["namespace"] == SPACE]
    return next(
        each
        for each in works
        if name_of(find_at(each, "spec", "workload")["manifests"][0]) == object_name
    )


async def make_legacy(site: Site, manifest: Object) -> None:
    """Create an object as `kubectl apply` does."""
    applied = json.dumps(manifest, separators=(",", ":"))
    legacy = with_metadata(manifest, annotations={LAST_APPLIED: applied})
    await site.member.create(ResourcePath(DEPLOYMENTS, "default"), legacy, KUBECTL)


async def order(site: Site, work: Object) -> None:
    kept = pruned(work)
    held = with_metadata(kept, finalizers=work["metadata"]["finalizers"])
    await site.hub.create(ResourcePath(WORKS, SPACE), held)


def foreign_to_us(live: Object) -> dict[str, str]:
    return {key: value for key, value in annotations_of(live).items() if key != _OURS}


@pytest.mark.parametrize("cell", CELLS)
async def test_a_cell_of_the_conflict_matrix_ends_as_recorded(site: Site, cell: str) -> None:
    steps = scene("conflict_matrix")["steps"]
    legacy = next(each for each in steps if str(each.get("action")).endswith(f"{CLUSTER}: {cell}"))
    work = recorded_work("conflict_matrix", f"hub: works -n {SPACE}", cell)
    there = seen("conflict_matrix", f"{CLUSTER}: deploy {cell}")
    applied = next(each for each in work["status"]["conditions"] if each["type"] == "Applied")

    await make_legacy(site, legacy["manifests"][0])
    await order(site, work)
    condition = await site.applied(name_of(work), applied["status"])

    assert condition["reason"] == applied["reason"]
    assert condition["message"].startswith(applied["message"].partition(" is empty")[0])
    live = await site.member.get(ResourcePath(DEPLOYMENTS, "default", cell))
    assert live["spec"] == there["spec"]
    assert labels_of(live) == labels_of(there)
    if applied["status"] == "True":
        assert foreign_to_us(live) == foreign_to_us(there)


async def test_a_promoted_deployment_ends_as_recorded(site: Site) -> None:
    work = recorded_work("promote", "hub: works -A -l ", "legacy")
    steps = scene("promote")["steps"]
    there = [each["objects"] for each in steps if each.get("see") == f"{CLUSTER}: deploy legacy"]

    await make_legacy(site, steps[0]["manifests"][0])
    await order(site, work)
    await site.applied(name_of(work))

    live = await site.member.get(ResourcePath(DEPLOYMENTS, "default", "legacy"))
    assert live["spec"] == there[-1]["spec"] == there[0]["spec"]
    assert labels_of(live) == labels_of(there[-1])
    assert foreign_to_us(live) == foreign_to_us(there[-1])
    status = (await site.work(name_of(work)))["status"]
    told = find_at(work, "status", "manifestStatuses")[0]
    assert status["manifestStatuses"][0]["identifier"] == told["identifier"]
