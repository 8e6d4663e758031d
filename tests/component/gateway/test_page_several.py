"""Several paths in one request: each is answered, or refused, as if it had come by itself."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    ROOT,
    Heard,
    Site,
    fleet_site,
    grant,
    reaching,
    using,
)
from tests.component.gateway.page_browsers import Browser, logged_in
from tests.component.gateway.page_fleet import furnish

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEVERAL = "/ui/several"
MAPS = "/clusterspaces/hub/api/v1/namespaces/default/configmaps"
SECRETS = "/clusterspaces/hub/api/v1/namespaces/default/secrets"
PODS = "/api/v1/namespaces/shop/pods"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("f"), members=(), sims=("east",)) as running:
        await furnish(running)
        await grant(running.hub, "jane", [*reaching("east"), *using("configmaps")], "jane-uses")
        yield running


async def ask(browser: Browser, *paths: str, **more: Any) -> Heard:
    return await browser.ask("POST", SEVERAL, {"paths": list(paths)}, **more)


def parts_of(heard: Heard) -> dict[int, tuple[int, str]]:
    """Return status and text of every part of an answer; each has said that it ends."""
    lines = [json.loads(each) for each in heard.body.splitlines()]
    ended = {each["at"] for each in lines if each.get("end")}
    found = {each["at"]: (each["status"], "") for each in lines if "status" in each}
    for each in lines:
        if "text" in each:
            status, text = found[each["at"]]
            found[each["at"]] = (status, text + each["text"])
    assert ended == set(found)
    return found


async def test_every_path_is_answered_with_the_rights_of_whose_session_it_is(site: Site):
    jane = await logged_in(site)

    parts = parts_of(await ask(jane, MAPS, SECRETS, f"{MAPS}/none"))

    assert parts[0][0] == 200
    assert json.loads(parts[0][1])["kind"] == "ConfigMapList"
    assert parts[1][0] == 403
    assert 'User "jane" cannot list' in json.loads(parts[1][1])["message"]
    assert parts[2][0] == 404


async def test_logs_of_several_pods_come_on_one_connection(site: Site):
    root = await logged_in(site, ROOT)
    listed = await site.ask("GET", f"{PODS}?labelSelector=app%3Dweb")
    logs = [f"{PODS}/{name}/log?tailLines=3" for name in listed.names]

    parts = parts_of(await ask(root, *logs))

    assert [status for status, _ in parts.values()] == [200, 200]
    assert all(text.count("\n") >= 1 for _, text in parts.values())


async def test_without_a_session_every_part_is_refused(site: Site):
    parts = parts_of(await ask(Browser(site), MAPS, PODS))

    assert [status for status, _ in parts.values()] == [403, 403]


@pytest.mark.parametrize(
    "said", [(("Sec-Fetch-Site", "cross-site"),), (("Origin", "https://evil.example"),), ()]
)
async def test_no_other_site_reads_several_things_with_a_session(
    site: Site, said: tuple[tuple[str, str], ...]
):
    jane = await logged_in(site)

    parts = parts_of(await ask(jane, MAPS, said=said))

    assert parts[0][0] == 403
    assert "requests of the page itself" in parts[0][1]


@pytest.mark.parametrize(
    "paths",
    [
        [],
        [MAPS] * 65,
        ["/ui/session"],
        ["/ui/several"],
        ["https://evil.example/"],
        ["/api v1"],
        ["/api\r\nHost: evil"],
    ],
    ids=["none", "many", "session", "itself", "elsewhere", "space", "line"],
)
async def test_what_is_no_path_of_the_api_is_refused_before_anything_is_asked(
    site: Site, paths: list[str]
):
    refused = await ask(await logged_in(site), *paths)

    assert refused.code == 400


async def test_nothing_can_be_changed_or_entered_among_several(site: Site):
    root = await logged_in(site, ROOT)
    await root.ask("PUT", "/ui/session", {"readOnly": False})
    shell = "/clusterspaces/east/api/v1/namespaces/shop/pods/web/exec?command=id"

    changed = await root.ask("DELETE", SEVERAL)
    parts = parts_of(await ask(root, shell))

    assert changed.code == 405
    assert parts[0][0] >= 400
