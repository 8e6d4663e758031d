"""PickAll, PickN and PickFixed as decisions: values in, clusters out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apis.fleet_placements import BOUND, SCHEDULED, UNSCHEDULED
from clusterspace.fleet.propagation.placements.picking import (
    Fleet,
    Member,
    PickedCluster,
    Picking,
    Score,
    pick,
    read_pick_policy,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

TAINT: Object = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
TOLERATED = {"tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes"}]}


def fleet(*members: Member | str, now: float = 1000.0) -> Fleet:
    made = [Member(each) if isinstance(each, str) else each for each in members]
    return Fleet({each.name: each for each in made}, now)


def all_of(**policy: Any) -> Any:
    return read_pick_policy({"placementType": "PickAll", **policy})


def so_many(number: int, **policy: Any) -> Any:
    return read_pick_policy({"placementType": "PickN", "numberOfClusters": number, **policy})


def fixed(*names: str) -> Any:
    return read_pick_policy({"placementType": "PickFixed", "clusterNames": list(names)})


def held(*names: str, state: str = BOUND, is_current: bool = True) -> list[PickedCluster]:
    return [PickedCluster(each, state, is_current) for each in names]


def names(picking: Picking) -> list[str]:
    return sorted(picking.picked)


def reasons(picking: Picking) -> dict[str, str]:
    return {each.cluster: each.reason for each in picking.unpicked}


def required(**labels: str) -> Object:
    terms = [{"labelSelector": {"matchLabels": labels}}]
    return {
        "affinity": {
            "clusterAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": terms}
            }
        }
    }


def preferred(weight: int, **labels: str) -> Object:
    preference = {"labelSelector": {"matchLabels": labels}}
    return {
        "affinity": {
            "clusterAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": weight, "preference": preference}
                ]
            }
        }
    }


def spread(key: str, max_skew: int = 1, when: str = "DoNotSchedule") -> Object:
    constraint = {"topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": when}
    return {"topologySpreadConstraints": [constraint]}


def zoned(name: str, zone: str) -> Member:
    return Member(name, {"zone": zone})


# Taints: added, removed or tolerated; PickAll, PickN, PickFixed; placed already or not.


@pytest.mark.parametrize(
    ("policy", "is_tainted", "is_placed", "is_picked"),
    [
        (all_of(), False, False, True),
        (all_of(), False, True, True),
        (all_of(), True, False, False),
        (all_of(), True, True, True),
        (all_of(**TOLERATED), True, False, True),
        (all_of(**TOLERATED), True, True, True),
        (so_many(1), False, False, True),
        (so_many(1), False, True, True),
        (so_many(1), True, False, False),
        (so_many(1), True, True, True),
        (so_many(1, **TOLERATED), True, False, True),
        (so_many(1, **TOLERATED), True, True, True),
        (fixed("west"), False, False, True),
        (fixed("west"), False, True, True),
        (fixed("west"), True, False, True),
        (fixed("west"), True, True, True),
    ],
)
def test_taints_keep_new_placements_away_and_never_drive_old_ones_out(
    policy: Any, is_tainted: bool, is_placed: bool, is_picked: bool
) -> None:
    west = Member("west", taints=(TAINT,) if is_tainted else ())

    picking = pick(policy, fleet(west), held("west") if is_placed else [])

    assert names(picking) == (["west"] if is_picked else [])
    if not is_picked:
        assert reasons(picking) == {"west": "it has the untolerated taint gpu=yes:NoSchedule"}


def test_a_policy_that_changes_does_not_drive_out_what_a_taint_would_keep_away() -> None:
    west = Member("west", taints=(TAINT,))

    assert names(pick(all_of(), fleet(west), held("west", is_current=False))) == ["west"]


def test_a_cluster_that_was_let_go_has_to_pass_its_taints_again() -> None:
    west = Member("west", taints=(TAINT,))

    assert names(pick(all_of(), fleet(west), held("west", state=UNSCHEDULED))) == []


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": ""}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_matches_by_key_value_and_effect(
    toleration: Object, is_tolerated: bool
) -> None:
    west = Member("west", taints=(TAINT,))

    picking = pick(all_of(tolerations=[toleration]), fleet(west), [])

    assert bool(names(picking)) is is_tolerated


def test_one_of_many_taints_that_is_not_tolerated_is_enough() -> None:
    west = Member("west", taints=(TAINT, {"key": "slow", "effect": "NoSchedule"}))

    picking = pick(all_of(**TOLERATED), fleet(west), [])

    assert reasons(picking) == {"west": "it has the untolerated taint slow:NoSchedule"}


# PickAll


def test_pick_all_picks_every_cluster_and_is_always_fulfilled() -> None:
    picking = pick(all_of(), fleet("east", "west"), [])

    assert names(picking) == ["east", "west"]
    assert picking.is_fulfilled
    assert pick(all_of(), fleet(), []).is_fulfilled


def test_no_policy_at_all_picks_every_cluster() -> None:
    assert names(pick(read_pick_policy(None), fleet("east", "west"), [])) == ["east", "west"]


def test_pick_all_takes_only_clusters_that_match_one_of_the_required_terms() -> None:
    picking = pick(all_of(**required(zone="a")), fleet(zoned("east", "a"), zoned("west", "b")), [])

    assert names(picking) == ["east"]
    assert reasons(picking) == {"west": "its labels match none of the required terms"}


def test_a_cluster_that_loses_its_label_is_kept_until_the_policy_changes() -> None:
    east = zoned("east", "b")

    assert names(pick(all_of(**required(zone="a")), fleet(east), held("east"))) == ["east"]
    changed = held("east", is_current=False)
    assert names(pick(all_of(**required(zone="a")), fleet(east), changed)) == []


# Health


def test_nothing_new_goes_to_a_cluster_that_has_been_unhealthy_for_long() -> None:
    sick = Member("west", unready_since=100.0)

    assert names(pick(all_of(), fleet(sick, now=399.0), [])) == ["west"]
    late = pick(all_of(), fleet(sick, now=460.0), [])
    assert names(late) == []
    assert reasons(late) == {"west": "it has not been ready for 6 minutes"}


def test_a_cluster_that_turns_unhealthy_after_it_was_picked_is_kept() -> None:
    sick = fleet(Member("west", unready_since=0.0))

    for policy in (all_of(), so_many(1), fixed("west")):
        assert names(pick(policy, sick, held("west"))) == ["west"]


def test_a_cluster_that_never_reported_is_not_picked() -> None:
    new = fleet(Member("west", has_reported=False))

    for policy in (all_of(), so_many(1), fixed("west")):
        assert reasons(pick(policy, new, [])) == {"west": "it has not reported yet"}


def test_a_cluster_that_is_leaving_or_gone_is_no_longer_picked() -> None:
    leaving = fleet(Member("west", is_leaving=True))

    for policy in (all_of(), so_many(1), fixed("west")):
        assert names(pick(policy, leaving, held("west"))) == []
        assert names(pick(policy, fleet(), held("west"))) == []


# PickN


def test_among_equals_pick_n_takes_the_larger_names() -> None:
    assert names(pick(so_many(2), fleet("a", "b", "c"), [])) == ["b", "c"]


def test_pick_n_keeps_what_it_has_when_a_better_cluster_joins() -> None:
    picking = pick(so_many(1), fleet("a", "z"), held("a"))

    assert names(picking) == ["a"]
    assert reasons(picking) == {"z": "it would do, but was not needed"}


def test_liked_clusters_come_first_and_disliked_ones_last() -> None:
    members = fleet(zoned("a", "good"), zoned("b", "bad"), "c")

    assert names(pick(so_many(1, **preferred(10, zone="good")), members, [])) == ["a"]
    assert names(pick(so_many(2, **preferred(-10, zone="bad")), members, [])) == ["a", "c"]


def test_of_two_equal_clusters_the_one_in_use_is_kept_when_the_policy_changes() -> None:
    assert names(pick(so_many(1), fleet("a", "b"), held("a", is_current=False))) == ["a"]


def test_pick_n_with_too_few_clusters_says_how_many_and_why() -> None:
    picking = pick(so_many(2), fleet("a", Member("b", taints=(TAINT,))), [])

    assert names(picking) == ["a"]
    assert not picking.is_fulfilled
    assert picking.message == (
        "picked 1 of 2 clusters that the policy asks for: "
        "b: it has the untolerated taint gpu=yes:NoSchedule"
    )


def test_pick_n_of_zero_picks_none_and_is_fulfilled() -> None:
    picking = pick(so_many(0), fleet("a"), held("a"))

    assert names(picking) == []
    assert picking.is_fulfilled


def test_a_smaller_number_lets_go_of_what_was_not_rolled_out_first() -> None:
    present = [*held("c", state=SCHEDULED), *held("a", "b")]

    assert names(pick(so_many(2), fleet("a", "b", "c"), present)) == ["a", "b"]


def test_a_smaller_number_lets_go_of_the_lowest_score_then_of_the_smallest_name() -> None:
    low = PickedCluster("z", BOUND, True, Score(0, 1))
    present = [low, *(PickedCluster(each, BOUND, True, Score(0, 5)) for each in ("a", "b"))]
    members = fleet("a", "b", "z")

    assert names(pick(so_many(2), members, present)) == ["a", "b"]
    assert names(pick(so_many(1), members, present)) == ["b"]


def test_a_larger_number_adds_to_what_is_there() -> None:
    assert names(pick(so_many(2), fleet("a", "b", "c"), held("a"))) == ["a", "c"]


def test_a_cluster_that_left_is_replaced() -> None:
    assert names(pick(so_many(1), fleet("b"), held("a"))) == ["b"]


def test_a_spread_that_must_hold_is_never_broken() -> None:
    members = fleet(zoned("a1", "a"), zoned("a2", "a"), zoned("a3", "a"), zoned("b1", "b"))
    picking = pick(so_many(4, **spread("zone")), members, [])

    assert names(picking) == ["a2", "a3", "b1"]
    assert reasons(picking) == {"a1": "it would make the spread over zone more uneven than allowed"}


def test_a_spread_that_is_only_wished_for_comes_before_liking() -> None:
    members = fleet(zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"))
    policy = so_many(2, **spread("zone", when="ScheduleAnyway"), **preferred(100, zone="a"))

    assert names(pick(policy, members, [])) == ["a2", "b1"]
    assert names(pick(so_many(3, **spread("zone", when="ScheduleAnyway")), members, [])) == [
        "a1", "a2", "b1",
    ]  # fmt: skip


def test_a_cluster_without_the_label_is_not_bound_by_the_spread() -> None:
    members = fleet(zoned("a1", "a"), zoned("b1", "b"), "z")

    assert names(pick(so_many(3, **spread("zone")), members, [])) == ["a1", "b1", "z"]


@given(
    zones=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    number=st.integers(0, 8),
    skew=st.integers(1, 2),
)
def test_what_is_picked_over_zones_is_never_more_uneven_than_allowed(
    zones: list[str], number: int, skew: int
) -> None:
    members = fleet(*(zoned(f"m{index}", zone) for index, zone in enumerate(zones)))

    picked = names(pick(so_many(number, **spread("zone", skew)), members, []))

    counts = [
        sum(members.members[each].labels["zone"] == zone for each in picked)
        for zone in sorted(set(zones))
    ]
    assert max(counts) - min(counts) <= skew
    assert len(picked) <= number


@given(
    present=st.sets(st.sampled_from("abcdef")),
    joined=st.sets(st.sampled_from("abcdef")),
    number=st.integers(0, 6),
)
def test_picking_again_changes_nothing(present: set[str], joined: set[str], number: int) -> None:
    members = fleet(*joined)
    first = pick(so_many(number), members, held(*sorted(present)))

    again = pick(so_many(number), members, held(*names(first)))

    assert names(again) == names(first)


# PickFixed


def test_pick_fixed_picks_those_named_and_reports_the_others() -> None:
    picking = pick(fixed("west", "moon"), fleet("east", "west"), [])

    assert names(picking) == ["west"]
    assert not picking.is_fulfilled
    assert reasons(picking) == {"moon": "there is no such cluster"}


def test_pick_fixed_follows_its_names_when_they_change() -> None:
    picking = pick(fixed("west"), fleet("east", "west"), held("east", is_current=False))

    assert names(picking) == ["west"]


def test_decisions_name_at_most_twenty_clusters_that_were_not_picked() -> None:
    picking = pick(so_many(1), fleet(*(f"m{number:02}" for number in range(40))), [])

    assert len(picking.decisions) == 21
    assert picking.decisions[0].to_object() == {
        "clusterName": "m39",
        "selected": True,
        "reason": "it fits the policy best",
        "clusterScore": {"affinityScore": 0, "priorityScore": 0},
    }


NODES = "kubernetes-fleet.io/node-count"


def sized(name: str, nodes: str, **labels: str) -> Member:
    return Member(name, labels, properties={NODES: parse_quantity(nodes)})


def by_nodes(operator: str, value: str, **labels: str) -> Object:
    wanted = [{"name": NODES, "operator": operator, "values": [value]}]
    term = {
        "labelSelector": {"matchLabels": labels},
        "propertySelector": {"matchExpressions": wanted},
    }
    terms = {"clusterSelectorTerms": [term]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"clusterAffinity": {key: terms}}}


def test_clusters_are_picked_by_their_properties_and_others_hear_why_not() -> None:
    members = fleet(sized("large", "9", env="prod"), sized("small", "2", env="prod"), "silent")

    picking = pick(all_of(**by_nodes("Ge", "5", env="prod")), members, ())

    assert names(picking) == ["large"]
    assert reasons(picking) == {
        "silent": "its labels match none of the required terms",
        "small": f"its {NODES} is 2, and must be Ge 5",
    }


def test_a_cluster_that_shrinks_keeps_what_was_placed_there() -> None:
    picking = pick(all_of(**by_nodes("Ge", "5")), fleet(sized("east", "1")), held("east"))

    assert names(picking) == ["east"]


@pytest.mark.parametrize(("order", "chosen"), [("Descending", "c"), ("Ascending", "a")])
def test_the_best_by_a_property_is_picked(order: str, chosen: str) -> None:
    sorter = {"propertySorter": {"name": NODES, "sortOrder": order}}
    liked = [{"weight": 10, "preference": sorter}]
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    policy = so_many(1, affinity={"clusterAffinity": {key: liked}})
    members = fleet(sized("a", "1"), sized("b", "2"), sized("c", "4"), "d")

    picking = pick(policy, members, ())

    assert names(picking) == [chosen]
    assert picking.picked[chosen].score == Score(0, 10)
    scores = {each.cluster: each.score for each in picking.unpicked}
    assert scores["b"] == Score(0, 3 if order == "Descending" else 7)
    assert scores["d"] == Score(0, 0)
