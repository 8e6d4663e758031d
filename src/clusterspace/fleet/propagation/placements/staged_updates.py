"""How a staged update run goes on: which clusters of which stage get its snapshot now.

    stage: before tasks ──> clusters, some at a time ──> after tasks ──> (the next stage)
    last:  clusters that are picked no longer let go of what they have

Where a cluster stands is read from its binding, not remembered: whoever is killed between two
writes is followed by one that counts the same clusters as being updated. Only what is over is
remembered, in the status: a cluster that succeeded, a stage that ended, an approval.

A cluster that joins is added to the stage that its labels say, also when that stage is over. One
that leaves holds nobody up, nor does one that is silent: it is parked, updated when it is back, and
if the run ends before that, it is to have its state by then. But when not fewer clusters of a stage
are silent than succeeded, the stage waits: it is likelier that we cannot see them.

A cluster that an earlier run left half done, or broken, is one of those being updated: it comes
first in its stage and takes a place there, so that no more are in change than the stage allows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import msgspec

from clusterspace.apis.differences import DIFF_REPORTED
from clusterspace.apis.fleet_placements import BOUND, generation_of
from clusterspace.apis.staged_updates import (
    APPROVAL,
    DELETE_STAGE,
    INITIALIZED,
    PROGRESSING,
    STOP,
    SUCCEEDED,
    approval_name,
    run_state_of,
)
from clusterspace.client.resources import decode_object
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.placements.overrides import (
    ClusterOverrides,
    overrides_of,
    plan_overrides,
)
from clusterspace.fleet.propagation.placements.rollout import snapshot_of, state_of
from clusterspace.fleet.propagation.placements.status import AVAILABLE
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    find_condition,
    is_true,
    set_condition,
)
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.kube.selectors import label_selector_of
from clusterspace.kube.times import format_time, parse_duration, parse_time

STUCK_SECONDS: Final = 300.0
"""After which a cluster that is not available yet is reported as stuck."""

STARTED: Final = "Started"
_MOST_NAMED: Final = 3
_MOST_LISTED: Final = 10
_NANOSECONDS: Final = 1_000_000_000


class InvalidRunError(Exception):
    """A run cannot be initialized as it is; the text says why."""


class Target(Protocol):
    """A cluster that a run is to bring something to."""

    @property
    def labels(self) -> Mapping[str, str]:
        """By which stages select it."""
        ...

    @property
    def is_silent(self) -> bool:
        """Whether nothing is heard of it."""
        ...

    @property
    def is_available(self) -> bool:
        """Whether all it is to have works there."""
        ...

    @property
    def is_in_change(self) -> bool:
        """Whether what it was given before has not arrived yet, or does not work there."""
        ...

    @property
    def problem(self) -> str:
        """Why it is not available yet, as far as is known."""
        ...

    def is_bound(self, snapshot: str, overrides: ClusterOverrides) -> bool:
        """Whether it is to have this snapshot, overridden so, already."""
        ...


@dataclass(frozen=True, slots=True)
class PickedTarget:
    """A cluster that the placement has picked."""

    binding: Object
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    is_silent: bool = False

    def is_bound(self, snapshot: str, overrides: ClusterOverrides) -> bool:
        """Whether it is to have this snapshot, overridden so, already."""
        is_there = state_of(self.binding) == BOUND and snapshot_of(self.binding) == snapshot
        return is_there and overrides_of(self.binding) == overrides

    @property
    def is_available(self) -> bool:
        """Whether all it is to have works there."""
        conditions = find_at(self.binding, "status", "conditions")
        # What is only compared is through once it was.
        ends = (find_condition(conditions, each) or {} for each in (AVAILABLE, DIFF_REPORTED))
        return any(
            each.get("observedGeneration") == generation_of(self.binding)
            and each.get("status") == TRUE
            for each in ends
        )

    @property
    def is_in_change(self) -> bool:
        """Whether what it was given before has not arrived yet, or does not work there."""
        return state_of(self.binding) == BOUND and not self.is_available

    @property
    def problem(self) -> str:
        """Why it is not available yet, as far as is known."""
        conditions: list[Object] = find_at(self.binding, "status", "conditions") or []
        short = [str(each.get("message")) for each in conditions if each.get("status") != TRUE]
        return short[0] if short else "nothing is known of it yet"


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything that a run goes by."""

    snapshot: str
    """The name of the resource snapshot it brings."""
    targets: Mapping[str, Target]
    leaving: Sequence[str] = ()
    """Clusters that are picked no longer and have something still."""
    approvals: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """The requests of this run by name, and whether each is approved."""
    overrides: Sequence[Object] = ()
    """The latest snapshots of overrides that are about something of this snapshot."""


