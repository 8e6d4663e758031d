"""What client-go's informers and `kubectl wait` ask, byte for byte, and what they need back.

An informer that misses the bookmark at the end of the initial events waits for ever, without an
error (kubernetes/enhancements#3157).
"""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.conformance.hubs import (
    JSON,
    PATIENCE,
    WATCH_IN_PROTOBUF,
    Answer,
    RunningHub,
    Stream,
)
from tests.protobuf_answers import PROTOBUF

TYPED = f"{PROTOBUF},application/json"
"""What typed clients ask for since client-go 0.32; custom resources are JSON all the same."""

METADATA = ",".join(
    f"{media};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    for media in (PROTOBUF, "application/json")
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
INFORMER = (
    "?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
    "&timeoutSeconds=60&watch=true"
)
END = {"k8s.io/initial-events-end": "true"}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Forgotten:
    """A list that was read too long ago to go on from."""

    secrets: str
    version: str
    token: str


@pytest.fixture
def secrets(hub: RunningHub) -> str:
    """Give the path of the Secrets of a namespace nobody used before."""
    return new_secrets(hub)


def new_secrets(hub: RunningHub) -> str:
    name = f"informer-{next(_numbers)}"
    hub.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return f"/api/v1/namespaces/{name}/secrets"


def secret(name: str, value: str = "MQ==") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"name": name}}, "data": {"key": value}}


def start_informer(hub: RunningHub, path: str, accept: str = TYPED) -> Stream:
    stream = hub.watch(path + INFORMER, accept=accept, accept_encoding="gzip")
    assert stream.status == 200
    in_protobuf = PROTOBUF in accept
    assert stream.headers["content-type"] == (WATCH_IN_PROTOBUF if in_protobuf else JSON)
    assert "content-encoding" not in stream.headers
    return stream


def read_initial(stream: Stream) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    """Return the objects of the initial events, and the bookmark that ends them."""
    events = [stream.next()]
    while events[-1]["type"] != "BOOKMARK":
        events.append(stream.next())
    *added, end = events
    assert {event["type"] for event in added} <= {"ADDED"}
    return [event["object"] for event in added], end["object"]


def test_a_new_informer_gets_everything_and_then_the_bookmark(
    hub: RunningHub, secrets: str
) -> None:
    for name in ("a", "b", "c"):
        hub.create(secrets, secret(name))

    with start_informer(hub, secrets) as stream:
        objects, end = read_initial(stream)

    newest = max(int(each["metadata"]["resourceVersion"]) for each in objects)
    assert [each["metadata"]["name"] for each in objects] == ["a", "b", "c"]
    assert {(each["apiVersion"], each["kind"]) for each in objects} == {("v1", "Secret")}
    assert (end["apiVersion"], end["kind"]) == ("v1", "Secret")
    assert end["metadata"].keys() == {"resourceVersion", "annotations"}
    assert end["metadata"]["annotations"] == END
    assert int(end["metadata"]["resourceVersion"]) >= newest


def test_an_informer_on_nothing_gets_the_bookmark_at_once(hub: RunningHub, secrets: str) -> None:
    with start_informer(hub, secrets) as stream:
        objects, end = read_initial(stream)

    assert objects == []
    assert end["metadata"]["annotations"] == END


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/apis/apps/v1/deployments", "Deployment"),
        ("/api/v1/namespaces", "Namespace"),
        ("/apis/coordination.k8s.io/v1/leases", "Lease"),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "CustomResourceDefinition"),
    ],
)
def test_the_bookmark_is_of_the_kind_the_informer_expects(
    hub: RunningHub, path: str, kind: str
) -> None:
    with start_informer(hub, path) as stream:
        _, end = read_initial(stream)

    assert end["kind"] == kind


def test_the_stream_goes_on_with_live_events_and_no_second_end(
    hub: RunningHub, secrets: str
) -> None:
    with start_informer(hub, secrets) as stream:
        read_initial(stream)
        hub.create(secrets, secret("a"))
        hub.patch(f"{secrets}/a", {"data": {"key": "Mg=="}})
        hub.ask("DELETE", f"{secrets}/a")
        events = [stream.next() for _ in range(3)]

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


