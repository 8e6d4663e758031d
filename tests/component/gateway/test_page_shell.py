"""A shell in a pod, opened on the page: for who may, while the session may, and as text."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, grant, reaching
from tests.component.gateway.page_browsers import JANE
from tests.component.gateway.page_chromium import (
    Visitor,
    needs_chromium,
    running_chromium,
    visitor,
)
from tests.component.gateway.page_fleet import PODS, furnish

from clusterspace.client.requests import ResourcePath

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

WEB = "#/object/apps:v1/Deployment/shop/web"
ALLOW = "Allow changes for 15 minutes"
SHELL = "section[aria-labelledby=shell]"
LOOKING = {"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["get", "list", "watch"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("f"), members=(), sims=("east",)) as running:
        await furnish(running)
        for side in (running.hub, running.members["east"]):
            rules = [*reaching("east"), LOOKING] if side is running.hub else [LOOKING]
            await grant(side, "jane", rules, "jane-looks")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def root(site: Site, browser: Browser) -> AsyncGenerator[Visitor]:
    """The administrator, who looks at a Deployment."""
    async with visitor(browser, site) as found:
        await found.log_in(ROOT, WEB)
        yield found
        assert found.problems == []


async def open_shell(who: Visitor) -> None:
    await who.page.get_by_role("button", name=ALLOW).click()
    await who.page.get_by_role("button", name="Shell in web-").first.click()
    await who.page.wait_for_selector("#typed:enabled")


async def test_a_command_is_typed_with_the_keyboard_and_its_answer_read(root: Visitor):
    await root.until_reads("open a shell in its pods", ".actions")
    assert await root.page.get_by_role("button", name="Shell in").count() == 0

    await open_shell(root)
    keyboard = root.page.keyboard
    await keyboard.type("echo well $((40 + 2))")
    await keyboard.press("Enter")
    await keyboard.type("cat /etc/hostname")
    await keyboard.press("Enter")

    await root.until_reads("\nweb-", f"{SHELL} pre")
    await keyboard.press("ArrowUp")
    assert await root.page.input_value("#typed") == "cat /etc/hostname"
    assert "kubectl exec -it -n shop web-" in await root.text("main")
    await root.picture("shell-light")
    await root.page.fill("#typed", "exit 3")
    await keyboard.press("Enter")
    await root.until_reads("The shell has ended", SHELL)
    assert not await root.page.is_enabled("#typed")


async def test_a_shell_ends_when_the_session_is_read_only_again(root: Visitor):
    await open_shell(root)

    await root.page.get_by_role("button", name="Read-only again").click()

    await root.until_reads("The shell has ended", SHELL)


async def test_a_viewer_sees_no_button_for_a_shell(site: Site, browser: Browser):
    async with visitor(browser, site) as jane:
        asked: list[str] = []
        jane.page.on(
            "requestfinished",
            lambda request: asked.append(request.url) if "accessreviews" in request.url else None,
        )
        await jane.log_in(JANE, WEB)
        await jane.until_reads("Running", "section[aria-labelledby=pods]")
        while not any("/clusterspaces/east/" in each for each in asked):
            await jane.page.wait_for_event("requestfinished")
        await jane.page.evaluate("new Promise(requestAnimationFrame)")

        assert await jane.page.locator(".actions button").count() == 0
        assert await jane.page.get_by_role("button", name="Shell in").count() == 0


async def test_a_pod_that_was_found_has_its_log_and_says_how_to_reach_it(root: Visitor, site: Site):
    pods = await site.members["east"].client.list_objects(ResourcePath(PODS, "shop"))
    name = f"{pods[0]['metadata']['name']}.clusterspace.east"

    await root.open(f"#/object/v1/Pod/shop/{name}")
    await root.page.get_by_role("button", name="Log of web-").click()

    await root.page.wait_for_function(
        "() => document.querySelector('pre.log')?.textContent.split('\\n').length > 2"
    )
    assert f"kubectl port-forward -n shop {name}" in await root.text("main")


async def test_what_a_program_writes_is_text_whatever_it_would_do_to_a_terminal(root: Visitor):
    written = await root.page.evaluate(
        """async (parts) => {
            const { plainLines } = await import("./shell.js");
            const screen = plainLines();
            return [...parts.flatMap((each) => screen.write(each)), screen.last];
        }""",
        [
            "\x1b[31mred\x1b[0m\r\n",
            "10%\r20%\r\n",
            "typoo\b\x1b[K\n",
            "\x1b]0;owned\x07title\n",
            "cut \x1b[3",
            "1min two\n",
            "\x1bP1;2|secret\x1b\\dcs\x00\n",
            "<img src=x onerror=alert(1)>",
        ],
    )

    assert written == [
        "red", "20%", "typo", "title", "cut in two", "dcs", "<img src=x onerror=alert(1)>",
    ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_stands_in_the_way_of_a_screen_reader_in_a_shell(
    site: Site, browser: Browser, scheme: str
):
    async with visitor(browser, site, color_scheme=scheme) as root:
        await root.log_in(ROOT, WEB)
        await open_shell(root)

        report = (await Axe().run(root.page)).generate_report()

        assert "Found 0" in report, report
