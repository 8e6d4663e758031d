"""Why one object is where it is, for people: followed from the hub to its clusters.

It only reads, and decides by the functions the controllers use: what it says is what they do. Every
fact has the time from which on it is known; what clusters say now is given by whoever asked them.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, cast

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    DELETIONS_PAUSED,
    WORKS,
    conditions_of,
    is_pull,
)
from clusterspace.apis.fleet_placements import parent_of, scope_at
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICY,
    CLUSTER_PROPAGATION_POLICIES,
    CLUSTER_PROPAGATION_POLICY,
    OVERRIDE_POLICY,
    PROPAGATION_POLICIES,
    PROPAGATION_POLICY,
    Precision,
)
from clusterspace.apis.rollouts import ROLLED_OUT
from clusterspace.apis.witnesses import CONFIRMED
from clusterspace.apis.works import (
    ALREADY_EXISTS,
    APPLIED,
    NAMESPACE,
    RESOURCE_BINDINGS,
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
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import NotServed
from clusterspace.fleet.propagation.bindings import (
    PURGED_AT_ONCE,
    WORKS_WRITTEN,
    Policy,
    choose_policy,
    claim_of,
    read_policy,
    targets_of,
)
from clusterspace.fleet.propagation.history import read_events, story_of
from clusterspace.fleet.propagation.scheduler.decisions import SCHEDULED, plan_for
from clusterspace.fleet.propagation.scheduler.demands import is_to_schedule
from clusterspace.fleet.propagation.scheduler.filters import candidate_of
from clusterspace.fleet.propagation.scheduler.peers import (
    NO_PEERS,
    Peers,
    is_in_a_group,
    peers_among,
)
from clusterspace.fleet.propagation.templates import is_on_every_cluster
from clusterspace.kube.conditions import FALSE, TRUE, find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
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
    since: str = ""
    """When it began to say so."""


@dataclass(frozen=True, slots=True)
class LiveNote:
    """What a cluster itself says of the object, at this moment."""

    trouble: str = ""
    """Why it could not be asked; empty when it answered."""
    is_there: bool = False
    reported: str = ""
    """The state of the object, in a few words."""
    differs: tuple[str, ...] = ()
    """Fields that are not as the hub wants them."""
    taken_over: str = ""
    """What became of what ran when the object was taken over; empty when it was made by the hub."""


@dataclass(frozen=True, slots=True)
class BindingNote:
    """The binding, and how far it is."""

    name: str
    scheduled: ConditionNote
    fully_applied: ConditionNote
    works_written: ConditionNote = ConditionNote()
    """Empty while every cluster has the Work it should have."""
    rolled_out: ConditionNote = ConditionNote()
    """Empty where nothing is rolled out stage by stage."""
    moves: tuple[str, ...] = ()
    """What has it where it is, besides its policy: a group it fell back to, somebody who asked;
    then the steps of its last moves, as events tell them."""


@dataclass(frozen=True, slots=True)
class WorkNote:
    """The Work that is sent to one cluster, and the cluster's report."""

    name: str
    is_applied: bool
    message: str = ""
    """Why it is not applied."""
    since: str = ""
    """When it was applied, or began not to be."""
    going_since: str = ""
    """When it was withdrawn, if it was."""
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
    ready: ConditionNote = ConditionNote()
    """How the cluster is; what its Work reports is no newer than the time it was last well."""
    heard: str = ""
    """When its agent was last heard; the hub asks Push clusters itself."""
    pause: str = ""
    """Why nothing is deleted there at present."""
    live: LiveNote | None = None
    """What it says itself; None when it was not, or must not be, asked."""

    @property
    def is_silent(self) -> bool:
        """Whether what is known of the object there is old: nobody has heard of the cluster."""
        if self.live is not None:
            return bool(self.live.trouble)
        return self.ready.status not in (TRUE, "")

    @property
    def is_well(self) -> bool:
        """Whether the object is there as it should be."""
        is_applied = self.work is not None and self.work.is_applied
        return is_applied and (self.live is None or self.live.is_there or self.is_silent)

    @property
    def is_conflict(self) -> bool:
        """Whether an object that is not ours has the place."""
        return self.work is not None and ALREADY_EXISTS in self.work.message


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
    leases: tuple[Object, ...] = ()
    placement: Object | None = None
    """The placement that made the binding, if one did."""
    events: tuple[Object, ...] = ()
    """Those of the binding."""
    peers: Peers = NO_PEERS
    """Where workloads are that it is to be together with, or apart from."""


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
    if binding is None and kind_of(template) == NAMESPACE:
        # It has no binding: it goes to every cluster under one name.
        named = stamps.work_name("Namespace", "", name_of(template))
        by_name = ListOptions(field_selector=f"metadata.name={named}")
        works = await hub_client.list_objects(ResourcePath(WORKS), by_name)
    placement: Object | None = None
    if parent := parent_of(binding or {}):
        with suppress(NotServed):
            namespace, _, name = parent.rpartition("/")
            path = ResourcePath(scope_at(parent).placements, namespace, name)
            placement = await hub_client.find(path)
    peers = NO_PEERS
    if binding is not None and is_in_a_group(binding):
        around = ResourcePath(RESOURCE_BINDINGS, namespace_of(binding))
        peers = peers_among(binding, await hub_client.list_objects(around))
    return Evidence(
        template=template,
        peers=peers,
        policies=tuple(policies),
        binding=binding,
        works=tuple(works),
        clusters=tuple(await hub_client.list_objects(ResourcePath(CLUSTERS))),
        leases=tuple(await hub_client.list_objects(ResourcePath(LEASES, CLUSTER_NAMESPACE))),
        placement=placement,
        events=() if binding is None else await read_events(hub_client, binding),
    )


