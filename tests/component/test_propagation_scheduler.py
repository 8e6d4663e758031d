"""The scheduler against a live hub: bindings get clusters, keep them, and lose them with reason."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.component.scheduler_site import Fleet, room, running_scheduler, scheduled

from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import (
    ClusterClient,
    DeleteOptions,
    PatchType,
    WriteOptions,
)
from clusterspace.controllers.controller import Request, RequeueAfter
from clusterspace.controllers.events import EVENTS
from clusterspace.controllers.informers import STALE_SECONDS
from clusterspace.errors import Conflict
from clusterspace.fleet.propagation.scheduler.filters import candidate_of
from clusterspace.fleet.propagation.scheduler.reservations import Reservations
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Killed
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until, until_equal

DIVIDED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}
DYNAMIC = {**DIVIDED, "weightPreference": {"dynamicWeight": "AvailableReplicas"}}
LATER = "2999-01-01T00:00:00Z"
CORDON = {"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        fleet = Fleet(hub_client)
        await fleet.join("member1")
        await fleet.join("member2")
        yield fleet


async def test_a_binding_gets_its_clusters_its_note_and_its_condition(fleet: Fleet) -> None:
    counting = CrashingClient(fleet.hub_client)
    async with running_scheduler(fleet.hub_client, counting) as running:
        place = await fleet.bind("web", {"clusterAffinity": {"clusterNames": ["member1"]}})
        binding = await fleet.until_told(place, "Success")
        await settled()  # who made it so tells of it behind the write
        await running.events.flush()

    assert binding["spec"]["clusters"] == [{"name": "member1", "replicas": 2}]
    assert annotations_of(binding)[stamps.APPLIED_PLACEMENT] == (
        '{"clusterAffinity":{"clusterNames":["member1"]}}'
    )
    assert binding["status"]["schedulerObservedGeneration"] == metadata_of(binding)["generation"]
    assert binding["status"]["lastScheduledTime"]
    assert counting.writes == 2
    told = await fleet.hub_client.list_objects(ResourcePath(EVENTS, "default"))
    assert {(each["involvedObject"]["kind"], each["reason"], each["message"]) for each in told} == {
        (
            kind,
            "ScheduleBindingSucceed",
            "Binding has been scheduled successfully. Result: {member1:2}",
        )
        for kind in ("ResourceBinding", "Deployment")
    }


async def test_bindings_of_cluster_wide_objects_are_scheduled_too(fleet: Fleet) -> None:
    binding = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ClusterResourceBinding",
        "metadata": {"name": "reader", "labels": {stamps.CLUSTER_POLICY_ID: "some-policy"}},
        "spec": {
            "placement": {},
            "resource": {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "name": "reader",
            },
        },
    }
    async with running_scheduler(fleet.hub_client):
        await fleet.hub_client.create(ResourcePath(CLUSTER_RESOURCE_BINDINGS), binding)
        place = ResourcePath(CLUSTER_RESOURCE_BINDINGS, name="reader")
        await fleet.until_targets(place, {"member1": 0, "member2": 0})
        stored = await fleet.until_told(place, "Success")

    assert stored["spec"]["clusters"] == [{"name": "member1"}, {"name": "member2"}]


async def test_no_cluster_fits_is_said_and_ends_when_one_joins(fleet: Fleet) -> None:
    async with running_scheduler(fleet.hub_client):
        place = await fleet.bind("web", {"clusterAffinity": {"clusterNames": ["member3"]}})
        binding = await fleet.until_told(place, "NoClusterFit")

        assert scheduled(binding)["message"] == (
            "0/2 clusters are available: "
            "2 cluster(s) did not match the placement cluster affinity constraint."
        )
        assert "clusters" not in binding["spec"]
        assert "schedulerObservedGeneration" not in binding["status"]

        await fleet.join("member3")
        await fleet.until_targets(place, {"member3": 2})


async def test_cordoning_keeps_what_is_placed_and_turns_away_what_is_new(fleet: Fleet) -> None:
    async with running_scheduler(fleet.hub_client):
        old = await fleet.bind("before", {})
        await fleet.until_told(old, "Success")
        await fleet.change(
            ResourcePath(CLUSTERS, name="member2"),
            lambda held: with_value(held, [CORDON], "spec", "taints"),
        )
        new = await fleet.bind("after", {})
        await fleet.until_targets(new, {"member1": 2})

        assert await fleet.targets(old) == {"member1": 2, "member2": 2}


async def test_a_cluster_that_is_gone_is_dropped_and_its_replicas_move(fleet: Fleet) -> None:
    async with running_scheduler(fleet.hub_client):
        whole = await fleet.bind("whole", {})
        shared = await fleet.bind("shared", {"replicaScheduling": DYNAMIC}, replicas=6)
        await fleet.until_targets(shared, {"member1": 3, "member2": 3})
        await fleet.leave("member2")

        await fleet.until_targets(whole, {"member1": 2})
        await fleet.until_targets(shared, {"member1": 6})


async def test_a_cluster_that_joins_gets_copies_and_no_shared_replicas(fleet: Fleet) -> None:
    async with running_scheduler(fleet.hub_client):
        whole = await fleet.bind("whole", {})
        shared = await fleet.bind("shared", {"replicaScheduling": DIVIDED}, replicas=6)
        await fleet.until_targets(shared, {"member1": 3, "member2": 3})
        await fleet.join("member3")

        await fleet.until_targets(whole, {"member1": 2, "member2": 2, "member3": 2})
        assert await fleet.targets(shared) == {"member1": 3, "member2": 3}


async def test_labels_taken_from_every_cluster_empty_nothing(fleet: Fleet) -> None:
    labelled = {"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "prod"}}}}
    places = [ResourcePath(CLUSTERS, name=name) for name in ("member1", "member2")]
    async with running_scheduler(fleet.hub_client):
        for each in places:
            await fleet.change(each, lambda held: with_metadata(held, labels={"tier": "prod"}))
        place = await fleet.bind("web", labelled)
        await fleet.until_told(place, "Success")
        await fleet.change(places[0], lambda held: with_metadata(held, labels=None))
        await fleet.until_targets(place, {"member2": 2})
        await fleet.change(places[1], lambda held: with_metadata(held, labels=None))
        await fleet.until_told(place, "NoClusterFit")

        assert await fleet.targets(place) == {"member2": 2}


async def test_a_policy_that_now_means_no_cluster_empties(fleet: Fleet) -> None:
    async with running_scheduler(fleet.hub_client):
        place = await fleet.bind("web", {})
        await fleet.until_told(place, "Success")
        nowhere = {"clusterAffinity": {"clusterNames": ["absent"]}}
        await fleet.change(place, lambda held: with_value(held, nowhere, "spec", "placement"))
        await fleet.until_told(place, "NoClusterFit")

        assert await fleet.targets(place) == {}


async def test_what_waits_for_room_is_placed_when_there_is_some(fleet: Fleet) -> None:
    async with running_scheduler(fleet.hub_client):
        place = await fleet.bind("huge", {"replicaScheduling": DYNAMIC}, replicas=300)
        binding = await fleet.until_told(place, "Unschedulable")
        assert scheduled(binding)["message"] == (
            "The clusters that fit (member1, member2) have room for 200 of 300 replicas."
        )
        await fleet.change(
            ResourcePath(CLUSTERS, name="member2"),
            lambda held: with_value(held, room(200), "status", "resourceSummary"),
        )

        await fleet.until_targets(place, {"member1": 100, "member2": 200})


async def test_a_memory_that_lost_a_cluster_removes_nothing(fleet: Fleet) -> None:
    counting = CrashingClient(fleet.hub_client)
    async with running_scheduler(fleet.hub_client, counting) as running:
        place = await fleet.bind("web", {})
        await fleet.until_told(place, "Success")
        await settled()
        before = counting.writes
        running.clusters.cache.remove("member2")
        await running.scheduler.reconcile(Request(place.name, place.namespace))

        assert await fleet.targets(place) == {"member1": 2, "member2": 2}
        assert counting.writes == before


async def test_while_nothing_is_heard_of_the_clusters_nothing_is_removed(fleet: Fleet) -> None:
    async with running_scheduler(fleet.hub_client) as running:
        place = await fleet.bind("web", {})
        await fleet.until_told(place, "Success")
        running.clusters.cache.remove("member2")
        running.clusters._follower.last_heard -= STALE_SECONDS

        outcome = await running.scheduler.reconcile(Request(place.name, place.namespace))

        assert isinstance(outcome, RequeueAfter)
        assert await fleet.targets(place) == {"member1": 2, "member2": 2}


async def test_a_settled_fleet_is_not_written_to(fleet: Fleet) -> None:
    counting = CrashingClient(fleet.hub_client)
    async with running_scheduler(fleet.hub_client, counting) as running:
        places = [await fleet.bind(f"web-{number}", {}) for number in range(5)]
        for each in places:
            await fleet.until_told(each, "Success")
        await settled()

        assert counting.writes == 2 * len(places)

        async def is_known() -> bool:
            held = running.clusters.cache.find("member1")
            return held is not None and len(candidate_of(held).taints) == 1

        await fleet.change(
            ResourcePath(CLUSTERS, name="member1"),
            lambda held: with_value(held, [CORDON], "spec", "taints"),
        )
        await until(is_known)
        await settled()

        assert counting.writes == 2 * len(places)


async def test_a_new_generation_is_noted_without_moving_anything(fleet: Fleet) -> None:
    async with running_scheduler(fleet.hub_client):
        place = await fleet.bind("web", {"replicaScheduling": DIVIDED}, replicas=4)
        first = await fleet.until_told(place, "Success")
        changed = await fleet.change(
            place, lambda held: with_value(held, "99", "spec", "resource", "resourceVersion")
        )
        generation = metadata_of(changed)["generation"]

        async def is_noted() -> bool:
            held = await fleet.hub_client.get(place)
            return held["status"]["schedulerObservedGeneration"] == generation

        await until(is_noted)
        after = await fleet.hub_client.get(place)

    assert after["spec"]["clusters"] == first["spec"]["clusters"]
    assert generation > metadata_of(first)["generation"]


@pytest.mark.parametrize(
    "point",
    [CrashPoint(write, is_after) for write in (1, 2) for is_after in (False, True)],
    ids=str,
)
async def test_killed_at_any_write_it_ends_where_it_would_have(
    fleet: Fleet, point: CrashPoint
) -> None:
    place = await fleet.bind("web", {"replicaScheduling": DIVIDED}, replicas=5)
    async with running_scheduler(
        fleet.hub_client, CrashingClient(fleet.hub_client, point)
    ) as first:
        await asyncio.wait([first.task], timeout=60)
        assert isinstance(first.task.exception(), Killed)

    async with running_scheduler(fleet.hub_client):
        binding = await fleet.until_told(place, "Success")

    assert sum((await fleet.targets(place)).values()) == 5
    assert binding["status"]["schedulerObservedGeneration"] == metadata_of(binding)["generation"]


# -- ordered affinities: falling back, and coming back -----------------------------------------


def labelled(**labels: str) -> Object:
    return {"labelSelector": {"matchLabels": labels}}


def in_order(*affinities: Object) -> Object:
    terms = [{"affinityName": f"group{at}", **each} for at, each in enumerate(affinities, 1)]
    return {"clusterAffinities": terms}


async def label(fleet: Fleet, name: str, **labels: str) -> None:
    await fleet.change(
        ResourcePath(CLUSTERS, name=name), lambda held: with_metadata(held, labels=labels)
    )


async def observing(fleet: Fleet, place: ResourcePath) -> str:
    binding = await fleet.hub_client.get(place)
    return str(find_at(binding, "status", "schedulerObservingAffinityName") or "")


async def test_schedule_with_multi_cluster_affinity_and_then_update_the_cluster_label(
    fleet: Fleet,
) -> None:
    await label(fleet, "member1", first="ok")
    await label(fleet, "member2", second="ok")
    async with running_scheduler(fleet.hub_client):
        place = await fleet.bind("web", in_order(labelled(first="ok"), labelled(second="ok")))
        await fleet.until_targets(place, {"member1": 2})
        await until_equal(lambda: observing(fleet, place), "group1")
        await label(fleet, "member1", first="not-ok")
        await fleet.until_targets(place, {"member2": 2})
        await until_equal(lambda: observing(fleet, place), "group2")

        # That the first is well again moves nothing by itself.
        await label(fleet, "member1", first="ok")
        await settled()
        assert await fleet.targets(place) == {"member2": 2}

        # Asking for it does.
        await fleet.change(
            place, lambda held: with_value(held, LATER, "spec", "rescheduleTriggeredAt")
        )
        await fleet.until_targets(place, {"member1": 2})
        await until_equal(lambda: observing(fleet, place), "group1")


async def test_when_the_last_group_is_lost_an_earlier_one_that_is_back_is_used(
    fleet: Fleet,
) -> None:
    await label(fleet, "member2", second="ok")
    async with running_scheduler(fleet.hub_client):
        place = await fleet.bind("web", in_order(labelled(first="ok"), labelled(second="ok")))
        await fleet.until_targets(place, {"member2": 2})
        await label(fleet, "member1", first="ok")
        await label(fleet, "member2", second="not-ok")

        await fleet.until_targets(place, {"member1": 2})
        await until_equal(lambda: observing(fleet, place), "group1")


async def test_schedule_change_from_cluster_affinity_to_cluster_affinities_and_back(
    fleet: Fleet,
) -> None:
    only_first = {"clusterAffinity": {"clusterNames": ["member1"]}}
    async with running_scheduler(fleet.hub_client):
        place = await fleet.bind("web", only_first)
        await fleet.until_targets(place, {"member1": 2})
        ordered = in_order({"clusterNames": ["member2"]})
        await fleet.change(place, lambda held: with_value(held, ordered, "spec", "placement"))
        await fleet.until_targets(place, {"member2": 2})
        await until_equal(lambda: observing(fleet, place), "group1")
        await fleet.change(place, lambda held: with_value(held, only_first, "spec", "placement"))
        await fleet.until_targets(place, {"member1": 2})
        await until_equal(lambda: observing(fleet, place), "")


async def test_a_fresh_start_that_a_fast_clock_asked_for_is_given_once(fleet: Fleet) -> None:
    counting = CrashingClient(fleet.hub_client)
    async with running_scheduler(fleet.hub_client, counting):
        place = await fleet.bind("web", {"replicaScheduling": DIVIDED}, replicas=4)
        await fleet.until_told(place, "Success")
        await fleet.change(
            place, lambda held: with_value(held, LATER, "spec", "rescheduleTriggeredAt")
        )

        async def last_scheduled() -> object:
            return (await fleet.hub_client.get(place))["status"]["lastScheduledTime"]

        await until_equal(last_scheduled, LATER)
        await settled()
        before = counting.writes
        await label(fleet, "member1", any="label")
        await settled()

        assert counting.writes == before


SMALLEST = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}


async def placed_at_once(fleet: Fleet) -> dict[str, int]:
    """Have ten workloads placed before any cluster reports again; return where they are."""
    for name in ("member1", "member2"):
        path = ResourcePath(CLUSTERS, name=name)
        await fleet.change(
            path, lambda held: with_value(held, room(5), "status", "resourceSummary")
        )
    places = [
        await fleet.bind(f"web-{number}", {"replicaScheduling": DYNAMIC, **SMALLEST}, replicas=1)
        for number in range(10)
    ]
    counts = {"member1": 0, "member2": 0}
    async with running_scheduler(fleet.hub_client):
        for place in places:
            await fleet.until_told(place, "Success")
            for name, replicas in (await fleet.targets(place)).items():
                counts[name] += replicas
    return counts


async def test_what_is_placed_at_once_never_gets_the_same_room(fleet: Fleet) -> None:
    assert await placed_at_once(fleet) == {"member1": 5, "member2": 5}


async def test_without_reservations_one_cluster_would_get_more_than_it_can_hold(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reservations, "apply", lambda _self, candidates, _request: candidates)

    assert max((await placed_at_once(fleet)).values()) > 5


async def test_of_those_that_wait_the_highest_priority_is_placed_first(fleet: Fleet) -> None:
    for name in ("member1", "member2"):
        path = ResourcePath(CLUSTERS, name=name)
        await fleet.change(
            path, lambda held: with_value(held, room(1), "status", "resourceSummary")
        )
    by_room = {"replicaScheduling": DYNAMIC, **SMALLEST}
    usual = [await fleet.bind(f"usual-{number}", by_room, replicas=1) for number in range(3)]
    urgent = [
        await fleet.bind(
            f"urgent-{number}", by_room, replicas=1, schedulePriority={"priority": 100}
        )
        for number in range(2)
    ]
    # There is room for two, and all of them wait when the scheduler starts.
    async with running_scheduler(fleet.hub_client):
        for place in urgent:
            await fleet.until_told(place, "Success")
        for place in usual:
            await fleet.until_told(place, "SchedulerError")


class Overtaken(ClusterClient):
    """Of each binding somebody else writes the status first, once."""

    _late: frozenset[str] = frozenset()

    async def patch(
        self,
        place: ResourcePath,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions = WriteOptions(),  # noqa: B008 - it is frozen
    ) -> Object:
        if place.subresource == "status" and place.name not in self._late:
            self._late |= {place.name}
            raise Conflict("somebody was faster")
        return await super().patch(place, patch_type, patch, options)


async def test_room_stays_taken_when_only_the_status_could_not_be_written(fleet: Fleet) -> None:
    for name in ("member1", "member2"):
        path = ResourcePath(CLUSTERS, name=name)
        await fleet.change(
            path, lambda held: with_value(held, room(1), "status", "resourceSummary")
        )
    by_room = {"replicaScheduling": DYNAMIC, **SMALLEST}
    async with running_scheduler(fleet.hub_client, Overtaken(fleet.hub_client.connection)):
        for number in range(2):
            place = await fleet.bind(f"taker-{number}", by_room, replicas=1)
            await fleet.until_told(place, "Success")
        place = await fleet.bind("latecomer", by_room, replicas=1)
        await fleet.until_told(place, "SchedulerError")


ONE = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}


def reported(cpu: str, pods: int) -> Object:
    """Return a Cluster's status with what one node has, and what is free on it."""
    free = {"cpu": cpu, "pods": str(pods)}
    summary = {"allocatable": {"cpu": cpu, "pods": "110"}, "allocated": {"pods": str(110 - pods)}}
    estimate = {"nodes": [{"rooms": [{"count": 1, "free": free}]}]}
    return {"resourceSummary": summary, "estimate": estimate}


