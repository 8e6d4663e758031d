"""Fleets whose members are simulated or real, with the product's own controllers at work."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.component.placement_site import PlacementSite
from tests.flows.members import running_member

from clusterspace.testing.stage import Fleet, running_fleet, until_ready


@asynccontextmanager
async def placing_fleet(directory: Path, kind: str, *members: str) -> AsyncGenerator[PlacementSite]:
    """Run a fleet of members of some kind, joined as people join them; yield it as placed upon."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(running_fleet(directory))
        site = PlacementSite(fleet.hub.client, directory, stack)
        for name in members:
            await _join(fleet, site, name, kind)
        await stack.enter_async_context(fleet.controllers())
        for name in members:
            await until_ready(fleet, name)
        yield site


async def _join(fleet: Fleet, site: PlacementSite, name: str, kind: str) -> None:
    directory = site.directory / name
    directory.mkdir()
    member = await site.stack.enter_async_context(running_member(kind, directory))
    await fleet.join(name, member)
    site.members[name] = member.client
