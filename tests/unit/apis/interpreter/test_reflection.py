from typing import Any

import pytest

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.reflection import reflect_status
from clusterspace.kube.objects import Object


def live(
    api_version: str, kind: str, status: Any, spec: Any = None, *, generation: int = 4
) -> Object:
    annotations = {stamps.TEMPLATE_GENERATION: "7"}
    metadata = {"name": "x", "generation": generation, "annotations": annotations}
    body: Object = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    return {**body, "spec": spec or {}, **({"status": status} if status is not None else {})}


def test_a_workload_tells_its_counters_and_which_template_they_are_of() -> None:
    status = {"replicas": 3, "observedGeneration": 4, "conditions": [{"type": "Available"}]}

    assert reflect_status(live("apps/v1", "Deployment", status)) == {
        "replicas": 3,
        "observedGeneration": 4,
        "generation": 4,
        "resourceTemplateGeneration": 7,
    }


def test_a_stateful_set_tells_what_its_controller_has_seen() -> None:
    told = reflect_status(live("apps/v1", "StatefulSet", {"observedGeneration": 4}))

    assert told == {"observedGeneration": 4, "generation": 4, "resourceTemplateGeneration": 7}


@pytest.mark.parametrize(
    ("api_version", "kind", "status", "told"),
    [
        ("batch/v1", "Job", {"active": 1, "ready": 1}, {"active": 1}),
        ("policy/v1", "PodDisruptionBudget", {"expectedPods": 2, "x": 1}, {"expectedPods": 2}),
        ("autoscaling/v2", "HorizontalPodAutoscaler", {"desiredReplicas": 2, "x": 1},
         {"desiredReplicas": 2}),
        ("networking.k8s.io/v1", "Ingress", {"loadBalancer": {}}, {"loadBalancer": {}}),
        ("example.com/v1", "Gadget", {"phase": "Fine"}, {"phase": "Fine"}),
        ("v1", "ConfigMap", None, None),
        ("v1", "Namespace", {}, None),
    ],
)  # fmt: skip
def test_a_kind_tells_what_can_be_summed_up_and_a_stranger_tells_all(
    api_version: str, kind: str, status: Any, told: Any
) -> None:
    assert reflect_status(live(api_version, kind, status)) == told


def test_only_a_service_with_a_load_balancer_has_something_to_tell() -> None:
    status = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}

    assert reflect_status(live("v1", "Service", status, {"type": "LoadBalancer"})) == status
    assert reflect_status(live("v1", "Service", status, {"type": "ClusterIP"})) is None