async def test_components_whose_pods_nobody_makes_fill_a_cluster(fleet: Fleet) -> None:
    path = ResourcePath(CLUSTERS, name="member1")
    cpu = {"replicaRequirements": {"resourceRequest": {"cpu": "100m"}}}
    components = [{"name": each, "replicas": 1, **cpu} for each in ("head", "tail")]
    there = {
        "clusterAffinity": {"clusterNames": ["member1"]},
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Aggregated",
        },
        **ONE,
    }
    async with running_scheduler(fleet.hub_client):
        for number in range(5):
            # Before each one there is a report, of pods that somebody else has started.
            status = reported("1", 100 - 10 * number)
            await fleet.change(path, lambda held, s=status: {**held, "status": held["status"] | s})
            place = await fleet.bind(f"job-{number}", there, replicas=0, components=components)
            await fleet.until_told(place, "Success")
        place = await fleet.bind("latecomer", there, replicas=0, components=components)
        await fleet.until_told(place, "SchedulerError")


async def test_workloads_that_come_at_once_are_apart_or_together_as_their_groups_say(
    fleet: Fleet,
) -> None:
    apart: dict[str, Any] = {"workloadAffinityGroups": {"antiAffinityGroup": "tier=db"}}
    together: dict[str, Any] = {"workloadAffinityGroups": {"affinityGroup": "app=shop"}}
    # All of them are there when the scheduler begins, so that its workers decide side by side.
    first, second, third = [await fleet.bind(f"db-{n}", ONE, **apart) for n in range(3)]
    friends = [await fleet.bind(f"shop-{n}", ONE, **together) for n in range(6)]
    async with running_scheduler(fleet.hub_client):
        for place in friends:
            await fleet.until_told(place, "Success")
        places = {place.name: place for place in (first, second, third)}

        async def reasons() -> list[str]:
            bindings = [await fleet.hub_client.get(each) for each in places.values()]
            return sorted(str(scheduled(each).get("reason")) for each in bindings)

        await until_equal(reasons, ["NoClusterFit", "Success", "Success"])
        targets = {each: await fleet.targets(each) for each in places.values()}
        chosen = sorted(name for each in targets.values() for name in each)
        assert chosen == ["member1", "member2"]
        assert len({tuple(await fleet.targets(each)) for each in friends}) == 1

        # The one that waits has the place of the first that leaves.
        waiting = next(each for each in targets if not targets[each])
        leaving = next(each for each in targets if targets[each])
        freed = targets[leaving]
        binding = await fleet.hub_client.get(leaving)
        await fleet.hub_client.delete(leaving, DeleteOptions(uid=uid_of(binding)))
        await fleet.until_targets(waiting, freed)
