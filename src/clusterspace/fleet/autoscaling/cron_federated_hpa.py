"""CronFederatedHPA: the replicas of a template, or the bounds of a FederatedHPA, at set times.

When a rule is due next stands in the status, so a time that passes while no controller runs is
made up for by the next one: once for each rule, in the order of their times, so that the last one
due has the last word.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.autoscalers import (
    CRON_FEDERATED_HPAS,
    FEDERATED_HPAS,
    rule_schedule,
    rules_of,
    scales_federated_hpa,
)
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, PatchType
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import ApiError, Conflict, Malformed
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    namespace_of,
    resource_version_of,
)
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.schedules import Schedule
from clusterspace.kube.times import format_time, parse_time

_log = structlog.get_logger(__name__)

_SCALE: Final = "scale"
_HISTORY: Final = 3
_MOST_WAIT: Final = 3600.0
"""A clock may be set: nobody sleeps for a month on its word."""


@dataclass(frozen=True, slots=True)
class Due:
    """A rule whose time has come, and that time."""

    at: float
    rule: Object


def histories_of(cron: Object, now: float) -> list[Object]:
    """Return the history of every rule with the time at which it is due next.

    Rules that were taken out are forgotten; those that are suspended have no next time. A rule
    whose schedule was changed is due by the new one, and not at a time that only the old one had.
    """
    listed = cast("list[Object]", find_at(cron, "status", "executionHistories") or [])
    known = {str(each.get("ruleName")): each for each in listed}
    histories: list[Object] = []
    for rule in rules_of(cron):
        name = str(rule.get("name"))
        history = dict(known.get(name) or {"ruleName": name})
        schedule = None if rule.get("suspend") else rule_schedule(rule)
        planned = history.pop("nextExecutionTime", None)
        if schedule is not None:
            at = parse_time(str(planned)) if planned else None
            following = at if at is not None and _is_time_of(schedule, at) else schedule.after(now)
            if following is not None:
                history["nextExecutionTime"] = format_time(following)
        histories.append(history)
    return histories


def _is_time_of(schedule: Schedule, at: float) -> bool:
    return bool(schedule.every) or schedule.after(at - 1) == at


def due_rules(cron: Object, histories: Iterable[Object], now: float) -> list[Due]:
    """Return the rules whose times have come, the earliest first."""
    times = {
        str(each["ruleName"]): parse_time(str(each["nextExecutionTime"]))
        for each in histories
        if each.get("nextExecutionTime")
    }
    due = [
        Due(times[name], rule)
        for rule in rules_of(cron)
        if (name := str(rule.get("name"))) in times and times[name] <= now
    ]
    return sorted(due, key=lambda each: each.at)


def with_execution(history: Object, due: Due, now: float, failure: str) -> Object:
    """Return the history of a rule with one more execution, the newest first."""
    rule = due.rule
    schedule = rule_schedule(rule)
    following = schedule.after(now) if schedule else None
    execution: Object = {"scheduleTime": format_time(due.at), "executionTime": format_time(now)}
    if failure:
        field, limit = "failedExecutions", rule.get("failedHistoryLimit")
        execution["message"] = failure
    else:
        field, limit = "successfulExecutions", rule.get("successfulHistoryLimit")
        applied = {
            "appliedReplicas": rule.get("targetReplicas"),
            "appliedMinReplicas": rule.get("targetMinReplicas"),
            "appliedMaxReplicas": rule.get("targetMaxReplicas"),
        }
        execution |= {key: value for key, value in applied.items() if value is not None}
    earlier = cast("list[Object]", history.get(field) or [])
    kept = [execution, *earlier][: _HISTORY if limit is None else int(limit)]
    changed: Object = {**history, field: kept}
    changed.pop("nextExecutionTime", None)
    if following is not None:
        changed["nextExecutionTime"] = format_time(following)
    return changed


class CronFederatedHpaController(Reconciler):
    """Scales what CronFederatedHPAs name, when their rules are due."""

    name = "cron-federated-hpa"
    workers = 4

    def __init__(
        self, hub: ClusterClient, caches: HubCaches, events: EventRecorder, clock: Clock
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._crons = caches.informer(CRON_FEDERATED_HPAS)
        self._discovery = Discovery(hub.connection)

    def watches(self) -> Iterable[Watch]:
        """Return what their authors wrote."""
        yield Watch(self._crons, when=more_than_status_changed)

    async def reconcile(self, request: Request) -> Result:
        """Carry out what is due, write it down, and come again when the next rule is."""
        path = ResourcePath(CRON_FEDERATED_HPAS, request.namespace, request.name)
        # Live: a cache that lacks our own status would have us scale twice.
        cron = await self._hub.find(path)
        if cron is None or is_being_deleted(cron):
            return Done()
        now = self._clock.now()
        histories = histories_of(cron, now)
        by_name = {str(each["ruleName"]): each for each in histories}
        for due in due_rules(cron, histories, now):
            name = str(due.rule.get("name"))
            try:
                await self._execute(cron, due.rule)
                failure = ""
            except (ApiError, Malformed) as error:
                failure = str(error)
                self._events.record(cron, "ScaleFailed", failure, is_warning=True)
            _log.info("rule was due", cron=request.key, rule=name, failure=failure)
            by_name[name] = with_execution(by_name[name], due, now, failure)
        # Killed here, what was due is done and not written down: it is done once more, to the
        # same replicas, and only then is the time of the next one known.
        reported = [by_name[str(each["ruleName"])] for each in histories]
        status: Object = {**(cron.get("status") or {}), "executionHistories": reported}
        with self._events.reporting_failure(cron, "UpdateStatusFailed"):
            await commit(self._hub, path, cron, {**cron, "status": status})
        times = [each["nextExecutionTime"] for each in reported if each.get("nextExecutionTime")]
        if not times:
            return Done()
        # A moment late rather than early: a time that has not come is no time to scale at.
        left = min(parse_time(str(each)) for each in times) - self._clock.now() + 0.01
        return RequeueAfter(min(max(left, 0.1), _MOST_WAIT))

    async def _execute(self, cron: Object, rule: Object) -> None:
        """Give the target what the rule says; nothing is written where it has that already."""
        reference: Object = find_at(cron, "spec", "scaleTargetRef") or {}
        namespace, name = namespace_of(cron), str(reference.get("name") or "")
        wanted: dict[str, Any]
        if scales_federated_hpa(cron):
            place = ResourcePath(FEDERATED_HPAS, namespace, name)
            bounds = {
                "minReplicas": rule.get("targetMinReplicas"),
                "maxReplicas": rule.get("targetMaxReplicas"),
            }
            wanted = {key: value for key, value in bounds.items() if value is not None}
        else:
            kind = GroupVersionKind.of(
                str(reference.get("apiVersion") or ""), str(reference.get("kind") or "")
            )
            info = await self._discovery.get_resource(kind)
            place = ResourcePath(info.group_version_resource, namespace, name, _SCALE)
            wanted = {"replicas": rule.get("targetReplicas")}
        for attempt in range(5):
            target = await self._hub.get(place)
            current = cast("Object", target.get("spec") or {})
            if all((current.get(key) or 0) == value for key, value in wanted.items()):
                return
            version = {"resourceVersion": resource_version_of(target)}
            patch = {"metadata": version, "spec": wanted}
            try:
                await self._hub.patch(place, PatchType.MERGE, patch)
            except Conflict:
                if attempt == 4:
                    raise
            else:
                return
