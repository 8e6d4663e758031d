"""Bindings of dependencies: who requires them, where, and how."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.templates import Dependency
from clusterspace.fleet.propagation.bindings import new_binding
from clusterspace.fleet.propagation.dependencies import (
    BINDING_INDEXES,
    BY_DEPENDENCY,
    BY_REQUIRER,
    as_required,
    attached,
    dependency_word,
    detached,
    disagreements,
    needed_by,
    parent_with,
    parent_without,
)
from clusterspace.kube.objects import Object, labels_of, with_value
from clusterspace.testing.builders import config_map

SETTINGS = config_map("settings", namespace="shop", uid="uid-1", resourceVersion="7")
EMPTY = new_binding(SETTINGS, "id-9")
NEEDED = (Dependency("ConfigMap", "shop", "settings"), Dependency("Secret", "shop", "keys"))


def parent(name: str = "web-deployment", **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "shop", "labels": {stamps.BINDING_ID: f"id-{name}"}}
    return {"metadata": metadata, "spec": {"clusters": [{"name": "one"}], **spec}}


@given(st.lists(st.sampled_from("abcd"), unique=True), st.randoms())
def test_parents_come_and_go_in_any_order_and_leave_nothing(names: list[str], random: Any) -> None:
    held = EMPTY
    for name in names:
        held = attached(held, SETTINGS, parent(name))
        held = attached(held, SETTINGS, parent(name))
    assert [each["name"] for each in held["spec"].get("requiredBy", [])] == sorted(names)
    assert sorted(BINDING_INDEXES[BY_REQUIRER](held)) == [f"shop/{name}" for name in sorted(names)]

    for name in random.sample(names, len(names)):
        held = detached(held, "shop", name)

    assert held == EMPTY


def test_an_attached_binding_names_its_parent_and_its_clusters() -> None:
    held = attached(EMPTY, SETTINGS, parent())

    entry = {"namespace": "shop", "name": "web-deployment", "clusters": [{"name": "one"}]}
    assert held["spec"]["requiredBy"] == [entry]
    label = stamps.depended_by_label("shop", "web-deployment")
    assert labels_of(held)[label] == "id-web-deployment"


def test_what_a_parent_needs_stays_where_it_is_still_leaving_from() -> None:
    tasks = [
        {"fromCluster": "two", "purgeMode": "Gracefully"},
        {"fromCluster": "three", "purgeMode": "Directly"},
    ]
    held = attached(EMPTY, SETTINGS, parent(gracefulEvictionTasks=tasks))

    assert held["spec"]["requiredBy"][0]["clusters"] == [{"name": "one"}, {"name": "two"}]


def test_a_parent_says_what_it_needs_and_can_be_read_back() -> None:
    held = parent_with(parent(), NEEDED)

    assert needed_by(held) == NEEDED
    assert held["metadata"]["finalizers"] == [stamps.DEPENDENCIES_FINALIZER]
    words = {dependency_word("ConfigMap", "shop", "settings"), "Secret shop/keys"}
    assert set(BINDING_INDEXES[BY_DEPENDENCY](held)) == words
    assert parent_without(held) == parent()
    assert parent_without(parent()) == parent()


def test_an_annotation_that_cannot_be_read_needs_nothing() -> None:
    broken = with_value(parent(), {stamps.BINDING_DEPENDENCIES: "{"}, "metadata", "annotations")

    assert needed_by(broken) == ()


def test_the_bolder_and_the_safer_wish_win_and_disagreements_are_named() -> None:
    plain = parent()
    bold = parent("b", conflictResolution="Overwrite", preserveResourcesOnDeletion=True)

    held = as_required(EMPTY, [plain, bold])

    assert held["spec"]["conflictResolution"] == "Overwrite"
    assert held["spec"]["preserveResourcesOnDeletion"] is True
    assert disagreements([plain, bold]) == (
        "ConflictResolution conflicted (Overwrite vs Abort)",
        "PreserveResourcesOnDeletion conflicted (true vs false)",
    )
    assert disagreements([plain, plain]) == ()
    forgotten = as_required(held, [])
    assert forgotten["spec"] == {**EMPTY["spec"], "conflictResolution": "Abort"}


def test_a_policy_of_its_own_decides_for_itself() -> None:
    own = with_value(EMPTY, {}, "spec", "placement")

    assert as_required(own, [parent(conflictResolution="Overwrite")]) is own
