"""Why one object is where it is, for people: followed from the hub to its clusters.

It only reads, and decides by the functions the controllers use: what it says is what they do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICY,
    CLUSTER_PROPAGATION_POLICIES,
    CLUSTER_PROPAGATION_POLICY,
    OVERRIDE_POLICY,
    PROPAGATION_POLICIES,
    PROPAGATION_POLICY,
    Precision,
)
from clusterspace.apis.works import (
    cluster_of,
    clusters_of,
    name_for,
    report_of,
    requirers_of,
    resource_for,
    suspends_dispatching,
    why_at_home,
)
from clusterspace.client.discovery import ServedResources
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import ListOptions, Reader
from clusterspace.errors import NotServed
from clusterspace.fleet.propagation.bindings import (
    WORKS_WRITTEN,
    Policy,
    choose_policy,
    claim_of,
    read_policy,
    targets_of,
)
from clusterspace.fleet.propagation.scheduler.decisions import SCHEDULED, plan_for
from clusterspace.fleet.propagation.scheduler.demands import is_to_schedule
from clusterspace.fleet.propagation.scheduler.filters import candidate_of
from clusterspace.kube.conditions import FALSE, TRUE, find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
)
from clusterspace.kube.resources import ResourceInfo

_SELECTS: Final = {
    Precision.NOT_MEANT: "no longer selects it",
    Precision.EVERYTHING: "selects all of its kind",
    Precision.BY_LABELS: "selects it by labels",
    Precision.BY_NAME: "selects it by name",
}

_OVERRIDES: Final = (
    (stamps.APPLIED_CLUSTER_OVERRIDES, CLUSTER_OVERRIDE_POLICY),
    (stamps.APPLIED_OVERRIDES, OVERRIDE_POLICY),
)
_READY: Final = (("readyReplicas", "replicas"), ("numberReady", "desiredNumberScheduled"))
_COUNTED: Final = ("active", "succeeded", "failed")


class Standing(Enum):
    """The relation of a cluster to the object."""

    PLACED = "placed"
    REQUIRED = "required"
    WITHDRAWING = "withdrawing"
    NOT_NEEDED = "not needed"
    REJECTED = "rejected"

    @property
    def is_target(self) -> bool:
        """Whether the object is to be there."""
        return self in (Standing.PLACED, Standing.REQUIRED)


@dataclass(frozen=True, slots=True)
class PolicyNote:
    """A policy that means the object, and why it is followed or is not."""

    kind: str
    name: str
    """With its namespace, if it has one."""
    priority: int
    why: str


@dataclass(frozen=True, slots=True)
class ConditionNote:
    """What a condition says; all is empty when nobody has said anything yet."""

    status: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class BindingNote:
    """The binding, and how far it is."""

    name: str
    scheduled: ConditionNote
    fully_applied: ConditionNote
    works_written: ConditionNote = ConditionNote()
    """Empty while every cluster has the Work it should have."""


@dataclass(frozen=True, slots=True)
class WorkNote:
    """The Work that is sent to one cluster, and the cluster's report."""

    name: str
    is_applied: bool
    message: str = ""
    """Why it is not applied."""
    is_suspended: bool = False
    health: str = ""
    reported: str = ""
    """The state of the object there, in a few words."""
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterNote:
    """One cluster: whether the object is to be there, why or why not, and how it is."""

    name: str
    standing: Standing
    replicas: int = 0
    why: str = ""
    work: WorkNote | None = None

    @property
    def is_well(self) -> bool:
        """Whether the object is there as it should be."""
        return self.work is not None and self.work.is_applied


