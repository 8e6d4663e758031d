"""How far a staged update run goes: a few at a time, and past those that cannot be seen."""

from typing import Any

import pytest

from clusterspace.apis.staged_updates import is_newer, is_over
from clusterspace.fleet.propagation.placements.staged_updates import (
    InvalidRunError,
    PickedTarget,
    RunProgress,
    RunStep,
    RunView,
    initial_status,
    max_concurrency,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object

NOW = 1_800_000_000.0
SNAPSHOT = "crp-1-snapshot"


def target(
    *, is_bound: bool = False, is_available: bool = False, is_silent: bool = False, **labels: str
) -> PickedTarget:
    available = {"type": "Available", "status": str(is_available), "observedGeneration": 2}
    binding = {
        "metadata": {"name": "b", "generation": 2},
        "spec": {
            "state": "Bound",
            "resourceSnapshotName": SNAPSHOT if is_bound else "crp-0-snapshot",
        },
        "status": {"conditions": [{**available, "message": "not yet"}]},
    }
    return PickedTarget(binding, {"ring": "a", **labels}, is_silent)


DONE = target(is_bound=True, is_available=True)
BUSY = target(is_bound=True)
BEHIND = target()
SILENT = target(is_silent=True)


def ring(name: str, value: str = "a", **more: Any) -> Object:
    return {"name": name, "labelSelector": {"matchLabels": {"ring": value}}, **more}


def begun(*stages: Object, **targets: PickedTarget) -> Object:
    strategy: Object = {"spec": {"stages": list(stages)}}
    status = initial_status(strategy, RunView(SNAPSHOT, targets), {}, 1, NOW)
    metadata = {"name": "run", "generation": 1}
    return {"metadata": metadata, "spec": {"state": "Run"}, "status": status}


def after(run: Object, /, *how: Any, **targets: PickedTarget) -> RunStep:
    """Take a run on; `how` is how much later it is, and which requests are approved."""
    seconds = how[0] if how else 0
    approvals = how[1] if len(how) > 1 else {}
    view = RunView(SNAPSHOT, targets, approvals=approvals)
    return RunProgress(run, view, NOW + seconds).advance()


def forward(step: RunStep) -> list[str]:
    return [name for name, _ in step.forward]


def told(step: RunStep, kind: str = "Progressing") -> str:
    return str((find_condition(step.status["conditions"], kind) or {}).get("reason"))


@pytest.mark.parametrize(
    ("value", "clusters", "at_once"),
    [(None, 9, 1), (3, 9, 3), ("50%", 9, 4), ("1%", 9, 1), ("100%", 0, 1)],
)
def test_a_share_of_a_stage_is_rounded_down_and_one_at_least(
    value: Any, clusters: int, at_once: int
) -> None:
    assert max_concurrency({"maxConcurrency": value}, clusters) == at_once


def test_no_more_are_updated_at_a_time_than_the_stage_allows() -> None:
    targets = {"a": BUSY, "b": BEHIND, "c": BEHIND, "d": BEHIND}
    run = begun(ring("all", maxConcurrency=2), **targets)

    assert forward(after(run, **targets)) == ["b"]
    assert forward(after(run, **{**targets, "b": BUSY})) == []
    assert forward(after(run, **{**targets, "a": DONE, "b": BUSY})) == ["c"]


def test_the_next_stage_begins_once_the_end_of_this_one_is_written_down() -> None:
    other = target(ring="b")
    run = begun(ring("first"), ring("second", "b"), a=DONE, b=other)
    step = after(run, a=DONE, b=other)
    assert step.goes_on
    assert forward(step) == []

    again = after({**run, "status": step.status}, a=DONE, b=other)
    assert forward(again) == ["b"]


def test_a_cluster_that_is_not_available_for_long_is_told_of_and_keeps_its_place() -> None:
    run = begun(ring("all"), a=BUSY, b=BEHIND)
    step = after(run, a=BUSY, b=BEHIND)
    assert (told(step), min(step.waits)) == ("UpdateRunProgressing", 300)

    late = after({**run, "status": step.status}, 300, a=BUSY, b=BEHIND)
    assert (told(late), forward(late)) == ("UpdateRunStuck", [])


def test_a_silent_cluster_is_parked_and_given_its_state_at_the_end() -> None:
    run = begun(ring("all"), a=DONE, b=DONE, c=SILENT)
    step = after(run, a=DONE, b=DONE, c=SILENT)
    assert step.goes_on
    assert forward(step) == []
    last = after({**run, "status": step.status}, a=DONE, b=DONE, c=SILENT)
    assert (forward(last), told(last, "Succeeded")) == (["c"], "None")
    parked = target(is_bound=True, is_silent=True)
    over = after({**run, "status": last.status}, a=DONE, b=DONE, c=parked)
    assert told(over, "Succeeded") == "UpdateRunSucceeded"


def test_a_silent_cluster_that_is_back_is_updated_in_its_stage_though_that_is_over() -> None:
    prod = target(is_bound=True, ring="b")
    run = begun(ring("first"), ring("second", "b"), a=DONE, b=DONE, c=SILENT, d=prod)
    step = after(run, a=DONE, b=DONE, c=SILENT, d=prod)
    assert forward(after({**run, "status": step.status}, a=DONE, b=DONE, c=BEHIND, d=prod)) == ["c"]


def test_a_stage_that_is_mostly_silent_waits() -> None:
    silent = {"a": DONE, "b": SILENT}
    step = after(begun(ring("all"), **silent), **silent)

    assert not step.goes_on
    assert (told(step), forward(step)) == ("UpdateRunStuck", [])


def test_newcomers_join_their_stage_and_one_without_a_stage_is_told_of() -> None:
    run = begun(ring("all", maxConcurrency=5), a=BUSY)
    step = after(run, a=BUSY, b=BEHIND, c=target(ring="nowhere"))

    assert forward(step) == ["b"]
    progressing = find_condition(step.status["conditions"], "Progressing") or {}
    assert "in no stage: c" in progressing["message"]


def test_a_run_that_is_stopped_brings_nothing_and_says_when_all_is_still() -> None:
    run = begun(ring("all", maxConcurrency=2), a=BUSY, b=BEHIND)
    run = {**run, "status": after(run, a=BUSY, b=BEHIND).status, "spec": {"state": "Stop"}}

    assert told(after(run, a=BUSY, b=BEHIND)) == "UpdateRunStopping"
    assert forward(after(run, a=BUSY, b=BEHIND)) == []
    assert told(after(run, a=DONE, b=BEHIND)) == "UpdateRunStopped"


def test_time_and_approval_are_waited_for_after_a_stage() -> None:
    tasks = [{"type": "TimedWait", "waitTime": "1h"}, {"type": "Approval"}]
    run = begun(ring("all", afterStageTasks=tasks), a=DONE)
    step = after(run, a=DONE)
    assert (step.requests, min(step.waits), told(step)) == (
        [("all", False)],
        3600,
        "UpdateRunWaiting",
    )
    run = {**run, "status": step.status}
    assert not after(run, 3599, {"run-after-all": True}, a=DONE).goes_on
    assert not after(run, 3600, {"run-after-all": False}, a=DONE).goes_on
    through = after(run, 3600, {"run-after-all": True}, a=DONE)
    assert (through.goes_on, through.accepted) == (True, ["run-after-all"])


def test_a_stage_without_clusters_is_skipped_and_nobody_is_asked() -> None:
    tasks = {"beforeStageTasks": [{"type": "Approval"}]}
    step = after(begun(ring("none", "x", **tasks), ring("all"), a=DONE), a=DONE)

    assert (step.goes_on, step.requests) == (True, [])
    (condition, _) = step.status["stagesStatus"][0]["conditions"]
    assert condition["reason"] == "StageUpdatingSkippedNoClusters"


def test_clusters_are_sorted_by_the_number_in_their_label() -> None:
    targets = {"a": target(n="10"), "b": target(n="9"), "c": target(n="9")}
    (stage,) = begun(ring("all", sortingLabelKey="n"), **targets)["status"]["stagesStatus"]
    assert [each["clusterName"] for each in stage["clusters"]] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ([ring("one"), ring("two")], "is in the stages one and two"),
        ([ring("one", "x")], "no stage selects a"),
        ([{"name": "one"}], "no stage selects a"),
        ([ring("one", sortingLabelKey="n")], "is no whole number"),
    ],
)
def test_every_cluster_is_in_exactly_one_stage(stages: list[Object], why: str) -> None:
    with pytest.raises(InvalidRunError, match=why):
        begun(*stages, a=BEHIND)


