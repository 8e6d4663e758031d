"""Text to tokens: names, numbers, texts and signs, each with its place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.kube.cel.faults import CompileFailed, Fault
from clusterspace.kube.cel.types import BYTES, DOUBLE, DYN, INT, STRING, UINT, Type
from clusterspace.kube.cel.values import INT_RANGE, UINT_RANGE, Uint

LONGEST: Final = 100_000
"""How many characters an expression may have."""

NAME: Final = "name"
SIGN: Final = "sign"
LITERAL: Final = "literal"
END: Final = "end"

_TOKEN: Final = re.compile(
    r"""(?P<space>[\t\n\f\r\ ]+|//[^\n]*)
    |(?P<raw>(?:[rR][bB]?|[bB][rR])
        (?:\"\"\".*?\"\"\"|\'\'\'.*?\'\'\'|"[^"\n\r]*"|'[^'\n\r]*'))
    |(?P<text>[bB]?
        (?:\"\"\"(?:\\.|[^\\])*?\"\"\"|\'\'\'(?:\\.|[^\\])*?\'\'\'
          |"(?:\\.|[^\\"\n\r])*"|'(?:\\.|[^\\'\n\r])*'))
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>(?:0[xX][0-9a-fA-F]+|[0-9]+))(?P<unsigned>[uU])?
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-3][0-7]{2})|(?P<plain>.))",
    re.DOTALL,
)
_PLAIN_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{character: character for character in "\\?\"'`"},
}

RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
"""Words CEL keeps for later: no name may be one."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token; a literal has its value and type."""

    kind: str
    text: str
    at: int
    value: Any = None
    type: Type = DYN

    def is_sign(self, *signs: str) -> bool:
        """Tell whether this is one of the signs."""
        return self.kind == SIGN and self.text in signs


def read_tokens(text: str) -> list[Token]:
    """Return the tokens, the end included; CompileFailed for what is none."""
    if len(text) > LONGEST:
        why = f"expression code point size exceeds limit: size: {len(text)}, limit {LONGEST}"
        raise CompileFailed("", [Fault(0, why)])
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise CompileFailed(text, [_unrecognised(text, at)])
        if found["space"] is None:
            yield _token_of(found, text)
        at = found.end()
    yield Token(END, "<EOF>", len(text))


def _unrecognised(text: str, at: int) -> Fault:
    """Name what cannot be read: an open quote takes the rest of its line with it."""
    rest = text[at:].split("\n")[0] if text[at] in "\"'" else text[at]
    return Fault(at, f"Syntax error: token recognition error at: '{rest}'")


def _token_of(found: re.Match[str], text: str) -> Token:
    at, spelled = found.start(), found[0]
    if found["name"]:
        return Token(NAME, spelled, at)
    if found["sign"]:
        return Token(SIGN, spelled, at)
    if found["float"]:
        return Token(LITERAL, spelled, at, float(spelled), DOUBLE)
    if found["int"]:
        return _number(found, text)
    return _text(found, text)


def _number(found: re.Match[str], text: str) -> Token:
    digits = found["int"]
    number = int(digits, 16 if digits[:2] in ("0x", "0X") else 10)
    allowed = UINT_RANGE if found["unsigned"] else INT_RANGE
    # The smallest integer is written as the negation of one that is too large.
    if number not in allowed and not (allowed is INT_RANGE and number == allowed.stop):
        kind = "uint" if found["unsigned"] else "int"
        fault = Fault(found.start(), f"Syntax error: invalid {kind} literal")
        raise CompileFailed(text, [fault])
    if found["unsigned"]:
        return Token(LITERAL, found[0], found.start(), Uint(number), UINT)
    return Token(LITERAL, found[0], found.start(), number, INT)


def _text(found: re.Match[str], text: str) -> Token:
    quoted = found[0].lstrip("rRbB")
    is_bytes = "b" in found[0][: -len(quoted)].lower()
    width = 3 if quoted[:3] in ('"""', "'''") else 1
    inner = quoted[width:-width]
    if found["raw"] is None:
        inner = _unescaped(inner, found.start(), text, is_bytes=is_bytes)
    if is_bytes:
        value = b"".join(_bytes_of(character) for character in inner)
        return Token(LITERAL, found[0], found.start(), value, BYTES)
    return Token(LITERAL, found[0], found.start(), inner, STRING)


_BYTE_MARK: Final = 0xDC00
"""Lone surrogates stand for single bytes until a bytes literal is put together."""


def _bytes_of(character: str) -> bytes:
    number = ord(character) - _BYTE_MARK
    return bytes([number]) if 0 <= number < 256 else character.encode()


def _unescaped(inner: str, at: int, text: str, *, is_bytes: bool) -> str:
    def replace(found: re.Match[str]) -> str:
        octal_or_hex = found["x"] or found["octal"]
        if octal_or_hex:
            number = int(octal_or_hex, 16 if found["x"] else 8)
            return chr(_BYTE_MARK + number) if is_bytes else chr(number)
        code = found["u"] or found["U"]
        if code and int(code, 16) <= 0x10FFFF and not 0xD800 <= int(code, 16) < 0xE000:
            return chr(int(code, 16))
        if found["plain"] in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[found["plain"]]
        raise CompileFailed(text, [Fault(at, f"Syntax error: invalid escape {found[0]!r}")])

    return _ESCAPE.sub(replace, inner)