def explain(evidence: Evidence, live: Mapping[str, LiveNote] | None = None) -> Explanation:
    """Return why an object is where it is; `live` is what clusters say themselves, by name."""
    template, binding = evidence.template, evidence.binding
    policies = tuple(read_policy(each) for each in evidence.policies)
    claim = claim_of(template)
    followed = next((p for p in policies if claim is not None and p.key == claim.key), None)
    followed_note = followed and _policy_note(followed, _SELECTS[followed.precision(template)])
    if parent := parent_of(binding or {}):
        is_gone = "is gone" if evidence.placement is None else "selects it"
        followed_note = PolicyNote(scope_at(parent).kind, parent, 0, is_gone)
    clusters: tuple[ClusterNote, ...] = ()
    if binding is not None:
        clusters = cluster_notes(binding, evidence)
    elif evidence.works or (kind_of(template) == NAMESPACE and is_on_every_cluster(template)):
        clusters = namespace_notes(template, evidence)
    explanation = Explanation(
        kind=str(template.get("kind")),
        namespace=namespace_of(template),
        name=name_of(template),
        policy=followed_note,
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
            _condition(binding, ROLLED_OUT),
            (*moves_of(binding), *story_of(evidence.events)),
        ),
        clusters=tuple(
            replace(_with_cluster(each, evidence), live=(live or {}).get(each.name))
            for each in clusters
        ),
    )
    return replace(explanation, summary=summarize(explanation, template, followed))


def _condition(kube_object: Object, condition_type: str) -> ConditionNote:
    condition = find_condition(find_at(kube_object, "status", "conditions"), condition_type) or {}
    fields = ("status", "reason", "message", "lastTransitionTime")
    return ConditionNote(*(str(condition.get(field) or "") for field in fields))


def _with_cluster(note: ClusterNote, evidence: Evidence) -> ClusterNote:
    """Return a note with how its cluster is, and from when that is known."""
    cluster = next((each for each in evidence.clusters if name_of(each) == note.name), None)
    if cluster is None:
        return note
    lease = next((each for each in evidence.leases if name_of(each) == note.name), None)
    paused = find_condition(conditions_of(cluster), DELETIONS_PAUSED) or {}
    return replace(
        note,
        ready=_condition(cluster, "Ready"),
        heard=str(find_at(lease, "spec", "renewTime") or "") if is_pull(cluster) else "",
        pause=str(paused.get("message") or "") if paused.get("status") == TRUE else "",
    )