def test_what_another_run_left_in_change_comes_first_and_takes_a_place() -> None:
    """A run that brings back what was before must not take clusters that are well beside it."""
    well, broken = target(is_available=True), target()
    targets = {"a": well, "b": well, "c": broken}
    run = begun(ring("all"), **targets)
    assert forward(after(run, **targets)) == ["c"]
    two = begun(ring("all", maxConcurrency=2), **targets)
    assert forward(after(two, **targets)) == ["c", "a"]
    assert forward(after(two, **{**targets, "a": BUSY})) == ["c"]
    assert forward(after(two, **{**targets, "a": BUSY, "c": BUSY})) == []


def test_a_way_back_goes_through_all_stages_at_once_and_keeps_their_bounds() -> None:
    well, other = target(is_available=True), target(is_available=True, ring="b")
    targets = {"a": well, "b": well, "c": other}
    run = begun(ring("first"), ring("second", "b"), **targets)
    view = RunView(SNAPSHOT, targets)
    step = RunProgress(run, view, NOW, is_at_once=True).advance()
    assert forward(step) == ["a", "c"]
    assert not is_over({**run, "status": step.status})


def test_a_run_that_is_over_does_not_hold_against_one_of_the_same_second() -> None:
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    done = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    over: Object = {"metadata": {**metadata, "name": "c"}, "status": done}
    new: Object = {"metadata": {**metadata, "name": "b"}}
    assert is_newer(new, over)
    assert not is_newer(over, new)
    assert is_newer({"metadata": {**metadata, "name": "c"}}, new)