@dataclass(frozen=True, slots=True)
class Explanation:
    """One object, followed from the hub to its clusters."""

    kind: str
    namespace: str
    name: str
    summary: str = ""
    policy: PolicyNote | None = None
    other_policies: tuple[PolicyNote, ...] = ()
    binding: BindingNote | None = None
    clusters: tuple[ClusterNote, ...] = ()

    @property
    def targets(self) -> tuple[ClusterNote, ...]:
        """The clusters where the object is to be."""
        return tuple(each for each in self.clusters if each.standing.is_target)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything on the hub that has to do with one template."""

    template: Object
    policies: tuple[Object, ...] = ()
    binding: Object | None = None
    works: tuple[Object, ...] = ()
    clusters: tuple[Object, ...] = ()


def find_named(served: ServedResources, word: str) -> ResourceInfo:
    """Return the resource people mean by a word: `deploy`, `Deployment`, `deployments.apps`."""
    name, _, group = word.lower().partition(".")
    found = (
        each
        for each in served.resources
        if name in {each.plural, each.singular, each.kind.lower(), *each.short_names}
        and (not group or each.group == group)
    )
    resource = next(found, None)
    if resource is None:
        raise NotServed(f"the hub serves nothing called {word}")
    return resource


async def gather(hub_client: Reader, path: ResourcePath) -> Evidence:
    """Read what there is about a template; NotFound when there is no such object."""
    template = await hub_client.get(path)
    namespace = namespace_of(template)
    binding = await hub_client.find(
        ResourcePath(resource_for(namespace), namespace, name_for(template))
    )
    policies = await hub_client.list_objects(ResourcePath(CLUSTER_PROPAGATION_POLICIES))
    if namespace:
        policies += await hub_client.list_objects(ResourcePath(PROPAGATION_POLICIES, namespace))
    works: list[Object] = []
    labels = labels_of(binding or {})
    for label in (stamps.BINDING_ID, stamps.CLUSTER_BINDING_ID):
        if label in labels and not works:
            of_binding = ListOptions(label_selector=f"{label}={labels[label]}")
            works = await hub_client.list_objects(ResourcePath(WORKS), of_binding)
    return Evidence(
        template=template,
        policies=tuple(policies),
        binding=binding,
        works=tuple(works),
        clusters=tuple(await hub_client.list_objects(ResourcePath(CLUSTERS))),
    )


def explain(evidence: Evidence) -> Explanation:
    """Return why an object is where it is."""
    template, binding = evidence.template, evidence.binding
    policies = tuple(read_policy(each) for each in evidence.policies)
    claim = claim_of(template)
    followed = next((p for p in policies if claim is not None and p.key == claim.key), None)
    explanation = Explanation(
        kind=str(template.get("kind")),
        namespace=namespace_of(template),
        name=name_of(template),
        policy=None
        if followed is None
        else _policy_note(followed, _SELECTS[followed.precision(template)]),
        other_policies=tuple(
            _policy_note(each, why_lost(each, followed, template))
            for each in sorted(policies, key=lambda policy: policy.key)
            if each is not followed and (each.problem or each.precision(template))
        ),
        binding=None
        if binding is None
        else BindingNote(
            name_of(binding),
            _condition(binding, SCHEDULED),
            _condition(binding, "FullyApplied"),
            _condition(binding, WORKS_WRITTEN),
        ),
        clusters=() if binding is None else cluster_notes(binding, evidence),
    )
    return replace(explanation, summary=summarize(explanation, template, followed))


def _condition(binding: Object, condition_type: str) -> ConditionNote:
    condition = find_condition(find_at(binding, "status", "conditions"), condition_type) or {}
    words = (str(condition.get(field) or "") for field in ("status", "reason", "message"))
    return ConditionNote(*words)


def summarize(explanation: Explanation, template: Object, followed: Policy | None) -> str:
    """Return in one sentence how far an object is, or what it waits for."""
    binding, targets = explanation.binding, explanation.targets
    if binding is not None and not targets:
        return binding.scheduled.message or "It waits for the scheduler."
    if binding is not None:
        ill = ", ".join(each.name for each in targets if not each.is_well)
        counted = "1 cluster" if len(targets) == 1 else f"{len(targets)} clusters"
        where = f"It is placed on {counted}"
        if binding.scheduled.status not in (TRUE, ""):
            return f"{where}, and stays there: {binding.scheduled.message}"
        if binding.works_written.status == FALSE:
            return f"{where}, and what is there stays as it is: {binding.works_written.message}"
        applied = f"not applied on {ill}" if ill else "applied on all of them"
        return f"{where}, and {applied}."

    claim, at_home = claim_of(template), why_at_home(template)
    if at_home:
        return f"It never leaves the hub: {at_home}."
    if claim is None and explanation.other_policies:
        return "It waits for a policy that selects it to claim it."
    if claim is None:
        return "It stays on the hub: no policy selects it."
    if followed is None:
        return f"It stays on the hub: the policy {claim.key} that claimed it is gone."
    if followed.awaited_overrides:
        awaited = ", ".join(followed.awaited_overrides)
        return f"It waits for the override policies that its policy asks for: {awaited}."
    return "It waits for its binding."


def why_lost(policy: Policy, followed: Policy | None, template: Object) -> str:
    """Return why a policy that selects a template is not the one that is followed."""
    if policy.problem:
        return f"cannot be read: {policy.problem}"
    if policy.is_leaving:
        return "is being deleted"
    if followed is None:
        return "has not claimed it yet"
    if followed.claim.namespace and not policy.claim.namespace:
        return "a policy of the namespace comes first"
    is_first_kind = bool(policy.claim.namespace) and not followed.claim.namespace
    if is_first_kind or choose_policy(template, (followed, policy)) is policy:
        # It would be chosen if the template were free.
        return "came later, and a claim is kept"
    if policy.priority < followed.priority:
        return f"its priority {policy.priority} is below {followed.priority}"
    if policy.precision(template) < followed.precision(template):
        return f"{_SELECTS[policy.precision(template)]}, which is less precise"
    return "its name comes later in the alphabet"


def _policy_note(policy: Policy, why: str) -> PolicyNote:
    kind = PROPAGATION_POLICY if policy.claim.namespace else CLUSTER_PROPAGATION_POLICY
    return PolicyNote(kind, policy.key, policy.priority, why)


def cluster_notes(binding: Object, evidence: Evidence) -> tuple[ClusterNote, ...]:
    """Return a note for every cluster, first those where the object is to be."""
    notes: dict[str, ClusterNote] = {}
    if is_to_schedule(binding):
        # The clusters the scheduler would not use, by running its decision again.
        candidates = {name_of(each): candidate_of(each) for each in evidence.clusters}
        decision = plan_for(binding, candidates)
        for each in decision.rejected:
            notes[each.cluster] = ClusterNote(each.cluster, Standing.REJECTED, why=each.reason)
        for each in decision.left_out:
            notes[each.cluster] = ClusterNote(each.cluster, Standing.NOT_NEEDED, why=each.reason)
    works = {cluster_of(work): work_note(work) for work in evidence.works}
    for name in works:
        why = notes[name].why if name in notes else ""
        notes[name] = ClusterNote(name, Standing.WITHDRAWING, why=why)

    scheduled = {each.name for each in clusters_of(binding)}
    known = {name_of(each) for each in evidence.clusters}
    for target in targets_of(binding):
        name, standing, why = target.name, Standing.PLACED, ""
        if name not in scheduled:
            requiring = (
                key_of(each.namespace, each.name)
                for each in requirers_of(binding)
                if any(cluster.name == name for cluster in each.clusters)
            )
            standing, why = Standing.REQUIRED, f"needed there by {', '.join(requiring)}"
        if name not in known:
            why = "is not in the fleet any more"
        notes[name] = ClusterNote(name, standing, replicas=target.replicas, why=why)
    ordered = sorted(notes.values(), key=lambda note: (not note.standing.is_target, note.name))
    return tuple(replace(note, work=works.get(note.name)) for note in ordered)


def work_note(work: Object) -> WorkNote:
    """Return a note of the Work that is sent to a cluster, and of the cluster's report."""
    report = report_of(work)
    # The override policies that changed what is sent, each once, in their order.
    overrides: dict[str, None] = {}
    for annotation, kind in _OVERRIDES:
        try:
            applied = msgspec.json.decode(
                annotations_of(work).get(annotation, "[]"), type=list[Object]
            )
        except msgspec.DecodeError:
            continue  # somebody garbled a note that is made for people
        overrides.update({f"{kind} {each.get('policyName')}": None for each in applied})
    return WorkNote(
        name=name_of(work),
        is_applied=report.is_applied,
        message=report.message,
        is_suspended=suspends_dispatching(work),
        health=report.health if report.is_applied else "",
        reported=state_text(report.status or {}),
        overrides=tuple(overrides),
    )


def state_text(status: Mapping[str, Any]) -> str:
    """Return a summary of an object's status in a few words."""
    for ready, desired in _READY:
        if desired in status:
            return f"{status.get(ready) or 0}/{status[desired]} ready"
    if status.get("phase"):
        return str(status["phase"])
    counted = [f"{status[name]} {name}" for name in _COUNTED if isinstance(status.get(name), int)]
    return ", ".join(counted)
