"""Echo, cat, ls and the like: what the shell of a simulated container can do."""

import hashlib
import posixpath
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from clusterspace.errors import CommandRefused
from clusterspace.sim.shell.archives import tar
from clusterspace.sim.shell.processes import Process, Program

_ESCAPES: Final = (("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ("\\\\", "\\"))


async def echo(process: Process) -> int:
    """Say what was given to it."""
    words = list(process.arguments[1:])
    ending, interprets = "\n", False
    while words and words[0] in ("-n", "-e", "-ne", "-en"):
        option = words.pop(0)
        ending = "" if "n" in option else ending
        interprets = interprets or "e" in option
    text = " ".join(words)
    if interprets:
        for written, meant in _ESCAPES:
            text = text.replace(written, meant)
    await process.stdout((text + ending).encode())
    return 0


async def cat(process: Process) -> int:
    """Show files, or stdin as it comes."""
    for name in process.operands or ("-",):
        if name == "-":
            while piece := await process.stdin.read():
                await process.stdout(piece)
        else:
            await process.stdout(process.files.read(process.path(name)))
    return 0


async def ls(process: Process) -> int:
    """List directories."""
    for name in process.operands or (".",):
        path = process.path(name)
        held = process.files.find(path)
        if held is None:
            raise CommandRefused(f"{name}: No such file or directory")
        found = list(process.files.names_in(path)) if held.is_directory else [name]
        for each in found:
            if each.startswith(".") and not process.has_option("a"):
                continue
            where = posixpath.join(path, each) if held.is_directory else path
            await process.say(_listed(process, where, each))
    return 0


def _listed(process: Process, path: str, name: str) -> str:
    held = process.files.find(path)
    if held is None or not process.has_option("l"):
        return name
    kind = "d" if held.is_directory else "-"
    bits = "".join(
        letter if held.mode >> place & 1 else "-"
        for place, letter in zip(range(8, -1, -1), "rwxrwxrwx", strict=True)
    )
    when = datetime.fromtimestamp(held.modified, UTC).strftime("%b %d %H:%M")
    return f"{kind}{bits} 1 root root {len(held.content):>9} {when} {name}"


async def show_directory(process: Process) -> int:
    """Say where it is."""
    await process.say(process.directory)
    return 0


async def env(process: Process) -> int:
    """Show the environment, or one variable of it."""
    wanted = process.operands
    for name, value in process.variables.items():
        if name != "?" and not wanted:
            await process.say(f"{name}={value}")
    for name in wanted:
        if name not in process.variables:
            return 1
        await process.say(process.variables[name])
    return 0


async def hostname(process: Process) -> int:
    """Say what the pod is called."""
    await process.say(process.variables.get("HOSTNAME", ""))
    return 0


async def date(process: Process) -> int:
    """Say what time it is, as the simulation has it."""
    now = datetime.fromtimestamp(process.clock.now(), UTC)
    given = next((each[1:] for each in process.operands if each.startswith("+")), "")
    await process.say(now.strftime(given or "%a %b %d %H:%M:%S UTC %Y"))
    return 0


async def sleep(process: Process) -> int:
    """Wait."""
    text = process.operands[0] if process.operands else ""
    try:
        seconds = float(text.rstrip("s"))
    except ValueError:
        await process.complain(f"invalid number '{text}'")
        return 1
    await process.clock.sleep(seconds)
    return 0


async def mkdir(process: Process) -> int:
    """Make directories."""
    for name in process.operands:
        path = process.path(name)
        if process.files.find(path) is not None and not process.has_option("p"):
            raise CommandRefused(f"can't create directory '{name}': File exists")
        parent = posixpath.dirname(path)
        if not process.files.is_directory(parent) and not process.has_option("p"):
            raise CommandRefused(f"can't create directory '{name}': No such file or directory")
        process.files.make_directory(path, process.clock.now())
    return 0


async def rm(process: Process) -> int:
    """Remove files, and directories with -r."""
    for name in process.operands:
        path = process.path(name)
        if process.files.find(path) is None and process.has_option("f"):
            continue
        if process.files.is_directory(path) and not process.has_option("r"):
            raise CommandRefused(f"'{name}' is a directory")
        process.files.remove(path)
    return 0


async def touch(process: Process) -> int:
    """Make empty files."""
    for name in process.operands:
        process.files.write(process.path(name), b"", process.clock.now(), appends=True)
    return 0


async def tee(process: Process) -> int:
    """Pass stdin on, and keep a copy in files."""
    content = await process.read_all()
    for name in process.operands:
        now = process.clock.now()
        process.files.write(process.path(name), content, now, appends=process.has_option("a"))
    await process.stdout(content)
    return 0


async def head(process: Process) -> int:
    """Show the first lines."""
    lines = (await _input_of(process)).splitlines(keepends=True)
    await process.stdout(b"".join(lines[: _count(process)]))
    return 0


async def tail(process: Process) -> int:
    """Show the last lines; `-c +N` shows everything from the Nth byte on."""
    content = await _input_of(process)
    start = next((each[3:] for each in process.arguments if each.startswith("-c+")), "")
    if start.isdigit():
        await process.stdout(content[max(0, int(start) - 1) :])
        return 0
    lines = content.splitlines(keepends=True)
    await process.stdout(b"".join(lines[max(0, len(lines) - _count(process)) :]))
    return 0


def _count(process: Process) -> int:
    words = process.arguments[1:]
    for index, word in enumerate(words):
        text = words[index + 1] if word == "-n" and index + 1 < len(words) else word.lstrip("-n")
        if word.startswith("-") and text.isdigit():
            return int(text)
    return 10


async def _input_of(process: Process) -> bytes:
    names = [each for each in process.operands if each != "-" and not each.isdigit()]
    if not names:
        return await process.read_all()
    return b"".join(process.files.read(process.path(name)) for name in names)


async def wc(process: Process) -> int:
    """Count lines, words and bytes."""
    content = await _input_of(process)
    counts = {
        "l": content.count(b"\n"),
        "w": len(content.split()),
        "c": len(content),
    }
    wanted = [letter for letter in counts if process.has_option(letter)] or list(counts)
    await process.say(" ".join(str(counts[letter]) for letter in wanted))
    return 0


def _digest(make: Callable[[bytes], str]) -> Program:
    async def digest(process: Process) -> int:
        for name in process.operands or ("-",):
            content = (
                await process.read_all() if name == "-" else process.files.read(process.path(name))
            )
            await process.say(f"{make(content)}  {name}")
        return 0

    return digest


async def test(process: Process) -> int:
    """Ask about files and texts: -d, -f, -e, -n, -z, = and !=."""
    words = list(process.arguments[1:])
    if process.name == "[":
        words = words[:-1]
    match words:
        case ["-d", name]:
            return 0 if process.files.is_directory(process.path(name)) else 1
        case ["-f", name]:
            held = process.files.find(process.path(name))
            return 0 if held is not None and not held.is_directory else 1
        case ["-e", name]:
            return 0 if process.files.find(process.path(name)) is not None else 1
        case ["-n", text] | [text]:
            return 0 if text else 1
        case ["-z", text]:
            return 1 if text else 0
        case [left, "=", right]:
            return 0 if left == right else 1
        case [left, "!=", right]:
            return 0 if left != right else 1
        case _:
            await process.complain("unknown condition")
            return 2


async def uname(process: Process) -> int:
    """Say what it runs on: nothing."""
    await process.say("Simulation")
    return 0


async def whoami(process: Process) -> int:
    """Say who it is."""
    await process.say("root")
    return 0


async def _true(process: Process) -> int:
    del process
    return 0


async def _false(process: Process) -> int:
    del process
    return 1


PROGRAMS: Final[Mapping[str, Program]] = {
    "[": test,
    "cat": cat,
    "date": date,
    "echo": echo,
    "env": env,
    "false": _false,
    "head": head,
    "hostname": hostname,
    "ls": ls,
    "md5sum": _digest(lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()),
    "mkdir": mkdir,
    "printenv": env,
    "pwd": show_directory,
    "rm": rm,
    "sha256sum": _digest(lambda data: hashlib.sha256(data).hexdigest()),
    "sleep": sleep,
    "tail": tail,
    "tar": tar,
    "tee": tee,
    "test": test,
    "touch": touch,
    "true": _true,
    "uname": uname,
    "wc": wc,
    "whoami": whoami,
}
"""Every command there is, beside those that change the shell itself."""
