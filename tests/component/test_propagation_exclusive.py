"""Workloads that must not run twice, on a live hub: a new copy waits until the old one has stopped.

Clusters are played here: a Work that is let go of is a copy that was seen to stop.
"""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.component.works_site import DeploymentCaches, Running, Site, running_works

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.exclusive import EXCLUSIVE, STOPS_AFTER, promise_text
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.leases import LEASES
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.times import format_micro_time
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, deployment, namespace
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until_equal

MEMBERS = ("west", "east", "north")
LEASE = 40
ENOUGH = LEASE + 60 + 30 + 1
"""The promise, the margin, the time of the pods, and a moment."""
_numbers = itertools.count(1)


@pytest.fixture
def silence() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        site = Site(hub_client)
        await hub_client.create(ResourcePath(NAMESPACES), namespace("karmada-cluster"))
        for name in MEMBERS:
            await site.join(name, "Pull")
            await say_ready(site, name, "True")
            await renew(site, name)
        yield site


@pytest_asyncio.fixture
async def running(site: Site, silence: ManualClock) -> AsyncIterator[Running]:
    caches = DeploymentCaches(site.hub_client)
    async with running_works(site.hub_client, caches=caches, silence=silence) as running:
        yield running


async def say_ready(site: Site, name: str, status: str) -> None:
    said = {"type": "Ready", "status": status, "reason": "Said", "message": ""}
    said["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    path = ResourcePath(CLUSTERS, name=name)
    await site.change(path, lambda held: with_value(held, [said], "status", "conditions"))


async def renew(site: Site, name: str, *, promises: bool = True) -> None:
    """Renew the Lease of a cluster, as its agent does."""
    path = ResourcePath(LEASES, "karmada-cluster", name)
    moment = format_micro_time(1_800_000_000.0 + next(_numbers))
    live = await site.hub_client.find(path)
    if live is None:
        lease: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "karmada-cluster"},
            "spec": {"holderIdentity": name},
        }
        live = await site.hub_client.create(path.collection, lease)
    noted = {STOPS_AFTER: promise_text(LEASE, moment)} if promises else {}
    renewed = with_value(live, moment, "spec", "renewTime")
    changed = with_metadata(renewed, annotations={**annotations_of(live), **noted})
    await site.change(
        path,
        lambda held: {
            **changed,
            "metadata": {
                **changed["metadata"],
                "resourceVersion": held["metadata"]["resourceVersion"],
            },
        },
    )


async def placed(site: Site, mark: str = "true", **spec: Any) -> ResourcePath:
    """Bind an exclusive Deployment to west, and wait until it has its Work there."""
    template = deployment(f"web-{next(_numbers)}")
    if mark:
        template = with_metadata(template, annotations={EXCLUSIVE: mark})
    place = await site.bind(await site.put(DEPLOYMENTS, template), "west", **spec)
    await site.until_works(place, "west")
    return place


async def move(site: Site, place: ResourcePath, *clusters: str) -> None:
    targets = [{"name": each} for each in clusters]
    await site.change(place, lambda held: with_value(held, targets, "spec", "clusters"))


async def poke(site: Site, place: ResourcePath) -> None:
    """Have the controllers look at a binding once more, at once."""
    noted = {"poked": str(next(_numbers))}
    await site.change(
        place, lambda held: with_metadata(held, annotations={**annotations_of(held), **noted})
    )


async def why_held(site: Site, place: ResourcePath) -> tuple[str, str]:
    binding = await site.hub_client.get(place)
    said = find_condition(find_at(binding, "status", "conditions"), "WorksWritten") or {}
    return str(said.get("reason", "")), str(said.get("message", ""))


async def is_held(site: Site, place: ResourcePath, text: str) -> None:
    """Wait until a binding says why its new copy waits, and make sure that it does wait."""

    async def is_told() -> bool:
        reason, message = await why_held(site, place)
        return reason == "ExclusiveCopyNotStopped" and text in message

    await until_equal(is_told, True)
    await settled()
    assert set(await site.works_of(place)) == {"west"}


async def test_a_new_copy_waits_until_the_old_one_was_seen_to_stop(
    site: Site, running: Running
) -> None:
    place = await placed(site)
    work = (await site.works_of(place))["west"]
    manifest = work["spec"]["workload"]["manifests"][0]
    assert (annotations_of(work)[EXCLUSIVE], labels_of(manifest)[EXCLUSIVE]) == ("leased", "leased")

    await move(site, place, "east")
    await is_held(site, place, "west has not stopped it")
    assert is_being_deleted((await site.works_of(place))["west"])

    await site.execute_deletions()
    await site.until_works(place, "east")
    await until_equal(lambda: why_held(site, place), ("", ""))


