"""What became of a Work's manifests on one member: its status on the hub, and Events.

What goes well is in the status. Events are for what people should hear of: trouble, its end, and
what was put back. They go to the Work, and to the template for users.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.differences import (
    DIFF_REPORTED,
    DIFFS_FOUND,
    DRIFTS_FOUND,
    FOUND_DRIFTS,
    differences_text,
)
from clusterspace.apis.fleet_placements import (
    APPLY_TYPE,
    MANIFEST_HASH,
    REPORT_DIFF,
    is_placed,
)
from clusterspace.apis.interpreter.reports import health_of, reflect_status
from clusterspace.apis.interpreters import INTERPRET_HEALTH, INTERPRET_STATUS
from clusterspace.apis.services import MOST_ENDPOINTS, Endpoints
from clusterspace.apis.works import (
    ALREADY_EXISTS,
    APPLIED,
    CO_OWNED,
    DISPATCHING,
    REPORTED_ENDPOINTS,
    UNKNOWN,
    UNSCHEDULABLE,
    identifier_of,
    suspends_dispatching,
)
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit, commit_change
from clusterspace.controllers.events import EventRecorder
from clusterspace.errors import ApiError, InterpretationFailed
from clusterspace.fleet.execution.evidence import TAKEN_OVER
from clusterspace.fleet.execution.takeover import (
    Update,
    co_owners_of,
    leaf_paths,
    managers_at,
    owner_text,
    subject_text,
)
from clusterspace.fleet.interpretation.interpreter import RETRY_SECONDS, Interpreter
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    Condition,
    find_condition,
    is_true,
    remove_condition,
    set_condition,
)
from clusterspace.kube.managed_fields.field_sets import Path, path_text
from clusterspace.kube.managed_fields.managers import raw_entries, read_entries
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)

APPLIED_SUCCESSFUL: Final = "AppliedSuccessful"
APPLIED_FAILED: Final = "AppliedFailed"
RECREATED: Final = "ReCreateSuccessful"

SYNC_FAILED: Final = "SyncFailed"
SYNC_SUCCEED: Final = "SyncSucceed"
DRIFT_REPAIRED: Final = "DriftRepaired"
ENDPOINTS_LEFT_OUT: Final = "EndpointsLeftOut"
WORK_DISPATCHING: Final = "WorkDispatching"
STATUS_REFLECTED: Final = "ReflectStatusSucceed"
STATUS_NOT_REFLECTED: Final = "ReflectStatusFailed"
HEALTH_INTERPRETED: Final = "InterpretHealthSucceed"
HEALTH_NOT_INTERPRETED: Final = "InterpretHealthFailed"
_NAMING: Final = ("kind", "namespace", "name")

_LONGEST_MESSAGE: Final = 8192
"""A member may refuse a large object at great length; a condition has room for four times this."""

MOST_FIELDS: Final = 5
"""How many fields a message names."""

QUIET_SECONDS: Final = 0.5
"""How long a status that only counts pods is held back after the last: a rollout has many."""


@dataclass(frozen=True, slots=True)
class Interpreted:
    """What the interpreter of a kind says of an object on the member."""

    health: str
    status: Object | None


@dataclass(frozen=True, slots=True)
class ManifestResult:
    """What became of one manifest: the object that is there, or why it is not in force."""

    manifest: Object
    live: Object | None = None
    problem: str = ""
    is_recreated: bool = False
    """Somebody had deleted the object on the member, and we made it again."""
    retry_seconds: float = 0.0
    blocker: ResourcePath | None = None
    """What has to go, or to come, before the manifest can be put there."""
    refusal: ApiError | None = None
    """Why the member would not have it: to be tried again, later and later."""
    differences: tuple[Object, ...] | None = None
    """How the object differs, of one that is only compared, or had only if it says the same."""
    drifts: tuple[Object, ...] = ()
    """How an object differs that was applied, and that somebody changed."""
    generation: int | None = None
    """Of the object that it was compared with."""
    unschedulable: int = 0
    """How many replicas have long found no node."""
    interpreted: Interpreted | None = None
    """Of a kind with an interpreter of its own; our own rules say it of others."""
    endpoints: Endpoints | None = None
    """Of the Service that it exports; None for what exports none, or when that is not known."""


def next_status(work: Object, results: Sequence[ManifestResult], now: float) -> Object:
    """Return the status of a Work, seeing what became of its manifests."""
    status: Object = work.get("status") or {}
    if suspends_dispatching(work):
        why = "Work dispatching is in a suspended state."
        dispatching = Condition(DISPATCHING, FALSE, "SuspendDispatching", why)
    else:
        message = "Work is being dispatched to member clusters."
        dispatching = Condition(DISPATCHING, TRUE, "Dispatching", message)
    conditions = set_condition(status.get("conditions"), dispatching, now).conditions
    applied = None if suspends_dispatching(work) else _applied(work, conditions, results)
    if applied is not None:
        conditions = set_condition(conditions, applied, now).conditions
    if (compared := _diff_reported(work, conditions, results, now)) is not None:
        conditions = set_condition(conditions, compared, now).conditions
    else:
        conditions = remove_condition(conditions, DIFF_REPORTED).conditions
    for kind, found in _found(work, conditions, results, now).items():
        if found is not None:
            conditions = set_condition(conditions, found, now).conditions
        else:
            conditions = remove_condition(conditions, kind).conditions
    manifest_statuses = [
        manifest_status(each, ordinal)
        for ordinal, each in enumerate(results)
        if each.live is not None or each.endpoints is not None
    ]
    kept = {key: value for key, value in status.items() if key != "manifestStatuses"}
    present = {"manifestStatuses": manifest_statuses} if manifest_statuses else {}
    return {**kept, "conditions": conditions, **present}


def _applied(
    work: Object, conditions: list[Object], results: Sequence[ManifestResult]
) -> Condition | None:
    """Return the Applied condition; None when the one that is there still holds.

    A placement goes on to the next cluster when this one is done, so its Works also say which of
    their states that is about.
    """
    # Whoever brings one state after another has to know of which of them this is told.
    is_counted = is_placed(work) or MANIFEST_HASH in annotations_of(work)
    generation = int(metadata_of(work).get("generation") or 0) if is_counted else None
    problems = [each.problem for each in results if each.problem]
    if problems:
        done = len(results) - len(problems)
        message = f"Failed to apply all manifests ({done}/{len(results)}): {'; '.join(problems)}"
        short = message[:_LONGEST_MESSAGE]
        return Condition(APPLIED, FALSE, APPLIED_FAILED, short, generation)
    if any(each.is_recreated for each in results):
        message = "Manifest has been created again after it was deleted in the cluster"
        return Condition(APPLIED, TRUE, RECREATED, message, generation)
    if is_true(conditions, APPLIED) and generation is None:
        return None
    message = "Manifest has been successfully applied"
    return Condition(APPLIED, TRUE, APPLIED_SUCCESSFUL, message, generation)


def _diff_reported(
    work: Object, conditions: list[Object], results: Sequence[ManifestResult], now: float
) -> Condition | None:
    """Return the condition of a Work that is only compared; None of any other."""
    generation = int(metadata_of(work).get("generation") or 0)
    if annotations_of(work).get(APPLY_TYPE) != REPORT_DIFF:
        return None
    problems = [each.problem for each in results if each.problem]
    if problems:
        message = "; ".join(problems)[:_LONGEST_MESSAGE]
        return Condition(DIFF_REPORTED, FALSE, "FailedToReportDiff", message, generation)
    # A placement's Work has one manifest.
    details = [each for result in results for each in result.differences or ()]
    seen = next((each.generation for each in results if each.generation is not None), None)
    before = str((find_condition(conditions, DIFF_REPORTED) or {}).get("message") or "")
    text = differences_text(details, seen, before, now)
    reason = "FoundDiff" if details else "NoDiffFound"
    return Condition(DIFF_REPORTED, TRUE, reason, text, generation)


def _found(
    work: Object, conditions: list[Object], results: Sequence[ManifestResult], now: float
) -> dict[str, Condition | None]:
    """Return the conditions that tell of differences where manifests are applied, or would be."""
    generation = int(metadata_of(work).get("generation") or 0)
    seen = next((each.generation for each in results if each.generation is not None), None)

    def text(kind: str, details: Sequence[Object]) -> str:
        before = str((find_condition(conditions, kind) or {}).get("message") or "")
        return differences_text(details, seen, before, now)

    is_compared = annotations_of(work).get(APPLY_TYPE) == REPORT_DIFF
    diffs = [] if is_compared else [d for each in results for d in each.differences or ()]
    drifts = [d for each in results for d in each.drifts]
    differs = Condition(
        DIFFS_FOUND, TRUE, "FoundDiffs", text(DIFFS_FOUND, diffs) if diffs else "", generation
    )
    drifted = Condition(
        DRIFTS_FOUND, TRUE, FOUND_DRIFTS, text(DRIFTS_FOUND, drifts) if drifts else "", generation
    )
    return {DIFFS_FOUND: differs if diffs else None, DRIFTS_FOUND: drifted if drifts else None}


def manifest_status(result: ManifestResult, ordinal: int) -> Object:
    """Return the entry of a Work's status for one manifest, seeing the object on the member."""
    live, said = result.live, result.interpreted
    if said is None:
        said = Interpreted(UNKNOWN, None)
        if live is not None:
            said = Interpreted(health_of(live), reflect_status(live))
    identifier = identifier_of(result.manifest, ordinal)
    entry: Object = {"identifier": identifier, "health": said.health}
    status = said.status
    if result.unschedulable:
        status = {**(status or {}), UNSCHEDULABLE: result.unschedulable}
    if result.endpoints is not None:
        status = {**(status or {}), REPORTED_ENDPOINTS: list(result.endpoints.slices)}
    return entry if status is None else {**entry, "status": status}


