"""Fill in what an object leaves out, from the defaults in its schema.

A default counts only where its parent is there, given or itself by default. A null that the
schema does not allow is treated as left out.
"""

from typing import Any, cast

from clusterspace.errors import MalformedObject
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema


def apply_defaults(value: Any, schema: Schema) -> Any:
    """Return the value with its defaults; the same object when there was nothing to fill in."""
    try:
        return _filled(value, schema)
    except RecursionError as error:
        raise MalformedObject("the object is nested too deeply to be defaulted") from error


def _filled(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        return _filled_object(cast("Object", value), schema)
    if isinstance(value, list) and schema.items is not None:
        return _filled_list(cast("list[Any]", value), schema.items)
    return cast("Any", value)


def _filled_object(present: Object, schema: Schema) -> Object:
    changed: Object = {}
    dropped: set[str] = set()
    named, free = schema.properties, schema.additional
    for name, held in present.items():
        known = named.get(name, free)
        if known is None or not (held is None or isinstance(held, (dict, list))):
            continue
        filled = _filled_or_default(held, known)
        if filled is None and not known.is_nullable:
            dropped.add(name)
        elif filled is not held:
            changed[name] = filled
    for name, known in schema.defaulted.items():
        if name not in present:
            changed[name] = _filled(known.default, known)
    if not changed and not dropped:
        return present
    return {name: held for name, held in {**present, **changed}.items() if name not in dropped}


def _filled_list(present: list[Any], schema: Schema) -> list[Any]:
    filled = [_filled_or_default(held, schema) for held in present]
    unchanged = all(new is old for new, old in zip(filled, present, strict=True))
    return present if unchanged else filled


def _filled_or_default(held: Any, schema: Schema) -> Any:
    is_refused_null = held is None and not schema.is_nullable
    return _filled(schema.default if is_refused_null else held, schema)
