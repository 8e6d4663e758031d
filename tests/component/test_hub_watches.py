"""Watches over the wire: nothing missed, nothing twice, nothing invented."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.hub_wire import (
    MERGE_PATCH,
    PARTIAL,
    SECRETS,
    TABLE,
    Event,
    HubClient,
    encoded,
    hub_here,
    hub_process,
    request_bytes,
    secret,
)

from clusterspace.apiserver.http.request_info import PROTOBUF
from clusterspace.apiserver.store.compaction import CompactionPolicy
from clusterspace.apiserver.verbs import watch as watch_module
from clusterspace.kube.protobuf.bodies import decode
from clusterspace.roots import stores
from clusterspace.testing.steps import until

EVERYWHERE = "/api/v1/secrets"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
FROM_LIST = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubClient]:
    async with hub_here(tmp_path) as client:
        yield client


async def create(hub: HubClient, name: str, namespace: str = "default", **members: Any) -> int:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = await hub.do("POST", path, secret(name, **members))
    return int(made["metadata"]["resourceVersion"])


async def relabel(hub: HubClient, name: str, **labels: str | None) -> None:
    change = {"metadata": {"labels": labels}}
    await hub.do("PATCH", f"{SECRETS}/{name}", change, content_type=MERGE_PATCH)


async def delete(hub: HubClient, name: str) -> None:
    await hub.do("DELETE", f"{SECRETS}/{name}")


async def current(hub: HubClient) -> int:
    return int((await hub.do("GET", SECRETS))["metadata"]["resourceVersion"])


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.name) for event in events]


# -- from where ----------------------------------------------------------------------------------


async def test_a_watch_begins_with_what_is_there_and_goes_on_with_what_happens(
    hub: HubClient,
) -> None:
    await create(hub, "before")
    watch = await hub.watch(SECRETS)

    await create(hub, "after")
    await relabel(hub, "before", colour="red")
    await delete(hub, "after")

    assert told(await watch.take(4)) == [
        ("ADDED", "before"),
        ("ADDED", "after"),
        ("MODIFIED", "before"),
        ("DELETED", "after"),
    ]


async def test_a_watch_resumes_behind_the_version_it_names(hub: HubClient) -> None:
    first = await create(hub, "first")
    await create(hub, "second")
    await delete(hub, "first")

    watch = await hub.watch(SECRETS, f"resourceVersion={first}")

    assert told(await watch.take(2)) == [("ADDED", "second"), ("DELETED", "first")]
    assert await watch.is_quiet()


async def test_a_deleted_object_is_shown_as_it_last_was_at_the_version_of_its_end(
    hub: HubClient,
) -> None:
    made = await create(hub, "short-lived", data={"k": "v"})
    watch = await hub.watch(SECRETS, f"resourceVersion={made}")

    await delete(hub, "short-lived")

    (event,) = await watch.take(1)
    assert (event.type, event.object["data"]) == ("DELETED", {"k": encoded("v")})
    assert event.revision == await current(hub) == made + 1


async def test_a_watch_of_one_namespace_hears_nothing_of_the_others(hub: HubClient) -> None:
    start = await current(hub)
    everywhere = await hub.watch(EVERYWHERE, f"resourceVersion={start}")
    here = await hub.watch(SECRETS, f"resourceVersion={start}")

    for name, namespace in (("a", "kube-system"), ("b", "default"), ("c", "kube-public")):
        await create(hub, name, namespace)

    assert [event.name for event in await everywhere.take(3)] == ["a", "b", "c"]
    assert [event.name for event in await here.take(1)] == ["b"]
    assert await here.is_quiet()


async def test_the_old_path_to_watch_one_object_shows_that_object_alone(hub: HubClient) -> None:
    start = await current(hub)
    old = "/api/v1/watch/namespaces/default/secrets"
    one = await hub.watch(f"{old}/b", f"resourceVersion={start}")
    all_of_them = await hub.watch(old, f"resourceVersion={start}")

    for name in ("a", "b", "c"):
        await create(hub, name)

    assert [event.name for event in await all_of_them.take(3)] == ["a", "b", "c"]
    assert [event.name for event in await one.take(1)] == ["b"]
    assert await one.is_quiet()


# -- 410 -----------------------------------------------------------------------------------------


MOST_EVENTS = 20


@pytest.fixture
async def forgetful_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HubClient]:
    policy = partial(CompactionPolicy, maximum_events=MOST_EVENTS, look_every_seconds=0.02)
    monkeypatch.setattr(stores, "CompactionPolicy", policy)
    async with hub_here(tmp_path) as client:
        yield client


async def until_forgotten(hub: HubClient, revision: int) -> None:
    async def is_forgotten() -> bool:
        listed = await hub.ask("GET", f"{SECRETS}?resourceVersion={revision}&limit=1")
        return listed.status == 410

    await until(is_forgotten)


async def test_a_place_that_was_forgotten_is_told_410_and_a_remembered_one_is_not(
    forgetful_hub: HubClient,
) -> None:
    hub = forgetful_hub
    first = await create(hub, "map-0")
    for number in range(1, 60):
        await create(hub, f"map-{number}")
    await until_forgotten(hub, first)
    last = await create(hub, "last")

    (expired,) = await (await hub.watch(SECRETS, f"resourceVersion={first}")).rest()
    near = await hub.watch(SECRETS, f"resourceVersion={last - 3}")

    assert (expired.type, expired.object["code"]) == ("ERROR", 410)
    assert expired.object["reason"] == "Expired"
    assert [event.revision for event in await near.take(3)] == [last - 2, last - 1, last]
    assert await hub.refused("GET", f"{SECRETS}?resourceVersion={first}&limit=1") == 410


async def test_every_place_is_either_gapless_or_told_410(forgetful_hub: HubClient) -> None:
    """From one before the first kept revision to one behind the last: never silence, never old."""
    hub = forgetful_hub
    for number in range(60):
        await create(hub, f"map-{number}")
    last = await current(hub)
    await until_forgotten(hub, last - MOST_EVENTS - 2)
    outcomes: list[bool] = []
    for place in range(last - 40, last + 1):
        watch = await hub.watch(SECRETS, f"resourceVersion={place}&timeoutSeconds=1")
        event = None if place == last else await watch.next()
        if event is not None and event.type == "ERROR":
            assert event.object["code"] == 410
            outcomes.append(False)
            continue
        seen = [event, *await watch.take(last - place - 1)] if event else []
        assert [each.revision for each in seen if each] == list(range(place + 1, last + 1))
        outcomes.append(True)

    assert outcomes == sorted(outcomes), "once remembered, always remembered from there on"
    assert set(outcomes) == {False, True}


async def test_a_list_whose_moment_was_forgotten_can_go_on_from_the_present(
    forgetful_hub: HubClient,
) -> None:
    hub = forgetful_hub
    for number in range(5):
        await create(hub, f"a-{number}")
    page = await hub.do("GET", f"{SECRETS}?limit=2")
    for number in range(60):
        await create(hub, f"b-{number}")
    await until_forgotten(hub, int(page["metadata"]["resourceVersion"]))

    token = page["metadata"]["continue"]
    expired = await hub.ask("GET", f"{SECRETS}?limit=500&continue={token}")
    status = msgspec.json.decode(expired.body)
    rest = await hub.do("GET", f"{SECRETS}?limit=500&continue={status['metadata']['continue']}")

    assert (expired.status, status["reason"]) == (410, "Expired")
    names = [each["metadata"]["name"] for each in rest["items"]]
    assert names[:3] == ["a-2", "a-3", "a-4"]
    assert len(names) == 63


async def test_a_running_watch_survives_compaction(forgetful_hub: HubClient) -> None:
    watch = await forgetful_hub.watch(SECRETS, f"resourceVersion={await current(forgetful_hub)}")

    for number in range(100):
        await create(forgetful_hub, f"map-{number}")

    assert len(await watch.until("map-99")) == 100


# -- selectors -----------------------------------------------------------------------------------


async def test_moving_into_a_selection_is_added_and_out_of_it_is_deleted(hub: HubClient) -> None:
    start = await create(hub, "chameleon", labels={"colour": "green"})
    red = await hub.watch(SECRETS, f"resourceVersion={start}&labelSelector=colour%3Dred")

    await relabel(hub, "chameleon", colour="red")
    await relabel(hub, "chameleon", mood="good")
    await relabel(hub, "chameleon", colour="blue")
    await relabel(hub, "chameleon", mood="bad")
    await relabel(hub, "chameleon", colour="red")
    await delete(hub, "chameleon")

    events = await red.take(5)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    gone = events[2]
    assert gone.object["metadata"]["labels"]["colour"] == "red", "as it last was in the selection"
    assert gone.revision == start + 3, "at the revision that took it out"
    assert await red.is_quiet()


async def test_a_field_selector_follows_a_field(hub: HubClient) -> None:
    pods = "/api/v1/namespaces/default/pods"
    containers = [{"name": "c", "image": "i"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    await hub.do("POST", pods, {**pod, "spec": {"containers": containers}})
    watch = await hub.watch(pods, "fieldSelector=spec.nodeName%3Dn1")

    bound = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}}
    await hub.do("POST", f"{pods}/p/binding", {**bound, "target": {"name": "n1"}})

    (event,) = await watch.take(1)
    assert (event.type, event.object["spec"]["nodeName"]) == ("ADDED", "n1")


async def test_deleting_a_collection_tells_of_each_selected_object(hub: HubClient) -> None:
    for number in range(6):
        await create(hub, f"map-{number}", labels={"odd": str(number % 2)})
    watch = await hub.watch(SECRETS, f"resourceVersion={await current(hub)}")

    await hub.do("DELETE", f"{SECRETS}?labelSelector=odd%3D1")

    events = await watch.take(3)
    assert told(events) == [("DELETED", f"map-{number}") for number in (1, 3, 5)]
    assert await watch.is_quiet()


# -- how it begins and ends ----------------------------------------------------------------------


async def test_a_list_by_watch_ends_with_an_annotated_bookmark(hub: HubClient) -> None:
    await create(hub, "one")
    last = await create(hub, "two")
    watch = await hub.watch(SECRETS, FROM_LIST)

    *listed, mark = await watch.take(3)
    await create(hub, "three")

    assert told(listed) == [("ADDED", "one"), ("ADDED", "two")]
    assert mark.type == "BOOKMARK"
    assert mark.object["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}
    assert mark.revision == last
    assert told(await watch.take(1)) == [("ADDED", "three")]


async def test_an_empty_list_by_watch_still_says_that_it_is_over(hub: HubClient) -> None:
    (mark,) = await (await hub.watch(SECRETS, FROM_LIST)).take(1)

    assert mark.type == "BOOKMARK"
    assert mark.object["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}


async def test_bookmarks_come_to_those_who_asked_and_cover_what_they_did_not_see(
    hub: HubClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "BOOKMARK_SECONDS", 0.1)
    start = await current(hub)
    asked = await hub.watch(SECRETS, f"resourceVersion={start}&allowWatchBookmarks=true")
    silent = await hub.watch(SECRETS, f"resourceVersion={start}")
    latest = await create(hub, "elsewhere", "kube-system")

    event = await asked.next()
    while event is not None and event.revision < latest:
        event = await asked.next()

    assert event is not None
    assert (event.type, event.revision) == ("BOOKMARK", latest)
    assert set(event.object["metadata"]) == {"resourceVersion"}
    assert event.object["kind"] == "Secret"
    assert await silent.is_quiet()


async def test_a_watch_from_the_future_is_silent_until_it_has_come(
    hub: HubClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "BOOKMARK_SECONDS", 0.05)
    future = await current(hub) + 3
    watch = await hub.watch(SECRETS, f"resourceVersion={future}&allowWatchBookmarks=true")
    beside = await hub.watch(SECRETS, "resourceVersion=0&allowWatchBookmarks=true")

    await beside.take(3)
    revision = 0
    while revision <= future:
        revision = await create(hub, f"at-{revision}")
    event = await watch.next()

    assert event is not None
    assert event.revision >= future  # whether it is a bookmark or the first that came later


async def test_a_watch_ends_when_its_time_is_over(hub: HubClient) -> None:
    watch = await hub.watch(SECRETS, "timeoutSeconds=1")
    await create(hub, "in-time")

    assert told(await watch.rest()) == [("ADDED", "in-time")]


async def test_a_watch_ends_in_peace_when_the_hub_stops(tmp_path: Path) -> None:
    with hub_process(tmp_path) as process:
        hub = process.client()
        watch = await hub.watch(SECRETS)
        await create(hub, "last")
        async with asyncio.TaskGroup() as group:
            rest = group.create_task(watch.rest())
            stopped = group.create_task(asyncio.to_thread(process.stop))
        hub.close()

    assert told(rest.result()) == [("ADDED", "last")]
    assert stopped.result() == 0


# -- representations -----------------------------------------------------------------------------


async def test_a_table_has_its_columns_only_in_the_first_event(hub: HubClient) -> None:
    await create(hub, "one")
    await create(hub, "two")
    watch = await hub.watch(SECRETS, accept=TABLE)
    await create(hub, "three")

    first, second, third = await watch.take(3)

    names = [column["name"] for column in first.object["columnDefinitions"]]
    assert names[:2] == ["Name", "Type"]
    assert second.object["columnDefinitions"] is None
    assert third.object["columnDefinitions"] is None
    cells = [each.object["rows"][0]["cells"][0] for each in (first, second, third)]
    assert cells == ["one", "two", "three"]


async def test_metadata_alone_can_be_watched(hub: HubClient) -> None:
    watch = await hub.watch(SECRETS, accept=PARTIAL)
    await create(hub, "map", data={"secret": "no"})

    (event,) = await watch.take(1)

    assert event.object["kind"] == "PartialObjectMetadata"
    assert "data" not in event.object


async def test_every_watcher_gets_the_same_bytes(hub: HubClient) -> None:
    start = await current(hub)
    paths = [SECRETS, EVERYWHERE] * 10
    watches = [await hub.watch(path, f"resourceVersion={start}") for path in paths]
    for number in range(5):
        await create(hub, f"map-{number}", data={"number": str(number)})
    await delete(hub, "map-0")

    received = [[event.raw for event in await watch.take(6)] for watch in watches]
    late = await hub.watch(SECRETS, f"resourceVersion={start}")

    assert all(each == received[0] for each in received)
    assert [event.raw for event in await late.take(6)] == received[0]


# -- under load ----------------------------------------------------------------------------------


@dataclass
class Load:
    """Writers that write down what became of every object, by revision."""

    hub: HubClient
    dice: random.Random
    history: dict[int, tuple[str, str, str]] = field(default_factory=dict)

    async def write(self, writer: int, count: int) -> None:
        held: dict[str, str] = {}
        client = HubClient(self.hub.host, self.hub.port, self.hub.tls)
        for _ in range(count):
            name = f"w{writer}-{self.dice.randrange(4)}"
            await self._step(client, name, held)
            await asyncio.sleep(self.dice.choice([0, 0.001, 0.003]))
        client.close()

    async def _step(self, client: HubClient, name: str, held: dict[str, str]) -> None:
        colour = self.dice.choice(["red", "blue"])
        wanted = secret(name, labels={"colour": colour}, data={"n": str(self.dice.random())})
        before = held.get(name, "")
        if before and self.dice.random() < 0.3:
            await client.do("DELETE", f"{SECRETS}/{name}")
            del held[name]
            return
        method, path = ("PUT", f"{SECRETS}/{name}") if before else ("POST", SECRETS)
        made = await client.do(method, path, wanted)
        held[name] = colour
        self.history[int(made["metadata"]["resourceVersion"])] = (name, before, colour)


@pytest.mark.parametrize("seed", range(3))
async def test_whoever_joins_whenever_sees_a_stream_without_gaps(hub: HubClient, seed: int) -> None:
    """Concurrent writers, joiners at random revisions: everybody's story is the same story."""
    dice = random.Random(seed)
    load, start = Load(hub, dice), await current(hub)
    whole = await hub.watch(SECRETS, f"resourceVersion={start}")
    joiners: list[tuple[int, asyncio.Task[list[Event]]]] = []

    async def follow(place: int, selector: str) -> list[Event]:
        watch = await hub.watch(SECRETS, f"resourceVersion={place}{selector}")
        return await watch.until("end")

    async with asyncio.TaskGroup() as following:
        told_all = following.create_task(whole.until("end"))
        async with asyncio.TaskGroup() as group:
            for writer in range(4):
                group.create_task(load.write(writer, 60))
            for _ in range(30):
                await asyncio.sleep(0.005)
                place = dice.randint(start, max([start, *load.history]))
                joiners.append((place, following.create_task(follow(place, ""))))
        await create(hub, "end", labels={"colour": "red"})

    story = told_all.result()
    # Revisions between them may be those of others on the same etcd; every step is one of these.
    told = {event.revision: event for event in story}
    assert [event.revision for event in story] == sorted(told)
    assert len(story) == 4 * 60 + 1
    for revision, (name, before, _) in load.history.items():
        event = told[revision]
        assert (event.name, event.type) == (name, "MODIFIED" if before else "ADDED")
    for place, joiner in joiners:
        assert [each.raw for each in joiner.result()] == [
            each.raw for each in story if each.revision > place
        ]