def summarize(explanation: Explanation, template: Object, followed: Policy | None) -> str:
    """Return in one sentence how far an object is, or what it waits for."""
    binding, targets = explanation.binding, explanation.targets
    if binding is not None and not targets:
        return binding.scheduled.message or "It waits for the scheduler."
    if binding is not None or targets:
        ill = ", ".join(each.name for each in targets if not each.is_well)
        counted = "1 cluster" if len(targets) == 1 else f"{len(targets)} clusters"
        where = f"It is placed on {counted}"
        if binding is None:
            where = f"Every cluster gets it, as it gets every namespace; there are {len(targets)}"
        if binding is not None and binding.scheduled.status not in (TRUE, ""):
            return f"{where}, and stays there: {binding.scheduled.message}"
        if binding is not None and binding.works_written.status == FALSE:
            return f"{where}, and what is there stays as it is: {binding.works_written.message}"
        applied = f"not applied on {ill}" if ill else "applied on all of them"
        if binding is not None and binding.rolled_out.status == FALSE:
            return f"{where}, and not all have its newest state: {binding.rolled_out.message}."
        silent = ", ".join(each.name for each in targets if each.is_silent)
        unheard = f"; what is said of {silent} is old" if silent else ""
        return f"{where}, and {applied}{unheard}."

    claim, at_home = claim_of(template), why_at_home(template)
    if at_home:
        return f"It never leaves the hub: {at_home}."
    if kind_of(template) == NAMESPACE:
        return _why_nowhere(template)
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


def _why_nowhere(namespace: Object) -> str:
    """Return why no cluster gets a namespace that no policy selects."""
    if is_being_deleted(namespace):
        return "It is being deleted, and no cluster has it from here any more."
    if labels_of(namespace).get(stamps.SKIP_AUTO_PROPAGATION) == "true":
        return f"It stays on the hub: its label {stamps.SKIP_AUTO_PROPAGATION} says so."
    if not is_on_every_cluster(namespace):
        return "It stays on the hub: every cluster has a namespace of this name by itself."
    return "Every cluster gets it, as it gets every namespace; there is no cluster yet."


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


def moves_of(binding: Object) -> tuple[str, ...]:
    """Return what has a binding where it is, besides its policy, in sentences."""
    said: list[str] = []
    groups: list[Object] = find_at(binding, "spec", "placement", "clusterAffinities") or []
    in_use = str(find_at(binding, "status", "schedulerObservingAffinityName") or "")
    names = [str(each.get("affinityName")) for each in groups]
    if in_use in names[1:]:
        said.append(
            f"it is in affinity group {in_use}: those before it did not do when it was placed"
        )
    if asked := find_at(binding, "spec", "rescheduleTriggeredAt"):
        said.append(f"somebody asked at {asked} to have it placed anew")
    return tuple(said)


def why_leaving(task: Object, *, is_placed: bool) -> str:
    """Return how far the way out of a cluster is, and what it waits for."""
    said = f": {task['message']}" if task.get("message") else ""
    because = f"it is to leave since {task.get('creationTimestamp')} ({task.get('reason')}{said})"
    if is_placed:
        return f"{because}, and stays as long as there is no other place"
    if task.get("suppressDeletion") or task.get("purgeMode") == "Never":
        return f"{because}; what is there stays until a person says that it may go"
    if task.get("purgeMode") in PURGED_AT_ONCE:
        return f"{because}; what is there goes at once"
    return f"{because}; what is there stays until what replaces it is healthy"


def why_not_left(cluster: Object) -> str:
    """Return why nobody is evicted from a cluster that is not ready; empty when that may be."""
    confirmed = find_condition(conditions_of(cluster), CONFIRMED) or {}
    if confirmed.get("status") not in ("False", "Unknown"):
        return ""
    return f"it is not ready, and nobody is evicted: {confirmed.get('message')}"


