"""What a member reports of an object: its health, its status, and many such reports summed up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.apis import kinds, stamps, third_party
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.works import HEALTHY, UNHEALTHY, Report
from clusterspace.kube.conditions import FALSE, TRUE, UNKNOWN, find_condition, is_true
from clusterspace.kube.objects import Object, annotations_of, find_at, metadata_of
from clusterspace.kube.resources import GroupKind

# -- health; a kind nobody knows is taken for healthy unless it says otherwise -----------------


def health_of(live: Object) -> str:
    """Return Healthy or Unhealthy."""
    return HEALTHY if _is_healthy(live) else UNHEALTHY


def _is_healthy(live: Object) -> bool:
    status: Object = find_at(live, "status") or {}
    # The status must be about the spec there is now, and not about an earlier one.
    is_observed = status.get("observedGeneration") == metadata_of(live).get("generation")
    replicas: Any = find_at(live, "spec", "replicas")
    desired = replicas if isinstance(replicas, int) else 1

    def count(field: str) -> int:
        value: Any = status.get(field)
        return value if isinstance(value, int) else 0

    match kind := kinds.kind_of(live):
        case kinds.DEPLOYMENT | kinds.STATEFUL_SET:
            updated = count("updatedReplicas")
            return is_observed and updated >= desired and count("availableReplicas") >= updated
        case kinds.REPLICA_SET:
            return is_observed and count("availableReplicas") >= desired
        case kinds.DAEMON_SET:
            updated = count("updatedNumberScheduled")
            are_updated = updated >= count("desiredNumberScheduled")
            return is_observed and are_updated and count("numberAvailable") >= updated
        case kinds.POD:
            phase, is_ready = status.get("phase"), is_true(status.get("conditions"), "Ready")
            return phase == "Succeeded" or (phase == "Running" and is_ready)
        case kinds.SERVICE if find_at(live, "spec", "type") != "LoadBalancer":
            return True
        case kinds.SERVICE | kinds.INGRESS:
            return bool(find_at(status, "loadBalancer", "ingress"))
        case kinds.CLAIM:
            return status.get("phase") == "Bound"
        case kinds.DISRUPTION_BUDGET:
            return count("currentHealthy") >= count("desiredHealthy")
        case third_party.ADVANCED_DAEMON_SET:
            updated = count("updatedNumberScheduled")
            are_updated = updated >= count("desiredNumberScheduled")
            return is_observed and are_updated and count("numberAvailable") >= updated
        case _ if kind in third_party.WORKLOADS:
            updated = count("updatedReplicas")
            return is_observed and updated >= desired and count("availableReplicas") >= updated
        case _:
            known = third_party.find_health(kind, live)
            return _is_settled(live, status) if known is None else known


def _is_settled(live: Object, status: Object) -> bool:
    """Whether an object of a kind nobody knows does not say that it is in trouble or under way.

    By the conventions that most kinds follow: the conditions Ready, Reconciling and Stalled, and
    the generation that their controllers have seen.
    """
    observed, generation = status.get("observedGeneration"), metadata_of(live).get("generation")
    if isinstance(observed, int) and isinstance(generation, int) and observed < generation:
        return False
    troubles = (("Ready", FALSE), ("Reconciling", TRUE), ("Stalled", TRUE))
    return not any(third_party.has_condition(status, *each) for each in troubles)


# -- statuses, and what a template shows of many -----------------------------------------------

# A member reports what can be summed up later. What many clusters report of one object is then
# summed up into the status of its template. Kinds that are not here keep the status they have: what
# to add up in a stranger's status, only its author knows. A number that is none, from a cluster
# that reports nonsense, counts as zero: one cluster must not hide what the others report.


_WORKLOADS: Final = frozenset(
    {
        kinds.DEPLOYMENT,
        kinds.REPLICA_SET,
        kinds.STATEFUL_SET,
        kinds.DAEMON_SET,
        *third_party.REPORTED,
    }
)
_REFLECTED: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    kinds.DEPLOYMENT: (
        "replicas",
        "readyReplicas",
        "updatedReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "observedGeneration",
    ),
    kinds.REPLICA_SET: ("replicas", "readyReplicas", "availableReplicas", "observedGeneration"),
    kinds.STATEFUL_SET: (
        "availableReplicas",
        "currentReplicas",
        "readyReplicas",
        "replicas",
        "updatedReplicas",
        "observedGeneration",
    ),
    kinds.DAEMON_SET: (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "observedGeneration",
    ),
    kinds.JOB: ("active", "succeeded", "failed", "conditions", "startTime", "completionTime"),
    kinds.SERVICE: ("loadBalancer",),
    kinds.DISRUPTION_BUDGET: (
        "currentHealthy",
        "desiredHealthy",
        "disruptionsAllowed",
        "expectedPods",
        "disruptedPods",
    ),
    kinds.AUTOSCALER: ("currentReplicas", "desiredReplicas"),
    **third_party.REPORTED,
}
"""Which fields of its status a kind reports; one that is not here reports all of them."""


@dataclass(frozen=True, slots=True)
class ConditionTypes:
    """The conditions of a kind that are summed up over clusters, by how they are."""

    everywhere: tuple[str, ...] = ()
    """True when they are in every cluster that is to have the object."""
    somewhere: tuple[str, ...] = ()
    """True when they are in any cluster; absent otherwise."""

    def reported_of(self, status: Object) -> list[Object]:
        """Return the conditions to report, without what changes while nothing happens."""
        conditions = _readable_conditions(status)
        kept = (conditions.get(each) for each in (*self.everywhere, *self.somewhere))
        return [each for each in kept if each is not None]


def _readable_conditions(status: Object | None) -> dict[str, Object]:
    """Return the conditions of a status that are some, by type: members may report anything."""
    conditions: Any = (status or {}).get("conditions")
    found: dict[str, Object] = {}
    for each in cast("list[Any]", conditions if isinstance(conditions, list) else []):
        if isinstance(each, dict):
            fields = cast("Object", each)
            texts = {key: _text(fields.get(key))[:_LONGEST] for key in _CONDITION_FIELDS}
            found.setdefault(texts["type"], {key: text for key, text in texts.items() if text})
    return found


_LONGEST: Final = 1024
"""How much of a condition's message is passed on."""
_CONDITION_FIELDS: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_CONDITIONS: Final[Mapping[GroupKind, ConditionTypes]] = {
    kinds.DEPLOYMENT: ConditionTypes(("Available", "Progressing"), ("ReplicaFailure",)),
    kinds.REPLICA_SET: ConditionTypes(somewhere=("ReplicaFailure",)),
    kinds.POD: ConditionTypes(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"),
        ("DisruptionTarget",),
    ),
    kinds.DISRUPTION_BUDGET: ConditionTypes(("DisruptionAllowed",)),
    kinds.AUTOSCALER: ConditionTypes(("AbleToScale", "ScalingActive"), ("ScalingLimited",)),
    **dict.fromkeys(third_party.READY_EVERYWHERE, ConditionTypes(("Ready",))),
}
_ROLLED_OUT: Final = "NewReplicaSetAvailable"
"""The reason of a Deployment that progresses no further, because it is done."""


