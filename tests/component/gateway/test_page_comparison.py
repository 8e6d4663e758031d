"""One object in several clusters: what differs, who changed it, and all its logs at once."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site
from tests.component.gateway.page_chromium import (
    Visitor,
    needs_chromium,
    running_chromium,
    visitor,
)
from tests.component.gateway.page_fleet import (
    DEPLOYMENTS,
    PODS,
    cluster_status,
    furnish,
    place,
    ready,
    set_status,
)

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.roots.diff import Aspect, roll_up
from clusterspace.testing.builders import deployment, namespace
from clusterspace.testing.steps import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

API = "#/object/apps:v1/Deployment/shop/api"
DIFFERS = "section[aria-labelledby=differs]"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=(), sims=("east", "west")) as running:
        await furnish(running)
        west = running.members["west"].client
        await west.create(ResourcePath(manifests.NAMESPACES), namespace("shop"))
        await set_status(running, manifests.cluster_path("west"), cluster_status("True"))
        for name, tag in (("east", "v5"), ("west", "v4")):
            made = deployment("api", replicas=2, namespace="shop")
            made["spec"]["template"]["spec"]["containers"][0]["image"] = f"example/api:{tag}"
            client = running.members[name].client
            await client.create(ResourcePath(DEPLOYMENTS, "shop"), made)
        await place(running, "api", {"east": ready(2), "west": ready(2), "south": ready(2)})

        async def runs() -> bool:
            sides = [running.members[each].client for each in ("east", "west")]
            pods = [
                p for side in sides for p in await side.list_objects(ResourcePath(PODS, "shop"))
            ]
            return len([each for each in pods if each["status"].get("phase") == "Running"]) == 6

        await until(runs)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def root(site: Site, browser: Browser) -> AsyncGenerator[Visitor]:
    """The administrator, who looks at a Deployment that runs in two clusters."""
    async with visitor(browser, site) as found:
        await found.log_in(ROOT, API)
        yield found
        assert found.problems == []


async def test_clusters_that_agree_are_counted_as_the_command_counts_them(
    root: Visitor, site: Site
):
    fleet = site.connection(ROOT).settings
    told = await roll_up("deployment", "api", "shop", Aspect.VERSION, fleet)

    await root.until_reads(told.summary, DIFFERS)

    assert told.summary == "1 cluster v4, 1 v5 (east)"
    assert "clusterspace diff deployment/api -n shop --by version" in await root.text(DIFFERS)


async def test_what_differs_is_said_field_by_field_and_who_did_not_answer(root: Visitor):
    await root.until_reads(".spec.template.spec.containers[", DIFFERS)
    shown = await root.text(DIFFERS)

    assert ".image" in shown
    assert "example/api:v5 east" in shown
    assert "example/api:v4 west" in shown
    assert "south: " in shown
    assert ".spec.replicas" not in shown, "it is the same everywhere"
    assert "creationTimestamp" not in shown
    await root.picture("differs-light")


async def test_who_changed_a_copy_last_is_said_for_each_cluster(root: Visitor):
    await root.until_reads("Last changed by")
    await root.until_reads("clusterspace, ", "section[aria-labelledby=places]")


async def test_logs_of_all_pods_come_together_coloured_by_cluster(root: Visitor):
    await root.page.get_by_role("button", name="Logs of all 4 pods").click()
    await root.page.wait_for_function(
        "() => new Set([...document.querySelectorAll('pre.log span span')]"
        ".map((each) => each.textContent)).size === 4"
    )
    colours = await root.page.eval_on_selector_all(
        "pre.log span span",
        "all => [...new Set(all.map((each) => each.textContent.split(' ')[0]"
        " + getComputedStyle(each).color))]",
    )

    assert sorted(each[:4] for each in colours) == ["east", "west"]
    assert len({each[4:] for each in colours}) == 2
    assert "kubectl logs -n shop -l app=api --prefix -f --tail=100 --max-log-requests=4" in (
        await root.text()
    )
    await root.page.locator("#log").scroll_into_view_if_needed()
    await root.picture("logs-light")
    assert "Found 0" in (await Axe().run(root.page)).generate_report()


async def test_a_field_of_a_secret_differs_without_being_shown(root: Visitor):
    fields = await root.page.evaluate(
        """async () => {
            const { differingFields } = await import("./differences.js");
            const secret = (text) => ({kind: "Secret", metadata: {}, data: {password: text}});
            return differingFields(new Map([["hub", secret("a")], ["east", secret("b")]]), "hub");
        }"""
    )

    assert [(each["path"], each["hidden"]) for each in fields] == [(".data.password", True)]


async def test_what_all_clusters_fill_in_alike_is_no_difference(root: Visitor):
    fields = await root.page.evaluate(
        """async () => {
            const { differingFields } = await import("./differences.js");
            const labels = {"karmada.io/managed": "true"};
            const map = (spec) => ({kind: "X", metadata: {labels}, spec});
            const places = [["hub", {kind: "X", spec: {list: [{name: "b", v: 1}]}}],
                ["east", map({filled: 1, own: "e", list: [{name: "a", v: 0}, {name: "b", v: 1}]})],
                ["west", map({filled: 1, own: "w", list: [{name: "a", v: 0}, {name: "b", v: 1}]})]];
            return differingFields(new Map(places), "hub").map((each) => each.path);
        }"""
    )

    assert fields == [".spec.own"]