@dataclass(slots=True)
class RunStep:
    """What to do now, and what to write down once it is done."""

    status: Object
    forward: list[tuple[str, ClusterOverrides]] = field(
        default_factory=list[tuple[str, ClusterOverrides]]
    )
    """Clusters that get the snapshot now, each with its overrides."""
    removed: list[str] = field(default_factory=list[str])
    requests: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    """Approvals to ask for: the stage, and whether before it."""
    accepted: list[str] = field(default_factory=list[str])
    """Names of requests that were approved, and whose approval is accepted."""
    waits: list[float] = field(default_factory=list[float])
    goes_on: bool = False
    """Whether a stage ended: once that is written down, the next one begins."""


def initial_status(
    strategy: Object, view: RunView, used: Mapping[str, Any], generation: int, now: float
) -> Object:
    """Return the status of a run that begins: which clusters are updated in which stage.

    InvalidRunError when a cluster is in no stage, or in several, or cannot be put in order.
    """
    stages: list[Object] = find_at(strategy, "spec", "stages") or []
    placed: dict[str, str] = {}
    entries: list[Object] = []
    for stage in stages:
        name = str(stage.get("name"))
        chosen = [
            each for each, target in view.targets.items() if is_in_stage(stage, target.labels)
        ]
        for each in chosen:
            if each in placed:
                text = f"cluster {each} is in the stages {placed[each]} and {name}"
                raise InvalidRunError(text)
            placed[each] = name
        ordered = sorted(chosen, key=lambda each: (_order(stage, each, view.targets[each]), each))
        entries.append(
            {
                "stageName": name,
                "clusters": [_entry(each, view) for each in ordered],
                **_tasks(stage, "beforeStageTasks", "beforeStageTaskStatus"),
                **_tasks(stage, "afterStageTasks", "afterStageTaskStatus"),
            }
        )
    if left := sorted(view.targets.keys() - placed.keys()):
        named = ", ".join(left[:_MOST_NAMED])
        raise InvalidRunError(f"no stage selects {named}: every cluster must be in one")
    message = f"{len(placed)} clusters in {len(stages)} stages"
    reason = "UpdateRunInitializedSuccessfully"
    initialized = Condition(INITIALIZED, TRUE, reason, message, generation)
    return {
        **used,
        "policyObservedClusterCount": len(placed),
        "stagedUpdateStrategySnapshot": strategy.get("spec"),
        "stagesStatus": entries,
        "deletionStageStatus": {
            "stageName": DELETE_STAGE,
            "clusters": [{"clusterName": each} for each in sorted(view.leaving)],
        },
        "conditions": set_condition((), initialized, now).conditions,
    }


def failed_initialization(message: str, generation: int, now: float) -> Object:
    """Return the status of a run that could not be initialized; nothing more comes of it."""
    failed = Condition(INITIALIZED, FALSE, "UpdateRunInitializedFailed", message, generation)
    return {"conditions": set_condition((), failed, now).conditions}


def failed_run(run: Object, message: str, now: float) -> Object:
    """Return the status of a run that ends before it is through; what it changed stays."""
    status: Object = _copy_of_status(run)
    for kind in (PROGRESSING, SUCCEEDED):
        failed = Condition(kind, FALSE, "UpdateRunFailed", message, generation_of(run))
        status["conditions"] = set_condition(status.get("conditions"), failed, now).conditions
    return status


