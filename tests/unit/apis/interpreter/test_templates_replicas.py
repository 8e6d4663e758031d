"""How many replicas a template wants, and what each needs."""

from typing import Any

import pytest

from clusterspace.apis.interpreter.templates import (
    Replicas,
    find_completions,
    replicas_in,
    with_completions,
    with_replicas,
)
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.testing.builders import config_map, deployment, pod

POD_SPEC = ("spec", "template", "spec")


def job(**spec: Any) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum"}, "spec": spec}


@pytest.mark.parametrize(
    ("template", "count"),
    [
        (deployment("web", replicas=3), 3),
        ({**deployment("web", replicas=2), "kind": "StatefulSet"}, 2),
        ({**deployment("web", replicas=2), "kind": "ReplicaSet"}, 2),
        (job(parallelism=5), 5),
        (job(parallelism=5, completions=2), 2),
        (job(parallelism=1, completions=9), 1),
        (pod("web"), 1),
    ],
)
def test_workloads_have_replicas(template: Object, count: int) -> None:
    assert replicas_in(template) == Replicas(count)


@pytest.mark.parametrize(
    "template",
    [config_map("web"), {**deployment("web"), "kind": "DaemonSet"}],
    ids=lambda t: t["kind"],
)
def test_what_has_no_replicas_has_none(template: Object) -> None:
    assert replicas_in(template) is None


def test_requests_are_added_up_and_limits_stand_in_for_them() -> None:
    containers = [
        {"name": "a", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}},
        {"name": "b", "resources": {"limits": {"cpu": "1", "example.com/gpu": "2"}}},
        {"name": "c", "resources": {"requests": {"cpu": "0"}}},
    ]
    template = with_value(deployment("web"), containers, *POD_SPEC, "containers")

    found = replicas_in(template)

    assert found is not None
    assert found.requirements == {
        "resourceRequest": {"cpu": "1250m", "memory": "1Gi", "example.com/gpu": "2"}
    }


def test_the_largest_init_container_and_the_overhead_count() -> None:
    spec = {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}}],
        "initContainers": [{"name": "b", "resources": {"requests": {"cpu": "2"}}}],
        "overhead": {"cpu": "50m", "memory": "16Mi"},
    }

    found = replicas_in(with_value(deployment("web"), spec, *POD_SPEC))

    assert found is not None
    assert found.requirements == {"resourceRequest": {"cpu": "2050m", "memory": "16Mi"}}


def test_what_pods_ask_of_nodes_is_asked_of_clusters() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    wishes = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    }

    found = replicas_in(with_value(deployment("web"), wishes, *POD_SPEC))

    assert found is not None
    assert found.requirements == {
        "nodeClaim": {
            "hardNodeAffinity": terms,
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }
    }


def workload(api_version: str, kind: str, **spec: int) -> Object:
    return {"apiVersion": api_version, "kind": kind, "spec": spec}


@pytest.mark.parametrize(
    ("api_version", "kind", "field"),
    [
        ("apps/v1", "Deployment", "replicas"),
        ("apps/v1", "ReplicaSet", "replicas"),
        ("apps/v1", "StatefulSet", "replicas"),
        ("batch/v1", "Job", "parallelism"),
    ],
)
def test_a_cluster_runs_its_share(api_version: str, kind: str, field: str) -> None:
    template = workload(api_version, kind, **{field: 9})

    assert find_at(with_replicas(template, 4), "spec", field) == 4
    assert find_at(template, "spec", field) == 9


def test_kinds_without_replicas_stay_as_they_are() -> None:
    template = config_map("web")

    assert with_replicas(template, 4) is template


def test_a_deployment_of_another_group_is_a_stranger() -> None:
    template = workload("example.com/v1", "Deployment", replicas=9)

    assert with_replicas(template, 4) is template


def test_only_jobs_have_completions() -> None:
    job = workload("batch/v1", "Job", completions=10)

    assert find_completions(job) == 10
    assert find_completions(workload("apps/v1", "Deployment", completions=10)) is None
    assert find_completions(with_completions(job, 3)) == 3
