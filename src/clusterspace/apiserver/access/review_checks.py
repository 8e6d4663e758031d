"""What is wrong with a question about access, in Kubernetes' words."""

from collections.abc import Iterator
from typing import Any, Final

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.objects import Object, find_at, metadata_of

_RESOURCE: Final = "spec.resourceAttributes"
_PATH: Final = "spec.nonResourceAttributes"


def subject_causes(spec: Object) -> Iterator[Cause]:
    """Check a question about somebody else."""
    yield from attribute_causes(spec)
    if not spec.get("user") and not spec.get("groups"):
        yield causes.invalid("spec.user", "", "at least one of user or group must be specified")


def attribute_causes(spec: Object) -> Iterator[Cause]:
    """Check that the question is about a resource or a path, and not about both."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        yield causes.invalid(_PATH, _shown(path), why)
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield causes.invalid(_RESOURCE, None, why)
    if resource is not None:
        yield from _selector_causes(resource)


def local_causes(review: Object) -> Iterator[Cause]:
    """Check a question about one namespace: it is asked where it is about."""
    spec: Object = review.get("spec") or {}
    yield from subject_causes(spec)
    namespace = find_at(spec, "resourceAttributes", "namespace")
    path = spec.get("nonResourceAttributes")
    is_elsewhere = namespace != metadata_of(review).get("namespace")
    if spec.get("resourceAttributes") is not None and is_elsewhere:
        where = f"{_RESOURCE}.namespace"
        yield causes.invalid(where, namespace or "", "must match metadata.namespace")
    if path is not None:
        yield causes.invalid(_PATH, _shown(path), "disallowed on this kind of request")


def metadata_causes(review: Object, *, may_have_namespace: bool = False) -> Iterator[Cause]:
    """Check that nobody tries to give a question a name: it is not kept."""
    ignored = {"managedFields", "creationTimestamp"}
    if may_have_namespace:
        ignored.add("namespace")
    given = {key: value for key, value in metadata_of(review).items() if value}
    if given.keys() - ignored:
        yield causes.invalid("metadata", given, "must be empty")


def _selector_causes(attributes: Object) -> Iterator[Cause]:
    for name in ("fieldSelector", "labelSelector"):
        selector = attributes.get(name)
        if selector is None:
            continue
        place = f"{_RESOURCE}.{name}"
        raw, requirements = selector.get("rawSelector"), selector.get("requirements")
        if raw and requirements:
            why = "may not specified at the same time as requirements"
            yield causes.invalid(f"{place}.rawSelector", raw, why)
        if not raw and not requirements:
            why = f"when {place} is specified, requirements or rawSelector is required"
            yield causes.required(f"{place}.requirements", why)


def _shown(path_attributes: Any) -> Object:
    """Return the attributes of a path as Kubernetes quotes them, under its own field names."""
    return {
        "Path": path_attributes.get("path") or "",
        "Verb": path_attributes.get("verb") or "",
    }
