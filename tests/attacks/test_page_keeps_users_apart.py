"""Who may see less looks at the page after somebody who was shown everything."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
import yaml
from playwright.async_api import Browser, Request, Response
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, grant, reaching
from tests.component.gateway.page_browsers import JANE
from tests.component.gateway.page_chromium import (
    Visitor,
    needs_chromium,
    running_chromium,
    visitor,
)
from tests.component.gateway.page_fleet import furnish, place, ready
from tests.component.gateway.test_last_states import lost_member
from tests.component.gateway.test_page_simulation import POLICIES, policy

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import with_metadata
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

TREASURE, VAULT = "treasure", "vault"
"""What only the first user may see: an object of a member, and one of the hub with its policy."""
OBJECT = f"#/object/apps:v1/Deployment/shop/{VAULT}"
MAPS = "#/search?kind=configmaps&namespace=shop"
WHAT_IF = f"#/whatif?kind=PropagationPolicy&namespace=shop&name={VAULT}"
TRY = "Show where things would go"
LOOKING = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
SEEN_BY_JANE = "janes-own"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """Jane reaches every member, and may look at ConfigMaps in east."""
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=("behind",), sims=("east",)) as running:
        await furnish(running)
        shop = ResourcePath(CONFIG_MAPS, "shop")
        behind, east = (running.members[each] for each in ("behind", "east"))
        await behind.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        await behind.client.create(shop, config_map(TREASURE, {"k": "v"}, namespace="shop"))
        await east.client.create(shop, config_map(SEEN_BY_JANE, {}, namespace="shop"))
        await place(running, VAULT, {"east": {**ready(1), "appliedMessage": f"{VAULT} is open"}})
        stored = with_metadata(policy("east", name=VAULT), name=VAULT)
        await running.hub.client.create(ResourcePath(POLICIES, "shop"), stored)
        await grant(running.hub, "jane", reaching(), "jane-reaches")
        await grant(east, "jane", [LOOKING], "jane-looks")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@dataclass
class Watched:
    """Somebody at the page, and everything that their browser was sent meanwhile."""

    who: Visitor
    answers: list[Response] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)

    async def everything(self) -> str:
        """Return all that is to be read, and every answer that has an end."""
        answers = [await each.response() for each in self.finished]
        texts = [await each.text() for each in answers if each is not None]
        return "\n".join([await self.who.page.content(), *texts])


@asynccontextmanager
async def somebody(browser: Browser, site: Site) -> AsyncGenerator[Watched]:
    async with visitor(browser, site) as who:
        found = Watched(who)
        who.page.on("response", lambda each: found.answers.append(each))
        who.page.on("requestfinished", lambda each: found.finished.append(each))
        yield found
        assert who.problems == []


async def look_at_everything(root: Visitor) -> None:
    """Have the first user shown all that the second must not be."""
    await root.log_in(ROOT)
    await root.until_reads(VAULT, ".problems")
    await root.open(OBJECT)
    await root.until_reads("As of", "section[aria-labelledby=differs]")
    await root.open(WHAT_IF)
    await root.page.get_by_role("button", name=TRY).click()
    await root.page.wait_for_selector("#tried-0")
    await root.open(MAPS)
    await root.until_reads(TREASURE)


async def look_for_it(jane: Visitor) -> None:
    """Have the second user go wherever the first one was, and wait for what is there for her."""
    await jane.open("#/fleet")
    await jane.until_reads("You cannot see clusters")
    await jane.open("#/moves")
    await jane.until_reads("You cannot see migrations")
    await jane.open(MAPS)
    await jane.until_reads(SEEN_BY_JANE)


async def test_nothing_that_one_user_was_shown_is_shown_to_another(site: Site, browser: Browser):
    async with (
        lost_member(site, "lost") as lost,
        somebody(browser, site) as root,
        somebody(browser, site) as jane,
    ):
        await look_at_everything(root.who)
        lost.leave()
        await root.who.page.reload()
        await root.who.until_reads(TREASURE)
        await root.who.until_reads("lost (")  # as it was, and since when: there is something kept

        await jane.who.log_in(JANE)
        await look_for_it(jane.who)
        found = await jane.everything()

    assert SEEN_BY_JANE in found
    for secret in (TREASURE, VAULT):
        assert secret not in found


@pytest.mark.parametrize("screen", [OBJECT, WHAT_IF])
async def test_who_knows_the_address_is_told_no_more(site: Site, browser: Browser, screen: str):
    async with somebody(browser, site) as root, somebody(browser, site) as jane:
        await look_at_everything(root.who)
        await jane.who.log_in(JANE, screen)
        await jane.who.until_reads('User "jane" cannot')
        shown = await jane.who.text()

    assert f"{VAULT} is open" not in shown
    assert "resourceSelectors:\n  - apiVersion: apps/v1\n    kind: Deployment\n" not in shown
    assert "east \u00d7 2" not in shown


async def test_what_a_policy_did_for_one_is_not_told_to_another(site: Site, browser: Browser):
    tried = yaml.safe_dump(with_metadata(policy("east", name=VAULT), name=VAULT))
    async with somebody(browser, site) as root, somebody(browser, site) as jane:
        await look_at_everything(root.who)
        await jane.who.log_in(JANE, "#/whatif")
        await jane.who.page.fill("#policy", tried)
        await jane.who.page.get_by_role("button", name=TRY).click()
        await jane.who.until_reads('User "jane" cannot')

        assert await jane.who.page.locator("#tried-0").count() == 0


async def test_several_at_once_are_refused_one_by_one(site: Site, browser: Browser):
    async with somebody(browser, site) as root, somebody(browser, site) as jane:
        await look_at_everything(root.who)
        paths = [
            "/api/v1/namespaces/shop/configmaps/treasure.clusterspace.behind",
            "/clusterspaces/behind/api/v1/namespaces/shop/configmaps",
            "/clusterspaces/hub/apis/apps/v1/namespaces/shop/deployments",
            "/clusterspaces/east/apis/apps/v1/namespaces/shop/deployments/web",
            "/clusterspaces/east/api/v1/namespaces/shop/configmaps",
        ]
        ask = """async (paths) => {
            const headers = {"Content-Type": "application/json"};
            const body = JSON.stringify({paths});
            return (await fetch("/ui/several", {method: "POST", headers, body})).text();
        }"""
        to_root = await root.who.page.evaluate(ask, paths)
        await jane.who.log_in(JANE)
        to_jane = await jane.who.page.evaluate(ask, paths)

    said = [json.loads(each) for each in to_jane.splitlines()]
    codes = {each["at"]: each["status"] for each in said if "status" in each}
    texts = "".join(each.get("text", "") for each in said)
    assert to_root.count('"status":200') == len(paths)
    assert codes == {0: 403, 1: 403, 2: 403, 3: 403, 4: 200}
    assert SEEN_BY_JANE in texts
    assert '"k":"v"' not in texts
    assert VAULT not in texts


async def test_who_logs_in_after_somebody_in_the_same_window_begins_anew(
    site: Site, browser: Browser
):
    async with somebody(browser, site) as both:
        window = both.who
        await look_at_everything(window)
        await window.page.get_by_role("button", name="Log out").click()
        await window.page.wait_for_selector("#token")
        left = await both.who.page.content()
        kept = await window.page.evaluate("JSON.stringify([{...sessionStorage}, localStorage])")
        both.finished.clear()

        await window.page.fill("#token", JANE)
        await window.page.press("#token", "Enter")
        await window.until_reads("jane", "header.top")
        await look_for_it(window)
        found = await both.everything()

    assert any(each.url.endswith("/apis") for each in both.finished), "kinds are those of who asks"
    for secret in (TREASURE, VAULT):
        assert secret not in left + kept + found


async def test_nothing_on_the_way_keeps_an_answer_for_the_next_who_asks(
    site: Site, browser: Browser
):
    async with somebody(browser, site) as root:
        await look_at_everything(root.who)
        api = [each for each in root.answers if "/ui/" not in each.url or "." not in each.url[-5:]]
        kept = {
            each.url: said
            for each in api
            if each.request.method == "GET" and each.url != f"{site.url}/ui/"
            if not {"no-store", "private"}
            & set((said := each.headers.get("cache-control", "")).replace(",", " ").split())
        }

    assert len(api) > 10
    assert kept == {}
