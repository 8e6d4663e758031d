"""JSON patch and JSON merge patch, the patches of the RFCs, and the pointers that JSON patch uses.

A JSON patch (RFC 6902) is a list of operations, each on one place that a JSON pointer (RFC 6901)
names. A merge patch (RFC 7386) is an object with the fields that change, null for those that go.
Nothing here edits what it is given: a result shares with its inputs whatever did not change.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace import errors
from clusterspace.kube.json_errors import cannot_unmarshal
from clusterspace.kube.objects import Object

# JSON pointers: `/metadata/annotations/example.com~1owner` as steps, and back.

Steps = tuple[str, ...]
"""The keys and indices from the root to one place, unescaped."""

_BAD_ESCAPE: Final = re.compile(r"~(?![01])")

_LONGEST_INDEX: Final = 9
"""Digits in an index: enough for any list we can hold, too few for int() to refuse."""


def read_pointer(text: str) -> Steps:
    """Return the steps of a pointer; ValueError when it is not one."""
    if not text:
        return ()
    if not text.startswith("/"):
        raise ValueError(f"the JSON pointer {text!r} must be empty or start with a slash")
    if "~" not in text:
        return tuple(text[1:].split("/"))
    if _BAD_ESCAPE.search(text):
        raise ValueError(f"the JSON pointer {text!r} has a ~ that is neither ~0 nor ~1")
    # ~1 first: the other way round, ~01 would become a slash.
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def write_pointer(steps: Steps) -> str:
    """Return the pointer text of these steps."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def find_index(step: str, length: int) -> int | None:
    """Return the index a step spells in a list, or None.

    Leading zeros are no index. A sign counts from the end, which RFC 6901 does not know and
    kube-apiserver accepts: `-1` is the last element.
    """
    digits = step.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _LONGEST_INDEX:
        return None
    if digits[0] == "0" and step != "0":
        return None
    index = int(step)
    if index >= 0:
        return index
    return index + length if index + length >= 0 else None


# JSON patch. Read once with `parse_json_patch`, applied as often as a retried write needs with
# `apply_json_patch`. Like kube-apiserver and unlike the RFC: a missing value is null, `test` takes
# a missing key for null, `replace` sets a missing key, a negative index counts from the end, only
# `replace` and `test` may name the whole document, and numbers are equal when they are written the
# same. Like the RFC and unlike kube-apiserver: `copy` needs something to be there, pointers start
# with a slash, and an index has no leading zeros.

MAX_OPERATIONS: Final = 10_000
"""kube-apiserver's limit, so that a small body cannot buy unbounded work."""

MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
"""kube-apiserver's limit on what all `copy` operations of one patch add, as encoded JSON."""

_NOTHING_AT: Final = "there is nothing at"
_OPERATIONS: Final = frozenset({"add", "remove", "replace", "move", "copy", "test"})
_HAVE_SOURCE: Final = frozenset({"move", "copy"})
_MAY_NAME_THE_DOCUMENT: Final = frozenset({"replace", "test"})

