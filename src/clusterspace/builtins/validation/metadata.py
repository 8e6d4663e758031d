"""The rules of `metadata`: names, labels, annotations, owners and finalizers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from clusterspace.builtins.validation.rules import (
    NOT_NEGATIVE,
    immutable,
    invalid_struct,
    problems_at,
    struct_in,
    structs_in,
    texts_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    NameCheck,
    label_key_problems,
    label_value_problems,
    prefix_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object, metadata_of

_MOST_ANNOTATION_BYTES: Final = 256 * 1024
_GARBAGE_COLLECTION: Final = ("orphan", "foregroundDeletion")


def check_metadata(new: Object, name_problems: NameCheck) -> Iterator[Cause]:
    """Check the metadata of a new object."""
    metadata = metadata_of(new)
    base, name = metadata.get("generateName"), metadata.get("name")
    if base:
        problems = prefix_problems(name_problems, base)
        yield from problems_at("metadata.generateName", base, problems)
    if not name:
        yield causes.required("metadata.name", "name or generateName is required")
    else:
        yield from problems_at("metadata.name", name, name_problems(name))
    if (metadata.get("generation") or 0) < 0:
        yield causes.invalid("metadata.generation", metadata["generation"], NOT_NEGATIVE)
    yield from _check_shared(metadata)
    yield from _check_finalizers(texts_in(metadata, "finalizers"))


def check_metadata_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check what of the metadata an update changes."""
    metadata, held = metadata_of(new), metadata_of(old)
    if held.get("deletionTimestamp"):
        yield from _check_new_finalizers(metadata, held)
    for field in _IMMUTABLE:
        yield from immutable(metadata.get(field), held.get(field), f"metadata.{field}")
    yield from _check_shared(metadata)
    yield from _check_finalizers(texts_in(metadata, "finalizers"))


_IMMUTABLE: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def check_labels(labels: Mapping[str, str], path: str) -> Iterator[Cause]:
    """Check keys and values of labels."""
    for key, value in labels.items():
        yield from problems_at(path, key, label_key_problems(key))
        yield from problems_at(path, value, label_value_problems(value))


def check_annotations(annotations: Mapping[str, str], path: str) -> Iterator[Cause]:
    """Check the keys of annotations, in any case, and how much they hold together."""
    for key in annotations:
        yield from problems_at(path, key, qualified_name_problems(key.lower()))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _MOST_ANNOTATION_BYTES:
        yield causes.too_long(path, _MOST_ANNOTATION_BYTES)


def _check_shared(metadata: Object) -> Iterator[Cause]:
    yield from check_labels(struct_in(metadata, "labels"), "metadata.labels")
    yield from check_annotations(struct_in(metadata, "annotations"), "metadata.annotations")
    yield from _check_owners(structs_in(metadata, "ownerReferences"))


def _check_owners(owners: list[Object]) -> Iterator[Cause]:
    path = "metadata.ownerReferences"
    controller = ""
    for owner in owners:
        yield from _check_owner(owner, path)
        if not owner.get("controller"):
            continue
        name = f"{owner.get('kind')}/{owner.get('name')}"
        if controller:
            why = (
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {controller} and {name}'
            )
            yield invalid_struct(path, [_in_order(each) for each in owners], why)
        controller = controller or name


def _check_owner(owner: Object, path: str) -> Iterator[Cause]:
    api_version = str(owner.get("apiVersion") or "")
    if not api_version.rpartition("/")[2]:
        yield causes.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
    for field in ("kind", "name", "uid"):
        if not owner.get(field):
            yield causes.invalid(f"{path}.{field}", owner.get(field, ""), "must not be empty")
    if (api_version, owner.get("kind")) == ("v1", "Event"):
        why = "/v1, Kind=Event is disallowed from being an owner"
        yield invalid_struct(path, _in_order(owner), why)


_OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def _in_order(owner: Object) -> Object:
    """Return a reference with its fields in the order messages show them."""
    return {field: owner[field] for field in _OWNER_FIELDS if field in owner}


def _check_finalizers(finalizers: list[str]) -> Iterator[Cause]:
    path = "metadata.finalizers"
    for finalizer in finalizers:
        yield from problems_at(path, finalizer, qualified_name_problems(finalizer))
    if all(each in finalizers for each in _GARBAGE_COLLECTION):
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        yield causes.invalid(path, finalizers, why)


def check_owned_finalizers(finalizers: list[str], path: str) -> Iterator[Cause]:
    """Check that each finalizer is a standard one or says whose it is."""
    for index, finalizer in enumerate(finalizers):
        yield from check_owned_finalizer(finalizer, f"{path}[{index}]")


def check_owned_finalizer(finalizer: str, path: str) -> Iterator[Cause]:
    """Check that a finalizer is a standard one or says whose it is."""
    if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
        why = "name is neither a standard finalizer name nor is it fully qualified"
        yield causes.invalid(path, finalizer, why)


_STANDARD_FINALIZERS: Final = ("kubernetes", *_GARBAGE_COLLECTION)


def _check_new_finalizers(metadata: Object, held: Object) -> Iterator[Cause]:
    wanted = texts_in(metadata, "finalizers")
    added = sorted(set(wanted) - set(cast("list[Any]", texts_in(held, "finalizers"))))
    if added:
        listed = ", ".join(f'"{each}"' for each in added)
        why = (
            "no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{listed}}}"
        )
        yield causes.forbidden("metadata.finalizers", why)
