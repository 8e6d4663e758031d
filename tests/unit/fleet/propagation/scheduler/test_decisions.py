"""Where objects go, what makes them move, and what never does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.propagation.scheduler.fleet_objects import (
    AGGREGATED,
    CORDON,
    DIVIDED,
    DYNAMIC,
    binding,
    cluster,
    names,
    plan,
)

from clusterspace.apis import stamps
from clusterspace.controllers.commit import plan_commit
from clusterspace.fleet.propagation.scheduler.decisions import (
    Decision,
    Reason,
    result_text,
    with_outcome,
    with_targets,
)
from clusterspace.kube.objects import Object, annotations_of, with_metadata, with_value

EAST, WEST, NORTH = cluster("east"), cluster("west"), cluster("north")
LEAVING = with_value(WEST, "2024-01-01T00:00:00Z", "metadata", "deletionTimestamp")


def weighted(**weights: int) -> Object:
    listed = [
        {"targetCluster": {"clusterNames": [name]}, "weight": weight}
        for name, weight in weights.items()
    ]
    scheduling = {**DIVIDED, "weightPreference": {"staticWeightList": listed}}
    return {**names(*weights), "replicaScheduling": scheduling}


def by_room(*clusters: str, scheduling: Object = DYNAMIC, **more: Any) -> Object:
    return {**names(*clusters), "replicaScheduling": scheduling, **more}


def test_without_a_word_about_replicas_every_cluster_gets_all():
    decision = plan(binding({}, replicas=2), EAST, WEST)

    assert decision.targets == {"east": 2, "west": 2}
    assert decision.reason is Reason.SUCCESS


def test_objects_without_replicas_go_to_every_cluster_as_they_are():
    assert plan(binding(names("west")), EAST, WEST).targets == {"west": 0}


def test_replicas_are_shared_by_weights():
    assert plan(binding(weighted(east=1, west=2), replicas=6), EAST, WEST, NORTH).targets == {
        "east": 2,
        "west": 4,
    }


def test_a_cluster_without_a_weight_gets_nothing_and_without_any_weights_all_are_equal():
    placement = {**weighted(east=1), **names("east", "west")}
    equal = {**names("east", "west"), "replicaScheduling": DIVIDED}

    assert plan(binding(placement, replicas=4), EAST, WEST).targets == {"east": 4}
    assert plan(binding(equal, replicas=4), EAST, WEST).targets == {"east": 2, "west": 2}


def test_a_share_of_nothing_is_no_place():
    assert plan(binding(weighted(east=1, west=9), replicas=1), EAST, WEST).targets == {"west": 1}


def test_a_cordoned_cluster_keeps_what_it_has_and_gets_nothing_new():
    cordoned = cluster("west", taints=[CORDON])

    assert plan(binding({}, replicas=2), EAST, cordoned).targets == {"east": 2}
    kept = binding({}, replicas=3, placed={"east": 2, "west": 2})
    assert plan(kept, EAST, cordoned).targets == {"east": 3, "west": 3}


def test_a_report_that_lacks_the_api_moves_nothing():
    bare = with_value(WEST, [], "status", "apiEnablements")

    assert plan(binding({}, replicas=2), EAST, bare).targets == {"east": 2}
    kept = binding({}, replicas=2, placed={"east": 2, "west": 2})
    assert plan(kept, EAST, bare).targets == {"east": 2, "west": 2}


def test_a_cluster_that_leaves_loses_what_it_has():
    kept = binding({}, replicas=2, placed={"east": 2, "west": 2})

    assert plan(kept, EAST, LEAVING).targets == {"east": 2}
    assert plan(kept, EAST).targets == {"east": 2}


def test_when_no_cluster_fits_what_is_placed_stays():
    unlabelled = {"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "prod"}}}}

    decision = plan(binding(unlabelled, replicas=2, placed={"east": 2, "west": 2}), EAST, WEST)

    assert decision.reason is Reason.NO_CLUSTER_FIT
    assert decision.targets == {"east": 2, "west": 2}


@pytest.mark.parametrize(
    ("labels", "targets"),
    [
        ({"tier": "test"}, {"west": 2}),
        ({}, {"east": 2, "west": 2}),
        ({"other": "test"}, {"east": 2, "west": 2}),
    ],
)
def test_a_label_that_says_otherwise_ends_what_is_placed_and_one_that_is_lost_does_not(
    labels: dict[str, str], targets: dict[str, int]
):
    wanted = {"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "prod"}}}}
    placed = binding(wanted, replicas=2, placed={"east": 2, "west": 2})

    decision = plan(placed, with_metadata(EAST, labels=labels), WEST)

    assert decision.reason is Reason.NO_CLUSTER_FIT
    assert decision.targets == targets


def test_a_label_that_one_of_several_affinities_says_nothing_of_ends_nothing():
    terms = [
        {"affinityName": "first", "labelSelector": {"matchLabels": {"tier": "prod"}}},
        {"affinityName": "second", "labelSelector": {"matchLabels": {"spare": "yes"}}},
    ]
    placed = binding({"clusterAffinities": terms}, replicas=2, placed={"east": 2})

    decision = plan(placed, with_metadata(EAST, labels={"tier": "test"}))

    assert decision.targets == {"east": 2}


def test_when_the_policy_changed_and_means_no_cluster_nothing_stays():
    changed = binding(names("absent"), replicas=2, placed={"east": 2}, applied=names("east"))

    decision = plan(changed, EAST, WEST)

    assert decision.reason is Reason.NO_CLUSTER_FIT
    assert decision.targets == {}


@pytest.mark.parametrize("note", [None, "garbled"])
def test_when_it_is_not_known_what_was_applied_nothing_is_emptied(note: str | None):
    held = binding(names("absent"), replicas=2, placed={"east": 2})
    noted = {} if note is None else {stamps.APPLIED_PLACEMENT: note}

    decision = plan(with_metadata(held, annotations=noted), EAST)

    assert decision.reason is Reason.NO_CLUSTER_FIT
    assert decision.targets == {"east": 2}


def test_when_the_only_cluster_leaves_nothing_is_left_to_keep():
    decision = plan(binding(names("west"), replicas=2, placed={"west": 2}), EAST, LEAVING)

    assert decision.reason is Reason.NO_CLUSTER_FIT
    assert decision.targets == {}


def test_a_fleet_without_clusters_says_so():
    decision = plan(binding({}, replicas=2))

    assert decision.message == "0/0 clusters are available: no cluster has joined the fleet."


def test_every_reason_is_counted():
    decision = plan(
        binding({"clusterAffinity": {"exclude": ["north"]}}),
        cluster("east", taints=[CORDON]),
        cluster("west", taints=[CORDON]),
        NORTH,
    )

    assert decision.message == (
        "0/3 clusters are available: 1 cluster(s) did not match the placement cluster affinity "
        "constraint, 2 cluster(s) had the untolerated taint "
        "cluster.karmada.io/unschedulable:NoSchedule."
    )


def test_shared_replicas_stay_when_a_cluster_joins():
    placement = {"replicaScheduling": DIVIDED}
    kept = binding(placement, replicas=6, placed={"east": 3, "west": 3})

    assert plan(kept, EAST, WEST, NORTH).targets == {"east": 3, "west": 3}


def test_scaling_moves_shared_replicas_to_where_the_weights_say():
    kept = binding(weighted(east=1, west=2), replicas=9, placed={"east": 2, "west": 4})

    assert plan(kept, EAST, WEST).targets == {"east": 3, "west": 6}


def test_replicas_of_a_cluster_that_left_go_to_the_others():
    kept = binding(by_room(), replicas=10, placed={"east": 6, "west": 4})

    assert plan(kept, EAST).targets == {"east": 10}


def test_a_cluster_no_longer_meant_gives_up_its_share():
    placement = {
        "clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "prod"}}},
        "replicaScheduling": DYNAMIC,
    }
    kept = binding(placement, replicas=10, placed={"east": 6, "west": 4})

    assert plan(kept, cluster("east", labels={"tier": "prod"}), WEST).targets == {"east": 10}


def test_more_replicas_go_where_there_is_room_and_move_nothing():
    kept = binding(by_room(), replicas=16, placed={"east": 6, "west": 4})

    decision = plan(
        kept, cluster("east", pods=0), cluster("west", pods=2), cluster("north", pods=4)
    )

    assert decision.targets == {"east": 6, "west": 6, "north": 4}


def test_fewer_replicas_are_taken_in_proportion():
    kept = binding(by_room(), replicas=5, placed={"east": 6, "west": 4})

    assert plan(kept, EAST, WEST, NORTH).targets == {"east": 3, "west": 2}


def test_without_room_nothing_changes_and_it_says_how_much_is_missing():
    kept = binding(by_room(), replicas=20, placed={"east": 6, "west": 4})

    decision = plan(kept, cluster("east", pods=1), cluster("west", pods=2))

    assert decision.reason is Reason.UNSCHEDULABLE
    assert decision.targets == {"east": 6, "west": 4}
    assert decision.message == (
        "The clusters that fit (east, west) have room for 13 of 20 replicas."
    )


def test_scaled_to_nothing_is_not_removed():
    kept = binding(by_room(), placed={"east": 6, "west": 4}, replicaRequirements={})

    assert plan(kept, EAST, WEST, NORTH).targets == {"east": 0, "west": 0}


def test_few_clusters_are_used_and_those_in_use_first():
    placement = by_room(scheduling=AGGREGATED)
    large, small = cluster("large", pods=50), cluster("small", pods=5)

    assert plan(binding(placement, replicas=20), large, small).targets == {"large": 20}
    kept = binding(placement, replicas=6, placed={"small": 4})
    assert plan(kept, large, small).targets == {"small": 6}


def test_asked_to_share_anew_replicas_go_by_the_room_of_now():
    kept = binding(
        by_room(), replicas=10, placed={"east": 10}, rescheduleTriggeredAt="2024-01-02T00:00:00Z"
    )
    asked = {**kept, "status": {"lastScheduledTime": "2024-01-01T00:00:00Z"}}
    done = {**kept, "status": {"lastScheduledTime": "2024-01-02T00:00:00Z"}}
    full, empty = cluster("east", pods=0), cluster("west", pods=40)

    assert plan(asked, full, empty).targets == {"east": 2, "west": 8}
    assert plan(asked, full, empty).is_repeat
    assert plan(done, full, empty).targets == {"east": 10}


def test_a_cluster_that_is_being_evicted_is_not_used():
    evicting = binding({}, replicas=2, gracefulEvictionTasks=[{"fromCluster": "west"}])

    assert plan(evicting, EAST, WEST).targets == {"east": 2}


def groups(*members: list[str], **more: Any) -> Object:
    terms = [
        {"affinityName": f"group{number}", "clusterNames": clusters}
        for number, clusters in enumerate(members, 1)
    ]
    return {"clusterAffinities": terms, **more}


def test_the_next_group_is_tried_when_the_first_has_no_cluster():
    decision = plan(binding(groups(["absent"], ["west"]), replicas=1), EAST, WEST)

    assert decision.targets == {"west": 1}
    assert decision.group_name == "group2"


def test_an_earlier_group_is_not_gone_back_to():
    placement = groups(["east"], ["west"])
    kept = binding(placement, replicas=1, placed={"west": 1})
    in_second = {**kept, "status": {"schedulerObservingAffinityName": "group2"}}

    assert plan(in_second, EAST, WEST).targets == {"west": 1}


def test_a_fresh_start_goes_back_to_the_first_group_that_fits():
    placement = groups(["gone"], ["east"], ["west"])
    kept = binding(placement, replicas=1, placed={"west": 1}, applied=placement)
    asked = with_value(kept, "2026-01-02T00:00:00Z", "spec", "rescheduleTriggeredAt")
    in_third = {
        "schedulerObservingAffinityName": "group3",
        "lastScheduledTime": "2026-01-01T00:00:00Z",
    }

    decision = plan({**asked, "status": in_third}, EAST, WEST)

    assert decision.targets == {"east": 1}
    assert decision.group_name == "group2"


def test_an_earlier_group_is_gone_back_to_when_no_later_one_fits():
    placement = groups(["east"], ["gone"], ["absent"])
    kept = binding(placement, replicas=1, placed={"gone": 1}, applied=placement)
    in_second = {**kept, "status": {"schedulerObservingAffinityName": "group2"}}

    decision = plan(in_second, EAST, WEST)

    assert decision.targets == {"east": 1}
    assert decision.group_name == "group1"


def test_when_every_group_fails_each_says_why():
    decision = plan(binding(groups(["gone"], ["absent"]), replicas=1), EAST)

    assert decision.reason is Reason.NO_CLUSTER_FIT
    assert "affinity group group1: 0/1" in decision.message
    assert "affinity group group2: 0/1" in decision.message


def test_what_a_group_cannot_hold_overflows():
    placement = groups(["east"], replicaScheduling=DYNAMIC)
    placement["clusterAffinities"][0]["overflowAffinities"] = [
        {"affinityName": "more", "affinity": {"clusterNames": ["west", "north"]}}
    ]

    fits = plan(binding(placement, replicas=5), cluster("east", pods=6), WEST, NORTH)
    overflows = plan(binding(placement, replicas=10), cluster("east", pods=6), WEST, NORTH)

    assert fits.targets == {"east": 5}
    assert overflows.targets == {"east": 6, "north": 2, "west": 2}


def test_a_policy_that_cannot_be_read_changes_nothing_and_says_where():
    unreadable = {
        "clusterAffinity": {"fieldSelector": {"matchExpressions": [{"key": "galaxy"}]}},
    }

    decision = plan(binding(unreadable, replicas=2, placed={"east": 2}), EAST)

    assert decision.reason is Reason.SCHEDULER_ERROR
    assert decision.targets == {"east": 2}
    assert "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0]" in decision.message


def test_clusters_that_were_not_needed_are_told_from_those_that_may_not():
    decision = plan(
        binding({**names("east", "west"), "spreadConstraints": [{"maxGroups": 1}]}),
        EAST,
        WEST,
        NORTH,
    )

    assert [each.cluster for each in decision.rejected] == ["north"]
    assert [each.cluster for each in decision.left_out] == ["west"]


counts = st.dictionaries(st.sampled_from(["east", "west", "north"]), st.integers(1, 9), min_size=1)
strategies = st.sampled_from([None, DIVIDED, DYNAMIC, AGGREGATED])


@given(counts, counts, strategies, st.integers(1, 20))
def test_deciding_twice_is_deciding_once(placed, room, scheduling, replicas):
    placement = {} if scheduling is None else {"replicaScheduling": scheduling}
    clusters = [cluster(name, pods=room.get(name, 0)) for name in ("east", "north", "west")]

    first = plan(binding(placement, replicas=replicas, placed=placed), *clusters)
    again = plan(binding(placement, replicas=replicas, placed=first.targets), *clusters)

    if first.reason is Reason.SUCCESS:
        assert again.targets == first.targets
        if scheduling is not None:
            assert sum(first.targets.values()) == replicas
    else:
        assert first.targets == placed


@given(counts, counts, st.sampled_from([DYNAMIC, AGGREGATED]), st.integers(1, 20))
def test_no_cluster_gives_while_another_takes(placed, room, scheduling, replicas):
    clusters = [cluster(name, pods=room.get(name, 0)) for name in ("east", "north", "west")]

    after = plan(
        binding({"replicaScheduling": scheduling}, replicas=replicas, placed=placed), *clusters
    ).targets

    changes = [after.get(name, 0) - placed.get(name, 0) for name in {**after, **placed}]
    assert min(changes, default=0) >= 0 or max(changes) <= 0


@pytest.mark.parametrize("scheduling", [DIVIDED, DYNAMIC, AGGREGATED])
def test_a_cluster_that_cannot_be_reached_keeps_its_share(scheduling):
    unreachable = cluster(
        "west",
        pods=0,
        taints=[{"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"}],
    )
    kept = binding({"replicaScheduling": scheduling}, replicas=6, placed={"east": 3, "west": 3})

    assert plan(kept, EAST, unreachable).targets == {"east": 3, "west": 3}


NOW = 1_700_000_000.0
LATER = NOW + 60
NO_FIT = Decision({}, Reason.NO_CLUSTER_FIT, "0/2 clusters are available: none.")


def test_success_is_noted_with_its_clusters_and_its_time():
    held = with_targets(binding(names("b", "a"), replicas=3), Decision({"b": 2, "a": 1}))
    told = with_outcome(held, Decision({"b": 2, "a": 1}), NOW)

    assert told["spec"]["clusters"] == [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]
    assert annotations_of(told)[stamps.APPLIED_PLACEMENT] == (
        '{"clusterAffinity":{"clusterNames":["b","a"]}}'
    )
    assert told["status"] == {
        "conditions": [
            {
                "type": "Scheduled",
                "status": "True",
                "reason": "Success",
                "message": "Binding has been scheduled successfully.",
                "lastTransitionTime": "2023-11-14T22:13:20Z",
            }
        ],
        "schedulerObservedGeneration": 3,
        "lastScheduledTime": "2023-11-14T22:13:20Z",
    }


def test_objects_without_replicas_are_listed_by_name_alone():
    held = with_targets(binding({}), Decision({"b": 0, "a": 0}))

    assert held["spec"]["clusters"] == [{"name": "a"}, {"name": "b"}]


def test_a_failure_is_not_noted_as_seen():
    told = with_outcome(with_targets(binding({}), NO_FIT), NO_FIT, NOW)

    assert set(told["status"]) == {"conditions"}
    assert "clusters" not in told["spec"]
    assert annotations_of(told)[stamps.APPLIED_PLACEMENT] == "{}"


def test_what_waits_for_room_is_not_noted_as_applied():
    short = Decision({}, Reason.UNSCHEDULABLE, "no room")

    assert stamps.APPLIED_PLACEMENT not in annotations_of(with_targets(binding({}), short))


def test_deciding_the_same_again_writes_nothing():
    decision = Decision({"a": 1, "b": 1})
    settled = with_outcome(with_targets(binding({}, replicas=1), decision), decision, NOW)

    again = with_outcome(with_targets(settled, decision), decision, LATER)

    assert plan_commit(settled, again) is None


def test_being_asked_anew_is_noted_even_if_nothing_moves():
    decision = Decision({"a": 1})
    settled = with_outcome(with_targets(binding({}, replicas=1), decision), decision, NOW)

    again = with_outcome(settled, Decision({"a": 1}, is_repeat=True), LATER)

    assert again["status"]["lastScheduledTime"] == "2023-11-14T22:14:20Z"


def test_the_same_clusters_in_another_order_stay_as_they_are():
    held = binding({}, replicas=1, placed={"b": 1, "a": 1})

    assert with_targets(held, Decision({"a": 1, "b": 1}))["spec"] == held["spec"]


def test_events_name_the_clusters_with_their_replicas():
    assert result_text({"member2": 4, "member1": 2}) == "{member1:2, member2:4}"
    assert result_text({"member2": 0, "member1": 0}) == "{member1, member2}"
