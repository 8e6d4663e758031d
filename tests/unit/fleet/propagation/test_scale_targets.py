"""When the replicas that members have count for their template."""

from typing import Any

import pytest

from clusterspace.fleet.propagation.scale_targets import summed_replicas
from clusterspace.kube.objects import Object


def binding(*reported: tuple[str, int | None], replicas: int = 4, observed: int = 7) -> Object:
    return {
        "metadata": {"generation": 7},
        "spec": {
            "replicas": replicas,
            "clusters": [{"name": "west", "replicas": 2}, {"name": "east", "replicas": 2}],
        },
        "status": {
            "schedulerObservedGeneration": observed,
            "aggregatedStatus": [
                {"clusterName": name, **({"status": {"replicas": count}} if count else {})}
                for name, count in reported
            ],
        },
    }


def deployment(**status: Any) -> Object:
    return {"spec": {"replicas": 4}, "status": status}


def test_what_all_clusters_reported_counts() -> None:
    assert summed_replicas(binding(("west", 3), ("east", 4)), deployment(replicas=7)) == 7


@pytest.mark.parametrize(
    "unsettled",
    [
        binding(("west", 3)),
        binding(("west", 3), ("east", None)),
        binding(("west", 3), ("gone", 4)),
        binding(("west", 3), ("east", 4), replicas=5),
        binding(("west", 3), ("east", 4), observed=6),
        binding(("west", 3), ("east", 3)),
    ],
    ids=["missing", "empty", "of-another", "not-bound-yet", "not-divided-yet", "not-shown-yet"],
)
def test_what_is_not_settled_decides_nothing(unsettled: Object) -> None:
    assert summed_replicas(unsettled, deployment(replicas=7)) is None
