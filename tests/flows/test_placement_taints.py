"""A taint is added, removed or tolerated: what every type of placement does, placed or not."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from tests.component.placement_site import (
    PlacementSite,
    pick_fixed,
    pick_n,
    placement,
    placement_site,
    role_selector,
    running,
)

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TAINT: Object = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
TOLERATION: Object = {"key": "gpu", "operator": "Equal", "value": "yes"}
TYPES: Mapping[str, Object] = {
    "PickAll": {"placementType": "PickAll"},
    "PickN": pick_n(1),
    "PickFixed": pick_fixed("west"),
}
EARLY, LATE = "early", "late"
"""Whether a placement was there before the taint, and so placed already, or came after it."""
ADDED, REMOVED, TOLERATED = "added", "removed", "tolerated"

Seen = Mapping[str, frozenset[str]]
"""The placements that had the cluster, after the taint was added and after it was removed."""


def name_of_cell(when: str, kind: str, *, tolerates: bool) -> str:
    return f"{when}-{kind}{'-tolerating' if tolerates else ''}".lower()


async def place_all(site: PlacementSite, when: str) -> list[str]:
    """Make a placement of every type, with and without a toleration where types may have one."""
    made: list[str] = []
    for kind, policy in TYPES.items():
        for tolerates in (False, True):
            if tolerates and kind == "PickFixed":
                continue
            name = name_of_cell(when, kind, tolerates=tolerates)
            full = {**policy, "tolerations": [TOLERATION]} if tolerates else policy
            await site.place(placement(name, role_selector(name=name), policy=full))
            made.append(name)
    return made


async def until_decided(site: PlacementSite, names: list[str]) -> None:
    async def are_decided() -> bool:
        return all([(await site.condition("Scheduled", each))[0] for each in names])

    await until(are_decided)


async def on_west(site: PlacementSite, names: list[str]) -> frozenset[str]:
    return frozenset([each for each in names if await site.clusters(each) == ["west"]])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Seen]:
    """Let a cluster get a taint and lose it again, with placements made before and after."""
    async with placement_site(tmp_path_factory.mktemp("site")) as site, running(site):
        await site.declare("west")
        early = await place_all(site, EARLY)
        await until_decided(site, early)
        assert await on_west(site, early) == frozenset(early)
        await site.taint("west", TAINT)
        late = await place_all(site, LATE)
        await until_decided(site, late)
        # A new taint wakes nobody: only when everything is looked at again could it drive out.
        west = ResourcePath(CLUSTERS, "", "west")
        await site.change(west, lambda held: with_metadata(held, labels={"looked": "again"}))
        await settled()
        while_tainted = await on_west(site, [*early, *late])
        await site.taint("west")

        async def are_all_there() -> bool:
            return await on_west(site, [*early, *late]) == frozenset([*early, *late])

        await until(are_all_there)
        yield {ADDED: while_tainted, REMOVED: await on_west(site, [*early, *late])}


@pytest.mark.parametrize(
    ("change", "kind", "when", "has_it"),
    [
        (ADDED, "PickAll", EARLY, True),
        (ADDED, "PickAll", LATE, False),
        (ADDED, "PickN", EARLY, True),
        (ADDED, "PickN", LATE, False),
        (ADDED, "PickFixed", EARLY, True),
        (ADDED, "PickFixed", LATE, True),
        (REMOVED, "PickAll", EARLY, True),
        (REMOVED, "PickAll", LATE, True),
        (REMOVED, "PickN", EARLY, True),
        (REMOVED, "PickN", LATE, True),
        (REMOVED, "PickFixed", EARLY, True),
        (REMOVED, "PickFixed", LATE, True),
        (TOLERATED, "PickAll", EARLY, True),
        (TOLERATED, "PickAll", LATE, True),
        (TOLERATED, "PickN", EARLY, True),
        (TOLERATED, "PickN", LATE, True),
    ],
)
async def test_a_taint_keeps_away_what_comes_later_and_does_not_tolerate_it(
    seen: Seen, change: str, kind: str, when: str, has_it: bool
) -> None:
    tolerates = change == TOLERATED
    had_it = seen[ADDED if tolerates else change]

    assert (name_of_cell(when, kind, tolerates=tolerates) in had_it) is has_it


async def test_a_placement_that_names_its_clusters_has_nothing_to_tolerate(tmp_path: Path) -> None:
    tolerating = {**TYPES["PickFixed"], "tolerations": [TOLERATION]}
    async with placement_site(tmp_path) as site:
        with pytest.raises(Invalid, match="tolerations"):
            await site.place(placement(policy=tolerating))
        await site.place(placement(policy=TYPES["PickFixed"]))
        with pytest.raises(Invalid, match="tolerations"):
            await site.edit_placement("crp", tolerating, "policy")
