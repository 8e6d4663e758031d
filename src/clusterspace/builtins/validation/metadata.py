"""The rules of `metadata`: names, labels, annotations, owners, finalizers; and of selectors."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from clusterspace.builtins.validation.rules import (
    NOT_NEGATIVE,
    Check,
    at,
    each,
    immutable,
    inside,
    invalid_struct,
    of_form,
    problems_at,
    required,
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


def check_metadata_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check what of the metadata an update changes."""
    metadata, existing = metadata_of(new), metadata_of(old)
    if existing.get("deletionTimestamp"):
        wanted = texts_in(metadata, "finalizers")
        added = sorted(set(wanted) - set(cast("list[Any]", texts_in(existing, "finalizers"))))
        if added:
            listed = ", ".join(f'"{each}"' for each in added)
            why = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            yield causes.forbidden("metadata.finalizers", why)
    for field in _IMMUTABLE:
        yield from immutable(metadata.get(field), existing.get(field), f"metadata.{field}")
    yield from _check_shared(metadata)


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
    owners = structs_in(metadata, "ownerReferences")
    path = "metadata.ownerReferences"
    controller = ""
    for owner in owners:
        api_version = str(owner.get("apiVersion") or "")
        if not api_version.rpartition("/")[2]:
            yield causes.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                yield causes.invalid(f"{path}.{field}", owner.get(field, ""), "must not be empty")
        if (api_version, owner.get("kind")) == ("v1", "Event"):
            why = "/v1, Kind=Event is disallowed from being an owner"
            yield invalid_struct(path, _in_order(owner), why)
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
    finalizers, path = texts_in(metadata, "finalizers"), "metadata.finalizers"
    for finalizer in finalizers:
        yield from problems_at(path, finalizer, qualified_name_problems(finalizer))
    if all(each in finalizers for each in _GARBAGE_COLLECTION):
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        yield causes.invalid(path, finalizers, why)


_OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def _in_order(owner: Object) -> Object:
    """Return a reference with its fields in the order messages show them."""
    return {field: owner[field] for field in _OWNER_FIELDS if field in owner}


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


_NEEDS_VALUES: Final = "must be specified when `operator` is 'In' or 'NotIn'"
_TAKES_NO_VALUES: Final = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_NEEDS_ONE_VALUE: Final = "must be specified single value when `operator` is 'Lt' or 'Gt'"


def _check_values(requirement: Object, path: str) -> Iterator[Cause]:
    for index, value in enumerate(texts_in(requirement, "values")):
        yield from problems_at(f"{path}.values[{index}]", value, label_value_problems(value))


def _check_operator(requirement: Object, path: str) -> Iterator[Cause]:
    operator, values = requirement.get("operator", ""), texts_in(requirement, "values")
    if operator in ("In", "NotIn"):
        if not values:
            yield causes.required(at(path, "values"), _NEEDS_VALUES)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield causes.forbidden(at(path, "values"), _TAKES_NO_VALUES)
    else:
        yield causes.invalid(at(path, "operator"), operator, "not a valid selector operator")


def _check_node_operator(requirement: Object, path: str) -> Iterator[Cause]:
    if requirement.get("operator") not in ("Gt", "Lt"):
        yield from _check_operator(requirement, path)
    elif len(texts_in(requirement, "values")) != 1:
        yield causes.required(at(path, "values"), _NEEDS_ONE_VALUE)


def labels(field: str) -> Check:
    """Check a map of labels."""
    return lambda struct, path: check_labels(struct.get(field) or {}, at(path, field))


SELECTOR: Final = (
    labels("matchLabels"),
    each("matchExpressions", _check_operator, of_form("key", label_key_problems), _check_values),
)
"""The checks of a LabelSelector."""


def selector(field: str) -> Check:
    """Check a label selector that is there."""
    return inside(field, *SELECTOR)


NODE_TERM: Final = (
    each(
        "matchExpressions",
        _check_node_operator,
        of_form("key", label_key_problems),
        _check_values,
    ),
)
"""The checks of a NodeSelectorTerm."""


NODE_SELECTOR: Final = (
    required("nodeSelectorTerms", "must have at least one node selector term"),
    each("nodeSelectorTerms", *NODE_TERM),
)
"""The checks of a NodeSelector."""


def is_empty(label_selector: Object) -> bool:
    """Whether a selector has no requirement, and so picks everything."""
    return not label_selector.get("matchLabels") and not label_selector.get("matchExpressions")


def is_readable(label_selector: Object) -> bool:
    """Whether every requirement makes sense, so that the selector can pick anything."""
    return not any(True for check in SELECTOR for _ in check(label_selector, ""))


def matches(label_selector: Object, labels: Object) -> bool:
    """Whether a well-formed label selector picks these labels."""
    wanted = struct_in(label_selector, "matchLabels")
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    expressions = structs_in(label_selector, "matchExpressions")
    return all(_meets(expression, labels) for expression in expressions)


def _meets(requirement: Object, labels: Object) -> bool:
    key, operator = requirement.get("key"), requirement.get("operator")
    values = texts_in(requirement, "values")
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    return (key in labels) == (operator == "Exists")


def ordered(label_selector: Object) -> Object:
    """Return a selector with its fields in the order messages show them."""
    expressions = [
        {field: each[field] for field in ("key", "operator", "values") if field in each}
        for each in structs_in(label_selector, "matchExpressions")
    ]
    fields = {"matchLabels": label_selector.get("matchLabels"), "matchExpressions": expressions}
    return {field: value for field, value in fields.items() if value}