_encoder: Final = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a patch; `source` is `from`, and empty for operations that have none."""

    name: str
    path: Steps
    source: Steps
    value: Any


def parse_json_patch(raw: Any) -> tuple[Operation, ...]:
    """Read a decoded body; null is no operations, as for kube-apiserver."""
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise _unreadable(raw, "Go value of type []handlers.jsonPatchOp", place="")
    written = cast("list[Any]", raw)
    if len(written) > MAX_OPERATIONS:
        raise errors.RequestEntityTooLarge(
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(written)}"
        )
    # All are read before any is carried out: a patch that is wrong at its end changes nothing.
    return tuple(_read_operation(one, f"[{index}]") for index, one in enumerate(written))


def apply_json_patch(document: Object, operations: tuple[Operation, ...]) -> Object:
    """Return the document with every operation carried out, in order; all of them or none."""
    draft = _Draft(document)
    try:
        for operation in operations:
            try:
                draft.carry_out(operation)
            except errors.InapplicablePatch as error:
                error.words = _words_for(operation, error.problem)
                raise
    except RecursionError as error:
        raise errors.InapplicablePatch("the patched object is nested too deeply") from error
    return draft.document


def _words_for(operation: Operation, problem: str) -> str:
    """Return what Kubernetes says of an operation that finds nothing where it should be done."""
    if not problem.startswith(_NOTHING_AT):
        return problem
    path = write_pointer(operation.path)
    match operation.name:
        case "remove":
            key = operation.path[-1]
            return (
                f"error in remove for path: '{path}': "
                f"Unable to remove nonexistent key: {key}: missing value"
            )
        case "move":
            key = operation.source[-1]
            return (
                f"error in move for path: '{key}': "
                f"Unable to remove nonexistent key: {key}: missing value"
            )
        case name:
            return f'{name} operation does not apply: doc is missing path: "{path}": missing value'


def _read_operation(raw: Any, place: str) -> Operation:
    if raw is None:
        raise errors.InapplicablePatch("an operation is null", place=place)
    if not isinstance(raw, dict):
        raise _unreadable(raw, "Go value of type handlers.jsonPatchOp", place)
    fields = cast("Object", raw)
    name = _read_text(fields, "op", place)
    if name not in _OPERATIONS:
        unknown = errors.InapplicablePatch(f"there is no operation {name!r}", place=f"{place}.op")
        unknown.words = f"Unexpected kind: {name}"
        raise unknown
    path = _read_steps(fields, "path", place)
    source = _read_steps(fields, "from", place) if name in _HAVE_SOURCE else ()
    if not path and name not in _MAY_NAME_THE_DOCUMENT:
        problem = f"{name} cannot have the whole document as its path"
        raise errors.InapplicablePatch(problem, place=f"{place}.path")
    if not source and name in _HAVE_SOURCE:
        problem = f"{name} cannot have the whole document as its from"
        raise errors.InapplicablePatch(problem, place=f"{place}.from")
    return Operation(name, path, source, fields.get("value"))


def _read_steps(fields: Object, key: str, place: str) -> Steps:
    text = _read_text(fields, key, place)
    try:
        return read_pointer(text)
    except ValueError as error:
        raise errors.InapplicablePatch(str(error), place=f"{place}.{key}") from error


def _read_text(fields: Object, key: str, place: str) -> str:
    text = fields.get(key)
    if text is None:
        raise errors.InapplicablePatch(f"the operation has no {key}", place=place)
    if not isinstance(text, str):
        wanted = f"Go struct field jsonPatchOp.{key} of type string"
        raise _unreadable(text, wanted, f"{place}.{key}")
    return text


def _unreadable(value: Any, wanted: str, place: str) -> errors.MalformedPatch:
    problem = cannot_unmarshal(value, into=wanted)
    return errors.MalformedPatch(f"error decoding patch: {problem}", place=place)


class _Draft:
    """A document under change: each container is copied when first written to, and only then.

    Copying along the path for every operation would cost operations times width: 10,000 `add`s
    to one large map are well within the limits and would take many seconds. So the draft knows
    which containers are its own and edits those in place; nobody else has seen them yet.
    """

    def __init__(self, document: Object) -> None:
        self.document = document
        self._copied_bytes = 0
        # By id, and holding the container: an id is only unique while its owner lives.
        self._own: dict[int, Any] = {}

    def carry_out(self, operation: Operation) -> None:
        path, value = operation.path, operation.value
        match operation.name:
            case "add":
                self._add(path, value)
            case "remove":
                self._remove(path)
            case "replace" if path:
                parent = self._writable_parent(path)
                # RFC 6902 wants something to be there; kube-apiserver does not, and clients lean
                # on it.
                is_map = isinstance(parent, dict)
                parent[path[-1] if is_map else _key_in(parent, path, len(path) - 1)] = value
            case "replace":
                if not isinstance(value, dict):
                    problem = "the document can only be replaced by an object"
                    raise errors.InapplicablePatch(problem)
                self.document = cast("Object", value)
            case "move":
                self._add(path, self._remove(operation.source))
            case "copy":
                encoded = _encoder.encode(self._get(operation.source))
                self._copied_bytes += len(encoded)
                if self._copied_bytes > MAX_COPIED_BYTES:
                    problem = f"copy operations may add {MAX_COPIED_BYTES} bytes in all, no more"
                    place = write_pointer(operation.source)
                    raise errors.InapplicablePatch(problem, place=place)
                # Not the same containers: an edit of one place must not show in the other.
                self._add(path, msgspec.json.decode(encoded))
            case _:
                self._test(path, value)

    def _add(self, path: Steps, value: Any) -> None:
        parent = self._writable_parent(path)
        if isinstance(parent, dict):
            parent[path[-1]] = value
            return
        # `-` and the length of the list both mean its end.
        index = len(parent) if path[-1] == "-" else find_index(path[-1], len(parent) + 1)
        if index is None or index > len(parent):
            raise _nothing_at(path, len(path) - 1)
        parent.insert(index, value)

    def _remove(self, path: Steps) -> Any:
        parent = self._writable_parent(path)
        return parent.pop(_key_in(parent, path, len(path) - 1))

    def _test(self, path: Steps, value: Any) -> None:
        parent = self._get(path[:-1])
        if path and isinstance(parent, dict):
            found = cast("Object", parent).get(path[-1])
        else:
            found = self._get(path)
        # By their encoding, for Python finds True equal to 1; scalars of one type need no such
        # care.
        if type(found) is type(value) and not isinstance(found, dict | list):
            is_same = found == value
        else:
            is_same = _encoder.encode(found) == _encoder.encode(value)
        if not is_same:
            problem = "the value is not the one the test asks for"
            raise errors.PatchTestFailed(problem, place=write_pointer(path))

    def _get(self, path: Steps) -> Any:
        value: Any = self.document
        for depth in range(len(path)):
            value = value[_key_in(value, path, depth)]
        return value

    def _writable_parent(self, path: Steps) -> Any:
        """Return the container the last step is in, made our own along with those above it."""
        container = self.document = self._made_own(self.document, path, 0)
        for depth in range(len(path) - 1):
            key = _key_in(container, path, depth)
            inner = self._made_own(container[key], path, depth + 1)
            container[key] = inner
            container = inner
        return container

    def _made_own(self, container: Any, path: Steps, depth: int) -> Any:
        if id(container) in self._own:
            return container
        if not isinstance(container, dict | list):
            raise _nothing_at(path, depth)
        own = cast("Any", container).copy()
        self._own[id(own)] = own
        return own


def _key_in(container: Any, path: Steps, depth: int) -> str | int:
    """Return the key or index of a step of the path, which must be in its container."""
    step = path[depth]
    if isinstance(container, dict):
        if step in container:
            return step
    elif isinstance(container, list):
        index = find_index(step, len(cast("list[Any]", container)))
        if index is not None and index < len(cast("list[Any]", container)):
            return index
    raise _nothing_at(path, depth)


def _nothing_at(path: Steps, depth: int) -> errors.InapplicablePatch:
    place = write_pointer(path[: depth + 1])
    return errors.InapplicablePatch(f"{_NOTHING_AT} {place}", place=place)


# JSON merge patch. One rule is kube-apiserver's and not the RFC's: nulls in objects inside a list
# go as well, so a patch never brings in a field that is there and empty at once.


def apply_merge_patch(document: Object, patch: Any) -> Object:
    """Return the document with the patch merged in; the same document for an empty patch."""
    if patch is None:
        raise errors.MalformedPatch("Invalid JSON Patch")
    if not isinstance(patch, dict):
        problem = cannot_unmarshal(patch, into="Go value of type map[string]interface {}")
        raise errors.MalformedPatch(f"error decoding patch: {problem}")
    try:
        return _merged(document, cast("Object", patch))
    except RecursionError as error:
        raise errors.MalformedPatch("the patch is nested too deeply") from error


def _merged(document: Object, patch: Object) -> Object:
    if not patch:
        return document
    merged = dict(document)
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
            continue
        current = merged.get(key)
        if isinstance(change, dict) and isinstance(current, dict):
            merged[key] = _merged(cast("Object", current), cast("Object", change))
        else:
            merged[key] = _without_nulls(change)
    return merged


def _without_nulls(value: Any) -> Any:
    """Return the value with no null fields in any object in it; null list elements stay."""
    if isinstance(value, dict):
        fields = cast("Object", value)
        return {key: _without_nulls(part) for key, part in fields.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(element) for element in cast("list[Any]", value)]
    return value
