"""What ran when an object was taken over, compared with what runs now."""

from clusterspace.fleet.execution.evidence import (
    TAKEN_OVER,
    PodIdentity,
    Running,
    compare,
    encode,
    noted_on,
)
from clusterspace.kube.times import parse_time

THEN = "2026-01-02T03:04:05Z"
NOW = parse_time(THEN) + 60
POD = PodIdentity("p1", {"web": "containerd://a 0"})
BEFORE = Running("u1", THEN, {"web-1": POD}, {"web-abc": "r1"})


def test_what_is_kept_is_read_again():
    work = {"metadata": {"annotations": {TAKEN_OVER: encode(BEFORE)}}}

    assert noted_on(work) == BEFORE


def test_a_note_that_somebody_wrote_over_proves_nothing():
    assert noted_on({"metadata": {"annotations": {TAKEN_OVER: "certainly"}}}) is None
    assert noted_on(None) is None


def test_the_same_is_called_the_same():
    said = compare(BEFORE, BEFORE, NOW)

    assert said == "taken over 60s ago: the same pod, and no container restarted"


def test_a_container_that_restarted_is_no_same_pod():
    restarted = Running("u1", "", {"web-1": PodIdentity("p1", {"web": "containerd://b 1"})})

    said = compare(BEFORE, restarted, NOW)

    assert said.endswith("1 of 1 pods restarted, such as web-1; ReplicaSet web-abc is gone")


def test_a_pod_of_the_same_name_is_another_one():
    replaced = Running("u1", "", {"web-1": PodIdentity("p2")}, {"web-abc": "r1"})

    said = compare(BEFORE, replaced, NOW)
    assert said.endswith("1 of 1 pods are gone or replaced, such as web-1")


def test_what_was_not_seen_is_never_called_unchanged():
    unseen = Running("u1", "", unseen="pods is forbidden")

    assert "could not be looked at: pods is forbidden" in compare(BEFORE, unseen, NOW)
    assert "could not be looked at: pods is forbidden" in compare(
        Running("u1", THEN, unseen="pods is forbidden"), BEFORE, NOW
    )


def test_an_object_that_was_made_anew_is_another_one():
    assert "deleted and made anew" in compare(BEFORE, Running("u2"), NOW)
