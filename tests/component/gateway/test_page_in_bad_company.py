"""The page on a fleet with a dead, a slow and a lying member, and before a server that is gone."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, member_at
from tests.component.gateway.page_chromium import (
    Visitor,
    needs_chromium,
    running_chromium,
    visitor,
)
from tests.component.gateway.page_fleet import cluster_status, furnish, place, ready, set_status

from clusterspace.fleet.membership import manifests
from clusterspace.testing.hostile import KINDS, hostile_member

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

WAITED_SECONDS = 4.0
"""How long the server waits for members: longer than people wait for a sentence."""
BAD = {"liar": "garbage", "slow": "slow-bytes"}
SHARED = "#/object/apps:v1/Deployment/shop/shared"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    directory = tmp_path_factory.mktemp("fleet")
    async with (
        fleet_site(
            directory,
            members=(),
            sims=("east",),
            list_seconds=WAITED_SECONDS,
            request_seconds=WAITED_SECONDS,
        ) as running,
        AsyncExitStack() as stack,
    ):
        await furnish(running)
        await stack.enter_async_context(member_at(running, "dead", "https://127.0.0.1:1"))
        for name, kind in BAD.items():
            member = await stack.enter_async_context(hostile_member(KINDS[kind]))
            await stack.enter_async_context(member_at(running, name, member.url))
        for name in ("dead", *BAD):
            # Nobody has noticed yet: this is the minute in which a person looks.
            await set_status(running, manifests.cluster_path(name), cluster_status("True"))
        await place(running, "shared", {each: ready(2) for each in ("east", "dead", *BAD)})
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def root(site: Site, browser: Browser) -> AsyncGenerator[Visitor]:
    async with visitor(browser, site) as found:
        await found.log_in(ROOT)
        yield found
        assert found.problems == []


async def test_what_is_broken_does_not_wait_for_anybody(root: Visitor):
    await root.until_reads("already exists in the cluster east", ".problems")
    await root.until_reads("6 ·", "section[aria-labelledby=clusters]")

    assert "Still waiting" not in await root.text("main")


async def test_a_wait_for_members_has_a_sentence_and_an_end_and_names_who_is_missing(root: Visitor):
    await root.open("#/search?kind=pods&namespace=shop")

    await root.until_reads("Still waiting for objects, for")
    await root.picture("waiting-light")
    await root.until_reads("2 objects")
    shown = await root.text(".notices")

    assert "Not all clusters have answered" in shown
    for name in ("dead", "slow", "liar"):
        assert name in shown
    await root.picture("partial-light")


async def test_an_object_is_compared_with_who_answers_and_the_others_are_named(root: Visitor):
    await root.open(SHARED)
    panel = "section[aria-labelledby=differs]"

    await root.until_reads("As of", panel)
    said = await root.text(f"{panel} .notice")

    for name in ("dead", "slow", "liar"):
        assert f"{name}: " in said
    assert "liar: its answer is no object" in said
    assert "east" in await root.text("section[aria-labelledby=places]")
    await root.picture("bad-company-light")


async def test_a_cluster_that_never_ends_its_answer_is_not_waited_for(root: Visitor):
    """The others are shown; that one is late, and is counted until then."""
    await root.page.add_init_script(
        """const real = window.fetch;
        window.fetch = async (path, options = {}) => {
            if (path !== "/ui/several") return real(path, options);
            const said = [{at: 0, status: 404}, {at: 0, text: "{}"}, {at: 0, end: true}];
            const body = new ReadableStream({
                start(stream) {
                    const lines = said.map((each) => JSON.stringify(each)).join("\\n");
                    stream.enqueue(new TextEncoder().encode(`${lines}\\n`));
                    options.signal.addEventListener("abort", () => stream.error(new Error("x")));
                },
            });
            return new Response(body, {status: 200});
        };"""
    )
    await root.open(SHARED)
    await root.page.reload()
    panel = "section[aria-labelledby=differs]"

    await root.until_reads("1 of 4 clusters have answered", panel)
    await root.until_reads("slow: no answer within 10 s", panel)

    assert "Not there: dead" in await root.text(panel)


async def test_a_server_that_is_gone_is_said_and_what_was_known_stays_until_it_is_back(
    root: Visitor,
):
    await root.until_reads("already exists in the cluster east", ".problems")

    await root.context.set_offline(True)
    await root.until_reads("No news of clusters")
    shown = await root.text("main")
    await root.picture("gone-light")
    await root.context.set_offline(False)

    assert shown.count("No news of") == 1, "one server is gone, and that is one sentence"
    assert "already exists in the cluster east" in shown
    assert "What is shown is as it was then; the page keeps trying" in shown
    await root.page.wait_for_function(
        "() => !document.querySelector('main').innerText.includes('No news of clusters')"
    )


async def test_a_login_that_ends_while_somebody_looks_is_said_where_they_look(root: Visitor):
    await root.open(SHARED)
    await root.until_reads("Deployment shop/shared")

    await root.page.evaluate("fetch('/ui/session', {method: 'DELETE'})")

    await root.until_reads("Your login has ended", "body")
    assert root.page.url.endswith(SHARED)
    await root.picture("expired-light")
