"""Which causes a change is to blame for: what was wrong before and stays as it was is let be.

Schemas get stricter while objects are stored. Somebody who adds a label must not have to mend a
field that nobody touched. Fields are compared with what they were; so are elements of `map`
lists. Elements of other lists cannot be told apart, so such a list is compared as one.
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from clusterspace.errors import Cause
from clusterspace.kube.field_paths import Key, Step, Steps, dotted_text, field_text
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema


def still_new(
    found: Iterable[Cause], new: Object, old: Object, schema: Schema
) -> tuple[Cause, ...]:
    """Return the causes that are not about something unchanged."""
    listed = tuple(found)
    if not listed:
        return ()
    unchanged = tuple(_unchanged(new, old, schema, ()))
    return tuple(cause for cause in listed if not _is_within(cause.field, unchanged))


def _is_within(field: str, unchanged: tuple[str, ...]) -> bool:
    return any(field == path or field.startswith((f"{path}.", f"{path}[")) for path in unchanged)


def _unchanged(new: Any, old: Any, schema: Schema, steps: Steps) -> Iterator[str]:
    """Yield the paths of the largest parts that are as they were."""
    if steps and new == old:
        # Some causes write a free key in brackets, some after a dot.
        yield from (field_text(steps), dotted_text(steps))
    elif isinstance(new, dict) and isinstance(old, dict):
        held, before = cast("Object", new), cast("Object", old)
        for name in held.keys() & before.keys():
            known = schema.field(name)
            if known is not None:
                step: Step = name if name in schema.properties else Key(name)
                yield from _unchanged(held[name], before[name], known, (*steps, step))
    elif isinstance(new, list) and isinstance(old, list) and schema.list_type == "map":
        yield from _unchanged_elements(
            cast("list[Any]", new), cast("list[Any]", old), schema, steps
        )


def _unchanged_elements(
    new: list[Any], old: list[Any], schema: Schema, steps: Steps
) -> Iterator[str]:
    before = {_key_of(each, schema): each for each in old}
    for index, element in enumerate(new):
        key = _key_of(element, schema)
        if schema.items is not None and key in before:
            yield from _unchanged(element, before[key], schema.items, (*steps, index))


def _key_of(element: Any, schema: Schema) -> tuple[str, ...]:
    held = cast("Object", element) if isinstance(element, dict) else {}
    return tuple(repr(held.get(key)) for key in schema.list_map_keys)
