"""What a policy says in the binding of a template, beside what others wrote there.

A binding has several writers. The detector's fields are the claim, the template and what the
policy says; the chosen clusters, the dependents and the statuses are never touched here.
"""

from typing import Any, Final

from clusterspace.apis.bindings import reference_to, template_of
from clusterspace.apis.interpreter.replicas import replicas_in
from clusterspace.fleet.propagation.bindings import with_claim, with_owner
from clusterspace.fleet.propagation.policies.selection import Policy
from clusterspace.kube.objects import Object, uid_of

_POLICY_FIELDS: Final = (
    "conflictResolution",
    "failover",
    "placement",
    "preserveResourcesOnDeletion",
    "propagateDeps",
    "schedulerName",
)
"""What a binding takes over from its policy as it is."""

_DETECTORS_FIELDS: Final = frozenset(
    {*_POLICY_FIELDS, "replicas", "replicaRequirements", "suspension", "resource"}
)

_SCHEDULING: Final = "scheduling"
"""The one part of a suspension that is the binding's own."""


def bound(binding: Object, template: Object, policy: Policy, *, takes_version: bool) -> Object:
    """Return the binding as it is to be while its template follows a policy.

    Every new version of a binding is looked at by all who work on it. So it takes the template's
    version only when users changed the template, and not when its status moved.
    """
    claimed = with_claim(with_owner(binding, template), policy.claim)
    spec: Object = claimed.get("spec") or {}
    ours: dict[str, Any] = {key: policy.spec.get(key) for key in _POLICY_FIELDS}
    ours["placement"] = ours["placement"] or {}
    ours["propagateDeps"] = True if ours["propagateDeps"] else None

    replicas = replicas_in(template)
    if replicas is not None:
        ours["replicas"] = replicas.count or None
        ours["replicaRequirements"] = replicas.requirements

    suspension: Object = spec.get("suspension") or {}
    kept = {_SCHEDULING: suspension[_SCHEDULING]} if _SCHEDULING in suspension else {}
    ours["suspension"] = {**(policy.spec.get("suspension") or {}), **kept} or None

    reference = reference_to(template)
    known = template_of(binding)
    is_same = known.uid == uid_of(template) and bool(known.resource_version)
    if is_same and not takes_version:
        reference = {**reference, "resourceVersion": known.resource_version}
    ours["resource"] = reference

    others = {key: value for key, value in spec.items() if key not in _DETECTORS_FIELDS}
    return {**claimed, "spec": {**others, **{k: v for k, v in ours.items() if v is not None}}}
