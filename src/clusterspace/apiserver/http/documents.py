"""JSON and YAML texts to values in steps of Python, so that the event loop gets its turns.

The usual JSON decoder is ten times as quick and does all of it in one call, which nothing
interrupts: three megabytes of empty lists, or of numbers like 1e-300, stop the process for most of
a second. Small bodies go there; those that may take long come here, off the loop. Each token is one
step, parts are counted as they come, and keys that come twice are noted on the way.

The usual YAML loaders recurse in C for every level of nesting, and a body of a few hundred
kilobytes of `[` ends the process. Here YAML is read from parser events, without recursion. Aliases
are refused: they are how a small text becomes a huge value.
"""

import itertools
import re
from typing import Any, Final, cast

import msgspec
import yaml

from clusterspace.kube.shapes import Parts

MAX_NOTED: Final = 100
"""Keys that came twice: naming more than anybody reads helps nobody."""

_SPACE: Final = r"[ \t\n\r]*+"
_TEXT: Final = r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_KEY: Final = re.compile(rf"{_SPACE}({_TEXT}){_SPACE}:")
_VALUE: Final = re.compile(
    rf"{_SPACE}(?:({_TEXT})|(-?(?:0|[1-9][0-9]*+))(\.[0-9]++)?([eE][-+]?[0-9]++)?"
    r"|(true|false|null)|([\[{]))"
)
_AFTER: Final = re.compile(rf"{_SPACE}([,\]}}])")
_END_OF_LIST: Final = re.compile(rf"{_SPACE}\]")
_END_OF_OBJECT: Final = re.compile(rf"{_SPACE}\}}")
_text_decoder: Final = msgspec.json.Decoder(str)
_LITERALS: Final = {"true": True, "false": False, "null": None}
_LONGEST_INTEGER: Final = 4_300
"""Digits; Python reads no longer ones, for the time they take."""


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


class NotJson(Exception):
    """The text is not one JSON value; where exactly is for others to say."""


class TooDeep(Exception):
    """The value is nested more deeply than allowed."""