def cluster_notes(binding: Object, evidence: Evidence) -> tuple[ClusterNote, ...]:
    """Return a note for every cluster, first those where the object is to be."""
    notes: dict[str, ClusterNote] = {}
    if is_to_schedule(binding):
        # The clusters the scheduler would not use, by running its decision again.
        candidates = {name_of(each): candidate_of(each) for each in evidence.clusters}
        decision = plan_for(binding, candidates, evidence.peers)
        for each in decision.rejected:
            notes[each.cluster] = ClusterNote(each.cluster, Standing.REJECTED, why=each.reason)
        for each in decision.left_out:
            notes[each.cluster] = ClusterNote(each.cluster, Standing.NOT_NEEDED, why=each.reason)
    works = {cluster_of(work): work_note(work) for work in evidence.works}
    tasks: list[Object] = find_at(binding, "spec", "gracefulEvictionTasks") or []
    leaving = {str(each.get("fromCluster")): each for each in tasks}
    for name in works:
        why = notes[name].why if name in notes else ""
        if name in leaving:
            why = why_leaving(leaving[name], is_placed=False)
        notes[name] = ClusterNote(name, Standing.WITHDRAWING, why=why)

    scheduled = {each.name for each in clusters_of(binding)}
    known = {name_of(each): each for each in evidence.clusters}
    for target in targets_of(binding):
        name, standing, why = target.name, Standing.PLACED, ""
        if name not in scheduled:
            requiring = (
                key_of(each.namespace, each.name)
                for each in requirers_of(binding)
                if any(cluster.name == name for cluster in each.clusters)
            )
            standing, why = Standing.REQUIRED, f"needed there by {', '.join(requiring)}"
        elif name in leaving:
            why = why_leaving(leaving[name], is_placed=True)
        elif name in known:
            why = why_not_left(known[name])
        if name not in known:
            why = "is not in the fleet any more"
        notes[name] = ClusterNote(name, standing, replicas=target.replicas, why=why)
    ordered = sorted(notes.values(), key=lambda note: (not note.standing.is_target, note.name))
    return tuple(replace(note, work=works.get(note.name)) for note in ordered)


def namespace_notes(namespace: Object, evidence: Evidence) -> tuple[ClusterNote, ...]:
    """Return a note for every cluster of a namespace that goes to all of them by itself."""
    works = {cluster_of(work): work_note(work) for work in evidence.works}
    is_sent = is_on_every_cluster(namespace)
    notes: dict[str, ClusterNote] = {}
    for cluster in evidence.clusters:
        name = name_of(cluster)
        if is_being_deleted(cluster):
            notes[name] = ClusterNote(name, Standing.NOT_NEEDED, why="is leaving the fleet")
        elif is_sent:
            notes[name] = ClusterNote(name, Standing.PLACED)
    for name, work in works.items():
        if name not in notes or not is_sent or work.going_since:
            notes[name] = ClusterNote(name, Standing.WITHDRAWING)
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
        for each in applied:
            overrides[f"{kind} {each.get('policyName')}{_changed_by(each)}"] = None
    return WorkNote(
        name=name_of(work),
        is_applied=report.is_applied,
        message=report.message,
        since=_condition(work, APPLIED).since,
        going_since=str(metadata_of(work).get("deletionTimestamp") or ""),
        is_suspended=suspends_dispatching(work),
        health=report.health if report.is_applied else "",
        reported=state_text(report.status or {}),
        overrides=tuple(overrides),
    )


def _changed_by(applied: Object) -> str:
    """Return what an override changed, as its policy names it: an image, labels, a path."""
    overriders = applied.get("overriders")
    if not isinstance(overriders, dict):
        return ""
    named: dict[str, None] = {}
    for name, rules in cast("dict[str, Any]", overriders).items():
        for rule in cast("list[Any]", rules if isinstance(rules, list) else [rules]):
            path = cast("Object", rule).get("path") if isinstance(rule, dict) else None
            named[str(path or name.removesuffix("Overrider").removesuffix("s"))] = None
    return f" ({', '.join(named)})" if named else ""


def state_text(status: Mapping[str, Any]) -> str:
    """Return a summary of an object's status in a few words."""
    for ready, desired in _READY:
        if desired in status:
            return f"{status.get(ready) or 0}/{status[desired]} ready"
    if status.get("phase"):
        return str(status["phase"])
    counted = [f"{status[name]} {name}" for name in _COUNTED if isinstance(status.get(name), int)]
    return ", ".join(counted)
