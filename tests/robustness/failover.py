"""How long writes stop when a machine dies: a hub and a member of etcd at once.

Clients write through the hubs that are left, and try again at the next one when they are not
answered, as clients behind a load balancer do. What counts is the longest time that a client goes
without an answer, from the moment the machine dies on.
"""

import asyncio
import time
from itertools import pairwise
from random import Random

from tests.component.hub_wire import CONFIG_MAPS, config_map
from tests.robustness.fault_clients import Way, version_in
from tests.robustness.fault_world import World
from tests.robustness.shared_registers import NotDoneError, RefusedError, UnknownError

CLIENTS = 6
WINDOW = 6.0
"""How long it is looked at."""


async def measure(world: World, seed: int, *, is_silent: bool) -> list[float]:
    """Kill one machine and return the longest pause of every client, in seconds.

    A silent one has lost its power: nobody's packets are answered any more, not even by a refusal.
    """
    random = Random(f"failover {seed}")
    place = random.randrange(len(world.hubs))
    left = [hub for number, hub in enumerate(world.hubs) if number != place]
    answered: list[list[float]] = [[] for _ in range(CLIENTS)]

    async def write(number: int) -> None:
        own = Random(f"failover {seed} {number}")
        ways = [Way(hub) for hub in left]
        current, count = own.randrange(len(ways)), 0
        try:
            while True:
                count += 1
                name = f"f{seed}-{'silent' if is_silent else 'refused'}-{number}-{count}"
                content = config_map(name, data={"v": "x" * 200})
                try:
                    version_in(await ways[current].ask("POST", CONFIG_MAPS, content))
                    answered[number].append(time.monotonic())
                except (NotDoneError, UnknownError, RefusedError):
                    current = (current + 1) % len(ways)
                await asyncio.sleep(0.02)
        finally:
            for way in ways:
                way.close()

    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(write(number)) for number in range(CLIENTS)]
        await asyncio.sleep(1.0)
        hub, member = world.hubs[place], world.etcd.members[place]
        names = {hub.name, member.name}
        if is_silent:
            others = [each for each in world.network.addresses if each not in names]
            async with asyncio.TaskGroup() as cutting:
                for name in names:
                    for other in others:
                        cutting.create_task(world.network.cut(name, other))
        died = time.monotonic()
        hub.kill()
        await member.kill()
        await asyncio.sleep(WINDOW)
        for each in writers:
            each.cancel()
    await world.heal()
    return [
        max(b - a for a, b in pairwise([died, *(t for t in times if t > died), died + WINDOW]))
        for times in answered
    ]
