"""A fleet with a hostile member in it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.component.gateway.fleet_site import Site, member_at

from clusterspace.testing.hostile import Behaviour, HostileMember, hostile_member

HOSTILE = "hostile"


@asynccontextmanager
async def hostile_in(
    site: Site, behave: Behaviour, *, name: str = HOSTILE
) -> AsyncGenerator[HostileMember]:
    """Have a hostile cluster be a member of the fleet for as long as the block lasts."""
    async with hostile_member(behave) as member, member_at(site, name, member.url):
        yield member
