"""The rules of what keeps pods running: Deployments, StatefulSets, DaemonSets and their kin."""

import re
from collections.abc import Iterator
from typing import Any, Final

from clusterspace.builtins.validation.metadata import (
    SELECTOR,
    is_empty,
    is_readable,
    matches,
    ordered,
)
from clusterspace.builtins.validation.pods import check_pod_template
from clusterspace.builtins.validation.rules import (
    IMMUTABLE,
    NOT_NEGATIVE,
    Check,
    at,
    check_all,
    chosen,
    each,
    immutable,
    inside,
    invalid_struct,
    not_negative,
    struct_in,
    structs_in,
    unsupported_struct,
    well_formed,
)
from clusterspace.builtins.validation.volumes import CLAIM_SPEC
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import Object, metadata_of

_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_SHAPE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_MISMATCH: Final = "`selector` does not match template `labels`"


def check_int_or_percent(value: Any, path: str) -> Iterator[Cause]:
    """Check a count that may be a share instead."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield causes.invalid(path, value, _PERCENT_SHAPE)
    elif value is not None and value < 0:
        yield causes.invalid(path, value, NOT_NEGATIVE)


def check_at_most_all(value: Any, path: str) -> Iterator[Cause]:
    """Check that a share is not more than everything."""
    is_share = isinstance(value, str) and _PERCENT.fullmatch(value)
    if is_share and int(value[:-1]) > 100:
        yield causes.invalid(path, value, "must not be greater than 100%")


def _amount(value: Any) -> int:
    """Return a count, or the number of a share; nothing counts as none."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return value or 0


def check_selector(
    spec: Object, path: str, noun: str, unreadable: str = "invalid label selector"
) -> Iterator[Cause]:
    """Check the selector that says which pods belong to a workload."""
    selector, place = spec.get("selector"), at(path, "selector")
    if selector is None:
        yield causes.required(place)
        return
    yield from check_all(selector, place, SELECTOR)
    if is_empty(selector):
        yield causes.invalid(place, selector, f"empty selector is invalid for {noun}")
    elif not is_readable(selector):
        yield invalid_struct(place, ordered(selector), unreadable)


def _selects(selector: Object | None, template: Object) -> bool:
    """Whether a selector picks the pods of a template; one that is not there picks none."""
    return selector is not None and matches(selector, struct_in(metadata_of(template), "labels"))


def check_labels_match(spec: Object, path: str) -> Iterator[Cause]:
    """Check that a workload selects its own pods; no selector selects none."""
    template = struct_in(spec, "template")
    selector = spec.get("selector")
    if selector is not None and (is_empty(selector) or not is_readable(selector)):
        return
    if not _selects(selector, template):
        labels = metadata_of(template).get("labels")
        yield causes.invalid(f"{path}.template.metadata.labels", labels, _MISMATCH)


def check_restarts(template: Object, path: str, noun: str) -> Iterator[Cause]:
    """Check that pods are restarted for ever."""
    spec = struct_in(template, "spec")
    if spec.get("restartPolicy") != "Always":
        place = f"{path}.spec.restartPolicy"
        yield causes.not_supported(place, spec.get("restartPolicy"), ("Always",))
    if spec.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {noun} is not Supported"
        yield causes.forbidden(f"{path}.spec.activeDeadlineSeconds", why)


def _replicated_template(spec: Object, path: str) -> Iterator[Cause]:
    template, place = struct_in(spec, "template"), at(path, "template")
    if spec.get("selector") is not None and not is_readable(spec["selector"]):
        return
    yield from check_labels_match(spec, path)
    yield from check_pod_template(template, place)
    yield from check_restarts(template, place, "ReplicaSet")


def check_deployment(deployment: Object) -> Iterator[Cause]:
    """Check a Deployment."""
    spec = struct_in(deployment, "spec")
    yield from not_negative("replicas")(spec, "spec")
    yield from check_selector(spec, "spec", "deployment")
    yield from _replicated_template(spec, "spec")
    strategy = struct_in(spec, "strategy")
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            why = "may not be specified when strategy `type` is 'Recreate'"
            yield causes.forbidden("spec.strategy.rollingUpdate", why)
    elif kind == "RollingUpdate":
        place, rolling = "spec.strategy.rollingUpdate", struct_in(strategy, "rollingUpdate")
        down, extra = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        yield from check_int_or_percent(down, at(place, "maxUnavailable"))
        yield from check_int_or_percent(extra, at(place, "maxSurge"))
        if _amount(down) == 0 and _amount(extra) == 0:
            why = "may not be 0 when `maxSurge` is 0"
            yield causes.invalid(at(place, "maxUnavailable"), down, why)
        yield from check_at_most_all(down, at(place, "maxUnavailable"))
    else:
        shown = {"Type": kind, "RollingUpdate": rolling and _bounds_form(rolling)}
        yield unsupported_struct("spec.strategy", shown, ("Recreate", "RollingUpdate"))
    yield from not_negative("minReadySeconds")(spec, "spec")
    yield from not_negative("revisionHistoryLimit")(spec, "spec")
    yield from not_negative("progressDeadlineSeconds")(spec, "spec")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        why = "must be greater than minReadySeconds"
        yield causes.invalid("spec.progressDeadlineSeconds", deadline, why)


def _bounds_form(rolling: Object) -> Object:
    """Return the bounds of a rolling update as the server's messages show them."""
    return {
        "MaxUnavailable": rolling.get("maxUnavailable", 0),
        "MaxSurge": rolling.get("maxSurge", 0),
    }


def check_replica_set(replica_set: Object) -> Iterator[Cause]:
    """Check a ReplicaSet."""
    spec = struct_in(replica_set, "spec")
    yield from not_negative("replicas")(spec, "spec")
    yield from not_negative("minReadySeconds")(spec, "spec")
    yield from check_selector(spec, "spec", "deployment")
    yield from _replicated_template(spec, "spec")


