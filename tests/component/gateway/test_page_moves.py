"""What is on its way, on the page: migrations, moves, drains and staged runs."""

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
    MIGRATION,
    furnish,
    furnish_moves,
    migration_status,
    set_status,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

HOSTILE = "<img src=x onerror=window.hurt=1>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("f"), members=(), sims=("east",)) as running:
        await furnish(running)
        await furnish_moves(running, HOSTILE)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def root(site: Site, browser: Browser) -> AsyncGenerator[Visitor]:
    """The administrator, who looks at what moves."""
    async with visitor(browser, site) as found:
        await found.log_in(ROOT, "#/moves")
        yield found
        assert found.problems == []
        assert await found.page.evaluate("window.hurt") is None


async def test_a_migration_is_followed_as_it_goes_on(root: Visitor, site: Site):
    await root.until_reads("3 of 5", "section[aria-labelledby=migrations]")

    await set_status(site, MIGRATION, migration_status(4, HOSTILE))

    await root.until_reads("5 of 5", "section[aria-labelledby=migrations]")


async def test_what_a_migration_refused_is_said_with_the_reason(root: Visitor):
    await root.page.get_by_role("button", name="Objects of west-1").focus()
    await root.page.keyboard.press("Enter")
    await root.until_reads("Deployment shop/db")
    shown = await root.text("section[aria-labelledby=items]")

    assert "1 of 2 taken" in shown
    assert HOSTILE in shown
    assert "clusterspace migrate prove west-1" in await root.text()


async def test_what_leaves_a_cluster_is_shown_until_it_has_arrived(root: Visitor):
    await root.until_reads("Deployment shop/leaver", "section[aria-labelledby=moves]")
    moves = await root.text("section[aria-labelledby=moves]")

    assert "old" in moves
    assert "TaintUntolerated" in moves
    await root.until_reads("old", "section[aria-labelledby=drains]")
    drains = await root.text("section[aria-labelledby=drains]")
    assert drains.split("old")[1].split()[:2] == ["1", "1"]


async def test_a_staged_run_says_how_far_it_is_and_whom_it_waits_for(root: Visitor):
    await root.until_reads("canary: 1 of 2 clusters", "section[aria-labelledby=runs]")

    assert "waits for approval of rollout-before-canary" in (
        await root.text("section[aria-labelledby=runs]")
    )


async def test_runs_in_namespaces_are_shown_with_theirs(root: Visitor):
    await root.until_reads("shop/of-a-policy", "section[aria-labelledby=runs]")
    shown = await root.text("section[aria-labelledby=runs]")

    assert shown.count("canary: 1 of 2 clusters") == 2
    assert "clusterstagedupdateruns,stagedupdateruns -A" in await root.text()


async def test_who_may_not_see_migrations_is_told_so(site: Site, browser: Browser):
    async with visitor(browser, site) as jane:
        await jane.log_in(JANE, "#/moves")

        await jane.until_reads("You cannot see migrations")

        assert "No cluster is being taken in" not in await jane.text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_stands_in_the_way_of_a_screen_reader_that_follows_moves(
    site: Site, browser: Browser, scheme: Any
):
    async with visitor(browser, site, color_scheme=scheme) as root:
        await root.log_in(ROOT, "#/moves")
        await root.until_reads("canary")
        await root.until_reads("leaver")
        await set_status(site, MIGRATION, migration_status(3, ""))
        await root.page.wait_for_function(
            "() => !document.querySelector('main').innerText.includes('onerror')"
        )
        await root.picture(f"moves-{scheme}")

        assert "Found 0" in (await Axe().run(root.page)).generate_report()
