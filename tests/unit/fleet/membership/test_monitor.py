"""Who fell silent, and when the hub doubts itself instead."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.membership.fleet_objects import cluster
from tests.unit.fleet.membership.lease_hubs import LeaseHub

from clusterspace.client.raw_objects import RawObject, read_raw_object
from clusterspace.controllers.caches import Cache
from clusterspace.controllers.events import EventRecorder
from clusterspace.fleet.membership.lease import BeatSettings
from clusterspace.fleet.membership.monitor import (
    Monitor,
    MonitorSettings,
    Verdict,
    Watched,
    judge,
    sign_of,
)
from clusterspace.kube.objects import Object
from clusterspace.testing.clocks import ManualClock

SETTINGS = MonitorSettings(grace_seconds=40)


def test_a_cluster_is_silent_after_its_grace() -> None:
    silences = {"east": 5.0, "west": 40.0, "north": 3.0}

    assert judge(silences, 3, SETTINGS) == Verdict(("west",))


def test_a_lone_cluster_that_falls_silent_is_silent() -> None:
    assert judge({"west": 41.0}, 1, SETTINGS) == Verdict(("west",))


def test_most_of_the_fleet_at_once_is_the_hubs_own_fault() -> None:
    silences = {"east": 41.0, "west": 33.0, "north": 1.0}

    assert judge(silences, 3, SETTINGS) == Verdict(suspects_itself=True)


def test_half_of_the_fleet_is_not_most_of_it() -> None:
    silences = {"a": 41.0, "b": 41.0, "c": 1.0, "d": 1.0}

    assert judge(silences, 4, SETTINGS) == Verdict(("a", "b"))


def test_clusters_the_hub_reaches_by_itself_speak_for_the_hub() -> None:
    assert judge({"a": 41.0, "b": 41.0}, 4, SETTINGS) == Verdict(("a", "b"))


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 100), max_size=8), st.integers(0, 8))
def test_nobody_is_named_while_the_hub_doubts_itself(
    silences: dict[str, float], others: int
) -> None:
    verdict = judge(silences, len(silences) + others, SETTINGS)

    assert not (verdict.silent and verdict.suspects_itself)
    assert all(silences[name] >= 40 for name in verdict.silent)


def test_a_renewed_lease_is_a_sign_of_life_whatever_time_it_tells() -> None:
    held = cluster(ready="True", mode="Pull")
    lease = {"metadata": {"resourceVersion": "5"}, "spec": {"renewTime": "1999-01-01T00:00:00Z"}}
    renewed = {**lease, "metadata": {"resourceVersion": "6"}}

    assert sign_of(held, lease) != sign_of(held, renewed)
    assert sign_of(held, lease) == sign_of({**held, "spec": {}}, lease)


@pytest.mark.parametrize("phase", [0.0, 1.25, 2.5, 4.75])
@pytest.mark.parametrize("lived_on", [0.0, 1.5, 3.5, 4.75])
async def test_an_agent_that_is_killed_is_noticed_after_forty_seconds_give_or_take_five(
    phase: float, lived_on: float
) -> None:
    """Whenever the monitor looks, and however long after its last beat the agent dies."""
    clock, watched = ManualClock(), Watched(Cache(), Cache())
    held = cluster(ready="True", mode="Pull")
    watched.clusters.put(_raw(held))
    hub = LeaseHub(held)
    hub.is_reachable = False  # a verdict is enough; nobody has to write it down
    events = EventRecorder(hub, component="test", clock=clock)
    monitor = Monitor(hub, watched, events, clock=clock)
    beats = [count * BeatSettings().renew_seconds for count in range(5)]
    looks = [phase + count * MonitorSettings().period_seconds for count in range(20)]
    killed_at = beats[-1] + lived_on

    for moment in sorted({*beats, *looks}):
        await clock.advance(moment - clock.monotonic())
        if moment in beats:
            watched.leases.put(_raw(_lease(version=moment)))
        if moment in looks and (await monitor.look()).silent:
            break

    assert 35 <= clock.monotonic() - killed_at <= 45


def _lease(version: float) -> Object:
    metadata = {"name": "west", "namespace": "karmada-cluster", "resourceVersion": str(version)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


def _raw(held: Object) -> RawObject:
    return read_raw_object(msgspec.json.encode(held))
