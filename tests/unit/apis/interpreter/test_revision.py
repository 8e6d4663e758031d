import pytest

from clusterspace.apis.interpreter.revision import (
    find_completions,
    with_completions,
    with_replicas,
)
from clusterspace.kube.objects import Object, find_at
from clusterspace.testing.builders import config_map


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
