"""A leader that was frozen writes when another has long withdrawn the Work: it is undone."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.component.execution_site import CLUSTER, SPACE, Site, executing, new_name, two_clusters
from tests.component.execution_site import work_of as work_for

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WITHDRAWN_PREFIX, WORKS
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import WriteOptions
from clusterspace.fleet.execution.takeover import FIELD_MANAGER
from clusterspace.fleet.execution.withdrawn import LATE_WRITE, read_note
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    labels_of,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.faults import fault_proxy, status_reply
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

AS_THE_LEADER = WriteOptions(field_manager=FIELD_MANAGER)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def fresh_site(tmp_path: Path) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path) as site:
        yield site


def place(name: str) -> ResourcePath:
    return ResourcePath(CONFIG_MAPS, "default", name)


async def withdrawn(site: Site) -> tuple[ResourcePath, Object]:
    """Order an object and withdraw it; return where it was, and what the order sent there."""
    name = new_name()
    work = await site.order(work_for(config_map(name)))
    await site.applied(name_of(work))
    await site.delete_work(name_of(work))
    await site.gone(name_of(work))
    return place(name), manifests_of(work)[0]


async def write_late(site: Site, path: ResourcePath, manifest: Object) -> Object:
    """Do what a leader does who was frozen right before the create."""
    return await site.member.create(path.collection, manifest, AS_THE_LEADER)


async def until_gone(site: Site, path: ResourcePath) -> None:
    async def is_gone() -> bool:
        return await site.member.find(path) is None

    await until(is_gone)


async def test_an_object_that_a_frozen_leader_creates_after_its_work_is_gone_does_not_stay(
    site: Site,
) -> None:
    async with executing(site):
        path, manifest = await withdrawn(site)

        late = await write_late(site, path, manifest)

        await until_gone(site, path)

        event = await site.event(LATE_WRITE, CLUSTER)
        assert uid_of(late) in str(event["message"])


async def test_a_late_write_is_found_by_those_who_start_after_it(site: Site) -> None:
    async with executing(site):
        path, manifest = await withdrawn(site)
    await write_late(site, path, manifest)

    async with executing(site):
        await until_gone(site, path)


async def test_a_manifest_that_a_frozen_leader_puts_back_after_it_was_dropped_does_not_stay(
    site: Site,
) -> None:
    dropped, kept = new_name(), new_name()
    work = work_for(config_map(kept), config_map(dropped))
    async with executing(site):
        await site.order(work)
        await site.applied(name_of(work))
        manifests = manifests_of(work)
        before = await site.work(name_of(work))
        fewer = with_value(before, manifests[:1], "spec", "workload", "manifests")
        await site.hub.update(ResourcePath(WORKS, SPACE, name_of(work)), fewer)
        await until_gone(site, place(dropped))

        await write_late(site, place(dropped), manifests[1])

        await until_gone(site, place(dropped))
        assert await site.member.find(place(kept)) is not None


def relabelled(manifest: Object) -> Object:
    """Return what a hub of the same names, or this one before it was restored, would have sent."""
    other = {**labels_of(manifest), stamps.WORK_ID: "0b1f7c1e-0000-4000-8000-000000000000"}
    return with_metadata(manifest, labels=other)


def unchanged(manifest: Object) -> Object:
    return manifest


@pytest.mark.parametrize(
    ("manager", "change"),
    [("kubectl", unchanged), (FIELD_MANAGER, relabelled)],
    ids=["a copy that a person made", "an object of another hub"],
)
async def test_what_no_withdrawal_was_noted_for_stays_without_a_work(
    site: Site, manager: str, change: Callable[[Object], Object]
) -> None:
    async with executing(site):
        path, manifest = await withdrawn(site)
        made = await site.member.create(
            path.collection, change(manifest), WriteOptions(field_manager=manager)
        )
        # A late write behind it in the same watch: when that one is gone, the first was looked at.
        second, other = await withdrawn(site)
        await write_late(site, second, other)
        await until_gone(site, second)
        await settled()

        assert uid_of(await site.member.get(path)) == uid_of(made)


async def test_an_object_that_was_ordered_again_is_kept(site: Site) -> None:
    async with executing(site):
        path, manifest = await withdrawn(site)
        again = await site.order(work_for(config_map(path.name)))
        await site.applied(name_of(again))
        placed = await site.member.get(path)
        # Somebody writes the old stamps back onto it.
        old = with_metadata(
            placed, labels=dict(labels_of(manifest)), annotations=dict(annotations_of(placed))
        )
        await site.member.update(path, old, AS_THE_LEADER)
        await settled()

        assert uid_of(await site.member.get(path)) == uid_of(placed)


async def test_a_late_write_stays_while_the_hub_cannot_say_that_its_work_is_gone(
    fresh_site: Site,
) -> None:
    site = fresh_site
    async with (
        fault_proxy(site.hub.connection) as proxy,
        client_for_test(proxy.settings) as hub,
    ):
        behind = Site(hub, site.member)
        async with executing(behind):
            path, manifest = await withdrawn(site)
            fault = status_reply(500, "InternalError")
            name = annotations_of(manifest)[stamps.WORK_NAME]
            rule = proxy.inject(
                fault,
                when=lambda asked: asked.method == "GET" and asked.path.endswith(f"/{name}"),
                times=None,
            )
            late = await write_late(site, path, manifest)

            async def was_asked_twice() -> bool:
                return rule.hits > 1

            await until(was_asked_twice)
            assert uid_of(await site.member.get(path)) == uid_of(late)

            proxy.heal()
            await until_gone(site, path)


async def test_an_object_that_was_somebodys_is_let_go_and_not_deleted(site: Site) -> None:
    async with executing(site):
        path, manifest = await withdrawn(site)
        body = {**config_map(path.name), "data": {"color": "red"}}
        theirs = await site.member.create(path.collection, body, site.foreign)

        async def is_another_second() -> bool:
            probe = await site.member.create(
                path.collection, config_map("probe"), WriteOptions(is_dry_run=True)
            )
            times = [each["metadata"]["creationTimestamp"] for each in (probe, theirs)]
            return times[0] != times[1]

        await until(is_another_second)
        # The leader was told to overwrite, and frozen between its look and its write.
        taken = with_metadata(
            {**theirs, "data": {"color": "blue"}},
            labels=dict(labels_of(manifest)),
            annotations=dict(annotations_of(manifest)),
        )
        await site.member.update(path, taken, AS_THE_LEADER)

        async def is_let_go() -> bool:
            return stamps.MANAGED not in labels_of(await site.member.get(path))

        await until(is_let_go)
        assert uid_of(await site.member.get(path)) == uid_of(theirs)


async def test_the_notes_of_what_was_withdrawn_are_on_the_member(fresh_site: Site) -> None:
    site = fresh_site
    async with executing(site):
        path, manifest = await withdrawn(site)

    notes = await site.member.get(
        ResourcePath(CONFIG_MAPS, "kube-system", WITHDRAWN_PREFIX + CLUSTER)
    )
    (note,) = [read_note(line) for line in notes["data"]["withdrawn"].splitlines()]
    assert note is not None
    assert (note.path, note.work_id) == (path, labels_of(manifest)[stamps.WORK_ID])
