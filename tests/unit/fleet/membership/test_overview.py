"""The fleet at a glance."""

from tests.unit.fleet.membership.fleet_objects import cluster

from clusterspace.fleet.membership.overview import COLUMNS, row_of, usage_bar
from clusterspace.kube.times import parse_time

SUMMARY = {
    "allocatable": {"cpu": "24", "memory": "96Gi"},
    "allocated": {"cpu": "6"},
}


def test_a_row_tells_what_people_ask_first() -> None:
    held = cluster(
        ready="True",
        kubernetesVersion="v1.35.0",
        nodeSummary={"totalNum": 3, "readyNum": 2},
        resourceSummary=SUMMARY,
        taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}],
    )

    row = row_of(held, None, 0.0)

    assert row.cells() == (
        "west",
        "Push",
        "True",
        "v1.35.0",
        "2/3",
        "██░░░░░░░░  25% of 24",
        "░░░░░░░░░░   0% of 96Gi",
        "-",
        "team=a:NoSchedule",
    )
    assert len(row.cells()) == len(COLUMNS)


def test_a_cluster_nothing_is_known_of_still_has_a_row() -> None:
    row = row_of(cluster(mode="Pull"), None, 0.0)

    assert (row.ready, row.version, row.nodes, row.heartbeat) == ("Unknown", "-", "-", "-")


def test_a_pull_cluster_tells_when_it_was_last_heard() -> None:
    lease = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}

    row = row_of(cluster(mode="Pull"), lease, parse_time("2026-01-01T00:00:09Z"))

    assert row.heartbeat == "9s"
    assert row_of(cluster(), lease, 0.0).heartbeat == "-"
    assert row_of(cluster(mode="Pull"), {"spec": {"renewTime": "soon"}}, 0.0).heartbeat == "-"


def test_a_cluster_on_its_way_out_says_so() -> None:
    held = cluster(ready="True")
    leaving = {**held, "metadata": {**held["metadata"], "deletionTimestamp": "now"}}

    assert row_of(leaving, None, 0.0).ready == "Leaving"


def test_more_asked_for_than_there_is_fills_the_bar_and_no_more() -> None:
    over = {"allocatable": {"cpu": "1"}, "allocated": {"cpu": "3"}}

    assert usage_bar(cluster(resourceSummary=over), "cpu") == "██████████ 300% of 1"


def test_a_cluster_whose_deletions_wait_for_a_person_says_so() -> None:
    held = cluster(ready="True")
    paused = {"type": "DeletionsPaused", "status": "True"}
    status = {**held["status"], "conditions": [*held["status"]["conditions"], paused]}

    assert row_of({**held, "status": status}, None, 0.0).ready == "True, deletions paused"
