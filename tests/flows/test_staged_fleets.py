"""A staged update over a whole fleet, whose hub and controllers are killed again and again.

A cluster joins, one leaves, one is dead. Never are more clusters of a stage without what they had
than the stage allows, and what was begun is taken back when somebody says so.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from tests.component.hub_wire import HubProcess
from tests.component.placement_site import PlacementSite, placement, running
from tests.flows.test_policy_rollouts import (
    BINDING,
    contents,
    policy,
    until_contents,
    until_rolled_out,
)
from tests.flows.test_staged_updates import Runs, run, stage, strategy

from clusterspace.apis.clusters import WORKS
from clusterspace.apis.fleet_placements import FLEET_BINDINGS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.rollouts import revisions_of
from clusterspace.apis.staged_updates import CLUSTER_RUNS, NAMESPACED_RUNS
from clusterspace.apis.works import binding_key_of, cluster_of
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import (
    EVERYTHING,
    ClusterClient,
    ListOptions,
    PatchType,
    WriteOptions,
)
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import AlreadyExists, ClusterError
from clusterspace.fleet.propagation.placements.staged_updates import max_concurrency
from clusterspace.fleet.propagation.rollouts.decisions import problem_of
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Fuse, MortalClient, Snare
from clusterspace.testing.hubs import client_for_test, free_port
from clusterspace.testing.steps import stop, until

SHARE = "25%"
PLAIN = WriteOptions()
PATIENCE = 180.0
"""Hub and controllers begin anew again and again, and read everything each time."""
EVERYWHERE: Object = {"name": "all", "labelSelector": {}, "maxConcurrency": "100%"}
Answer = TypeVar("Answer")


class MortalHub:
    """A hub as a process of its own, which is killed, and comes back where it was."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._port = free_port()
        self._process = self._started()
        self._returning: asyncio.Task[float] | None = None
        self.deaths = 0

    def _started(self) -> HubProcess:
        command = ("clusterspace", "hub", "--store", "sqlite")
        return HubProcess(self._directory, command, port=self._port)

    async def wait_ready(self) -> ConnectionSettings:
        await asyncio.to_thread(self._process.wait_ready)
        return read_kubeconfig([self._directory / "kubeconfig"]).settings(cluster="hub")

    def die(self) -> None:
        """End as at a power cut, and start again at once."""
        if self._returning is not None and not self._returning.done():
            return  # it is down already
        self.deaths += 1
        self._process.kill()
        self._process = self._started()
        # A task, so that who kills it goes on, and meets a hub that is away.
        self._returning = asyncio.create_task(asyncio.to_thread(self._process.wait_ready))

    async def end(self) -> None:
        if self._returning is not None:
            await self._returning
        self._process.kill()


class PersistentClient(ClusterClient):
    """What a person does while a hub is away: try again."""

    async def get(self, place: ResourcePath) -> Object:
        return await _again(partial(super().get, place))

    async def list_objects(
        self, place: ResourcePath, options: ListOptions = EVERYTHING
    ) -> list[Object]:
        return await _again(partial(super().list_objects, place, options))

    async def create(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = PLAIN
    ) -> Object:
        try:
            return await _again(partial(super().create, place, kube_object, options))
        except AlreadyExists:  # by the attempt before, whose answer was lost
            return await self.get(place.named(name_of(kube_object)))

    async def patch(
        self, place: ResourcePath, patch_type: PatchType, patch: Any, options: WriteOptions = PLAIN
    ) -> Object:
        return await _again(partial(super().patch, place, patch_type, patch, options))


async def _again(attempt: Callable[[], Awaitable[Answer]]) -> Answer:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await attempt()
            except ClusterError:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def mortal_site(directory: Path) -> AsyncGenerator[tuple[PlacementSite, MortalHub]]:
    """Run a hub that can be killed, with nobody at work and no members yet."""
    async with AsyncExitStack() as stack:
        hub = MortalHub(directory / "the-hub")
        stack.push_async_callback(hub.end)
        settings = await hub.wait_ready()
        client = await stack.enter_async_context(client_for_test(settings))
        yield PlacementSite(PersistentClient(client.connection), directory, stack), hub