def reflect_status(live: Object) -> Object | None:
    """Return the status to report of an object; None when there is nothing to report."""
    kind, status = kind_of(live), status_of(live)
    fields = _REFLECTED.get(kind)
    if fields is None:
        return status or None
    if kind == kinds.SERVICE and find_at(live, "spec", "type") != "LoadBalancer":
        return None
    reported = {field: status[field] for field in fields if field in status}
    if kind in _CONDITIONS and (conditions := _CONDITIONS[kind].reported_of(status)):
        reported["conditions"] = conditions
    if kind not in _WORKLOADS:
        return reported or None
    # Counters are of use only with the generations that say which template they are of.
    if generation := metadata_of(live).get("generation"):
        reported["generation"] = generation
    of_template = annotations_of(live).get(stamps.TEMPLATE_GENERATION, "")
    if of_template.isdecimal():
        reported["resourceTemplateGeneration"] = int(of_template)
    return reported


@dataclass(frozen=True, slots=True)
class Reports:
    """What has been reported, and from how many clusters a report is due."""

    received: tuple[Report, ...]
    due: int
    missing: tuple[str, ...] = ()
    """The clusters that are to have the object and have not said anything of it."""

    @property
    def statuses(self) -> tuple[Object, ...]:
        """The statuses there are: of clusters that hold the object and have looked at it."""
        return tuple(each.status for each in self.received if each.status is not None)

    def are_all(self, count: int) -> bool:
        """Whether something that holds for so many clusters holds for all of them."""
        return 0 < count == max(self.due, len(self.received))


