"""Kinds of well-known projects are known without a script."""

from typing import Any

import pytest

from clusterspace.apis.interpreter.reports import (
    Reports,
    aggregated_status,
    health_of,
    is_aggregated,
    reflect_status,
)
from clusterspace.apis.interpreter.templates import (
    components_in,
    dependencies_in,
    replicas_in,
    retain,
    with_replicas,
)
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.works import HEALTHY, UNHEALTHY, Report
from clusterspace.kube.objects import Object

KRUISE = "apps.kruise.io/v1alpha1"
FLINK = "flink.apache.org/v1beta1"
FLUX = "helm.toolkit.fluxcd.io/v2beta1"


def an_object(api_version: str, kind: str, spec: Any = None, status: Any = None) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": "one",
            "namespace": "shop",
            "generation": 2,
            "annotations": {"resourcetemplate.karmada.io/generation": "7"},
        },
        "spec": spec or {},
        **({} if status is None else {"status": status}),
    }


def pods(*, cpu: Any = "500m", config: str = "") -> Object:
    container: Object = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    if config:
        container["envFrom"] = [{"configMapRef": {"name": config}}]
    return {"spec": {"containers": [container]}}


def test_replicas_of_a_clone_set_are_shared_out_as_those_of_a_deployment() -> None:
    clones = an_object(KRUISE, "CloneSet", {"replicas": 4, "template": pods()})

    replicas = replicas_in(clones)

    assert replicas is not None
    assert (replicas.count, replicas.requirements) == (4, {"resourceRequest": {"cpu": "500m"}})
    assert with_replicas(clones, 1)["spec"]["replicas"] == 1


def test_a_job_of_a_part_of_all_nodes_is_not_shared_out() -> None:
    job = an_object(KRUISE, "BroadcastJob", {"parallelism": "10%", "template": pods()})

    assert replicas_in(job) is None


def test_what_the_pods_of_a_kind_need_goes_with_it() -> None:
    clones = an_object(KRUISE, "CloneSet", {"template": pods(config="colours")})
    release = an_object(
        FLUX,
        "HelmRelease",
        {
            "kubeConfig": {"secretRef": {"name": "key"}},
            "valuesFrom": [{"kind": "ConfigMap", "name": "values"}],
        },
    )

    assert [each.name for each in dependencies_in(clones)] == ["colours"]
    assert [each.name for each in dependencies_in(release)] == ["values", "key"]


def test_the_parts_of_a_training_job_are_told_with_numbers_for_quantities_too() -> None:
    specs = {
        "Master": {"template": pods(cpu=1)},
        "Worker": {"replicas": 3, "template": pods(cpu="2")},
    }
    job = an_object("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": specs})

    assert components_in(job) == [
        {
            "name": "master",
            "replicas": 1,
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        },
        {
            "name": "worker",
            "replicas": 3,
            "replicaRequirements": {"resourceRequest": {"cpu": "2"}},
        },
    ]
    assert components_in(an_object(KRUISE, "CloneSet")) is None


def test_the_tasks_of_a_volcano_job_count_as_many_as_have_to_run_at_once() -> None:
    tasks = [
        {"name": "leader", "replicas": 1, "template": pods(cpu="1")},
        {"replicas": 3, "minAvailable": 2, "template": pods(cpu="2")},
    ]
    job = an_object("batch.volcano.sh/v1alpha1", "Job", {"tasks": tasks})

    found = components_in(job) or []

    assert [(each["name"], each["replicas"]) for each in found] == [("leader", 1), ("task-1", 2)]


