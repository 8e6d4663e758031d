"""The page as people see it: in a real browser, on a fleet with a dead and a silent member."""

import json
from collections.abc import AsyncGenerator
from random import Random
from typing import Any

import pytest
import pytest_asyncio
import yaml
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Route
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, grant, reaching, using
from tests.component.gateway.page_browsers import JANE
from tests.component.gateway.page_chromium import (
    Visitor,
    needs_chromium,
    running_chromium,
    visitor,
)
from tests.component.gateway.page_fleet import cluster_status, furnish, ready, report

from clusterspace.roots.page import login_address

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

WEB = "#/object/apps:v1/Deployment/shop/web"
SCREENS = {
    "fleet": ("#/fleet", "1 well, 1 unwell, 1 silent"),
    "object": (WEB, "As of"),
    "search": ("#/search?kind=pods&namespace=shop", "2 objects"),
}
"""Where they are, and what is read there when all of it is there."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    place = tmp_path_factory.mktemp("fleet")
    async with fleet_site(place, members=(), sims=("east",)) as running:
        await furnish(running)
        await grant(running.hub, "jane", [*reaching("east"), *using("configmaps")], "jane-uses")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def root(site: Site, browser: Browser) -> AsyncGenerator[Visitor]:
    """The administrator, logged in, at the fleet's screen."""
    async with visitor(browser, site) as found:
        await found.log_in(ROOT)
        await found.page.wait_for_selector("virtual-table tbody th")
        yield found
        assert found.problems == []


async def test_what_is_broken_comes_first_with_its_reason(root: Visitor):
    await root.until_reads("already exists in the cluster east", ".problems")
    await root.until_reads("1 well, 1 unwell, 1 silent")
    broken = await root.text(".problems")

    assert "its API server refuses" in broken
    assert "no heartbeat" in broken
    assert "what is known of 1 object there is that old" in broken
    assert "1 of 2 ready" in broken
    assert "web" not in broken, "what a silent cluster last said is not told as news"
    await root.picture("fleet-light")


async def test_every_cluster_has_a_row_that_says_how_it_is(root: Visitor):
    rows = await root.page.locator("virtual-table tbody tr:not(.space)").all_inner_texts()

    assert [each.split()[0] for each in rows] == ["north", "south", "east"]
    assert "unwell for" in rows[0]
    assert "silent for" in rows[1]
    assert "maintenance=today:NoSchedule" in rows[1]
    assert "25%" in rows[2]


async def test_a_change_is_shown_without_anybody_asking(root: Visitor, site: Site):
    await root.until_reads("1 of 2 ready", ".problems")

    await report(site, "cart", {"east": ready(2)})
    await root.page.wait_for_function(
        "() => !document.querySelector('.problems').innerText.includes('1 of 2 ready')"
    )
    await report(site, "cart", {"east": ready(1)})

    await root.until_reads("1 of 2 ready", ".problems")


async def test_an_object_is_followed_from_its_template_to_each_cluster(root: Visitor):
    await root.open(WEB)
    await root.until_reads("web-deployment", ".chain")
    await root.until_reads("Running", "main")
    chain = await root.text(".chain")

    assert "PropagationPolicy" in chain
    assert "east \u00d7 2" in chain
    places = await root.text("section[aria-labelledby=places]")
    assert "silent for" in places
    assert "as of" in places
    assert "clusterspace why deployment/web -n shop" in await root.text("main")
    await root.picture("object-light")


async def test_the_log_of_a_pod_is_shown_as_it_is_written(root: Visitor):
    await root.open(WEB)
    await root.page.locator("section[aria-labelledby=pods] button").first.click()

    await root.page.wait_for_function(
        "() => document.querySelector('pre.log')?.textContent.split('\\n').length > 2"
    )

    assert "kubectl logs -n shop web-" in await root.text("main")


async def test_the_copy_in_a_cluster_can_be_read_as_yaml(root: Visitor):
    await root.open(WEB)
    panel = "section[aria-labelledby=yaml]"
    await root.page.wait_for_selector(f"{panel} option[value=east]", state="attached")
    await root.page.select_option(f"{panel} select", "east")

    await root.until_reads("name: web.clusterspace.east", panel)


