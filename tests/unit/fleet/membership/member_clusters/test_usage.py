from tests.unit.fleet.membership.fleet_objects import node, pod

from clusterspace.fleet.membership.health import Health, State
from clusterspace.fleet.membership.member_clusters.usage import (
    healthy_condition,
    properties,
    resource_usage,
)
from clusterspace.kube.objects import Object


def sized(name: str, cpu: str, memory: str) -> Object:
    held = node(name, cpu=cpu, memory=memory)
    return {**held, "status": {**held["status"], "capacity": {"cpu": "10", "memory": memory}}}


def test_usage_is_summed_over_nodes_and_what_bound_pods_leave_is_available() -> None:
    nodes = [sized("a", "8", "32Gi"), sized("b", "2", "16Gi")]
    found = resource_usage(nodes, [pod("a", cpu="500m", memory="1Gi"), pod("b", cpu="1")], 0.0)
    assert found == {
        "capacity": {"cpu": "20", "memory": "48Gi"},
        "allocatable": {"cpu": "10", "memory": "48Gi"},
        "available": {"cpu": "8500m", "memory": "47Gi"},
        "observationTime": "1970-01-01T00:00:00Z",
    }


def test_pods_that_wait_succeeded_or_failed_use_nothing() -> None:
    pods = [
        pod("", cpu="1"),
        pod("a", phase="Succeeded", cpu="1"),
        pod("a", phase="Failed", cpu="1"),
    ]
    assert resource_usage([sized("a", "8", "1Gi")], pods, 0.0)["available"]["cpu"] == "8"


def test_more_asked_for_than_there_is_leaves_nothing_and_not_less() -> None:
    found = resource_usage([sized("a", "1", "1Gi")], [pod("a", cpu="5", memory="5Gi")], 0.0)
    assert found["available"] == {"cpu": "0", "memory": "0"}


def test_a_cluster_without_nodes_has_nothing() -> None:
    found = resource_usage([], [], 0.0)
    assert found["capacity"] == found["available"] == {"cpu": "0", "memory": "0"}
    assert properties([], "id-1", 0.0)["kubernetes-fleet.io/node-count"]["value"] == "0"


def test_who_the_cluster_is_is_told_when_it_is_known() -> None:
    assert properties([], "id-1", 0.0)["clusterspace.io/cluster-id"]["value"] == "id-1"
    assert "clusterspace.io/cluster-id" not in properties([], "", 0.0)


def test_health_has_kubefleets_reasons() -> None:
    well = healthy_condition(Health(State.READY), 1)
    unwell = healthy_condition(Health(State.UNHEALTHY, "its health check answered 500"), 1)
    assert (well.status, well.reason) == ("True", "InternalMemberClusterHealthy")
    assert (unwell.status, unwell.reason) == ("False", "InternalMemberClusterUnhealthy")
    assert "500" in unwell.message
