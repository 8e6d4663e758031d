"""A policy is tried on the page before anybody writes it."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
import yaml
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site
from tests.component.gateway.page_browsers import JANE
from tests.component.gateway.page_chromium import needs_chromium, running_chromium, visitor
from tests.component.gateway.page_fleet import furnish
from tests.component.gateway.test_page_simulation import POLICIES, policy

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import with_metadata

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

HOSTILE = "<img src=x onerror=window.hurt=1>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("f"), members=(), sims=("east",)) as running:
        await furnish(running)
        stored = with_metadata(policy("east", name="cart"), name="cart")
        await running.hub.client.create(ResourcePath(POLICIES, "shop"), stored)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


async def test_the_policy_of_an_object_is_edited_and_tried_with_the_keyboard_alone(
    site: Site, browser: Browser
):
    async with visitor(browser, site) as root:
        keyboard = root.page.keyboard
        await root.log_in(ROOT, "#/object/apps:v1/Deployment/shop/cart")
        await root.page.get_by_role("link", name="What if it were otherwise?").focus()
        await keyboard.press("Enter")
        await root.page.wait_for_selector("#policy")
        text = await root.page.input_value("#policy")
        assert yaml.safe_load(text)["metadata"]["name"] == "cart"

        await keyboard.press("/")
        await keyboard.press("Control+A")
        await keyboard.insert_text(text.replace("- east", "- south"))
        await keyboard.press("Tab")
        await keyboard.press("Enter")
        await root.until_reads("APIEnablement")
        shown = await root.text("section[aria-labelledby=tried-0]")

        assert "Deployment shop/cart" in shown
        assert "ClusterAffinity" in shown
        assert "clusterspace simulate policy.yaml" in await root.text()
        stored = await site.hub.client.get(ResourcePath(POLICIES, "shop", "cart"))
        assert stored["spec"]["placement"]["clusterAffinity"]["clusterNames"] == ["east"]
        assert root.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_stands_in_the_way_of_a_screen_reader_that_tries_a_policy(
    site: Site, browser: Browser, scheme: Any
):
    async with visitor(browser, site, color_scheme=scheme) as root:
        await root.log_in(ROOT, "#/whatif?kind=PropagationPolicy&namespace=shop&name=cart")
        await root.page.get_by_role("button", name="Show where things would go").click()
        await root.page.wait_for_selector("#tried-0")
        await root.picture(f"whatif-{scheme}")

        assert "Found 0" in (await Axe().run(root.page)).generate_report()


async def test_who_may_not_try_a_policy_is_told_by_the_hub_why(site: Site, browser: Browser):
    async with visitor(browser, site) as jane:
        await jane.log_in(JANE, "#/whatif")
        await jane.page.get_by_role("button", name="Show where things would go").click()

        await jane.until_reads('User "jane" cannot')


async def test_what_is_wrong_with_a_policy_is_text(site: Site, browser: Browser):
    async with visitor(browser, site) as root:
        await root.log_in(ROOT, "#/whatif")
        wrong = {**policy("east"), "spec": {"resourceSelectors": [{"kind": HOSTILE}]}}
        await root.page.fill("#policy", yaml.safe_dump(wrong))
        await root.page.get_by_role("button", name="Show where things would go").click()

        await root.until_reads("That did not work")

        assert await root.page.locator("main img").count() == 0
        assert await root.page.evaluate("window.hurt") is None
