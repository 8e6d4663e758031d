"""Clients of a unified watch, killed with everything around them, are told all there is, once.

The seed decides everything but the scheduler; a failure prints it. Repeat one with
`CLUSTERSPACE_CRASH_SEED=<seed> pytest tests/robustness/test_fleet_watches.py`.
"""

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.robustness.watch_clients import Client
from tests.robustness.watch_fleet import Chaos, FragileFleet, fragile_fleet

from clusterspace.fleet.gateway.streams import ClientStream
from clusterspace.testing.steps import stop
from clusterspace.testing.watch_histories import ClusterLog

PATIENCE = 60.0


@dataclass(frozen=True)
class Run:
    """How much is done, and how fast."""

    members: int
    events: int
    clients: int
    trouble_seconds: float
    pause: float


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    problems: list[str]
    events: int
    delivered: int
    kills: int
    expired: int
    troubles: dict[str, int]


def new_seed() -> int:
    return int(os.environ.get("CLUSTERSPACE_CRASH_SEED", random.randrange(2**32)))


async def play(directory: Path, run: Run, seed: int) -> Outcome:
    """Carry out a run; whatever anybody logs as an error is a problem, too."""
    with capture_logs() as logged:
        outcome = await perform(directory, run, seed)
    errors = [str(entry) for entry in logged if entry["log_level"] == "error"]
    return replace(outcome, problems=[*outcome.problems, *errors])


async def perform(directory: Path, run: Run, seed: int) -> Outcome:
    chance = random.Random(seed)
    async with fragile_fleet(directory, run.members) as fleet:
        clients = [
            Client(fleet, random.Random(seed + each), each % 2 == 1, each % 3 != 0)
            for each in range(run.clients)
        ]
        chaos = Chaos(fleet, chance)
        recorders = [asyncio.create_task(each.record()) for each in fleet.members]
        watchers = [asyncio.create_task(each.run()) for each in clients]
        raging = asyncio.create_task(chaos.rage(run.trouble_seconds))
        share = run.events // run.members
        async with asyncio.TaskGroup() as group:
            for number, member in enumerate(fleet.members):
                writer = random.Random(seed * 31 + number)
                group.create_task(member.write(writer, share, run.pause))
        await settle(fleet, raging)
        await catch_up(fleet, clients)
        for task in (*watchers, *recorders):
            task.cancel()
        await asyncio.wait((*watchers, *recorders))
        crashed = [task for task in (*watchers, *recorders) if not task.cancelled()]
        assert [task.exception() for task in crashed] == []
        logs = logs_of(fleet)
        return Outcome(
            problems=[
                each for client in clients for each in client.problems(logs[client.only_left])
            ],
            events=sum(len(member.changes) for member in fleet.members),
            delivered=sum(len(s.events) for client in clients for s in client.segments),
            kills=sum(client.kills for client in clients),
            expired=sum(client.expired for client in clients),
            troubles=chaos.done,
        )


def logs_of(fleet: FragileFleet) -> dict[bool, dict[str, ClusterLog]]:
    return {
        only_left: {each.name: each.log(only_left=only_left) for each in fleet.members}
        for only_left in (False, True)
    }


async def settle(fleet: FragileFleet, raging: "asyncio.Task[None]") -> None:
    """Let nothing break any more, and everything that did be whole again."""
    await stop(raging)
    for member in fleet.members:
        member.proxy.heal()
        if not member.is_joined:
            await fleet.join(member)
    if not fleet.is_up.is_set():
        await fleet.start_gateway()
    for member in fleet.members:
        # One more change of each, so that the recorders are known to have seen them all.
        await member.write(random.Random(1), member.events + 1, 0)


async def catch_up(fleet: FragileFleet, clients: list[Client]) -> None:
    for client in clients:
        client.calm_down()
    async with asyncio.timeout(PATIENCE):
        while True:
            await asyncio.sleep(0.5)
            logs = logs_of(fleet)
            if all(client.has_everything(logs[client.only_left]) for client in clients):
                return


async def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path):
    seed = new_seed()
    print(f"seed {seed}")

    outcome = await play(tmp_path, Run(3, 1_500, 4, 0.4, 0.01), seed)

    assert outcome.problems[:3] == []
    assert outcome.delivered > outcome.events
    assert outcome.kills > 0
    assert outcome.troubles


@pytest.mark.slow
async def test_fifty_thousand_events_over_ten_members(tmp_path: Path):
    seed = new_seed()
    print(f"seed {seed}")

    outcome = await play(tmp_path, Run(10, 50_000, 6, 1.0, 0.005), seed)

    print(outcome)
    assert outcome.problems[:3] == []
    assert outcome.events >= 50_000
    assert len(outcome.troubles) == 5


def late(write: Callable[[ClientStream, list[bytes]], None]) -> Callable[..., None]:
    """Return the bug of a stream that stamps events and sends them each on its own time."""
    chance = random.Random(7)

    def write_later(client_stream: ClientStream, lines: list[bytes]) -> None:
        for line in lines:
            delay = chance.random() * 0.01
            asyncio.get_running_loop().call_later(delay, write, client_stream, [line])

    return write_later


@pytest.mark.slow
async def test_a_stamp_that_is_overtaken_is_found(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(ClientStream, "write", late(ClientStream.write))

    outcome = await play(tmp_path, Run(3, 400, 2, 5.0, 0.01), new_seed())

    assert any("promises" in each for each in outcome.problems)
