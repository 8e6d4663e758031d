"""Command lines to pipelines: quotes, variables, redirections, and nothing else.

    echo "a $HOME" 'b $HOME' | cat > /tmp/x && ls; exit 3

There are no loops, no globs, no substitution of commands: a line that needs one is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from clusterspace.errors import CommandRefused

_VARIABLE: Final = re.compile(r"\$(?:\{(\w+|\?)\}|(\w+|\?))")
_OPERATORS: Final = ("2>&1", "2>", "&&", "||", ">>", ">", "<", "|", ";", "\n", "&")
_REDIRECTIONS: Final = frozenset({"2>&1", "2>", ">>", ">", "<"})
_RESERVED: Final = frozenset({"while", "for", "if", "case", "until", "function", "{", "(", "!"})


@dataclass(frozen=True, slots=True)
class Word:
    """A word in pieces: (text, whether variables in it are replaced)."""

    pieces: tuple[tuple[str, bool], ...]

    def expand(self, variables: Mapping[str, str]) -> str:
        """Return the word with its variables replaced; one that is not set is empty."""

        def value(found: re.Match[str]) -> str:
            return variables.get(found[1] or found[2], "")

        return "".join(
            _VARIABLE.sub(value, text) if is_open else text for text, is_open in self.pieces
        )


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where a stream of a command goes to, or comes from."""

    operator: str
    target: Word | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One command with its arguments."""

    words: tuple[Word, ...]
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A pipeline, and when it is run: always, after success (`&&`), or after failure (`||`)."""

    condition: str
    commands: tuple[Command, ...]


Part: TypeAlias = Word | str
"""A word, or an operator."""


def parse(text: str) -> tuple[Step, ...]:
    """Read a text of command lines."""
    steps: list[Step] = []
    condition, commands, parts = ";", list[Command](), list[Part]()
    for part in (*_parts(text), ";"):
        if isinstance(part, Word) or part in _REDIRECTIONS:
            parts.append(part)
            continue
        if parts:
            commands.append(_command(parts))
        elif part == "|" or commands:
            raise CommandRefused(f"syntax error near {part!r}")
        parts = []
        if part == "|":
            continue
        if commands:
            steps.append(Step(condition, tuple(commands)))
        commands, condition = [], ";" if part == "\n" else part
    return tuple(steps)


def _command(parts: list[Part]) -> Command:
    words: list[Word] = []
    redirections: list[Redirection] = []
    rest = iter(parts)
    for part in rest:
        if isinstance(part, Word):
            words.append(part)
        elif part == "2>&1":
            redirections.append(Redirection(part))
        else:
            target = next(rest, None)
            if not isinstance(target, Word):
                raise CommandRefused(f"syntax error: {part!r} needs a file")
            redirections.append(Redirection(part, target))
    if words and words[0].pieces[0][0] in _RESERVED:
        raise CommandRefused(f"syntax error: this shell has no {words[0].pieces[0][0]!r}")
    return Command(tuple(words), tuple(redirections))


def _parts(text: str) -> list[Part]:
    """Cut a text into words and operators."""
    scanner = _Scanner(text)
    parts: list[Part] = []
    while (part := scanner.next()) is not None:
        parts.append(part)
    return parts


@dataclass(slots=True)
class _Scanner:
    """A place in a text."""

    text: str
    place: int = 0
    pieces: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])

    def next(self) -> Part | None:
        """Return the next part; None at the end."""
        self._skip_blanks()
        if self.place >= len(self.text):
            return None
        operator = self._operator()
        if operator:
            self.place += len(operator)
            if operator == "&":
                raise CommandRefused("syntax error: this shell has no background jobs")
            return operator
        self.pieces = []
        while self.place < len(self.text) and not self._is_at_word_end():
            self._take_piece()
        return Word(tuple(self.pieces))

    def _skip_blanks(self) -> None:
        while self.place < len(self.text) and self.text[self.place] in " \t\r":
            self.place += 1
        if self.text.startswith("#", self.place):
            end = self.text.find("\n", self.place)
            self.place = len(self.text) if end < 0 else end

    def _operator(self) -> str:
        return next((each for each in _OPERATORS if self.text.startswith(each, self.place)), "")

    def _is_at_word_end(self) -> bool:
        return self.text[self.place] in " \t\r\n;|<>&"

    def _take_piece(self) -> None:
        quote = self.text[self.place]
        if quote == "'":
            self._take_quoted(quote, is_open=False)
        elif quote == '"':
            self._take_quoted(quote, is_open=True)
        elif quote == "\\":
            self.pieces.append((self.text[self.place + 1 : self.place + 2], False))
            self.place += 2
        else:
            start = self.place
            while self.place < len(self.text) and not self._is_piece_end():
                self.place += 1
            self.pieces.append((self.text[start : self.place], True))

    def _is_piece_end(self) -> bool:
        return self._is_at_word_end() or self.text[self.place] in "'\"\\"

    def _take_quoted(self, quote: str, *, is_open: bool) -> None:
        end = self.text.find(quote, self.place + 1)
        if end < 0:
            raise CommandRefused(f"syntax error: unterminated {quote}")
        self.pieces.append((self.text[self.place + 1 : end], is_open))
        self.place = end + 1
