"""The barrier tests wait at: what it waits for, and what it does not wait for."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.controller import (
    Controller,
    Done,
    Reconcile,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.informers import Informer
from clusterspace.errors import ServiceUnavailable
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import stop

MAPS = ResourcePath(CONFIG_MAPS, "default")
STEPS = 5


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncGenerator[ClusterClient]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as client:
        yield client


def start(
    hub: ClusterClient, reconcile: Reconcile, *, settle: float = 0
) -> list[asyncio.Task[None]]:
    informer = Informer(hub, MAPS)
    controller = Controller("test", reconcile, clock=SystemClock(), random=Random(1))
    controller.watch(Watch(informer, settle_seconds=settle))
    return [asyncio.create_task(informer.run()), asyncio.create_task(controller.run())]


@pytest.mark.parametrize("settle", [0, 0.3])
async def test_it_waits_for_the_last_of_many_steps(hub: ClusterClient, settle: float) -> None:
    async def count_up(request: Request) -> Result:
        found = await hub.get(MAPS.named(request.name))
        count = int((found.get("data") or {}).get("count", STEPS))
        if count < STEPS:
            await hub.update(MAPS.named(request.name), {**found, "data": {"count": str(count + 1)}})
        return Done()

    tasks = start(hub, count_up, settle=settle)
    await hub.create(MAPS, config_map("counter", {"count": "0"}))
    await settled()
    assert (await hub.get(MAPS.named("counter")))["data"] == {"count": str(STEPS)}
    await stop(*tasks)


@pytest.mark.parametrize("fails", [False, True])
async def test_what_comes_up_for_ever_is_waited_for_once(
    hub: ClusterClient, *, fails: bool
) -> None:
    attempts = 0

    async def look(_: Request) -> Result:
        nonlocal attempts
        attempts += 1
        if fails:
            raise ServiceUnavailable("not today")
        return RequeueAfter(0.1)

    tasks = start(hub, look)
    await hub.create(MAPS, config_map("one"))
    await settled()
    assert attempts
    await stop(*tasks)


async def test_a_controller_that_cannot_begin_is_not_waited_for(hub: ClusterClient) -> None:
    """Its queue is full, and stays so for as long as one of its informers cannot list."""
    unknown = ResourcePath(GroupVersionResource("example.org", "v1", "unknowns"))

    async def never(_: Request) -> Result:
        raise AssertionError("there is an informer that has not synced")

    maps, nothing = Informer(hub, MAPS), Informer(hub, unknown)
    controller = Controller("test", never, clock=SystemClock(), random=Random(1))
    controller.watch(Watch(maps))
    controller.watch(Watch(nothing))
    runs = (maps.run(), nothing.run(), controller.run())
    tasks = [asyncio.create_task(each) for each in runs]
    await hub.create(MAPS, config_map("one"))
    await settled()
    assert maps.has_synced
    assert not nothing.has_synced
    await stop(*tasks)


async def test_a_controller_that_is_about_to_begin_is_waited_for(hub: ClusterClient) -> None:
    """The collection is empty, as its cache is before it was listed."""
    attempts: list[Request] = []

    async def note(request: Request) -> Result:
        attempts.append(request)
        return Done()

    informer = Informer(hub, ResourcePath(CONFIG_MAPS, "empty"))
    controller = Controller("test", note, clock=SystemClock(), random=Random(1))
    controller.watch(Watch(informer))
    controller.add(Request("at start"))
    tasks = [asyncio.create_task(informer.run()), asyncio.create_task(controller.run())]
    await settled()
    assert Request("at start") in attempts
    await stop(*tasks)