def test_a_flink_job_has_a_manager_and_as_many_workers_as_its_parallelism_takes() -> None:
    spec: Object = {
        "flinkConfiguration": {"taskmanager.numberOfTaskSlots": "2"},
        "job": {"parallelism": 5},
        "podTemplate": {"spec": {"nodeSelector": {"disk": "ssd"}, "priorityClassName": "gold"}},
        "jobManager": {"resource": {"cpu": 0.05, "memory": "100m"}},
        "taskManager": {"resource": {"cpu": 1, "memory": "2048m"}},
    }

    found = components_in(an_object("flink.apache.org/v1beta1", "FlinkDeployment", spec))
    assert found is not None
    manager, workers = found

    assert manager == {
        "name": "jobmanager",
        "replicas": 1,
        "replicaRequirements": {
            "nodeClaim": {"nodeSelector": {"disk": "ssd"}},
            "resourceRequest": {"cpu": "50m", "memory": "100m"},
            "priorityClassName": "gold",
        },
    }
    assert (workers["name"], workers["replicas"]) == ("taskmanager", 3)
    fixed = {**spec, "taskManager": {**spec["taskManager"], "replicas": 7}}
    found = components_in(an_object("flink.apache.org/v1beta1", "FlinkDeployment", fixed)) or ()
    assert [each["replicas"] for each in found] == [1, 7]


READY = {"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded"}


@pytest.mark.parametrize(
    ("api_version", "kind", "status", "expected"),
    [
        (KRUISE, "CloneSet", {"observedGeneration": 1}, UNHEALTHY),
        (
            KRUISE,
            "CloneSet",
            {"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 1},
            HEALTHY,
        ),
        (KRUISE, "BroadcastJob", {"desired": 2, "active": 1, "succeeded": 1}, HEALTHY),
        (KRUISE, "BroadcastJob", {"desired": 2, "failed": 1}, UNHEALTHY),
        (FLUX, "HelmRelease", {"conditions": [READY]}, HEALTHY),
        (FLUX, "HelmRelease", {}, UNHEALTHY),
        ("kyverno.io/v1", "ClusterPolicy", {"ready": True}, HEALTHY),
        ("argoproj.io/v1alpha1", "Workflow", {"phase": "Running"}, HEALTHY),
        ("argoproj.io/v1alpha1", "Workflow", {"phase": "Failed"}, UNHEALTHY),
        ("batch.volcano.sh/v1alpha1", "Job", {"state": {"phase": "Failed"}}, UNHEALTHY),
        (
            "flink.apache.org/v1beta1",
            "FlinkDeployment",
            {"jobStatus": {"state": "RUNNING"}},
            HEALTHY,
        ),
    ],
)
def test_health_is_what_the_project_means_by_it(
    api_version: str, kind: str, status: Object, expected: str
) -> None:
    assert health_of(an_object(api_version, kind, status=status)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, HEALTHY),
        ({"conditions": "nonsense"}, HEALTHY),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, UNHEALTHY),
        ({"conditions": [{"type": "Stalled", "status": "True"}]}, UNHEALTHY),
        ({"observedGeneration": 1}, UNHEALTHY),
        ({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]}, HEALTHY),
    ],
)
def test_a_kind_nobody_knows_is_taken_at_its_word(status: Object | None, expected: str) -> None:
    assert health_of(an_object("shop.example.com/v1", "Site", status=status)) == expected


def test_counters_of_all_clusters_are_added_up() -> None:
    clones = an_object(KRUISE, "CloneSet")
    live = an_object(
        KRUISE, "CloneSet", status={"replicas": 2, "readyReplicas": 1, "observedGeneration": 2}
    )
    received = tuple(Report(name, True, status=reflect_status(live)) for name in ("a", "b"))

    assert is_aggregated(kind_of(clones))
    assert aggregated_status(clones, Reports(received, due=2)) == {
        "replicas": 4,
        "readyReplicas": 2,
    }


def test_a_release_that_was_suspended_on_a_member_stays_suspended() -> None:
    wanted = an_object(FLUX, "HelmRelease", {"chart": {}})
    live = an_object(FLUX, "HelmRelease", {"chart": {}, "suspend": True})

    assert retain(wanted, live)["spec"]["suspend"] is True
