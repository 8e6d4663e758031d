"""Every place of a value that its schema knows, one after the other, for rules of any kind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from clusterspace.kube.field_paths import Key, Step, Steps
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema


@dataclass(frozen=True, slots=True)
class Place:
    """A value, what its schema says of it, and the way to it."""

    value: Any
    schema: Schema
    steps: Steps = ()

    def below(self, step: Step, value: Any, schema: Schema) -> "Place":
        """Return the place one step down."""
        return Place(value, schema, (*self.steps, step))


Where: TypeAlias = Callable[[Schema], bool]
"""Whether what is at or below a schema is of interest."""


def _everywhere(_: Schema) -> bool:
    return True


def places(value: Any, schema: Schema, where: Where = _everywhere) -> Iterator[Place]:
    """Yield the value itself and every value below it that has a schema, parents first.

    What is not of interest is left out, and so is everything below it.
    """
    waiting = [Place(value, schema)] if where(schema) else []
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(reversed(list(_below(place, where))))


class _Embedding:
    """Whether there are whole objects at or below a schema; worked out once, kept with it."""

    def __init__(self, schema: Schema) -> None:
        below = [*schema.properties.values(), schema.additional, schema.items]
        self.is_there = schema.is_embedded_resource or any(
            holds_objects(each) for each in below if each is not None
        )


def holds_objects(schema: Schema) -> bool:
    """Tell whether whole Kubernetes objects may be at or below a schema."""
    made = schema.memo.get(_Embedding)
    if made is None:
        made = schema.memo[_Embedding] = _Embedding(schema)
    return bool(made.is_there)


def _below(place: Place, where: Where) -> Iterator[Place]:
    inner = place.schema.items
    if isinstance(place.value, dict):
        yield from _fields(place, cast("Object", place.value), where)
    elif isinstance(place.value, list) and inner is not None and where(inner):
        for index, element in enumerate(cast("list[Any]", place.value)):
            yield place.below(index, element, inner)


def _fields(place: Place, held: Object, where: Where) -> Iterator[Place]:
    named, free = place.schema.properties, place.schema.additional
    for name, value in held.items():
        if name in named:
            if where(named[name]):
                yield place.below(name, value, named[name])
        elif free is not None and where(free):
            yield place.below(Key(name), value, free)
