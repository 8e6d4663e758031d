"""What the page costs: bytes, time to what is read first, time to a change, memory over an hour.

Times are those of a machine that does other things, so none of them is asserted: they are written
to `artefacts/page-figures.json`, from where docs/guides/page.md has them.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site
from tests.component.gateway.page_chromium import (
    ARTEFACTS,
    Visitor,
    needs_chromium,
    running_chromium,
    visitor,
)
from tests.component.gateway.page_fleet import (
    BINDINGS,
    PODS,
    cluster_status,
    furnish,
)

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium, pytest.mark.slow]

TRIES = 5
MOST_BYTES = 60 * 1024
MANY = 1000
ROW = "virtual-table tbody th"
SHOWN = """
(selector) => new Promise((done) => {
  const look = () => (document.querySelector(selector) ? done(performance.now()) : requestAnimationFrame(look));
  look();
})
"""  # noqa: E501


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    place = tmp_path_factory.mktemp("fleet")
    async with fleet_site(place, members=(), sims=("east", "west")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


def note(name: str, figures: Any) -> None:
    """Leave figures among the artefacts, beside those of other tests."""
    ARTEFACTS.mkdir(exist_ok=True)
    place = ARTEFACTS / "page-figures.json"
    known = json.loads(place.read_text()) if place.exists() else {}
    place.write_text(json.dumps({**known, name: figures}, indent=2) + "\n")


async def look_once(browser: Browser, site: Site) -> dict[str, float]:
    """Come with an empty browser, logged in already, and measure the first screen."""
    async with visitor(browser, site) as who:
        await who.log_in(ROOT)
        await who.page.wait_for_selector(ROW)
        page = await who.context.new_page()  # the cookie stays, what was loaded does not count
        await who.page.close()
        session = await who.context.new_cdp_session(page)
        await session.send("Network.enable")
        await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        await page.goto(f"{site.url}/ui/")
        rows = await page.evaluate(SHOWN, ROW)
        return await page.evaluate(
            """(rows) => ({
                paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
                rows,
                fileBytes: performance.getEntries()
                    .filter((each) => each.name.includes("/ui/"))
                    .reduce((sum, each) => sum + (each.encodedBodySize || 0), 0),
                allBytes: performance.getEntries()
                    .reduce((sum, each) => sum + (each.encodedBodySize || 0), 0),
            })""",
            rows,
        )


async def measure(browser: Browser, site: Site, name: str) -> dict[str, int]:
    found = [await look_once(browser, site) for _ in range(TRIES)]
    best = {key: round(min(each[key] for each in found)) for key in found[0]}
    note(name, best)
    return best


async def test_the_first_screen_of_two_clusters(site: Site, browser: Browser):
    best = await measure(browser, site, "two clusters")

    assert best["fileBytes"] <= MOST_BYTES


async def test_one_changed_pod_is_shown(site: Site, browser: Browser):
    await furnish(site)
    east = site.members["east"].client
    (pod, *_) = await east.list_objects(ResourcePath(PODS, "shop"))
    name = pod["metadata"]["name"]
    async with visitor(browser, site) as root:
        await root.log_in(ROOT, "#/object/apps:v1/Deployment/shop/web")
        await root.until_reads(name, "section[aria-labelledby=pods]")
        waited = [await time_to_show(root, site, name, f"Changed{at}") for at in range(TRIES)]

    note("one changed pod", {"milliseconds": sorted(round(each) for each in waited)})


async def time_to_show(root: Visitor, site: Site, name: str, reason: str) -> float:
    place = ResourcePath(PODS, "shop", name, "status")
    east = site.members["east"].client
    loop = asyncio.get_running_loop()
    shown = asyncio.ensure_future(root.until_reads(reason, "section[aria-labelledby=pods]"))
    current = await east.get(ResourcePath(PODS, "shop", name))
    waiting = {"waiting": {"reason": reason}}
    statuses = [{**each, "state": waiting} for each in current["status"]["containerStatuses"]]
    begun = loop.time()
    status = {**current["status"], "containerStatuses": statuses}
    await east.update(place, {**current, "status": status})
    await shown
    return (loop.time() - begun) * 1000


PLAYED = """
// Every watch of the page is ours: what it says, and when.
const real = window.fetch;
window.streams = new Map();
window.fetch = async (path, options = {}) => {
  if (!path.includes("watch=1")) return real(path, options);
  const body = new ReadableStream({
    start(stream) {
      window.streams.set(path.split("?")[0].split("/").at(-1), stream);
      options.signal.addEventListener("abort", () => stream.error(new Error("x")));
    },
  });
  return new Response(body, {status: 200});
};
window.play = (resource, object) => {
  const line = JSON.stringify({type: "MODIFIED", object});
  window.streams.get(resource)?.enqueue(new TextEncoder().encode(`${line}\\n`));
};
"""


async def heap_of(page: Page) -> dict[str, float]:
    session = await page.context.new_cdp_session(page)
    for _ in range(3):
        await session.send("HeapProfiler.collectGarbage")
    used = await session.send("Runtime.getHeapUsage")
    counters = await session.send("Memory.getDOMCounters")
    await session.detach()
    return {
        "heap": used["usedSize"],
        "nodes": counters["nodes"],
        "listeners": counters["jsEventListeners"],
    }


async def test_an_hour_of_events_leaves_the_memory_of_the_page_as_it_was(
    site: Site, browser: Browser
):
    """Ten events for each of 3,600 seconds, whose clock is the page's own."""
    async with visitor(browser, site) as root:
        await root.page.clock.install()
        await root.page.add_init_script(PLAYED)
        await root.log_in(ROOT)
        await root.page.clock.run_for(2000)
        await root.page.wait_for_selector(ROW)
        kinds = (ResourcePath(CLUSTERS), ResourcePath(BINDINGS, "shop"))
        objects = [await site.hub.client.list_objects(each) for each in kinds]
        await root.page.evaluate("(all) => { window.objects = all }", objects)
        seen: list[dict[str, float]] = []
        for minute in range(60):
            for _ in range(6):
                await root.page.evaluate(
                    """(minute) => {
                        const [clusters, bindings] = window.objects;
                        for (let at = 0; at < 100; at += 1) {
                            const cluster = structuredClone(clusters[at % clusters.length]);
                            const nodeSummary = {readyNum: at % 4, totalNum: 3 + minute};
                            cluster.status = {...cluster.status, nodeSummary};
                            window.play("clusters", cluster);
                            const binding = structuredClone(bindings[at % bindings.length]);
                            const said = {applied: at % 2 === 0, appliedMessage: `${minute} ${at}`};
                            const aggregatedStatus = [{clusterName: "east", ...said}];
                            binding.status = {...binding.status, aggregatedStatus};
                            window.play("resourcebindings", binding);
                        }
                    }""",
                    minute,
                )
                await root.page.clock.run_for(10_000)
            if minute % 10 == 9:
                seen.append(await heap_of(root.page))
        note("an hour of events", {"after 10, 20, ... 60 minutes": seen})

        assert "59 99" in await root.text(".problems"), "the last of all these events is shown"
        first, last = seen[0], seen[-1]
        assert last["heap"] <= 1.2 * first["heap"] + 500_000
        assert last["nodes"] <= 1.2 * first["nodes"]
        assert last["listeners"] <= 1.2 * first["listeners"]
        assert root.problems == []


