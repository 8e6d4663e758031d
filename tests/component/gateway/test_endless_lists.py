"""A member whose pages lead to further pages for ever: whoever walks them comes to an end."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any

import pytest
from aiohttp import web
from tests.component.fake_clusters import fake_cluster
from tests.component.gateway.fleet_site import fake_member, fleet_site

from clusterspace.aio.clocks import SystemClock
from clusterspace.client import resources
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import AnswerOverrun
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.kube.objects import with_metadata
from clusterspace.testing.builders import CONFIG_MAPS, config_map

MAPS = ResourcePath(CONFIG_MAPS, "default")
PATH = "/api/v1/namespaces/default/configmaps"


class Endless:
    """A cluster that has another page behind each, and says so with a new token each time."""

    def __init__(self, *, token: str = "") -> None:
        self.token = token
        self.numbers = count()
        self.asked = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked += request.path == PATH
        made = [config_map(f"c{next(self.numbers)}") for _ in range(2)]
        items = [with_metadata(each, resourceVersion="5", uid="u") for each in made]
        token = self.token or f"page-{self.asked}"
        metadata = {"resourceVersion": "5", "continue": token}
        body: Any = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata}
        return web.json_response({**body, "items": items})


@asynccontextmanager
async def client_of(cluster: Endless) -> AsyncGenerator[ClusterClient]:
    async with fake_cluster(cluster) as port:
        settings = ConnectionSettings("endless", f"http://127.0.0.1:{port}")
        connection = Connection(settings, clock=SystemClock(), random=Random(1))
        try:
            yield ClusterClient(connection)
        finally:
            await connection.close()


@pytest.mark.parametrize(
    ("bound", "value"), [("_MOST_PAGES", 7), ("_MOST_BYTES", 3000), ("_LISTS_SECONDS", 0.0)]
)
async def test_our_own_parts_give_such_a_list_up(
    bound: str, value: float, monkeypatch: pytest.MonkeyPatch
):
    """Pages, bytes and time are bounded, of all pages together: each has bounds of its own."""
    monkeypatch.setattr(resources, bound, value)
    cluster = Endless()
    async with client_of(cluster) as client:
        with pytest.raises(AnswerOverrun, match="does not end"):
            await client.list_objects(MAPS, ListOptions(limit=2))
    assert cluster.asked <= 20


async def test_a_page_that_leads_to_itself_is_no_page():
    cluster = Endless(token="again")
    async with client_of(cluster) as client:
        with pytest.raises(AnswerOverrun, match="does not end"):
            await client.list_objects(MAPS)
    assert cluster.asked == 2


async def test_who_pages_through_the_fleet_is_not_led_on_for_ever(
    tmp_path_factory: pytest.TempPathFactory,
):
    limits = FleetLimits(list_seconds=5.0, watched_objects=10)
    directory = tmp_path_factory.mktemp("fleet")
    cluster = Endless()
    async with (
        fleet_site(directory, members=("east",), limits=limits) as site,
        fake_member(site, "aa-endless", cluster),
    ):
        for headers, ends_with in (
            ((("Kubectl-Command", "kubectl get"),), 200),  # with a Warning
            ((), 503),  # who would take the rest for deleted comes back
        ):
            cluster.asked, pages, token = 0, 0, ""
            while True:
                answer = await site.ask("GET", f"{PATH}?limit=2&continue={token}", headers=headers)
                pages += 1
                if answer.code != 200 or not answer.body["metadata"].get("continue"):
                    break
                token = answer.body["metadata"]["continue"]
            assert answer.code == ends_with, answer.body
            said = answer.warning if ends_with == 200 else answer.message
            assert "endless (its list does not end)" in said
            assert pages <= 12
