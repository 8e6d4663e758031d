"""Templates to pods, and to the hash that names a revision."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clusterspace.kube.objects import Object, labels_of, metadata_of, name_of, namespace_of, uid_of

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels, so that no hash spells a word; as Kubernetes' own."""

_HASH_LENGTH: Final = 10
HASH_LABEL: Final = "pod-template-hash"


def template_hash(template: Mapping[str, Any], salt: int = 0) -> str:
    """Return a short name for a template: equal templates, equal names.

    The salt is a workload's collision count, which makes another name for the same template.
    """
    text = msgspec.json.encode((template, salt), order="sorted")
    number = int.from_bytes(hashlib.sha256(text).digest()[:8])
    digits: list[str] = []
    for _ in range(_HASH_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def owner_reference(owner: Object) -> Object:
    """Return the reference that makes `owner` the controller of what carries it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def new_pod(
    owner: Object,
    template: Object,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return a pod of a template; without a name, the API makes one from the owner's."""
    held = metadata_of(template)
    metadata: Object = {
        "namespace": namespace_of(owner),
        "ownerReferences": [owner_reference(owner)],
        "labels": {**(held.get("labels") or {}), **(labels or {})},
    }
    metadata |= {"name": name} if name else {"generateName": f"{name_of(owner)}-"}
    noted: dict[str, str] = {**(held.get("annotations") or {}), **(annotations or {})}
    if noted:
        metadata["annotations"] = noted
    if held.get("finalizers"):
        metadata["finalizers"] = held["finalizers"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def with_template_label(template: Object, key: str, value: str) -> Object:
    """Return the template with one more label on its pods."""
    metadata = metadata_of(template)
    labels = {**labels_of(template), key: value}
    return {**template, "metadata": {**metadata, "labels": labels}}


def without_template_label(template: Object, key: str) -> Object:
    """Return the template without a label on its pods."""
    labels = {name: value for name, value in labels_of(template).items() if name != key}
    return {**template, "metadata": {**metadata_of(template), "labels": labels}}
