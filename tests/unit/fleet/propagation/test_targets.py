from tests.unit.fleet.propagation.works.work_objects import binding

from clusterspace.apis.bindings import TargetCluster
from clusterspace.fleet.propagation.targets import (
    is_suspended,
    kept_clusters,
    share_completions,
    targets_of,
)

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