@pytest.mark.parametrize("seed", range(3))
async def test_a_selective_watch_tells_the_same_story_as_its_own_lists(
    hub: HubClient, seed: int
) -> None:
    load, start = Load(hub, random.Random(seed)), await current(hub)
    red = await hub.watch(SECRETS, f"resourceVersion={start}&labelSelector=colour%3Dred")
    view: dict[str, int] = {}
    async with asyncio.TaskGroup() as group:
        for writer in range(4):
            group.create_task(load.write(writer, 40))
    await create(hub, "end", labels={"colour": "red"})
    last = start
    for event in await red.until("end"):
        assert event.revision > last
        last = event.revision
        if event.type == "DELETED":
            del view[event.name]
            continue
        assert (event.name in view) == (event.type == "MODIFIED")
        view[event.name] = event.revision

    listed = await hub.do("GET", f"{SECRETS}?labelSelector=colour%3Dred")
    there = {
        each["metadata"]["name"]: int(each["metadata"]["resourceVersion"])
        for each in listed["items"]
    }
    assert view == there


async def test_what_left_a_selection_is_not_read_again_as_it_was(hub: HubClient) -> None:
    """A watcher in protobuf saw the object leave; readers in protobuf then got its old content."""
    made = await hub.do("POST", SECRETS, secret("leaving", labels={"team": "red"}))
    current = made["metadata"]["resourceVersion"]
    query = f"labelSelector=team%3Dred&resourceVersion={current}"
    connection = await hub.connect()
    await connection.send(
        request_bytes("GET", f"{SECRETS}?watch=1&{query}", f"Accept: {PROTOBUF};stream=watch")
    )
    await connection.head()

    changed = {**made, "metadata": {**made["metadata"], "labels": {"team": "blue"}}}
    await hub.do("PUT", f"{SECRETS}/leaving", changed)
    assert b"DELETED" in await connection.chunk()

    read = await hub.ask("GET", f"{SECRETS}/leaving", accept=PROTOBUF)
    assert decode(read.body)["metadata"]["labels"] == {"team": "blue"}
