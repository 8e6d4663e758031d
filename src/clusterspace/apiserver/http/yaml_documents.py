"""One YAML document to JSON's types, from parser events and without recursion.

The usual loaders recurse in C for every level of nesting, and a body of a few hundred kilobytes
of `[` ends the process. Aliases are refused: they are how a small text becomes a huge value.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, cast

import yaml

from clusterspace.apiserver.http.large_json import MAX_NOTED
from clusterspace.kube.shapes import Parts

MAX_DEPTH: Final = 200
"""Deeper than any real manifest by an order of magnitude."""

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE: Final = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_INTEGER: Final = re.compile(
    r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*|0)", re.ASCII
)
_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?", re.ASCII
)
_NOT_A_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE)
_MAX_INTEGER_DIGITS: Final = 400
_TAG: Final = "tag:yaml.org,2002:"


class YamlFault(Exception):
    """The text is not one YAML document we take; the message says where."""


class _Open:
    """A list or object whose end has not been seen yet."""

    __slots__ = ("awaits_value", "key", "value")

    def __init__(self, value: dict[str, Any] | list[Any]) -> None:
        self.value = value
        self.key = ""
        self.awaits_value = False


def compose_yaml(raw: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the document's value and the paths of keys that came twice; the last one wins."""
    composer = _Composer()
    try:
        for event in _events(raw):
            composer.feed(event)
    except yaml.YAMLError as error:
        raise YamlFault(" ".join(str(error).split())) from error
    return composer.result, tuple(composer.duplicates)


def _events(raw: bytes) -> Iterator[yaml.Event]:
    loader = yaml.CSafeLoader(raw)
    try:
        while loader.check_event():
            yield cast("yaml.Event", loader.get_event())
    except UnicodeDecodeError as error:
        raise YamlFault(f"not UTF-8 at byte {error.start}") from error
    finally:
        loader.dispose()


class _Composer:
    """Builds the value from events; `self._open` is the stack of what is still open."""

    def __init__(self) -> None:
        self.result: Any = None
        self.duplicates: list[str] = []
        self._open: list[_Open] = []
        self._documents = 0
        self._parts = Parts()

    def feed(self, event: yaml.Event) -> None:
        """Take the next event."""
        if isinstance(event, yaml.AliasEvent):
            raise YamlFault(f"{_place(event)}: aliases are not accepted, write the value out")
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise YamlFault(f"{_place(event)}: one document at a time")
        elif isinstance(event, yaml.ScalarEvent):
            self._add(event, _scalar(event))
        elif isinstance(event, yaml.MappingStartEvent):
            self._descend(event, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self._descend(event, [])
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._open.pop()

    def _descend(self, event: yaml.Event, value: dict[str, Any] | list[Any]) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise YamlFault(f"{_place(event)}: nested more than {MAX_DEPTH} levels deep")
        self._add(event, value)
        self._open.append(_Open(value))

    def _add(self, event: yaml.Event, value: Any) -> None:
        if not self._open:
            self.result = value
            return
        parent = self._open[-1]
        if isinstance(parent.value, list) or parent.awaits_value:
            self._count(value)
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.awaits_value:
            parent.value[parent.key] = value
            parent.awaits_value = False
        else:
            parent.key, parent.awaits_value = _key(event, value), True
            if parent.key in parent.value and len(self.duplicates) < MAX_NOTED:
                self.duplicates.append(self._path())

    def _count(self, value: Any) -> None:
        if isinstance(value, dict | list):
            self._parts.add_container()
        elif isinstance(value, float):
            self._parts.add_number(value)
        else:
            self._parts.add_values(1)

    def _path(self) -> str:
        path = ""
        for level in self._open:
            held = level.value
            path += f"[{len(held) - 1}]" if isinstance(held, list) else f".{level.key}"
        return path.lstrip(".")


def _place(event: yaml.Event) -> str:
    return f"line {event.start_mark.line + 1}" if event.start_mark else "the text"


def _key(event: yaml.Event, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return str(value)
    raise YamlFault(f"{_place(event)}: a key must be a plain value")


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = str(event.value)
    if event.tag and event.tag != "!":
        return _tagged(event, text)
    # A quoted or block scalar is text, whatever it looks like.
    return _plain(event, text) if event.implicit[0] else text


def _tagged(event: yaml.ScalarEvent, text: str) -> Any:
    name = str(event.tag).removeprefix(_TAG)
    if name in ("str", "binary", "timestamp"):
        return text
    if name in ("int", "float", "bool", "null"):
        return _plain(event, text)
    raise YamlFault(f"{_place(event)}: the tag {event.tag} has no meaning here")


def _plain(event: yaml.ScalarEvent, text: str) -> Any:
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if len(text) < _MAX_INTEGER_DIGITS and _INTEGER.fullmatch(text):
        return _integer(text.replace("_", ""))
    if _NOT_A_NUMBER.fullmatch(text):
        raise YamlFault(f"{_place(event)}: {text} is not a number JSON has")
    if len(text) < _MAX_INTEGER_DIGITS and _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        # YAML 1.1: a leading zero means octal, as in file modes.
        return int(digits, 8) * (-1 if text.startswith("-") else 1)
    return int(text, 0)
