"""Where an object is, where it is not, and what each cluster says of it."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.bindings import clusters_of, requirers_of
from clusterspace.apis.policies import CLUSTER_OVERRIDE_POLICY, OVERRIDE_POLICY
from clusterspace.apis.works import cluster_of, report_of, suspends_dispatching
from clusterspace.client.requests import key_of
from clusterspace.fleet.propagation.explanation.evidence import Evidence
from clusterspace.fleet.propagation.explanation.notes import ClusterNote, Standing, WorkNote
from clusterspace.fleet.propagation.scheduler.candidates import candidate_of
from clusterspace.fleet.propagation.scheduler.decisions import plan_for
from clusterspace.fleet.propagation.scheduler.demands import is_to_schedule
from clusterspace.fleet.propagation.targets import targets_of
from clusterspace.kube.objects import Object, annotations_of, name_of

_OVERRIDES: Final = (
    (stamps.APPLIED_CLUSTER_OVERRIDES, CLUSTER_OVERRIDE_POLICY),
    (stamps.APPLIED_OVERRIDES, OVERRIDE_POLICY),
)
_READY: Final = (("readyReplicas", "replicas"), ("numberReady", "desiredNumberScheduled"))
_COUNTED: Final = ("active", "succeeded", "failed")


def cluster_notes(binding: Object, evidence: Evidence) -> tuple[ClusterNote, ...]:
    """Return a note for every cluster, first those where the object is to be."""
    works = {cluster_of(work): work_note(work) for work in evidence.works}
    targets = _target_notes(binding, known={name_of(each) for each in evidence.clusters})
    others = _other_notes(binding, evidence)
    left = {
        name: ClusterNote(
            name, Standing.WITHDRAWING, why=others[name].why if name in others else ""
        )
        for name in works
    }
    notes = {**others, **left, **targets}
    ordered = sorted(notes.values(), key=lambda note: (not note.standing.is_target, note.name))
    return tuple(replace(note, work=works.get(note.name)) for note in ordered)


def work_note(work: Object) -> WorkNote:
    """Return what a Work tells."""
    report = report_of(work)
    return WorkNote(
        name=name_of(work),
        is_applied=report.is_applied,
        message=report.message,
        is_suspended=suspends_dispatching(work),
        health=report.health if report.is_applied else "",
        reported=state_text(report.status or {}),
        overrides=_overrides_of(work),
    )


def state_text(status: Mapping[str, Any]) -> str:
    """Return what matters most of an object's status, in a few words."""
    for ready, wanted in _READY:
        if wanted in status:
            return f"{status.get(ready) or 0}/{status[wanted]} ready"
    if status.get("phase"):
        return str(status["phase"])
    counted = [f"{status[name]} {name}" for name in _COUNTED if isinstance(status.get(name), int)]
    return ", ".join(counted)


def _target_notes(binding: Object, known: Collection[str]) -> dict[str, ClusterNote]:
    """Return the clusters that are to have the object."""
    scheduled = {each.name for each in clusters_of(binding)}
    return {
        each.name: ClusterNote(
            each.name,
            Standing.PLACED if each.name in scheduled else Standing.REQUIRED,
            replicas=each.replicas,
            why=_why_there(each.name, binding, known, is_scheduled=each.name in scheduled),
        )
        for each in targets_of(binding)
    }


def _why_there(name: str, binding: Object, known: Collection[str], *, is_scheduled: bool) -> str:
    if name not in known:
        return "is not in the fleet any more"
    if is_scheduled:
        return ""
    needing = (
        key_of(each.namespace, each.name)
        for each in requirers_of(binding)
        if any(target.name == name for target in each.clusters)
    )
    return f"needed there by {', '.join(needing)}"


def _other_notes(binding: Object, evidence: Evidence) -> dict[str, ClusterNote]:
    """Return the clusters the scheduler would not use, by asking it again."""
    if not is_to_schedule(binding):
        return {}
    candidates = {name_of(each): candidate_of(each) for each in evidence.clusters}
    decision = plan_for(binding, candidates)
    kinds = ((Standing.REJECTED, decision.rejected), (Standing.NOT_NEEDED, decision.left_out))
    return {
        each.cluster: ClusterNote(each.cluster, standing, why=each.reason)
        for standing, listed in kinds
        for each in listed
    }


def _overrides_of(work: Object) -> tuple[str, ...]:
    """Return the override policies that changed what is sent, each once, in their order."""
    annotations = annotations_of(work)
    named = (
        f"{kind} {each.get('policyName')}"
        for annotation, kind in _OVERRIDES
        for each in _read_list(annotations.get(annotation, "[]"))
    )
    return tuple(dict.fromkeys(named))


def _read_list(text: str) -> list[Object]:
    """Read a note made for people; one that somebody garbled tells nothing."""
    try:
        return msgspec.json.decode(text, type=list[Object])
    except msgspec.DecodeError:
        return []
