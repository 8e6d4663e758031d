"""The page and `clusterspace top` judge a fleet each in a language of its own: alike."""

from collections.abc import AsyncGenerator
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from tests.component.gateway.fleet_site import Site, fleet_site
from tests.component.gateway.page_chromium import needs_chromium, running_chromium, visitor

from clusterspace.fleet.page.problems import cluster_rows, find_problems, read_repair, summarize
from clusterspace.kube.objects import Object

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

FLEETS = 400
NAMES = ("east", "west", "north", "south")
TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z", "2025-12-31T23:59:59Z")
TEXTS = ("", "it refuses", "line\nline", "<b>x</b>", "\u00e9")
ODD: tuple[Any, ...] = (0, 1, 2, 7, None, "2", [], {}, True)
"""What a member may say where a number belongs."""

JUDGE = """
async (fleets) => {
  const model = await import("./model.js");
  return fleets.map(({ clusters, bindings, events }) => {
    const placed = bindings.map(model.summarize);
    const counts = model.countPlaces(placed);
    const repairs = events.map(model.readRepair).filter(Boolean);
    const found = model.findProblems(clusters, placed, repairs);
    return {
      problems: found.map((each) => [each.is, each.word, each.what, each.cluster, each.why, each.since]),
      clusters: clusters.map((each) => {
        const { is, since, why } = model.clusterState(each);
        const { placed, failing } = counts.get(each.metadata.name) || { placed: 0, failing: 0 };
        const percent = (use) => (use ? Math.round(use.share * 100) : null);
        const uses = ["cpu", "memory", "pods"].map((name) => percent(model.room(each, name)));
        return [each.metadata.name, is, since || "", why, uses, placed, failing, model.taints(each).join(", ")];
      }),
    };
  });
}
"""  # noqa: E501


def any_condition(random: Random, kind: str) -> Object:
    return {
        "type": kind,
        "status": random.choice(("True", "False", "Unknown")),
        "reason": random.choice(("", "ByTest")),
        "message": random.choice(TEXTS),
        "lastTransitionTime": random.choice(TIMES),
    }


def any_cluster(random: Random, name: str) -> Object:
    metadata: Object = {"name": name, "uid": name, "creationTimestamp": random.choice(TIMES)}
    if random.random() < 0.1:
        metadata["deletionTimestamp"] = random.choice(TIMES)
    kinds = [each for each in ("Ready", "DeletionsPaused") if random.random() < 0.6]
    amounts = ("8", "24", "1500m", "96Gi", "330", "0", "much", "1e3", "0.5")
    summary = {
        each: {name: random.choice(amounts) for name in ("cpu", "memory", "pods")}
        for each in ("allocatable", "allocated")
    }
    status: Object = {"conditions": [any_condition(random, each) for each in kinds]}
    if random.random() < 0.7:
        status["resourceSummary"] = summary
    taints = [{"key": "a", "value": random.choice(("", "b")), "effect": "NoSchedule"}]
    return {
        "metadata": metadata,
        "spec": {"taints": random.choice((None, taints))},
        "status": status,
    }


def any_binding(random: Random, at: int) -> Object:
    def some() -> list[str]:
        return random.sample(NAMES, random.randrange(4))

    namespace = random.choice(("", "shop"))
    reported = [
        {
            "clusterName": each,
            "applied": random.choice((True, True, False)),
            "appliedMessage": random.choice(TEXTS),
            "health": random.choice(("Healthy", "Unhealthy", "Unknown", "")),
            "status": random.choice(
                (None, {"readyReplicas": random.choice(ODD), "replicas": random.choice(ODD)})
            ),
        }
        for each in some()
    ]
    tasks = [
        {"fromCluster": each, "reason": "ByTest", "creationTimestamp": random.choice(TIMES)}
        for each in some()[:1]
    ]
    kinds = [each for each in ("Scheduled", "FullyApplied") if random.random() < 0.6]
    return {
        "metadata": {"name": f"b-{at}", "namespace": namespace, "uid": f"uid-{at}"},
        "spec": {
            "resource": {"kind": "Deployment", "namespace": namespace, "name": f"web-{at % 3}"},
            "clusters": [{"name": each, "replicas": random.randrange(4)} for each in some()],
            "gracefulEvictionTasks": tasks,
        },
        "status": {
            "aggregatedStatus": reported,
            "conditions": [any_condition(random, each) for each in kinds],
        },
    }


def any_event(random: Random) -> Object:
    said = random.choice(
        ("Put back in the cluster east: spec.x", "Put back in the cluster west: y")
    )
    return {
        "involvedObject": {
            "kind": random.choice(("Deployment", "Deployment", "Work")),
            "namespace": "shop",
            "name": random.choice(("web", "cart")),
        },
        "reason": random.choice(("DriftRepaired", "DriftRepaired", "SyncFailed")),
        "message": random.choice((said, said, "something else")),
        "count": random.choice((1, 2, 5, None)),
        "firstTimestamp": random.choice(TIMES),
        "lastTimestamp": random.choice(TIMES),
    }


def any_fleet(random: Random) -> Object:
    return {
        "clusters": [any_cluster(random, each) for each in NAMES[: random.randrange(5)]],
        "bindings": [any_binding(random, at) for at in range(random.randrange(5))],
        "events": [any_event(random) for _ in range(random.randrange(5))],
    }


def judged(fleet: Object) -> Object:
    placements = [summarize(each) for each in fleet["bindings"]]
    repairs = [each for each in map(read_repair, fleet["events"]) if each is not None]
    found = find_problems(fleet["clusters"], placements, repairs)
    rows = {each.name: each for each in cluster_rows(fleet["clusters"], placements)}
    return {
        "problems": [
            [each.kind, each.word, each.what, each.cluster, each.why, each.since] for each in found
        ],
        "clusters": [
            [
                row.name, row.state.name, row.state.since, row.state.why, [*row.shares],
                row.placed, row.failing, row.taints,
            ]
            for row in (rows[each["metadata"]["name"]] for each in fleet["clusters"])
        ],
    }  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=()) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


async def test_the_page_and_the_command_say_the_same_of_every_fleet(site: Site, browser: Browser):
    random = Random(26)
    fleets = [any_fleet(random) for _ in range(FLEETS)]

    async with visitor(browser, site) as nobody:
        await nobody.open()
        seen = await nobody.page.evaluate(JUDGE, fleets)

    kinds = {each[0] for one in seen for each in one["problems"]}
    assert kinds == {"cluster", "apply", "schedule", "health", "drift", "eviction", "paused"}
    for fleet, of_page in zip(fleets, seen, strict=True):
        assert judged(fleet) == of_page
