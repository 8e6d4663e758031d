"""Leases are renewed by agents and watched by the hub; silence is judged by the hub's own clock."""

import asyncio
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.membership.fleet_objects import cluster
from tests.unit.fleet.membership.lease_hubs import LeaseHub

from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS
from clusterspace.apis.exclusive import promised_seconds
from clusterspace.client.connection import Connection
from clusterspace.client.resources import ClusterClient, RawObject, read_raw_object
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import ClusterError
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.leases import (
    LeaseMonitor,
    LeaseRenewal,
    MonitorSettings,
    RenewalSettings,
    Silence,
    StopPromise,
    heartbeat_of,
    judge_silence,
    lease_object,
)
from clusterspace.kube.objects import Object, find_at, with_metadata
from clusterspace.testing.clocks import ManualClock, settle


def test_a_lease_goes_away_with_its_cluster() -> None:
    lease = lease_object(cluster(mode="Pull"), 0.0)

    assert lease["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "name": "west",
            "uid": "uid-of-west",
        }
    ]
    assert lease["spec"]["leaseDurationSeconds"] == 40


async def test_a_lease_is_made_once_and_then_renewed() -> None:
    hub, clock = LeaseHub(cluster(mode="Pull")), ManualClock()
    beat = LeaseRenewal(hub, "west", clock=clock, settings=RenewalSettings())

    await beat.renew()
    first = find_at(hub.lease, "spec", "renewTime")
    await clock.advance(5)
    await beat.renew()

    assert hub.writes == 2
    assert find_at(hub.lease, "spec", "renewTime") != first


async def test_an_agent_promises_with_every_renewal_and_counts_from_before_it() -> None:
    hub, clock = LeaseHub(cluster(mode="Pull")), ManualClock()
    heard: list[float] = []
    promise = StopPromise(120, heard.append)
    beat = LeaseRenewal(hub, "west", clock=clock, settings=RenewalSettings(), promise=promise)

    for _ in range(2):
        await beat.renew()
        assert promised_seconds(hub.lease or {}) == 120
        await clock.advance(5)
    hub.is_reachable = False
    with pytest.raises(ClusterError):
        await beat.renew()

    assert heard == [0, 5]
    # One that knows nothing of promises renews the time alone, and promises nothing by that.
    hub.is_reachable = True
    await LeaseRenewal(hub, "west", clock=clock, settings=RenewalSettings()).renew()
    assert promised_seconds(hub.lease or {}) is None


async def test_a_cluster_that_leaves_gets_no_new_lease() -> None:
    leaving = with_metadata(cluster(mode="Pull"), deletionTimestamp="2026-01-01T00:00:00Z")
    hub = LeaseHub(leaving)

    await LeaseRenewal(hub, "west", clock=ManualClock(), settings=RenewalSettings()).renew()

    assert hub.lease is None


@pytest.mark.parametrize("outage_seconds", [3, 60])
async def test_after_an_outage_the_hub_hears_of_us_within_two_seconds(outage_seconds: int) -> None:
    hub, clock = LeaseHub(cluster(mode="Pull")), ManualClock()
    beat = LeaseRenewal(hub, "west", clock=clock, settings=RenewalSettings())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(beat.run())
        await settle()
        hub.is_reachable = False
        for _ in range(outage_seconds + 5):
            await clock.advance(1)
        written = hub.writes
        hub.is_reachable = True
        await clock.advance(2)

        assert hub.writes == written + 1
        running.cancel()


SETTINGS = MonitorSettings(grace_seconds=40)


def test_a_cluster_is_silent_after_its_grace() -> None:
    silences = {"east": 5.0, "west": 40.0, "north": 3.0}

    assert judge_silence(silences, 3, SETTINGS) == Silence(("west",))


def test_a_lone_cluster_that_falls_silent_is_silent() -> None:
    assert judge_silence({"west": 41.0}, 1, SETTINGS) == Silence(("west",))


def test_most_of_the_fleet_at_once_is_the_hubs_own_fault() -> None:
    silences = {"east": 41.0, "west": 33.0, "north": 1.0}

    assert judge_silence(silences, 3, SETTINGS) == Silence(suspects_itself=True)


def test_half_of_the_fleet_is_not_most_of_it() -> None:
    silences = {"a": 41.0, "b": 41.0, "c": 1.0, "d": 1.0}

    assert judge_silence(silences, 4, SETTINGS) == Silence(("a", "b"))


def test_clusters_the_hub_reaches_by_itself_speak_for_the_hub() -> None:
    assert judge_silence({"a": 41.0, "b": 41.0}, 4, SETTINGS) == Silence(("a", "b"))


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 100), max_size=8), st.integers(0, 8))
def test_nobody_is_named_while_the_hub_doubts_itself(
    silences: dict[str, float], others: int
) -> None:
    silence = judge_silence(silences, len(silences) + others, SETTINGS)

    assert not (silence.silent and silence.suspects_itself)
    assert all(silences[name] >= 40 for name in silence.silent)


def test_a_renewed_lease_is_a_sign_of_life_whatever_time_it_tells() -> None:
    held = cluster(ready="True", mode="Pull")
    lease = {"metadata": {"resourceVersion": "5"}, "spec": {"renewTime": "1999-01-01T00:00:00Z"}}
    renewed = {**lease, "metadata": {"resourceVersion": "6"}}

    assert heartbeat_of(held, lease) != heartbeat_of(held, renewed)
    assert heartbeat_of(held, lease) == heartbeat_of({**held, "spec": {}}, lease)


@pytest.mark.parametrize("phase", [0.0, 1.25, 2.5, 4.75])
@pytest.mark.parametrize("lived_on", [0.0, 1.5, 3.5, 4.75])
async def test_an_agent_that_is_killed_is_noticed_after_forty_seconds_give_or_take_five(
    phase: float, lived_on: float
) -> None:
    """Whenever the monitor looks, and however long after its last beat the agent dies."""
    clock = ManualClock()
    settings = ConnectionSettings(cluster="hub", server="https://hub.example")
    caches = HubCaches(ClusterClient(Connection(settings, clock=clock, random=Random(1))))
    held = cluster(ready="True", mode="Pull")
    caches.informer(CLUSTERS).cache.put(_raw(held))
    leases = caches.informer(manifests.LEASES, CLUSTER_NAMESPACE).cache
    hub = LeaseHub(held)
    hub.is_reachable = False  # a silence is enough; nobody has to write it down
    events = EventRecorder(hub, component="test", clock=clock)
    monitor = LeaseMonitor(hub, caches, events, clock)
    beats = [count * RenewalSettings().renew_seconds for count in range(5)]
    looks = [phase + count * MonitorSettings().period_seconds for count in range(20)]
    killed_at = beats[-1] + lived_on

    for moment in sorted({*beats, *looks}):
        await clock.advance(moment - clock.monotonic())
        if moment in beats:
            leases.put(_raw(_lease(version=moment)))
        if moment in looks and (await monitor.look()).silent:
            break

    assert 35 <= clock.monotonic() - killed_at <= 45


def _lease(version: float) -> Object:
    metadata = {"name": "west", "namespace": "karmada-cluster", "resourceVersion": str(version)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


def _raw(held: Object) -> RawObject:
    return read_raw_object(msgspec.json.encode(held))