@dataclass(frozen=True, slots=True)
class Totals:
    """Which counters of a kind's status are added up; required ones are shown even when zero."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    has_observed_generation: bool = True

    def of(self, template: Object, reports: Reports) -> Object:
        """Return the template's status with the sums in it."""
        existing = status_of(template)
        sums = {field: total(reports.statuses, field) for field in (*self.required, *self.optional)}
        kept = {key: value for key, value in existing.items() if key not in sums}
        shown = {field: value for field, value in sums.items() if value or field in self.required}
        status = {**kept, **shown}
        if not self.has_observed_generation:
            return status
        # Deployment tools wait for this number. So it moves only when each cluster that is to have
        # the object has this generation of it, and the controllers there have seen it.
        generation = _number(metadata_of(template).get("generation"))
        seen = sum(
            each.get("resourceTemplateGeneration") == generation
            and _number(each.get("observedGeneration")) >= _number(each.get("generation"))
            for each in reports.statuses
        )
        if reports.are_all(seen):
            return {**status, "observedGeneration": generation}
        observed = existing.get("observedGeneration")
        return status if observed is None else {**status, "observedGeneration": observed}


_TOTALS: Final[Mapping[GroupKind, Totals]] = {
    kinds.DEPLOYMENT: Totals(
        optional=(
            "availableReplicas",
            "readyReplicas",
            "replicas",
            "unavailableReplicas",
            "updatedReplicas",
        )
    ),
    kinds.REPLICA_SET: Totals(
        required=("replicas",),
        optional=("availableReplicas", "fullyLabeledReplicas", "readyReplicas"),
    ),
    kinds.STATEFUL_SET: Totals(
        required=("availableReplicas", "replicas"),
        optional=("currentReplicas", "readyReplicas", "updatedReplicas"),
    ),
    kinds.DAEMON_SET: Totals(
        required=(
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberMisscheduled",
            "numberReady",
        ),
        optional=("numberAvailable", "numberUnavailable", "updatedNumberScheduled"),
    ),
    kinds.JOB: Totals(optional=("active", "failed", "succeeded"), has_observed_generation=False),
    kinds.DISRUPTION_BUDGET: Totals(
        required=("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"),
        has_observed_generation=False,
    ),
    kinds.AUTOSCALER: Totals(
        required=("desiredReplicas",),
        optional=("currentReplicas",),
        has_observed_generation=False,
    ),
    **{kind: Totals(optional=fields) for kind, fields in third_party.SUMS.items()},
    **{
        kind: Totals(optional=fields, has_observed_generation=False)
        for kind, fields in third_party.PLAIN_SUMS.items()
    },
}
_OTHERS: Final = frozenset(
    {kinds.CRON_JOB, kinds.POD, kinds.SERVICE, kinds.INGRESS, kinds.CLAIM, kinds.VOLUME}
)


def is_aggregated(kind: GroupKind) -> bool:
    """Whether we know how to sum up the statuses of a kind."""
    return kind in _TOTALS or kind in _OTHERS


def aggregated_status(template: Object, reports: Reports) -> Object:
    """Return the status the template should show; the one it has, for kinds we cannot sum up."""
    types = _CONDITIONS.get(kind_of(template))
    status = _summed_up(template, reports)
    if types is None:
        return status
    existing: list[Object] = status.get("conditions") or []
    ours = (*types.everywhere, *types.somewhere)
    conditions = [each for each in existing if each.get("type") not in ours]
    for condition_type in types.everywhere:
        before = find_condition(existing, condition_type)
        condition = _everywhere(condition_type, before, reports)
        conditions += [] if condition is None else [condition]
    for condition_type in types.somewhere:
        before = find_condition(existing, condition_type)
        condition = _somewhere(condition_type, before, reports)
        conditions += [] if condition is None else [condition]
    kept = {key: value for key, value in status.items() if key != "conditions"}
    return {**kept, "conditions": conditions} if conditions else kept