async def write_all(site: Site, objects: list[tuple[ResourcePath, Object]]) -> None:
    """Write objects with their status, many at once."""
    gate = asyncio.Semaphore(16)

    async def write(place: ResourcePath, made: Object) -> None:
        async with gate:
            stored = await site.hub.client.create(place, made)
            name = made["metadata"]["name"]
            status = ResourcePath(place.resource, place.namespace, name, "status")
            await site.hub.client.update(status, {**stored, "status": made["status"]})

    async with asyncio.TaskGroup() as group:
        for place, made in objects:
            group.create_task(write(place, made))


async def test_the_first_screen_of_a_thousand_clusters(site: Site, browser: Browser):
    clusters = [
        {
            "apiVersion": CLUSTERS.api_version,
            "kind": "Cluster",
            "metadata": {"name": f"member-{at:04}"},
            "spec": {"syncMode": "Pull"},
            "status": cluster_status("True" if at % 50 else "Unknown", used=at % 24),
        }
        for at in range(MANY)
    ]
    bindings = [binding_of(f"app-{at:04}", at) for at in range(MANY)]
    await write_all(site, [(ResourcePath(CLUSTERS), each) for each in clusters])
    await write_all(site, [(ResourcePath(BINDINGS, "shop"), each) for each in bindings])

    best = await measure(browser, site, "a thousand clusters")

    assert best["fileBytes"] <= MOST_BYTES


def binding_of(name: str, at: int) -> Object:
    """Return a binding of an object that is in three clusters."""
    resource = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": name}
    where = [f"member-{(at + step) % MANY:04}" for step in range(3)]
    reported = [{"clusterName": each, "applied": True, "health": "Healthy"} for each in where]
    return {
        "apiVersion": BINDINGS.api_version,
        "kind": "ResourceBinding",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"resource": resource, "clusters": [{"name": each} for each in where]},
        "status": {"aggregatedStatus": reported},
    }