def _is_known(result: ManifestResult) -> bool:
    return result.interpreted is None or result.interpreted.health != UNKNOWN


def conflict_text(manifest: Object, live: Object, cluster: str, update: Update | None) -> str:
    """Return a message about the object in a manifest's way: whose it is, and how it differs."""
    resolution = annotations_of(manifest).get(stamps.CONFLICT_RESOLUTION) or "empty"
    if owners := co_owners_of(manifest, live):
        return (
            f"{subject_text(manifest)} {ALREADY_EXISTS} {cluster} and has owners there"
            f" ({_enumerated(owners)}): {CO_OWNED}"
        )
    paths = [] if update is None else leaf_paths(update.fields)
    differing = _enumerated([_field_text(path) for path in paths if path[0] != "f:metadata"])
    says = f"they differ in {differing}" if differing else "it says the same"
    # Who owns something of it, and not just of its status, has written it.
    entries = read_entries(raw_entries(live)).values()
    writers = sorted({entry.manager for entry in entries if not entry.subresource})
    return (
        f"{subject_text(manifest)} {ALREADY_EXISTS} {cluster} and the"
        f" {stamps.CONFLICT_RESOLUTION} strategy value is {resolution}:"
        f" {owner_text(live)}, it was written by {_names(writers)}, and {says}"
    )