def test_an_informer_resumes_where_the_bookmark_was(hub: RunningHub, secrets: str) -> None:
    hub.create(secrets, secret("before"))
    with start_informer(hub, secrets) as stream:
        _, end = read_initial(stream)
    hub.create(secrets, secret("between"))

    version = end["metadata"]["resourceVersion"]
    query = f"?allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=60&watch=true"
    with hub.watch(secrets + query, accept=TYPED) as resumed:
        event = resumed.next()

    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "between")


def test_an_informer_may_name_the_version_it_has_seen(hub: RunningHub, secrets: str) -> None:
    version = hub.create(secrets, secret("a"))["metadata"]["resourceVersion"]

    with hub.watch(f"{secrets}{INFORMER}&resourceVersion={version}", accept=TYPED) as stream:
        objects, end = read_initial(stream)

    assert [each["metadata"]["name"] for each in objects] == ["a"]
    assert int(end["metadata"]["resourceVersion"]) >= int(version)


def test_an_informer_with_a_selector_sees_objects_come_and_go(
    hub: RunningHub, secrets: str
) -> None:
    hub.create(secrets, secret("a"))
    hub.create(secrets, secret("b"))

    with hub.watch(f"{secrets}{INFORMER}&labelSelector=name%3Db", accept=TYPED) as stream:
        objects, _ = read_initial(stream)
        hub.patch(f"{secrets}/a", {"metadata": {"labels": {"name": "b"}}})
        hub.patch(f"{secrets}/b", {"metadata": {"labels": {"name": "other"}}})
        events = [stream.next() for _ in range(2)]

    assert [each["metadata"]["name"] for each in objects] == ["b"]
    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert seen == [("ADDED", "a"), ("DELETED", "b")]


def test_a_metadata_informer_gets_metadata_and_its_own_bookmark(
    hub: RunningHub, secrets: str
) -> None:
    hub.create(secrets, secret("a"))

    with start_informer(hub, secrets, accept=METADATA) as stream:
        [found], end = read_initial(stream)
        hub.patch(f"{secrets}/a", {"metadata": {"labels": {"x": "y"}}})
        live = stream.next()["object"]

    for each in (found, end, live):
        assert (each["apiVersion"], each["kind"]) == ("meta.k8s.io/v1", "PartialObjectMetadata")
        assert each.keys() == {"apiVersion", "kind", "metadata"}
    assert end["metadata"]["annotations"] == END
    assert live["metadata"]["labels"]["x"] == "y"


