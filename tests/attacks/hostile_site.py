"""A fleet with a hostile member in it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.component.gateway.fleet_site import Site, register

from clusterspace.membership import names
from clusterspace.testing.hostile import Behaviour, HostileMember, hostile_member

HOSTILE = "hostile"


@asynccontextmanager
async def hostile_in(
    site: Site, behave: Behaviour, directory: Path, *, name: str = HOSTILE
) -> AsyncGenerator[HostileMember]:
    """Have a hostile cluster be a member of the fleet for as long as the block lasts."""
    async with hostile_member(behave, directory) as member:
        await register(site, member, name)
        try:
            yield member
        finally:
            await unregister(site, name)


async def unregister(site: Site, name: str) -> None:
    for place in (
        names.cluster_place(name),
        names.secret_place(names.impersonator_secret(name)),
        names.secret_place(name),
    ):
        await site.ask("DELETE", f"/clusterspaces/hub{place.path}")
    await site.wait_for(name, is_gone=True)
