"""What the containers of a pod add up to."""

import pytest

from clusterspace.builtins.pods import effective, qos_class, rounded_to_millis


def container(**resources):
    return {"name": "a", "resources": resources}


def test_containers_run_together_and_init_containers_one_by_one() -> None:
    spec = {
        "initContainers": [
            {**container(requests={"cpu": "100m"}), "restartPolicy": "Always"},
            container(requests={"cpu": "2", "memory": "1Gi"}),
        ],
        "containers": [
            container(requests={"cpu": "500m", "memory": "256Mi"}),
            container(requests={"cpu": "500m", "memory": "256Mi"}),
        ],
    }

    assert effective(spec, "requests") == {"cpu": "2100m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([container()], "BestEffort"),
        ([container(requests={"cpu": "0"})], "BestEffort"),
        ([container(limits={"example.com/gpu": "1"})], "BestEffort"),
        ([container(requests={"cpu": "1"})], "Burstable"),
        (
            [
                container(
                    limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "1", "memory": "1Gi"}
                )
            ],
            "Guaranteed",
        ),
        (
            [
                container(
                    limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "1000m", "memory": "1Gi"}
                ),
                container(),
            ],
            "Burstable",
        ),
    ],
)
def test_a_pod_is_as_safe_from_eviction_as_its_least_limited_container(
    containers, expected
) -> None:
    assert qos_class({"spec": {"containers": containers}}) == expected


def test_what_the_pod_as_a_whole_may_use_decides_its_class() -> None:
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}

    assert (
        qos_class({"spec": {"containers": [container()], "resources": resources}}) == "Guaranteed"
    )


@pytest.mark.parametrize(
    ("text", "rounded"),
    [("0.0005", "1m"), ("500n", "1m"), ("1500m", "1500m"), ("1Gi", "1Gi"), ("-0.0005", "-1m")],
)
def test_resource_lists_hold_nothing_finer_than_a_thousandth(text, rounded) -> None:
    assert rounded_to_millis(text) == rounded
