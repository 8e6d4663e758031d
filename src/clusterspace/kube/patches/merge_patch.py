"""JSON merge patch (RFC 7386): an object with the fields that change, null for those that go.

One rule is kube-apiserver's and not the RFC's: nulls in objects inside a list go as well, so a
patch never brings in a field that is there and empty at once.
"""

from typing import Any, cast

from clusterspace import errors
from clusterspace.kube.json_errors import cannot_unmarshal
from clusterspace.kube.objects import Object


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