def compose_json(raw: bytes, *, max_depth: int) -> tuple[Any, tuple[str, ...]]:
    """Return the value and the paths of keys that came twice; the last one wins."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise NotJson from error
    composer = _JsonComposer(text, max_depth)
    return composer.compose(), tuple(composer.duplicates)


class _JsonComposer:
    """Builds the value piece by piece; `self._open` is the stack of what is still open.

    A list or object is on the stack with its key in the one around it.
    """

    def __init__(self, text: str, max_depth: int) -> None:
        self.duplicates: list[str] = []
        self._text = text
        self._max_depth = max_depth
        self._open: list[tuple[Any, str]] = []
        self._parts = Parts()

    def compose(self) -> Any:  # noqa: C901, PLR0912 - calls between the steps cost half the time
        """Read the whole text."""
        text, opened, parts = self._text, self._open, self._parts
        read_value, read_after = _VALUE.match, _AFTER.match
        result: Any = None
        value: Any
        key, in_list, at = "", False, 0
        while True:
            # A value, and where it belongs.
            found = read_value(text, at)
            if found is None:
                raise NotJson
            at = found.end()
            quoted, whole, fraction, power, literal, opening = found.groups()
            if quoted is not None:
                value = quoted[1:-1] if "\\" not in quoted else _unescaped(quoted)
                parts.add_values(1)
            elif whole is not None:
                value = self._number(whole, fraction, power)
            elif literal is not None:
                value = _LITERALS[literal]
                parts.add_values(1)
            else:
                value = cast("Any", [] if opening == "[" else {})
                parts.add_container()
            if not opened:
                result = value
            elif len(opened) >= self._max_depth:
                raise TooDeep
            elif in_list:
                opened[-1][0].append(value)
            else:
                opened[-1][0][key] = value
            # What comes next: the first value inside of it, or what is behind it.
            if opening is not None:
                opened.append((value, key))
                in_list = opening == "["
                end = (_END_OF_LIST if in_list else _END_OF_OBJECT).match(text, at)
                if end is None:
                    if not in_list:
                        key, at = self._read_key(at)
                    continue
                at = end.end()
                in_list = self._close()
            while opened:
                after = read_after(text, at)
                if after is None:
                    raise NotJson
                at = after.end()
                sign = after[1]
                if sign == ",":
                    if not in_list:
                        key, at = self._read_key(at)
                    break
                if (sign == "]") is not in_list:
                    raise NotJson
                in_list = self._close()
            else:
                if text[at:].strip(" \t\n\r"):
                    raise NotJson
                return result

    def _close(self) -> bool:
        """Leave the innermost list or object; return whether it is in a list."""
        self._open.pop()
        return bool(self._open) and isinstance(self._open[-1][0], list)

    def _read_key(self, at: int) -> tuple[str, int]:
        found = _KEY.match(self._text, at)
        if found is None:
            raise NotJson
        quoted = found[1]
        key = quoted[1:-1] if "\\" not in quoted else _unescaped(quoted)
        if key in self._open[-1][0] and len(self.duplicates) < MAX_NOTED:
            self.duplicates.append(self._path(key))
        return key, found.end()

    def _number(self, whole: str, fraction: str | None, power: str | None) -> float:
        if fraction or power:
            number = float(f"{whole}{fraction or ''}{power or ''}")
            if number in (float("inf"), float("-inf")):
                raise NotJson
            self._parts.add_number(number)
            return number
        if len(whole) > _LONGEST_INTEGER:
            raise NotJson
        self._parts.add_values(1)
        return int(whole)

    def _path(self, key: str) -> str:
        """Return where a key of the innermost object is."""
        path = ""
        for (outer, _), (_, inner_key) in itertools.pairwise(self._open):
            is_list = isinstance(outer, list)
            path += f"[{len(cast('list[Any]', outer)) - 1}]" if is_list else f".{inner_key}"
        return f"{path}.{key}".lstrip(".")


def _unescaped(quoted: str) -> str:
    try:
        return _text_decoder.decode(quoted)
    except msgspec.DecodeError as error:
        raise NotJson from error


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
    composer = _YamlComposer()
    try:
        loader = yaml.CSafeLoader(raw)
        try:
            while loader.check_event():
                composer.feed(cast("yaml.Event", loader.get_event()))
        except UnicodeDecodeError as error:
            raise YamlFault(f"not UTF-8 at byte {error.start}") from error
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise YamlFault(" ".join(str(error).split())) from error
    return composer.result, tuple(composer.duplicates)


class _YamlComposer:
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
            if isinstance(value, dict | list):
                self._parts.add_container()
            elif isinstance(value, float):
                self._parts.add_number(value)
            else:
                self._parts.add_values(1)
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.awaits_value:
            parent.value[parent.key] = value
            parent.awaits_value = False
        else:
            parent.key, parent.awaits_value = _key(event, value), True
            if parent.key in parent.value and len(self.duplicates) < MAX_NOTED:
                self.duplicates.append(self._path())

    def _path(self) -> str:
        path = ""
        for level in self._open:
            value = level.value
            path += f"[{len(value) - 1}]" if isinstance(value, list) else f".{level.key}"
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
        name = str(event.tag).removeprefix(_TAG)
        if name in ("str", "binary", "timestamp"):
            return text
        if name in ("int", "float", "bool", "null"):
            return _plain(event, text)
        raise YamlFault(f"{_place(event)}: the tag {event.tag} has no meaning here")
    # A quoted or block scalar is text, whatever it looks like.
    return _plain(event, text) if event.implicit[0] else text


def _plain(event: yaml.ScalarEvent, text: str) -> Any:
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if len(text) < _MAX_INTEGER_DIGITS and _INTEGER.fullmatch(text):
        text = text.replace("_", "")
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
            # YAML 1.1: a leading zero means octal, as in file modes.
            return int(digits, 8) * (-1 if text.startswith("-") else 1)
        return int(text, 0)
    if _NOT_A_NUMBER.fullmatch(text):
        raise YamlFault(f"{_place(event)}: {text} is not a number JSON has")
    if len(text) < _MAX_INTEGER_DIGITS and _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text
