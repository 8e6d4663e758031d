"""Bodies that never come to an end take places; nobody can take those of all the others."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import Site, fleet_site, grant, using
from tests.component.serving.wire import Answer, RawClient, request

from clusterspace.client.requests import ResourcePath
from clusterspace.roots import settings
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEATS = 120
"""Of these servers, instead of the hundreds of others: a dozen are those of ordinary users."""
SLOW = 30
"""More than there are seats for ordinary users."""
MAPS = "/api/v1/namespaces/shop/configmaps"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """A hub and a gateway with few seats; jane and carl may write ConfigMaps on the hub."""
    with pytest.MonkeyPatch.context() as patch:
        few = (SEATS // 2, SEATS // 2, True)
        patch.setattr(settings.RequestLimits.__init__, "__defaults__", few)
        patch.setattr(settings, "FLEET_REQUESTS", settings.RequestLimits())
        async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
            await running.hub.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            for user in ("jane", "carl"):
                await grant(running.hub, user, using("configmaps"), f"maps-of-{user}")
            yield running


def slow_create(token: str) -> bytes:
    """Return a create that has begun, and of which nothing more will come."""
    credential = (f"Authorization: Bearer {token}",) if token else ()
    kind = "Content-Type: application/json"
    return request("POST", MAPS, kind, *credential, "Content-Length: 3000") + b'{"kind":'


@asynccontextmanager
async def slow_writers(
    url: str, authority: str, count: int, token: str
) -> AsyncGenerator[list[asyncio.Task[Answer]]]:
    """Have so many creates begun, one after the other, each on a connection of its own."""
    parts = urlsplit(url)
    tls = ssl.create_default_context(cafile=authority)
    clients: list[RawClient] = []
    answers: list[asyncio.Task[Answer]] = []
    try:
        for _ in range(count):
            client = RawClient(*await asyncio.open_connection(parts.hostname, parts.port, ssl=tls))
            clients.append(client)
            await client.send(slow_create(token))
            answers.append(asyncio.create_task(client.answer()))
        yield answers
    finally:
        for task in answers:
            task.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        for client in clients:
            client.vanish()


def server_of(site: Site, which: str) -> tuple[str, str]:
    url = site.url if which == "fleet" else site.hub.settings.server
    return url, str(site.directory / which / "pki" / "ca.crt")


@pytest.mark.parametrize("which", ["fleet", "hub"])
async def test_one_who_sends_slowly_keeps_nobody_else_from_writing(site: Site, which: str) -> None:
    async with slow_writers(*server_of(site, which), SLOW, "jane-token") as answers:
        made = await site.ask(
            "POST", MAPS, config_map(f"of-carl-{which}", namespace="shop"), token="carl-token"
        )

        assert made.code == 201, made.body
        # Some of hers have seats, and the others wait for those: nobody was told to come again.
        assert not any(task.done() for task in answers)


@pytest.mark.parametrize("which", ["fleet", "hub"])
async def test_the_body_of_a_stranger_is_not_waited_for(site: Site, which: str) -> None:
    async with slow_writers(*server_of(site, which), 2, "") as answers:
        done = await asyncio.wait_for(asyncio.gather(*answers), 10)

    assert {answer.status for answer in done} == {403}
    assert 'User \\"system:anonymous\\" cannot create' in done[0].body.decode()


@pytest.mark.parametrize("path", [f"{MAPS}/a", f"/clusterspaces/hub{MAPS}/a"])
async def test_nor_that_of_a_stranger_who_would_change_something(site: Site, path: str) -> None:
    parts = urlsplit(site.url)
    tls = ssl.create_default_context(cafile=server_of(site, "fleet")[1])
    client = RawClient(*await asyncio.open_connection(parts.hostname, parts.port, ssl=tls))
    try:
        kind = "Content-Type: application/json"
        await client.send(request("PUT", path, kind, "Content-Length: 3000") + b'{"kind":')
        assert (await client.answer()).status == 403
    finally:
        client.vanish()


async def test_strangers_who_may_write_have_few_seats_together(site: Site) -> None:
    await grant(site.hub, "system:anonymous", using("configmaps"), "maps-of-anybody")
    await site.hub.client.list_objects(ResourcePath(CONFIG_MAPS, "shop"))
    hub = server_of(site, "hub")

    async with slow_writers(*hub, SLOW, ""), slow_writers(*hub, SLOW, "jane-token"):
        made = await site.ask(
            "POST", MAPS, config_map("beside-them", namespace="shop"), token="carl-token"
        )

        assert made.code == 201
