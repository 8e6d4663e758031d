"""An executor that starts where all is as it should be looks at everything, and at little cost."""

from pathlib import Path

from tests.component.execution_site import Site, executing, new_name, two_clusters, work_of

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WITHDRAWN_PREFIX
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object, annotations_of, name_of, with_metadata
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.crashes import Fuse, MortalClient

WORKS = 40


class Counting(MortalClient):
    """Counts the objects that are asked for one by one, beside the writes.

    But for the notes of what was withdrawn, which are read once.
    """

    def __init__(self, connection: Connection) -> None:
        self.fuse = Fuse(None)
        super().__init__(connection, self.fuse)
        self.asked = 0

    async def find(self, place: ResourcePath) -> Object | None:
        self.asked += not place.name.startswith(WITHDRAWN_PREFIX)
        return await super().find(place)


async def order_one(site: Site) -> str:
    work = await site.order(work_of(config_map(new_name(), {"a": "1"})))
    return name_of(work)


async def test_what_is_placed_is_listed_after_a_start_and_not_asked_for_one_by_one(
    tmp_path: Path,
) -> None:
    async with two_clusters(tmp_path) as site:
        async with executing(site):
            for name in [await order_one(site) for _ in range(WORKS)]:
                await site.applied(name)
        member = Counting(site.member.connection)

        async with executing(site, member=member):
            await site.applied(await order_one(site))

    assert member.asked == 0
    assert member.fuse.writes == 1


async def test_what_a_migration_takes_over_is_asked_for_and_no_create_is_tried(
    tmp_path: Path,
) -> None:
    async with two_clusters(tmp_path) as site:
        name = new_name()
        there = config_map(name, {"a": "1"})
        await site.member.create(ResourcePath(CONFIG_MAPS, "default"), there, site.foreign)
        member = Counting(site.member.connection)
        taken = with_metadata(there, annotations={stamps.MIGRATION: "west-1"})

        async with executing(site, member=member):
            await site.applied(name_of(await site.order(work_of(taken, resolution="overwrite"))))

        live = await site.member.get(ResourcePath(CONFIG_MAPS, "default", name))
        assert annotations_of(live)[stamps.MIGRATION] == "west-1"
        # One update: a create that is refused would have been one more.
        assert member.fuse.writes == 1
