"""The table of commands a simulated container has, and what each of them does.

A command is a coroutine from a Process to an exit code; CommandRefused is printed and exits with 1.
Those that print one line, or turn their input into their output, are written as just that.
"""

import hashlib
import io
import posixpath
import tarfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from clusterspace.errors import CommandRefused
from clusterspace.sim.shell.processes import Command, FileSystem, Process, resolve

_ESCAPES: Final = (("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ("\\\\", "\\"))
_PIECE: Final = 64 * 1024
_DEFAULT_LINES: Final = 10


def _exits(code: int) -> Command:
    """Return a command that does nothing but end."""

    async def command(process: Process) -> int:
        del process
        return code

    return command


def _prints(line: Callable[[Process], str]) -> Command:
    """Return a command that prints one line."""

    async def command(process: Process) -> int:
        await process.print(line(process))
        return 0

    return command


def _filters(output: Callable[[Process, bytes], bytes]) -> Command:
    """Return a command that turns its files, or stdin, into its output."""

    async def command(process: Process) -> int:
        names = [each for each in process.operands if each != "-" and not each.isdigit()]
        if names:
            content = b"".join(process.files.read(process.path(name)) for name in names)
        else:
            content = await process.read_all()
        await process.stdout(output(process, content))
        return 0

    return command


def _digests(digest: Callable[[bytes], str]) -> Command:
    """Return a command that prints a digest of each of its files."""

    async def command(process: Process) -> int:
        for name in process.operands or ("-",):
            is_stdin = name == "-"
            content = (
                await process.read_all() if is_stdin else process.files.read(process.path(name))
            )
            await process.print(f"{digest(content)}  {name}")
        return 0

    return command


# -- texts -------------------------------------------------------------------------------------


async def echo(process: Process) -> int:
    """Print its arguments."""
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


async def env(process: Process) -> int:
    """Print the environment, or one variable of it."""
    names = process.operands
    for name, value in process.variables.items():
        if name != "?" and not names:
            await process.print(f"{name}={value}")
    for name in names:
        if name not in process.variables:
            return 1
        await process.print(process.variables[name])
    return 0


async def sleep(process: Process) -> int:
    """Wait."""
    text = process.operands[0] if process.operands else ""
    try:
        seconds = float(text.rstrip("s"))
    except ValueError:
        await process.print_error(f"invalid number '{text}'")
        return 1
    await process.clock.sleep(seconds)
    return 0


async def test(process: Process) -> int:
    """Compare files and texts: -d, -f, -e, -n, -z, = and !=."""
    words = list(process.arguments[1:])
    if process.name == "[":
        words = words[:-1]
    match words:
        case ["-d", name]:
            is_true = process.files.is_directory(process.path(name))
        case ["-f", name]:
            existing = process.files.find(process.path(name))
            is_true = existing is not None and not existing.is_directory
        case ["-e", name]:
            is_true = process.files.find(process.path(name)) is not None
        case ["-n", text] | [text]:
            is_true = bool(text)
        case ["-z", text]:
            is_true = not text
        case [left, "=", right]:
            is_true = left == right
        case [left, "!=", right]:
            is_true = left != right
        case _:
            await process.print_error("unknown condition")
            return 2
    return 0 if is_true else 1


def date(process: Process) -> str:
    """Return the time, as the simulation has it."""
    now = datetime.fromtimestamp(process.clock.now(), UTC)
    given = next((each[1:] for each in process.operands if each.startswith("+")), "")
    return now.strftime(given or "%a %b %d %H:%M:%S UTC %Y")


# -- filters -----------------------------------------------------------------------------------


def head(process: Process, content: bytes) -> bytes:
    """Return the first lines."""
    return b"".join(content.splitlines(keepends=True)[: _line_count(process)])


def tail(process: Process, content: bytes) -> bytes:
    """Return the last lines; with `-c +N` everything from the Nth byte on."""
    start = next((each[3:] for each in process.arguments if each.startswith("-c+")), "")
    if start.isdecimal():
        return content[max(0, int(start) - 1) :]
    lines = content.splitlines(keepends=True)
    return b"".join(lines[max(0, len(lines) - _line_count(process)) :])


def _line_count(process: Process) -> int:
    words = process.arguments[1:]
    for index, word in enumerate(words):
        text = words[index + 1] if word == "-n" and index + 1 < len(words) else word.lstrip("-n")
        if word.startswith("-") and text.isdecimal():
            return int(text)
    return _DEFAULT_LINES


def wc(process: Process, content: bytes) -> bytes:
    """Return how many lines, words and bytes there are."""
    counts = {"l": content.count(b"\n"), "w": len(content.split()), "c": len(content)}
    letters = [letter for letter in counts if process.has_option(letter)] or list(counts)
    return " ".join(str(counts[letter]) for letter in letters).encode() + b"\n"


# -- files -------------------------------------------------------------------------------------


async def cat(process: Process) -> int:
    """Print files, or stdin as it comes."""
    for name in process.operands or ("-",):
        if name == "-":
            while piece := await process.stdin.read():
                await process.stdout(piece)
        else:
            await process.stdout(process.files.read(process.path(name)))
    return 0


async def ls(process: Process) -> int:
    """List directories; with -l, modes, sizes and times too."""
    for name in process.operands or (".",):
        path = process.path(name)
        listed = process.files.find(path)
        if listed is None:
            raise CommandRefused(f"{name}: No such file or directory")
        names = list(process.files.names_in(path)) if listed.is_directory else [name]
        for each in names:
            if each.startswith(".") and not process.has_option("a"):
                continue
            file = process.files.find(posixpath.join(path, each) if listed.is_directory else path)
            if file is None or not process.has_option("l"):
                await process.print(each)
                continue
            kind = "d" if file.is_directory else "-"
            bits = "".join(
                letter if file.mode >> shift & 1 else "-"
                for shift, letter in zip(range(8, -1, -1), "rwxrwxrwx", strict=True)
            )
            when = datetime.fromtimestamp(file.modified, UTC).strftime("%b %d %H:%M")
            await process.print(f"{kind}{bits} 1 root root {len(file.content):>9} {when} {each}")
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


# -- tar, both ways, as `kubectl cp` needs it: in memory, and only for files and directories ---


async def tar(process: Process) -> int:
    """Pack or unpack an archive: `tar cf - PATH`, `tar xmf - -C DIRECTORY`."""
    arguments = [each for each in process.arguments[1:] if not each.startswith("--")]
    letters = arguments.pop(0).lstrip("-") if arguments else ""
    archive = arguments.pop(0) if "f" in letters and arguments else "-"
    directory, names = process.directory, list[str]()
    while arguments:
        word = arguments.pop(0)
        if word == "-C" and arguments:
            directory = resolve(directory, arguments.pop(0))
        else:
            names.append(word)
    action = next((each for each in letters if each in "cxt"), "")
    try:
        if action == "c" and names:
            content = pack(process.files, directory, tuple(names))
            if archive != "-":
                process.files.write(process.path(archive), content, process.clock.now())
            else:
                for start in range(0, len(content), _PIECE):
                    await process.stdout(content[start : start + _PIECE])
        elif action in ("x", "t"):
            is_stdin = archive == "-"
            content = (
                await process.read_all() if is_stdin else process.files.read(process.path(archive))
            )
            if not process.files.is_directory(directory):
                raise CommandRefused(f"{directory}: Cannot open: No such file or directory")
            for name in unpack(process, directory, content, writes=action == "x"):
                if action == "t":
                    await process.print(name)
        else:
            raise CommandRefused("use it as `tar cf - PATH...` or `tar xf - [-C DIRECTORY]`")
    except CommandRefused as problem:
        await process.print_error(str(problem))
        return 2
    except tarfile.TarError as error:
        await process.print_error(f"this does not look like a tar archive ({error})")
        return 2
    return 0


def pack(files: FileSystem, directory: str, names: tuple[str, ...]) -> bytes:
    """Return an archive of these files and of all that is in these directories."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            path = resolve(directory, name)
            if files.find(path) is None:
                raise CommandRefused(f"{name}: Cannot stat: No such file or directory")
            for each in (path, *files.below(path)):
                stored = (name.rstrip("/") + each[len(path.rstrip("/")) :]).lstrip("/")
                file = files.find(each)
                if file is None or not stored:
                    continue
                member = tarfile.TarInfo(stored)
                member.mode = file.mode
                member.mtime = int(file.modified)
                member.size = len(file.content)
                if file.is_directory:
                    member.type = tarfile.DIRTYPE
                archive.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()


def unpack(process: Process, directory: str, content: bytes, *, writes: bool) -> list[str]:
    """Return the names in an archive, its files and directories written; no links, no devices."""
    names: list[str] = []
    now = process.clock.now()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            path = resolve(directory, member.name)
            if writes and member.isdir():
                process.files.make_directory(path, now)
            elif writes and member.isfile():
                source = archive.extractfile(member)
                packed = b"" if source is None else source.read()
                process.files.write(path, packed, now, mode=member.mode)
            names.append(member.name)
    return names


# -- the table ---------------------------------------------------------------------------------

COMMANDS: Final[Mapping[str, Command]] = {
    "[": test,
    "cat": cat,
    "date": _prints(date),
    "echo": echo,
    "env": env,
    "false": _exits(1),
    "head": _filters(head),
    "hostname": _prints(lambda process: process.variables.get("HOSTNAME", "")),
    "ls": ls,
    "md5sum": _digests(lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()),
    "mkdir": mkdir,
    "printenv": env,
    "pwd": _prints(lambda process: process.directory),
    "rm": rm,
    "sha256sum": _digests(lambda data: hashlib.sha256(data).hexdigest()),
    "sleep": sleep,
    "tail": _filters(tail),
    "tar": tar,
    "tee": tee,
    "test": test,
    "touch": touch,
    "true": _exits(0),
    "uname": _prints(lambda process: "Simulation"),
    "wc": _filters(wc),
    "whoami": _prints(lambda process: "root"),
}
"""Every command there is, beside those that change the shell itself."""
