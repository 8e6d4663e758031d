"""Exactly one binding per claimed template: what a policy says of it, beside what others wrote.

A binding is written by several hands. The detector's are the claim, the template and what the
policy says; the chosen clusters, the dependents and the statuses are never touched here.
"""

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
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import (
    Object,
    find_at,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)


def binding_place(template: Object) -> ResourcePath:
    """Return where the binding of a template is."""
    namespace = namespace_of(template)
    return ResourcePath(resource_for(namespace), namespace, name_for(template))


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
    return with_owner(binding, template)


def with_owner(binding: Object, template: Object) -> Object:
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
