"""Jobs: pods that end, and what their ends add up to.

Every pod of a Job carries a finalizer until its end is counted, so that a pod that somebody deletes
is not forgotten. Counting takes three looks, and a crash between any two of them counts nothing
twice: the pod's UID is written into `uncountedTerminatedPods`, then its finalizer goes, then the
UID becomes one more in `succeeded` or `failed`. A Job ends in two steps as well: a condition says
how it will end, and when its last pod is gone another one says that it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from clusterspace.kube.conditions import find_condition, is_true
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.times import format_time, parse_time
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import is_active, is_ending, is_finished, is_ready, phase_of
from clusterspace.sim.workloads.job_failures import (
    INDEX,
    INDEX_FAILURES,
    INDEX_IGNORED,
    failed_indexes,
    failures_before,
    format_ranges,
    index_of,
    is_failed,
    judge,
    parse_ranges,
    replaces_failed_only,
    success_message,
)
from clusterspace.sim.workloads.plans import MOST_AT_ONCE, new_pod

TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer of pods whose end is not counted yet."""

_CONTROLLER: Final = "kubernetes.io/job-controller"
_DEFAULT_BACKOFF: Final = 6
_BACKOFF_SECONDS: Final = 10.0
_LONGEST_BACKOFF: Final = 600.0
_FAILURE, _SUCCESS = "FailureTarget", "SuccessCriteriaMet"
_FINAL: Final = {_FAILURE: "Failed", _SUCCESS: "Complete"}


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a Job will end: the condition that says so, before its pods are gone."""

    type: str
    reason: str
    message: str


class _Tally:
    """A Job and its pods, counted."""

    def __init__(self, job: Object, pods: Sequence[Object], now: float) -> None:
        self.job = job
        self.pods = pods
        self.now = now
        self.status: Object = job.get("status") or {}
        self.conditions: list[Any] = self.status.get("conditions") or []
        self.active = [pod for pod in pods if is_active(pod)]
        self.tracked = [pod for pod in pods if has_tracking(pod)]
        uncounted: Object = self.status.get("uncountedTerminatedPods") or {}
        self.uncounted = {
            field: set[str](uncounted.get(field) or ()) for field in ("succeeded", "failed")
        }

    def spec(self, *path: str, otherwise: int) -> int:
        given = find_at(self.job, "spec", *path)
        return otherwise if given is None else int(given)

    @property
    def is_suspended(self) -> bool:
        return bool(find_at(self.job, "spec", "suspend"))

    @property
    def is_indexed(self) -> bool:
        return find_at(self.job, "spec", "completionMode") == "Indexed"

    @property
    def completions(self) -> int | None:
        return find_at(self.job, "spec", "completions")

    @property
    def has_limit_per_index(self) -> bool:
        return self.is_indexed and find_at(self.job, "spec", "backoffLimitPerIndex") is not None

    @property
    def terminating(self) -> list[Object]:
        return [pod for pod in self.pods if is_ending(pod) and not is_finished(pod)]

    # -- what has ended ------------------------------------------------------------------------

    @cached_property
    def succeeded_indexes(self) -> frozenset[int]:
        completions = self.completions or 0
        known = parse_ranges(str(self.status.get("completedIndexes") or ""), completions)
        ended = (index_of(pod) for pod in self.tracked if phase_of(pod) == "Succeeded")
        return known | {each for each in ended if each is not None and each < completions}

    @cached_property
    def failed_indexes(self) -> frozenset[int]:
        if not self.has_limit_per_index:
            return frozenset()
        # Once it is decided that the Job fails, the pods that go with it fail no index.
        is_lost = is_true(self.conditions, _FAILURE)
        return failed_indexes(self.job, () if is_lost else self.tracked)

    @cached_property
    def newly_succeeded(self) -> list[Object]:
        done = (pod for pod in self.tracked if phase_of(pod) == "Succeeded")
        return [pod for pod in done if uid_of(pod) not in self.uncounted["succeeded"]]

    @cached_property
    def newly_failed(self) -> list[Object]:
        """Pods whose failure counts and is not written down yet.

        Those that go because the Job has succeeded have not failed.
        """
        # Pods are deleted before the status is written that says why, and that write may be
        # refused because the Job has changed: the next look finds pods that go and no condition.
        is_won = is_true(self.conditions, _SUCCESS) or bool(
            self.is_indexed and success_message(self.job, self.succeeded_indexes)
        )
        return [
            pod
            for pod in self.tracked
            if is_failed(pod, self.job)
            and uid_of(pod) not in self.uncounted["failed"]
            and not (is_won and (is_ending(pod) or phase_of(pod) != "Failed"))
            and judge(pod, self.job).counts
        ]

    @property
    def succeeded(self) -> int:
        if self.is_indexed:
            return len(self.succeeded_indexes)
        waiting = len(self.uncounted["succeeded"]) + len(self.newly_succeeded)
        return int(self.status.get("succeeded") or 0) + waiting

    @property
    def failed(self) -> int:
        waiting = len(self.uncounted["failed"]) + len(self.newly_failed)
        return int(self.status.get("failed") or 0) + waiting

    # -- since when ----------------------------------------------------------------------------

    @property
    def is_resumed(self) -> bool:
        """Whether a Job that says it is suspended is not any more."""
        return not self.is_suspended and is_true(self.conditions, "Suspended")

    @property
    def started(self) -> float | None:
        """Since when the Job runs; suspending it ends that."""
        if self.is_suspended:
            was_running = not is_true(self.conditions, "Suspended")
            stored = None if was_running else self.status.get("startTime")
        else:
            stored = None if self.is_resumed else self.status.get("startTime")
        if stored:
            return parse_time(str(stored))
        return None if self.is_suspended else self.now

    @property
    def deadline(self) -> float | None:
        """When a Job that still runs has failed."""
        seconds = find_at(self.job, "spec", "activeDeadlineSeconds")
        return None if seconds is None or self.started is None else self.started + seconds

    def left_of(self, backoff: "Backoff") -> float:
        """Return how long to wait before a pod replaces the one that failed last."""
        if not backoff.failures:
            return 0.0
        delay = min(_BACKOFF_SECONDS * 2 ** min(backoff.failures - 1, 16), _LONGEST_BACKOFF)
        return max(0.0, min(backoff.last, self.now) + delay - self.now)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How many pods failed in a row, and when the last of them did."""

    failures: int = 0
    last: float = 0.0

    def after(self, pod: Object, job: Object) -> "Backoff":
        """Return what it is when this pod has ended too."""
        return Backoff(self.failures + 1, ended_at(pod)) if is_failed(pod, job) else Backoff()


