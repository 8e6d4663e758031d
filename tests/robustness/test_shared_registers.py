"""Several hubs on one etcd, under fire: nothing acknowledged is lost, nothing told is untrue."""

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import SystemRandom

import pytest
import pytest_asyncio
from tests.robustness.hub_processes import HubProcesses, ways
from tests.robustness.linearizability import violations
from tests.robustness.planted_stores import PLANTED
from tests.robustness.shared_registers import History, Verdict, judge, make_trouble, run_client

from clusterspace.apiserver.store.etcd.store import EtcdStore
from clusterspace.testing.etcd import EtcdCluster, etcd_for_test

SEED = int(os.environ.get("CLUSTERSPACE_CRASH_SEED") or SystemRandom().randrange(1 << 30))

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdCluster]:
    directory = tmp_path_factory.mktemp("three")
    async with etcd_for_test(directory, members=3, tls=False, is_durable=True) as cluster:
        yield cluster


async def play(
    cluster: EtcdCluster,
    seed: int,
    seconds: float,
    *,
    store: type[EtcdStore] = EtcdStore,
    has_faults: bool = True,
) -> Verdict:
    settings = cluster.at(f"/{uuid.uuid4()}")
    async with AsyncExitStack() as stack:
        stores: list[EtcdStore] = []
        for _ in range(2):
            stores.append(await store.open(settings, root=""))
            stack.push_async_callback(stores[-1].close)
        verdict = await judge(
            cluster, settings, stores, seed=seed, seconds=seconds, has_faults=has_faults
        )
        if not verdict.problems:
            for each in stores:
                await each.sync()
                assert await each.verify() == []
        return verdict


async def test_a_short_fire_is_survived(three: EtcdCluster, logged_errors: list[str]) -> None:
    verdict = await play(three, SEED, 5)
    print(f"seed {SEED}: {verdict}")
    assert verdict.problems == [], f"CLUSTERSPACE_CRASH_SEED={SEED}"
    assert verdict.history.done > 50


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(20))
async def test_a_long_fire_is_survived(
    three: EtcdCluster, logged_errors: list[str], turn: int
) -> None:
    seed = SEED + turn
    verdict = await play(three, seed, 12)
    print(f"seed {seed}: {verdict}")
    assert verdict.problems == [], f"CLUSTERSPACE_CRASH_SEED={seed}"


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(5))
async def test_hubs_and_members_die_and_stand_still_and_nothing_is_lost(
    three: EtcdCluster, tmp_path: Path, turn: int
) -> None:
    seed = SEED + turn
    hubs = HubProcesses(tmp_path, three.at(f"/{uuid.uuid4()}"), 3)
    history, end = History(), 0.0
    clients = [ways(hubs, 3) for _ in range(6)]
    try:
        await hubs.wait_ready()
        end = time.monotonic() + 20
        async with asyncio.TaskGroup() as group:
            for name, own in enumerate(clients):
                group.create_task(run_client(name, own, history, seed, end))
            faults = await make_trouble(three, seed, end, (hubs.kill, hubs.freeze))
    finally:
        for own in clients:
            for way in own:
                way.close()
        hubs.end()
    print(f"seed {seed}: {Verdict(history, faults, [])}")
    print(f"seed {seed}: the longest time without a write was {history.longest_pause:.1f} s")
    assert violations(history.operations) == [], f"CLUSTERSPACE_CRASH_SEED={seed}"
    assert history.done > 50


# -- bugs that are planted have to be found --------------------------------------------------------


@pytest.mark.parametrize("planted", PLANTED.values())
async def test_a_planted_bug_is_found(
    three: EtcdCluster, planted: type[EtcdStore], logged_errors: list[str]
) -> None:
    verdict = await play(three, SEED, 2, store=planted, has_faults=False)
    assert verdict.problems, f"{planted.__name__} passed unnoticed: {verdict}"
