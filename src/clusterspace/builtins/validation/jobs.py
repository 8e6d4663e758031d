"""The rules of Jobs and CronJobs."""

import re
from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import check_domain_path, schedule_problem
from clusterspace.builtins.validation.metadata import SELECTOR, is_readable, matches
from clusterspace.builtins.validation.pods import check_pod_template
from clusterspace.builtins.validation.rules import (
    at,
    check_all,
    chosen,
    each,
    immutable,
    inside,
    invalid_struct,
    not_negative,
    of_form,
    one_of,
    present,
    struct_in,
    supported,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.causes import quoted
from clusterspace.kube.names import dns1123_label_problems, qualified_name_problems
from clusterspace.kube.objects import Object, metadata_of

_CRON_NAME_LENGTH: Final = 52  # what a CronJob adds to the names of its Jobs takes eleven more
_MOST_INDEXED: Final = 100_000

_COUNTS: Final = (
    not_negative("parallelism"),
    not_negative("completions"),
    not_negative("activeDeadlineSeconds"),
    not_negative("backoffLimit"),
    not_negative("ttlSecondsAfterFinished"),
    not_negative("backoffLimitPerIndex"),
    not_negative("maxFailedIndexes"),
)


def _failure_rule(rule: Object, path: str) -> Iterator[Cause]:
    actions = ("Count", "FailIndex", "FailJob", "Ignore")
    if not rule.get("action"):
        yield causes.required(at(path, "action"), f"valid values: {_listed(actions)}")
    elif rule["action"] not in actions:
        yield causes.not_supported(at(path, "action"), rule["action"], actions)
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    if codes is not None:
        place = at(path, "onExitCodes")
        operators = ("In", "NotIn")
        if not codes.get("operator"):
            yield causes.required(at(place, "operator"), f"valid values: {_listed(operators)}")
        elif codes["operator"] not in operators:
            yield causes.not_supported(at(place, "operator"), codes["operator"], operators)
        if not codes.get("values"):
            yield causes.invalid(
                at(place, "values"), codes.get("values"), "at least one value is required"
            )
    yield from each("onPodConditions", *_CONDITION)(rule, path)
    if codes is not None and conditions:
        yield _unshown(path, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not conditions:
        yield _unshown(path, "specifying one of OnExitCodes and OnPodConditions is required")


_CONDITION: Final = (
    of_form("type", qualified_name_problems),
    one_of("status", "False", "True", "Unknown"),
)


def _listed(values: tuple[str, ...]) -> str:
    return f"[{' '.join(quoted(value) for value in values)}]"


def _unshown(path: str, why: str) -> Cause:
    """Say what is wrong with a struct without showing it."""
    return Cause("FieldValueInvalid", f"Invalid value: {why}", path)


def _job_spec(spec: Object, path: str) -> Iterator[Cause]:
    yield from check_all(spec, path, _COUNTS)
    if spec.get("managedBy") is not None:
        yield from check_domain_path(spec["managedBy"], at(path, "managedBy"))
    mode = spec.get("completionMode")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        place = at(path, "backoffLimitPerIndex")
        yield causes.required(place, "when maxFailedIndexes is specified")
    yield from supported("completionMode", "NonIndexed", "Indexed")(spec, path)
    if mode == "Indexed":
        yield from present("completions", "when completion mode is Indexed")(spec, path)
        if (spec.get("parallelism") or 0) > _MOST_INDEXED:
            why = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
            yield causes.invalid(at(path, "parallelism"), spec["parallelism"], why)
        failed, all_of_them = spec.get("maxFailedIndexes"), spec.get("completions")
        if failed is not None and all_of_them is not None and failed > all_of_them:
            why = "must be less than or equal to completions"
            yield causes.invalid(at(path, "maxFailedIndexes"), failed, why)
    if mode in (None, "NonIndexed"):
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                why = "requires indexed completion mode"
                yield causes.invalid(at(path, field), spec[field], why)
    yield from inside("podFailurePolicy", each("rules", _failure_rule))(spec, path)
    if spec.get("successPolicy") is not None and spec.get("completionMode") != "Indexed":
        why = "requires indexed completion mode"
        shown = {"Rules": spec["successPolicy"].get("rules")}
        yield invalid_struct(at(path, "successPolicy"), shown, why)
    elif spec.get("successPolicy") is not None and not spec["successPolicy"].get("rules"):
        why = "at least one rules must be specified when the successPolicy is specified"
        yield causes.required(f"{path}.successPolicy.rules", why)
    # Pods are replaced only after they failed where a policy must see them fail first.
    after_failure = spec.get("podFailurePolicy") is not None
    allowed = ("Failed",) if after_failure else ("Failed", "TerminatingOrFailed")
    yield from supported("podReplacementPolicy", *allowed)(spec, path)
    yield from check_pod_template(struct_in(spec, "template"), at(path, "template"))
    policy = struct_in(struct_in(spec, "template"), "spec").get("restartPolicy")
    place = f"{path}.template.spec.restartPolicy"
    if policy in ("Always", None, ""):
        yield causes.required(place, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield causes.not_supported(place, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        yield causes.invalid(place, policy, why)


def check_job(job: Object) -> Iterator[Cause]:
    """Check a Job, its selector made."""
    spec = struct_in(job, "spec")
    yield from _job_spec(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        yield causes.required("spec.selector")
    else:
        yield from check_all(selector, "spec.selector", SELECTOR)
    labels = struct_in(metadata_of(struct_in(spec, "template")), "labels")
    if selector is None or (is_readable(selector) and not matches(selector, labels)):
        why = "`selector` does not match template `labels`"
        yield causes.invalid("spec.template.metadata.labels", labels or None, why)
    name = metadata_of(job).get("name", "")
    if spec.get("completionMode") == "Indexed" and spec.get("completions"):
        # The last pod of an indexed Job must be able to have its name as host name.
        longest = f"{name}-{spec['completions'] - 1}"
        if dns1123_label_problems(longest):
            why = f"will not able to create pod with invalid DNS label: {longest}"
            yield causes.invalid("metadata.name", name, why)


_FIXED: Final = (
    "selector",
    "template",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_SCHEDULING: Final = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def check_job_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a Job; while it is suspended, where its pods run may still change."""
    spec, existing = struct_in(new, "spec"), struct_in(old, "spec")
    wanted, before = spec.get("completions"), existing.get("completions")
    if spec.get("completionMode") != "Indexed":
        yield from immutable(wanted, before, "spec.completions")
    elif wanted != before and wanted != spec.get("parallelism"):
        why = "can only be modified in tandem with spec.parallelism"
        yield causes.invalid("spec.completions", wanted, why)
    never_started = not struct_in(old, "status").get("startTime")
    may_move = bool(existing.get("suspend")) and never_started
    for field in _FIXED:
        wanted, before = spec.get(field), existing.get(field)
        if field == "template" and may_move and _unplaced(wanted) == _unplaced(before):
            continue
        yield from immutable(wanted, before, f"spec.{field}")


def _unplaced(template: Object | None) -> Object:
    """Return a template without what says where its pods run."""
    spec = struct_in(template or {}, "spec")
    kept = {key: value for key, value in spec.items() if key not in _SCHEDULING}
    return {"spec": kept}


def check_cron_job(cron_job: Object) -> Iterator[Cause]:
    """Check a CronJob."""
    spec = struct_in(cron_job, "spec")
    schedule = str(spec.get("schedule") or "")
    if not schedule:
        yield causes.required("spec.schedule")
    else:
        if problem := schedule_problem(schedule):
            yield causes.invalid("spec.schedule", schedule, problem)
        if "TZ" in schedule:
            why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            yield causes.invalid("spec.schedule", schedule, why)
    yield from not_negative("startingDeadlineSeconds")(spec, "spec")
    zone = spec.get("timeZone")
    if zone is not None:
        path = "spec.timeZone"
        if not zone:
            yield causes.invalid(path, zone, "timeZone must be nil or non-empty string")
        else:
            for part in zone.split("/"):
                if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
                    yield causes.invalid(path, zone, f"unknown time zone {zone}")
            if zone.lower() == "local":
                why = (
                    "timeZone must be an explicit time zone as defined in "
                    "https://www.iana.org/time-zones"
                )
                yield causes.invalid(path, zone, why)
    yield from chosen("concurrencyPolicy", "Allow", "Forbid", "Replace")(spec, "spec")
    own = struct_in(struct_in(spec, "jobTemplate"), "spec")
    path = "spec.jobTemplate.spec"
    yield from _job_spec(own, path)
    if own.get("selector") is not None:
        why = "`selector` will be auto-generated"
        yield causes.invalid(f"{path}.selector", own["selector"], why)
    if own.get("manualSelector"):
        yield causes.not_supported(f"{path}.manualSelector", True, ("nil", "false"))
    yield from not_negative("successfulJobsHistoryLimit")(spec, "spec")
    yield from not_negative("failedJobsHistoryLimit")(spec, "spec")


def check_cron_job_name(cron_job: Object) -> Iterator[Cause]:
    """Check that the Jobs of a new CronJob will have room for their names."""
    name = metadata_of(cron_job).get("name", "")
    if len(name) > _CRON_NAME_LENGTH:
        yield causes.invalid("metadata.name", name, "must be no more than 52 characters")


_ZONE_PART: Final = re.compile(r"[A-Za-z0-9._+-]+")
