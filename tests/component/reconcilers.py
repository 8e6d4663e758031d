"""Reconcilers at work in this event loop, over one set of caches."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

from clusterspace.aio.clocks import SystemClock
from clusterspace.controllers.controller import Controller, Reconciler
from clusterspace.controllers.informers import HubCaches
from clusterspace.testing.steps import stop


def following(caches: HubCaches) -> list[asyncio.Task[None]]:
    """Start everything that caches need to follow their hub."""

    async def follow(run: Callable[[], Awaitable[None]]) -> None:
        await run()

    return [asyncio.create_task(follow(run), name=name) for name, run in caches.tasks().items()]


@asynccontextmanager
async def reconciling(
    caches: HubCaches, *reconcilers: Reconciler
) -> AsyncGenerator[list[asyncio.Task[None]]]:
    """Run one life of reconcilers; yields their tasks, of which one ends when it is killed."""
    clock, random = SystemClock(), Random(1)
    controllers = [Controller.of(each, clock=clock, random=random) for each in reconcilers]
    informers = following(caches)
    working = [asyncio.create_task(each.run(), name=each.name) for each in controllers]
    try:
        yield working
    finally:
        await stop(*working, *informers)
