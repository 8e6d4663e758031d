"""What ResourceRegistries select: kinds, clusters, namespaces."""

from typing import Any

import pytest

from clusterspace.apis.affinities import Traits
from clusterspace.apis.registries import Registry, read_registry, registry_causes, select
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind

EAST = Traits("east", {"tier": "prod"}, region="eu")
WEST = Traits("west", {})
POD = GroupVersionKind("", "v1", "Pod")
DEPLOYMENT = GroupVersionKind("apps", "v1", "Deployment")


def registry(*selectors: tuple[str, str, str], **clusters: Any) -> Object:
    chosen = [
        {"apiVersion": version, "kind": kind, "namespace": namespace}
        for version, kind, namespace in selectors
    ]
    return {"spec": {"targetCluster": clusters, "resourceSelectors": chosen}}


def read(*registries: Object) -> list[Registry]:
    return [read_registry(each) for each in registries]


def test_a_kind_that_no_registry_speaks_of_is_not_registered():
    known = read(registry(("v1", "Pod", "")))

    assert select(known, DEPLOYMENT, [EAST]) is None
    assert select([], POD, [EAST]) is None


def test_a_kind_may_be_registered_for_clusters_that_are_not_there():
    assert select(read(registry(("v1", "Pod", ""), clusterNames=["far"])), POD, [EAST]) == {}


@pytest.mark.parametrize(
    ("clusters", "selected"),
    [
        ({}, {"east", "west"}),
        ({"clusterNames": ["west"]}, {"west"}),
        ({"exclude": ["west"]}, {"east"}),
        ({"labelSelector": {"matchLabels": {"tier": "prod"}}}, {"east"}),
        (
            {
                "fieldSelector": {
                    "matchExpressions": [{"key": "region", "operator": "NotIn", "values": ["eu"]}]
                }
            },
            {"west"},
        ),
    ],
)
def test_clusters_are_chosen_as_a_policy_chooses_them(clusters: Any, selected: set[str]):
    found = select(read(registry(("v1", "Pod", ""), **clusters)), POD, [EAST, WEST])

    assert found is not None
    assert set(found) == selected


def test_what_either_of_two_registries_selects_is_selected():
    one = registry(("v1", "Pod", "a"), ("v1", "Pod", "b"), ("apps/v1", "Deployment", "a"))
    two = registry(("apps/v1", "Deployment", ""), clusterNames=["east"])

    assert select(read(one, two), POD, [EAST]) == {"east": {"a", "b"}}
    assert select(read(one, two), DEPLOYMENT, [EAST, WEST]) == {
        "east": frozenset(),
        "west": {"a"},
    }


def test_a_registry_is_refused_with_every_reason():
    wrong = registry(("a/b/c", "", "A_b"), labelSelector={"matchLabels": {"-": "x"}})

    fields = [each.field for each in registry_causes(wrong)]

    assert fields == [
        "spec.targetCluster.labelSelector",
        "spec.resourceSelectors[0].kind",
        "spec.resourceSelectors[0].apiVersion",
        "spec.resourceSelectors[0].namespace",
    ]
    assert list(registry_causes(registry(("apps/v1", "Deployment", "shop")))) == []
