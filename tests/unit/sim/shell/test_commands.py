"""Tar, as `kubectl cp` uses it."""

import io
import tarfile

from tests.unit.sim.shell.shells import NOW, Shell

from clusterspace.sim.shell.commands import pack
from clusterspace.sim.shell.processes import FileSystem


def archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as held:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            held.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


async def test_an_archive_on_stdin_becomes_files() -> None:
    shell = Shell()

    code, _, complaint = await shell.run(
        "tar", "-xmf", "-", "-C", "/tmp", stdin=archive(note=b"hello")
    )

    assert (code, complaint) == (0, "")
    assert shell.files.read("/tmp/note") == b"hello"


def _content(held: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    source = held.extractfile(member)
    assert source is not None
    return source.read()


async def test_what_was_unpacked_can_be_packed_again() -> None:
    files = FileSystem({"/data/a/b": b"1", "/data/c": b"2"}, NOW)

    with tarfile.open(fileobj=io.BytesIO(pack(files, "/", ("/data",)))) as held:
        contents = {member.name: _content(held, member) for member in held if member.isfile()}

    assert contents == {"data/a/b": b"1", "data/c": b"2"}


async def test_an_archive_cannot_leave_the_files_of_its_container() -> None:
    shell = Shell()

    await shell.run("tar", "xf", "-", "-C", "/tmp", stdin=archive(**{"../../../../etc/motd": b"x"}))

    assert shell.files.read("/etc/motd") == b"x"


async def test_what_is_not_an_archive_is_refused() -> None:
    code, _, complaint = await Shell().run("tar", "xf", "-", stdin=b"hello" * 200)

    assert code == 2
    assert "does not look like a tar archive" in complaint


async def test_a_path_that_is_not_there_is_named() -> None:
    code, _, complaint = await Shell().run("tar", "cf", "-", "/nope")

    assert (code, complaint) == (2, "tar: /nope: Cannot stat: No such file or directory\n")
