"""Reading and copy-on-write editing of plain-dict Kubernetes objects.

Objects are dictionaries straight from the decoder and are shared freely, so nobody edits one in
place: every edit here returns a new object that shares whatever did not change.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object, or a part of one, as decoded JSON."""

_encoder: Final = msgspec.json.Encoder(order="sorted")

Metadata: TypeAlias = Mapping[str, Any]


def metadata_of(kube_object: Mapping[str, Any]) -> Object:
    """Return the object's metadata, or an empty one."""
    return _dict_at(kube_object, "metadata")


def name_of(kube_object: Mapping[str, Any]) -> str:
    """Return `metadata.name`, or an empty string."""
    return str(metadata_of(kube_object).get("name") or "")


def namespace_of(kube_object: Mapping[str, Any]) -> str:
    """Return `metadata.namespace`, or an empty string."""
    return str(metadata_of(kube_object).get("namespace") or "")


def uid_of(kube_object: Mapping[str, Any]) -> str:
    """Return `metadata.uid`, or an empty string."""
    return str(metadata_of(kube_object).get("uid") or "")


def resource_version_of(kube_object: Mapping[str, Any]) -> str:
    """Return `metadata.resourceVersion`, or an empty string."""
    return str(metadata_of(kube_object).get("resourceVersion") or "")


def labels_of(kube_object: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels, or none."""
    return _dict_at(metadata_of(kube_object), "labels")


def annotations_of(kube_object: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations, or none."""
    return _dict_at(metadata_of(kube_object), "annotations")


def finalizers_of(kube_object: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the finalizers an object has."""
    return tuple(metadata_of(kube_object).get("finalizers") or ())


def is_being_deleted(kube_object: Mapping[str, Any]) -> bool:
    """Whether somebody asked for the object to go; it stays until its finalizers are gone."""
    return bool(metadata_of(kube_object).get("deletionTimestamp"))


def identity_of(value: Any) -> bytes:
    """Return bytes that are the same for equal values: what a set can hold in place of objects.

    Looking an object up in a list takes time by the length of the list, and lists may be long.
    """
    return _encoder.encode(value)


def find_at(kube_object: Any, *path: str) -> Any:
    """Return the value at a path of field names, or None when any step is missing."""
    value = kube_object
    for step in path:
        if not isinstance(value, dict):
            return None
        value = cast("Object", value).get(step)
    return value


def with_value(kube_object: Mapping[str, Any], value: Any, *path: str) -> Object:
    """Return a copy with `value` at the path, making the objects on the way."""
    return _edited(kube_object, path, lambda parent, last: {**parent, last: value})


def without_value(kube_object: Object, *path: str) -> Object:
    """Return a copy with nothing at the path; the same object when nothing was there."""
    parent = find_at(kube_object, *path[:-1])
    if not isinstance(parent, dict) or path[-1] not in parent:
        return kube_object
    return _edited(
        kube_object,
        path,
        lambda parent, last: {key: value for key, value in parent.items() if key != last},
    )


def with_metadata(kube_object: Mapping[str, Any], **fields: Any) -> Object:
    """Return a copy with these metadata fields set; a field given as None is taken out."""
    changed = {**metadata_of(kube_object), **fields}
    kept = {key: value for key, value in changed.items() if value is not None}
    return {**kube_object, "metadata": kept}


def with_finalizer(kube_object: Object, finalizer: str) -> Object:
    """Return the object with the finalizer; the same object when it had it."""
    current = finalizers_of(kube_object)
    if finalizer in current:
        return kube_object
    return with_metadata(kube_object, finalizers=[*current, finalizer])


def without_finalizer(kube_object: Object, finalizer: str) -> Object:
    """Return the object without the finalizer; the same object when it had none."""
    current = finalizers_of(kube_object)
    if finalizer not in current:
        return kube_object
    left = [each for each in current if each != finalizer]
    return with_metadata(kube_object, finalizers=left or None)


def _dict_at(kube_object: Mapping[str, Any], key: str) -> Object:
    """Return the object under a key; an empty one when there is none or it is something else."""
    value = kube_object.get(key)
    return cast("Object", value) if isinstance(value, dict) else {}


def _edited(
    kube_object: Mapping[str, Any],
    path: tuple[str, ...],
    edit: Callable[[Object, str], Object],
) -> Object:
    """Copy the objects along the path and let `edit` replace the last one."""
    first, *rest = path
    if not rest:
        return edit(dict(kube_object), first)
    inner = _dict_at(kube_object, first)
    return {**kube_object, first: _edited(inner, tuple(rest), edit)}
