"""JSONPath as printer columns and scale paths use it.

.name  ['name']  .a\\.b      a field
[0]  [-1]  [*]               an element, or all of them
[?(@.key=="text")]           the elements whose field has a value
..name                       a field at any depth
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace.errors import MalformedPath


@dataclass(frozen=True, slots=True)
class Child:
    """A field."""

    name: str


@dataclass(frozen=True, slots=True)
class Element:
    """An element; None stands for all of them, and for all values of an object."""

    index: int | None


@dataclass(frozen=True, slots=True)
class Filter:
    """The elements where a field compares with a value."""

    path: "JsonPath"
    is_equal: bool
    value: Any


@dataclass(frozen=True, slots=True)
class Anywhere:
    """Every value at any depth."""


Step: TypeAlias = Child | Element | Filter | Anywhere

_STEP: Final = re.compile(
    r"""\.(?P<deep>\.)
    |\.?\[\s*(?:(?P<index>-?\d+)|(?P<all>\*)|'(?P<single>[^']*)'|"(?P<double>[^"]*)")\s*\]
    |\.?\[\s*\?\(\s*@(?P<left>[^=!<>]*?)\s*(?P<sign>==|!=)\s*(?P<right>.*?)\s*\)\s*\]
    |\.(?P<star>\*)
    |\.?(?P<name>(?:\\.|[^\s.\[\]'"*\\])+)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path, read once and followed often."""

    text: str
    steps: tuple[Step, ...]

    def find(self, kube_object: Any) -> Any:
        """Return the first value there, or None."""
        return next(self.find_all(kube_object), None)

    def find_all(self, kube_object: Any) -> Iterator[Any]:
        """Yield every value there."""
        values: Iterator[Any] = iter((kube_object,))
        for step in self.steps:
            values = _follow(step, values)
        return values

    @property
    def fields(self) -> tuple[str, ...]:
        """The names along a path of fields alone; empty for any other."""
        names = tuple(step.name for step in self.steps if isinstance(step, Child))
        return names if len(names) == len(self.steps) else ()


def find_in_text(path: JsonPath, text: bytes | msgspec.Raw) -> list[Any]:
    """Return every value at a path in an object that is JSON text still.

    Of a path of fields alone nothing is decoded but what is there: a tenth of the work for a pod.
    """
    names = path.fields
    if names:
        # Where something else stands in the way than an object, the path leads nowhere: said by the
        # slow way below, as of any other path.
        with suppress(msgspec.ValidationError):
            value = _value_reader(names)(text)
            for _ in names:
                if value is msgspec.UNSET:
                    return []
                value = value.inner
            return [] if value is msgspec.UNSET else [value]
    fields = _read_fields(text)
    if path.steps and isinstance(path.steps[0], Child):
        top = path.steps[0].name
        fields = {top: msgspec.json.decode(fields[top])} if top in fields else {}
    else:
        fields = msgspec.json.decode(text)
    return list(path.find_all(fields))


_read_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@lru_cache(maxsize=128)
def _value_reader(names: tuple[str, ...]) -> Callable[[bytes | msgspec.Raw], Any]:
    """Return what decodes one field of an object, each `inner` of the one around it."""
    kind: Any = Any
    for name in reversed(names):
        kind = msgspec.defstruct(
            "Field",
            [("inner", kind | msgspec.UnsetType, msgspec.UNSET)],
            rename={"inner": name},
            gc=False,
        )
    return msgspec.json.Decoder(kind).decode


def read_json_path(text: str) -> JsonPath:
    """Read a path; MalformedPath when it is none."""
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or (at == 0 and text[0] not in ".["):
            raise MalformedPath(f"{text!r} is not a JSONPath we can follow", place=text[at:])
        if found["deep"]:
            steps.append(Anywhere())
            # Two dots are one step and the beginning of the next.
            at = found.end() - 1
            continue
        if found["index"]:
            steps.append(Element(int(found["index"])))
        elif found["all"] or found["star"]:
            steps.append(Element(None))
        elif found["sign"]:
            path, written = read_json_path(found["left"]), found["right"]
            if len(written) > 1 and written[0] == written[-1] == "'":
                value: Any = written[1:-1]
            else:
                try:
                    value = msgspec.json.decode(written)
                except msgspec.DecodeError as error:
                    problem = f"{text!r} compares with something unreadable"
                    raise MalformedPath(problem, place=written) from error
            steps.append(Filter(path, found["sign"] == "==", value))
        elif found["name"] is not None:
            steps.append(Child(re.sub(r"\\(.)", r"\1", found["name"])))
        else:
            is_single = found["single"] is not None
            steps.append(Child(found["single"] if is_single else found["double"]))
        at = found.end()
    return JsonPath(text, tuple(steps))


def read_braced_path(text: str) -> JsonPath:
    """Read a path as templates of kubectl have it, `{.a.b}`; MalformedPath for any other text."""
    bare = text.strip()
    if not (bare.startswith("{") and bare.endswith("}") and bare.count("{") == 1):
        raise MalformedPath(f"{text!r} is not one JSONPath in braces", place=text)
    inner = bare[1:-1].strip()
    return read_json_path(inner.removeprefix("$").removeprefix("@"))


def text_of(value: Any) -> str:
    """Return a value as templates print it."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _follow(step: Step, values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        match step:
            case Child():
                if isinstance(value, dict) and step.name in value:
                    yield value[step.name]
            case Element():
                elements = cast("list[Any]", value) if isinstance(value, list) else []
                if step.index is None:
                    yield from _members(value)
                elif -len(elements) <= step.index < len(elements):
                    yield elements[step.index]
            case Filter():
                for each in _members(value):
                    found = list(step.path.find_all(each))
                    if found and (found[0] == step.value) == step.is_equal:
                        yield each
            case Anywhere():
                waiting: list[Any] = [value]
                while waiting:
                    current = waiting.pop()
                    yield current
                    waiting.extend(reversed(_members(current)))


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []
