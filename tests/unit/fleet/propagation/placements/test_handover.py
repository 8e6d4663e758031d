"""What the engine is handed for each object, and whose an object is."""

from typing import Any

import pytest
from tests.unit.fleet.propagation.placements.objects import placement, stored

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import PARENT, TAKE_OVER, ResourceIdentifier, hashes_of
from clusterspace.fleet.propagation.bindings import Claim, with_claim
from clusterspace.fleet.propagation.placements.rollout import (
    PlacedObject,
    desired_binding,
    merge_states,
    obstacle_to,
    stale_bindings,
)
from clusterspace.kube.objects import Object, annotations_of, labels_of, name_of, with_metadata
from clusterspace.testing.builders import config_map

SETTINGS = ResourceIdentifier("", "v1", "ConfigMap", "app", "settings")
ROLE = ResourceIdentifier("rbac.authorization.k8s.io", "v1", "ClusterRole", "", "reader")
PLACED = PlacedObject(SETTINGS, {"east": "aa", "west": "bb"}, uid="1")


def taking_over(when: str) -> Object:
    return placement(strategy={"applyStrategy": {"whenToTakeOver": when}})


def handed(placed: PlacedObject = PLACED, of: Object | None = None) -> Object:
    return stored(desired_binding(placed, of or placement(), None, "the-id"))


def why(
    present: Object | None, template: Object | None = None, placed: PlacedObject = PLACED
) -> str:
    found = obstacle_to(placed, placement(), present, template)
    return "" if found is None else found.message


def test_where_objects_are_to_be_follows_from_what_clusters_are_to_have() -> None:
    states = merge_states({"west": {SETTINGS: "bb", ROLE: "r"}, "east": {SETTINGS: "aa"}})

    assert states == {SETTINGS: {"east": "aa", "west": "bb"}, ROLE: {"west": "r"}}


def test_the_engine_gets_the_clusters_and_the_state_for_each() -> None:
    binding = handed()

    assert name_of(binding) == "settings-configmap"
    assert binding["spec"]["clusters"] == [{"name": "east"}, {"name": "west"}]
    assert "placement" not in binding["spec"]
    assert hashes_of(binding) == {"east": "aa", "west": "bb"}
    assert labels_of(binding)[PARENT] == "crp"
    assert labels_of(binding)[stamps.BINDING_ID] == "the-id"


def test_an_object_without_a_namespace_gets_a_binding_without_one() -> None:
    binding = handed(PlacedObject(ROLE, {"west": "r"}, uid="2"))

    assert binding["kind"] == "ClusterResourceBinding"
    assert labels_of(binding)[stamps.CLUSTER_BINDING_ID] == "the-id"


@pytest.mark.parametrize(
    ("when", "resolution", "note"),
    [("Always", "Overwrite", None), ("IfNoDiff", "Abort", "IfNoDiff"), ("Never", "Abort", None)],
)
def test_taking_over_is_said_in_the_words_of_the_engine(
    when: str, resolution: str, note: str | None
) -> None:
    binding = handed(of=taking_over(when))

    assert binding["spec"]["conflictResolution"] == resolution
    assert annotations_of(binding).get(TAKE_OVER) == note
    now = desired_binding(PLACED, taking_over("Always"), binding, "")
    assert now["spec"]["conflictResolution"] == "Overwrite"
    assert TAKE_OVER not in annotations_of(now)


def test_an_object_that_is_gone_is_named_as_it_was_known() -> None:
    later = desired_binding(PlacedObject(SETTINGS, {"west": "bb"}), placement(), handed(), "")

    assert later["spec"]["resource"]["uid"] == "1"
    assert later["spec"]["clusters"] == [{"name": "west"}]


def test_what_is_handed_over_already_is_not_changed() -> None:
    binding = handed()

    assert desired_binding(PLACED, placement(), binding, "") == binding


def test_a_free_object_and_our_own_are_no_obstacle() -> None:
    assert why(None, config_map("settings", namespace="app")) == ""
    assert why(handed()) == ""


def test_an_object_of_another_placement_is_left_alone() -> None:
    assert why(handed(of=placement("other"))) == "ClusterResourcePlacement other places it"
    earlier: Any = {**placement(), "metadata": {"name": "crp", "uid": "another"}}
    assert why(handed(of=earlier)) == (
        "an earlier ClusterResourcePlacement crp is still withdrawing it"
    )


def test_an_object_of_a_policy_is_left_alone_even_before_it_has_a_binding() -> None:
    bare = config_map("settings", namespace="app")

    claimed = with_claim(bare, Claim("id", "pp", "app"))
    assert why(None, claimed) == "it is claimed by PropagationPolicy app/pp"
    assert why(with_claim(bare, Claim("id", "cpp"))) == "ClusterPropagationPolicy cpp places it"


def test_an_object_that_something_else_needs_is_left_alone() -> None:
    needed = {
        "metadata": {"name": "settings-configmap"},
        "spec": {"requiredBy": [{"namespace": "app", "name": "web-deployment"}]},
    }

    assert why(needed) == ("web-deployment, which a policy places, needs it and brings it along")


def test_two_kinds_of_one_name_cannot_share_a_binding() -> None:
    other = ResourceIdentifier("moon.io", "v1", "ConfigMap", "app", "settings")

    assert why(handed(), placed=PlacedObject(other, {})) == "v1 ConfigMap has the same name"


def test_only_our_own_bindings_that_nobody_wants_are_stale() -> None:
    other = with_metadata(handed(of=placement("other")), name="theirs-configmap")
    leaving = with_metadata(
        handed(), name="old-configmap", deletionTimestamp="2026-01-01T00:00:00Z"
    )
    unwanted = with_metadata(handed(), name="gone-configmap")

    stale = stale_bindings([PLACED], placement(), [handed(), other, leaving, unwanted])

    assert [name_of(each) for each in stale] == ["gone-configmap"]


def test_a_binding_that_another_placement_wrote_its_label_on_comes_back_to_its_owner() -> None:
    overwritten = with_metadata(handed(), labels={**labels_of(handed()), PARENT: "other"})

    assert why(overwritten) == ""
    assert labels_of(desired_binding(PLACED, placement(), overwritten, ""))[PARENT] == "crp"


def test_a_label_alone_makes_nobody_the_owner() -> None:
    theirs = with_metadata(handed(), ownerReferences=[])

    assert "still withdrawing it" in why(theirs)
