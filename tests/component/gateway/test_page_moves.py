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
    LONG_AGO,
    add_cluster,
    cluster_status,
    furnish,
    place,
    ready,
    set_status,
)

from clusterspace.apis.migrations import ITEMS, MIGRATIONS, NAME_LABEL
from clusterspace.apis.staged_updates import CLUSTER_RUNS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

HOSTILE = "<img src=x onerror=window.hurt=1>"
RUN = ResourcePath(CLUSTER_RUNS.runs, name="rollout")
MIGRATION = ResourcePath(MIGRATIONS, name="west-1")


def condition(kind: str, status: str = "True") -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": "ByTest",
        "message": "",
        "lastTransitionTime": LONG_AGO,
    }


def migration_status(taken: int) -> Object:
    counts = {"taken": taken, "refused": 1, "pending": 4 - taken, "skipped": 0, "undone": 0}
    return {"phase": "Applying", "message": HOSTILE, **counts, "taking": 0, "updatedAt": LONG_AGO}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("f"), members=(), sims=("east",)) as running:
        await furnish(running)
        hub = running.hub.client
        taint = {"key": "clusterspace.io/drain", "effect": "NoExecute", "timeAdded": LONG_AGO}
        await add_cluster(running, "old", cluster_status("True"), taints=[taint])
        task = {"fromCluster": "old", "producer": "test", "reason": "TaintUntolerated"}
        leaving = {"gracefulEvictionTasks": [{**task, "creationTimestamp": LONG_AGO}]}
        await place(running, "leaver", {"east": ready(1)}, **leaving)
        await place(running, "stayer", {"old": ready(2)})
        head = {"apiVersion": "migration.clusterspace.io/v1alpha1"}
        cluster = {"name": "west", "uid": "u"}
        spec = {"cluster": cluster, "hubUID": "h", "planDigest": "d", "items": 5, "chunks": 1}
        labels = {NAME_LABEL: "west-1"}
        metadata = {"name": "west-1", "labels": labels}
        await hub.create(
            MIGRATION.collection, {**head, "kind": "Migration", "metadata": metadata, "spec": spec}
        )
        await set_status(running, MIGRATION, migration_status(2))
        items = ResourcePath(ITEMS, name="west-1-00000")
        entries = [
            {"kind": "Deployment", "namespace": "shop", "name": name} for name in ("web", "db")
        ]
        stored = {"metadata": {"name": "west-1-00000", "labels": labels}}
        states = [{"state": "Taken"}, {"state": "Refused", "reason": HOSTILE}]
        said = {"spec": {"items": entries}, "status": {"items": states}}
        await hub.create(items.collection, {**head, "kind": "MigrationItems", **stored, **said})
        strategy = {"placementName": "web", "stagedRolloutStrategyName": "slow", "state": "Run"}
        made = {"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "spec": strategy}
        await hub.create(
            RUN.collection,
            {**made, "kind": "ClusterStagedUpdateRun", "metadata": {"name": "rollout"}},
        )
        await set_status(running, RUN, run_status())
        yield running


def run_status() -> Object:
    approval = {"type": "Approval", "approvalRequestName": "rollout-before-canary"}
    waiting = {**approval, "conditions": [condition("ApprovalRequestCreated")]}
    clusters = [
        {"clusterName": "east", "conditions": [condition("Succeeded")]},
        {"clusterName": "south"},
    ]
    stage = {
        "stageName": "canary",
        "clusters": clusters,
        "conditions": [condition("Progressing")],
        "beforeStageTaskStatus": [waiting],
    }
    return {"stagesStatus": [stage], "conditions": [condition("Progressing")]}


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

    await set_status(site, MIGRATION, migration_status(4))

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
        await root.picture(f"moves-{scheme}")

        assert "Found 0" in (await Axe().run(root.page)).generate_report()