def test_a_table_watch_names_its_columns_once_and_ends_its_initial_events(
    hub: RunningHub, secrets: str
) -> None:
    hub.create(secrets, secret("a"))
    hub.create(secrets, secret("b"))

    with start_informer(hub, secrets, accept=TABLE) as stream:
        (first, second), end = read_initial(stream)

    assert {each["kind"] for each in (first, second, end)} == {"Table"}
    assert [each["name"] for each in first["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
    assert (second["columnDefinitions"], end["columnDefinitions"]) == (None, None)
    [row] = end["rows"]
    assert row["object"]["metadata"]["annotations"] == END


def test_kubectl_waits_on_one_object_by_name(hub: RunningHub, secrets: str) -> None:
    hub.create(secrets, secret("a"))
    hub.create(secrets, secret("b"))
    query = "?fieldSelector=metadata.name%3Da&resourceVersion=0&timeoutSeconds=60&watch=true"

    with hub.watch(secrets + query) as stream:
        first = stream.next()
        hub.patch(f"{secrets}/b", {"data": {"key": "Mg=="}})
        hub.ask("DELETE", f"{secrets}/a")
        second = stream.next()

    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert (second["type"], second["object"]["metadata"]["name"]) == ("DELETED", "a")


def test_a_watch_that_is_about_to_end_says_where_to_go_on(hub: RunningHub, secrets: str) -> None:
    version = hub.create(secrets, secret("a"))["metadata"]["resourceVersion"]
    query = f"?allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=3&watch=true"

    with hub.watch(secrets + query, accept=TYPED) as stream:
        events = stream.rest()

    assert [event["type"] for event in events] == ["BOOKMARK"]
    assert int(events[0]["object"]["metadata"]["resourceVersion"]) >= int(version)
    assert "annotations" not in events[0]["object"]["metadata"]


def test_the_fallback_of_an_informer_is_a_list_from_the_cache_and_a_watch(
    hub: RunningHub, secrets: str
) -> None:
    hub.create(secrets, secret("a"))

    listed = hub.ask("GET", f"{secrets}?limit=500&resourceVersion=0", accept=TYPED).json
    version = listed["metadata"]["resourceVersion"]
    hub.create(secrets, secret("b"))
    with hub.watch(f"{secrets}?resourceVersion={version}&watch=true", accept=TYPED) as stream:
        event = stream.next()

    assert [each["metadata"]["name"] for each in listed["items"]] == ["a"]
    assert event["object"]["metadata"]["name"] == "b"


@pytest.mark.parametrize(
    "query", ["?resourceVersion=99999999", f"{INFORMER}&resourceVersion=99999999"]
)
def test_a_version_from_the_future_is_too_large_and_worth_a_retry(
    hub: RunningHub, secrets: str, query: str
) -> None:
    answer = hub.ask("GET", secrets + query)

    assert_is_too_large(answer)


def assert_is_too_large(answer: Answer) -> None:
    """Accept the refusal as an answer, or as the first event of a watch: clients know both."""
    status = answer.json if answer.status == 504 else answer.json["object"]
    assert (status["reason"], status["code"]) == ("Timeout", 504)
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert status["details"]["retryAfterSeconds"] == 1


class TestForgottenVersions:
    """The hub forgets the past after minutes, or when it weighs too much: these make it heavy."""

    MEGABYTE = 1_000_000
    REWRITES = 145

    @pytest.fixture(scope="class")
    @classmethod
    def forgotten(cls, shared_hub: RunningHub) -> Forgotten:
        """Give a resourceVersion and a continue token whose time has passed."""
        hub, secrets = shared_hub, new_secrets(shared_hub)
        hub.create(secrets, secret("a"))
        version = hub.create(secrets, secret("b"))["metadata"]["resourceVersion"]
        token = hub.get(f"{secrets}?limit=1")["metadata"]["continue"]
        for number in range(cls.REWRITES):
            hub.patch(f"{secrets}/a", {"data": {"key": chr(97 + number % 26) * cls.MEGABYTE}})
        exact = f"{secrets}?resourceVersionMatch=Exact&resourceVersion={version}"
        deadline = time.monotonic() + PATIENCE
        while hub.ask("GET", exact).status != 410:
            assert time.monotonic() < deadline, "the hub still knows the old version"
            time.sleep(0.1)
        return Forgotten(secrets, version, token)

    def test_an_informer_is_told_to_list_again(self, hub: RunningHub, forgotten: Forgotten) -> None:
        query = f"?resourceVersion={forgotten.version}&watch=true"

        with hub.watch(forgotten.secrets + query, accept=TYPED) as stream:
            [error] = stream.rest()

        assert error["type"] == "ERROR"
        assert (error["object"]["reason"], error["object"]["code"]) == ("Expired", 410)

    def test_an_informer_may_still_start_from_it(
        self, hub: RunningHub, forgotten: Forgotten
    ) -> None:
        query = f"{INFORMER}&resourceVersion={forgotten.version}"

        with hub.watch(forgotten.secrets + query, accept=TYPED) as stream:
            objects, _ = read_initial(stream)

        assert [each["metadata"]["name"] for each in objects] == ["a", "b"]

    def test_a_pager_is_given_a_token_to_finish_with(
        self, hub: RunningHub, forgotten: Forgotten
    ) -> None:
        page = hub.ask("GET", f"{forgotten.secrets}?limit=1&continue={forgotten.token}")

        assert (page.status, page.json["reason"]) == (410, "Expired")
        token = page.json["metadata"]["continue"]
        rest = hub.get(f"{forgotten.secrets}?limit=1&continue={token}")
        assert [each["metadata"]["name"] for each in rest["items"]] == ["b"]