def drift_text(update: Update, before: Object) -> str:
    """Return which fields were changed behind our back, and by whom."""
    return _enumerated(
        [
            f"{_field_text(path)} (changed by {_names(managers_at(before, path))})"
            for path in leaf_paths(update.fields)
        ]
    )


def _enumerated(texts: Sequence[str]) -> str:
    """Return the first few of many texts, and how many more there are."""
    shown = ", ".join(texts[:MOST_FIELDS])
    return f"{shown} and {len(texts) - MOST_FIELDS} more" if len(texts) > MOST_FIELDS else shown


def _field_text(path: Path) -> str:
    return path_text(path).removeprefix(".")


def _names(managers: Iterable[str]) -> str:
    return ", ".join(managers) or "somebody"


class WorkReporter:
    """Writes the statuses of one member's Works, and records Events about them."""

    def __init__(
        self,
        hub: Client,
        events: EventRecorder,
        clock: Clock,
        cluster_name: str,
        interpreter: Interpreter,
        *,
        records_on_templates: bool = True,
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._cluster = cluster_name
        self._interpreter = interpreter
        self._records_on_templates = records_on_templates
        """Agents may write no Events outside their own namespace."""
        self._written_at: dict[str, float] = {}

    async def write_status(self, work: Object, results: Sequence[ManifestResult]) -> float:
        """Write what changed; return after how many seconds to try again, if it is too early."""
        # Written at the version of `work`, which came from a cache: when the Work has changed
        # since, the hub answers Conflict, and the attempt begins anew with what it is now. A status
        # is never written for a generation that was not carried out.
        wait = 0.0
        if any(self._is_customized(each) for each in results):
            results = [await self._interpret(work, *each) for each in enumerate(results)]
            # What failed is asked again; unless something else changes before.
            wait = 0.0 if all(_is_known(each) for each in results) else RETRY_SECONDS
        status = next_status(work, results, self._clock.now())
        if status == (work.get("status") or {}):
            return wait
        if find_at(work, "status", "conditions") == status.get("conditions"):
            # Only numbers changed, such as replicas that are ready. The last of them is written in
            # any case: whoever comes too early is asked to come again.
            last = self._written_at.get(name_of(work), float("-inf"))
            too_early = last + QUIET_SECONDS - self._clock.monotonic()
            if too_early > 0:
                return too_early
        await commit(self._hub, resource_path_of(WORKS, work), work, {**work, "status": status})
        self._written_at[name_of(work)] = self._clock.monotonic()
        self._record_status(work, status)
        return wait

    def _is_customized(self, result: ManifestResult) -> bool:
        operations = (INTERPRET_HEALTH, INTERPRET_STATUS)
        return any(self._interpreter.customizes(each, result.manifest) for each in operations)

    async def _interpret(
        self, work: Object, ordinal: int, result: ManifestResult
    ) -> ManifestResult:
        """Ask the interpreter of an object's kind; what it fails to say stays, or is unknown."""
        live = result.live
        if live is None or not self._is_customized(result):
            return result
        subject = "/".join(str(identifier_of(live, ordinal).get(key, "")) for key in _NAMING)
        try:
            health = await self._interpreter.health(live)
        except InterpretationFailed as failure:
            health = UNKNOWN
            message = f"Failed to interpret health for object({subject}): {failure}"
            self._events.record(work, HEALTH_NOT_INTERPRETED, message, is_warning=True)
        try:
            status = await self._interpreter.status(live)
        except InterpretationFailed as failure:
            health = UNKNOWN
            message = f"Failed to reflect status for object({subject}): {failure}"
            self._events.record(work, STATUS_NOT_REFLECTED, message, is_warning=True)
            entries: list[Object] = find_at(work, "status", "manifestStatuses") or []
            said = identifier_of(result.manifest, ordinal)
            before = (each.get("status") for each in entries if each.get("identifier") == said)
            status = next(before, None)
        return replace(result, interpreted=Interpreted(health, status))

    def _record_status(self, work: Object, status: Object) -> None:
        """Record the routine Events of a status that was written: what is new in it."""
        before: Object = work.get("status") or {}
        dispatching = find_condition(status.get("conditions"), DISPATCHING) or {}
        known = find_condition(before.get("conditions"), DISPATCHING) or {}
        if dispatching.get("status") != known.get("status"):
            message = str(dispatching.get("message"))
            self._events.record(work, WORK_DISPATCHING, message, is_routine=True)
        entries: list[Object] = status.get("manifestStatuses") or []
        for entry in entries:
            if entry in (before.get("manifestStatuses") or ()):
                continue
            identifier: Object = entry["identifier"]
            subject = "/".join(str(identifier.get(key, "")) for key in _NAMING)
            message = f"Reflect status for object({subject}) succeed."
            self._events.record(work, STATUS_REFLECTED, message, is_routine=True)
            health = str(entry.get("health", "")).lower()
            message = f"Interpret health of object({subject}) as {health}."
            self._events.record(work, HEALTH_INTERPRETED, message, is_routine=True)

    async def note_taken_over(self, work: Object, running: str) -> None:
        """Write on a Work what ran under its object before that is taken over.

        Whoever may not write it, or is too late, takes the object over without: what its policy
        asks for does not wait for a note.
        """

        def noted(present: Object) -> Object:
            if uid_of(present) != uid_of(work):
                return present  # another took its place, and takes the object over itself
            annotations = {**annotations_of(present), TAKEN_OVER: running}
            return with_metadata(present, annotations=annotations)

        with suppress(ApiError):
            await commit_change(self._hub, resource_path_of(WORKS, work), noted)

    def forget(self, work_name: str) -> None:
        """Forget a Work that is gone."""
        self._written_at.pop(work_name, None)

    def record_results(self, work: Object, results: Sequence[ManifestResult]) -> None:
        """Record Events about manifests that have come to be in trouble, or out of it."""
        # What was said already is in the Applied condition of `work`, so this comes before the
        # status is written. A crash in between says it twice; the other order might say it never.
        condition = find_condition(find_at(work, "status", "conditions"), APPLIED) or {}
        was_in_force = condition.get("status") == TRUE
        to = f"cluster({self._cluster})"
        for result in results:
            subject = f"resource({_key(result.manifest)})"
            why = result.problem
            if why and why not in str(condition.get("message")):
                message = f"Failed to sync work({_key(work)}) to {to}, err: {why}"
                self._events.record(work, SYNC_FAILED, message, is_warning=True)
                message = f"Failed to create or update {subject} in member {to}: {why}"
                self._record_on_template(result.manifest, SYNC_FAILED, message, is_warning=True)
            elif not was_in_force and not why:
                message = f"Successfully applied {subject} to cluster {self._cluster}"
                self._record_on_template(result.manifest, SYNC_SUCCEED, message, is_routine=True)
                message = f"Sync work({_key(work)}) to {to} successful."
                self._events.record(work, SYNC_SUCCEED, message, is_routine=True)

    def record_left_out(self, work: Object, count: int) -> None:
        """Record that not all endpoints of a Service are exported."""
        message = (
            f"{count} endpoint(s) are not exported from the cluster {self._cluster}: more than"
            f" {MOST_ENDPOINTS} of one Service, or addresses that mean nothing elsewhere"
        )
        self._events.record(work, ENDPOINTS_LEFT_OUT, message, is_warning=True)

    def record_drift(self, work: Object, manifest: Object, what: str) -> None:
        """Record what somebody on the member changed, and that it is as it should be again."""
        message = f"Put back in the cluster {self._cluster}: {what}"
        self._events.record(work, DRIFT_REPAIRED, message)
        self._record_on_template(manifest, DRIFT_REPAIRED, message)

    def _record_on_template(
        self,
        manifest: Object,
        reason: str,
        message: str,
        *,
        is_warning: bool = False,
        is_routine: bool = False,
    ) -> None:
        uid = annotations_of(manifest).get(stamps.TEMPLATE_UID)
        if not uid or not self._records_on_templates:
            return
        # As much of the template as an Event needs.
        metadata: dict[str, Any] = {"name": name_of(manifest), "uid": uid}
        if namespace_of(manifest):
            metadata["namespace"] = namespace_of(manifest)
        api_version, kind = manifest.get("apiVersion"), manifest.get("kind")
        template: Object = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        self._events.record(template, reason, message, is_warning=is_warning, is_routine=is_routine)


def _key(kube_object: Object) -> str:
    return f"{namespace_of(kube_object)}/{name_of(kube_object)}"
