"""FederatedResourceQuotas: what they may say, and what a binding takes of them."""

from typing import Any

import pytest

from clusterspace.apis.quotas import quota_causes, taken_by, uncounted
from clusterspace.kube.objects import Object

OVERALL = {"cpu": "4", "memory": "8Gi"}


def quota(name: str = "team", /, *, overall: Object | None = None, **hard: Any) -> Object:
    assigned = [{"clusterName": cluster, "hard": each} for cluster, each in hard.items()]
    spec = {"overall": OVERALL if overall is None else overall, "staticAssignments": assigned}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def binding(*replicas: int, **spec: Any) -> Object:
    clusters = [{"name": f"m{index}", "replicas": each} for index, each in enumerate(replicas)]
    needs = {"resourceRequest": {"cpu": "250m", "memory": "1Gi", "example.com/gpu": "1"}}
    return {"spec": {"clusters": clusters, "replicaRequirements": needs, **spec}}


def texts(binding_object: Object, *names: str) -> dict[str, str]:
    taken = taken_by(binding_object, dict.fromkeys(names))
    return {name: str(amount) for name, amount in taken.items()}


def test_a_binding_takes_what_its_replicas_ask_for_in_all_clusters() -> None:
    assert texts(binding(2, 3), "cpu", "memory") == {"cpu": "1250m", "memory": "5Gi"}
    assert texts(binding(2, 3), "requests.cpu", "pods") == {"requests.cpu": "1250m", "pods": "5"}
    assert texts(binding(1), "example.com/gpu", "requests.example.com/gpu") == {
        "example.com/gpu": "1",
        "requests.example.com/gpu": "1",
    }


def test_a_binding_that_is_nowhere_takes_nothing() -> None:
    assert texts(binding(), "cpu") == {}
    assert texts(binding(0, 0), "cpu", "pods") == {}
    assert texts({}, "cpu") == {}


def test_of_several_components_every_cluster_runs_a_whole_set() -> None:
    needs = {"resourceRequest": {"cpu": "100m"}}
    components = [
        {"name": "driver", "replicas": 1, "replicaRequirements": needs},
        {"name": "worker", "replicas": 4, "replicaRequirements": needs},
    ]

    assert texts(binding(0, 0, components=components), "cpu", "pods") == {"cpu": "1", "pods": "10"}


def test_what_a_binding_by_hand_says_in_nonsense_is_not_counted() -> None:
    odd = binding(2, replicaRequirements={"resourceRequest": {"cpu": "lots", "memory": "1Gi"}})

    assert texts(odd, "cpu", "memory") == {"memory": "2Gi"}


def test_a_quota_that_adds_up_is_accepted() -> None:
    assert quota_causes(quota(west={"cpu": "1"}, east={"cpu": "3", "memory": "8Gi"})) == ()


@pytest.mark.parametrize(
    ("wrong", "field", "why"),
    [
        (quota("n" * 64), "metadata.name", "no more than 63"),
        (quota(overall={"cpus": "1"}), "spec.overall[cpus]", "standard resource"),
        (quota(overall={"cpu": "-1"}), "spec.overall[cpu]", "greater than or equal to 0"),
        (quota(overall={"pods": "1500m"}), "spec.overall[pods]", "integer"),
        (quota(Not_a_name={"cpu": "1"}), "spec.staticAssignments[0].clusterName", "lowercase"),
        (quota(**{"c" * 49: {"cpu": "1"}}), "spec.staticAssignments[0].clusterName", "48"),
        (quota(west={"pods": "1"}), "spec.staticAssignments[0].hard[pods]", "not exist in overall"),
        (quota(west={"cpu": "3"}, east={"cpu": "2"}), "spec.overall[cpu]", "less than assignments"),
    ],
)
def test_a_quota_that_cannot_be_is_refused_with_the_place(
    wrong: Object, field: str, why: str
) -> None:
    (cause,) = quota_causes(wrong)

    assert cause.field == field
    assert why in cause.message


def test_a_cluster_that_is_named_twice_is_refused() -> None:
    twice = quota(west={"cpu": "1"})
    twice["spec"]["staticAssignments"] *= 2

    assert [cause.field for cause in quota_causes(twice)] == [
        "spec.staticAssignments[1].clusterName"
    ]


def test_what_bindings_do_not_tell_is_known_not_to_be_counted() -> None:
    names = ("cpu", "requests.memory", "pods", "example.com/gpu", "limits.cpu", "count/jobs.batch")

    assert uncounted(quota(overall=dict.fromkeys(names, "1"))) == ["count/jobs.batch", "limits.cpu"]
