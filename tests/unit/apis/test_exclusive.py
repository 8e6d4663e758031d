"""How exclusive workloads are marked, stopped and promised for."""

from typing import Any

import pytest

from clusterspace.apis.exclusive import (
    EXCLUSIVE,
    STOPPED,
    STOPS_AFTER,
    can_be_stopped,
    exclusiveness_of,
    promise_text,
    promised_seconds,
    restarted,
    stop_seconds,
    stopped,
)
from clusterspace.kube.objects import Object, annotations_of, find_at
from clusterspace.testing.builders import config_map, deployment


def marked(kind: str = "Deployment", mark: str = "") -> Object:
    made: Object = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}}
    if mark:
        made["metadata"]["annotations"] = {EXCLUSIVE: mark}
    return made


DIRECTLY = {"cluster": {"purgeMode": "Directly"}}
OLDER = {"application": {"purgeMode": "Immediately"}}


@pytest.mark.parametrize(
    ("template", "failover", "wanted"),
    [
        (marked(), None, ""),
        (marked(), {"cluster": {"purgeMode": "Gracefully"}}, ""),
        (marked(), DIRECTLY, "acknowledged"),
        (marked(), OLDER, "acknowledged"),
        (marked("StatefulSet"), None, "acknowledged"),
        (marked("StatefulSet", "false"), DIRECTLY, ""),
        (marked("Deployment", "true"), None, "leased"),
        (marked("Deployment", "perhaps"), None, ""),
    ],
)
def test_what_must_not_run_twice(template: Object, failover: Object | None, wanted: str):
    assert exclusiveness_of(template, failover) == wanted


def lease(text: str, renewed: str = "2026-01-01T00:00:00.000000Z") -> Object:
    return {"metadata": {"annotations": {STOPS_AFTER: text}}, "spec": {"renewTime": renewed}}


def test_a_promise_is_that_of_the_agent_that_renewed():
    renewed = "2026-01-01T00:00:00.000000Z"
    assert promised_seconds(lease(promise_text(120, renewed), renewed)) == 120
    assert promised_seconds(lease(promise_text(0.5, renewed), renewed)) == 0.5
    assert promised_seconds(lease(promise_text(120, renewed), "2026-01-01T00:00:05Z")) is None


@pytest.mark.parametrize("text", ["", "120", "soon 2026-01-01T00:00:00.000000Z", "0 x", "-1 x"])
def test_what_is_no_promise(text: str):
    assert promised_seconds(lease(text)) is None
    assert promised_seconds({"spec": {}}) is None


@pytest.mark.parametrize(
    ("copy", "runs"),
    [
        (deployment("web", replicas=3), lambda each: find_at(each, "spec", "replicas")),
        (
            {"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2}},
            lambda each: 0 if find_at(each, "spec", "suspend") else 1,
        ),
        (
            {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"suspend": True}},
            lambda each: 0 if find_at(each, "spec", "suspend") else 1,
        ),
    ],
    ids=["replicas", "a Job", "one that was suspended"],
)
def test_a_copy_is_stopped_and_runs_again_as_before(copy: Object, runs: Any):
    assert can_be_stopped(copy)
    halted = stopped(copy)
    assert runs(halted) == 0
    assert STOPPED in annotations_of(halted)
    assert stopped(halted) == halted
    again = restarted(halted)
    assert runs(again) == runs(copy)
    assert STOPPED not in annotations_of(again)


def test_one_that_somebody_starts_meanwhile_is_stopped_from_what_it_ran_at_first():
    halted = stopped(deployment("web", replicas=3))
    meddled = {**halted, "spec": {**halted["spec"], "replicas": 1}}

    assert find_at(stopped(meddled), "spec", "replicas") == 0
    assert find_at(restarted(stopped(meddled)), "spec", "replicas") == 3
    assert restarted(deployment("web")) == deployment("web")


def test_what_nobody_knows_how_to_stop():
    assert not can_be_stopped(config_map("web"))


def test_pods_have_their_time_to_stop():
    assert stop_seconds(deployment("web")) == 30
    assert stop_seconds(config_map("web")) == 30
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "spec": {"terminationGracePeriodSeconds": 0}}
    assert stop_seconds(pod) == 0
