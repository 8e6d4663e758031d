"""A placement's bindings: picked, let go, picked again."""

from tests.unit.fleet.propagation.placements.objects import placement, stored

from clusterspace.apis.fleet_placements import (
    BOUND,
    CARRIED_BINDINGS,
    PREVIOUS_STATE,
    SCHEDULED,
    UNSCHEDULED,
)
from clusterspace.fleet.propagation.placements.picking import ClusterDecision, Picking, Score
from clusterspace.fleet.propagation.placements.rollout import (
    binding_name,
    current_picks,
    picked_by,
    plan_bindings,
    rolled_out,
    state_of,
    was_bound,
)
from clusterspace.kube.objects import Object, annotations_of, name_of, with_metadata, with_value


def picked(*clusters: str) -> Picking:
    return Picking({each: ClusterDecision(each, True, "fits", Score(1, 2)) for each in clusters})


def bound(cluster: str = "west", snapshot: str = "crp-0") -> Object:
    (change,) = plan_bindings(placement(), picked(cluster), snapshot, {})
    return rolled_out(stored(change.after), "crp-0-snapshot")


def test_a_picked_cluster_gets_a_binding_that_is_not_rolled_out_yet() -> None:
    (change,) = plan_bindings(placement(), picked("west"), "crp-0", {})

    assert change.before is None
    spec = change.after["spec"]
    assert (spec["state"], spec["targetCluster"]) == (SCHEDULED, "west")
    assert spec["resourceSnapshotName"] == ""
    assert not was_bound(change.after)


def test_nothing_is_written_for_what_was_picked_before_by_the_same_policy() -> None:
    held = bound()

    again = Picking({"west": ClusterDecision("west", True, "it was picked before")})

    assert plan_bindings(placement(), again, "crp-0", {"west": held}) == ()


def test_a_new_policy_that_picks_the_same_cluster_changes_its_note_and_not_its_state() -> None:
    (change,) = plan_bindings(placement(), picked("west"), "crp-1", {"west": bound()})

    assert state_of(change.after) == BOUND
    assert change.after["spec"]["schedulingPolicySnapshotName"] == "crp-1"


def test_a_cluster_no_longer_picked_is_let_go_and_remembers_how_far_it_was() -> None:
    (change,) = plan_bindings(placement(), picked(), "crp-1", {"west": bound()})

    assert state_of(change.after) == UNSCHEDULED
    assert annotations_of(change.after)[PREVIOUS_STATE] == BOUND
    assert was_bound(change.after)


def test_a_cluster_picked_again_goes_on_where_it_was() -> None:
    (gone,) = plan_bindings(placement(), picked(), "crp-1", {"west": bound()})

    (back,) = plan_bindings(placement(), picked("west"), "crp-1", {"west": gone.after})

    assert state_of(back.after) == BOUND
    assert PREVIOUS_STATE not in annotations_of(back.after)


def test_another_apply_strategy_reaches_every_binding_at_once() -> None:
    told = placement(strategy={"applyStrategy": {"whenToTakeOver": "Never"}})

    (change,) = plan_bindings(told, picked("west"), "crp-0", {"west": bound()})

    assert change.after["spec"]["applyStrategy"] == {"whenToTakeOver": "Never"}


def test_names_are_labels_and_the_same_every_time() -> None:
    long = placement("n" * 60)

    name = binding_name(long, "c" * 60)

    assert len(name) == 26 + 1 + 27 + 1 + 8
    assert name == binding_name(long, "c" * 60)
    assert name != binding_name(long, "d" * 60)
    assert "." not in binding_name(placement("a.b"), "west")


def test_what_was_decided_is_read_back_from_a_binding() -> None:
    held = picked_by(with_value(bound(), "crp-9", "spec", "schedulingPolicySnapshotName"), "crp-0")

    assert (held.cluster, held.state, held.is_current) == ("west", BOUND, False)
    assert held.score == Score(1, 2)
    assert name_of(bound()).startswith("crp-west-")


def carried(text: str) -> Object:
    return with_metadata(placement(), annotations={CARRIED_BINDINGS: text})


def test_clusters_a_placement_comes_with_are_picked_and_bindings_keep_their_names() -> None:
    moved = carried('{"east": "crp-east-0a1b2c3d", "west": "crp-west-4e5f6a7b"}')

    (east,) = current_picks(moved, "crp-0", {"west": bound()})[1:]
    changes = plan_bindings(moved, picked("east", "west"), "crp-0", {"west": bound()})

    assert (east.cluster, east.is_current) == ("east", True)
    (made,) = [each.after for each in changes if each.before is None]
    assert name_of(made) == "crp-east-0a1b2c3d"


def test_carried_bindings_that_cannot_be_names_are_not_there() -> None:
    for text in ("nonsense", "[1]", '{"east": "No Name"}', '{"a/b": "crp-east-0a1b2c3d"}'):
        assert current_picks(carried(text), "crp-0", {}) == []
