"""A large JSON text to its value in steps of Python, so that the event loop gets its turns.

The usual decoder is ten times as quick and does all of it in one call, which nothing interrupts:
three megabytes of empty lists, or of numbers like 1e-300, stop the process for most of a second.
Small bodies go there; those that may take long come here, off the loop. Each token is one step,
parts are counted as they come, and keys that come twice are noted on the way.
"""

import itertools
import re
from typing import Any, Final, cast

import msgspec

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
    composer = _Composer(text, max_depth)
    return composer.compose(), tuple(composer.duplicates)


class _Composer:
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
        """Leave the innermost list or object; tell whether it is in a list."""
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
        for (outer, _), (_, held_as) in itertools.pairwise(self._open):
            is_list = isinstance(outer, list)
            path += f"[{len(cast('list[Any]', outer)) - 1}]" if is_list else f".{held_as}"
        return f"{path}.{key}".lstrip(".")


def _unescaped(quoted: str) -> str:
    try:
        return _text_decoder.decode(quoted)
    except msgspec.DecodeError as error:
        raise NotJson from error
