"""Two hundred applications on ten clusters, of which one dies: decided as the scheduler does it."""

from collections import Counter
from random import Random

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import (
    AGGREGATED,
    DYNAMIC,
    binding,
    cluster,
)

from clusterspace.fleet.propagation.simulation import (
    LiveFleet,
    Outcome,
    failed,
    placed_first,
)
from clusterspace.kube.objects import Object, name_of, with_metadata, with_value
from clusterspace.testing.clocks import ManualClock

REGIONS = ("eu", "us", "asia")
CLUSTERS = {f"c{number}": REGIONS[number % 3] for number in range(10)}
ROOM = 200
SPREAD: Object = {"spreadByField": "region", "minGroups": 2, "maxGroups": 2}
ONE: Object = {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}
PLACEMENTS: tuple[Object, ...] = (
    {"spreadConstraints": [ONE], "replicaScheduling": AGGREGATED},
    {"spreadConstraints": [SPREAD], "replicaScheduling": DYNAMIC},
    {"replicaScheduling": DYNAMIC},
    {"replicaScheduling": AGGREGATED},
)


def member(name: str, used: int = 0) -> Object:
    made = cluster(name, pods=ROOM, region=CLUSTERS[name])
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    made["status"]["resourceSummary"]["allocated"] = {"pods": str(used)}
    return made


def application(
    number: int, placement: Object, replicas: int, placed: dict[str, int] | None = None
) -> Object:
    made = with_metadata(binding(placement, replicas=replicas, placed=placed), name=f"a{number:03}")
    resource = {**made["spec"]["resource"], "name": f"a{number:03}", "uid": str(number)}
    return with_value(made, resource, "spec", "resource")


@pytest.mark.parametrize("seed", range(5))
def test_when_one_of_ten_clusters_dies_only_what_it_held_moves_and_fits(seed: int) -> None:
    random, clock = Random(seed), ManualClock()
    asked = {number: (random.choice(PLACEMENTS), random.randint(2, 8)) for number in range(200)}
    clusters = tuple(member(name) for name in CLUSTERS)
    first = placed_first([application(n, *each) for n, each in asked.items()], clusters, clock)
    placed = {each.name: dict(each.after) for each in first}
    held = Counter[str]()
    for each in placed.values():
        held.update(each)
    assert {each.outcome for each in first} == {Outcome.PLACED}
    assert max(held.values()) <= ROOM
    dead = random.choice(sorted(CLUSTERS))
    fleet = LiveFleet(
        clusters=tuple(member(name, held[name]) for name in CLUSTERS),
        bindings=tuple(
            application(n, *each, placed=placed[f"a{n:03}"]) for n, each in asked.items()
        ),
    )

    previews = failed(fleet, [dead], clock).previews

    assert {each.name for each in previews} == {n for n, on in placed.items() if dead in on}
    assert {each.outcome for each in previews} == {Outcome.MOVES}
    after = {**placed, **{each.name: dict(each.after) for each in previews}}
    moved = 0
    for name, on in after.items():
        assert sum(on.values()) == sum(placed[name].values())
        assert dead not in on
        more = {c: count - placed[name].get(c, 0) for c, count in on.items()}
        moved += sum(count for count in more.values() if count > 0)
        if asked[int(name[1:])][0].get("spreadConstraints") == [SPREAD]:
            assert len({CLUSTERS[c] for c in on}) == 2, name
    assert moved <= held[dead]
    full = Counter[str]()
    for on in after.values():
        full.update(on)
    assert {name: count for name, count in full.items() if count > ROOM} == {}
    assert all(name_of(each) in CLUSTERS for each in clusters)
