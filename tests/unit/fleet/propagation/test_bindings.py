"""The marks of a claim: put on, read, taken off."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.propagation.works.work_objects import binding

from clusterspace.apis import stamps
from clusterspace.apis.works import TargetCluster
from clusterspace.fleet.propagation.bindings import (
    Claim,
    by_claim,
    claim_of,
    is_marked,
    kept_clusters,
    permanent_id,
    targets_of,
    with_claim,
    without_claim,
)
from clusterspace.fleet.propagation.works.rendering import is_suspended, share_completions
from clusterspace.kube.objects import annotations_of, labels_of
from clusterspace.testing.builders import config_map

OWN = Claim("id-1", "policy", "shop")
WIDE = Claim("id-2", "policy")

words = st.dictionaries(st.sampled_from(["app", "tier", "example.com/x"]), st.text(max_size=5))
claims = st.sampled_from([OWN, WIDE, Claim("id-3", "other", "else")])


def test_the_marks_are_karmadas() -> None:
    own, wide = with_claim(config_map("web"), OWN), with_claim(config_map("web"), WIDE)

    assert labels_of(own) == {stamps.POLICY_ID: "id-1"}
    assert annotations_of(own) == {stamps.POLICY_NAMESPACE: "shop", stamps.POLICY_NAME: "policy"}
    assert labels_of(wide) == {stamps.CLUSTER_POLICY_ID: "id-2"}
    assert annotations_of(wide) == {stamps.CLUSTER_POLICY_NAME: "policy"}


@given(words, words, st.lists(claims, min_size=1, max_size=3))
def test_the_last_claim_holds_and_taking_it_off_leaves_what_was_there(
    labels: dict[str, Any], annotations: dict[str, Any], held: list[Claim]
) -> None:
    before = config_map("web", labels=labels, annotations=annotations)
    after = before
    for claim in held:
        after = with_claim(after, claim)

    assert claim_of(after) == held[-1]
    assert list(by_claim(after)) == [held[-1].key]
    free = without_claim(after)
    assert not is_marked(free)
    assert labels_of(free) == labels
    assert annotations_of(free) == annotations
    assert "labels" in before["metadata"]


def test_half_a_claim_is_none_and_is_a_mark_all_the_same() -> None:
    half = config_map("web", labels={stamps.POLICY_ID: "id-1"})

    assert claim_of(half) is None
    assert is_marked(half)
    assert not is_marked(config_map("web"))


def test_keys_tell_the_two_kinds_of_policies_apart() -> None:
    assert (OWN.key, WIDE.key) == ("shop/policy", "policy")


def test_no_two_ids_are_the_same() -> None:
    random = Random(1)

    assert len({permanent_id(random) for _ in range(100)}) == 100


DIVIDED = {"replicaScheduling": {"replicaSchedulingType": "Divided"}}


def required_by(*clusters: str) -> list[dict[str, object]]:
    named = [{"name": each, "replicas": 5} for each in clusters]
    return [{"namespace": "default", "name": "other", "clusters": named}]


def test_targets_are_the_chosen_clusters_and_those_of_what_needs_the_object() -> None:
    bound = binding("north", replicas=2, requiredBy=required_by("north", "south"))

    assert targets_of(bound) == (TargetCluster("north", 2), TargetCluster("south"))


def test_a_cluster_that_is_left_gracefully_keeps_its_work() -> None:
    tasks = [
        {"fromCluster": "west", "purgeMode": "Gracefully"},
        {"fromCluster": "east", "purgeMode": "Directly"},
        {"fromCluster": "moon", "purgeMode": "Never"},
    ]

    assert kept_clusters(binding("north", gracefulEvictionTasks=tasks)) == {"north", "west", "moon"}


def test_nothing_scheduled_is_nowhere() -> None:
    assert targets_of(binding()) == ()
    assert kept_clusters(binding()) == frozenset()


def test_dispatching_is_suspended_everywhere_or_where_it_is_said() -> None:
    somewhere = {"dispatchingOnClusters": {"clusterNames": ["south"]}}

    assert is_suspended(binding("north", suspension={"dispatching": True}), "north")
    assert is_suspended(binding("north", suspension=somewhere), "south")
    assert not is_suspended(binding("north", suspension=somewhere), "north")
    assert not is_suspended(binding("north"), "north")


def test_divided_completions_follow_the_replicas_and_add_up() -> None:
    clusters = [{"name": "north", "replicas": 3}, {"name": "south", "replicas": 1}]
    bound = binding(placement=DIVIDED)
    bound["spec"]["clusters"] = clusters

    shared = share_completions(10, bound)

    assert sum(shared.values()) == 10
    assert shared["north"] > shared["south"]


def test_duplicated_completions_are_owed_by_each() -> None:
    assert share_completions(10, binding("north", "south", replicas=2)) == {}
