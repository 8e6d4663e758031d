"""Server-side apply: one applier's configuration, merged into an object that others own too.

configuration ─ fits the schema? ─ merge into live ─ drop what the applier gave up
              ─ does that change what others own? ─ no, or forced: the applier owns its fields

An example. Alice applied `replicas: 2, image: a`, a controller updated `replicas: 5`, and Alice
applies `image: b`. The merge sets the image. She gave up `replicas`, but the controller owns it, so
it stays 5. Had she applied `replicas: 2` again, that would change a field the controller owns: a
conflict, or, if forced, the controller's loss of the field.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import (
    ApiError,
    BadRequest,
    Cause,
    Conflict,
    Details,
    Malformed,
    MalformedObject,
)
from clusterspace.kube.causes import MOST
from clusterspace.kube.managed_fields.field_sets import FIELD, INDEX, FieldSet, as_text, path_text
from clusterspace.kube.managed_fields.managers import (
    APPLY,
    NEVER_OWNED,
    Entries,
    Entry,
    Identity,
    Write,
    raw_entries,
    read_entries,
    surrendered,
    taken_over,
    with_entries,
    without_entries,
)
from clusterspace.kube.managed_fields.typed_values import (
    Comparison,
    compare,
    fitted,
    given_up,
    item_element,
    item_schema,
    merge,
    object_schema,
    owned_fields,
    remove,
    same,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    metadata_of,
    name_of,
    namespace_of,
    with_value,
    without_value,
)
from clusterspace.kube.schemas.model import ANYTHING, Schema

BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""Owns what was there when an object without owners is first applied to."""

KUBECTL: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATION_PLACE: Final = ("metadata", "annotations", ANNOTATION)

# The size Kubernetes allows all annotations of an object together.
_MOST_ANNOTATION_BYTES: Final = 256 * 1024

# Formats under which a string is still just a string to Kubernetes; under others anything goes.
_PLAIN_FORMATS: Final = ("", "byte")

_GO_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "bool",
    dict: "map[string]interface {}",
    list: "[]interface {}",
}

# Manifests made by Go programs carry these as null; that says nothing about them.
_SYSTEM_METADATA: Final = frozenset(
    {"creationTimestamp", "deletionTimestamp", "generation", "resourceVersion", "selfLink", "uid"}
)


def apply(live: Object | None, applied: Object, write: Write, *, force: bool = False) -> Object:
    """Return the object after the apply; the live object itself when nothing is different.

    `live` is None when the apply creates the object. Raises `Conflict` when the apply would
    change what others own, unless it is forced: then the others lose those fields.
    """
    if applied.get("apiVersion") != write.api_version:
        group, _, version = str(applied.get("apiVersion")).rpartition("/")
        named = f"{group}/{version}, Kind={applied.get('kind')}"
        raise BadRequest(f"invalid object type: {named}")
    if not isinstance(applied.get("metadata", {}), dict):
        raise BadRequest("metadata must be an object")
    if raw_entries(applied) is not None:
        raise BadRequest("metadata.managedFields must be nil")
    schema = object_schema(write.schema)
    metadata = metadata_of(applied)
    nulls = {name for name in _SYSTEM_METADATA & metadata.keys() if metadata[name] is None}
    kept_metadata = {name: value for name, value in metadata.items() if name not in nulls}
    configuration = {**applied, "metadata": kept_metadata} if nulls else applied
    check_fits(configuration, schema, "patch")

    entries = _entries_before(live, schema, write)
    before = without_entries(live or {})
    claimed = write.seen(owned_fields(configuration, schema))
    own = write.entry(APPLY, write.ownable(claimed), write.now)
    former = entries.get(own.identity)
    others = {identity: entry for identity, entry in entries.items() if entry is not former}

    after = merge(before, configuration, schema)
    if former is not None:
        # A field of the applier's former configuration goes, unless it is still applied, owned by
        # somebody else, or of the kind that nobody can own.
        kept = claimed | NEVER_OWNED
        for entry in others.values():
            kept = kept | entry.fields
        after = remove(after, given_up(former.fields, kept, schema), schema)
    comparison = write.seen_in(compare(before, after, schema))
    if not force:
        _check_conflicts(others, comparison, before, write)
    if live is not None and same(before, after):
        # Nothing but ownership can differ: the time says when the applier last changed a value.
        own = replace(own, time=former and former.time)
    result = with_entries(after, {**surrendered(others, comparison), own.identity: own})
    if own.manager == KUBECTL:
        result = _with_annotation_renewed(result, applied)
    return live if live is not None and same(live, result) else result


