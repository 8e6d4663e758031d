"""A member writes what terminals obey: it reaches nobody's terminal."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.component.gateway.fleet_site import ROOT, TABLE, Heard, Site, fleet_site
from tests.component.gateway.watch_streams import watching

from clusterspace.testing.hostile import (
    ESCAPES,
    Asked,
    Behaviour,
    HostileMember,
    answering,
    list_head,
    listing,
    refusing,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
PROXY = f"/clusterspaces/hub/apis/cluster.karmada.io/v1alpha1/clusters/{HOSTILE}/proxy"
AS_TABLE = (("Accept", TABLE),)
OBEYED = {*map(chr, range(32)), *map(chr, range(127, 160)), *"\u202e\u2066\u2069\u200f\ufeff"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def member(site: Site) -> AsyncGenerator[HostileMember]:
    async with hostile_in(site, answering(200)) as running:
        yield running


def strings_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in strings_in(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings_in(each)]
    return [value] if isinstance(value, str) else []


def is_fit(texts: list[str]) -> bool:
    for text in texts:
        assert not OBEYED & set(text), repr(text)
    return True


def table(*, is_event: bool = False) -> bytes:
    columns = [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": f"Data{ESCAPES}", "type": ESCAPES, "format": "", "description": ESCAPES},
    ]
    beside = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "x", "namespace": "default", "uid": "1", "resourceVersion": "2"},
    }
    made: dict[str, Any] = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "5"},
        "columnDefinitions": columns,
        "rows": [{"cells": [f"x{ESCAPES}", ESCAPES], "object": beside}],
    }
    return json.dumps({"type": "ADDED", "object": made} if is_event else made).encode()


def tables() -> Behaviour:
    async def answer(asked: Asked, writer: Any) -> None:
        body = table(is_event=True) + b"\n" if asked.is_watch else table()
        await answering(200, body)(asked, writer)

    return answer


@pytest.mark.parametrize(
    "path",
    [
        MAPS,
        WIDGETS,
        f"/clusterspaces/{HOSTILE}{MAPS}",
        f"/clusterspaces/{HOSTILE}{WIDGETS}",
        f"/api/v1/namespaces/default.clusterspace.{HOSTILE}/configmaps",
        f"{PROXY}{MAPS}",
    ],
)
async def test_cells_and_columns_of_a_table_can_be_printed(
    site: Site, member: HostileMember, path: str
):
    member.behave = tables()

    answer = await site.ask("GET", path, headers=AS_TABLE)

    assert answer.code == 200, answer.body
    assert is_fit(strings_in(answer.body["columnDefinitions"]))
    cells = [cell for row in answer.body["rows"] for cell in row["cells"]]
    assert is_fit(strings_in(cells))
    assert any("gnp.exe" in str(cell) for cell in cells)


@pytest.mark.parametrize(
    "path",
    [
        f"{MAPS}?watch=true",
        f"/clusterspaces/{HOSTILE}{MAPS}?watch=true",
        f"/api/v1/namespaces/default.clusterspace.{HOSTILE}/configmaps?watch=true",
        f"{PROXY}{MAPS}?watch=true",
    ],
)
async def test_rows_that_a_watch_tells_can_be_printed(site: Site, member: HostileMember, path: str):
    member.behave = tables()

    async with watching(site.connection(ROOT), path, accept=TABLE) as found:
        await found.until(lambda each: any(b"gnp.exe" in line for line in each.lines))

    for event in found.events:
        shown = event["object"]
        cells = [row["cells"] for row in shown.get("rows") or ()]
        assert is_fit(strings_in(cells) + strings_in(shown.get("columnDefinitions")))


def texts_of(answer: Heard) -> list[str]:
    said = strings_in(answer.body) if answer.code != 200 else []
    return [*said, *answer.headers.values()]


@pytest.mark.parametrize("code", [400, 403, 404, 409, 422, 429, 500, 503])
async def test_refusals_can_be_printed(site: Site, member: HostileMember, code: int):
    member.behave = refusing(code, ESCAPES, message=ESCAPES)

    for path in (
        MAPS,
        f"{MAPS}/x.clusterspace.{HOSTILE}",
        f"/clusterspaces/{HOSTILE}{MAPS}",
        f"/clusterspaces/{HOSTILE}{MAPS}?watch=true",
        f"/api/v1/namespaces/default.clusterspace.{HOSTILE}/configmaps?watch=true",
        f"{PROXY}{MAPS}",
    ):
        answer = await site.ask("GET", path)
        assert is_fit(texts_of(answer)), path


@pytest.mark.parametrize(
    "behave",
    [
        answering(500, ESCAPES.encode(), content_type="text/plain"),
        answering(500, ESCAPES.encode(), content_type=""),
        answering(200, b"{}", content_type="text/\x1b[2Jhtml"),
        answering(200, b"{}", "Content-Encoding: \x1b[2J"),
        answering(200, b"{}", 'Warning: 299 - "a\x1b[2J\tb"'),
        answering(200, b"{}", "ETag: \x1b[2J"),
    ],
    ids=["plain", "untyped", "type", "encoding", "warning", "tag"],
)
async def test_neither_can_any_other_word_of_an_answer_do_harm(
    site: Site, member: HostileMember, behave: Behaviour
):
    member.behave = behave

    for path in (MAPS, f"/clusterspaces/{HOSTILE}{MAPS}", f"{MAPS}/x.clusterspace.{HOSTILE}"):
        answer = await site.ask("GET", path)
        assert is_fit([*answer.headers.values()]), path
        said = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        assert b"\x1b" not in said
        assert b"u001b" not in said
        assert "\u202e".encode() not in said


async def test_objects_are_bytes_and_stay_what_they_are(site: Site, member: HostileMember):
    item = {"metadata": {"name": "x", "resourceVersion": "1"}, "data": {"k": ESCAPES}}
    member.behave = listing(item)

    listed = await site.ask("GET", MAPS)
    relayed = await site.ask("GET", f"/clusterspaces/{HOSTILE}{MAPS}")

    for answer in (listed, relayed):
        assert ESCAPES in [each.get("data", {}).get("k") for each in answer.body["items"]]


async def test_a_tab_in_a_name_does_not_move_the_column_of_the_cluster(
    site: Site, member: HostileMember
):
    async def pretend(asked: Asked, writer: Any) -> None:
        rows = [{"cells": ["web\teast"], "object": {"metadata": {"resourceVersion": "1"}}}]
        columns = [{"name": "Name", "type": "string", "format": "name"}]
        made = {**list_head(asked), "kind": "Table", "apiVersion": "meta.k8s.io/v1"}
        body = json.dumps({**made, "columnDefinitions": columns, "rows": rows}).encode()
        await answering(200, body)(asked, writer)

    member.behave = pretend

    answer = await site.ask("GET", MAPS, headers=AS_TABLE)

    shown = [row["cells"][:2] for row in answer.body["rows"] if row["cells"][1] == HOSTILE]
    assert shown == [[f"web east.clusterspace.{HOSTILE}", HOSTILE]]


async def test_what_a_member_says_it_serves_can_be_printed(site: Site, member: HostileMember):
    resources: list[dict[str, Any]] = [
        {
            "resource": name,
            "responseKind": {"kind": f"K{ESCAPES}"},
            "singularResource": ESCAPES,
            "verbs": [ESCAPES],
            "shortNames": [ESCAPES],
        }
        for name in ("pods\x1b[2J", "evils", "\u202erenamed")
    ]
    versions = [{"version": "v1", "resources": resources}]
    group = {"metadata": {"name": "evil.example"}, "versions": versions}
    kind = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    member.behave = answering(200, json.dumps({**kind, "items": [group]}).encode())
    site.running.fleet.directory.troubles.let_go(HOSTILE)

    roots = [await site.ask("GET", path) for path in ("/apis", "/apis/evil.example/v1")]

    for answer in roots:
        assert is_fit(strings_in(answer.body))
