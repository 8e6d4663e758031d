"""How a Job that runs in many clusters ends: with the first failure, or when all have completed."""

from collections.abc import Callable, Sequence
from typing import Final

from clusterspace.apis.works import Report
from clusterspace.kube.conditions import TRUE, find_condition, is_true
from clusterspace.kube.objects import Object

_COMPLETE: Final = "Complete"
_FAILED: Final = "Failed"
_SUCCESS_CRITERIA_MET: Final = "SuccessCriteriaMet"


def job_status(
    summed: Object,
    present: Object,
    told: Sequence[Report],
    are_all: Callable[[int], bool],
) -> Object:
    """Return the status of a Job: its sums, when it began, and how it ended if it did.

    A finished Job stays as it is: a cluster that loses its part later does not undo the result.
    """
    if any(is_true(present.get("conditions"), each) for each in (_COMPLETE, _FAILED)):
        return present
    status = {key: held for key, held in summed.items() if key not in ("startTime", "conditions")}
    begun = [each for each in _times(told, "startTime") if each]
    if begun:
        status["startTime"] = min(begun)
    failures = [each for each in told if _ending(each, _FAILED)]
    if failures:
        return {**status, "conditions": [_failed(failures)]}
    completed = [each for each in told if _ending(each, _COMPLETE)]
    return _completed(status, completed) if are_all(len(completed)) else status


def _completed(status: Object, completed: Sequence[Report]) -> Object:
    moment = _latest(completed, _COMPLETE)
    # Kubernetes takes a Job for complete only when it says that its criteria were met.
    conditions = [
        _condition(_SUCCESS_CRITERIA_MET, moment, "CompletionsReached", "All clusters succeeded."),
        _condition(_COMPLETE, moment, "Completed", "The Job completed in all clusters."),
    ]
    ended = max((each for each in _times(completed, "completionTime") if each), default=moment)
    return {**status, "completionTime": ended, "conditions": conditions}


def _failed(failures: Sequence[Report]) -> Object:
    where = ", ".join(sorted(each.cluster for each in failures))
    moment = _latest(failures, _FAILED)
    return _condition(_FAILED, moment, "JobFailed", f"The Job failed in {where}.")


def _condition(condition_type: str, moment: str, reason: str, message: str) -> Object:
    return {
        "type": condition_type,
        "status": TRUE,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }


def _ending(report: Report, condition_type: str) -> Object | None:
    """Return the condition that says so, if the Job ended this way there."""
    found = find_condition((report.status or {}).get("conditions"), condition_type)
    return found if found is not None and found.get("status") == TRUE else None


def _latest(ended: Sequence[Report], condition_type: str) -> str:
    """Return when the last of them ended: their own clocks say, ours was not there."""
    endings = (_ending(each, condition_type) or {} for each in ended)
    return max(str(each.get("lastTransitionTime") or "") for each in endings)


def _times(told: Sequence[Report], field: str) -> list[str]:
    return [str((each.status or {}).get(field) or "") for each in told]
