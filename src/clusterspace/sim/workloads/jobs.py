"""Jobs: plans their pods, counts completions and failures, and says when a Job has ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, annotations_of, find_at
from clusterspace.kube.times import format_time, parse_time
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import is_active, is_ending, is_ready, phase_of
from clusterspace.sim.workloads.plans import MOST_AT_ONCE, new_pod

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_DEFAULT_BACKOFF: Final = 6


@dataclass(frozen=True, slots=True)
class _Tally:
    """A Job and its pods, counted."""

    job: Object
    active: tuple[Object, ...]
    succeeded: int
    failed: int
    done_indexes: frozenset[str]
    started: float

    @property
    def is_suspended(self) -> bool:
        return bool(find_at(self.job, "spec", "suspend"))

    @property
    def is_indexed(self) -> bool:
        return find_at(self.job, "spec", "completionMode") == "Indexed"

    @property
    def parallelism(self) -> int:
        given = find_at(self.job, "spec", "parallelism")
        return 1 if given is None else int(given)

    @property
    def completions(self) -> int | None:
        return find_at(self.job, "spec", "completions")

    @property
    def deadline(self) -> float | None:
        """When a Job that still runs has failed."""
        seconds = find_at(self.job, "spec", "activeDeadlineSeconds")
        return None if seconds is None else self.started + seconds


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a Job ended."""

    succeeded: bool
    reason: str
    message: str


def plan_job(job: Object, pods: Sequence[Object], now: float) -> Plan:
    """Decide what a Job does about its pods."""
    conditions: list[Any] = find_at(job, "status", "conditions") or []
    if is_true(conditions, "Complete") or is_true(conditions, "Failed"):
        # A finished Job does nothing any more, but for going when its time to live is over.
        seconds = find_at(job, "spec", "ttlSecondsAfterFinished")
        if seconds is None or is_ending(job):
            return Plan()
        ended = max(parse_time(str(each["lastTransitionTime"])) for each in conditions)
        left = ended + float(seconds) - now
        return Plan(delete=(job,)) if left <= 0 else Plan(again_after=left)
    if is_ending(job):
        return Plan()
    done = [pod for pod in pods if phase_of(pod) == "Succeeded"]
    started = find_at(job, "status", "startTime")
    tally = _Tally(
        job,
        active=tuple(pod for pod in pods if is_active(pod)),
        succeeded=len(done),
        failed=sum(phase_of(pod) == "Failed" for pod in pods),
        done_indexes=frozenset(_index_of(pod) for pod in done),
        started=parse_time(str(started)) if started else now,
    )
    outcome = _outcome(tally, now)
    status = with_status(job, _status(tally, outcome, now))
    if outcome or tally.is_suspended:
        return Plan(delete=tally.active, status=status)
    return Plan(
        create=_missing(tally),
        delete=tally.active[tally.parallelism :],
        status=status,
        again_after=None if tally.deadline is None else max(1.0, tally.deadline - now),
    )


def _index_of(pod: Object) -> str:
    return annotations_of(pod).get(_INDEX, "")


def _outcome(tally: _Tally, now: float) -> _Outcome | None:
    """Return how the Job ended, or None while it goes on."""
    desired = tally.completions
    done = len(tally.done_indexes) if tally.is_indexed else tally.succeeded
    if done >= desired if desired is not None else tally.succeeded and not tally.active:
        message = "Reached expected number of succeeded pods"
        return _Outcome(True, "CompletionsReached", message)
    limit = find_at(tally.job, "spec", "backoffLimit")
    if tally.failed > (_DEFAULT_BACKOFF if limit is None else int(limit)):
        message = "Job has reached the specified backoff limit"
        return _Outcome(False, "BackoffLimitExceeded", message)
    if tally.deadline is not None and now >= tally.deadline:
        message = "Job was active longer than specified deadline"
        return _Outcome(False, "DeadlineExceeded", message)
    return None


def _missing(tally: _Tally) -> tuple[Object, ...]:
    """Return the pods to start now; without a number of completions, one success is the end."""
    job, desired = tally.job, tally.completions
    if desired is None:
        left = 0 if tally.succeeded else tally.parallelism - len(tally.active)
    else:
        left = min(tally.parallelism, desired - tally.succeeded) - len(tally.active)
    count = min(max(left, 0), MOST_AT_ONCE)
    template: Object = find_at(job, "spec", "template")
    if not tally.is_indexed:
        return tuple(new_pod(job, template) for _ in range(count))
    taken = tally.done_indexes | {_index_of(pod) for pod in tally.active}
    free = [str(each) for each in range(desired or 0) if str(each) not in taken]
    return tuple(
        new_pod(job, template, labels={_INDEX: index}, annotations={_INDEX: index})
        for index in free[:count]
    )


def _status(tally: _Tally, outcome: _Outcome | None, now: float) -> Object:
    stamp = format_time(now)
    started = find_at(tally.job, "status", "startTime") or stamp
    status: Object = {
        "active": 0 if outcome or tally.is_suspended else len(tally.active),
        "succeeded": tally.succeeded,
        "failed": tally.failed,
        "ready": 0 if outcome else sum(is_ready(pod) for pod in tally.active),
        "terminating": 0,
        "startTime": None if tally.is_suspended else started,
        "uncountedTerminatedPods": {},
    }
    if tally.is_indexed:
        status["completedIndexes"] = _ranges(sorted(map(int, tally.done_indexes)))
    if outcome is None:
        return status
    if outcome.succeeded:
        status["completionTime"] = stamp
    # The two conditions of an end: that it is sure, and that it is over.
    types = ("SuccessCriteriaMet", "Complete") if outcome.succeeded else ("FailureTarget", "Failed")
    said: Object = {"status": "True", "reason": outcome.reason, "message": outcome.message}
    times: Object = {"lastProbeTime": stamp, "lastTransitionTime": stamp}
    return {**status, "conditions": [{"type": each, **said, **times} for each in types]}


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
