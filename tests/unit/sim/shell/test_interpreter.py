"""The shell of a simulated container."""

import os

import pytest
from tests.unit.sim.shell.shells import Shell

from clusterspace.sim.shell.processes import FileSystem


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("echo hello", 0, "hello\n"),
        ("echo -n a; echo b", 0, "ab\n"),
        ("echo \"$HOSTNAME\" '$HOSTNAME' \\$x", 0, "web-0 $HOSTNAME $x\n"),
        ("NAME=you; echo hi $NAME", 0, "hi you\n"),
        ("false || echo rescued", 0, "rescued\n"),
        ("false && echo never; echo $?", 0, "1\n"),
        ("exit 3", 3, ""),
        ("echo a; exit 4; echo b", 4, "a\n"),
        ("echo one two | wc -w", 0, "2\n"),
        ("echo a > /tmp/x; echo b >> /tmp/x; cat < /tmp/x", 0, "a\nb\n"),
        ("mkdir -p /a/b && cd /a/b && pwd", 0, "/a/b\n"),
        ("touch /tmp/x; ls /tmp", 0, "x\n"),
        ("test -d /tmp && [ -f /tmp ] || echo dir", 0, "dir\n"),
        ("cat /nope 2> /dev/null || echo gone", 0, "gone\n"),
        ("cat /nope 2>&1 | cat", 0, "cat: /nope: No such file or directory\n"),
        ("date +%Y", 0, "2023\n"),
        ("hostname # a comment", 0, "web-0\n"),
        ("echo abc | sha256sum | head -n 1 | wc -l", 0, "1\n"),
    ],
)
async def test_a_line_does_what_a_shell_would_do(text: str, code: int, output: str) -> None:
    assert await Shell().sh(text) == (code, output, "")


@pytest.mark.parametrize(
    ("text", "code", "complaint"),
    [
        ("nosuch", 127, "sh: nosuch: not found\n"),
        ("while true; do echo; done", 2, "sh: syntax error: this shell has no 'while'\n"),
        ("echo 'open", 2, "sh: syntax error: unterminated '\n"),
        ("cat /nope", 1, "cat: /nope: No such file or directory\n"),
        ("sleep 1 &", 2, "sh: syntax error: this shell has no background jobs\n"),
        ("echo x >", 2, "sh: syntax error: '>' needs a file\n"),
    ],
)
async def test_what_it_cannot_do_it_says(text: str, code: int, complaint: str) -> None:
    assert await Shell().sh(text) == (code, "", complaint)


async def test_files_stay_from_one_command_to_the_next() -> None:
    shell = Shell()
    await shell.sh("echo kept > /root/note")

    assert await shell.run("cat", "/root/note") == (0, "kept\n", "")


async def test_lines_on_stdin_are_run_one_after_the_other() -> None:
    assert await Shell().run("sh", stdin=b"echo a\ncd /tmp\npwd\nexit 5\necho never\n") == (
        5,
        "a\n/tmp\n",
        "",
    )


async def test_nothing_of_the_host_can_be_seen() -> None:
    shell = Shell()

    assert (await shell.run("cat", "/proc/self/cmdline"))[0] == 1
    assert (await shell.run("cat", __file__))[0] == 1
    _, shown, _ = await shell.run("env")
    assert os.environ["PATH"] not in shown


async def test_a_full_disk_is_full() -> None:
    shell = Shell(FileSystem({}, 0.0, limit=10))

    code, _, complaint = await shell.sh("echo 0123456789abcdef > /tmp/x")

    assert (code, complaint) == (1, "sh: /tmp/x: No space left on device\n")
    assert shell.files.size == 0
