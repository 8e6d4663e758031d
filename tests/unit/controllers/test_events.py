import pytest
from tests.unit.controllers.hub_in_memory import HubInMemory

from clusterspace.controllers.events import (
    BURST,
    KEPT_FOR_TROUBLE,
    MOST_ROUTINE,
    MOST_WAITING,
    REFILL_SECONDS,
    ROUTINE_BURST,
    ROUTINE_SECONDS,
    Buckets,
    EventRecorder,
    TokenBucket,
)
from clusterspace.errors import ClusterTimeout, Conflict, Forbidden
from clusterspace.testing.builders import pod
from clusterspace.testing.clocks import ManualClock

WEB = pod("web", uid="u")


def recorder(hub_client: HubInMemory, clock: ManualClock) -> EventRecorder:
    return EventRecorder(hub_client, component="scheduler", clock=clock)


async def test_the_same_thing_again_adds_to_a_count():
    hub_client, clock = HubInMemory(), ManualClock()
    events = recorder(hub_client, clock)

    for _ in range(3):
        events.record(WEB, "Failed", "no room", is_warning=True)
    await events.flush()
    await clock.advance(60)
    events.record(WEB, "Failed", "no room", is_warning=True)
    await events.flush()

    (event,) = hub_client.objects.values()
    assert event["count"] == 4
    assert event["type"] == "Warning"
    assert event["involvedObject"]["uid"] == "u"
    assert event["firstTimestamp"] < event["lastTimestamp"]


async def test_what_the_hub_refuses_is_told_and_raised_and_a_conflict_is_only_raised():
    hub_client, clock = HubInMemory(), ManualClock()
    events = recorder(hub_client, clock)

    with pytest.raises(Forbidden), events.reporting_failure(WEB, "SyncFailed"):
        raise Forbidden("not yours")
    with pytest.raises(Conflict), events.reporting_failure(WEB, "SyncFailed"):
        raise Conflict("somebody else wrote it")
    with events.reporting_failure(WEB, "SyncFailed"):
        pass
    await events.flush()

    (event,) = hub_client.objects.values()
    assert (event["reason"], event["type"], event["count"]) == ("SyncFailed", "Warning", 1)
    assert "not yours" in event["message"]


async def test_a_restarted_recorder_goes_on_counting():
    hub_client, clock = HubInMemory(), ManualClock()
    for _ in range(2):
        events = recorder(hub_client, clock)
        events.record(WEB, "Failed", "no room")
        await events.flush()

    assert [event["count"] for event in hub_client.objects.values()] == [2]


async def test_an_object_with_too_many_different_events_loses_some():
    hub_client, clock = HubInMemory(), ManualClock()
    events = recorder(hub_client, clock)

    for number in range(BURST + 5):
        events.record(WEB, "Noise", f"number {number}")
    await events.flush()

    assert len(hub_client.objects) == BURST
    assert events.dropped == 5


async def test_what_is_routine_leaves_room_for_trouble():
    hub_client = HubInMemory()
    events = recorder(hub_client, ManualClock())

    for number in range(BURST):
        events.record(WEB, "Fine", f"step {number}", is_routine=True)
    for number in range(KEPT_FOR_TROUBLE):
        events.record(WEB, "Broken", f"number {number}", is_warning=True)
    await events.flush()

    reasons = [each["reason"] for each in hub_client.objects.values()]
    assert reasons.count("Broken") == KEPT_FOR_TROUBLE
    assert reasons.count("Fine") == BURST - KEPT_FOR_TROUBLE


async def test_of_many_objects_at_once_the_routine_is_not_told():
    hub_client = HubInMemory()
    events = recorder(hub_client, ManualClock())

    for number in range(2 * MOST_ROUTINE):
        each = {**WEB, "metadata": {**WEB["metadata"], "uid": f"uid-{number}"}}
        events.record(each, "Fine", "a step", is_routine=True)
        events.record(each, "Broken", "no room", is_warning=True)

    assert events.dropped > 0
    await events.flush()
    reasons = [each["reason"] for each in hub_client.objects.values()]
    assert reasons.count("Broken") == 2 * MOST_ROUTINE
    assert reasons.count("Fine") == 2 * MOST_ROUTINE - events.dropped


async def test_a_whole_cluster_that_comes_in_is_not_told_step_by_step():
    hub_client, clock = HubInMemory(), ManualClock()
    events = recorder(hub_client, clock)

    for number in range(2 * ROUTINE_BURST):
        each = {**WEB, "metadata": {**WEB["metadata"], "uid": f"uid-{number}"}}
        events.record(each, "Fine", "a step", is_routine=True)
        await events.flush()
    events.record(WEB, "Broken", "no room", is_warning=True)
    await clock.advance(10 * ROUTINE_SECONDS)
    events.record(WEB, "Fine", "a step", is_routine=True)
    await events.flush()

    reasons = [each["reason"] for each in hub_client.objects.values()]
    assert reasons.count("Fine") == ROUTINE_BURST + 1
    assert reasons.count("Broken") == 1


async def test_a_hub_that_cannot_be_written_stops_nobody():
    hub_client = HubInMemory()
    hub_client.failure = ClusterTimeout("hub", "late")
    events = recorder(hub_client, ManualClock())

    events.record(WEB, "Failed", "no room")
    await events.flush()

    assert events.dropped == 1


async def test_an_object_without_a_namespace_has_its_events_in_default():
    hub_client = HubInMemory()
    events = recorder(hub_client, ManualClock())
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n"}}

    events.record(node, "Ready", "it is")
    await events.flush()

    assert [place.namespace for place in hub_client.objects] == ["default"]


def test_a_bucket_refills_slowly_and_not_over_its_rim():
    bucket = TokenBucket(0)
    taken = [bucket.take(0) for _ in range(BURST + 1)]

    assert taken == [True] * BURST + [False]
    assert bucket.take(REFILL_SECONDS)
    assert not bucket.take(REFILL_SECONDS)
    assert [bucket.take(1e6) for _ in range(BURST + 1)][-1] is False


def test_objects_that_had_no_events_for_a_while_are_forgotten():
    buckets = Buckets()
    for number in range(MOST_WAITING):
        for _ in range(3):
            buckets.take(f"uid-{number}", now=0)

    buckets.take("busy", now=REFILL_SECONDS / 2)
    before = len(buckets)
    for number in range(MOST_WAITING):
        buckets.take(f"new-{number}", now=3 * REFILL_SECONDS)

    assert before == MOST_WAITING + 1
    assert len(buckets) <= MOST_WAITING + 1
