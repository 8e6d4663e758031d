"""Another user of the machine runs `ps`: what programs are called with holds no secrets."""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from clusterspace.cli.main import main
from clusterspace.cli.settings import CommandPath, Setting
from clusterspace.roots.local.commands import ComponentCommands, UpSettings
from clusterspace.roots.local.files import LocalFiles
from clusterspace.roots.tokens import create_token
from clusterspace.testing.stage import running_fleet

ROOT = Path(__file__).parents[2]
PROC = Path("/proc")
TOKEN = "abcdef.0123456789abcdefghijklmnop"
REGISTER = (
    "register", "127.0.0.1:1", "--discovery-token-ca-cert-hash", "sha256:00",
    "--cluster-name", "west", "--cluster-kubeconfig", "/nowhere",
)  # fmt: skip


def all_settings() -> Iterator[Setting]:
    for command in CommandPath((), main).below():
        yield from command.settings()


def secret_flags() -> set[str]:
    """Options that take a secret itself, not a file that holds one."""
    return {each.flag for each in all_settings() if each.option.hide_input}


def shown_with(secret: str) -> list[str]:
    """Return the command lines of this machine that hold a secret, as `ps` shows them."""
    found: list[str] = []
    for directory in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            words = (directory / "cmdline").read_bytes().decode(errors="replace")
            if secret in words:
                found.append(words.replace("\0", " "))
    return found


async def watch_processes(secret: str, seen: list[str]) -> None:
    """Be the other user: look at every process, again and again."""
    while True:
        seen += shown_with(secret)
        await asyncio.sleep(0.01)


@pytest.mark.skipif(not PROC.exists(), reason="processes are not shown in /proc here")
async def test_the_printed_command_registers_a_cluster_and_shows_its_token_to_nobody(
    tmp_path: Path,
) -> None:
    async with running_fleet(tmp_path) as fleet:
        await fleet.add_member("west")
        made = await create_token("west", fleet.hub.settings)
        secret = made.token.partition(".")[2]
        seen: list[str] = []
        spying = asyncio.create_task(watch_processes(secret, seen))
        # As in a terminal: the shell reads the line, and is not called with it.
        typed = made.command.replace("clusterspace", f"{sys.executable} -m clusterspace", 1)
        kubeconfig = tmp_path / "west" / "kubeconfig"
        shell = await asyncio.create_subprocess_exec(
            "sh",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        line = f"{typed} --cluster-kubeconfig {kubeconfig} --agent-image agent:1\n"
        told, _ = await shell.communicate(line.encode())
        spying.cancel()

    assert b"cluster west is registered" in told
    assert seen == []


def test_a_token_on_the_command_line_works_with_a_warning() -> None:
    """Karmada's own command has the flag, so ours has it too."""
    called = CliRunner().invoke(main, [*REGISTER, "--token", TOKEN])

    assert "can read --token in the list of processes" in called.output
    assert "/nowhere: there is no such file" in called.output
    assert TOKEN not in called.output


@pytest.mark.skipif(not PROC.exists(), reason="processes are not shown in /proc here")
@pytest.mark.parametrize("form", ["--token {}", "--token={}"])
async def test_a_token_on_the_command_line_is_gone_from_it_once_it_was_read(
    tmp_path: Path, form: str
) -> None:
    """As programs call it that took the printed command apart."""
    kubeconfig = tmp_path / "kubeconfig"
    os.mkfifo(kubeconfig)  # it reads this next, and waits
    words = (*REGISTER[:-1], str(kubeconfig), *form.format(TOKEN).split())
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "clusterspace", *words, stderr=asyncio.subprocess.PIPE
    )
    with await asyncio.to_thread(kubeconfig.open, "w") as file:
        shown = (PROC / str(agent.pid) / "cmdline").read_bytes()
        file.write("kind: Config\n")
    _, said = await agent.communicate()

    assert b"--cluster-name\0west" in shown
    assert TOKEN.encode() not in shown
    assert said.decode().count("can read --token") == 1  # and it goes on with the token
    assert b"A token is needed" not in said


@pytest.mark.parametrize("way", ["file", "standard input", "variable"])
def test_a_token_is_given_in_a_file_on_standard_input_or_in_a_variable(
    way: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    words = {
        "file": ["--token-file", str(file)],
        "standard input": ["--token-file", "-"],
        "variable": [],
    }[way]
    variable = {"CLUSTERSPACE_REGISTER_TOKEN": TOKEN} if way == "variable" else {}

    called = CliRunner().invoke(main, [*REGISTER, *words], env=variable, input=f"{TOKEN}\n")

    assert called.output == "Error: /nowhere: there is no such file\n"


def test_without_a_token_the_ways_to_give_one_are_named() -> None:
    nowhere = CliRunner().invoke(main, list(REGISTER))
    both = CliRunner().invoke(main, [*REGISTER, "--token", TOKEN, "--token-file", "-"])

    assert "--token-file, or the variable CLUSTERSPACE_REGISTER_TOKEN" in nowhere.output
    assert "exclude each other" in both.output
    assert (nowhere.exit_code, both.exit_code) == (2, 2)


def test_every_option_that_takes_a_secret_is_known_as_one() -> None:
    """Whoever adds one has it hidden by `config show`, and kept out of what we start ourselves."""
    words = re.compile(r"(^|-)(token|password|secret|key)$")
    taking = {each.flag for each in all_settings() if words.search(each.key)}
    is_text = {each.flag for each in all_settings() if not isinstance(each.option.type, click.Path)}

    assert taking & is_text <= secret_flags()
    assert "--token" in secret_flags()


def test_a_local_fleet_is_started_without_secrets_on_its_command_lines(tmp_path: Path) -> None:
    ports: dict[str, int] = {"hub": 1, "fleet": 2, "controllers": 3, "member1": 4}
    parts = ComponentCommands(UpSettings(tmp_path, members=1), LocalFiles(tmp_path), ports)

    async def nothing() -> None:
        return

    started = (
        parts.hub("hub"),
        parts.fleet("fleet"),
        parts.controllers("controllers"),
        parts.member("member1", nothing),
    )

    for part in started:
        assert secret_flags().isdisjoint(word.partition("=")[0] for word in part.arguments)


def test_what_we_ship_is_started_without_secrets_on_its_command_lines() -> None:
    shipped = [each for each in (ROOT / "deploy").rglob("*") if each.is_file()]
    flags = "|".join(map(re.escape, secret_flags()))

    assert shipped
    for file in shipped:
        assert not re.search(rf"({flags})[ =,\"']", file.read_text()), file