@asynccontextmanager
async def many_lives(site: PlacementSite, hub: MortalHub, seed: int) -> AsyncGenerator[list[int]]:
    """Run controllers that are killed at a write, or the hub is, or both; yields at which."""
    random, lives = Random(seed), list[int]()

    async def live() -> None:
        while True:
            write = random.randint(1, 60 + 2 * len(site.members))
            point = CrashPoint(write, is_after=random.random() < 0.5)
            dying = CrashingClient(site.hub, point)
            what = random.randrange(3)
            if what == 0:  # the hub alone, and some time later the controllers, at another write
                dying = CrashingClient(site.hub, fuse=TwoDeaths(point, hub, random))
            async with running(site, dying) as tasks:
                for each in tasks:  # several may try to write when the process is dead
                    each.add_done_callback(lambda task: task.cancelled() or task.exception())
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if what == 1:
                hub.die()
            lives.append(write)

    task = asyncio.create_task(live())
    try:
        yield lives
    finally:
        await stop(task)


class TwoDeaths(Fuse):
    """Ends the hub at one write, and this process at a later one."""

    def __init__(self, point: CrashPoint, hub: MortalHub, random: Random) -> None:
        super().__init__(CrashPoint(point.write + random.randint(1, 60), point.is_after))
        self._snare = Snare(point, hub.die)

    async def around(self, write: Callable[[], Awaitable[Object]]) -> Object:
        return await super().around(partial(self._snare.around, write))


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
    async with mortal_site(directory) as (site, hub):
        for name, ring in rings.items():
            await site.join(name, labels={"ring": ring})
        await site.app("settings")
        await site.place(placement(type="External"))
        await site.put(CLUSTER_RUNS.strategies, strategy(EVERYWHERE, name="once"))
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

        async def has(name: str, value: str) -> bool:
            return await site.data(name, "settings") == {"v": value}

        dead, gone = "member-001", "member-003"
        reached = site.members.pop(dead)
        await site.set_ready(dead, "False", for_seconds=600)
        await site.set_data("settings", {"v": "2"})
        # Besides the dead one, which is on its way for ever, and the one that goes.
        seen = {name: ring for name, ring in rings.items() if name not in (dead, gone)}
        watchman = Watchman(site, seen, "crp-1-snapshot")
        async with watchman.looking(), many_lives(site, hub, members) as lives:
            await runs.begin(run("b"))
            await runs.approve("b-after-s0", patience)
            await site.join("late", labels={"ring": "r0"})
            await site.leave(gone)
            await runs.approve("b-after-s1", patience)
            await runs.until("b", "Succeeded", "True", "UpdateRunSucceeded", seconds=patience)
            await until(lambda: has("late", "2"), patience)
        for name in seen:
            assert await has(name, "2")
        for index, ring in enumerate(f"r{each}" for each in range(number_of_stages)):
            allowed = max_concurrency(stages[index], sum(r == ring for r in rings.values()))
            assert watchman.most.get(ring, 0) <= allowed
        assert lives, "nobody was killed"
        assert hub.deaths, "the hub was not killed"
        status = await runs.status("b")
        entries = {
            each["clusterName"]: each for s in status["stagesStatus"] for each in s["clusters"]
        }
        parked = find_condition(entries[dead]["conditions"], "Succeeded") or {}
        assert parked["reason"] == "ClusterParked"

        site.members[dead] = reached
        await site.set_ready(dead, "True")
        await site.set_data("settings", {"v": "3"})
        async with many_lives(site, hub, members + 1):
            await until(lambda: has(dead, "2"), patience)
            await runs.begin(run("c"))
            await until(lambda: has("member-000", "3"), patience)
            await runs.begin(run("d", rings="once", index="1"))
            await runs.until("d", "Succeeded", "True", "UpdateRunSucceeded", seconds=patience)
            await runs.until("c", "Succeeded", "False", "UpdateRunFailed", seconds=patience)

            async def is_back() -> bool:
                names = [name for name in (*rings, "late") if name != gone]
                return all([await has(each, "2") for each in names])

            # While somebody works: what the run before had sent may arrive after the other's end.
            await until(is_back, patience)


