"""Which Kubernetes the fleet claims to be."""

import pytest

from clusterspace.fleet.gateway.merge.discovery import (
    UNKNOWN,
    Release,
    merge_releases,
    read_release,
)
from clusterspace.kube.objects import Object


def version(git_version: str) -> Object:
    major, minor = git_version.removeprefix("v").split(".")[:2]
    return {"major": major, "minor": minor, "gitVersion": git_version}


@pytest.mark.parametrize(
    ("git_version", "release"),
    [
        ("v1.35.8", Release(1, 35, 8)),
        ("v1.29.4-gke.1043002", Release(1, 29, 4)),
        ("v1.31.2+k3s1", Release(1, 31, 2)),
        ("v1.30", Release(1, 30, 0)),
        ("1.28.0", Release(1, 28, 0)),
        ("unknown", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_a_release_is_read_whatever_distributors_add(git_version: str, release: Release) -> None:
    assert read_release({"gitVersion": git_version}) == release


@pytest.mark.parametrize("body", [{}, {"gitVersion": None}, {"gitVersion": 5}])
def test_an_answer_without_a_release_is_unknown(body: Object) -> None:
    assert read_release(body) == UNKNOWN


def test_the_fleet_is_as_old_as_its_oldest_member() -> None:
    versions = {
        "karmada": version("v1.5.0"),
        "m1": version("v1.35.8"),
        "m2": version("v1.9.11"),
        "m3": version("v1.32.0"),
    }

    assert merge_releases(versions) == version("v1.9.11")


def test_a_member_that_makes_no_sense_is_left_out() -> None:
    assert merge_releases({"m1": {"gitVersion": "?"}, "m2": version("v1.32.0")}) == version(
        "v1.32.0"
    )


def test_without_members_the_hub_speaks() -> None:
    assert merge_releases({"karmada": version("v1.35.0")}) == version("v1.35.0")
    assert merge_releases({"karmada": version("v1.35.0"), "m1": {}}) == version("v1.35.0")
    assert merge_releases({}) is None
