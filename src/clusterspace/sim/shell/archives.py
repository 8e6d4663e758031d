"""Tar, both ways, as `kubectl cp` needs it: in memory, and only for files and directories."""

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from clusterspace.errors import CommandRefused
from clusterspace.sim.shell.files import FileSystem, resolve
from clusterspace.sim.shell.processes import Process

_PIECE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Order:
    """What a tar command line asks for."""

    action: str
    archive: str
    directory: str
    names: tuple[str, ...]


async def tar(process: Process) -> int:
    """Pack or unpack an archive: `tar cf - PATH`, `tar xmf - -C DIRECTORY`."""
    order = _read_order(process)
    if order is None:
        await process.complain("use it as `tar cf - PATH...` or `tar xf - [-C DIRECTORY]`")
        return 2
    try:
        if order.action == "c":
            return await _create(process, order)
        return await _extract(process, order)
    except CommandRefused as problem:
        await process.complain(str(problem))
        return 2
    except tarfile.TarError as error:
        await process.complain(f"this does not look like a tar archive ({error})")
        return 2


def _read_order(process: Process) -> _Order | None:
    arguments = [each for each in process.arguments[1:] if not each.startswith("--")]
    if not arguments:
        return None
    letters = arguments.pop(0).lstrip("-")
    archive = arguments.pop(0) if "f" in letters and arguments else "-"
    directory, names = process.directory, list[str]()
    while arguments:
        word = arguments.pop(0)
        if word == "-C" and arguments:
            directory = resolve(directory, arguments.pop(0))
        else:
            names.append(word)
    action = next((each for each in letters if each in "cxt"), "")
    if not action or (action == "c" and not names):
        return None
    return _Order(action, archive, directory, tuple(names))


async def _create(process: Process, order: _Order) -> int:
    content = pack(process.files, order.directory, order.names)
    if order.archive != "-":
        process.files.write(process.path(order.archive), content, process.clock.now())
        return 0
    for start in range(0, len(content), _PIECE):
        await process.stdout(content[start : start + _PIECE])
    return 0


async def _extract(process: Process, order: _Order) -> int:
    packed = order.archive == "-"
    content = (
        await process.read_all() if packed else process.files.read(process.path(order.archive))
    )
    if not process.files.is_directory(order.directory):
        raise CommandRefused(f"{order.directory}: Cannot open: No such file or directory")
    for name in unpack(process.files, order, content, process.clock.now()):
        if order.action == "t":
            await process.say(name)
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
                stored = name.rstrip("/") + each[len(path.rstrip("/")) :]
                _add(archive, files, each, stored.lstrip("/"))
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, files: FileSystem, path: str, stored: str) -> None:
    held = files.find(path)
    if held is None or not stored:
        return
    member = tarfile.TarInfo(stored)
    member.mode = held.mode
    member.mtime = int(held.modified)
    member.size = len(held.content)
    if held.is_directory:
        member.type = tarfile.DIRTYPE
    archive.addfile(member, io.BytesIO(held.content))


def unpack(files: FileSystem, order: _Order, content: bytes, now: float) -> Iterator[str]:
    """Write an archive's files and directories; links and devices are left out."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            path = resolve(order.directory, member.name)
            if order.action == "x" and member.isdir():
                files.make_directory(path, now)
            elif order.action == "x" and member.isfile():
                source = archive.extractfile(member)
                packed = b"" if source is None else source.read()
                files.write(path, packed, now, mode=member.mode)
            yield member.name
