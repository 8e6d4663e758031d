"""A thousand commands through hub and fleet, and kubectl's: no byte lost, no exit code wrong."""

import asyncio
import hashlib
import os
import random
import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from tests.component.gateway.fleet_site import ROOT, Site
from tests.component.streams.command_runs import (
    MEMBER,
    PATHS,
    PROTOCOLS,
    Run,
    carry_out,
    nasty_fleet,
    problem_with,
)
from tests.component.streams.exec_member import CLOSES, digest

from clusterspace.aio import event_loop
from clusterspace.testing.stage import PATIENCE

POD = f"web.clusterspace.{MEMBER}"
RUNS = 1000
AT_ONCE = 8
MEGABYTE = 1 << 20
SIZES = tuple(int(MEGABYTE * 50 ** (step / 15)) + step for step in range(16))
"""From one megabyte to fifty, in even factors; none is a multiple of a buffer's size."""


@pytest.mark.slow
def test_a_thousand_commands_arrive_whole_and_broken_ones_are_errors(tmp_path: Path) -> None:
    chance = random.Random(20261115)
    runs: list[Run] = []
    for way, protocol, close in product(PATHS, PROTOCOLS, CLOSES):
        for _ in range(RUNS // (len(PATHS) * len(PROTOCOLS) * len(CLOSES))):
            verb = chance.choices(("say", "hear", "break"), (6, 3, 1))[0]
            size = chance.choice(SIZES)
            number = chance.randrange(size) if verb == "break" else chance.randrange(256)
            runs.append(
                Run(way, protocol, verb, size, number, close, is_slow=chance.random() < 0.5)
            )
    chance.shuffle(runs)

    async def scene() -> list[str]:
        problems: list[str] = []
        waiting = iter(runs)

        async def work(site: Site) -> None:
            for run in waiting:
                outcome = await carry_out(site, run)
                problems.append(problem_with(run, outcome))

        async with nasty_fleet(tmp_path) as site, asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work(site))
        return [problem for problem in problems if problem]

    problems = event_loop.run(scene())

    megabytes = sum(run.size for run in runs) >> 20
    broken = sum(run.verb == "break" for run in runs)
    print(
        f"{len(runs)} commands, {broken} of them broken, {megabytes} MB: {len(problems)} problems"
    )
    assert len(runs) == RUNS
    assert problems == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not found")
def test_kubectl_copies_whole_files_and_learns_of_exit_codes_and_broken_streams(
    tmp_path: Path,
) -> None:
    size = 3 * MEGABYTE + 5

    async def kubectl(
        site: Site, is_websocket: bool, words: Sequence[str]
    ) -> tuple[int, bytes, bytes]:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            f"--server={site.url}",
            f"--certificate-authority={site.directory / site.data_name / 'pki' / 'ca.crt'}",
            f"--token={ROOT}",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env={
                **os.environ,
                "KUBECONFIG": "/dev/null",
                "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": str(is_websocket).lower(),
            },
        )
        async with asyncio.timeout(PATIENCE):
            said, complaint = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said, complaint

    async def check(site: Site, is_websocket: bool) -> None:
        code, said, complaint = await kubectl(
            site, is_websocket, ("exec", POD, "--", "say", str(size), "7", "at once")
        )
        assert (code, hashlib.sha256(said).hexdigest()) == (7, digest(size)), complaint

        for close in ("polite", "without a goodbye"):
            broken = ("exec", POD, "--", "break", str(size), str(MEGABYTE), close)
            code, said, complaint = await kubectl(site, is_websocket, broken)
            assert (code, len(said)) == (1, MEGABYTE), complaint
            if not is_websocket:
                assert b"cluster nasty broke the stream off" in complaint

        file = tmp_path / f"copied-{is_websocket}"
        code, _, complaint = await kubectl(
            site, is_websocket, ("cp", f"default/{POD}:/{size}.at once", file.name)
        )
        assert code == 0, complaint
        assert hashlib.sha256(file.read_bytes()).hexdigest() == digest(size)

    async def scene() -> None:
        async with nasty_fleet(tmp_path / "fleet") as site, asyncio.TaskGroup() as group:
            for is_websocket in (True, False):
                group.create_task(check(site, is_websocket))

    (tmp_path / "fleet").mkdir()
    event_loop.run(scene())
