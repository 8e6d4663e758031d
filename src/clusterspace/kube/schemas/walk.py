"""Every place of a value that its schema knows, one after the other, for rules of any kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

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


def places(value: Any, schema: Schema) -> Iterator[Place]:
    """Yield the value itself and every value below it that has a schema, parents first."""
    waiting = [Place(value, schema)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(reversed(list(_below(place))))


def _below(place: Place) -> Iterator[Place]:
    if isinstance(place.value, dict):
        yield from _fields(place, cast("Object", place.value))
    elif isinstance(place.value, list) and place.schema.items is not None:
        for index, element in enumerate(cast("list[Any]", place.value)):
            yield place.below(index, element, place.schema.items)


def _fields(place: Place, held: Object) -> Iterator[Place]:
    named, free = place.schema.properties, place.schema.additional
    for name, value in held.items():
        if name in named:
            yield place.below(name, value, named[name])
        elif free is not None:
            yield place.below(Key(name), value, free)
