"""The text of a label selector, taken apart into terms; what they mean is `selectors`' business.

    selector = [term *("," term)]
    term     = "!" key | key | key ("=" | "==" | "!=" | ">" | "<") [value]
             | key ("in" | "notin") "(" [value] *("," [value]) ")"

A value left out is the empty string, so `x in ()` asks for an empty label. The messages are
Kubernetes' own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from clusterspace.errors import MalformedSelector
from clusterspace.kube import causes
from clusterspace.kube.names import label_key_problems
from clusterspace.kube.statuses import summary_of

UNREADABLE_TERM: Final = "unable to parse requirement: "
"""How Kubernetes opens its complaint about a single term."""

EXISTS: Final = "exists"
DOES_NOT_EXIST: Final = "!"
SET_SIGNS: Final = ("in", "notin")
BINARY_SIGNS: Final = (*SET_SIGNS, "=", "==", "!=", ">", "<")

# Kubernetes spells the last two as words here although it reads only signs.
_SIGNS_IN_MESSAGES: Final = "in, notin, =, ==, !=, gt, lt"

_TOKEN = re.compile(r"[ \t\r\n]*(?:(?P<symbol>==|!=|[=!(),><])|(?P<word>[^ \t\r\n=!(),><]+)|$)")


@dataclass(frozen=True, slots=True)
class Term:
    """One term: its sign is one of the binary signs, EXISTS or DOES_NOT_EXIST."""

    key: str
    sign: str
    values: tuple[str, ...]
    place: str


class _Kind(Enum):
    SYMBOL = auto()
    WORD = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: _Kind
    text: str
    place: str

    @property
    def is_word(self) -> bool:
        return self.kind is _Kind.WORD

    @property
    def ends_a_term(self) -> bool:
        return self.kind is _Kind.END or self.text == ","

    def refused(self, expected: str, *, opening: str = "") -> MalformedSelector:
        """Return the error of having found this token where another was expected."""
        return MalformedSelector(f"{opening}found '{self.text}'{expected}", place=self.place)


def read_terms(text: str) -> Iterator[Term]:
    """Yield the terms in the order written, or raise MalformedSelector at the first fault."""
    reader = _Reader(text)
    first = reader.peek()
    if first.kind is _Kind.END:
        return
    if not (first.is_word or first.text == "!"):
        raise first.refused(", expected: !, identifier, or 'end of string'")
    while True:
        yield reader.term()
        separator = reader.take()
        if separator.kind is _Kind.END:
            return
        if separator.text != ",":
            raise separator.refused(", expected: ',' or 'end of string'")
        following = reader.peek()
        if not (following.is_word or following.text == "!"):
            raise following.refused(", expected: identifier after ','")


def _tokens_of(text: str) -> Iterator[_Token]:
    position = 0
    while found := _TOKEN.match(text, position):
        kind = _Kind[found.lastgroup.upper()] if found.lastgroup else _Kind.END
        body = found[found.lastgroup] if found.lastgroup else ""
        start = found.end() - len(body)
        yield _Token(kind, body, place=f"character {start + 1}")
        if kind is _Kind.END:
            return
        position = found.end()


class _Reader:
    """Reads terms one token at a time, one token ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens_of(text)
        self._next = next(self._tokens)

    def peek(self) -> _Token:
        return self._next

    def take(self) -> _Token:
        taken = self._next
        # Past the end there is only more end.
        self._next = next(self._tokens, taken)
        return taken

    def term(self) -> Term:
        first = self.take()
        is_negated = first.text == "!"
        key = self._key(self.take() if is_negated else first)
        if is_negated:
            return Term(key, DOES_NOT_EXIST, (), first.place)
        if self.peek().ends_a_term:
            return Term(key, EXISTS, (), first.place)
        sign = self.take()
        if sign.text not in BINARY_SIGNS:
            raise sign.refused(f", expected: {_SIGNS_IN_MESSAGES}", opening=UNREADABLE_TERM)
        values = self._value_set() if sign.text in SET_SIGNS else (self._single_value(),)
        return Term(key, sign.text, values, first.place)

    def _key(self, token: _Token) -> str:
        if not token.is_word:
            raise token.refused(", expected: identifier", opening=UNREADABLE_TERM)
        if problems := label_key_problems(token.text):
            # The place Kubernetes prints is that of a field, and a text has none.
            complaint = summary_of([causes.invalid("<nil>", token.text, "; ".join(problems))])
            raise MalformedSelector(UNREADABLE_TERM + complaint, place=token.place)
        return token.text

    def _single_value(self) -> str:
        if self.peek().ends_a_term:
            return ""
        token = self.take()
        if not token.is_word:
            raise token.refused(", expected: identifier", opening=UNREADABLE_TERM)
        return token.text

    def _value_set(self) -> tuple[str, ...]:
        opening = self.take()
        if opening.text != "(":
            raise opening.refused(" expected: '('", opening=UNREADABLE_TERM)
        first = self.peek()
        if not (first.is_word or first.text in (",", ")")):
            raise first.refused(", expected: ',', ')' or identifier", opening=UNREADABLE_TERM)
        values = [self._listed_value()]
        while self.take().text == ",":
            values.append(self._listed_value())
        return tuple(values)

    def _listed_value(self) -> str:
        """Read one value, or the empty string between two commas; "," or ")" comes next."""
        token = self.peek()
        if token.text in (",", ")"):
            return ""
        if not token.is_word:
            raise token.refused(", expected: ',', or identifier", opening=UNREADABLE_TERM)
        self.take()
        following = self.peek()
        if following.text not in (",", ")"):
            raise following.refused(", expected: ',' or ')'", opening=UNREADABLE_TERM)
        return token.text