async def test_a_search_is_an_address_that_can_be_passed_on(root: Visitor):
    await root.page.keyboard.press("/")
    await root.page.keyboard.press("Escape")
    await root.open("#/search")
    await root.page.fill("#find-kind", "po")
    await root.page.fill("#find-fields", "status.phase=Running")
    await root.page.press("#find-fields", "Enter")
    await root.until_reads("2 objects")

    assert root.page.url.endswith("#/search?kind=po&fields=status.phase%3DRunning")
    assert "kubectl get pods -A --field-selector status.phase=Running" in await root.text("main")
    await root.page.reload()
    await root.until_reads("2 objects")
    await root.page.locator("virtual-table tbody a").first.click()
    await root.until_reads("kind: Pod")


async def test_clusters_that_have_not_answered_are_named_above_a_search(root: Visitor):
    await root.open("#/search?kind=pods&namespace=nowhere")

    await root.until_reads("No cluster that has answered has such an object")

    assert "Not all clusters have answered" in await root.text("main")
    assert "north" in await root.text(".notices")


async def test_who_may_not_see_clusters_is_told_so_and_sees_no_empty_list(
    site: Site, browser: Browser
):
    async with visitor(browser, site) as jane:
        await jane.log_in(JANE)
        await jane.until_reads("You cannot see clusters")
        shown = await jane.text("main")

        assert 'User "jane" cannot list resource "clusters"' in shown
        assert "No cluster has joined" not in shown
        assert "Nothing is broken" not in shown


async def test_a_login_that_has_ended_is_asked_for_again_at_the_same_address(
    site: Site, browser: Browser
):
    async with visitor(browser, site) as root:
        await root.log_in(ROOT, WEB)
        await root.context.clear_cookies()
        await root.page.reload()
        await root.page.wait_for_selector("#token")

        assert root.page.url.endswith(WEB)
        await root.log_in(ROOT, WEB)
        await root.until_reads("Deployment shop/web")


async def test_a_server_that_is_gone_is_said_to_be_gone_and_what_was_known_stays(root: Visitor):
    await root.until_reads("east", "virtual-table")

    await root.page.route("**/clusters?*", lambda route: route.abort())
    await root.page.evaluate("window.dispatchEvent(new HashChangeEvent('hashchange'))")

    await root.until_reads("No news of clusters")
    assert "No cluster has joined" not in await root.text("main")


async def test_the_address_that_the_command_prints_logs_in_and_is_not_kept(
    site: Site, browser: Browser
):
    address = await login_address(site.connection(ROOT).settings)
    async with visitor(browser, site) as root:
        await root.page.goto(address)
        await root.until_reads("root", "header.top")

        assert "code" not in root.page.url
        await root.page.get_by_role("button", name="Log out").click()
        await root.page.wait_for_selector("#token")
        await root.page.goto(address)
        await root.until_reads("was used already")


async def test_everything_can_be_reached_with_the_keyboard(root: Visitor):
    await root.until_reads("cart", ".problems")
    keyboard = root.page.keyboard
    await keyboard.press("?")
    await root.until_reads("this list", "dialog")
    await keyboard.press("Escape")
    await root.page.wait_for_selector("dialog", state="detached")
    await keyboard.press("/")
    await keyboard.type("east")
    await root.until_reads("1 of 3", "section[aria-labelledby=clusters]")
    await keyboard.press("Tab")
    await keyboard.press("ArrowDown")
    assert await root.page.evaluate("document.activeElement.textContent") == "east"
    await keyboard.press("Enter")
    await root.until_reads("2 objects")
    await keyboard.press("g")
    await keyboard.press("f")
    await root.page.wait_for_selector("virtual-table")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_stands_in_the_way_of_a_screen_reader(
    site: Site, browser: Browser, scheme: Any
):
    async with visitor(browser, site, color_scheme=scheme) as root:
        await root.open()
        await root.page.wait_for_selector("#token")
        found = {"login": (await Axe().run(root.page)).generate_report()}
        await root.log_in(ROOT)
        for name, (address, text) in SCREENS.items():
            await root.open(address)
            await root.until_reads(text)
            await root.picture(f"{name}-{scheme}")
            found[name] = (await Axe().run(root.page)).generate_report()

        wrong = {name: text for name, text in found.items() if "Found 0" not in text}
        assert wrong == {}