def _everywhere(condition_type: str, before: Object | None, reports: Reports) -> Object | None:
    """Return a condition that holds when it does in every cluster; None when nobody reports it.

    The message names the cluster that holds it up. The transition is that of the last cluster when
    it holds, and of the first that is in the way when it does not.
    """
    found = _conditions_of(condition_type, reports)
    if not found:
        return None
    failing = {name: each for name, each in found.items() if each.get("status") != TRUE}
    silent = sorted({*reports.missing, *(each.cluster for each in reports.received)} - set(found))
    if failing:
        # What is known to fail says more than what is not known.
        name = min(failing, key=lambda each: (failing[each].get("status") != FALSE, each))
        decisive, more = failing[name], len(failing) - 1
        others = f" (and {more} more)" if more else ""
        status, message = str(decisive.get("status")), f"{name}: {decisive.get('message')}{others}"
        reason, moment = str(decisive.get("reason")), min(map(_moment, failing.values()))
    elif silent or not reports.are_all(len(found)):
        named = f"{silent[0]} has" if silent else "a cluster has"
        status, reason, message = UNKNOWN, "NotReported", f"{named} not reported it yet"
        moment = max(map(_moment, found.values()))
    else:
        decisive = max(
            found.values(), key=lambda each: (each.get("reason") != _ROLLED_OUT, _moment(each))
        )
        where = "in all clusters" if len(found) > 1 else next(iter(found))
        status, message = TRUE, f"{where}: {decisive.get('message')}"
        reason, moment = str(decisive.get("reason")), max(map(_moment, found.values()))
    return _kept_condition(before, condition_type, status, reason, message, moment)


def _somewhere(condition_type: str, before: Object | None, reports: Reports) -> Object | None:
    """Return a condition that holds when it does in any cluster; None when it does in none."""
    found = _conditions_of(condition_type, reports)
    holding = {name: each for name, each in found.items() if each.get("status") == TRUE}
    if not holding:
        return None
    name = min(holding)
    others = f" (and {len(holding) - 1} more)" if len(holding) > 1 else ""
    message = f"{name}: {holding[name].get('message')}{others}"
    moment = min(map(_moment, holding.values()))
    reason = str(holding[name].get("reason"))
    return _kept_condition(before, condition_type, TRUE, reason, message, moment)


def _conditions_of(condition_type: str, reports: Reports) -> dict[str, Object]:
    """Return what the clusters say of a condition, by cluster."""
    said = (
        (each.cluster, _readable_conditions(each.status).get(condition_type))
        for each in reports.received
    )
    return {name: condition for name, condition in said if condition is not None}


def _kept_condition(
    before: Object | None, condition_type: str, status: str, reason: str, message: str, moment: str
) -> Object:
    """Return the condition; while its status stays, so does the time since when."""
    if before is not None and before.get("status") == status:
        moment = str(before.get("lastTransitionTime") or moment)
    condition = {"type": condition_type, "status": status, "reason": reason, "message": message}
    return {**condition, "lastTransitionTime": moment} if moment else condition


def _moment(condition: Object) -> str:
    return _text(condition.get("lastTransitionTime"))


def _summed_up(template: Object, reports: Reports) -> Object:
    """Return the status with counters, phases and addresses of all clusters in it."""
    kind, status = kind_of(template), status_of(template)
    phases = [_text(each["phase"]) for each in reports.statuses if each.get("phase")]
    match kind:
        case kinds.JOB:
            return _job_status(_TOTALS[kind].of(template, reports), status, reports)
        case kinds.DISRUPTION_BUDGET:
            pods: Object = {}
            for report in reports.received:
                disrupted: Object = find_at(report.status, "disruptedPods") or {}
                pods |= {f"{report.cluster}/{pod}": moment for pod, moment in disrupted.items()}
            summed = _TOTALS[kind].of(template, reports)
            kept = {key: value for key, value in summed.items() if key != "disruptedPods"}
            return {**kept, "disruptedPods": pods} if pods else kept
        case _ if kind in _TOTALS:
            return _TOTALS[kind].of(template, reports)
        case kinds.CRON_JOB:
            # Times of one format in UTC: the later one is the greater text.
            latest = {
                field: max((_text(each.get(field)) for each in reports.statuses), default="")
                for field in ("lastScheduleTime", "lastSuccessfulTime")
            }
            active = [each for status in reports.statuses for each in status.get("active") or ()]
            shown: Object = {"active": active, **latest}
            kept = {key: value for key, value in status.items() if key not in shown}
            return {**kept, **{key: value for key, value in shown.items() if value}}
        case kinds.POD if reports.received:
            return _pod_status(status, reports)
        case kinds.SERVICE if find_at(template, "spec", "type") != "LoadBalancer":
            return status
        case kinds.SERVICE | kinds.INGRESS:
            return _load_balancer_status(status, reports.statuses)
        case kinds.CLAIM if phases:
            unbound = [each for each in phases if each != "Bound"]
            return {**status, "phase": "Lost" if "Lost" in phases else (unbound or phases)[-1]}
        case kinds.VOLUME if phases:
            order = ("Failed", "Pending", "Available", "Bound", "Released")
            return {**status, "phase": _worst(set(phases), order)}
        case _:
            return status