def shape_problem(run: Object) -> str:
    """Return in what the status of a run cannot be as a run left it; empty when it can.

    Who may write statuses, or an older version of ours, may have left anything that the schema lets
    through. A run that is read as far as it goes could pass by a stage, and one that is not read
    at all would be looked at again for ever.
    """
    status: Object = run.get("status") or {}
    configured: list[Object] = find_at(status, "stagedUpdateStrategySnapshot", "stages") or []
    stages: list[Object] = status.get("stagesStatus") or []
    wanted = [str(each.get("name")) for each in configured]
    found = [str(each.get("stageName")) for each in stages]
    if not wanted or wanted != found:
        names = (", ".join(each[:_MOST_LISTED]) or "none" for each in (wanted, found))
        return "its strategy has the stages {}, and its status {}".format(*names)
    clusters: set[str] = set()
    for config, stage in zip(configured, stages, strict=True):
        name = stage.get("stageName")
        for task_key, status_key in (
            ("beforeStageTasks", "beforeStageTaskStatus"),
            ("afterStageTasks", "afterStageTaskStatus"),
        ):
            tasks = [each.get("type") for each in config.get(task_key) or ()]
            states = [each.get("type") for each in stage.get(status_key) or ()]
            if tasks != states:
                return f"{status_key} of stage {name} does not have the tasks of its strategy"
        for entry in stage.get("clusters") or ():
            cluster = str(entry.get("clusterName"))
            if cluster in clusters:
                return f"cluster {cluster} is in its stages more than once"
            clusters.add(cluster)
        try:
            is_in_stage(config, {})
        except InvalidRunError as error:
            return str(error)
    return ""