def _entries_before(live: Object | None, schema: Schema, write: Write) -> Entries:
    """Return the owners before the apply; fields without any get one now."""
    if live is None:
        return {}
    try:
        entries = read_entries(raw_entries(live))
    except Malformed as error:
        raise ApiError(f"failed to decode managed fields: {error.message}") from error
    if entries:
        return {
            identity: replace(entry, fields=fitted(entry.fields, schema))
            for identity, entry in entries.items()
        }
    found = write.seen_in(compare(write.blank, without_entries(live), schema))
    return taken_over({}, found, replace(write, manager=BEFORE_FIRST_APPLY))


# Conflicts: whose fields the apply would change.


def _check_conflicts(others: Entries, comparison: Comparison, before: Object, write: Write) -> None:
    # Changed fields are contested, removed ones are not: what the applier gave up goes only where
    # nobody else owns it. A field that is applied with the value it has already is not changed
    # either, so several appliers may own it, and each can give it up without taking it away.
    contested = {identity: entry.fields & comparison.changed for identity, entry in others.items()}
    conflicts = {identity: fields for identity, fields in contested.items() if fields}
    if conflicts and write.manager == KUBECTL:
        # `kubectl apply` of former times wrote by update, so its fields belong to an updater such
        # as `kubectl-client-side-apply`. An apply by the manager `kubectl` may take them over while
        # they still are what the annotation says; what somebody changed since is contested.
        schema = object_schema(write.schema)
        own = _fields_still_as_applied(before, schema, write.api_version)
        conflicts = {owner: rest for owner, fields in conflicts.items() if (rest := fields - own)}
    if conflicts:
        raise conflict_error(conflicts, others)


def conflict_error(conflicts: Mapping[Identity, FieldSet], entries: Entries) -> Conflict:
    """Return the refusal, with one cause for each contested field."""
    contested = [(owner, path) for owner in sorted(conflicts) for path in conflicts[owner].paths()]
    causes = tuple(
        Cause(
            "FieldManagerConflict", f"conflict with {_owner_text(entries[owner])}", path_text(path)
        )
        for owner, path in contested[:MOST]
    )
    count = len(contested)
    if count == 1:
        message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
        return Conflict(message, Details(causes=causes))
    # kubectl prints this text as it is: each owner once, its fields in a list below.
    lines: list[str] = []
    for owner_message, group in groupby(causes, key=lambda cause: cause.message):
        lines.append(f"{owner_message.replace('conflict', 'conflicts', 1)}:")
        lines.extend(f"- {cause.field}" for cause in group)
    if count > len(causes):
        lines.append(f"and {count - len(causes)} more")
    listed = "\n".join(lines)
    return Conflict(f"Apply failed with {count} conflicts: {listed}", Details(causes=causes))


def _owner_text(entry: Entry) -> str:
    """Return an owner as messages name it; an updater's fields are known by version as well."""
    text = json.dumps(entry.manager, ensure_ascii=False)
    if entry.subresource:
        text = f"{text} with subresource {json.dumps(entry.subresource, ensure_ascii=False)}"
    return text if entry.operation == APPLY else f"{text} using {entry.api_version}"


# The annotation in which `kubectl apply` kept its configuration before there were owners. Only the
# manager `kubectl` is concerned: it may take over what it applied by itself in former times, and
# keeps the annotation true as long as there is one.


def _fields_still_as_applied(live: Object, schema: Schema, api_version: str) -> FieldSet:
    """Return the fields that the annotation set and the live object still has as they were set."""
    try:
        decoded = msgspec.json.decode(_annotations(live).get(ANNOTATION, ""))
    except (msgspec.DecodeError, TypeError, UnicodeEncodeError, RecursionError):
        return FieldSet()
    configuration = cast("Object", decoded) if isinstance(decoded, dict) else {}
    if configuration.get("apiVersion") != api_version:
        return FieldSet()
    try:
        comparison = compare(configuration, without_entries(live), schema)
        applied = owned_fields(configuration, schema)
    except MalformedObject:
        return FieldSet()
    return applied - comparison.changed - comparison.removed


