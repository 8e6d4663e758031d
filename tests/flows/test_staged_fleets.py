"""A staged update over a whole fleet, whose controllers are killed again and again.

A cluster joins, one leaves, one is dead. Never are more clusters of a stage without what they had
than the stage allows, and what was begun is taken back when somebody says so.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from tests.component.placement_site import PlacementSite, placement, placement_site, running
from tests.flows.test_staged_updates import Runs, run, stage, strategy

from clusterspace.apis.fleet_placements import FLEET_BINDINGS
from clusterspace.apis.staged_updates import CLUSTER_RUNS
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.propagation.placements.staged_updates import max_concurrency
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import find_at
from clusterspace.testing.crashes import CrashingClient, CrashPoint
from clusterspace.testing.steps import stop, until

SHARE = "25%"


@asynccontextmanager
async def many_lives(site: PlacementSite, seed: int) -> AsyncGenerator[list[int]]:
    """Run controllers that are killed at a write, each life at another; yields at which."""
    random, lives = Random(seed), list[int]()

    async def live() -> None:
        while True:
            write = random.randint(1, 60 + 2 * len(site.members))
            dying = CrashingClient(site.hub, CrashPoint(write, is_after=random.random() < 0.5))
            async with running(site, dying) as tasks:
                for each in tasks:  # several may try to write when the process is dead
                    each.add_done_callback(lambda task: task.cancelled() or task.exception())
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            lives.append(write)

    task = asyncio.create_task(live())
    try:
        yield lives
    finally:
        await stop(task)


class Watchman:
    """Looks at all bindings again and again, and counts what is on its way in each ring."""

    def __init__(self, site: PlacementSite, rings: dict[str, str], snapshot: str) -> None:
        self._site = site
        self._rings = rings
        self._snapshot = snapshot
        self._arrived: set[str] = set()
        self.most: dict[str, int] = {}
        self.looks = 0

    @asynccontextmanager
    async def looking(self) -> AsyncGenerator[None]:
        task = asyncio.create_task(self._look_on())
        try:
            yield
        finally:
            await stop(task)

    async def _look_on(self) -> None:
        while True:
            bindings = await self._site.hub.list_objects(ResourcePath(FLEET_BINDINGS))
            on_the_way: dict[str, int] = {}
            for each in bindings:
                cluster = each["spec"]["targetCluster"]
                is_meant = each["spec"]["resourceSnapshotName"] == self._snapshot
                if cluster not in self._rings or cluster in self._arrived or not is_meant:
                    continue
                available = find_condition(find_at(each, "status", "conditions"), "Available") or {}
                is_new = available.get("observedGeneration") == each["metadata"]["generation"]
                if is_new and available.get("status") == "True":
                    self._arrived.add(cluster)
                else:
                    ring = self._rings[cluster]
                    on_the_way[ring] = on_the_way.get(ring, 0) + 1
            for ring, number in on_the_way.items():
                self.most[ring] = max(self.most.get(ring, 0), number)
            self.looks += 1
            await asyncio.sleep(0.05)


async def test_a_fleet_of_nine_is_updated_and_taken_back(tmp_path: Path) -> None:
    await story(tmp_path, members=9, number_of_stages=3)


@pytest.mark.slow
async def test_a_fleet_of_a_hundred_is_updated_and_taken_back(tmp_path: Path) -> None:
    await story(tmp_path, members=100, number_of_stages=5)


async def story(directory: Path, members: int, number_of_stages: int) -> None:
    patience = 30 + 5.0 * members
    rings = {f"member-{number:03}": f"r{number % number_of_stages}" for number in range(members)}
    async with placement_site(directory) as site:
        for name, ring in rings.items():
            await site.join(name, labels={"ring": ring})
        await site.app("settings")
        await site.place(placement(type="External"))
        at_once = {"name": "all", "labelSelector": {}, "maxConcurrency": "100%"}
        await site.put(CLUSTER_RUNS.strategies, strategy(at_once, name="once"))
        asked = {"afterStageTasks": [{"type": "Approval"}]}
        stages = [
            stage(f"s{each}", f"r{each}", maxConcurrency=SHARE, **(asked if each < 2 else {}))
            for each in range(number_of_stages)
        ]
        await site.put(CLUSTER_RUNS.strategies, strategy(*stages))
        runs = Runs(site)
        async with running(site):
            await runs.begin(run("a", rings="once"))
            await runs.until("a", "Succeeded", "True", "UpdateRunSucceeded", seconds=patience)

        dead, gone = "member-001", "member-003"
        reached = site.members.pop(dead)
        await site.set_ready(dead, "False", for_seconds=600)
        await site.set_data("settings", {"v": "2"})
        # Besides the dead one, which is on its way for ever, and the one that goes.
        seen = {name: ring for name, ring in rings.items() if name not in (dead, gone)}
        watchman = Watchman(site, seen, "crp-1-snapshot")
        async with watchman.looking(), many_lives(site, members) as lives:
            await runs.begin(run("b"))
            await runs.approve("b-after-s0", patience)
            await site.join("late", labels={"ring": "r0"})
            await site.leave(gone)
            await runs.approve("b-after-s1", patience)
            await runs.until("b", "Succeeded", "True", "UpdateRunSucceeded", seconds=patience)
            await site.until_data("late", "settings", {"v": "2"})
        for name in seen:
            assert await site.data(name, "settings") == {"v": "2"}
        for index, ring in enumerate(f"r{each}" for each in range(number_of_stages)):
            allowed = max_concurrency(stages[index], sum(r == ring for r in rings.values()))
            assert watchman.most.get(ring, 0) <= allowed
        assert lives, "nobody was killed"
        status = await runs.status("b")
        entries = {
            each["clusterName"]: each for s in status["stagesStatus"] for each in s["clusters"]
        }
        parked = find_condition(entries[dead]["conditions"], "Succeeded") or {}
        assert parked["reason"] == "ClusterParked"

        site.members[dead] = reached
        await site.set_ready(dead, "True")
        await site.set_data("settings", {"v": "3"})
        async with many_lives(site, members + 1):
            await site.until_data(dead, "settings", {"v": "2"})
            await runs.begin(run("c"))
            await site.until_data("member-000", "settings", {"v": "3"})
            await runs.begin(run("d", rings="once", index="1"))
            await runs.until("d", "Succeeded", "True", "UpdateRunSucceeded", seconds=patience)
            await runs.until("c", "Succeeded", "False", "UpdateRunFailed", seconds=patience)

            async def is_back() -> bool:
                names = [name for name in (*rings, "late") if name != gone]
                return all([await site.data(each, "settings") == {"v": "2"} for each in names])

            # While somebody works: what the run before had sent may arrive after the other's end.
            await until(is_back, patience)
