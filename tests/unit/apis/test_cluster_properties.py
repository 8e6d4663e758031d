"""Properties of clusters: read from what they report, compared, sorted by, and checked."""

import pytest

from clusterspace.apis.cluster_properties import (
    PropertySorter,
    properties_of,
    property_causes,
    reported_properties,
    requirements_of,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

CPU = "resources.kubernetes-fleet.io/available-cpu"
NODES = "kubernetes-fleet.io/node-count"


def asking(*expressions: tuple[str, str, str]) -> Object:
    written = [{"name": n, "operator": o, "values": [v]} for n, o, v in expressions]
    return {"propertySelector": {"matchExpressions": written}}


def is_met(operator: str, value: str, actual: str) -> bool:
    (requirement,) = requirements_of(asking((CPU, operator, value)))
    return requirement.refusal({CPU: parse_quantity(actual)}) is None


def test_a_cluster_tells_of_nodes_and_of_what_pods_leave() -> None:
    summary = {"allocatable": {"cpu": "4", "memory": "8Gi"}, "allocated": {"cpu": "500m"}}
    cluster: Object = {"status": {"nodeSummary": {"totalNum": 3}, "resourceSummary": summary}}

    found = {name: str(each) for name, each in properties_of(cluster).items()}

    assert found == {
        NODES: "3",
        "resources.kubernetes-fleet.io/allocatable-cpu": "4",
        CPU: "3500m",
        "resources.kubernetes-fleet.io/allocatable-memory": "8Gi",
        "resources.kubernetes-fleet.io/available-memory": "8Gi",
    }


def test_an_agent_also_tells_the_total_and_what_is_no_quantity_is_left_out() -> None:
    usage = {"capacity": {"cpu": "8"}, "available": {"cpu": "1"}, "observationTime": "now"}
    told = {"example.com/cost": {"value": "0.25"}, "k8s.io/k8s-version": {"value": "v1.35.0"}}
    member: Object = {"status": {"resourceUsage": usage, "properties": told}}

    found = {name: str(each) for name, each in reported_properties(member).items()}

    total = "resources.kubernetes-fleet.io/total-cpu"
    assert found == {total: "8", CPU: "1", "example.com/cost": "250m"}


@pytest.mark.parametrize(
    ("operator", "met", "missed"),
    [
        ("Gt", "2001m", "2"),
        ("Ge", "2", "1999m"),
        ("Lt", "1", "2"),
        ("Le", "2", "3"),
        ("Eq", "2000m", "3"),
        ("Ne", "3", "2.0"),
    ],
)
def test_amounts_are_compared_and_not_texts(operator: str, met: str, missed: str) -> None:
    assert is_met(operator, "2", met)
    assert not is_met(operator, "2", missed)


def test_a_cluster_that_does_not_tell_is_not_meant() -> None:
    (requirement,) = requirements_of(asking((CPU, "Ne", "2")))

    assert requirement.refusal({}) == f"it reports no {CPU}"


def test_the_best_of_all_gets_the_whole_weight_and_who_does_not_tell_none() -> None:
    fleet = [{NODES: parse_quantity(each)} for each in ("1", "3", "5")]
    more, fewer = PropertySorter(NODES, False), PropertySorter(NODES, True)

    assert [more.share(each, fleet) for each in fleet] == [0, 0.5, 1]
    assert [fewer.share(each, fleet) for each in fleet] == [1, 0.5, 0]
    assert more.share({}, fleet) == 0
    assert more.share(fleet[0], fleet[:1]) == 0, "all are alike"


@pytest.mark.parametrize(
    ("term", "is_required", "field"),
    [
        (asking((CPU, "Gt", "many")), True, ".propertySelector.matchExpressions[0].values[0]"),
        (asking(("a b", "Gt", "1")), True, ".propertySelector.matchExpressions[0].name"),
        (
            asking(("resources.kubernetes-fleet.io/free-cpu", "Gt", "1")),
            True,
            ".propertySelector.matchExpressions[0].name",
        ),
        (
            {"propertySelector": {"matchExpressions": [{"name": CPU, "operator": "Gt"}]}},
            True,
            ".propertySelector.matchExpressions[0].values",
        ),
        (
            asking((CPU, "Eq", "5"), (CPU, "Eq", "10")),
            True,
            ".propertySelector.matchExpressions",
        ),
        (asking((CPU, "Gt", "5"), (CPU, "Lt", "5")), True, ".propertySelector.matchExpressions"),
        (asking((CPU, "Eq", "5"), (CPU, "Ne", "5")), True, ".propertySelector.matchExpressions"),
        (asking((CPU, "Gt", "1")), False, ".propertySelector"),
        ({"propertySorter": {"name": NODES, "sortOrder": "Ascending"}}, True, ".propertySorter"),
        (
            {"propertySorter": {"name": "a b", "sortOrder": "Ascending"}},
            False,
            ".propertySorter.name",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(
    term: Object, is_required: bool, field: str
) -> None:
    found = property_causes(term, "", is_required=is_required)
    assert {each.field for each in found} == {field}


@pytest.mark.parametrize(
    "term",
    [
        asking((CPU, "Ge", "5"), (CPU, "Le", "5")),
        asking((CPU, "Gt", "5"), (CPU, "Lt", "6"), (CPU, "Ne", "5500m")),
        asking((CPU, "Gt", "64Gi"), (NODES, "Lt", "1")),
    ],
)
def test_what_some_cluster_could_meet_is_accepted(term: Object) -> None:
    assert not list(property_causes(term, "", is_required=True))
