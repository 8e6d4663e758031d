"""Long and strange answers of a member neither stop the gateway nor fill its memory."""

import threading
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.component.gateway.fleet_site import TABLE, Heard, Site, fleet_site, heard

from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ClusterMisbehaved
from clusterspace.fleet.gateway.merge.lists import read_cluster_list
from clusterspace.fleet.gateway.routes import Naming
from clusterspace.kube import plain_text
from clusterspace.testing.hostile import ESCAPES, Behaviour, HostileMember, answering, refusing

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
MAPS = "/api/v1/namespaces/shop/configmaps"
PREFIX = f"/clusterspaces/{HOSTILE}"
PROXY = f"/apis/cluster.karmada.io/v1alpha1/clusters/{HOSTILE}/proxy"
COLUMNS = [{"name": "Name", "type": "string"}, {"name": "Data", "type": "string"}]
HEAD = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def member(site: Site) -> AsyncGenerator[HostileMember]:
    async with hostile_in(site, refusing(500, "InternalError")) as running:
        yield running


@pytest.fixture
def behave(site: Site, member: HostileMember) -> Callable[[Behaviour], None]:
    def change(behaviour: Behaviour) -> None:
        member.behave = behaviour
        site.running.fleet.directory.troubles.let_go(HOSTILE)

    return change


async def ask(site: Site, which: str, path: str) -> Heard:
    as_table = (("Accept", TABLE),)
    if which == "fleet":
        return await site.ask("GET", path, headers=as_table)
    return heard(await site.hub.client.connection.exchange(ApiRequest("GET", path, (), as_table)))


def table(rows: list[Any], columns: Any = COLUMNS) -> bytes:
    return msgspec.json.encode({**HEAD, "columnDefinitions": columns, "rows": rows})


@pytest.mark.parametrize(
    ("which", "path"),
    [
        ("fleet", f"{PREFIX}{MAPS}"),
        ("fleet", f"/api/v1/namespaces/shop/clusterspaces/{HOSTILE}/configmaps"),
        ("hub", f"{PROXY}{MAPS}"),
    ],
)
async def test_a_long_table_is_cleaned_beside_the_event_loop(
    site: Site,
    behave: Callable[[Behaviour], None],
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    path: str,
) -> None:
    cleaned_in: set[int] = set()
    clean = plain_text.cell

    def noted(value: Any) -> Any:
        cleaned_in.add(threading.get_ident())
        return clean(value)

    monkeypatch.setattr(plain_text, "cell", noted)
    row = {"cells": ["web", f"{ESCAPES}{'x' * 512}"], "object": {"metadata": {"name": "web"}}}
    behave(answering(200, table([row] * 4096)))

    answer = await ask(site, which, path)

    assert answer.code == 200
    assert len(answer.body["rows"]) == 4096
    assert all(each["cells"][-1].isprintable() for each in answer.body["rows"])
    assert cleaned_in
    assert threading.get_ident() not in cleaned_in


@pytest.mark.parametrize(
    "body",
    [
        table([{"cells": ["x" * 128 * 1024]}]),
        table([{"cells": [[]] * 40_000}]),
        table([], [{"name": "x" * 128 * 1024}]),
        table([], [[[]]]),
        table([{"cells": []}] * 120_000),
        table([{"cells": ["x" * 1024]}] * 17_000),
    ],
    ids=["a long cell", "many cells", "long columns", "no columns", "many rows", "much of it"],
)
@pytest.mark.parametrize(("which", "path"), [("fleet", f"{PREFIX}{MAPS}"), ("hub", PROXY + MAPS)])
async def test_a_table_that_nobody_could_print_is_not_taken_apart(
    site: Site, behave: Callable[[Behaviour], None], which: str, path: str, body: bytes
) -> None:
    behave(answering(200, body))

    answer = await ask(site, which, path)

    assert answer.code in (502, 503), answer.body
    assert HOSTILE in answer.message


async def test_text_deep_inside_a_cell_is_fit_to_be_printed(
    site: Site, behave: Callable[[Behaviour], None]
) -> None:
    deep = "[" * 500 + "]" * 500
    row = {"cells": ["web", [{ESCAPES: [ESCAPES]}]]}
    behave(answering(200, table([row, {"cells": ["web", msgspec.Raw(deep.encode())]}])))

    answer = await ask(site, "fleet", f"{PREFIX}{MAPS}")

    assert answer.code == 200
    assert "\\u001b" not in msgspec.json.encode(answer.body).decode()


def one_element(start: bytes, piece: bytes, end: bytes, size: int) -> bytes:
    return start + b",".join([piece] * (size // (len(piece) + 1))) + end


def fields(count: int) -> bytes:
    return b",".join(b'"k%x":1' % index for index in range(count))


ITEMS = b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":['
ROWS = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":['


@pytest.mark.parametrize("size", [MIB, 12 * MIB])
@pytest.mark.parametrize("shape", ["cells", "fields", "fields of many"])
async def test_one_element_cannot_take_many_times_its_size(shape: str, size: int) -> None:
    if shape == "cells":
        body = one_element(ROWS + b'{"cells":[', b"[]", b"]}]}", size)
    elif shape == "fields":
        body = ITEMS + b"{" + fields(size // 12) + b"}]}"
    else:
        body = one_element(ITEMS, b"{" + fields(1000) + b"}", b"]}", size)
    tracemalloc.start()
    try:
        with pytest.raises(ClusterMisbehaved, match="its answer is not a list"):
            read_cluster_list(body, Naming("west"))
        kept, at_most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < size
    assert at_most < 128 * MIB


async def test_long_lists_of_ordinary_objects_are_taken_apart_as_short_ones_are() -> None:
    item = {"metadata": {"name": "a", "uid": "u" * 36}, "data": {"k": "v" * 4096}}
    row = {"cells": ["a", 1, None], "object": {"metadata": {"name": "a"}, "data": "v" * 4096}}
    head = {"metadata": {"resourceVersion": "5"}}
    for count in (2, 2000):
        listed = msgspec.json.encode(
            {"kind": "ConfigMapList", "apiVersion": "v1", **head, "items": [item] * count}
        )
        shown = table([row] * count)

        assert [sorted(each) for each in read_cluster_list(listed, Naming("west")).items] == [
            ["data", "metadata"]
        ] * count
        part = read_cluster_list(shown, Naming("west"))
        assert (part.count, part.rows[-1].cells) == (count, ["a", 1, None])
        assert [each["name"] for each in part.columns] == ["Name", "Data"]
