"""Runs pipelines, and reads them from a person."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from clusterspace.errors import CommandRefused
from clusterspace.sim.shell.commands import PROGRAMS
from clusterspace.sim.shell.language import Command, Step, parse
from clusterspace.sim.shell.processes import Held, Input, Output, Process

NOT_FOUND: Final = 127
_SYNTAX: Final = 2
_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
_LINE_LIMIT: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Session:
    """What a shell remembers from one command to the next."""

    variables: Mapping[str, str]
    directory: str
    code: int = 0
    has_exited: bool = False

    def ended_with(self, code: int) -> "Session":
        """Return the session after a command that ended so."""
        return replace(self, code=code, variables={**self.variables, "?": str(code)})


async def run_program(process: Process) -> int:
    """Run one command, a shell among them; 127 when there is no such command."""
    name = posixpath.basename(process.name)
    if name in _SHELLS:
        return await _run_shell(process)
    program = PROGRAMS.get(name)
    if program is None:
        await process.stderr(f"sh: {process.name}: not found\n".encode())
        return NOT_FOUND
    try:
        return await program(process)
    except CommandRefused as problem:
        await process.complain(str(problem))
        return 1


async def _run_shell(process: Process) -> int:
    session = Session(process.variables, process.directory)
    words = process.arguments[1:]
    if words[:1] == ("-c",):
        text = words[1] if len(words) > 1 else ""
        return (await run_text(session, text, process)).code
    if words and not words[0].startswith("-"):
        content = process.files.read(process.path(words[0]))
        return (await run_text(session, content.decode(errors="replace"), process)).code
    return await _converse(session, process)


async def _converse(session: Session, process: Process) -> int:
    """Read lines and run them until the end of input, or `exit`."""
    held: bytes = b""
    prompt = process.variables.get("PS1", "")
    await process.stdout(prompt.encode())
    while not session.has_exited:
        piece = await process.stdin.read()
        if not piece:
            session = await run_text(session, held.decode(errors="replace"), process)
            break
        held += piece
        while b"\n" in held and not session.has_exited:
            line, _, held = held.partition(b"\n")
            session = await run_text(session, line.decode(errors="replace"), process)
            if not session.has_exited:
                await process.stdout(prompt.encode())
        held = held[-_LINE_LIMIT:]
    return session.code


async def run_text(session: Session, text: str, process: Process) -> Session:
    """Run command lines one after the other."""
    try:
        steps = parse(text)
    except CommandRefused as problem:
        await process.stderr(f"sh: {problem}\n".encode())
        return session.ended_with(_SYNTAX)
    for step in steps:
        if session.has_exited:
            break
        is_due = {"&&": session.code == 0, "||": session.code != 0}.get(step.condition, True)
        if is_due:
            session = await _run_step(session, step, process)
    return session


async def _run_step(session: Session, step: Step, process: Process) -> Session:
    """Run a pipeline: each command reads all that the one before it wrote."""
    stdin: Input = process.stdin
    for command in step.commands[:-1]:
        collected = Held()
        session = await _run_command(session, command, process, stdin, collected.write)
        stdin = Held(collected.content)
    return await _run_command(session, step.commands[-1], process, stdin, process.stdout)


async def _run_command(
    session: Session, command: Command, process: Process, stdin: Input, stdout: Output
) -> Session:
    words = tuple(word.expand(session.variables) for word in command.words)
    words, variables = _assignments(words, session.variables)
    if not words:
        return replace(session, variables=variables).ended_with(0)
    own = _builtin(replace(session, variables=variables), words, process)
    if own is not None:
        return own
    started = replace(
        process,
        arguments=words,
        variables=variables,
        directory=session.directory,
        stdin=stdin,
        stdout=stdout,
    )
    try:
        return session.ended_with(await _run_redirected(session, command, started))
    except CommandRefused as problem:
        await process.stderr(f"sh: {problem}\n".encode())
        return session.ended_with(1)


def _assignments(
    words: tuple[str, ...], variables: Mapping[str, str]
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Take `NAME=value` off the front of a command."""
    held = dict(variables)
    while words:
        name, equals, value = words[0].partition("=")
        if not equals or not name.isidentifier():
            break
        held[name] = value
        words = words[1:]
    return words, held


def _builtin(session: Session, words: tuple[str, ...], process: Process) -> Session | None:
    """Carry out what changes the shell itself; None for everything else."""
    match words:
        case ("exit", *rest):
            code = int(rest[0]) & 0xFF if rest and rest[0].isdigit() else session.code
            return replace(session.ended_with(code), has_exited=True)
        case ("cd", *rest):
            place = replace(process, directory=session.directory).path(rest[0] if rest else "/root")
            if not process.files.is_directory(place):
                return session.ended_with(1)
            return replace(session, directory=place).ended_with(0)
        case ("export", *rest):
            _, variables = _assignments(tuple(rest), session.variables)
            return replace(session, variables=variables).ended_with(0)
        case _:
            return None


async def _run_redirected(session: Session, command: Command, process: Process) -> int:
    """Run a command with its streams where its redirections say."""
    kept: list[tuple[str, Held, bool]] = []
    for redirection in command.redirections:
        if redirection.target is None:
            process = replace(process, stderr=process.stdout)
            continue
        path = process.path(redirection.target.expand(session.variables))
        if redirection.operator == "<":
            process = replace(process, stdin=Held(process.files.read(path)))
            continue
        collected = Held()
        kept.append((path, collected, redirection.operator == ">>"))
        if redirection.operator == "2>":
            process = replace(process, stderr=collected.write)
        else:
            process = replace(process, stdout=collected.write)
    code = await run_program(process)
    for path, collected, appends in kept:
        process.files.write(path, collected.content, process.clock.now(), appends=appends)
    return code
