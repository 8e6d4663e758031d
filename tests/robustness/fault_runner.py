"""Plays seeds in a world of namespaces: `python -m tests.robustness.fault_runner DIRECTORY`.

Started by `test_faults.py` as process 1 of namespaces of its own. Each line that it reads is a
round to play, as JSON; each line that it writes is what came of it.
"""

import argparse
import asyncio
import logging
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from tests.component.hub_wire import CONFIG_MAPS, config_map
from tests.robustness import failover
from tests.robustness.etcd_log import EtcdLog
from tests.robustness.fault_clients import Candidate, Watcher, Way, version_in
from tests.robustness.fault_judge import all_problems
from tests.robustness.fault_world import World, world
from tests.robustness.faults import Faults, make_room
from tests.robustness.shared_registers import (
    History,
    NotDoneError,
    RefusedError,
    UnknownError,
    run_client,
)

from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdClient
from clusterspace.testing.steps import until


class Round(msgspec.Struct, frozen=True):
    """What to play."""

    seed: int
    seconds: float
    fault: str = ""
    """The only kind of fault; all, if it is empty."""
    is_calm: bool = False
    dies: str = ""
    """Nothing but how long writes stop when a machine dies: "silently", or "with a refusal"."""


class Verdict(msgspec.Struct, frozen=True):
    """What came of it."""

    seed: int
    calls: int = 0
    done: int = 0
    unknown: int = 0
    events: int = 0
    lists: int = 0
    expired: int = 0
    acts: int = 0
    refused_acts: int = 0
    longest_pause: float = 0.0
    faults: list[str] = []
    problems: list[str] = []
    seconds: float = 0.0
    pauses: list[float] = []
    """How long each client waited after a machine had died."""


async def play(world: World, round_: Round) -> Verdict:
    began = time.monotonic()
    if round_.dies:
        pauses = await failover.measure(world, round_.seed, is_silent=round_.dies == "silently")
        return Verdict(seed=round_.seed, pauses=pauses)
    log = EtcdLog(world.settings, await _revision(world))
    keys = f"k{round_.seed}-"
    history = History()
    ways = [[Way(hub, keys) for hub in world.hubs] for _ in range(5)]
    watchers = [Watcher(world.hubs, f"watcher {round_.seed} {n}") for n in range(4)]
    candidates = [Candidate(world.hubs, round_.seed, n) for n in range(3)]
    faults = Faults(world, round_.seed, log)
    end = time.monotonic() + round_.seconds
    problems: list[str] = []
    async with asyncio.TaskGroup() as group:
        followers = [group.create_task(log.follow())]
        followers += [group.create_task(each.run()) for each in watchers]
        leaders = [group.create_task(each.run()) for each in candidates]
        clients = [
            group.create_task(run_client(name, own, history, round_.seed, end))
            for name, own in enumerate(ways)
        ]
        if not round_.is_calm:
            await faults.run(end, round_.fault)
        await asyncio.wait(clients)
        for each in leaders:
            each.cancel()
        await asyncio.wait(leaders)
        await world.heal()
        if any("full etcd" in each or "full disk of a member" in each for each in faults.done):
            await make_room(world, log)  # what fills a disk may have filled the quota, too
        last = await _last_write(world, keys)
        await log.reach(last)
        with suppress(AssertionError):  # then it is said of whom, below
            await until(lambda: all(each.diary.reached >= last for each in watchers), 20)
        problems += [
            f"watcher {place} was never told of {last}: it is at {each.diary.reached}"
            for place, each in enumerate(watchers)
            if each.diary.reached < last
        ]
        for each in followers:
            each.cancel()
    for own in ways:
        for way in own:
            way.close()
    diaries = [each.diary for each in watchers]
    problems += all_problems(
        log, history.operations, diaries, candidates, keys=keys, lease=f"led-{round_.seed}"
    )
    return Verdict(
        seed=round_.seed,
        calls=len(history.operations),
        done=history.done,
        unknown=history.unknown,
        events=sum(len(piece.events) for each in diaries for piece in each.pieces),
        lists=sum(len(each.lists) for each in diaries),
        expired=sum(each.expired for each in diaries),
        acts=sum(len(each.acts) for each in candidates),
        refused_acts=sum(each.refused for each in candidates),
        longest_pause=round(history.longest_pause, 1),
        faults=faults.done,
        problems=problems,
        seconds=round(time.monotonic() - began, 1),
    )


async def _revision(world: World) -> int:
    client = await EtcdClient.open(world.settings)
    try:
        answer = await client.read(messages.RANGE, messages.range_request(b"/"))
        return messages.read_range(answer).revision
    finally:
        await client.close()


async def _last_write(world: World, keys: str) -> int:
    """Write through every hub, as soon as it lets us; return the last version."""
    versions: list[int] = []
    for place, hub in enumerate(world.hubs):
        way, tries = Way(hub), 0
        async with asyncio.timeout(60):
            while len(versions) == place:
                tries += 1
                content = config_map(f"{keys}last-{place}-{tries}")
                try:
                    versions.append(version_in(await way.ask("POST", CONFIG_MAPS, content)))
                except (NotDoneError, UnknownError, RefusedError):
                    await asyncio.sleep(0.1)
        way.close()
    return max(versions)


async def run(directory: Path, plant: str, hubs: int) -> None:
    async with world(directory, plant=plant, hubs=hubs) as built:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            verdict = await play(built, msgspec.json.decode(line, type=Round))
            print(msgspec.json.encode(verdict).decode(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--plant", default="")
    parser.add_argument("--hubs", type=int, default=3)
    chosen = parser.parse_args()
    # What elections and clients log here is noise: the hubs have logs of their own.
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    asyncio.run(run(chosen.directory, chosen.plant, chosen.hubs))


if __name__ == "__main__":
    main()
