"""WorkloadRebalancers against a live hub: what they name is placed anew, once, and they say so."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.component.scheduler_site import Fleet, Running, running_scheduler

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.controllers.events import EVENTS, EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.propagation.rebalancer import WORKLOAD_REBALANCERS, RebalancerController
from clusterspace.kube.objects import Object, find_at, metadata_of, with_metadata, with_value
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Killed
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until, until_equal

DIVIDED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}
DYNAMIC = {**DIVIDED, "weightPreference": {"dynamicWeight": "AvailableReplicas"}}
AGGREGATED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}
LONG_AGO = "2020-01-01T00:00:00Z"
WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web"}
ABSENT = {**WEB, "name": "absent"}
ADDED = {**WEB, "name": "added"}
READER = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "reader"}
ANEW = ResourcePath(WORKLOAD_REBALANCERS, name="anew")


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        fleet = Fleet(hub_client)
        await fleet.join("member1")
        await fleet.join("member2")
        yield fleet


@asynccontextmanager
async def running(fleet: Fleet, writer: Client | None = None) -> AsyncGenerator[Running]:
    """Run the scheduler, and the rebalancer with a writer of its own."""

    def rebalancer(caches: HubCaches, events: EventRecorder) -> RebalancerController:
        return RebalancerController(writer or fleet.hub_client, caches, events, SystemClock())

    async with running_scheduler(fleet.hub_client, beside=rebalancer) as both:
        yield both


def rebalancer_of(*workloads: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "apps.karmada.io/v1alpha1",
        "kind": "WorkloadRebalancer",
        "metadata": {"name": "anew"},
        "spec": {"workloads": list(workloads), **spec},
    }


async def create(fleet: Fleet, rebalancer: Object) -> Object:
    return await fleet.hub_client.create(ResourcePath(WORKLOAD_REBALANCERS), rebalancer)


async def until_observed(fleet: Fleet, *wanted: Object) -> Object:
    async def observed() -> Any:
        return find_at(await fleet.hub_client.get(ANEW), "status", "observedWorkloads")

    await until_equal(observed, list(wanted))
    return await fleet.hub_client.get(ANEW)


async def placed_long_ago(fleet: Fleet, place: ResourcePath) -> None:
    """Wait until a binding is scheduled, and let that be a while ago."""
    await fleet.until_told(place, "Success")
    await settled()
    await fleet.change(
        place, lambda held: with_value(held, LONG_AGO, "status", "lastScheduledTime")
    )
    await settled()


async def bind_reader(fleet: Fleet) -> ResourcePath:
    binding = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ClusterResourceBinding",
        "metadata": {
            "name": "reader-clusterrole",
            "labels": {stamps.CLUSTER_POLICY_ID: "some-policy"},
        },
        "spec": {"placement": {}, "resource": READER},
    }
    await fleet.hub_client.create(ResourcePath(CLUSTER_RESOURCE_BINDINGS), binding)
    return ResourcePath(CLUSTER_RESOURCE_BINDINGS, name="reader-clusterrole")


async def outgrow(fleet: Fleet, place: ResourcePath) -> None:
    """Have a workload sit on one cluster, while two would do."""
    await fleet.change(
        place,
        lambda held: with_value(held, [{"name": "member2", "replicas": 6}], "spec", "clusters"),
    )
    await settled()
    assert await fleet.targets(place) == {"member2": 6}


@pytest.mark.parametrize(
    ("scheduling", "wanted"),
    [
        pytest.param(DYNAMIC, {"member1": 3, "member2": 3}, id="dynamic weight"),
        pytest.param(DIVIDED, {"member1": 3, "member2": 3}, id="static weight"),
        pytest.param(AGGREGATED, {"member2": 6}, id="aggregated"),
    ],
)
async def test_reschedule_when_policy_is_of_this_schedule_type(
    fleet: Fleet, scheduling: Object, wanted: dict[str, int]
) -> None:
    async with running(fleet) as both:
        web = await fleet.bind("web", {"replicaScheduling": scheduling}, replicas=6)
        reader = await bind_reader(fleet)
        await placed_long_ago(fleet, reader)
        await placed_long_ago(fleet, web)
        await outgrow(fleet, web)
        await placed_long_ago(fleet, web)

        made = await create(fleet, rebalancer_of(WEB, READER, ABSENT))
        told = await until_observed(
            fleet,
            {"workload": ABSENT, "result": "Failed", "reason": "ReferencedBindingNotFound"},
            {"workload": WEB, "result": "Successful"},
            {"workload": READER, "result": "Successful"},
        )
        await fleet.until_targets(web, wanted)
        asked_at = metadata_of(made)["creationTimestamp"]
        for place in (web, reader):

            async def is_placed_anew(place: ResourcePath = place) -> bool:
                binding = await fleet.hub_client.get(place)
                asked = find_at(binding, "spec", "rescheduleTriggeredAt") == asked_at
                return asked and binding["status"]["lastScheduledTime"] >= asked_at

            await until(is_placed_anew)
        await settled()  # who made it so tells of it behind the write
        await both.events.flush()

    assert told["status"]["observedGeneration"] == metadata_of(told)["generation"]
    assert told["status"]["finishTime"] >= asked_at
    events = await fleet.hub_client.list_objects(ResourcePath(EVENTS, "default"))
    reasons = {(each["involvedObject"]["name"], each["reason"]) for each in events}
    assert {("web", "RescheduleTriggered"), ("web-deployment", "RescheduleTriggered")} <= reasons


async def test_duplicated_copies_stay_where_they_are_and_it_is_noted(fleet: Fleet) -> None:
    async with running(fleet):
        web = await fleet.bind("web", {})
        await placed_long_ago(fleet, web)
        await create(fleet, rebalancer_of(WEB))
        await until_observed(fleet, {"workload": WEB, "result": "Successful"})

        async def is_noted() -> bool:
            return (await fleet.hub_client.get(web))["status"]["lastScheduledTime"] != LONG_AGO

        await until(is_noted)
        assert await fleet.targets(web) == {"member1": 2, "member2": 2}


async def test_an_edited_list_adds_and_keeps_what_has_moved(fleet: Fleet) -> None:
    async with running(fleet):
        web = await fleet.bind("web", {"replicaScheduling": DIVIDED}, replicas=6)
        added = await fleet.bind("added", {"replicaScheduling": DIVIDED}, replicas=6)
        await placed_long_ago(fleet, web)
        await placed_long_ago(fleet, added)
        await create(fleet, rebalancer_of(WEB, ABSENT))
        moved = {"workload": WEB, "result": "Successful"}
        failed = {"workload": ABSENT, "result": "Failed", "reason": "ReferencedBindingNotFound"}
        await until_observed(fleet, failed, moved)
        at = await fleet.hub_client.get(web)

        await fleet.change(ANEW, lambda held: with_value(held, [ADDED], "spec", "workloads"))
        await until_observed(fleet, {"workload": ADDED, "result": "Successful"}, moved)
        await settled()

        assert (await fleet.hub_client.get(web))["spec"] == at["spec"]


async def test_a_binding_of_another_group_with_that_name_is_not_moved(fleet: Fleet) -> None:
    async with running(fleet):
        web = await fleet.bind("web", {})
        await placed_long_ago(fleet, web)
        other = {**WEB, "apiVersion": "apps.example.com/v1"}
        await create(fleet, rebalancer_of(other))
        failed = {"workload": other, "result": "Failed", "reason": "ReferencedBindingNotFound"}
        await until_observed(fleet, failed)

        assert "rescheduleTriggeredAt" not in (await fleet.hub_client.get(web))["spec"]


async def test_create_rebalancer_with_ttl_and_verify_it_can_auto_clean(fleet: Fleet) -> None:
    async with running(fleet):
        await fleet.bind("web", {})
        await create(fleet, rebalancer_of(WEB, ttlSecondsAfterFinished=0))

        async def is_gone() -> bool:
            return await fleet.hub_client.find(ANEW) is None

        await until(is_gone)


async def test_a_ttl_that_is_set_later_cleans_up_too(fleet: Fleet) -> None:
    async with running(fleet):
        await fleet.bind("web", {})
        await create(fleet, rebalancer_of(WEB))
        await until_observed(fleet, {"workload": WEB, "result": "Successful"})
        await settled()
        assert await fleet.hub_client.find(ANEW) is not None
        await fleet.change(
            ANEW, lambda held: with_value(held, 1, "spec", "ttlSecondsAfterFinished")
        )

        async def is_gone() -> bool:
            return await fleet.hub_client.find(ANEW) is None

        await until(is_gone)


@pytest.mark.parametrize(
    "point",
    [CrashPoint(write, is_after) for write in (1, 2, 3) for is_after in (False, True)],
    ids=str,
)
async def test_killed_at_any_write_every_workload_is_moved_once(
    fleet: Fleet, point: CrashPoint
) -> None:
    web = await fleet.bind("web", {"replicaScheduling": DIVIDED}, replicas=6)
    added = await fleet.bind("added", {"replicaScheduling": DIVIDED}, replicas=6)
    async with running_scheduler(fleet.hub_client):
        await placed_long_ago(fleet, web)
        await placed_long_ago(fleet, added)
    made = await create(fleet, rebalancer_of(WEB, ADDED))
    async with running(fleet, CrashingClient(fleet.hub_client, point)) as first:
        assert first.beside is not None
        await asyncio.wait([first.beside], timeout=60)
        assert isinstance(first.beside.exception(), Killed)
    generations: set[int] = set()
    async with running(fleet):
        results = [{"workload": each, "result": "Successful"} for each in (ADDED, WEB)]
        await until_observed(fleet, *results)
        await settled()
        for place in (web, added):
            binding = await fleet.hub_client.get(place)
            asked_at = metadata_of(made)["creationTimestamp"]
            assert find_at(binding, "spec", "rescheduleTriggeredAt") == asked_at
            generations.add(metadata_of(binding)["generation"])

    assert generations == {3}  # made, scheduled and asked to move, once each


async def test_a_relabelled_rebalancer_moves_nothing_again(fleet: Fleet) -> None:
    counting = CrashingClient(fleet.hub_client)
    async with running(fleet, counting):
        await fleet.bind("web", {})
        await create(fleet, rebalancer_of(WEB))
        await until_observed(fleet, {"workload": WEB, "result": "Successful"})
        await settled()
        before = counting.writes
        await fleet.change(ANEW, lambda held: with_metadata(held, labels={"a": "b"}))
        await fleet.change(
            ResourcePath(CLUSTERS, name="member1"),
            lambda held: with_metadata(held, labels={"a": "b"}),
        )
        await settled()

        assert counting.writes == before
