"""Typed Go clients ask for protobuf first: what they get, in which form, and when JSON instead."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.component.hub_wire import (
    CONFIG_MAPS,
    JSON,
    SECRETS,
    HubClient,
    WatchStream,
    config_map,
    encoded,
    hub_here,
    secret,
)
from tests.component.serving.wire import Answer
from tests.protobuf_answers import PROTOBUF, read_event, read_list

from clusterspace.apiserver.store.compaction import CompactionPolicy
from clusterspace.kube.protobuf.bodies import decode
from clusterspace.kube.protobuf.encoding import encode
from clusterspace.roots import stores
from clusterspace.testing.steps import until

TYPED = f"{PROTOBUF},{JSON}"
METADATA = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/shop.example.com/v1/widgets"
ONLY_THREE = (
    "only the following media types are accepted: "
    "application/json, application/yaml, application/vnd.kubernetes.protobuf"
)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubClient]:
    async with hub_here(tmp_path) as client:
        yield client


def items_of(answer: Answer, kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the ListMeta and the items of a list of this kind."""
    assert answer.headers["content-type"] == PROTOBUF, answer.body[:300]
    listed = read_list(answer.body)
    assert listed["kind"] == f"{kind}List"
    return listed["metadata"], listed["items"]


async def next_event(stream: WatchStream) -> tuple[str, dict[str, Any]]:
    """Return the type and the object of one event."""
    chunk = await stream._connection.chunk()
    length, frame = int.from_bytes(chunk[:4], "big"), chunk[4:]
    assert length == len(frame)
    event = read_event(frame)
    return event["type"], event["object"]


async def test_an_object_is_the_same_in_protobuf_as_in_json(hub: HubClient) -> None:
    made = await hub.ask("POST", SECRETS, secret("s", data={"a": "b"}), accept=TYPED)
    read = await hub.ask("GET", f"{SECRETS}/s", accept=TYPED)

    assert made.status == 201
    assert made.headers["content-type"] == read.headers["content-type"] == PROTOBUF
    assert decode(read.body) == await hub.do("GET", f"{SECRETS}/s")
    assert made.body == read.body
    assert read.body.startswith(b"k8s\x00")


async def test_a_typed_client_works_in_protobuf_alone(hub: HubClient) -> None:
    """Create, update, scale, delete: no JSON passes, as with a controller of client-go."""
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    containers = [{"name": "c", "image": "i"}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    wanted = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }

    async def ask(method: str, path: str, sent: Any = None) -> Any:
        body = None if sent is None else encode(sent)
        answer = await hub.ask(method, path, body, content_type=PROTOBUF, accept=PROTOBUF)
        assert answer.status < 300, answer.body
        assert answer.headers["content-type"] == PROTOBUF
        return decode(answer.body)

    made = await ask("POST", deployments, wanted)
    made["spec"]["replicas"] = 3
    changed = await ask("PUT", f"{deployments}/web", made)
    scale = await ask("GET", f"{deployments}/web/scale")
    gone = await ask("DELETE", f"{deployments}/web")

    assert changed["spec"]["replicas"] == 3
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 3})
    assert (gone["kind"], gone["status"]) == ("Status", "Success")


