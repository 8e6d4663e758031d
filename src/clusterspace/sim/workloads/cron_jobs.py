"""Jobs at set times."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from clusterspace.kube.conditions import find_condition, is_true
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.schedules import Schedule, read_schedule
from clusterspace.kube.times import format_time, parse_time
from clusterspace.sim.api import CRON_JOB, JOB, Change, Key, Mirror, controller_of, key_of
from clusterspace.sim.plans import Plan, owner_reference, with_status
from clusterspace.sim.pods import is_ending

_SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_SLOW: Final = 100
"""A CronJob that missed more times than this is not asked which."""


def schedule_of(cron_job: Object) -> Schedule | None:
    """Read the schedule of a CronJob; None when it, or its time zone, makes no sense."""
    text = str(find_at(cron_job, "spec", "schedule") or "")
    return read_schedule(text, str(find_at(cron_job, "spec", "timeZone") or ""))


# -- the controller ------------------------------------------------------------------------------


class CronJobController:
    """Makes Jobs when their time has come, and forgets old ones."""

    name = "cron jobs"
    batch_seconds = 0.0

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the CronJob that changed, or that the changed Job belongs to."""
        if change.kind == CRON_JOB.name and change.after is not None:
            yield key_of(change.after)
        if change.kind == JOB.name:
            owner = controller_of(change.latest)
            if owner is not None and owner["kind"] == CRON_JOB.name:
                yield Key(CRON_JOB.name, namespace_of(change.latest), str(owner["name"]))

    def plan(self, key: Key, now: float) -> Plan:
        """Decide whether a Job is due, and which are of no interest any more."""
        cron_job = self._mirror.find(key)
        if cron_job is None or is_ending(cron_job):
            return Plan()
        return plan_cron_job(cron_job, self._mirror.owned_by(cron_job, JOB), now)


def _end_of(job: Object) -> str:
    conditions: list[Object] = find_at(job, "status", "conditions") or []
    return next((each for each in ("Complete", "Failed") if is_true(conditions, each)), "")


def plan_cron_job(cron_job: Object, jobs: Sequence[Object], now: float) -> Plan:
    """Decide for one CronJob."""
    running = [job for job in jobs if not _end_of(job)]
    status: Object = dict(cron_job.get("status") or {})
    known: list[Object] = status.get("active") or []
    status["active"] = _references(running, {str(each.get("uid")): each for each in known})
    for job in jobs:
        if _end_of(job) == "Complete":
            done = find_condition(find_at(job, "status", "conditions"), "Complete") or {}
            stamp = str(find_at(job, "status", "completionTime") or done["lastTransitionTime"])
            if stamp > str(status.get("lastSuccessfulTime") or ""):
                status["lastSuccessfulTime"] = stamp
    delete = [*_surplus(jobs, "Complete", cron_job), *_surplus(jobs, "Failed", cron_job)]
    schedule = schedule_of(cron_job)
    if schedule is None or find_at(cron_job, "spec", "suspend"):
        return Plan(delete=tuple(delete), status=with_status(cron_job, status))

    due = _due(cron_job, schedule, now)
    following = schedule.after(now)
    # A moment late rather than early: a time that has not come is no time to start at.
    wait = None if following is None else max(0.1, following - now + 0.01)
    policy = find_at(cron_job, "spec", "concurrencyPolicy") or "Allow"
    deadline = find_at(cron_job, "spec", "startingDeadlineSeconds")
    is_late = due is not None and deadline is not None and now - due > float(deadline)
    if due is None or is_late or (policy == "Forbid" and running):
        return Plan(delete=tuple(delete), status=with_status(cron_job, status), again_after=wait)
    if policy == "Replace" and running:
        # First the old ones go; that brings the CronJob back, and there is never more than one.
        delete += [job for job in running if not is_ending(job)]
        return Plan(delete=tuple(delete), again_after=wait)
    new = _new_job(cron_job, due)
    status["lastScheduleTime"] = format_time(due)
    return Plan(
        create=(new,),
        delete=tuple(delete),
        status=with_status(cron_job, status),
        again_after=wait,
    )


def _references(jobs: Iterable[Object], known: Mapping[str, Object]) -> list[Object]:
    """Return the references to Jobs; one that is there stays, whatever version it names."""
    return [
        known.get(uid_of(job))
        or {
            "kind": "Job",
            "apiVersion": "batch/v1",
            "namespace": namespace_of(job),
            "name": name_of(job),
            "uid": uid_of(job),
            "resourceVersion": metadata_of(job).get("resourceVersion"),
        }
        for job in sorted(jobs, key=name_of)
    ]


def _due(cron_job: Object, schedule: Schedule, now: float) -> float | None:
    """Return the last time that has come and was not used; None when there is none."""
    last = find_at(cron_job, "status", "lastScheduleTime")
    since = parse_time(str(last or metadata_of(cron_job)["creationTimestamp"]))
    deadline = find_at(cron_job, "spec", "startingDeadlineSeconds")
    if deadline is not None:
        since = max(since, now - float(deadline))
    due: float | None = None
    for _ in range(_SLOW):
        following = schedule.after(since)
        if following is None or following > now:
            return due
        due = since = following
    # Very many were missed, after a stop of days: the latest is found from the end.
    span = 60.0
    while (following := schedule.after(now - span)) is not None and following > now:
        span *= 2
    start = now - span
    while (following := schedule.after(start)) is not None and following <= now:
        due = start = following
    return due


def _new_job(cron_job: Object, due: float) -> Object:
    template: Object = find_at(cron_job, "spec", "jobTemplate") or {}
    zone = find_at(cron_job, "spec", "timeZone")
    at = datetime.fromtimestamp(due, ZoneInfo(str(zone)) if zone else UTC)
    stamp = format_time(due) if not zone else at.isoformat(timespec="seconds")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            # The name says for which time it is: made twice, it is made once.
            "name": f"{name_of(cron_job)}-{int(due) // 60}",
            "namespace": namespace_of(cron_job),
            "labels": dict(labels_of(template)),
            "annotations": {**annotations_of(template), _SCHEDULED: stamp},
            "ownerReferences": [owner_reference(cron_job)],
        },
        "spec": template.get("spec") or {},
    }


def _surplus(jobs: Sequence[Object], end: str, cron_job: Object) -> list[Object]:
    """Return the finished Jobs beyond the history that is kept, the oldest first."""
    field, otherwise = (
        ("successfulJobsHistoryLimit", 3) if end == "Complete" else ("failedJobsHistoryLimit", 1)
    )
    limit = find_at(cron_job, "spec", field)
    ended = sorted(
        (job for job in jobs if _end_of(job) == end and not is_ending(job)),
        key=lambda job: (str(find_at(job, "status", "startTime") or ""), name_of(job)),
    )
    return ended[: max(0, len(ended) - (otherwise if limit is None else int(limit)))]
