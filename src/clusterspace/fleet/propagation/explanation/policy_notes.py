"""Which policy an object follows, and why the others that mean it lost."""

from collections.abc import Iterable, Sequence
from typing import Final

from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICY,
    PROPAGATION_POLICY,
    Precision,
)
from clusterspace.fleet.propagation.claims import claim_of
from clusterspace.fleet.propagation.explanation.notes import PolicyNote
from clusterspace.fleet.propagation.policies.selection import Policy, choose_policy
from clusterspace.kube.objects import Object

_SELECTS: Final = {
    Precision.NOT_MEANT: "no longer selects it",
    Precision.EVERYTHING: "selects all of its kind",
    Precision.BY_LABELS: "selects it by labels",
    Precision.BY_NAME: "selects it by name",
}


def followed_policy(template: Object, policies: Iterable[Policy]) -> Policy | None:
    """Return the policy that claimed a template, if it is still there."""
    claim = claim_of(template)
    return next((each for each in policies if claim is not None and each.key == claim.key), None)


def chosen_note(policy: Policy, template: Object) -> PolicyNote:
    """Return what speaks for the policy that is followed."""
    return _note(policy, _SELECTS[policy.precision(template)])


def lost_notes(
    template: Object, policies: Sequence[Policy], followed: Policy | None
) -> tuple[PolicyNote, ...]:
    """Return the policies that mean a template and are not followed, each with what it lacks."""
    return tuple(
        _note(each, _why_lost(each, followed, template))
        for each in sorted(policies, key=lambda policy: policy.key)
        if each is not followed and (each.problem or each.precision(template))
    )


def _why_lost(policy: Policy, followed: Policy | None, template: Object) -> str:
    if policy.problem:
        return f"cannot be read: {policy.problem}"
    if policy.is_leaving:
        return "is being deleted"
    if followed is None:
        return "has not claimed it yet"
    if followed.claim.namespace and not policy.claim.namespace:
        return "a policy of the namespace comes first"
    if _would_win(policy, followed, template):
        return "came later, and a claim is kept"
    if policy.priority < followed.priority:
        return f"its priority {policy.priority} is below {followed.priority}"
    if policy.precision(template) < followed.precision(template):
        return f"{_SELECTS[policy.precision(template)]}, which is less precise"
    return "its name comes later in the alphabet"


def _would_win(policy: Policy, followed: Policy, template: Object) -> bool:
    """Tell whether a policy would be chosen if the template were free."""
    if policy.claim.namespace and not followed.claim.namespace:
        return True
    return choose_policy(template, (followed, policy)) is policy


def _note(policy: Policy, why: str) -> PolicyNote:
    kind = PROPAGATION_POLICY if policy.claim.namespace else CLUSTER_PROPAGATION_POLICY
    return PolicyNote(kind, policy.key, policy.priority, why)