def _with_annotation_renewed(kube_object: Object, configuration: Object) -> Object:
    """Return the object with its annotation, if it has one, set to this configuration."""
    annotations = _annotations(kube_object)
    if not annotations.get(ANNOTATION):
        return kube_object
    bare = without_value(configuration, *_ANNOTATION_PLACE)
    text = msgspec.json.encode(bare, order="sorted").decode() + "\n"
    renewed = {**annotations, ANNOTATION: text}
    size = sum(len(key) + len(value.encode()) for key, value in renewed.items())
    if size > _MOST_ANNOTATION_BYTES:
        return without_value(kube_object, *_ANNOTATION_PLACE)
    return with_value(kube_object, text, *_ANNOTATION_PLACE)


def _annotations(kube_object: Object) -> dict[str, Any]:
    annotations = annotations_of(kube_object)
    return cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else {}


# Whether a configuration fits its schema: every mistake, in the words of Kubernetes. Ownership is a
# matter of paths, and a value that does not fit its schema has no right paths. So this comes before
# anything is merged, and long before the object is validated.


def check_fits(kube_object: Object, schema: Schema, what: str) -> None:
    """Raise the error Kubernetes gives for an object that does not fit: a 500 with no reason."""
    listed = find_mistakes(kube_object, schema)
    if not listed:
        return
    group, _, version = str(kube_object.get("apiVersion") or "").rpartition("/")
    written = f"{group}/{version}, Kind={kube_object.get('kind') or ''}"
    identity = f"{namespace_of(kube_object)}/{name_of(kube_object)}; {written}"
    raise ApiError(f"failed to create typed {what} object ({identity}): {listed}")


def find_mistakes(kube_object: Object, schema: Schema) -> str:
    """Return where an object does not fit its schema, as one text; empty when it does."""
    mistakes = list(_mistakes(kube_object, schema, keeps_unknown=False))
    return "\n  ".join(("errors:", *mistakes)) if len(mistakes) > 1 else "".join(mistakes)


def _mistakes(value: Any, schema: Schema, *, keeps_unknown: bool) -> Iterator[str]:
    """Yield each mistake as `path: mistake`, the path from here on."""
    if value is None:
        return
    keeps_unknown = keeps_unknown or schema.preserves_unknown_fields
    if isinstance(value, dict) and schema.type in ("", "object") and not schema.is_int_or_string:
        fields = cast("Object", value)
        for name in sorted(fields):
            inner = schema.field(name)
            if inner is None and schema.properties and not keeps_unknown:
                yield f".{name}: field not declared in schema"
                return
            place = as_text(FIELD + name)
            for mistake in _mistakes(fields[name], inner or ANYTHING, keeps_unknown=keeps_unknown):
                yield place + mistake
    elif isinstance(value, list) and schema.type in ("", "array") and not schema.is_int_or_string:
        yield from _mistakes_in_list(cast("list[Any]", value), schema, keeps_unknown)
    elif (mistake := _type_mistake(value, schema)) is not None:
        yield f": {mistake}"


def _mistakes_in_list(items: list[Any], schema: Schema, keeps_unknown: bool) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        try:
            is_atomic = schema.list_type == "atomic"
            element = f"{INDEX}{index}" if is_atomic else item_element(item, schema)
        except MalformedObject as error:
            yield f": element {index}: {error.message}"
            return
        place = as_text(element)
        if element in seen:
            yield f": duplicate entries for key {place}"
        seen.add(element)
        for mistake in _mistakes(item, item_schema(schema), keeps_unknown=keeps_unknown):
            yield place + mistake


def _type_mistake(value: Any, schema: Schema) -> str | None:
    """Return the mistake about the type of a value, if there is one."""
    wanted = schema.type
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == "object":
        return f"expected map, got &{{{_go_text(value)}}}"
    if wanted == "array":
        return f"expected list, got &{{{_go_text(value)}}}"
    if wanted in ("integer", "number") and not is_number:
        name = _GO_TYPES.get(cast("type[Any]", type(value)), type(value).__name__)
        return f"expected numeric (int or float), got {name}"
    if wanted == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{_go_text(value)}}}"
    if wanted == "string" and schema.raw.get("format", "") in _PLAIN_FORMATS:
        if isinstance(value, str):
            return None
        return f"expected string, got &value.valueUnstructured{{Value:{_go_text(value)}}}"
    if isinstance(value, dict | list):
        return f"expected any scalar, got &{{{_go_text(value)}}}"
    return None


def _go_text(value: Any) -> str:
    """Return a value as Go prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = sorted(cast("Object", value).items())
        return "map[" + " ".join(f"{name}:{_go_text(part)}" for name, part in pairs) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_go_text(item) for item in cast("list[Any]", value)) + "]"
    return str(value)
