"""What `kubectl top` shows."""

from tests.unit.sim.workload_objects import node, pod

from clusterspace.kube.quantities import parse_quantity
from clusterspace.sim.metrics_api import node_metrics, pod_metrics, pod_usage

NOW = 1_700_000_000.0


def test_a_pod_uses_a_steady_part_of_what_it_asks_for() -> None:
    held = pod(cpu="2")

    used = [pod_usage(held, NOW + minute * 60).cpu for minute in range(60)]

    assert all(400 <= each <= 1800 for each in used)
    assert max(used) > min(used)
    assert pod_usage(held, NOW) == pod_usage(held, NOW)


def test_a_node_uses_at_least_what_its_pods_use() -> None:
    pods = [pod("a", cpu="1"), pod("b", cpu="1")]

    measured = node_metrics(node("n"), pods, NOW)

    own = sum(pod_usage(each, NOW).cpu for each in pods)
    assert parse_quantity(measured["usage"]["cpu"]).milli > own


def test_metrics_name_every_container() -> None:
    measured = pod_metrics(pod(), NOW)

    assert [each["name"] for each in measured["containers"]] == ["web"]
    assert measured["metadata"]["namespace"] == "default"
