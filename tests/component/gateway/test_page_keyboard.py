"""Every story of the page with the keyboard alone, and what a screen reader finds on the way."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site
from tests.component.gateway.page_browsers import JANE
from tests.component.gateway.page_chromium import (
    Visitor,
    needs_chromium,
    running_chromium,
    visitor,
)
from tests.component.gateway.page_fleet import (
    DEPLOYMENTS,
    MIGRATION,
    PODS,
    furnish,
    furnish_moves,
    migration_status,
    ready,
    report,
    set_status,
)

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

WEB = "#/object/apps:v1/Deployment/shop/web"
ALLOW = "Allow changes for 15 minutes"
MOST_TABS = 60
"""Nothing on a screen is farther away than this."""
NAME = """() => {
    const at = document.activeElement;
    return at === document.body ? "" : at.getAttribute("aria-label") || at.textContent || at.id;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("f"), members=(), sims=("east",)) as running:
        await furnish(running)
        await furnish_moves(running, "it is somebody else's")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def root(site: Site, browser: Browser) -> AsyncGenerator[Visitor]:
    """The administrator, who has no mouse."""
    async with visitor(browser, site) as found:
        await found.open()
        await found.page.wait_for_selector("#token:focus")
        await press(found, ROOT, "Enter")
        await found.until_reads("1 silent")
        yield found
        assert found.problems == []


async def press(who: Visitor, *keys: str) -> None:
    """Press keys, one after the other; what is no key is typed."""
    named = {"Enter", "Escape", "Tab", "ArrowDown", "ArrowUp", "Control+a"}
    for each in keys:
        keyboard = who.page.keyboard
        await (keyboard.press(each) if each in named else keyboard.type(each))


async def focused(who: Visitor) -> str:
    """Return what has focus, by its name; nothing if nothing has it."""
    return await who.page.evaluate(NAME)


async def until_focused(who: Visitor, name: str) -> None:
    """Wait until something has focus without anybody having gone there."""
    await who.page.wait_for_function(f"(name) => ({NAME})().startsWith(name)", arg=name)


async def go_to(who: Visitor, name: str, *keys: str) -> str:
    """Go on with Tab until something has focus, and press keys there. Return its whole name."""
    await who.page.wait_for_function(
        "(name) => [...document.querySelectorAll('a, button')].some((each) =>"
        " (each.getAttribute('aria-label') || each.textContent).startsWith(name))",
        arg=name,
    )
    for _ in range(MOST_TABS):
        await press(who, "Tab")
        if (found := await focused(who)).startswith(name):
            await press(who, *keys)
            return found
    raise AssertionError(f"{name} cannot be reached with the keyboard")


async def open_web(who: Visitor) -> None:
    """Look at the Deployment, as who follows a link that somebody has sent."""
    await who.open(WEB)
    await until_focused(who, "Deployment shop/web")


async def web_of(site: Site) -> Object:
    return (await site.hub.client.get(ResourcePath(DEPLOYMENTS, "shop", "web")))["spec"]


async def test_from_a_cluster_s_row_to_one_of_its_objects(root: Visitor):
    await press(root, "/", "east")
    await root.until_reads("1 of 4", "section[aria-labelledby=clusters]")
    await press(root, "Tab", "ArrowDown")
    assert await focused(root) == "east"
    await press(root, "Enter")
    await until_focused(root, "Search")
    await root.until_reads("2 objects")

    await go_to(root, "web-", "Enter")

    await until_focused(root, "Pod shop/web-")


async def test_what_is_broken_keeps_its_focus_while_other_things_change(root: Visitor, site: Site):
    await root.until_reads("1 of 2 ready", ".problems")
    await go_to(root, "Deployment shop/pay")

    await report(site, "cart", {"east": ready(2)})
    await root.page.wait_for_function(
        "() => !document.querySelector('.problems').innerText.includes('shop/cart')"
    )
    kept = await focused(root)
    await report(site, "cart", {"east": ready(1)})
    await root.until_reads("shop/cart", ".problems")

    assert kept == await focused(root) == "Deployment shop/pay"
    await press(root, "Enter")
    await until_focused(root, "Deployment shop/pay")
    await root.until_reads("already exists in the cluster east")