@pytest.mark.parametrize(
    "failover",
    [
        {"cluster": {"purgeMode": "Directly"}},
        {"application": {"purgeMode": "Immediately", "decisionConditions": {}}},
    ],
    ids=["of a cluster", "of an application"],
)
async def test_what_goes_directly_goes_first(
    site: Site, running: Running, failover: Object
) -> None:
    place = await placed(site, "", failover=failover)
    await move(site, place, "east")
    await is_held(site, place, "only its own answer proves it")
    await site.execute_deletions()
    await site.until_works(place, "east")


async def test_a_silent_cluster_has_stopped_it_when_its_lease_has_run_out(
    site: Site, running: Running, silence: ManualClock
) -> None:
    place = await placed(site)
    await move(site, place, "east")
    await is_held(site, place, "west has not stopped it")

    silence.freeze(ENOUGH - 2)
    await renew(site, "east")
    await renew(site, "north")
    await settled()
    await poke(site, place)
    await is_held(site, place, f"{ENOUGH - 1} s after it was last heard")

    silence.freeze(2)
    await poke(site, place)
    await site.until_works(place, "west", "east")
    assert is_being_deleted((await site.works_of(place))["west"])


async def test_a_cluster_that_is_heard_again_has_not_stopped_it(
    site: Site, running: Running, silence: ManualClock
) -> None:
    place = await placed(site)
    await move(site, place, "east")
    await is_held(site, place, "west has not stopped it")
    silence.freeze(ENOUGH)
    for name in MEMBERS:
        await renew(site, name)
    await settled()
    await poke(site, place)

    await is_held(site, place, f"{ENOUGH - 1} s after it was last heard")


async def test_nothing_is_started_by_silence_while_most_are_silent(
    site: Site, running: Running, silence: ManualClock
) -> None:
    place = await placed(site)
    await move(site, place, "east")
    await is_held(site, place, "west has not stopped it")
    silence.freeze(ENOUGH)
    await renew(site, "east")
    await settled()
    await poke(site, place)

    await is_held(site, place, "2 of 3 clusters are silent: the hub suspects itself first")


async def test_an_agent_that_promises_nothing_proves_nothing_by_silence(
    site: Site, running: Running, silence: ManualClock
) -> None:
    await renew(site, "west", promises=False)  # as one of before does, beside an older promise
    place = await placed(site)
    await move(site, place, "east")
    await is_held(site, place, "--exclusive-lease")
    silence.freeze(ENOUGH)
    for name in ("east", "north"):
        await renew(site, name)
    await settled()
    await poke(site, place)

    await is_held(site, place, "--exclusive-lease")


async def become_push(site: Site, name: str) -> None:
    path = ResourcePath(CLUSTERS, name=name)
    await site.change(path, lambda held: with_value(held, "Push", "spec", "syncMode"))


async def test_a_push_cluster_without_a_watchdog_has_nobody_who_stops_it(
    site: Site, running: Running, silence: ManualClock
) -> None:
    await become_push(site, "west")
    await renew(site, "west", promises=False)
    place = await placed(site)
    await move(site, place, "east")
    silence.freeze(ENOUGH)
    for name in ("east", "north"):
        await renew(site, name)
    await settled()
    await poke(site, place)

    await is_held(site, place, "start `clusterspace watchdog` there")


async def test_a_silent_push_cluster_has_stopped_it_when_its_watchdogs_lease_has_run_out(
    site: Site, running: Running, silence: ManualClock
) -> None:
    await become_push(site, "west")
    place = await placed(site)
    await move(site, place, "east")
    await is_held(site, place, "if its watchdog stays silent it has by its lease")

    silence.freeze(ENOUGH)
    for name in ("east", "north"):
        await renew(site, name)
    await settled()
    await poke(site, place)
    await site.until_works(place, "west", "east")
    assert is_being_deleted((await site.works_of(place))["west"])


async def test_what_would_run_on_by_its_policy_is_not_started_elsewhere(
    site: Site, running: Running
) -> None:
    place = await placed(site, preserveResourcesOnDeletion=True)
    await move(site, place, "east")

    await is_held(site, place, "preserveResourcesOnDeletion")
    assert not is_being_deleted((await site.works_of(place))["west"])


async def test_a_copy_that_a_person_keeps_is_not_started_elsewhere(
    site: Site, running: Running
) -> None:
    place = await placed(site)
    task = {"fromCluster": "west", "producer": "me", "reason": "Test", "suppressDeletion": True}

    def leaving(held: Object) -> Object:
        moved = with_value(held, [{"name": "east"}], "spec", "clusters")
        return with_value(moved, [task], "spec", "gracefulEvictionTasks")

    await site.change(place, leaving)
    await is_held(site, place, "west keeps it until a person says that it may go")


async def test_others_are_on_their_new_cluster_before_they_leave_the_old_one(
    site: Site, running: Running
) -> None:
    place = await placed(site, "false", failover={"cluster": {"purgeMode": "Directly"}})
    await move(site, place, "east")
    await site.until_works(place, "west", "east")