def has_tracking(pod: Object) -> bool:
    """Whether the end of a pod is still to be counted."""
    return TRACKING in (metadata_of(pod).get("finalizers") or ())


def without_tracking(pod: Object) -> Object:
    """Return a pod whose end has been counted."""
    finalizers: list[str] = metadata_of(pod).get("finalizers") or []
    kept = [each for each in finalizers if each != TRACKING]
    return with_metadata(pod, finalizers=kept or None)


def ended_at(pod: Object) -> float:
    """Return when a pod ended, as far as it is known."""
    times = [
        str(find_at(each, "state", "terminated", "finishedAt"))
        for each in find_at(pod, "status", "containerStatuses") or ()
        if find_at(each, "state", "terminated", "finishedAt")
    ]
    if not times:
        # A kubelet that did not say when: the last thing that is known to have happened to it.
        times = [
            str(each["lastTransitionTime"])
            for each in find_at(pod, "status", "conditions") or ()
            if each.get("lastTransitionTime")
        ]
        metadata = metadata_of(pod)
        times.append(str(metadata.get("deletionTimestamp") or metadata["creationTimestamp"]))
    return max(map(parse_time, times))


def plan_job(job: Object, pods: Sequence[Object], backoff: Backoff, now: float) -> Plan:
    """Decide what a Job does about its pods."""
    if find_at(job, "spec", "managedBy") not in (None, "", _CONTROLLER):
        return Plan()
    tally = _Tally(job, pods, now)
    is_over = is_true(tally.conditions, "Complete") or is_true(tally.conditions, "Failed")
    if is_over or is_ending(job):
        # Nothing is counted any more. A finished Job goes when its time to live is over.
        update = tuple(without_tracking(pod) for pod in tally.tracked)
        seconds = find_at(job, "spec", "ttlSecondsAfterFinished")
        if seconds is None or is_ending(job):
            return Plan(update=update)
        ends = (find_condition(tally.conditions, each) for each in _FINAL.values())
        ended = max(parse_time(str(each["lastTransitionTime"])) for each in ends if each)
        left = ended + float(seconds) - now
        return Plan(update=update, delete=(job,) if left <= 0 else (), again_after=left)

    outcome = _outcome(tally)
    create: tuple[Object, ...] = ()
    delete: tuple[Object, ...] = ()
    wait: float | None = None
    if outcome is not None or tally.is_suspended:
        delete = tuple(tally.active)
    else:
        delete = _surplus(tally)
        if not delete:
            create, wait = _missing(tally, backoff)
        if not tally.active and not create and wait is None and _is_complete(tally):
            message = "Reached expected number of succeeded pods"
            outcome = _Outcome(_SUCCESS, "CompletionsReached", message)
    delayed = {} if outcome else _delayed(tally)
    if tally.deadline is not None and outcome is None:
        until_deadline = max(0.1, tally.deadline - now)
        wait = until_deadline if wait is None else min(wait, until_deadline)
    return Plan(
        create=create,
        update=tuple(without_tracking(pod) for pod in _counted(tally, delayed)),
        delete=delete,
        status=with_status(job, _status(tally, outcome, len(create), delete, delayed)),
        again_after=wait,
    )


