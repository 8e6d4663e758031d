from typing import Any

import pytest

from clusterspace.apis.interpreter.reports import health_of
from clusterspace.apis.works import HEALTHY, UNHEALTHY

DONE = {"observedGeneration": 3, "updatedReplicas": 2, "availableReplicas": 2}
READY = [{"type": "Ready", "status": "True"}]
ENTRANCE = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "status", "health"),
    [
        ("apps/v1", "Deployment", {"replicas": 2}, DONE, HEALTHY),
        ("apps/v1", "Deployment", {"replicas": 3}, DONE, UNHEALTHY),
        ("apps/v1", "Deployment", {"replicas": 2}, {**DONE, "availableReplicas": 1}, UNHEALTHY),
        ("apps/v1", "Deployment", {"replicas": 2}, {**DONE, "observedGeneration": 2}, UNHEALTHY),
        ("apps/v1", "Deployment", {"replicas": 0}, {"observedGeneration": 3}, HEALTHY),
        ("apps/v1", "StatefulSet", {"replicas": 2}, DONE, HEALTHY),
        ("apps/v1", "StatefulSet", {"replicas": 2}, {}, UNHEALTHY),
        ("apps/v1", "ReplicaSet", {"replicas": 2}, DONE, HEALTHY),
        ("apps/v1", "ReplicaSet", {"replicas": 3}, DONE, UNHEALTHY),
        ("apps/v1", "DaemonSet", {}, {"observedGeneration": 3, "desiredNumberScheduled": 1},
         UNHEALTHY),
        ("apps/v1", "DaemonSet", {}, {"observedGeneration": 3, "desiredNumberScheduled": 1,
         "updatedNumberScheduled": 1, "numberAvailable": 1}, HEALTHY),
        ("v1", "Pod", {}, {"phase": "Succeeded"}, HEALTHY),
        ("v1", "Pod", {}, {"phase": "Running", "conditions": READY}, HEALTHY),
        ("v1", "Pod", {}, {"phase": "Running"}, UNHEALTHY),
        ("v1", "Service", {"type": "ClusterIP"}, {}, HEALTHY),
        ("v1", "Service", {"type": "LoadBalancer"}, {}, UNHEALTHY),
        ("v1", "Service", {"type": "LoadBalancer"}, ENTRANCE, HEALTHY),
        ("networking.k8s.io/v1", "Ingress", {}, {}, UNHEALTHY),
        ("networking.k8s.io/v1", "Ingress", {}, ENTRANCE, HEALTHY),
        ("v1", "PersistentVolumeClaim", {}, {"phase": "Pending"}, UNHEALTHY),
        ("v1", "PersistentVolumeClaim", {}, {"phase": "Bound"}, HEALTHY),
        ("policy/v1", "PodDisruptionBudget", {}, {"currentHealthy": 1, "desiredHealthy": 2},
         UNHEALTHY),
        ("policy/v1", "PodDisruptionBudget", {}, {"currentHealthy": 2, "desiredHealthy": 2},
         HEALTHY),
        ("batch/v1", "Job", {}, {}, HEALTHY),
        ("example.com/v1", "Gadget", {}, {"phase": "Broken"}, HEALTHY),
    ],
)  # fmt: skip
def test_a_kind_is_healthy_when_it_does_what_it_is_there_for(
    api_version: str, kind: str, spec: Any, status: Any, health: str
) -> None:
    metadata = {"name": "x", "generation": 3}
    live = {"apiVersion": api_version, "kind": kind, "metadata": metadata}

    assert health_of({**live, "spec": spec, "status": status}) == health
