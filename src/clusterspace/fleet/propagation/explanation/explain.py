"""All that is told of one object, and the sentence that sums it up."""

from dataclasses import replace

from clusterspace.apis.confinement import why_at_home
from clusterspace.fleet.propagation.claims import claim_of
from clusterspace.fleet.propagation.explanation.cluster_notes import cluster_notes
from clusterspace.fleet.propagation.explanation.evidence import Evidence
from clusterspace.fleet.propagation.explanation.notes import (
    BindingNote,
    ConditionNote,
    Explanation,
)
from clusterspace.fleet.propagation.explanation.policy_notes import (
    chosen_note,
    followed_policy,
    lost_notes,
)
from clusterspace.fleet.propagation.policies.selection import Policy, read_policy
from clusterspace.fleet.propagation.scheduler.results import SCHEDULED
from clusterspace.fleet.propagation.works.controller import WORKS_WRITTEN
from clusterspace.kube.conditions import FALSE, TRUE, find_condition
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of


def explain(evidence: Evidence) -> Explanation:
    """Return why an object is where it is."""
    template, binding = evidence.template, evidence.binding
    policies = tuple(read_policy(each) for each in evidence.policies)
    followed = followed_policy(template, policies)
    told = Explanation(
        kind=str(template.get("kind")),
        namespace=namespace_of(template),
        name=name_of(template),
        policy=None if followed is None else chosen_note(followed, template),
        other_policies=lost_notes(template, policies, followed),
        binding=None if binding is None else _binding_note(binding),
        clusters=() if binding is None else cluster_notes(binding, evidence),
    )
    return replace(told, summary=_summary(told, template, followed))


def _binding_note(binding: Object) -> BindingNote:
    return BindingNote(
        name_of(binding),
        _condition(binding, SCHEDULED),
        _condition(binding, "FullyApplied"),
        _condition(binding, WORKS_WRITTEN),
    )


def _condition(binding: Object, condition_type: str) -> ConditionNote:
    held = find_condition(find_at(binding, "status", "conditions"), condition_type) or {}
    words = (str(held.get(field) or "") for field in ("status", "reason", "message"))
    return ConditionNote(*words)


def _summary(told: Explanation, template: Object, followed: Policy | None) -> str:
    """Return how far the object is, or what it waits for."""
    binding = told.binding
    if binding is None:
        return _why_no_binding(told, template, followed)
    if not told.targets:
        scheduled = binding.scheduled
        return scheduled.message or "It waits for the scheduler."
    well = sum(each.is_well for each in told.targets)
    where = f"It is placed on {_counted(len(told.targets))}"
    if binding.scheduled.status not in (TRUE, ""):
        return f"{where}, and stays there: {binding.scheduled.message}"
    if binding.works_written.status == FALSE:
        return f"{where}, and what is there stays as it is: {binding.works_written.message}"
    if well == len(told.targets):
        return f"{where}, and applied on all of them."
    ill = ", ".join(each.name for each in told.targets if not each.is_well)
    return f"{where}, and not applied on {ill}."


def _why_no_binding(told: Explanation, template: Object, followed: Policy | None) -> str:
    claim = claim_of(template)
    at_home = why_at_home(template)
    if at_home:
        return f"It never leaves the hub: {at_home}."
    if claim is None and told.other_policies:
        return "It waits for a policy that selects it to claim it."
    if claim is None:
        return "It stays on the hub: no policy selects it."
    if followed is None:
        return f"It stays on the hub: the policy {claim.key} that claimed it is gone."
    if followed.awaited_overrides:
        awaited = ", ".join(followed.awaited_overrides)
        return f"It waits for the override policies that its policy asks for: {awaited}."
    return "It waits for its binding."


def _counted(clusters: int) -> str:
    return "1 cluster" if clusters == 1 else f"{clusters} clusters"
