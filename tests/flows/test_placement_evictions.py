"""Evictions take a placement off a cluster, unless its disruption budget forbids it."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    PlacementSite,
    pick_fixed,
    pick_n,
    placement,
    placement_site,
    running,
)

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.propagation.placements.evictions import BUDGETS, EVICTIONS, why_refused
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.testing.steps import until_equal

V1BETA1 = "placement.kubernetes-fleet.io/v1beta1"
TAINT: Object = {"key": "drain", "effect": "NoSchedule"}


def eviction(name: str, cluster: str, of: str = "crp") -> Object:
    return {
        "apiVersion": V1BETA1,
        "kind": "ClusterResourcePlacementEviction",
        "metadata": {"name": name},
        "spec": {"placementName": of, "clusterName": cluster},
    }


def budget(**spec: Any) -> Object:
    return {
        "apiVersion": V1BETA1,
        "kind": "ClusterResourcePlacementDisruptionBudget",
        "metadata": {"name": "crp"},
        "spec": spec,
    }


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east", "west") as made, running(made):
        yield made


async def outcome(site: PlacementSite, name: str, *wanted: str) -> str:
    async def look() -> Any:
        held = await site.hub.get(ResourcePath(EVICTIONS, "", name))
        conditions: list[Object] = find_at(held, "status", "conditions") or []
        return [f"{each['type']}={each['status']}" for each in conditions]

    await until_equal(look, list(wanted))
    held = await site.hub.get(ResourcePath(EVICTIONS, "", name))
    conditions = find_at(held, "status", "conditions")
    found = find_condition(conditions, "Executed") or find_condition(conditions, "Valid") or {}
    return str(found["message"])


async def test_a_tainted_cluster_lets_go_and_the_budget_keeps_the_last(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.place(placement())
    await site.until_settled()
    await site.put(BUDGETS, budget(minAvailable=1))
    for name in ("east", "west"):
        await site.taint(name, TAINT)

    await site.put(EVICTIONS, eviction("first", "east"))
    await outcome(site, "first", "Valid=True", "Executed=True")
    await site.until_data("east", "settings", None)
    await site.until_clusters("west")
    await site.put(EVICTIONS, eviction("second", "west"))
    message = await outcome(site, "second", "Valid=True", "Executed=False")
    assert "1 of 1 are available" in message
    assert await site.data("west", "settings") == {"v": "1"}
    await site.put(EVICTIONS, eviction("third", "east"))
    assert "is not on east" in await outcome(site, "third", "Valid=False")
    await site.put(EVICTIONS, eviction("fourth", "east", of="nobody"))
    assert "there is no such" in await outcome(site, "fourth", "Valid=False")


def bindings(available: int, others: int = 0) -> dict[str, Object]:
    def binding(status: str) -> Object:
        conditions = [{"type": "Available", "status": status, "observedGeneration": 1}]
        spec = {"state": "Bound"}
        return {"metadata": {"generation": 1}, "spec": spec, "status": {"conditions": conditions}}

    states = ["True"] * available + ["Unknown"] * others
    return {str(number): binding(state) for number, state in enumerate(states)}


@pytest.mark.parametrize(
    ("policy", "spec", "available", "others", "is_allowed"),
    [
        (pick_n(4), {"maxUnavailable": 1}, 4, 0, True),
        (pick_n(4), {"maxUnavailable": 1}, 3, 1, False),
        (pick_n(4), {"maxUnavailable": 1}, 3, 0, False),
        (pick_n(4), {"maxUnavailable": "26%"}, 3, 0, True),
        (pick_n(4), {"minAvailable": "50%"}, 3, 0, True),
        (pick_n(4), {"minAvailable": "51%"}, 3, 0, False),
        ({}, {"minAvailable": 2}, 3, 0, True),
        ({}, {"minAvailable": 3}, 3, 0, False),
        ({}, {"minAvailable": "1%"}, 3, 0, False),
        ({}, {"maxUnavailable": 3}, 3, 0, False),
    ],
)
def test_a_budget_counts_what_is_missing(
    policy: Object, spec: Object, available: int, others: int, is_allowed: bool
) -> None:
    known = bindings(available, others)
    made = {"spec": {"policy": policy}}

    assert (why_refused(made, known, known["0"], {"spec": spec}) == "") == is_allowed


async def test_clusters_that_are_named_are_not_evicted(site: PlacementSite) -> None:
    await site.app("settings")
    await site.place(placement(policy=pick_fixed("east")))
    await site.until_settled()
    await site.put(EVICTIONS, eviction("first", "east"))

    assert "PickFixed" in await outcome(site, "first", "Valid=False")