# -- how it ends ---------------------------------------------------------------------------------


def _outcome(tally: _Tally) -> _Outcome | None:
    """Return how the Job ends, or None while it goes on; what was decided stays decided."""
    job = tally.job
    for kind in (_SUCCESS, _FAILURE):
        decided = find_condition(tally.conditions, kind)
        if decided is not None and decided.get("status") == "True":
            reason, message = str(decided.get("reason")), str(decided.get("message"))
            return _Outcome(kind, reason, message)
    for pod in tally.pods:
        if is_failed(pod, job) and (verdict := judge(pod, job)).action == "FailJob":
            return _Outcome(_FAILURE, "PodFailurePolicy", verdict.message)
    limit = tally.spec("backoffLimit", otherwise=_DEFAULT_BACKOFF)
    if tally.failed > limit or _restarts(tally) >= max(limit, 1):
        message = "Job has reached the specified backoff limit"
        return _Outcome(_FAILURE, "BackoffLimitExceeded", message)
    if tally.deadline is not None and tally.now >= tally.deadline and not tally.is_suspended:
        message = "Job was active longer than specified deadline"
        return _Outcome(_FAILURE, "DeadlineExceeded", message)
    if not tally.is_indexed:
        return None
    if lost := len(tally.failed_indexes):
        most = find_at(job, "spec", "maxFailedIndexes")
        if most is not None and lost > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return _Outcome(_FAILURE, "MaxFailedIndexesExceeded", message)
        if lost + tally.succeeded >= (tally.completions or 0):
            return _Outcome(_FAILURE, "FailedIndexes", "Job has failed indexes")
    if message := success_message(job, tally.succeeded_indexes):
        return _Outcome(_SUCCESS, "SuccessPolicy", message)
    return None


def _restarts(tally: _Tally) -> int:
    """Return how often containers were started anew, where pods do that instead of failing."""
    if find_at(tally.job, "spec", "template", "spec", "restartPolicy") != "OnFailure":
        return 0
    return sum(
        int(status.get("restartCount") or 0)
        for pod in tally.pods
        if phase_of(pod) in ("Running", "Pending")
        for field in ("initContainerStatuses", "containerStatuses")
        for status in find_at(pod, "status", field) or ()
    )


def _is_complete(tally: _Tally) -> bool:
    """Whether enough pods have succeeded; without a number of completions, one is enough."""
    if tally.completions is None:
        return tally.succeeded > 0
    return tally.succeeded >= tally.completions


# -- pods ----------------------------------------------------------------------------------------


def _wanted(tally: _Tally) -> int:
    parallelism = tally.spec("parallelism", otherwise=1)
    if tally.completions is None:
        # Once one has succeeded the others may finish, and no more are started.
        return len(tally.active) if tally.succeeded else parallelism
    return max(0, min(parallelism, tally.completions - tally.succeeded))