async def test_a_search_is_filled_in_and_its_results_are_gone_through(root: Visitor):
    await press(root, "g", "s")
    await until_focused(root, "Search")
    await press(root, "/", "po", "Tab", "web", "Tab", "shop", "Enter")
    await root.until_reads("2 objects")
    assert await root.page.evaluate("document.activeElement.id") == "find-namespace"

    first = await go_to(root, "web-")
    await press(root, "ArrowDown")
    second = await focused(root)
    await press(root, "Enter")

    assert second.startswith("web-")
    assert second != first
    await until_focused(root, f"Pod shop/{second}")


async def test_logs_of_several_pods_are_opened_read_and_closed(root: Visitor):
    await open_web(root)
    opener = await go_to(root, "Logs of all 2 pods", "Enter")
    await until_focused(root, "Logs of all 2 pods")
    await root.page.wait_for_function(
        "() => new Set([...document.querySelectorAll('pre.log span span')]"
        ".map((each) => each.textContent)).size === 2"
    )
    assert await root.page.evaluate("document.activeElement.id") == "log"

    await go_to(root, "Close", "Enter")

    assert await root.page.locator("pre.log").count() == 0
    assert await focused(root) == opener


async def test_a_shell_is_opened_used_and_closed(root: Visitor):
    await open_web(root)
    await go_to(root, ALLOW, "Enter")
    await until_focused(root, "Scale…")
    opener = await go_to(root, "Shell in web-", "Enter")
    await root.page.wait_for_selector("#typed:focus")
    await press(root, "cat /etc/hostname", "Enter")
    await root.until_reads("\nweb-", "section.shell pre")
    await press(root, "exit", "Enter")
    await root.until_reads("The shell has ended", "section.shell")
    await until_focused(root, "Close")

    await press(root, "Enter")

    assert await focused(root) == opener
    await go_to(root, "Read-only again", "Enter")
    await until_focused(root, "Read-only")


async def test_a_deployment_is_scaled_and_restarted(root: Visitor, site: Site):
    await open_web(root)
    await go_to(root, ALLOW, "Enter")
    await until_focused(root, "Scale…")
    await press(root, "Enter")
    await root.page.wait_for_selector("#replicas:focus")
    await press(root, "Control+a", "3", "Enter")
    await until_focused(root, "Change it")
    await press(root, "Enter")
    await until_focused(root, "Close")
    await press(root, "Enter")
    await until_focused(root, "Scale…")

    await go_to(root, "Restart…", "Enter")
    await until_focused(root, "Show what would change")
    await press(root, "Enter")
    await until_focused(root, "Change it")
    await press(root, "Enter")
    await until_focused(root, "Close")
    await press(root, "Escape")
    await until_focused(root, "Restart…")

    spec = await web_of(site)
    assert spec["replicas"] == 3
    assert "kubectl.kubernetes.io/restartedAt" in spec["template"]["metadata"]["annotations"]


async def test_a_change_that_is_refused_leaves_its_user_where_it_can_be_tried_again(root: Visitor):
    await open_web(root)
    await go_to(root, ALLOW, "Enter")
    await until_focused(root, "Scale…")
    await press(root, "Enter")
    await root.page.wait_for_selector("#replicas:focus")
    await press(root, "Control+a", "7", "Enter")
    await until_focused(root, "Change it")
    await root.page.route("**/scale?*", lambda route: route.abort())

    await press(root, "Enter")

    await root.until_reads("That did not work", "dialog")
    await until_focused(root, "Show what would change")


async def test_clusters_are_compared_again(root: Visitor):
    await open_web(root)
    await root.until_reads("As of", "section[aria-labelledby=differs]")
    compared = root.page.expect_response("**/ui/several")
    async with compared:
        await go_to(root, "Compare again", "Enter")

    await until_focused(root, "Compare again")


async def test_the_objects_of_a_migration_are_looked_at_while_it_goes_on(root: Visitor, site: Site):
    await press(root, "g", "m")
    await until_focused(root, "Moves")
    opener = await go_to(root, "Objects of west-1")
    await set_status(site, MIGRATION, migration_status(4, "nearly"))
    await root.until_reads("5 of 5", "section[aria-labelledby=migrations]")
    assert await focused(root) == opener, "drawn anew, and with focus as before"
    await press(root, "Enter")
    await root.until_reads("1 of 2 taken", "section[aria-labelledby=items]")
    await set_status(site, MIGRATION, migration_status(2, ""))
    await root.until_reads("3 of 5", "section[aria-labelledby=migrations]")

    await go_to(root, "Close", "Enter")

    assert await root.page.locator("#items").count() == 0
    assert await focused(root) == opener
    await go_to(root, "Deployment shop/leaver", "Enter")
    await until_focused(root, "Deployment shop/leaver")


