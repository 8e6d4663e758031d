"""Commands through hub and fleet: every byte and exit code arrives, however the member closes."""

import asyncio
from itertools import product
from pathlib import Path

import pytest
from tests.component.streams.command_runs import (
    PATHS,
    PROTOCOLS,
    Outcome,
    Run,
    begin,
    carry_out,
    nasty_fleet,
    problem_with,
)
from tests.component.streams.exec_member import CLOSES

from clusterspace.aio import event_loop

MEGABYTE = 1 << 20


def test_a_command_s_bytes_and_exit_code_arrive_however_the_member_closes(tmp_path: Path) -> None:
    said = [
        Run(way, protocol, "say", MEGABYTE + 7, 7 * index, close, is_slow=True)
        for index, (close, way, protocol) in enumerate(product(CLOSES, PATHS, PROTOCOLS))
    ]
    heard = [
        Run(way, protocol, "hear", MEGABYTE + 7, 3, "at once")
        for way, protocol in product(PATHS, PROTOCOLS)
    ]

    assert run_all(tmp_path, [*said, *heard]) == []


def test_a_stream_that_breaks_off_is_an_error_never_a_success(tmp_path: Path) -> None:
    runs = [
        Run(way, protocol, "break", MEGABYTE, 1 if index % 3 else MEGABYTE // 2 + 3, close)
        for index, (close, way, protocol) in enumerate(product(CLOSES, PATHS, PROTOCOLS))
    ]

    assert run_all(tmp_path, runs) == []


@pytest.mark.slow  # servers wait for what is under way before they stop
def test_a_command_that_is_still_running_when_the_server_stops_is_no_success(
    tmp_path: Path,
) -> None:
    async def scene() -> list[int | None]:
        runs = [Run(way, each, "hear", 1, 0, "polite") for way, each in product(PATHS, PROTOCOLS)]
        async with nasty_fleet(tmp_path) as site:
            clients = [await begin(site, run) for run in runs]
        for client in clients:
            await client.receive(is_slow=False)
            client.writer.transport.abort()
        return [
            client.outcome.exit_code(run.protocol)
            for run, client in zip(runs, clients, strict=True)
        ]

    assert event_loop.run(scene()) == [None] * 4


def run_all(directory: Path, runs: list[Run]) -> list[str]:
    """Return the problems of runs, all at the same time, on the loop that our servers run on."""

    async def scene() -> list[tuple[Run, Outcome]]:
        async with nasty_fleet(directory) as site, asyncio.TaskGroup() as group:
            tasks = {run: group.create_task(carry_out(site, run)) for run in runs}
            await asyncio.wait(tasks.values())
        return [(run, task.result()) for run, task in tasks.items()]

    return [
        problem
        for run, outcome in event_loop.run(scene())
        if (problem := problem_with(run, outcome))
    ]