def max_concurrency(stage: Object, clusters: int) -> int:
    """Return how many clusters of a stage may be updated at a time: at least one."""
    value = stage.get("maxConcurrency")
    text = "1" if value is None else str(value)
    if text.endswith("%"):
        return max(1, clusters * int(text.removesuffix("%")) // 100)
    return max(1, int(text))


class RunProgress:
    """One run, taken as far as it goes now."""

    def __init__(
        self,
        run: Object,
        view: RunView,
        now: float,
        *,
        stuck_seconds: float = STUCK_SECONDS,
        is_at_once: bool = False,
    ) -> None:
        """`is_at_once`: no stage waits for another, each still brings but some at a time."""
        self._run = run
        self._view = view
        self._now = now
        self._stuck_seconds = stuck_seconds
        self._is_at_once = is_at_once
        self._generation = generation_of(run)
        self._is_stopped = run_state_of(run) == STOP
        self._parked: list[str] = []
        self._absent: list[tuple[str, ClusterOverrides]] = []
        """Clusters that are parked and are not to have the snapshot yet."""
        self._updating: list[str] = []
        self._stuck: list[str] = []
        self._homeless: list[str] = []
        self._step = RunStep(_copy_of_status(run))

    def advance(self) -> RunStep:
        """Return what to do now, and the status that says so."""
        status = self._step.status
        configured: list[Object] = find_at(status, "stagedUpdateStrategySnapshot", "stages") or []
        stages: list[Object] = status.get("stagesStatus") or []
        self._add_newcomers(configured, stages)
        is_finished = True
        for config, stage in zip(configured, stages, strict=True):
            was_over = is_true(stage.get("conditions"), SUCCEEDED)
            if not was_over and not self._may_begin(config, stage):
                break
            # Of stages that are over, too: a cluster may have joined one, or be back.
            is_updated = self._update_clusters(config, stage)
            if was_over:
                is_finished = is_finished and is_updated
                continue
            if not is_updated:
                self._mark_progress(stage)
                if self._is_at_once:
                    is_finished = False
                    continue
                break
            if self._is_stopped or not self._has_passed(config, stage):
                break
            self._end_stage(stage, "StageUpdatingSucceeded", "every cluster is updated")
            self._step.goes_on = True
            break
        else:
            if is_finished and not self._is_stopped:
                self._let_go(status)
        self._conclude(status)
        return self._step

    # -- stages ------------------------------------------------------------------------------------

    def _add_newcomers(self, configured: Sequence[Object], stages: Sequence[Object]) -> None:
        known = {each["clusterName"] for stage in stages for each in stage.get("clusters") or ()}
        for name in sorted(self._view.targets.keys() - known):
            labels = self._view.targets[name].labels
            for config, stage in zip(configured, stages, strict=True):
                if is_in_stage(config, labels):
                    stage["clusters"] = [*(stage.get("clusters") or ()), _entry(name, self._view)]
                    break
            else:
                self._homeless.append(name)

    def _may_begin(self, config: Object, stage: Object) -> bool:
        name = stage["stageName"]
        if stage.get("startTime"):
            return True
        if not stage.get("clusters"):
            # Nobody is asked for an approval of nothing.
            self._end_stage(stage, "StageUpdatingSkippedNoClusters", "the stage has no clusters")
            self._step.goes_on = True
            return False
        if self._is_stopped:
            return False
        tasks: list[Object] = config.get("beforeStageTasks") or []
        states: list[Object] = stage.get("beforeStageTaskStatus") or []
        approved = [
            self._is_approved(name, state, is_before=True)
            for task, state in zip(tasks, states, strict=True)
            if task.get("type") == APPROVAL
        ]
        if not all(approved):
            message = f"stage {name} waits to be approved before it begins"
            self._wait(stage, message)
            return False
        stage["startTime"] = format_time(self._now)
        self._mark_progress(stage)
        return True

    def _update_clusters(self, config: Object, stage: Object) -> bool:
        """Take the clusters of a stage on; whether none of them is left to be updated."""
        entries: list[Object] = stage.get("clusters") or []
        updating = succeeded = 0
        waiting: list[Object] = []
        halfway: list[Object] = []
        silent: list[str] = []
        for entry in entries:
            name = entry["clusterName"]
            if is_true(entry.get("conditions"), SUCCEEDED):
                succeeded += 1
                continue
            target = self._view.targets.get(name)
            if target is None:
                left = "the placement does not have the cluster any more"
                self._mark(entry, Condition(SUCCEEDED, FALSE, "ClusterLeft", left))
                continue
            is_bound = target.is_bound(self._view.snapshot, recorded_overrides(entry))
            if is_bound:
                self._mark(entry, Condition(STARTED, TRUE, "ClusterUpdatingStarted", ""))
            if is_bound and target.is_available:
                succeeded += 1
                self._mark(entry, Condition(SUCCEEDED, TRUE, "ClusterUpdatingSucceeded", ""))
            elif target.is_silent:
                parked = "the cluster is silent; it is updated when it is back"
                self._mark(entry, Condition(SUCCEEDED, UNKNOWN, "ClusterParked", parked))
                silent.append(name)
                if not is_bound:
                    self._absent.append((name, recorded_overrides(entry)))
            elif is_bound:
                updating += 1
                self._watch_over(entry, target)
            else:
                (halfway if target.is_in_change else waiting).append(entry)
        # Nobody is brought more than the stage allows at a time. A cluster that fails keeps its
        # place, so that what breaks clusters ends with the first of them. Those that another run
        # left in change are counted with them, and come first: they have nothing to lose.
        places = max(0, max_concurrency(config, len(entries)) - updating)
        free = max(0, places - len(halfway))
        if not self._is_stopped:
            for entry in [*halfway[:places], *waiting[:free]]:
                self._step.forward.append((entry["clusterName"], recorded_overrides(entry)))
        self._parked += silent
        is_blind = bool(silent) and len(silent) >= succeeded
        waiting += halfway
        if is_blind and not updating and not waiting:
            seen = f"{len(silent)} of {len(entries)} clusters are silent"
            self._stuck.append(f"stage {stage['stageName']}: {seen}: {_named(silent)}")
        return not updating and not waiting and not is_blind

    def _watch_over(self, entry: Object, target: Target) -> None:
        name = entry["clusterName"]
        self._updating.append(name)
        started = find_condition(entry.get("conditions"), STARTED) or {}
        left = parse_time(str(started["lastTransitionTime"])) + self._stuck_seconds - self._now
        if left > 0:
            self._step.waits.append(left)
        else:
            self._stuck.append(f"{name}: {target.problem}")

    def _has_passed(self, config: Object, stage: Object) -> bool:
        """Whether the tasks after a stage are done; their time runs from here on."""
        tasks: list[Object] = config.get("afterStageTasks") or []
        states: list[Object] = stage.get("afterStageTaskStatus") or []
        if not tasks:
            return True
        name = stage["stageName"]
        self._wait(stage, f"stage {name} is updated, and waits for what is to come after it")
        waited = find_condition(stage.get("conditions"), PROGRESSING) or {}
        since = parse_time(str(waited["lastTransitionTime"]))
        has_passed = True
        for task, state in zip(tasks, states, strict=True):
            if task.get("type") == APPROVAL:
                has_passed = self._is_approved(name, state, is_before=False) and has_passed
                continue
            wait = parse_duration(str(task.get("waitTime") or "0s")) / _NANOSECONDS
            left = since + wait - self._now
            if left > 0:
                self._step.waits.append(left)
                has_passed = False
            else:
                elapsed = Condition("WaitTimeElapsed", TRUE, "AfterStageTaskWaitTimeElapsed", "")
                self._mark(state, elapsed)
        return has_passed

    def _is_approved(self, stage: str, state: Object, *, is_before: bool) -> bool:
        if is_true(state.get("conditions"), "ApprovalRequestApproved"):
            return True
        name = approval_name(name_of(self._run), stage, is_before=is_before)
        state["approvalRequestName"] = name
        created = "StageTaskApprovalRequestCreated"
        self._mark(state, Condition("ApprovalRequestCreated", TRUE, created, ""))
        if name not in self._view.approvals:
            self._step.requests.append((stage, is_before))
            return False
        if not self._view.approvals[name]:
            return False
        self._step.accepted.append(name)
        approved = "StageTaskApprovalRequestApproved"
        self._mark(state, Condition("ApprovalRequestApproved", TRUE, approved, ""))
        return True

    def _end_stage(self, stage: Object, reason: str, message: str) -> None:
        stage["startTime"] = stage.get("startTime") or format_time(self._now)
        stage["endTime"] = format_time(self._now)
        self._mark(stage, Condition(PROGRESSING, FALSE, reason, message))
        self._mark(stage, Condition(SUCCEEDED, TRUE, reason, message))

    def _let_go(self, status: Object) -> None:
        """Take the snapshot's predecessors off clusters that are picked no longer, as the last."""
        stage: Object = status.setdefault("deletionStageStatus", {"stageName": DELETE_STAGE})
        entries: list[Object] = stage.get("clusters") or []
        known = {each["clusterName"] for each in entries}
        added = [{"clusterName": each} for each in self._view.leaving if each not in known]
        stage["clusters"] = entries = [*entries, *added]
        stage["startTime"] = stage.get("startTime") or format_time(self._now)
        for entry in entries:
            self._mark(entry, Condition(STARTED, TRUE, "ClusterUpdatingStarted", ""))
            if entry["clusterName"] not in self._view.leaving:
                self._mark(entry, Condition(SUCCEEDED, TRUE, "ClusterUpdatingSucceeded", ""))
        self._step.removed.extend(self._view.leaving)
        self._step.forward.extend(self._absent)
        if self._view.leaving or self._absent:
            self._mark_progress(stage)
            return
        self._end_stage(stage, "StageUpdatingSucceeded", "nothing is left to be let go")
        message = "every cluster is updated"
        if self._parked:
            message = f"every cluster is updated but those parked: {_named(self._parked)}"
        for kind, value in ((PROGRESSING, FALSE), (SUCCEEDED, TRUE)):
            self._mark(status, Condition(kind, value, "UpdateRunSucceeded", message))

    # -- the conditions ---------------------------------------------------------------------------

    def _conclude(self, status: Object) -> None:
        """Say how far the run is, and stamp all that was said before with its generation."""
        waiting = next(
            (
                str(condition.get("message"))
                for stage in status.get("stagesStatus") or ()
                if (condition := find_condition(stage.get("conditions"), PROGRESSING))
                and condition.get("reason") == "StageUpdatingWaiting"
            ),
            "",
        )
        notes = [
            *([f"parked: {_named(self._parked)}"] if self._parked else []),
            *([f"in no stage: {_named(self._homeless)}"] if self._homeless else []),
        ]
        if is_true(status.get("conditions"), SUCCEEDED):
            shown = None
        elif self._is_stopped and self._updating:
            text = f"still being updated: {_named(self._updating)}"
            shown = Condition(PROGRESSING, UNKNOWN, "UpdateRunStopping", text)
        elif self._is_stopped:
            shown = Condition(
                PROGRESSING, FALSE, "UpdateRunStopped", "it goes on when state is Run"
            )
        elif self._stuck:
            shown = Condition(PROGRESSING, FALSE, "UpdateRunStuck", "; ".join(self._stuck[:3]))
        elif waiting and not self._step.goes_on:
            shown = Condition(PROGRESSING, FALSE, "UpdateRunWaiting", waiting)
        else:
            text = f"being updated: {_named(self._updating)}" if self._updating else "goes on"
            shown = Condition(PROGRESSING, TRUE, "UpdateRunProgressing", text)
        if shown is not None:
            message = "; ".join(filter(None, (shown.message, *notes)))
            self._mark(status, replace(shown, message=message))
        stages: list[Object] = [*(status.get("stagesStatus") or ())]
        if deletion := status.get("deletionStageStatus"):
            stages.append(deletion)
        holders: list[Object] = [status, *stages]
        for stage in stages:
            for part in ("clusters", "beforeStageTaskStatus", "afterStageTaskStatus"):
                entries: list[Object] = stage.get(part) or []
                holders += entries
        for holder in holders:
            conditions: list[Object] = holder.get("conditions") or []
            for condition in conditions:
                condition["observedGeneration"] = self._generation

    def _mark_progress(self, stage: Object) -> None:
        shown = Condition(PROGRESSING, TRUE, "StageUpdatingStarted", "")
        if self._is_stopped:
            shown = Condition(PROGRESSING, FALSE, "StageUpdatingStopped", "")
            if self._updating:
                shown = Condition(PROGRESSING, UNKNOWN, "StageUpdatingStopping", "")
        self._mark(stage, shown)

    def _wait(self, stage: Object, message: str) -> None:
        self._mark(stage, Condition(PROGRESSING, FALSE, "StageUpdatingWaiting", message))

    def _mark(self, holder: Object, condition: Condition) -> None:
        stamped = replace(condition, observed_generation=self._generation)
        changed = set_condition(holder.get("conditions"), stamped, self._now)
        holder["conditions"] = changed.conditions


def _copy_of_status(run: Object) -> Object:
    """Return the status of a run, to be changed in place: it is a tree of hundreds of entries."""
    return decode_object(msgspec.json.encode(run.get("status") or {}))


def recorded_overrides(entry: Object) -> ClusterOverrides:
    """Return the overrides that a run has written down for a cluster."""
    return overrides_of({"spec": entry})


def _entry(cluster: str, view: RunView) -> Object:
    overrides = plan_overrides(view.overrides, view.targets[cluster].labels)
    entry: Object = {
        "clusterName": cluster,
        "clusterResourceOverrideSnapshots": list(overrides.cluster_wide),
        "resourceOverrideSnapshots": overrides.resource_references,
    }
    return {key: value for key, value in entry.items() if value}


def _tasks(stage: Object, key: str, status_key: str) -> Object:
    tasks: list[Object] = stage.get(key) or []
    return {status_key: [{"type": each.get("type")} for each in tasks]} if tasks else {}


def is_in_stage(stage: Object, labels: Mapping[str, str]) -> bool:
    """Whether a stage selects a cluster: one without a selector none, an empty one every."""
    selector = stage.get("labelSelector")
    if selector is None:
        return False
    try:
        return label_selector_of(selector).matches(labels)
    except MalformedSelector as error:
        raise InvalidRunError(f"stage {stage.get('name')}: {error.message}") from error


def _order(stage: Object, cluster: str, target: Target) -> int:
    key = stage.get("sortingLabelKey")
    if not key:
        return 0
    text = target.labels.get(str(key), "")
    try:
        return int(text)
    except ValueError:
        why = f"label {key} of cluster {cluster} is no whole number: {text!r}"
        raise InvalidRunError(f"stage {stage.get('name')}: {why}") from None


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
