"""Whose schemas the fleet shows."""

from typing import Any

import pytest

from clusterspace.fleet.gateway.merge.discovery import (
    Document,
    Release,
    describes_fields,
    merge_schemas,
    pick_schema,
    schema_index,
)
from clusterspace.kube.objects import Object

RELEASES = {"karmada": Release(1, 30), "m1": Release(1, 32), "m2": Release(1, 35)}


def url(path: str, edition: str) -> str:
    return f"/openapi/v3/{path}?hash={edition}"


def listing(**editions: str) -> Object:
    """Return an index: core="A" is the document of api/v1 with the hash A."""
    paths = {"core": "api/v1", "apps": "apis/apps/v1", "widgets": "apis/example.com/v1"}
    return {
        "paths": {
            paths[name]: {"serverRelativeURL": url(paths[name], edition)}
            for name, edition in editions.items()
        }
    }


INDEXES = {
    "karmada": listing(core="H", widgets="W"),
    "m1": listing(core="A", apps="B"),
    "m2": listing(core="C"),
}


def test_every_path_is_shown_and_the_highest_release_describes_it() -> None:
    documents = merge_schemas(INDEXES, RELEASES)

    assert documents == {
        "api/v1": Document("api/v1", "m2", url("api/v1", "C")),
        "apis/apps/v1": Document("apis/apps/v1", "m1", url("apis/apps/v1", "B")),
        "apis/example.com/v1": Document(
            "apis/example.com/v1", "karmada", url("apis/example.com/v1", "W")
        ),
    }
    assert list(documents) == sorted(documents)


def test_explain_has_descriptions_where_any_cluster_has_them() -> None:
    """Our own servers say nothing of what fields are for, and were preferred by their release."""
    documents = merge_schemas(INDEXES, RELEASES, described=["m1"])

    assert {path: each.cluster for path, each in documents.items()} == {
        "api/v1": "m1",
        "apis/apps/v1": "m1",
        "apis/example.com/v1": "karmada",
    }
    picked = pick_schema("api/v1", "", INDEXES, RELEASES, described=["m1"])
    assert picked == documents["api/v1"]
    assert describes_fields({"gitVersion": "v1.35.8", "goVersion": "go1.25.1"})
    assert not describes_fields({"gitVersion": "v1.35.0+clusterspace.1.0", "goVersion": ""})


def test_the_index_is_read_like_that_of_one_server() -> None:
    assert schema_index(merge_schemas({"m1": INDEXES["m1"]}, RELEASES)) == INDEXES["m1"]


def test_of_equal_releases_the_first_is_taken_whoever_answers_first() -> None:
    same = dict.fromkeys(RELEASES, Release(1, 35))
    backwards = dict(reversed(INDEXES.items()))

    assert merge_schemas(INDEXES, same) == merge_schemas(backwards, same)
    assert merge_schemas(INDEXES, same)["api/v1"].cluster == "karmada"


def test_a_cluster_of_no_known_release_comes_last() -> None:
    assert merge_schemas(INDEXES, {"m1": Release(1, 20)})["api/v1"].cluster == "m1"


def test_a_client_gets_the_edition_its_index_named() -> None:
    assert pick_schema("api/v1", "A", INDEXES, RELEASES) == Document(
        "api/v1", "m1", url("api/v1", "A")
    )


@pytest.mark.parametrize("wanted", ["", "gone"])
def test_without_that_edition_it_gets_the_best(wanted: str) -> None:
    found = pick_schema("api/v1", wanted, INDEXES, RELEASES)

    assert found is not None
    assert (found.cluster, found.hash) == ("m2", "C")


def test_a_path_nobody_has_is_not_found() -> None:
    assert pick_schema("apis/nobody/v1", "", INDEXES, RELEASES) is None


@pytest.mark.parametrize(
    "paths",
    [
        None,
        [],
        {"api/v1": None},
        {"api/v1": {}},
        {"api/v1": {"serverRelativeURL": 5}},
        {"api/v1": {"serverRelativeURL": "https://evil.example/openapi/v3/api/v1"}},
        {"api/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=B"}},
        {"api/v1": {"serverRelativeURL": "/api/v1/secrets"}},
    ],
    ids=str,
)
def test_a_member_cannot_lead_clients_astray(paths: Any) -> None:
    assert merge_schemas({"m1": {"paths": paths}}, RELEASES) == {}


def test_an_edition_without_a_hash_is_served_too() -> None:
    plain: Object = {"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}}

    found = Document("api/v1", "m1", "/openapi/v3/api/v1")

    assert found.hash == ""
    assert pick_schema("api/v1", "", {"m1": plain}, RELEASES) == found