@pytest.mark.slow
async def test_killed_after_every_write_a_run_and_its_rollback_end_the_same(tmp_path: Path) -> None:
    """Hub and controllers die together after each write of either, whoever makes it.

    After one write is before the next: nobody has written anything in between.
    """
    rings = {"one": "r0", "two": "r1", "three": "r2"}
    async with mortal_site(tmp_path) as (site, hub):
        for name, ring in rings.items():
            await site.join(name, labels={"ring": ring})
        await site.app("settings")
        await site.set_data("settings", {"v": "0"})
        await site.place(placement(type="External"))
        await site.put(CLUSTER_RUNS.strategies, strategy(EVERYWHERE, name="once"))
        asked = {"afterStageTasks": [{"type": "Approval"}]}
        stages = [stage("s0", "r0", **asked), stage("s1", "r1"), stage("s2", "r2")]
        await site.put(CLUSTER_RUNS.strategies, strategy(*stages))
        runs = Runs(site)
        async with running(site):
            await runs.begin(run("begin", rings="once"))
            await runs.until("begin", "Succeeded", "True", "UpdateRunSucceeded")
        counting = Fuse()
        await there_and_back(site, hub, rings, 1, counting)
        assert counting.writes > 10
        for write in range(1, counting.writes + 1):
            fuse = Fuse(CrashPoint(write, is_after=True))
            await there_and_back(site, hub, rings, 1 + write, fuse)


async def there_and_back(
    site: PlacementSite, hub: MortalHub, rings: dict[str, str], number: int, fuse: Fuse
) -> None:
    """Roll a change out stage by stage, and take it back at once; all die when the fuse blows."""
    runs, first = Runs(site), f"b{number}"
    new, good = {"v": str(number)}, {"v": str(number - 1)}

    async def lives() -> None:
        mortal = MortalClient(site.hub.connection, fuse)
        async with running(site, hub=mortal) as tasks:
            for each in tasks:
                each.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        hub.die()
        async with running(site):
            await asyncio.Event().wait()

    async def seen(name: str) -> Object:
        return await site.data(name, "settings") or {}

    await site.set_data("settings", new)
    task = asyncio.create_task(lives())
    try:
        watchman = Watchman(site, rings, f"crp-{number}-snapshot")
        async with watchman.looking():
            await runs.begin(run(first))
            await runs.approve(f"{first}-after-s0", PATIENCE)
            await runs.until(first, "Succeeded", "True", "UpdateRunSucceeded", seconds=PATIENCE)
        assert all(each <= 1 for each in watchman.most.values())
        assert [await seen(name) for name in rings] == [new] * len(rings)
        await runs.begin(run(f"c{number}", rings="once", index=str(number - 1)))
        await runs.until(f"c{number}", "Succeeded", "True", "UpdateRunSucceeded", seconds=PATIENCE)
        assert [await seen(name) for name in rings] == [good] * len(rings)
    finally:
        await stop(task)


class PolicyWatchman:
    """Looks at a policy's binding and its Works again and again.

    It counts the clusters of each ring that are to have a state and have not said that they do.
    """

    def __init__(self, site: PlacementSite, rings: dict[str, str]) -> None:
        self._site = site
        self._rings = rings
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
            # The binding first: what arrives between the two looks is not counted any more, and
            # what is sent in between is not counted yet. The other way round a cluster that has
            # arrived would be counted beside the one that was sent for that reason.
            known = revisions_of(await self._site.hub.get(BINDING))
            works = {
                cluster_of(each): each
                for each in await self._site.hub.list_objects(ResourcePath(WORKS))
                if binding_key_of(each) == BINDING.key
            }
            on_the_way: dict[str, int] = {}
            for cluster, revision in (known.clusters if known else {}).items():
                problem = problem_of(works.get(cluster), revision)
                is_new = known is not None and revision != known.stable
                if cluster in self._rings and is_new and problem:
                    ring = self._rings[cluster]
                    on_the_way[ring] = on_the_way.get(ring, 0) + 1
            for ring, number in on_the_way.items():
                self.most[ring] = max(self.most.get(ring, 0), number)
            self.looks += 1
            await asyncio.sleep(0.05)


async def policy_rollout(site: PlacementSite, *stages: Object) -> Runs:
    """Place the settings by a policy with these stages, and wait until they are everywhere."""
    await site.put(NAMESPACED_RUNS.strategies, strategy(*stages, namespace="app"))
    await site.put(PROPAGATION_POLICIES, policy())
    async with running(site):
        await until_contents(site, **dict.fromkeys(site.members, "1"))
        await until_rolled_out(site, "True", "RolledOut")
    return Runs(site, "app")