async def test_a_list_says_the_same_and_goes_on_page_by_page(hub: HubClient) -> None:
    for name in ("a", "b", "c"):
        await hub.do("POST", SECRETS, secret(name, data={"k": name}))
    in_json = await hub.do("GET", SECRETS)

    metadata, items = items_of(await hub.ask("GET", SECRETS, accept=TYPED), "Secret")
    first, page = items_of(await hub.ask("GET", f"{SECRETS}?limit=2", accept=TYPED), "Secret")
    rest = await hub.ask("GET", f"{SECRETS}?limit=2&continue={first['continue']}", accept=TYPED)

    bare = [{k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items]
    assert bare == in_json["items"]
    assert metadata["resourceVersion"] == in_json["metadata"]["resourceVersion"]
    assert first["4"] == 1, "one remains"
    assert page + items_of(rest, "Secret")[1] == items


async def test_a_list_shows_what_was_written_since_the_last_one(hub: HubClient) -> None:
    await hub.do("POST", SECRETS, secret("s", data={"k": "old"}))
    _, before = items_of(await hub.ask("GET", SECRETS, accept=TYPED), "Secret")
    newer = {**before[0], "data": {"k": encoded("new")}}
    await hub.do("PUT", f"{SECRETS}/s", newer)

    _, after = items_of(await hub.ask("GET", SECRETS, accept=TYPED), "Secret")
    past = f"{SECRETS}?resourceVersionMatch=Exact&resourceVersion="
    past += before[0]["metadata"]["resourceVersion"]
    _, then = items_of(await hub.ask("GET", past, accept=TYPED), "Secret")

    assert [each["data"]["k"] for each in after] == [encoded("new")]
    assert then == before
    assert decode((await hub.ask("GET", f"{SECRETS}/s", accept=TYPED)).body) == after[0]


async def test_a_watch_is_a_stream_of_events_with_their_lengths(hub: HubClient) -> None:
    await hub.do("POST", SECRETS, secret("first"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = await hub.watch(SECRETS, query, accept=TYPED)
    assert stream.headers["content-type"] == f"{PROTOBUF};stream=watch"

    added = await next_event(stream)
    mark = await next_event(stream)
    made = await hub.do("POST", SECRETS, secret("second"))
    then = await next_event(stream)
    await hub.do("DELETE", f"{SECRETS}/second")
    gone = await next_event(stream)

    assert (added[0], added[1]["metadata"]["name"]) == ("ADDED", "first")
    assert mark[0] == "BOOKMARK"
    assert mark[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert then == ("ADDED", made)
    assert (gone[0], gone[1]["metadata"]["name"]) == ("DELETED", "second")
    assert int(gone[1]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_a_watch_of_a_forgotten_version_ends_with_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = partial(CompactionPolicy, maximum_events=10, look_every_seconds=0.02)
    monkeypatch.setattr(stores, "CompactionPolicy", policy)
    async with hub_here(tmp_path) as hub:

        async def is_forgotten() -> bool:
            await hub.do("PUT", f"{SECRETS}/s", secret("s", labels={"a": str(uuid4())}))
            listed = await hub.ask("GET", f"{SECRETS}?resourceVersion=2&limit=1")
            return listed.status == 410

        await hub.do("POST", SECRETS, secret("s"))
        await until(is_forgotten)
        said = await (await hub.watch(SECRETS, "resourceVersion=2")).next()
        told = await next_event(await hub.watch(SECRETS, "resourceVersion=2", accept=TYPED))

        assert said is not None
        assert told == ("ERROR", said.object)
        assert told[1]["code"] == 410


@pytest.mark.parametrize("accept", [PROTOBUF, TYPED, f"{PROTOBUF}, */*"])
async def test_refusals_come_in_protobuf_too(hub: HubClient, accept: str) -> None:
    answer = await hub.ask("GET", f"{SECRETS}/none", accept=accept)
    in_json = await hub.ask("GET", f"{SECRETS}/none")

    assert (answer.status, answer.headers["content-type"]) == (404, PROTOBUF)
    assert decode(answer.body) == msgspec.json.decode(in_json.body)
    stranger = await hub.ask("GET", SECRETS, accept=accept, token="viewer-token")
    assert (stranger.status, decode(stranger.body)["reason"]) == (403, "Forbidden")


async def define_widgets(hub: HubClient) -> None:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    }
    await hub.do("POST", DEFINITIONS, definition)
    widget = {
        "apiVersion": "shop.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
    }
    while (answer := await hub.ask("POST", WIDGETS, widget)).status != 201:
        assert answer.status == 404, answer.body


async def test_custom_resources_are_json_but_for_their_metadata(hub: HubClient) -> None:
    await define_widgets(hub)

    typed = await hub.ask("GET", f"{WIDGETS}/w", accept=TYPED)
    refused = await hub.ask("GET", f"{WIDGETS}/w", accept=PROTOBUF)
    metadata = await hub.ask("GET", f"{WIDGETS}/w", accept=METADATA)
    listed = await hub.ask("GET", WIDGETS, accept=METADATA_LIST)

    assert typed.headers["content-type"] == JSON
    assert (refused.status, refused.headers["content-type"]) == (406, PROTOBUF)
    assert decode(refused.body)["message"] == ONLY_THREE
    in_json = msgspec.json.decode(typed.body)["metadata"]
    assert decode(metadata.body) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": in_json,
    }
    assert [each["metadata"] for each in decode(listed.body)["items"]] == [in_json]


async def test_metadata_is_watched_in_protobuf(hub: HubClient) -> None:
    await define_widgets(hub)

    stream = await hub.watch(WIDGETS, accept=METADATA)

    kind, shown = await next_event(stream)
    assert (kind, shown["kind"]) == ("ADDED", "PartialObjectMetadata")
    assert shown["metadata"]["name"] == "w"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (f"{JSON};q=0.5, {PROTOBUF}", PROTOBUF),
        (f"{PROTOBUF};q=0.1, {JSON}", JSON),
        (f"*/*, {PROTOBUF}", PROTOBUF),
        ("*/*", JSON),
        ("", JSON),
    ],
)
async def test_the_client_says_what_it_wants_most(
    hub: HubClient, accept: str, expected: str
) -> None:
    answer = await hub.ask("GET", CONFIG_MAPS, accept=accept)

    assert answer.headers["content-type"] == expected


async def test_there_is_no_table_in_protobuf(hub: HubClient) -> None:
    table = f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1"

    alone = await hub.ask("GET", CONFIG_MAPS, accept=table)
    otherwise = await hub.ask("GET", CONFIG_MAPS, accept=f"{table},{JSON}")

    assert alone.status == 406
    assert alone.status_message() == ONLY_THREE
    assert otherwise.headers["content-type"] == JSON


async def test_a_watch_has_no_yaml(hub: HubClient) -> None:
    answer = await hub.ask("GET", f"{CONFIG_MAPS}?watch=1", accept="application/yaml")

    assert answer.status == 406
    assert f"{PROTOBUF};stream=watch" in answer.body.decode()


async def test_what_is_deleted_as_a_collection_is_listed(hub: HubClient) -> None:
    await hub.do("POST", CONFIG_MAPS, config_map("one", labels={"go": "now"}))

    answer = await hub.ask("DELETE", f"{CONFIG_MAPS}?labelSelector=go%3Dnow", accept=TYPED)

    assert [each["metadata"]["name"] for each in items_of(answer, "ConfigMap")[1]] == ["one"]