def check_selector_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a workload goes on selecting the same pods."""
    selector, existing = (struct_in(struct_in(each, "spec"), "selector") for each in (new, old))
    if selector != existing:
        yield invalid_struct("spec.selector", ordered(selector), IMMUTABLE)


def check_daemon_set(daemon_set: Object) -> Iterator[Cause]:
    """Check a DaemonSet."""
    spec = struct_in(daemon_set, "spec")
    template, selector = struct_in(spec, "template"), spec.get("selector")
    yield from inside("selector", *SELECTOR)(spec, "spec")
    can_select = selector is None or is_readable(selector)
    if can_select and not _selects(selector, template):
        labels = metadata_of(template).get("labels")
        yield causes.invalid("spec.template.metadata.labels", labels, _MISMATCH)
    if selector is not None and is_empty(selector):
        yield causes.invalid("spec.selector", selector, "empty selector is invalid for daemonset")
    yield from check_pod_template(template, "spec.template")
    yield from check_restarts(template, "spec.template", "DaemonSet")
    yield from not_negative("minReadySeconds")(spec, "spec")
    strategy = struct_in(spec, "updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        wanted = ("RollingUpdate", "OnDelete")
        rolling = strategy.get("rollingUpdate")
        shown = {"Type": strategy.get("type"), "RollingUpdate": rolling and _bounds_form(rolling)}
        yield unsupported_struct("spec.updateStrategy", shown, wanted)
    elif strategy["type"] == "RollingUpdate":
        rolling, place = struct_in(strategy, "rollingUpdate"), "spec.updateStrategy.rollingUpdate"
        down, extra = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        yield from check_int_or_percent(down, at(place, "maxUnavailable"))
        yield from check_int_or_percent(extra, at(place, "maxSurge"))
        most_down, most_extra = _amount(down), _amount(extra)
        # A daemon is replaced either by taking it down or by doubling it, not both.
        if most_down and most_extra:
            why = "may not be set when maxUnavailable is non-zero"
            yield causes.invalid(at(place, "maxSurge"), extra, why)
        if not most_down and not most_extra:
            why = "cannot be 0 when maxSurge is 0"
            yield causes.required(at(place, "maxUnavailable"), why)
        yield from check_at_most_all(down, at(place, "maxUnavailable"))
        yield from check_at_most_all(extra, at(place, "maxSurge"))
    yield from not_negative("revisionHistoryLimit")(spec, "spec")


_RETENTION: Final = (
    chosen("whenDeleted", "Retain", "Delete"),
    chosen("whenScaled", "Retain", "Delete"),
)
_SET_COUNTS: Final[tuple[Check, ...]] = (
    inside("persistentVolumeClaimRetentionPolicy", *_RETENTION),
    each("volumeClaimTemplates", inside("spec", *CLAIM_SPEC)),
    not_negative("replicas"),
    not_negative("minReadySeconds"),
    well_formed("serviceName", dns1123_label_problems),
)


def check_stateful_set(stateful_set: Object) -> Iterator[Cause]:
    """Check a StatefulSet."""
    spec = struct_in(stateful_set, "spec")
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        why = "must be 'OrderedReady' or 'Parallel'"
        yield causes.invalid("spec.podManagementPolicy", policy, why)
    strategy = struct_in(spec, "updateStrategy")
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    bounds = struct_in(strategy, "rollingUpdate")
    shown = {"Partition": bounds.get("partition", 0), "MaxUnavailable": None}
    if kind == "OnDelete" and rolling is not None:
        why = "only allowed for updateStrategy 'RollingUpdate'"
        yield invalid_struct("spec.updateStrategy.rollingUpdate", shown, why)
    elif kind == "RollingUpdate" and rolling is not None:
        yield from not_negative("partition")(rolling, "spec.updateStrategy.rollingUpdate")
    elif kind not in ("OnDelete", "RollingUpdate"):
        why = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid_struct(
            "spec.updateStrategy",
            {"Type": kind, "RollingUpdate": None if rolling is None else shown},
            why,
        )
    yield from check_all(spec, "spec", _SET_COUNTS)
    yield from check_selector(spec, "spec", "statefulset", unreadable="")
    if spec.get("selector") is None or is_readable(spec["selector"]):
        yield from check_labels_match(spec, "spec")
        # As the pods have it: a volume for each claim, and host names of their own.
        template = struct_in(spec, "template")
        claims = structs_in(spec, "volumeClaimTemplates")
        names = [metadata_of(claim).get("name", "") for claim in claims]
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
        own = struct_in(template, "spec")
        volumes += [each for each in structs_in(own, "volumes") if each.get("name") not in names]
        kept = {field: own[field] for field in own if field not in ("hostname", "subdomain")}
        deployed = {**template, "spec": {**kept, "volumes": volumes}}
        yield from check_pod_template(deployed, "spec.template")
    yield from check_restarts(struct_in(spec, "template"), "spec.template", "StatefulSet")


_MUTABLE_IN_A_SET: Final = frozenset(
    {
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    }
)
_SET_IS_FIXED: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


def check_stateful_set_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a StatefulSet: what names its pods and claims is fixed."""
    wanted, existing = (
        {
            key: value
            for key, value in struct_in(each, "spec").items()
            if key not in _MUTABLE_IN_A_SET
        }
        for each in (new, old)
    )
    if wanted != existing:
        yield causes.forbidden("spec", _SET_IS_FIXED)


def check_replication_controller(controller: Object) -> Iterator[Cause]:
    """Check a ReplicationController."""
    spec = struct_in(controller, "spec")
    yield from not_negative("minReadySeconds")(spec, "spec")
    if not spec.get("selector"):
        yield causes.required("spec.selector")
    yield from not_negative("replicas")(spec, "spec")
    template = spec.get("template")
    if template is None:
        yield causes.required("spec.template")
        return
    labels = struct_in(metadata_of(template), "labels")
    wanted = struct_in(spec, "selector")
    if any(labels.get(key) != value for key, value in wanted.items()):
        yield causes.invalid("spec.template.metadata.labels", labels or None, _MISMATCH)
    yield from check_pod_template(template, "spec.template")
    yield from check_restarts(template, "spec.template", "ReplicationController")


def check_pod_template_object(pod_template: Object) -> Iterator[Cause]:
    """Check a PodTemplate."""
    return check_pod_template(struct_in(pod_template, "template"), "template")


def check_controller_revision(revision: Object) -> Iterator[Cause]:
    """Check a ControllerRevision."""
    yield from not_negative("revision")(revision, "")
    if revision.get("data") is None:
        yield causes.required("data", "data is mandatory")


def check_controller_revision_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that the recorded state of a ControllerRevision stays as recorded."""
    return immutable(new.get("data"), old.get("data"), "data")
