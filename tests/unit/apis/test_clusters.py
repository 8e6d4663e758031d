"""Names of clusters, and the sizes of nodes that are counted."""

import pytest
from tests.corpus import load_scenario

from clusterspace.apis.clusters import (
    cluster_name_causes,
    default_resource_models,
    find_same_id,
)
from clusterspace.kube.objects import Object


@pytest.mark.parametrize("name", ["west", "a", "x" * 48, "member-1"])
def test_a_dns_label_is_a_name(name: str) -> None:
    assert cluster_name_causes(name) == ()


@pytest.mark.parametrize("name", ["", "a.b", "West", "-a", "x" * 49, "karmada", "hub", "all"])
def test_what_could_be_mistaken_or_does_not_fit_is_no_name(name: str) -> None:
    assert cluster_name_causes(name)


def test_the_holder_of_an_id_is_found_and_is_never_the_cluster_itself() -> None:
    held: list[Object] = [{"metadata": {"name": "west"}, "spec": {"id": "1"}}]

    assert find_same_id(held, "1", "east") == "west"
    assert find_same_id(held, "1", "west") is None
    assert find_same_id(held, "", "east") is None


def test_the_sizes_of_nodes_are_those_of_karmada() -> None:
    steps = load_scenario("karmada", "push_join")["steps"]
    recorded = next(step for step in steps if step.get("see") == "hub: clusters")
    spec = recorded["objects"]["items"][0]["spec"]

    assert sorted_ranges(default_resource_models()) == sorted_ranges(spec["resourceModels"])


def sorted_ranges(models: list[Object]) -> list[Object]:
    return [
        {"grade": each["grade"], "ranges": sorted(each["ranges"], key=lambda held: held["name"])}
        for each in models
    ]
