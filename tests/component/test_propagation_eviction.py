"""Taints that are not tolerated, against a live hub: bindings leave, one by one, if it is safe."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.component.reconcilers import reconciling
from tests.component.scheduler_site import Fleet, Running, running_scheduler

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS, DRAIN_TAINT
from clusterspace.apis.policies import CLUSTER_TAINT_POLICIES, FAILBACK
from clusterspace.apis.witnesses import CONFIRMED, LEASE_NAMESPACE, WitnessReport, lease_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.controllers.events import EVENTS, EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import Invalid
from clusterspace.fleet.propagation.eviction import controller
from clusterspace.fleet.propagation.eviction.controller import Eviction
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.fleet.propagation.eviction.taint_policies import ClusterTaintPolicies
from clusterspace.fleet.propagation.eviction.witnesses import ClusterConfirmations
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    uid_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.telemetry import metrics
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Killed
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until, until_equal

AT_ONCE = EvictionSettings(is_on=True, each_second=1000, settle_seconds=0, witnesses=0)
DIVIDED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}
DYNAMIC = {**DIVIDED, "weightPreference": {"dynamicWeight": "AvailableReplicas"}}
AGGREGATED = {**DIVIDED, "replicaDivisionPreference": "Aggregated"}
FAILED = {"key": "fail-test", "effect": "NoExecute"}
TOLERATES = {"key": "fail-test", "operator": "Exists", "effect": "NoExecute"}
MEMBERS = ("member1", "member2", "member3")


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub_client:
        fleet = Fleet(hub_client)
        for name in MEMBERS:
            await fleet.join(name)
            await say(fleet, name, "Ready", "True")
        yield fleet


@asynccontextmanager
async def running(
    fleet: Fleet, settings: EvictionSettings = AT_ONCE, writer: Client | None = None
) -> AsyncGenerator[Running]:
    """Run the scheduler, and evictions with a writer of their own."""

    def eviction(caches: HubCaches, events: EventRecorder) -> Eviction:
        return Eviction(writer or fleet.hub_client, caches, events, SystemClock(), settings)

    async with running_scheduler(fleet.hub_client, beside=eviction) as both:
        yield both


async def say(fleet: Fleet, name: str, condition_type: str, status: str) -> None:
    """Have a cluster say something of itself."""
    said = {"type": condition_type, "status": status, "reason": "Said", "message": ""}
    said["lastTransitionTime"] = "2026-01-01T00:00:00Z"

    def changed(cluster: Object) -> Object:
        conditions: list[Object] = find_at(cluster, "status", "conditions") or []
        others = [each for each in conditions if each["type"] != condition_type]
        return with_value(cluster, [*others, said], "status", "conditions")

    await fleet.change(ResourcePath(CLUSTERS, name=name), changed)


async def taint(fleet: Fleet, name: str, *taints: Object) -> None:
    await fleet.change(
        ResourcePath(CLUSTERS, name=name),
        lambda held: with_value(held, list(taints), "spec", "taints"),
    )


async def untaint(fleet: Fleet, name: str) -> None:
    await fleet.change(
        ResourcePath(CLUSTERS, name=name), lambda held: without_value(held, "spec", "taints")
    )


async def taints(fleet: Fleet, name: str) -> set[str]:
    cluster = await fleet.hub_client.get(ResourcePath(CLUSTERS, name=name))
    found: list[Object] = find_at(cluster, "spec", "taints") or []
    return {f"{each['key']}:{each['effect']}" for each in found}


async def tasks(fleet: Fleet, place: ResourcePath) -> list[Object]:
    return find_at(await fleet.hub_client.get(place), "spec", "gracefulEvictionTasks") or []


async def leaves(fleet: Fleet, place: ResourcePath) -> list[str]:
    return [str(each["fromCluster"]) for each in await tasks(fleet, place)]


async def report(fleet: Fleet, place: ResourcePath, health: str = "Healthy") -> None:
    """Have every cluster that a binding names report about its part."""

    def reported(binding: Object) -> Object:
        listed = [
            {
                "clusterName": each["name"],
                "applied": True,
                "health": health,
                "status": {"replicas": each["replicas"], "readyReplicas": each["replicas"]},
            }
            for each in find_at(binding, "spec", "clusters") or ()
        ]
        return with_value(binding, listed, "status", "aggregatedStatus")

    await fleet.change(place, reported)


def moved(cluster: str, step: str) -> float:
    sample = metrics.REGISTRY.get_sample_value(
        "clusterspace_evictions_total", {"member_cluster": cluster, "step": step}
    )
    return sample or 0.0


async def test_cluster_failover_testing_with_nil_failover_behavior(fleet: Fleet) -> None:
    before = moved("member1", "succeed")
    async with running(fleet) as both:
        web = await fleet.bind("web", {"replicaScheduling": DYNAMIC}, replicas=6)
        await fleet.until_targets(web, {"member1": 2, "member2": 2, "member3": 2})
        await taint(fleet, "member1", FAILED)
        await fleet.until_targets(web, {"member2": 3, "member3": 3})
        await settled()
        (task,) = await tasks(fleet, web)
        assert task["creationTimestamp"]
        assert {key: task[key] for key in task if key != "creationTimestamp"} == {
            "fromCluster": "member1",
            "purgeMode": "Gracefully",
            "producer": "TaintManager",
            "reason": "TaintUntolerated",
            "message": "its taint fail-test:NoExecute is not tolerated, or no longer",
            "replicas": 2,
        }

        # The copy there is kept until all that replaces it is healthy.
        await report(fleet, web, "Unknown")
        await settled()
        assert await leaves(fleet, web) == ["member1"]
        await report(fleet, web)
        await until_equal(lambda: leaves(fleet, web), [])

        # Nothing comes back by itself.
        await untaint(fleet, "member1")
        await settled()
        assert await fleet.targets(web) == {"member2": 3, "member3": 3}
        await both.events.flush()

    told = await fleet.hub_client.list_objects(ResourcePath(EVENTS, "default"))
    reasons = {each["reason"] for each in told if each["involvedObject"]["name"] == "web"}
    assert {"EvictWorkloadFromClusterStarted", "EvictWorkloadFromClusterSucceed"} <= reasons
    assert moved("member1", "succeed") == before + 1


async def test_cluster_failover_testing_with_purge_mode_directly(fleet: Fleet) -> None:
    async with running(fleet):
        failover = {"cluster": {"purgeMode": "Directly"}}
        web = await fleet.bind("web", {}, failover=failover)
        await fleet.until_told(web, "Success")
        await taint(fleet, "member1", FAILED)
        await fleet.until_targets(web, {"member2": 2, "member3": 2})

        assert [each["purgeMode"] for each in await tasks(fleet, web)] == ["Directly"]


async def test_who_tolerates_a_taint_stays_for_so_long(fleet: Fleet) -> None:
    async with running(fleet):
        for_ever = await fleet.bind("ever", {"clusterTolerations": [TOLERATES]})
        hour = {"clusterTolerations": [{**TOLERATES, "tolerationSeconds": 3600}]}
        for_an_hour = await fleet.bind("hour", hour)
        moment = {"clusterTolerations": [{**TOLERATES, "tolerationSeconds": 1}]}
        for_a_moment = await fleet.bind("moment", moment)
        for place in (for_ever, for_an_hour, for_a_moment):
            await fleet.until_told(place, "Success")
        await taint(fleet, "member1", FAILED)
        await until_equal(lambda: leaves(fleet, for_a_moment), ["member1"])
        await settled()

        assert await leaves(fleet, for_ever) == await leaves(fleet, for_an_hour) == []


async def test_a_taint_applied_again_without_its_time_keeps_it(fleet: Fleet) -> None:
    path = ResourcePath(CLUSTERS, name="member1")
    await taint(fleet, "member1", {**FAILED, "timeAdded": "2026-01-01T00:00:00Z"})
    await taint(fleet, "member1", FAILED, {"key": "new", "effect": "NoExecute"})

    first, second = (await fleet.hub_client.get(path))["spec"]["taints"]

    assert first["timeAdded"] == "2026-01-01T00:00:00Z"
    assert second["timeAdded"] > "2026-01-01T00:00:00Z"


async def test_without_another_place_it_stays_and_the_task_goes_with_the_taint(
    fleet: Fleet,
) -> None:
    async with running(fleet):
        only = {"clusterAffinity": {"clusterNames": ["member1"]}}
        web = await fleet.bind("web", only)
        await fleet.until_targets(web, {"member1": 2})
        await taint(fleet, "member1", FAILED)
        await until_equal(lambda: leaves(fleet, web), ["member1"])
        await fleet.until_told(web, "NoClusterFit")
        await settled()
        assert await fleet.targets(web) == {"member1": 2}

        await untaint(fleet, "member1")
        await until_equal(lambda: leaves(fleet, web), [])
        await fleet.until_told(web, "Success")
        assert await fleet.targets(web) == {"member1": 2}


async def lose_most(fleet: Fleet) -> ResourcePath:
    """Have two of three clusters look dead, and one of them evict everything."""
    web = await fleet.bind("web", {"replicaScheduling": DYNAMIC}, replicas=6)
    await fleet.until_targets(web, {"member1": 2, "member2": 2, "member3": 2})
    await say(fleet, "member1", "Ready", "False")
    await say(fleet, "member2", "Ready", "Unknown")
    await taint(fleet, "member1", FAILED)
    return web


def are_suspended() -> float | None:
    return metrics.REGISTRY.get_sample_value("clusterspace_evictions_suspended")


async def test_nobody_is_evicted_while_more_than_half_look_dead(fleet: Fleet) -> None:
    async with running(fleet):
        web = await lose_most(fleet)

        async def is_suspended() -> bool:
            return are_suspended() == 1

        await until(is_suspended)
        await settled()
        assert await leaves(fleet, web) == []
        assert await fleet.targets(web) == {"member1": 2, "member2": 2, "member3": 2}

        await say(fleet, "member2", "Ready", "True")
        await until_equal(lambda: leaves(fleet, web), ["member1"])
        assert are_suspended() == 0


async def test_nobody_is_evicted_while_the_agents_of_most_are_not_heard(fleet: Fleet) -> None:
    # As when the hub suspects itself: it leaves them as Ready as they were.
    await fleet.hub_client.create(ResourcePath(NAMESPACES), namespace("karmada-cluster"))
    for name in MEMBERS[:2]:
        path = ResourcePath(CLUSTERS, name=name)
        await fleet.change(path, lambda held: with_value(held, "Pull", "spec", "syncMode"))
        await fleet.hub_client.create(ResourcePath(LEASES, "karmada-cluster"), lease(name))
    soon = EvictionSettings(
        is_on=True, each_second=1000, settle_seconds=0, quiet_seconds=0.2, witnesses=0
    )
    async with running(fleet, soon) as both:
        web = await fleet.bind("web", {})
        await fleet.until_told(web, "Success")
        beside = both.reconciler
        assert isinstance(beside, Eviction)
        await until(lambda: bool(beside._why_suspended()))
        await taint(fleet, "member1", FAILED)
        await settled()
        assert await leaves(fleet, web) == []

        path = ResourcePath(LEASES, "karmada-cluster", "member2")
        for number in range(100):
            await fleet.change(
                path, lambda held, n=number: with_metadata(held, labels={"beat": str(n)})
            )
            if await leaves(fleet, web):
                break
            await asyncio.sleep(0.05)
        assert await leaves(fleet, web) == ["member1"]


async def test_nobody_is_evicted_while_push_clusters_fail_that_still_count_as_ready(
    fleet: Fleet,
) -> None:
    # Noticed at different moments, though they fell silent together: one is tainted already.
    failing = {"member2", "member3"}

    def eviction(caches: HubCaches, events: EventRecorder) -> Eviction:
        clock = SystemClock()
        return Eviction(
            fleet.hub_client, caches, events, clock, AT_ONCE, lambda name: name in failing
        )

    async with running_scheduler(fleet.hub_client, beside=eviction):
        web = await fleet.bind("web", {})
        await fleet.until_told(web, "Success")
        await say(fleet, "member1", "Ready", "False")
        await taint(fleet, "member1", FAILED)
        await settled()
        assert await leaves(fleet, web) == []

        failing.clear()
        await say(fleet, "member3", "Ready", "True")
        await until_equal(lambda: leaves(fleet, web), ["member1"])


def lease(name: str) -> Object:
    metadata = {"name": name, "namespace": "karmada-cluster"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


WITNESSED = EvictionSettings(is_on=True, each_second=1000, settle_seconds=0)


async def testify(fleet: Fleet, **seen: Any) -> None:
    """Have another place say what it sees: twice, for what was there before is no news."""
    report = WitnessReport("gateway", "the gateway", others_asked=2, others_heard=2)
    for _ in range(2):
        lease = lease_of(replace(report, **seen), SystemClock().now())
        path = ResourcePath(LEASES, LEASE_NAMESPACE, report.lease_name)
        if await fleet.hub_client.find(path) is None:
            await fleet.hub_client.create(ResourcePath(LEASES, LEASE_NAMESPACE), lease)
            await settled()
        else:
            notes = lease["metadata"]["annotations"]
            await fleet.change(
                path,
                lambda held, n=notes, s=lease["spec"]: {
                    **with_metadata(held, annotations=n),
                    "spec": s,
                },
            )


async def uid_on_hub(fleet: Fleet, name: str) -> str:
    return uid_of(await fleet.hub_client.get(ResourcePath(CLUSTERS, name=name)))


async def suspensions(fleet: Fleet) -> set[str]:
    events = await fleet.hub_client.list_objects(ResourcePath(EVENTS, "default"))
    return {
        str(e.get("note") or e.get("message"))
        for e in events
        if e["reason"] == controller.SUSPENDED
    }


async def test_what_one_place_alone_takes_for_dead_is_not_left(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_WITNESS_SECONDS", 0.2)  # no condition wakes it here
    async with running(fleet, WITNESSED) as both:
        web = await fleet.bind("web", {"replicaScheduling": DYNAMIC}, replicas=6)
        await fleet.until_targets(web, {"member1": 2, "member2": 2, "member3": 2})
        west = frozenset({await uid_on_hub(fleet, "member1")})
        await say(fleet, "member1", "Ready", "False")
        await taint(fleet, "member1", FAILED)

        async def is_told(what: str) -> bool:
            await both.events.flush()
            return any(what in each for each in await suspensions(fleet))

        await until(lambda: is_told("nobody but the leader"))
        await testify(fleet, answering=west)
        await until(lambda: is_told("the gateway reaches it"))
        await testify(fleet, away=west, others_heard=0)
        await until(lambda: is_told("that proves nothing"))
        assert await leaves(fleet, web) == []
        assert await fleet.targets(web) == {"member1": 2, "member2": 2, "member3": 2}

        await testify(fleet, away=west)
        await until_equal(lambda: leaves(fleet, web), ["member1"])


async def test_a_drain_and_a_taint_of_a_cluster_that_is_ready_need_nobody_else(
    fleet: Fleet,
) -> None:
    async with running(fleet, WITNESSED):
        web = await fleet.bind("web", {"replicaScheduling": DYNAMIC}, replicas=6)
        await fleet.until_targets(web, {"member1": 2, "member2": 2, "member3": 2})
        await taint(fleet, "member2", FAILED)
        await until_equal(lambda: leaves(fleet, web), ["member2"])
        await say(fleet, "member1", "Ready", "False")
        await taint(fleet, "member1", FAILED, {"key": DRAIN_TAINT, "effect": "NoExecute"})
        await until_equal(lambda: leaves(fleet, web), ["member2", "member1"])


async def test_a_cluster_says_whether_others_do_not_reach_it_and_is_tainted_when_they_do_not(
    fleet: Fleet,
) -> None:
    caches, clock = HubCaches(fleet.hub_client), SystemClock()
    events = EventRecorder(fleet.hub_client, component="test", clock=clock)
    both = (
        ClusterConfirmations(fleet.hub_client, caches, events, WITNESSED),
        ClusterTaintPolicies(fleet.hub_client, caches, events, clock, may_evict=True, witnesses=1),
    )
    asked = {
        "targetClusters": {},
        "addOnConditions": [asking("Ready", "False")],
        "removeOnConditions": [asking("Ready", "True")],
        "taints": [
            {"key": "down", "effect": "NoExecute"},
            {"key": "down", "effect": "NoSchedule"},
        ],
    }
    policy = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterTaintPolicy",
        "metadata": {"name": "down"},
        "spec": asked,
    }
    await fleet.hub_client.create(ResourcePath(CLUSTER_TAINT_POLICIES), policy)

    async def confirmed() -> str:
        cluster = await fleet.hub_client.get(ResourcePath(CLUSTERS, name="member1"))
        found = find_condition(find_at(cluster, "status", "conditions"), CONFIRMED)
        return "" if found is None else f"{found['status']} {found['reason']}"

    async with reconciling(caches, *both):
        west = frozenset({await uid_on_hub(fleet, "member1")})
        await say(fleet, "member1", "Ready", "False")
        await until_equal(confirmed, "Unknown NoWitness")
        await until_equal(lambda: taints(fleet, "member1"), {"down:NoSchedule"})
        await testify(fleet, answering=west)
        await until_equal(confirmed, "False ReachedFromElsewhere")
        await settled()
        assert await taints(fleet, "member1") == {"down:NoSchedule"}

        await testify(fleet, away=west)
        await until_equal(confirmed, "True NotReachedFromElsewhere")
        await until_equal(lambda: taints(fleet, "member1"), {"down:NoSchedule", "down:NoExecute"})
        await say(fleet, "member1", "Ready", "True")
        await until_equal(confirmed, "")
        await until_equal(lambda: taints(fleet, "member1"), set())


async def test_without_the_quorum_it_would_have_been(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "look_dead", lambda _: "")
    async with running(fleet):
        web = await lose_most(fleet)

        await until_equal(lambda: leaves(fleet, web), ["member1"])


async def test_nobody_is_evicted_just_after_a_start(fleet: Fleet) -> None:
    fresh = EvictionSettings(is_on=True, each_second=1000, settle_seconds=3600)
    async with running(fleet, fresh) as both:
        web = await fleet.bind("web", {})
        await fleet.until_told(web, "Success")
        await taint(fleet, "member1", FAILED)

        async def is_told() -> bool:
            await both.events.flush()
            told = await fleet.hub_client.list_objects(ResourcePath(EVENTS, "default"))
            return any(each["reason"] == "EvictWorkloadFromClusterSuspended" for each in told)

        await until(is_told)
        await settled()
        assert await leaves(fleet, web) == []


async def test_evictions_begin_one_after_the_other(fleet: Fleet) -> None:
    slow = EvictionSettings(is_on=True, each_second=0.001, settle_seconds=0, witnesses=0)
    async with running(fleet, slow):
        places = [await fleet.bind(f"web-{number}", {}) for number in range(4)]
        for place in places:
            await fleet.until_told(place, "Success")
        await taint(fleet, "member1", FAILED)

        async def begun() -> int:
            return sum([len(await leaves(fleet, place)) for place in places])

        await until_equal(begun, 1)
        await settled()
        assert await begun() == 1


async def test_a_memory_of_a_taint_that_is_gone_evicts_nobody(fleet: Fleet) -> None:
    async with running(fleet) as both:
        web = await fleet.bind("web", {})
        await fleet.until_told(web, "Success")
        known = both.clusters.cache.find("member1")
        assert known is not None
        caches_state = with_value(known, [FAILED], "spec", "taints")
        await settled()
        eviction = controller.state_of(caches_state)
        assert eviction.taints
        # Only the memory has the taint; the hub does not.
        beside = both.reconciler
        assert isinstance(beside, Eviction)
        beside._states["member1"] = eviction
        await beside.reconcile(controller.request_for(web.key))

        assert await leaves(fleet, web) == []


@pytest.mark.parametrize(
    "point",
    [CrashPoint(write, is_after) for write in (1, 2) for is_after in (False, True)],
    ids=str,
)
async def test_killed_at_any_write_it_ends_where_it_would_have(
    fleet: Fleet, point: CrashPoint
) -> None:
    web = await fleet.bind("web", {"replicaScheduling": DYNAMIC}, replicas=6)
    async with running_scheduler(fleet.hub_client):
        await fleet.until_told(web, "Success")
    await taint(fleet, "member1", FAILED)

    async def go_on(life: Running) -> None:
        """Report until the task is gone, or whoever works on it is."""
        assert life.beside is not None
        while not life.beside.done():
            if await fleet.targets(web) == {"member2": 3, "member3": 3}:
                await report(fleet, web)
                if not await leaves(fleet, web):
                    return
            await asyncio.sleep(0.02)

    async with running(fleet, writer=CrashingClient(fleet.hub_client, point)) as first:
        await go_on(first)
        assert first.beside is not None
        if first.beside.done():
            assert isinstance(first.beside.exception(), Killed)
    async with running(fleet) as second:
        await go_on(second)
        await settled()

    assert await fleet.targets(web) == {"member2": 3, "member3": 3}
    assert await leaves(fleet, web) == []


# -- applications that fail --------------------------------------------------------------------


ONE = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}
NO_TAINTS = EvictionSettings(each_second=1000, settle_seconds=0, witnesses=0)


def application(seconds: int = 0, **behaviour: Any) -> Object:
    return {"application": {"decisionConditions": {"tolerationSeconds": seconds}, **behaviour}}


async def placed_on_one(fleet: Fleet, failover: Object) -> tuple[ResourcePath, str]:
    """Bind an application to one cluster; return its binding and that cluster."""
    web = await fleet.bind("web", ONE, failover=failover, propagateDeps=True)
    await fleet.until_told(web, "Success")
    (first,) = await fleet.targets(web)
    return web, first


async def has_moved(fleet: Fleet, web: ResourcePath, first: str) -> None:
    async def is_elsewhere() -> bool:
        return bool(targets := await fleet.targets(web)) and first not in targets

    await until(is_elsewhere)


async def test_application_failover_with_purge_mode_gracefully(fleet: Fleet) -> None:
    failover = application(purgeMode="Gracefully", gracePeriodSeconds=600)
    async with running(fleet, NO_TAINTS):
        web, first = await placed_on_one(fleet, failover)
        await report(fleet, web, "Unhealthy")
        await has_moved(fleet, web, first)
        (task,) = await tasks(fleet, web)
        assert (task["reason"], task["fromCluster"]) == ("ApplicationFailure", first)
        assert task["gracePeriodSeconds"] == 600
        await report(fleet, web)
        await until_equal(lambda: leaves(fleet, web), [])


async def test_application_failover_with_purge_mode_never(fleet: Fleet) -> None:
    async with running(fleet, NO_TAINTS):
        web, first = await placed_on_one(fleet, application(purgeMode="Never"))
        await report(fleet, web, "Unhealthy")
        await has_moved(fleet, web, first)
        await report(fleet, web)
        await settled()
        assert [each["suppressDeletion"] for each in await tasks(fleet, web)] == [True]
        path = ("spec", "gracefulEvictionTasks")

        def allowed(held: Object) -> Object:
            listed = [{**each, "suppressDeletion": False} for each in find_at(held, *path)]
            return with_value(held, listed, *path)

        await fleet.change(web, allowed)
        await until_equal(lambda: leaves(fleet, web), [])


async def test_an_application_that_is_tolerated_to_fail_stays(fleet: Fleet) -> None:
    async with running(fleet, NO_TAINTS):
        web, first = await placed_on_one(fleet, application(3600, purgeMode="Directly"))
        await report(fleet, web, "Unhealthy")
        await settled()
        assert await leaves(fleet, web) == []
        assert set(await fleet.targets(web)) == {first}


async def test_an_application_whose_state_is_not_known_stays_and_says_so(fleet: Fleet) -> None:
    rules = [{"aliasLabelName": "checkpoint", "jsonPath": "{.checkpoint}"}]
    failover = application(purgeMode="Directly", statePreservation={"rules": rules})
    async with running(fleet, NO_TAINTS) as both:
        web, first = await placed_on_one(fleet, failover)
        await report(fleet, web, "Unhealthy")

        async def why() -> list[str]:
            await both.events.flush()
            told = await fleet.hub_client.list_objects(ResourcePath(EVENTS, "default"))
            failed = "EvictWorkloadFromClusterFailed"
            return [each["message"] for each in told if each["reason"] == failed]

        wanted = f"It stays on cluster {first}: there is nothing in what {first} reports at"
        await until_equal(lambda: why(), [f"{wanted} {{.checkpoint}}"])
        assert await leaves(fleet, web) == []


async def test_what_is_well_again_before_there_is_another_place_stays(fleet: Fleet) -> None:
    async with running(fleet, NO_TAINTS):
        placement = {"clusterAffinity": {"clusterNames": ["member1"]}}
        web = await fleet.bind("web", placement, failover=application(purgeMode="Directly"))
        await fleet.until_targets(web, {"member1": 2})
        await report(fleet, web, "Unhealthy")
        await until_equal(lambda: leaves(fleet, web), ["member1"])
        await report(fleet, web)
        await until_equal(lambda: leaves(fleet, web), [])
        assert await fleet.targets(web) == {"member1": 2}


async def test_without_the_flag_taints_evict_nobody(fleet: Fleet) -> None:
    async with running(fleet, NO_TAINTS):
        web = await fleet.bind("web", {})
        await fleet.until_told(web, "Success")
        await taint(fleet, "member1", FAILED)
        await settled()
        assert await leaves(fleet, web) == []


# -- ClusterTaintPolicy ------------------------------------------------------------------------


def asking(condition_type: str, *values: str) -> Object:
    return {"conditionType": condition_type, "operator": "In", "statusValues": list(values)}


def taint_policy(name: str = "network", **spec: Any) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterTaintPolicy",
        "metadata": {"name": name},
        "spec": {
            "targetClusters": {"clusterNames": ["member2"]},
            "addOnConditions": [asking("NetworkReady", "False", "Unknown")],
            "removeOnConditions": [asking("NetworkReady", "True")],
            "taints": [{"key": "testing/network-not-ready", "effect": "NoSchedule"}],
            **spec,
        },
    }


@asynccontextmanager
async def tainting(fleet: Fleet, *, may_evict: bool = False) -> AsyncGenerator[Running]:
    def policies(caches: HubCaches, events: EventRecorder) -> ClusterTaintPolicies:
        hub = fleet.hub_client
        return ClusterTaintPolicies(hub, caches, events, SystemClock(), may_evict=may_evict)

    async with running_scheduler(fleet.hub_client, beside=policies) as both:
        yield both


async def create_policy(fleet: Fleet, policy: Object) -> None:
    await fleet.hub_client.create(ResourcePath(CLUSTER_TAINT_POLICIES), policy)


async def test_taint_should_be_added_and_removed_upon_single_condition_match(
    fleet: Fleet,
) -> None:
    async with tainting(fleet) as both:
        await create_policy(fleet, taint_policy())
        for name in ("member1", "member2"):
            await say(fleet, name, "NetworkReady", "False")
        wanted = {"testing/network-not-ready:NoSchedule"}
        await until_equal(lambda: taints(fleet, "member2"), wanted)
        await settled()
        assert await taints(fleet, "member1") == set()
        await say(fleet, "member2", "NetworkReady", "True")
        await until_equal(lambda: taints(fleet, "member2"), set())
        await settled()  # who made it so tells of it behind the write
        await both.events.flush()

    told = await fleet.hub_client.list_objects(ResourcePath(EVENTS, "default"))
    assert "TaintClusterSucceed" in {each["reason"] for each in told}


async def test_taint_should_be_added_and_removed_upon_multi_conditions_match(
    fleet: Fleet,
) -> None:
    both_bad = [asking("NetworkReady", "False"), asking("StorageReady", "False")]
    both_good = [asking("NetworkReady", "True"), asking("StorageReady", "True")]
    policy = taint_policy(addOnConditions=both_bad, removeOnConditions=both_good)
    wanted = {"testing/network-not-ready:NoSchedule"}
    async with tainting(fleet):
        await create_policy(fleet, policy)
        await say(fleet, "member2", "NetworkReady", "False")
        await settled()
        assert await taints(fleet, "member2") == set()
        await say(fleet, "member2", "StorageReady", "False")
        await until_equal(lambda: taints(fleet, "member2"), wanted)
        await say(fleet, "member2", "StorageReady", "True")
        await settled()
        assert await taints(fleet, "member2") == wanted
        await say(fleet, "member2", "NetworkReady", "True")
        await until_equal(lambda: taints(fleet, "member2"), set())


async def test_multiple_taints_should_be_added_and_removed_upon_conditions_match(
    fleet: Fleet,
) -> None:
    two = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    async with tainting(fleet, may_evict=True):
        await taint(fleet, "member2", {"key": "mine", "effect": "NoSchedule"})
        await create_policy(fleet, taint_policy(taints=two))
        await say(fleet, "member2", "NetworkReady", "Unknown")
        wanted = {"a:NoSchedule", "b:NoExecute", "mine:NoSchedule"}
        await until_equal(lambda: taints(fleet, "member2"), wanted)
        await say(fleet, "member2", "NetworkReady", "True")
        await until_equal(lambda: taints(fleet, "member2"), {"mine:NoSchedule"})


async def test_taints_that_evict_are_not_set_unless_evictions_are_on(fleet: Fleet) -> None:
    two = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    async with tainting(fleet) as both:
        await create_policy(fleet, taint_policy(taints=two))
        await say(fleet, "member2", "NetworkReady", "False")
        await until_equal(lambda: taints(fleet, "member2"), {"a:NoSchedule"})
        await settled()  # who made it so tells of it behind the write
        await both.events.flush()

    told = await fleet.hub_client.list_objects(ResourcePath(EVENTS, "default"))
    why = [each["message"] for each in told if each["reason"] == "TaintClusterFailed"]
    assert why
    assert "--enable-no-execute-taint-eviction" in why[0]


async def test_a_policy_that_cannot_be_meant_is_refused(fleet: Fleet) -> None:
    twice = [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]
    wrong = [{"conditionType": "Ready", "operator": "Is", "statusValues": ["True"]}]
    with pytest.raises(Invalid) as refused:
        await create_policy(fleet, taint_policy(taints=twice, addOnConditions=wrong))

    assert "spec.taints[1]" in str(refused.value)
    assert "spec.addOnConditions[0].operator" in str(refused.value)


async def test_a_workload_goes_back_to_its_first_group_when_that_has_been_well(
    fleet: Fleet,
) -> None:
    groups = [
        {"affinityName": "home", "clusterNames": ["member1"]},
        {"affinityName": "away", "clusterNames": ["member2"]},
    ]
    web = await fleet.bind("web", {"clusterAffinities": groups, "replicaScheduling": DYNAMIC})

    def asks(binding: Object) -> Object:
        noted = {**binding["metadata"].get("annotations", {}), FAILBACK: "1"}
        return with_metadata(binding, annotations=noted)

    async with running(fleet):
        await fleet.until_targets(web, {"member1": 2})
        await taint(fleet, "member1", FAILED)
        await fleet.until_targets(web, {"member2": 2})
        await report(fleet, web)
        await until_equal(lambda: leaves(fleet, web), [])
        await untaint(fleet, "member1")
        await settled()
        await fleet.until_targets(web, {"member2": 2})

        await fleet.change(web, asks)

        await fleet.until_targets(web, {"member1": 2})
        # The copy that it leaves is kept until the next one is healthy.
        assert await leaves(fleet, web) == ["member2"]
        await report(fleet, web)
        await until_equal(lambda: leaves(fleet, web), [])


async def test_a_workload_whose_groups_overlap_changes_its_group_and_stays(fleet: Fleet) -> None:
    groups = [
        {"affinityName": "home", "clusterNames": ["member1", "member2"]},
        {"affinityName": "away", "clusterNames": ["member2"]},
    ]
    placement = {"clusterAffinities": groups, "replicaScheduling": AGGREGATED}
    web = await fleet.bind("web", placement)

    def fell_back(binding: Object) -> Object:
        return with_value(binding, "away", "status", "schedulerObservingAffinityName")

    def asks(binding: Object) -> Object:
        noted = {**binding["metadata"].get("annotations", {}), FAILBACK: "0"}
        return with_metadata(binding, annotations=noted)

    async def group() -> object:
        binding = await fleet.hub_client.get(web)
        return find_at(binding, "status", "schedulerObservingAffinityName")

    await taint(fleet, "member1", {"key": "cordoned", "effect": "NoSchedule"})
    async with running(fleet):
        await fleet.until_targets(web, {"member2": 2})
    await untaint(fleet, "member1")
    await fleet.change(web, fell_back)
    await fleet.change(web, asks)

    async with running(fleet):
        await until_equal(group, "home")
        assert await fleet.targets(web) == {"member2": 2}
        assert await leaves(fleet, web) == []