@pytest.mark.parametrize("width", [360, 3840])
async def test_no_screen_is_wider_than_its_window(site: Site, browser: Browser, width: int):
    size = {"width": width, "height": width * 9 // 16 if width > 1000 else 720}
    async with visitor(browser, site, viewport=size) as root:
        await root.log_in(ROOT)
        for name, (address, text) in SCREENS.items():
            await root.open(address)
            await root.until_reads(text)
            await root.picture(f"{name}-{width}")
            inner = await root.page.evaluate("document.documentElement.scrollWidth")
            assert inner <= width, name


async def test_a_thousand_clusters_have_few_rows_in_the_document(site: Site, browser: Browser):
    clusters = [
        {
            "metadata": {"name": f"member-{at:04}", "uid": str(at), "resourceVersion": "1"},
            "spec": {},
            "status": cluster_status("True" if at % 50 else "Unknown"),
        }
        for at in range(1000)
    ]
    head = {"kind": "ClusterList", "metadata": {"resourceVersion": "1"}}
    listed = json.dumps({**head, "items": clusters})

    async def answer(route: Route) -> None:
        is_watch = "watch=1" in route.request.url
        await route.fulfill(body="" if is_watch else listed, content_type="application/json")

    async with visitor(browser, site) as root:
        await root.page.route("**/clusters?*", answer)
        await root.log_in(ROOT)
        await root.until_reads("980 well, 20 silent")
        drawn = root.page.locator("virtual-table tbody tr:not(.space)")

        assert await drawn.count() < 80
        await root.page.evaluate("document.querySelector('virtual-table .scroll').scrollTo(0, 1e6)")
        await root.until_reads("member-0999")
        assert await drawn.count() < 80
        await root.picture("thousand")


async def test_two_windows_side_by_side_both_show_the_fleet(root: Visitor):
    """Browsers have six connections for one server, all windows together."""
    other = await root.context.new_page()
    await other.goto(f"{root.site.url}/ui/")

    await other.get_by_text("1 well, 1 unwell, 1 silent").wait_for(timeout=30_000)
    await other.get_by_text("already exists in the cluster east").wait_for(timeout=30_000)


async def test_the_first_screen_takes_at_most_60_kb_to_show(site: Site, browser: Browser):
    async with visitor(browser, site) as root:
        await root.log_in(ROOT)
        await root.page.wait_for_selector("virtual-table tbody th")

        loaded = await root.page.evaluate(
            "performance.getEntries().filter((each) => each.name.includes('/ui/'))"
            ".reduce((sum, each) => sum + (each.encodedBodySize || 0), 0)"
        )

        assert 10_000 < loaded <= 60 * 1024


def any_value(random: Random, depth: int = 3) -> Any:
    """Return something that an object may hold, and that YAML is easily read wrongly from."""
    texts = (
        "", " ", "yes", "No", "null", "~", "1", "1e3", "0x10", "1:30", "- a", "a: b", "a #b", "# a",
        "a\nb", "a\nb\n", "a\n\nb", "  a\nb", "\n", "a\n\n", "'", '"', "\\", "\u00e9", "\u2028",
        "\x7f", "\t", "{}", "[x]", "&a", "*a", "!a", "%a", "@a", "`a", "|", ">", "?", ":", "=",
        "2026-01-01", ".inf", "<<", "a\n\tb", "a \n b", "on", "-", "---", "...", "x" * 90,
    )  # fmt: skip
    kind = random.randrange(6 if depth else 4)
    if kind < 2:
        return random.choice(texts)
    if kind == 2:
        return random.choice((0, -7, 1.5, True, False, None, 123456789))
    if kind == 3:
        return random.choice(([], {}))
    if kind == 4:
        return [any_value(random, depth - 1) for _ in range(random.randrange(4))]
    return {random.choice(texts): any_value(random, depth - 1) for _ in range(4)}


async def test_yaml_is_read_back_as_the_object_it_was_made_of(root: Visitor):
    random = Random(7)
    objects = [{"top": any_value(random, 4)} for _ in range(600)]

    written = await root.page.evaluate(
        "async (all) => { const { yaml } = await import('./model.js');"
        " return all.map((each) => `${yaml(each)}\\n`) }",
        objects,
    )

    assert [yaml.safe_load(each) for each in written] == objects