def status_of(template: Object) -> Object:
    """Return the status of an object, or an empty one."""
    return template.get("status") or {}


def total(statuses: Sequence[Object], field: str) -> int:
    """Return the sum of a counter over all clusters."""
    return sum(_number(each.get(field)) for each in statuses)


def _pod_status(status: Object, reports: Reports) -> Object:
    """Return the worst phase, and what is known of each container in each cluster."""
    # A pod of which nothing was reported yet has not started, for all we know.
    phases = {_text(find_at(each.status, "phase")) or "Pending" for each in reports.received}
    shown: Object = {"phase": _worst(phases, ("Failed", "Pending", "Running", "Succeeded"))}
    for field in ("initContainerStatuses", "containerStatuses"):
        listed = [each for status in reports.statuses for each in status.get(field) or ()]
        if listed:
            # Readiness and state alone: across clusters, names and IDs mean nothing.
            blank = {"name": "", "image": "", "imageID": "", "restartCount": 0}
            shown[field] = [
                {
                    **blank,
                    "ready": each.get("ready") is True,
                    **({"state": each["state"]} if each.get("state") else {}),
                }
                for each in listed
            ]
    kept = {key: value for key, value in status.items() if not key.endswith("Statuses")}
    return {**kept, **shown}


def _load_balancer_status(status: Object, statuses: Sequence[Object]) -> Object:
    """Return the entrances of all clusters, each once."""
    entrances: list[Object] = []
    for each in statuses:
        listed: list[Object] = find_at(each, "loadBalancer", "ingress") or []
        entrances.extend(entrance for entrance in listed if entrance not in entrances)
    entrances.sort(key=lambda each: (_text(each.get("ip")), _text(each.get("hostname"))))
    return {**status, "loadBalancer": {"ingress": entrances} if entrances else {}}


def _job_status(summed: Object, existing: Object, reports: Reports) -> Object:
    """Return the status of a Job: its sums, when it began, and how it ended if it did.

    It ends with the first failure, or when all have completed. A finished Job stays as it is: a
    cluster that loses its part later does not undo the result.
    """
    if any(is_true(existing.get("conditions"), each) for each in ("Complete", "Failed")):
        return existing
    status = {key: value for key, value in summed.items() if key not in ("startTime", "conditions")}
    begun = [str(each.get("startTime") or "") for each in reports.statuses]
    if any(begun):
        status["startTime"] = min(filter(None, begun))
    failures = [each for each in reports.received if _ended(each, "Failed")]
    if failures:
        where = ", ".join(sorted(each.cluster for each in failures))
        moment = _last_end(failures, "Failed")
        failed = _condition("Failed", moment, "JobFailed", f"The Job failed in {where}.")
        return {**status, "conditions": [failed]}
    completed = [each for each in reports.received if _ended(each, "Complete")]
    if not reports.are_all(len(completed)):
        return status
    moment = _last_end(completed, "Complete")
    # Kubernetes takes a Job for complete only when it says that its criteria were met.
    conditions = [
        _condition("SuccessCriteriaMet", moment, "CompletionsReached", "All clusters succeeded."),
        _condition("Complete", moment, "Completed", "The Job completed in all clusters."),
    ]
    ended = [str((each.status or {}).get("completionTime") or "") for each in completed]
    ended_at = max(filter(None, ended), default=moment)
    return {**status, "completionTime": ended_at, "conditions": conditions}


def _ended(report: Report, condition_type: str) -> Object | None:
    """Return the condition that says so, if the Job ended this way there."""
    found = find_condition((report.status or {}).get("conditions"), condition_type)
    return found if found is not None and found.get("status") == TRUE else None


def _last_end(ended: Sequence[Report], condition_type: str) -> str:
    """Return when the last of them ended: their own clocks say, ours was not there."""
    endings = (_ended(each, condition_type) or {} for each in ended)
    return max(str(each.get("lastTransitionTime") or "") for each in endings)


def _condition(condition_type: str, moment: str, reason: str, message: str) -> Object:
    return {
        "type": condition_type,
        "status": TRUE,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }


def _worst(phases: set[str], order: Sequence[str]) -> str:
    """Return the phase that comes first in the order; an unknown one when there is no other."""
    return next((each for each in order if each in phases), min(phases))


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
