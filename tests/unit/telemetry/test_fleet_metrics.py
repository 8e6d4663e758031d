"""What is measured of member clusters appears, changes, and goes with them."""

from clusterspace.telemetry import fleet_metrics, metrics
from clusterspace.telemetry.fleet_metrics import ClusterFigures


def lines_of(cluster: str) -> set[str]:
    return {line for line in metrics.render().decode().splitlines() if f'"{cluster}"' in line}


def test_a_look_at_a_cluster_is_measured() -> None:
    fleet_metrics.cluster_seen("measured", ClusterFigures(True, 3, 2), seconds=0.2)

    lines = lines_of("measured")
    assert 'cluster_ready_state{member_cluster="measured"} 1.0' in lines
    assert 'cluster_node_number{member_cluster="measured"} 3.0' in lines
    assert 'cluster_ready_node_number{member_cluster="measured"} 2.0' in lines


def test_a_transition_is_counted_and_shown_at_once() -> None:
    fleet_metrics.cluster_changed("changing", "Unknown")

    lines = lines_of("changing")
    assert 'cluster_ready_state{member_cluster="changing"} 0.0' in lines
    counted = (
        'clusterspace_cluster_transitions_total{member_cluster="changing",status="Unknown"} 1.0'
    )
    assert counted in lines


def test_a_cluster_that_left_is_no_longer_measured() -> None:
    fleet_metrics.cluster_seen("leaving", ClusterFigures(True, 1, 1), seconds=0.2)

    fleet_metrics.cluster_forgotten("leaving")
    fleet_metrics.cluster_forgotten("never seen")

    assert lines_of("leaving") == set()


def test_doubts_of_the_hub_are_shown() -> None:
    fleet_metrics.hub_doubts(itself=True)
    assert "clusterspace_hub_suspects_itself 1.0" in metrics.render().decode()
    fleet_metrics.hub_doubts(itself=False)
    assert "clusterspace_hub_suspects_itself 0.0" in metrics.render().decode()