async def test_who_scrolls_away_from_their_row_goes_on_from_what_they_see(root: Visitor):
    shown = await root.page.evaluate(
        """async () => {
            const { VirtualTable } = await import("./table.js");
            const { h, link } = await import("./dom.js");
            const table = new VirtualTable();
            document.querySelector("main").replaceChildren(table);
            table.describe("many", ["name"], [""]);
            const draw = (at) => () => h("tr", {}, h("th", {scope: "row"}, link("/", `row ${at}`)));
            const row = (_, at) => ({key: at, mark: "", draw: draw(at)});
            table.rows = Array.from({length: 500}, row);
            table.querySelector("a").focus();
            const scroll = table.querySelector(".scroll");
            scroll.style.height = "300px";
            scroll.style.overflow = "auto";
            const scrolled = new Promise((told) => scroll.addEventListener("scroll", told));
            scroll.scrollTo(0, 5000);
            await scrolled;
            await new Promise(requestAnimationFrame);
            return document.activeElement === scroll;
        }"""
    )
    assert shown

    await press(root, "ArrowDown")

    name = await focused(root)
    seen = await root.page.evaluate(
        "document.activeElement.getBoundingClientRect().top"
        " - document.querySelector('virtual-table .scroll').getBoundingClientRect().top"
    )
    assert name.startswith("row 1"), name
    assert 0 <= seen < 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_stands_in_the_way_of_a_screen_reader_on_any_screen(
    site: Site, browser: Browser, scheme: Any
):
    found: dict[str, str] = {}
    async with visitor(browser, site, color_scheme=scheme) as who:

        async def look(name: str) -> None:
            report = (await Axe().run(who.page)).generate_report()
            if "Found 0" not in report:
                found[name] = report

        async def click(name: str) -> None:
            await who.page.get_by_role("button", name=name).first.click()

        pods = await site.members["east"].client.list_objects(ResourcePath(PODS, "shop"))
        await who.log_in(ROOT, "#/moves")
        await click("Objects of west-1")
        await who.until_reads("1 of 2 taken")
        await look("a migration's objects")
        await who.page.keyboard.press("?")
        await who.page.wait_for_selector("dialog")
        await look("keys")
        await who.page.keyboard.press("Escape")
        await who.open("#/nowhere")
        await who.until_reads("There is no such screen")
        await look("no screen")
        await who.open("#/search")
        await who.until_reads("Search")
        await look("a search before it")
        await who.open("#/search?kind=pods&namespace=nowhere")
        await who.until_reads("No cluster that has answered")
        await look("a search for nothing")
        await who.open("#/search?kind=unheard")
        await who.page.wait_for_selector(".notice.bad")
        await look("a search for an unknown kind")
        await who.open("#/whatif")
        await who.page.fill("#policy", "kind: Nothing")
        await click("Show where things would go")
        await who.page.wait_for_selector(".notice.bad")
        await look("a policy that is none")
        await who.open(f"#/object/v1/Pod/shop/{pods[0]['metadata']['name']}.clusterspace.east")
        await who.until_reads("kind: Pod")
        await click("Log of ")
        await who.page.wait_for_selector("pre.log")
        await look("a pod and its log")
        await who.open(WEB)
        await who.until_reads("As of")
        await click("Logs of all")
        await who.page.wait_for_selector("pre.log span span")
        await look("what differs, and logs of several")
        await click(ALLOW)
        for action in ("Scale…", "Restart…"):
            await click(action)
            await who.page.wait_for_selector("dialog")
            await look(action)
            await who.page.keyboard.press("Escape")
        await click("Edit YAML…")
        await who.page.fill("#edited", "kind: Nothing")
        await click("Show what would change")
        await who.page.wait_for_selector("dialog .notice.bad")
        await look("an edit that is refused")
        await who.page.keyboard.press("Escape")
        await who.open("#/fleet")
        await who.until_reads("1 silent")
        await who.context.set_offline(True)
        await who.until_reads("No news of clusters")
        await look("a server that is gone")
        await who.context.set_offline(False)
        await who.page.evaluate("fetch('/ui/session', {method: 'DELETE'})")
        await who.until_reads("Your login has ended", "body")
        await look("a login that has ended")
        await who.log_in(JANE, "#/fleet")
        await who.until_reads("You cannot see clusters")
        await look("who may see nothing")

    assert found == {}