def _surplus(tally: _Tally) -> tuple[Object, ...]:
    """Return the pods that are too many, or of an index that is done, taken or not there."""
    ordered = sorted(tally.active, key=lambda pod: (not is_ready(pod), phase_of(pod) != "Running"))
    unwanted: list[Object] = []
    kept: list[Object] = []
    taken: set[int] = set()
    for pod in ordered:
        index = index_of(pod)
        if tally.is_indexed and (
            index is None
            or index >= (tally.completions or 0)
            or index in taken | tally.succeeded_indexes | tally.failed_indexes
        ):
            unwanted.append(pod)
        else:
            taken |= set() if index is None else {index}
            kept.append(pod)
    return tuple([*unwanted, *kept[_wanted(tally) :]][:MOST_AT_ONCE])


def _missing(tally: _Tally, backoff: Backoff) -> tuple[tuple[Object, ...], float | None]:
    """Return the pods to start now, and when to look again for those that have to wait."""
    job = tally.job
    leaving = tally.terminating if replaces_failed_only(job) else []
    count = min(_wanted(tally) - len(tally.active) - len(leaving), MOST_AT_ONCE)
    if count <= 0:
        return (), None
    template: Object = find_at(job, "spec", "template")
    if not tally.has_limit_per_index and (left := tally.left_of(backoff)) > 0:
        return (), left
    if not tally.is_indexed:
        return tuple(_tracked(new_pod(job, template)) for _ in range(count)), None

    present = {index_of(pod) for pod in (*tally.active, *leaving)}
    done = tally.succeeded_indexes | tally.failed_indexes | present
    free = [each for each in range(tally.completions or 0) if each not in done]
    last = _last_failed(tally)
    new: list[Object] = []
    waits: list[float] = []
    for index in free:
        if len(new) == count:
            break
        replaced = last.get(index)
        notes = {INDEX: str(index)}
        if tally.has_limit_per_index:
            failures, ignored = 0, 0
            if replaced is not None:
                counts = judge(replaced, job).counts
                failures = failures_before(replaced) + counts
                ignored = failures_before(replaced, INDEX_IGNORED) + (not counts)
                own = Backoff(failures + ignored, ended_at(replaced))
                if (left := tally.left_of(own)) > 0:
                    waits.append(left)
                    continue
            notes[INDEX_FAILURES] = str(failures)
            if ignored:
                notes[INDEX_IGNORED] = str(ignored)
        new.append(_indexed(job, template, index, notes))
    return tuple(new), min(waits, default=None)


def _last_failed(tally: _Tally) -> dict[int, Object]:
    """Return the pod of each index that failed last: what its successor inherits from."""
    found: dict[int, Object] = {}
    for pod in tally.pods:
        index = index_of(pod)
        if index is None or not is_failed(pod, tally.job):
            continue
        known = found.get(index)
        if known is None or _tries(pod) > _tries(known):
            found[index] = pod
    return found


def _tries(pod: Object) -> int:
    return failures_before(pod) + failures_before(pod, INDEX_IGNORED)


def _tracked(pod: Object) -> Object:
    finalizers: list[str] = metadata_of(pod).get("finalizers") or []
    return with_metadata(pod, finalizers=[*finalizers, TRACKING])


def _indexed(job: Object, template: Object, index: int, notes: dict[str, str]) -> Object:
    """Return the pod of an index: it knows the index, and is called after it."""
    pod = _tracked(new_pod(job, template, labels={INDEX: str(index)}, annotations=notes))
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
    }
    spec: Object = dict(pod["spec"])
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [
                {**each, "env": [*(each.get("env") or []), variable]}
                if not any(e["name"] == variable["name"] for e in each.get("env") or ())
                else each
                for each in spec[field]
            ]
    spec["hostname"] = f"{name_of(job)}-{index}"
    named = with_metadata(pod, generateName=f"{name_of(job)}-{index}-")
    return {**named, "spec": spec}


# -- counting ------------------------------------------------------------------------------------


