from itertools import product

import pytest
from tests.unit.fleet.execution.member_objects import ordered

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import IF_NO_DIFF, TAKE_OVER
from clusterspace.fleet.execution.takeover import TakeoverDecision, decide, is_ours, owner_text
from clusterspace.kube.objects import annotations_of, labels_of, with_metadata
from clusterspace.testing.builders import config_map, namespace

CELLS: dict[tuple[str | None, str | None], str] = {
    (None, None): "abort",
    (None, "abort"): "abort",
    (None, "overwrite"): "overwrite",
    ("Abort", None): "abort",
    ("Abort", "abort"): "abort",
    ("Abort", "overwrite"): "overwrite",
    ("Overwrite", None): "overwrite",
    ("Overwrite", "abort"): "abort",
    ("Overwrite", "overwrite"): "overwrite",
}
"""Policy field and template annotation to the annotation a manifest arrives with."""


def test_the_table_has_all_nine_cells() -> None:
    fields, annotations = (None, "Abort", "Overwrite"), (None, "abort", "overwrite")

    assert set(CELLS) == set(product(fields, annotations))


@pytest.mark.parametrize(("field", "annotation"), CELLS)
def test_a_foreign_object_is_adopted_only_where_overwriting_was_asked_for(
    field: str | None, annotation: str | None
) -> None:
    resolution = CELLS[field, annotation]
    decision = decide(ordered(config_map("a"), resolution=resolution), config_map("a"))

    assert decision is (
        TakeoverDecision.ADOPT if resolution == "overwrite" else TakeoverDecision.CONFLICT
    )


@pytest.mark.parametrize("resolution", ["abort", "overwrite"])
def test_what_is_ours_is_updated_whatever_the_resolution(resolution: str) -> None:
    manifest = ordered(config_map("a"), resolution=resolution)

    assert decide(manifest, ordered(config_map("a"))) is TakeoverDecision.UPDATE


def test_where_nothing_is_there_is_nothing_in_the_way() -> None:
    assert decide(ordered(config_map("a")), None) is TakeoverDecision.CREATE


def test_an_object_on_its_way_out_is_waited_for_even_if_it_is_ours() -> None:
    live = with_metadata(ordered(config_map("a")), deletionTimestamp="2026-01-01T00:00:00Z")

    assert decide(ordered(config_map("a"), resolution="overwrite"), live) is TakeoverDecision.WAIT


def test_a_work_made_anew_for_the_same_binding_finds_its_object() -> None:
    live = ordered(config_map("a"), **{stamps.BINDING_ID: "b1", stamps.WORK_ID: "gone"})
    manifest = ordered(config_map("a"), **{stamps.BINDING_ID: "b1"})

    assert is_ours(manifest, live)


def test_another_hubs_object_is_not_ours_though_it_is_managed() -> None:
    live = ordered(config_map("a"), **{stamps.WORK_ID: "theirs", stamps.BINDING_ID: "theirs"})
    manifest = ordered(config_map("a"), **{stamps.BINDING_ID: "ours"})

    assert decide(manifest, live) is TakeoverDecision.CONFLICT
    assert "another binding or hub" in owner_text(live)


def test_an_object_whose_managed_label_was_taken_off_is_no_longer_ours() -> None:
    live = ordered(config_map("a"))
    labels = {key: value for key, value in labels_of(live).items() if key != stamps.MANAGED}

    assert (
        decide(ordered(config_map("a")), with_metadata(live, labels=labels))
        is TakeoverDecision.CONFLICT
    )


def test_an_empty_id_makes_nobody_the_owner() -> None:
    live = ordered(config_map("a"), **{stamps.WORK_ID: ""})

    assert not is_ours(ordered(config_map("a"), **{stamps.WORK_ID: ""}), live)


def test_a_namespace_that_is_merely_needed_is_shared() -> None:
    manifest = ordered(namespace("shop"))
    annotations = {
        key: value
        for key, value in annotations_of(manifest).items()
        if key != stamps.CONFLICT_RESOLUTION
    }
    needed = with_metadata(manifest, annotations=annotations)

    assert decide(needed, namespace("shop")) is TakeoverDecision.LEAVE
    assert decide(manifest, namespace("shop")) is TakeoverDecision.CONFLICT, (
        "a policy asked for this one"
    )


def test_what_may_be_had_if_it_agrees_is_adopted_on_that_condition() -> None:
    wish = {**annotations_of(ordered(config_map("a"))), TAKE_OVER: IF_NO_DIFF}
    manifest = with_metadata(ordered(config_map("a"), resolution="abort"), annotations=wish)

    assert decide(manifest, config_map("a")) is TakeoverDecision.ADOPT_IF_SAME
    assert decide(manifest, manifest) is TakeoverDecision.UPDATE
    assert decide(manifest, None) is TakeoverDecision.CREATE
