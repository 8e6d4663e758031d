"""What is wrong with a JSON text or value, in the words Kubernetes clients know."""

from typing import Any, Final

import msgspec

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises when a text is no JSON, no text, or nested without end."""

_SPACE: Final = b" \t\r\n"
_DIGITS: Final = frozenset(b"0123456789")
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_ESCAPES: Final = frozenset(b'"\\/bfnrtu')
_GO_NAMES: Final[dict[Any, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}
_END: Final = "unexpected end of JSON input"
_DEPTH_LIMIT: Final = 10_000


class _Fault(Exception):
    """The scanner stopped here."""


def describe_json_error(raw: bytes) -> str:
    """Return one sentence saying where `raw` stops being JSON; empty when it is JSON."""
    try:
        end = _skip_space(raw, _scan(raw))
        if end < len(raw):
            raise _unexpected(raw, end, "after top-level value")
    except _Fault as fault:
        return str(fault)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"invalid UTF-8 at byte {error.start}"
    return ""


def cannot_unmarshal(value: Any, *, into: str) -> str:
    """Return Go's sentence about a JSON value of the wrong type; `into` is "Go value of type T"."""
    return f"json: cannot unmarshal {_GO_NAMES.get(type(value), 'null')} into {into}"


def _unexpected(raw: bytes, at: int, context: str) -> _Fault:
    if at >= len(raw):
        return _Fault(_END)
    character = raw[at]
    if character == ord("'"):
        shown = r"'\''"
    elif 0x20 <= character < 0x7F:
        shown = f"'{chr(character)}'"
    else:
        shown = f"'\\x{character:02x}'"
    return _Fault(f"invalid character {shown} {context}")


def _skip_space(raw: bytes, at: int) -> int:
    while at < len(raw) and raw[at] in _SPACE:
        at += 1
    return at


def _scan(raw: bytes) -> int:
    """Walk one value without recursion: `open_brackets` is the stack of what is still open."""
    open_brackets = bytearray()
    at = 0
    while True:
        at = _skip_space(raw, at)
        opener = raw[at : at + 1]
        if opener in (b"{", b"["):
            open_brackets += opener
            if len(open_brackets) > _DEPTH_LIMIT:
                raise _Fault("exceeded max depth")
            at = _skip_space(raw, at + 1)
            if raw[at : at + 1] != (b"}" if opener == b"{" else b"]"):
                at = _key(raw, at) if opener == b"{" else at
                continue
            open_brackets.pop()
            at += 1
        else:
            at = _scalar(raw, at)
        at, done = _after_value(raw, at, open_brackets)
        if done:
            return at


def _after_value(raw: bytes, at: int, open_brackets: bytearray) -> tuple[int, bool]:
    """Close what ends here; return where the next value starts, or that there is none."""
    while open_brackets:
        at = _skip_space(raw, at)
        in_object = open_brackets[-1] == ord("{")
        found = raw[at : at + 1]
        if found == b",":
            at = _skip_space(raw, at + 1)
            return (_key(raw, at) if in_object else at), False
        if found != (b"}" if in_object else b"]"):
            place = "after object key:value pair" if in_object else "after array element"
            raise _unexpected(raw, at, place)
        open_brackets.pop()
        at += 1
    return at, True


def _key(raw: bytes, at: int) -> int:
    if raw[at : at + 1] != b'"':
        raise _unexpected(raw, at, "looking for beginning of object key string")
    at = _skip_space(raw, _string(raw, at))
    if raw[at : at + 1] != b":":
        raise _unexpected(raw, at, "after object key")
    return at + 1


def _scalar(raw: bytes, at: int) -> int:
    if at >= len(raw):
        raise _Fault(_END)
    first = raw[at]
    if first == ord('"'):
        return _string(raw, at)
    if first in _LITERALS:
        word = _LITERALS[first]
        for offset in range(1, len(word)):
            if raw[at + offset : at + offset + 1] != word[offset : offset + 1]:
                context = f"in literal {word.decode()} (expecting '{chr(word[offset])}')"
                raise _unexpected(raw, at + offset, context)
        return at + len(word)
    if first == ord("-") or first in _DIGITS:
        return _number(raw, at)
    raise _unexpected(raw, at, "looking for beginning of value")


def _string(raw: bytes, at: int) -> int:
    at += 1
    while at < len(raw):
        character = raw[at]
        if character == ord('"'):
            return at + 1
        if character < 0x20:
            raise _unexpected(raw, at, "in string literal")
        if character == ord("\\"):
            at += 1
            if at < len(raw) and raw[at] not in _ESCAPES:
                raise _unexpected(raw, at, "in string escape code")
        at += 1
    raise _Fault(_END)


def _number(raw: bytes, at: int) -> int:
    if raw[at] == ord("-"):
        at += 1
        if at >= len(raw) or raw[at] not in _DIGITS:
            raise _unexpected(raw, at, "in numeric literal")
    if raw[at] == ord("0"):
        at += 1
    else:
        at = _digits(raw, at)
    if raw[at : at + 1] == b".":
        at = _some_digits(raw, at + 1, "after decimal point in numeric literal")
    if raw[at : at + 1] in (b"e", b"E"):
        at += 1
        if raw[at : at + 1] in (b"+", b"-"):
            at += 1
        at = _some_digits(raw, at, "in exponent of numeric literal")
    return at


def _digits(raw: bytes, at: int) -> int:
    while at < len(raw) and raw[at] in _DIGITS:
        at += 1
    return at


def _some_digits(raw: bytes, at: int, context: str) -> int:
    if at >= len(raw) or raw[at] not in _DIGITS:
        raise _unexpected(raw, at, context)
    return _digits(raw, at)