def _delayed(tally: _Tally) -> dict[int, str]:
    """Return the pods, by index, that stay until their successor has inherited their failures."""
    if not tally.has_limit_per_index:
        return {}
    present = {index_of(pod) for pod in tally.active}
    done = tally.succeeded_indexes | tally.failed_indexes | present
    return {index: uid_of(pod) for index, pod in _last_failed(tally).items() if index not in done}


def _counted(tally: _Tally, delayed: dict[int, str]) -> list[Object]:
    """Return the pods whose end is written down already: nothing is lost with their finalizer."""
    done: list[Object] = []
    completed = parse_ranges(
        str(tally.status.get("completedIndexes") or ""), tally.completions or 0
    )
    is_won = is_true(tally.conditions, _SUCCESS)
    for pod in tally.tracked:
        index = index_of(pod)
        if uid_of(pod) in delayed.values():
            continue
        if phase_of(pod) == "Succeeded":
            is_written = uid_of(pod) in tally.uncounted["succeeded"]
            if tally.is_indexed:
                is_written = index is None or index not in tally.succeeded_indexes - completed
        elif is_failed(pod, tally.job):
            is_written = uid_of(pod) in tally.uncounted["failed"]
            is_written = is_written or (is_won and phase_of(pod) != "Failed")
            is_written = is_written or not judge(pod, tally.job).counts
        else:
            is_written = is_won and is_ending(pod)
        if is_written:
            done.append(pod)
    return done


def _status(
    tally: _Tally,
    outcome: _Outcome | None,
    created: int,
    deleted: tuple[Object, ...],
    delayed: dict[int, str],
) -> Object:
    stamp = format_time(tally.now)
    with_finalizer = {uid_of(pod) for pod in tally.tracked}
    newly = {"succeeded": [], "failed": tally.newly_failed}
    if not tally.is_indexed:
        newly["succeeded"] = tally.newly_succeeded
    counts: dict[str, int] = {}
    uncounted: Object = {}
    for field, found in newly.items():
        # Without its finalizer a pod may be gone any moment: now it is one more.
        ready = {uid for uid in tally.uncounted[field] if uid not in with_finalizer}
        counts[field] = int(tally.status.get(field) or 0) + len(ready)
        waiting = sorted(tally.uncounted[field] - ready)
        waiting += [uid_of(pod) for pod in found if uid_of(pod) not in delayed.values()]
        if waiting:
            uncounted[field] = waiting
    gone = {uid_of(pod) for pod in deleted}
    terminating = len(tally.terminating) + len(deleted)
    started = tally.started
    status: Object = {
        "active": len(tally.active) - len(deleted) + created,
        "succeeded": len(tally.succeeded_indexes) if tally.is_indexed else counts["succeeded"],
        "failed": counts["failed"],
        "ready": sum(is_ready(pod) for pod in tally.active if uid_of(pod) not in gone),
        "terminating": terminating,
        "startTime": None if started is None else format_time(started),
        "completionTime": tally.status.get("completionTime"),
        "uncountedTerminatedPods": uncounted,
    }
    if tally.is_indexed:
        status["completedIndexes"] = format_ranges(tally.succeeded_indexes) or None
    if tally.has_limit_per_index:
        status["failedIndexes"] = format_ranges(tally.failed_indexes)

    conditions: list[Object] = [*tally.conditions]

    def say(kind: str, value: str, reason: str, message: str) -> None:
        known = find_condition(conditions, kind)
        if known is not None and known.get("status") == value:
            return
        times: Object = {"lastProbeTime": stamp, "lastTransitionTime": stamp}
        condition = {"type": kind, "status": value, "reason": reason, "message": message, **times}
        conditions[:] = [each for each in conditions if each is not known] + [condition]

    if outcome is not None:
        is_decided = is_true(tally.conditions, outcome.type)
        say(outcome.type, "True", outcome.reason, outcome.message)
        if is_decided and not terminating and not uncounted and not tally.active:
            say(_FINAL[outcome.type], "True", outcome.reason, outcome.message)
            if outcome.type == _SUCCESS:
                status["completionTime"] = stamp
    elif tally.is_suspended:
        say("Suspended", "True", "JobSuspended", "Job suspended")
    elif tally.is_resumed:
        say("Suspended", "False", "JobResumed", "Job resumed")
    return {**status, "conditions": conditions or None}