async def test_a_policy_rolls_out_and_back_though_hub_and_controllers_are_killed(
    tmp_path: Path,
) -> None:
    rings = {f"member-{number:03}": f"r{number % 3}" for number in range(7)}
    patience = 90.0
    async with mortal_site(tmp_path) as (site, hub):
        for name, ring in rings.items():
            await site.join(name, labels={"ring": ring})
        await site.app("settings")
        asked = {"afterStageTasks": [{"type": "Approval"}]}
        stages = [
            stage(f"s{each}", f"r{each}", **(asked if each == 0 else {})) for each in range(3)
        ]
        runs = await policy_rollout(site, *stages)
        await site.set_data("settings", {"v": "2"})
        watchman = PolicyWatchman(site, rings)
        async with watchman.looking(), many_lives(site, hub, 7) as lives:
            await runs.approve("web-1-after-s0", patience)
            await runs.until("web-1", "Succeeded", "True", "UpdateRunSucceeded", seconds=patience)
            await until_contents(site, **dict.fromkeys(rings, "2"))
            await site.set_data("settings", {"v": "3"})
            await until(lambda: is_somewhere(site, "3"), patience)
            await site.set_data("settings", {"v": "2"})
            await until(lambda: is_everywhere(site, "2"), patience)
            await runs.until("web-3", "Succeeded", "True", "UpdateRunSucceeded", seconds=patience)
        assert watchman.looks
        assert all(each <= 1 for each in watchman.most.values()), watchman.most
        assert lives, "nobody was killed"


async def is_somewhere(site: PlacementSite, value: str) -> bool:
    return value in (await contents(site)).values()


async def is_everywhere(site: PlacementSite, value: str) -> bool:
    return set((await contents(site)).values()) == {value}


@pytest.mark.slow
async def test_killed_after_every_write_a_rollout_of_a_policy_and_its_way_back_end_the_same(
    tmp_path: Path,
) -> None:
    rings = {"one": "r0", "two": "r1", "three": "r2"}
    async with mortal_site(tmp_path) as (site, hub):
        for name, ring in rings.items():
            await site.join(name, labels={"ring": ring})
        await site.app("settings")
        asked = {"afterStageTasks": [{"type": "Approval"}]}
        stages = [stage("s0", "r0", **asked), stage("s1", "r1"), stage("s2", "r2")]
        runs = await policy_rollout(site, *stages)
        number, counting = 1, Fuse()
        number = await policy_there_and_back(site, hub, runs, number, counting)
        assert counting.writes > 10
        for write in range(1, counting.writes + 1):
            fuse = Fuse(CrashPoint(write, is_after=True))
            number = await policy_there_and_back(site, hub, runs, number, fuse)


async def policy_there_and_back(
    site: PlacementSite, hub: MortalHub, runs: Runs, number: int, fuse: Fuse
) -> int:
    """Roll a change out stage by stage, begin another and take it back; all die with the fuse.

    Returns the number of the next run. A change that nobody had begun to bring when it was taken
    back has none.
    """

    async def lives() -> None:
        mortal = MortalClient(site.hub.connection, fuse)
        async with running(site, hub=mortal) as tasks:
            for each in tasks:
                each.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        hub.die()
        async with running(site):
            await asyncio.Event().wait()

    rings = {"one": "r0", "two": "r1", "three": "r2"}
    good, bad = f"good-{number}", f"bad-{number}"
    await site.set_data("settings", {"v": good})
    task = asyncio.create_task(lives())
    watchman = PolicyWatchman(site, rings)
    try:
        async with watchman.looking():
            first = f"web-{number}"
            await runs.approve(f"{first}-after-s0", PATIENCE)
            await runs.until(first, "Succeeded", "True", "UpdateRunSucceeded", seconds=PATIENCE)
            await until_rolled_out(site, "True", "RolledOut")
            assert await is_everywhere(site, good)
            await site.set_data("settings", {"v": bad})
            await until(lambda: is_somewhere(site, bad), PATIENCE)
            await site.set_data("settings", {"v": good})
            back = f"web-{number + 2}"
            await runs.until(back, "Succeeded", "True", "UpdateRunSucceeded", seconds=PATIENCE)
            await until_rolled_out(site, "True", "RolledOut")
            assert await is_everywhere(site, good)
        assert all(each <= 1 for each in watchman.most.values())
    finally:
        await stop(task)
    return number + 3
