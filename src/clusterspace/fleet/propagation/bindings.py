"""Exactly one binding per claimed template: what a policy says of it, beside what others wrote.

A binding is written by several hands. The detector's are the claim, the template and what the
policy says; the chosen clusters, the dependents and the statuses are never touched here.
"""

from typing import Any, Final

from clusterspace.apis import stamps
from clusterspace.apis.bindings import (
    API_VERSION,
    CLUSTER_RESOURCE_BINDING,
    RESOURCE_BINDING,
    controller_uid_of,
    name_for,
    reference_to,
    resource_for,
    template_of,
)
from clusterspace.apis.interpreter.kinds import kind_of
from clusterspace.apis.interpreter.replicas import replicas_in
from clusterspace.client.places import Place
from clusterspace.fleet.propagation.claims import with_claim
from clusterspace.fleet.propagation.policies import Policy
from clusterspace.kube.objects import (
    Object,
    find_at,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)

_POLICY_FIELDS: Final = (
    "conflictResolution",
    "failover",
    "placement",
    "preserveResourcesOnDeletion",
    "propagateDeps",
    "schedulerName",
)
"""What a binding takes over from its policy as it is."""

_SCHEDULING: Final = "scheduling"
"""The one part of a suspension that is the binding's own."""


def binding_place(template: Object) -> Place:
    """Return where the binding of a template is."""
    namespace = namespace_of(template)
    return Place(resource_for(namespace), namespace, name_for(template))


def is_own(binding: Object, template: Object) -> bool:
    """Whether a binding is this template's, and not one of the same name that is gone or going.

    Nor one that somebody wrote for another object under the name this template's has: what a
    binding is about never changes.
    """
    about = template_of(binding)
    group, kind = kind_of(template).group, kind_of(template).kind
    is_about = about.subject == (group, kind, namespace_of(template), name_of(template))
    is_free = controller_uid_of(binding) in ("", uid_of(template))
    return is_free and (is_about or not about.name)


def new_binding(template: Object, binding_id: str) -> Object:
    """Return a binding of a template that follows no policy yet."""
    is_namespaced = bool(namespace_of(template))
    label = stamps.BINDING_ID if is_namespaced else stamps.CLUSTER_BINDING_ID
    place = binding_place(template)
    metadata = {"name": place.name, "namespace": place.namespace, "labels": {label: binding_id}}
    binding = {
        "apiVersion": API_VERSION,
        "kind": RESOURCE_BINDING if is_namespaced else CLUSTER_RESOURCE_BINDING,
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"resource": reference_to(template)},
    }
    return _held_by(binding, template)


def bound(binding: Object, template: Object, policy: Policy, *, takes_version: bool) -> Object:
    """Return the binding as it is to be while its template follows a policy.

    Every new version of a binding is looked at by all who work on it. So it takes the template's
    version only when the template said something new, and not when its status moved.
    """
    claimed = with_claim(_held_by(binding, template), policy.claim)
    spec: Object = claimed.get("spec") or {}
    others = {key: value for key, value in spec.items() if key not in _replaced_fields()}
    ours = {
        **_from_policy(policy.spec),
        **_from_template(template),
        "suspension": _suspension(spec.get("suspension") or {}, policy.spec.get("suspension")),
        "resource": _reference(binding, template, takes_version=takes_version),
    }
    return {**claimed, "spec": {**others, **{k: v for k, v in ours.items() if v is not None}}}


def _replaced_fields() -> tuple[str, ...]:
    return (*_POLICY_FIELDS, "replicas", "replicaRequirements", "suspension", "resource")


def _from_policy(policy_spec: Object) -> dict[str, Any]:
    taken = {key: policy_spec.get(key) for key in _POLICY_FIELDS}
    return {
        **taken,
        "placement": taken["placement"] or {},
        "propagateDeps": True if taken["propagateDeps"] else None,
    }


def _from_template(template: Object) -> dict[str, Any]:
    replicas = replicas_in(template)
    if replicas is None:
        return {}
    return {"replicas": replicas.count or None, "replicaRequirements": replicas.requirements}


def _suspension(present: Object, wanted: Object | None) -> Object | None:
    kept = {_SCHEDULING: present[_SCHEDULING]} if _SCHEDULING in present else {}
    return {**(wanted or {}), **kept} or None


def _reference(binding: Object, template: Object, *, takes_version: bool) -> Object:
    reference = reference_to(template)
    known = template_of(binding)
    is_same = known.uid == uid_of(template) and bool(known.resource_version)
    if is_same and not takes_version:
        return {**reference, "resourceVersion": known.resource_version}
    return reference


def _held_by(binding: Object, template: Object) -> Object:
    """Return the binding, owned by its template and held until its Works are gone."""
    is_namespaced = bool(namespace_of(template))
    finalizer = stamps.BINDING_FINALIZER if is_namespaced else stamps.CLUSTER_BINDING_FINALIZER
    finalizers: list[str] = find_at(binding, "metadata", "finalizers") or []
    owner = {
        "apiVersion": template.get("apiVersion"),
        "kind": template.get("kind"),
        "name": name_of(template),
        "uid": uid_of(template),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return with_metadata(
        binding,
        finalizers=finalizers if finalizer in finalizers else [*finalizers, finalizer],
        ownerReferences=[owner],
    )
