"""Reads command lines and runs them: quotes, variables, redirections, and nothing else.

    echo "a $HOME" 'b $HOME' | cat > /tmp/x && ls; exit 3

There are no loops, no globs, no substitution of commands: a line that needs one is refused.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from clusterspace.errors import CommandRefused
from clusterspace.sim.shell.commands import COMMANDS
from clusterspace.sim.shell.processes import Buffer, Input, Output, Process

NOT_FOUND: Final = 127
_SYNTAX: Final = 2
SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
"""What the shell itself is called."""

_LINE_LIMIT: Final = 64 * 1024


# -- the language ------------------------------------------------------------------------------

_BLANK: Final = re.compile(r"[ \t\r]*(?:#[^\n]*)?")
_OPERATOR: Final = re.compile(r"2>&1|2>|&&|\|\||>>|[><|;&\n]")
_PIECE: Final = re.compile(
    r"""'(?P<literal>[^']*)'|"(?P<quoted>[^"]*)"|\\(?P<escaped>.?)"""
    r"""|(?P<plain>[^ \t\r\n;|<>&'"\\]+)""",
    re.DOTALL,
)
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+|\?)\}|(\w+|\?))")
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
            _VARIABLE.sub(value, text) if expands else text for text, expands in self.pieces
        )


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where a stream of a command goes to, or comes from; stderr to stdout has no target."""

    operator: str
    target: Word | None = None


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command with its arguments."""

    words: tuple[Word, ...]
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, and when they are run: always, after success (`&&`), or after failure (`||`)."""

    condition: str
    commands: tuple[SimpleCommand, ...]


Symbol: TypeAlias = Word | str
"""A word, or an operator."""


def parse(text: str) -> tuple[Pipeline, ...]:
    """Read command lines; CommandRefused for what is not in the language."""
    pipelines: list[Pipeline] = []
    condition, commands, symbols = ";", list[SimpleCommand](), list[Symbol]()
    for symbol in (*_symbols(text), ";"):
        if isinstance(symbol, Word) or symbol in _REDIRECTIONS:
            symbols.append(symbol)
            continue
        if symbols:
            commands.append(_simple_command(symbols))
        elif symbol == "|" or commands:
            raise CommandRefused(f"syntax error near {symbol!r}")
        symbols = []
        if symbol == "|":
            continue
        if commands:
            pipelines.append(Pipeline(condition, tuple(commands)))
        commands, condition = [], ";" if symbol == "\n" else symbol
    return tuple(pipelines)


def _symbols(text: str) -> Iterator[Symbol]:
    """Cut a text into words and operators."""
    at = 0
    while True:
        blank = _BLANK.match(text, at)
        at = at if blank is None else blank.end()
        if at >= len(text):
            return
        operator = _OPERATOR.match(text, at)
        if operator is not None:
            if operator[0] == "&":
                raise CommandRefused("syntax error: this shell has no background jobs")
            at = operator.end()
            yield operator[0]
            continue
        pieces: list[tuple[str, bool]] = []
        while (piece := _PIECE.match(text, at)) is not None:
            kind = str(piece.lastgroup)
            pieces.append((piece[kind], kind in ("quoted", "plain")))
            at = piece.end()
        if text[at : at + 1] in ("'", '"'):
            raise CommandRefused(f"syntax error: unterminated {text[at]}")
        yield Word(tuple(pieces))


def _simple_command(symbols: list[Symbol]) -> SimpleCommand:
    words: list[Word] = []
    redirections: list[Redirection] = []
    rest = iter(symbols)
    for symbol in rest:
        if isinstance(symbol, Word):
            words.append(symbol)
        elif symbol == "2>&1":
            redirections.append(Redirection(symbol))
        else:
            target = next(rest, None)
            if not isinstance(target, Word):
                raise CommandRefused(f"syntax error: {symbol!r} needs a file")
            redirections.append(Redirection(symbol, target))
    if words and words[0].pieces[0][0] in _RESERVED:
        raise CommandRefused(f"syntax error: this shell has no {words[0].pieces[0][0]!r}")
    return SimpleCommand(tuple(words), tuple(redirections))


# -- running it --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShellState:
    """What a shell remembers from one command to the next."""

    variables: Mapping[str, str]
    directory: str
    code: int = 0
    has_exited: bool = False

    def ended_with(self, code: int) -> "ShellState":
        """Return the state after a command that ended so."""
        return replace(self, code=code, variables={**self.variables, "?": str(code)})


async def run_program(process: Process) -> int:
    """Run one command, a shell among them; 127 when there is no such command."""
    name = posixpath.basename(process.name)
    if name in SHELLS:
        return await _run_shell(process)
    command = COMMANDS.get(name)
    if command is None:
        await process.stderr(f"sh: {process.name}: not found\n".encode())
        return NOT_FOUND
    try:
        return await command(process)
    except CommandRefused as problem:
        await process.print_error(str(problem))
        return 1


async def _run_shell(process: Process) -> int:
    """Run a text given to it, a file, or what comes on stdin until its end, or `exit`."""
    state = ShellState(process.variables, process.directory)
    words = process.arguments[1:]
    if words[:1] == ("-c",):
        return (await run_text(state, words[1] if len(words) > 1 else "", process)).code
    if words and not words[0].startswith("-"):
        content = process.files.read(process.path(words[0]))
        return (await run_text(state, content.decode(errors="replace"), process)).code
    unread: bytes = b""
    prompt = process.variables.get("PS1", "").encode()
    await process.stdout(prompt)
    while not state.has_exited:
        piece = await process.stdin.read()
        if not piece:
            state = await run_text(state, unread.decode(errors="replace"), process)
            break
        unread += piece
        while b"\n" in unread and not state.has_exited:
            line, _, unread = unread.partition(b"\n")
            state = await run_text(state, line.decode(errors="replace"), process)
            if not state.has_exited:
                await process.stdout(prompt)
        unread = unread[-_LINE_LIMIT:]
    return state.code


async def run_text(state: ShellState, text: str, process: Process) -> ShellState:
    """Run command lines one after the other; in a pipeline, each reads all the last one wrote."""
    try:
        pipelines = parse(text)
    except CommandRefused as problem:
        await process.stderr(f"sh: {problem}\n".encode())
        return state.ended_with(_SYNTAX)
    for pipeline in pipelines:
        if state.has_exited:
            break
        is_due = {"&&": state.code == 0, "||": state.code != 0}.get(pipeline.condition, True)
        if not is_due:
            continue
        stdin: Input = process.stdin
        for command in pipeline.commands[:-1]:
            collected = Buffer()
            state = await _run_command(state, command, process, stdin, collected.write)
            stdin = Buffer(collected.content)
        last = pipeline.commands[-1]
        state = await _run_command(state, last, process, stdin, process.stdout)
    return state


async def _run_command(
    state: ShellState, command: SimpleCommand, shell: Process, stdin: Input, stdout: Output
) -> ShellState:
    words = tuple(word.expand(state.variables) for word in command.words)
    words, variables = _assignments(words, state.variables)
    if not words:
        return replace(state, variables=variables).ended_with(0)
    process = replace(
        shell,
        arguments=words,
        variables=variables,
        directory=state.directory,
        stdin=stdin,
        stdout=stdout,
    )
    builtin = BUILTINS.get(words[0])
    if builtin is not None:
        return builtin(replace(state, variables=variables), process)

    written: list[tuple[str, Buffer, bool]] = []
    try:
        for redirection in command.redirections:
            if redirection.target is None:
                process = replace(process, stderr=process.stdout)
                continue
            path = process.path(redirection.target.expand(state.variables))
            if redirection.operator == "<":
                process = replace(process, stdin=Buffer(process.files.read(path)))
                continue
            collected = Buffer()
            written.append((path, collected, redirection.operator == ">>"))
            if redirection.operator == "2>":
                process = replace(process, stderr=collected.write)
            else:
                process = replace(process, stdout=collected.write)
        code = await run_program(process)
        for path, collected, appends in written:
            process.files.write(path, collected.content, process.clock.now(), appends=appends)
    except CommandRefused as problem:
        await shell.stderr(f"sh: {problem}\n".encode())
        return state.ended_with(1)
    return state.ended_with(code)


def _assignments(
    words: tuple[str, ...], variables: Mapping[str, str]
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Take `NAME=value` off the front of a command."""
    assigned = dict(variables)
    while words:
        name, equals, value = words[0].partition("=")
        if not equals or not name.isidentifier():
            break
        assigned[name] = value
        words = words[1:]
    return words, assigned


# -- the commands that change the shell itself -------------------------------------------------


def exit_shell(state: ShellState, process: Process) -> ShellState:
    """Run no more commands; the code is the last one's when none is given."""
    given = process.arguments[1] if len(process.arguments) > 1 else ""
    code = int(given) & 0xFF if given.isdecimal() else state.code
    return replace(state.ended_with(code), has_exited=True)


def change_directory(state: ShellState, process: Process) -> ShellState:
    """Run the commands that follow somewhere else."""
    path = process.path(process.arguments[1] if len(process.arguments) > 1 else "/root")
    if not process.files.is_directory(path):
        return state.ended_with(1)
    return replace(state, directory=path).ended_with(0)


def export(state: ShellState, process: Process) -> ShellState:
    """Set variables; there is no difference between those of the shell and those exported."""
    _, variables = _assignments(process.arguments[1:], state.variables)
    return replace(state, variables=variables).ended_with(0)


BUILTINS: Final[Mapping[str, Callable[[ShellState, Process], ShellState]]] = {
    "cd": change_directory,
    "exit": exit_shell,
    "export": export,
}
