"""The suite the client must pass against every API server: ours, and a real one.

A test module subclasses `ClientContract` and overrides the fixture `member_client`. Every test
works in a namespace of its own, so that one server serves them all, in one event loop: the module
marks itself `pytest.mark.asyncio(loop_scope="module")`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

import pytest
import pytest_asyncio

from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import (
    ClusterClient,
    DeleteOptions,
    ListOptions,
    PatchType,
    WriteOptions,
    read_page,
)
from clusterspace.client.watch import EventType, RawEvent, WatchOptions, watch
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    BlindWrite,
    Conflict,
    Invalid,
    NotFound,
    NotServed,
)
from clusterspace.kube.objects import (
    Object,
    labels_of,
    name_of,
    resource_version_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, deployment, namespace

_numbers: Final = itertools.count(1)
_SECONDS: Final = 20.0
_OURS: Final = "made-by=contract"
"""Servers put objects of their own into new namespaces; these are not among them."""

DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")


async def read_events(events: AsyncIterator[list[RawEvent]], count: int) -> list[RawEvent]:
    """Return this many events that are no bookmarks."""
    found: list[RawEvent] = []
    async with asyncio.timeout(_SECONDS):
        while len(found) < count:
            several = await anext(events)
            found.extend(event for event in several if event.type is not EventType.BOOKMARK)
    return found


class ClientContract:
    """What the client promises, on any conformant server."""

    @pytest.fixture
    def member_client(self) -> ClusterClient:
        raise NotImplementedError("a test module says which server to ask")

    @pytest_asyncio.fixture(loop_scope="module")
    async def maps(self, member_client: ClusterClient) -> ResourcePath:
        """Return the config maps of a namespace nobody else uses."""
        name = f"contract-{next(_numbers)}"
        await member_client.create(ResourcePath(NAMESPACES), namespace(name))
        return ResourcePath(CONFIG_MAPS, name)

    async def make(
        self, member_client: ClusterClient, maps: ResourcePath, name: str, **data: str
    ) -> Object:
        labelled = config_map(name, data, namespace=maps.namespace, labels={"made-by": "contract"})
        return await member_client.create(maps, labelled)

    async def test_what_was_created_can_be_read(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = await self.make(member_client, maps, "a", colour="blue")

        assert await member_client.get(maps.named("a")) == made
        assert await member_client.find(maps.named("a")) == made
        assert made["data"] == {"colour": "blue"}
        assert uid_of(made)

    async def test_a_missing_object_is_not_found_and_names_the_cluster(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        assert await member_client.find(maps.named("nobody")) is None
        with pytest.raises(NotFound) as caught:
            await member_client.get(maps.named("nobody"))

        assert caught.value.cluster == member_client.cluster
        assert caught.value.details is not None
        assert caught.value.details.name == "nobody"

    @pytest.mark.parametrize("group", ["apps", "no-such-group.example"])
    async def test_a_resource_that_is_not_served_is_no_missing_object(
        self, member_client: ClusterClient, group: str
    ) -> None:
        gears = ResourcePath(GroupVersionResource(group, "v1", "gears"), "default", "a")

        with pytest.raises(NotServed):
            await member_client.find(gears)

    async def test_a_taken_name_is_refused(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        await self.make(member_client, maps, "a")

        with pytest.raises(AlreadyExists):
            await self.make(member_client, maps, "a")

    async def test_an_invalid_object_is_refused_with_its_causes(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        with pytest.raises(Invalid) as caught:
            await self.make(member_client, maps, "Not_A_Name")

        assert caught.value.details is not None
        assert caught.value.details.causes[0].field == "metadata.name"

    async def test_an_update_replaces_and_an_outdated_one_conflicts(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        first = await self.make(member_client, maps, "a", n="1")
        second = await member_client.update(maps.named("a"), {**first, "data": {"n": "2"}})

        assert second["data"] == {"n": "2"}
        with pytest.raises(Conflict):
            await member_client.update(maps.named("a"), {**first, "data": {"n": "3"}})
        assert (await member_client.get(maps.named("a")))["data"] == {"n": "2"}

    async def test_an_update_without_a_version_is_never_sent(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = await self.make(member_client, maps, "a", n="1")

        with pytest.raises(BlindWrite):
            await member_client.update(maps.named("a"), with_metadata(made, resourceVersion=None))

        assert await member_client.get(maps.named("a")) == made

    @pytest.mark.parametrize("patch_type", [PatchType.MERGE, PatchType.STRATEGIC])
    async def test_a_merge_patch_changes_what_it_names(
        self, member_client: ClusterClient, maps: ResourcePath, patch_type: PatchType
    ) -> None:
        made = await self.make(member_client, maps, "a", kept="1", changed="1")
        version = resource_version_of(made)
        patch = {"metadata": {"resourceVersion": version}, "data": {"changed": "2"}}

        patched = await member_client.patch(maps.named("a"), patch_type, patch)

        assert patched["data"] == {"kept": "1", "changed": "2"}
        with pytest.raises(Conflict):
            await member_client.patch(maps.named("a"), patch_type, patch)

    async def test_a_json_patch_changes_one_place(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = await self.make(member_client, maps, "a", n="1")
        pinned = {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": resource_version_of(made),
        }
        change = {"op": "replace", "path": "/data/n", "value": "2"}

        patched = await member_client.patch(maps.named("a"), PatchType.JSON, [pinned, change])

        assert patched["data"] == {"n": "2"}
        with pytest.raises(Conflict):
            await member_client.patch(maps.named("a"), PatchType.JSON, [pinned, change])

    async def test_an_apply_owns_its_fields_and_only_those(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        mine = WriteOptions(field_manager="me")
        theirs = WriteOptions(field_manager="them")
        wanted = config_map("a", {"n": "1"}, namespace=maps.namespace)

        await member_client.apply(maps.named("a"), wanted, mine)
        with pytest.raises(Conflict):
            await member_client.apply(maps.named("a"), {**wanted, "data": {"n": "2"}}, theirs)
        forced = WriteOptions(field_manager="them", force=True)
        taken = await member_client.apply(maps.named("a"), {**wanted, "data": {"n": "2"}}, forced)

        assert taken["data"] == {"n": "2"}

    async def test_a_dry_run_changes_nothing(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        await member_client.create(
            maps,
            config_map("a", namespace=maps.namespace),
            WriteOptions(is_dry_run=True),
        )

        assert await member_client.find(maps.named("a")) is None

    async def test_a_delete_takes_only_the_object_that_is_meant(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = await self.make(member_client, maps, "a")
        stranger = "00000000-0000-0000-0000-000000000000"

        with pytest.raises(Conflict):
            await member_client.delete(maps.named("a"), DeleteOptions(uid=stranger))
        with pytest.raises(BlindWrite):
            await member_client.delete(maps.named("a"), DeleteOptions(uid=""))
        assert await member_client.find(maps.named("a")) == made
        await member_client.delete(maps.named("a"), DeleteOptions(uid=uid_of(made)))

        assert await member_client.find(maps.named("a")) is None

    async def test_a_delete_of_an_outdated_version_conflicts(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = await self.make(member_client, maps, "a")
        await member_client.update(maps.named("a"), {**made, "data": {"n": "1"}})
        outdated = DeleteOptions(uid=uid_of(made), resource_version=resource_version_of(made))

        with pytest.raises(Conflict):
            await member_client.delete(maps.named("a"), outdated)

    async def test_an_object_with_a_finalizer_stays_until_released(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        existing = config_map("a", namespace=maps.namespace, finalizers=["example.com/hold"])
        made = await member_client.create(maps, existing)

        answer = await member_client.delete(maps.named("a"), DeleteOptions(uid=uid_of(made)))

        assert answer["kind"] == "ConfigMap"
        assert answer["metadata"]["deletionTimestamp"]
        await member_client.update(maps.named("a"), with_metadata(answer, finalizers=None))
        assert await member_client.find(maps.named("a")) is None

    async def test_a_list_in_pages_is_the_list_at_once(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        for number in range(7):
            await self.make(member_client, maps, f"m{number}")

        paged = await member_client.list_objects(maps, ListOptions(_OURS, limit=3))
        pages = [page async for page in member_client.pages(maps, ListOptions(_OURS, limit=3))]

        assert paged == await member_client.list_objects(maps, ListOptions(_OURS, limit=0))
        assert [len(page.items) for page in pages] == [3, 3, 1]
        assert [name_of(each) for each in paged] == [f"m{number}" for number in range(7)]
        assert {each["kind"] for each in paged} == {"ConfigMap"}

    async def test_the_bytes_of_a_list_are_the_server_s(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = await self.make(member_client, maps, "a")

        (body,) = [page async for page in member_client.list_raw(maps, ListOptions(_OURS))]

        assert [item.decode() for item in read_page("x", body).items] == [made]

    async def test_selectors_select(self, member_client: ClusterClient, maps: ResourcePath) -> None:
        for name, colour in (("a", "blue"), ("b", "red")):
            labelled = config_map(name, namespace=maps.namespace, labels={"colour": colour})
            await member_client.create(maps, labelled)

        blue = await member_client.list_objects(maps, ListOptions(label_selector="colour=blue"))
        named = await member_client.list_objects(
            maps, ListOptions(field_selector="metadata.name=b")
        )

        assert [labels_of(each)["colour"] for each in blue] == ["blue"]
        assert [name_of(each) for each in named] == ["b"]

    async def test_a_watch_tells_what_happens_after_its_version(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        first = await self.make(member_client, maps, "a", n="1")
        options = WatchOptions(resource_version_of(first), label_selector=_OURS)
        async with aclosing(watch(member_client.connection, maps, options)) as events:
            changed = await member_client.update(maps.named("a"), {**first, "data": {"n": "2"}})
            await member_client.delete(maps.named("a"), DeleteOptions(uid=uid_of(first)))
            seen = await read_events(events, 2)

        assert [event.type for event in seen] == [EventType.MODIFIED, EventType.DELETED]
        assert seen[0].item.decode() == changed
        assert seen[0].item.key == f"{maps.namespace}/a"

    async def test_a_streamed_list_ends_with_a_bookmark(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = [await self.make(member_client, maps, f"m{number}") for number in range(3)]
        options = WatchOptions(label_selector=_OURS, sends_initial_events=True)
        seen: list[RawEvent] = []
        async with (
            asyncio.timeout(_SECONDS),
            aclosing(watch(member_client.connection, maps, options)) as events,
        ):
            while not any(event.ends_initial_events for event in seen):
                seen.extend(await anext(events))

        assert [event.item.decode() for event in seen[:3]] == made

    async def test_a_watch_ends_in_good_order_at_its_timeout(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = await self.make(member_client, maps, "a")
        options = WatchOptions(resource_version_of(made), _OURS, timeout_seconds=1)

        async with asyncio.timeout(_SECONDS):
            batches = [batch async for batch in watch(member_client.connection, maps, options)]

        assert all(event.type is EventType.BOOKMARK for batch in batches for event in batch)

    async def test_a_watch_from_the_future_begins_and_is_not_led_back(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        made = await self.make(member_client, maps, "a")
        future = str(int(resource_version_of(made)) + 1_000_000)
        # Long enough for a bookmark, which comes two seconds before the end.
        options = WatchOptions(future, _OURS, timeout_seconds=3)

        async with asyncio.timeout(_SECONDS):
            batches = [batch async for batch in watch(member_client.connection, maps, options)]

        assert batches == []

    async def test_status_is_written_through_its_own_door(
        self, member_client: ClusterClient, maps: ResourcePath
    ) -> None:
        place = ResourcePath(DEPLOYMENTS, maps.namespace)
        made = await member_client.create(place, deployment("web", namespace=maps.namespace))
        changed = with_value(
            with_value(made, 9, "spec", "replicas"), made["metadata"]["generation"],
            "status", "observedGeneration",
        )  # fmt: skip

        written = await member_client.update(
            resource_path_of(DEPLOYMENTS, made).with_subresource("status"), changed
        )

        assert written["spec"]["replicas"] == 1
        assert written["status"]["observedGeneration"] == made["metadata"]["generation"]

    async def test_discovery_knows_what_is_served(self, member_client: ClusterClient) -> None:
        discovery = Discovery(member_client.connection)

        found = await discovery.get_resource(GroupVersionKind("apps", "v1", "Deployment"))

        assert (found.plural, found.namespaced) == ("deployments", True)
        assert "watch" in found.verbs
        scale = found.find_subresource("scale")
        assert scale is not None
        assert (scale.group, scale.kind) == ("autoscaling", "Scale")
        with pytest.raises(NotServed):
            await discovery.get_resource(GroupVersionKind("apps", "v1", "Gear"))

    async def test_every_refusal_names_the_cluster(self, member_client: ClusterClient) -> None:
        with pytest.raises(ApiError) as caught:
            await member_client.create(ResourcePath(NAMESPACES), namespace("Not_A_Name"))

        assert caught.value.cluster == member_client.cluster
