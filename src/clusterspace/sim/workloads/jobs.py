"""Pods that end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, annotations_of, find_at
from clusterspace.kube.timestamps import format_time, parse_time
from clusterspace.sim.pod_states import is_active, is_ending, is_ready, phase_of
from clusterspace.sim.workloads.plans import MOST_AT_ONCE, Plan, with_status
from clusterspace.sim.workloads.templates import new_pod

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_DEFAULT_BACKOFF: Final = 6


@dataclass(frozen=True, slots=True)
class _Tally:
    """A Job's pods, counted."""

    active: tuple[Object, ...]
    succeeded: int
    failed: int
    done_indexes: frozenset[str]


def plan_job(job: Object, pods: Sequence[Object], now: float) -> Plan:
    """Decide what a Job does about its pods."""
    conditions: list[Any] | None = find_at(job, "status", "conditions")
    if is_true(conditions, "Complete") or is_true(conditions, "Failed"):
        return _plan_finished(job, now)
    if is_ending(job):
        return Plan()
    tally = _count(pods)
    verdict = _verdict(job, tally, now)
    suspended = bool(find_at(job, "spec", "suspend"))
    if verdict or suspended:
        status = _status(job, tally, verdict, now)
        return Plan(delete=tally.active, status=with_status(job, status))
    deadline = find_at(job, "spec", "activeDeadlineSeconds")
    return Plan(
        create=_missing(job, tally),
        delete=tally.active[_parallelism(job) :],
        status=with_status(job, _status(job, tally, verdict, now)),
        again_after=None if deadline is None else max(1.0, _started(job, now) + deadline - now),
    )


def _plan_finished(job: Object, now: float) -> Plan:
    """Delete a finished Job when its time to live is over; it does nothing else any more."""
    seconds = find_at(job, "spec", "ttlSecondsAfterFinished")
    if seconds is None or is_ending(job):
        return Plan()
    conditions: list[Object] = find_at(job, "status", "conditions") or []
    ended = max(parse_time(str(each["lastTransitionTime"])) for each in conditions)
    left = ended + float(seconds) - now
    return Plan(delete=(job,)) if left <= 0 else Plan(again_after=left)


def _count(pods: Sequence[Object]) -> _Tally:
    done = [pod for pod in pods if phase_of(pod) == "Succeeded"]
    return _Tally(
        active=tuple(pod for pod in pods if is_active(pod)),
        succeeded=len(done),
        failed=sum(phase_of(pod) == "Failed" for pod in pods),
        done_indexes=frozenset(_index_of(pod) for pod in done),
    )


def _index_of(pod: Object) -> str:
    return annotations_of(pod).get(_INDEX, "")


def _is_indexed(job: Object) -> bool:
    return find_at(job, "spec", "completionMode") == "Indexed"


def _parallelism(job: Object) -> int:
    given = find_at(job, "spec", "parallelism")
    return 1 if given is None else int(given)


def _completions(job: Object) -> int | None:
    return find_at(job, "spec", "completions")


def _missing(job: Object, tally: _Tally) -> tuple[Object, ...]:
    """Return the pods to start now; without a number of completions, one success is the end."""
    wanted = _completions(job)
    if wanted is None:
        left = 0 if tally.succeeded else _parallelism(job) - len(tally.active)
    else:
        left = min(_parallelism(job), wanted - tally.succeeded) - len(tally.active)
    count = min(max(left, 0), MOST_AT_ONCE)
    template: Object = find_at(job, "spec", "template")
    if not _is_indexed(job):
        return tuple(new_pod(job, template) for _ in range(count))
    taken = tally.done_indexes | {_index_of(pod) for pod in tally.active}
    free = [str(each) for each in range(wanted or 0) if str(each) not in taken]
    return tuple(
        new_pod(job, template, labels={_INDEX: index}, annotations={_INDEX: index})
        for index in free[:count]
    )


@dataclass(frozen=True, slots=True)
class _Verdict:
    """How a Job ended."""

    succeeded: bool
    reason: str
    message: str


def _verdict(job: Object, tally: _Tally, now: float) -> _Verdict | None:
    """Return how the Job ended, or None while it goes on."""
    wanted = _completions(job)
    done = len(tally.done_indexes) if _is_indexed(job) else tally.succeeded
    if done >= wanted if wanted is not None else tally.succeeded and not tally.active:
        says = "Reached expected number of succeeded pods"
        return _Verdict(True, "CompletionsReached", says)
    limit = find_at(job, "spec", "backoffLimit")
    if tally.failed > (_DEFAULT_BACKOFF if limit is None else int(limit)):
        says = "Job has reached the specified backoff limit"
        return _Verdict(False, "BackoffLimitExceeded", says)
    deadline = find_at(job, "spec", "activeDeadlineSeconds")
    if deadline is not None and now >= _started(job, now) + deadline:
        says = "Job was active longer than specified deadline"
        return _Verdict(False, "DeadlineExceeded", says)
    return None


def _started(job: Object, now: float) -> float:
    held = find_at(job, "status", "startTime")
    return parse_time(str(held)) if held else now


def _status(job: Object, tally: _Tally, verdict: _Verdict | None, now: float) -> Object:
    stamp = format_time(now)
    suspended = bool(find_at(job, "spec", "suspend"))
    status: Object = {
        "active": 0 if verdict or suspended else len(tally.active),
        "succeeded": tally.succeeded,
        "failed": tally.failed,
        "ready": 0 if verdict else sum(is_ready(pod) for pod in tally.active),
        "terminating": 0,
        "startTime": None if suspended else find_at(job, "status", "startTime") or stamp,
        "uncountedTerminatedPods": {},
    }
    if _is_indexed(job):
        status["completedIndexes"] = _ranges(sorted(map(int, tally.done_indexes)))
    if verdict is not None:
        status["conditions"] = _conditions(verdict, stamp)
        if verdict.succeeded:
            status["completionTime"] = stamp
    return status


def _conditions(verdict: _Verdict, stamp: str) -> list[Object]:
    """Return the two conditions of an end: that it is sure, and that it is over."""
    types = ("SuccessCriteriaMet", "Complete") if verdict.succeeded else ("FailureTarget", "Failed")
    said: Object = {"status": "True", "reason": verdict.reason, "message": verdict.message}
    times: Object = {"lastProbeTime": stamp, "lastTransitionTime": stamp}
    return [{"type": each, **said, **times} for each in types]


def _ranges(numbers: list[int]) -> str:
    """Return numbers as Jobs list them.

    >>> _ranges([0, 1, 2, 5])
    '0-2,5'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ",".join("-".join(map(str, span)) for span in spans)
