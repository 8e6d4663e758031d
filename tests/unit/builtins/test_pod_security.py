"""What each level of the Pod Security Standards asks for, and what labels mean."""

import pytest

from clusterspace.builtins.pod_security import LevelVersion, read_policy, violations
from clusterspace.kube.objects import Object

ENFORCE = "pod-security.kubernetes.io/enforce"
WARN = "pod-security.kubernetes.io/warn"


def pod(*, annotations: dict[str, str] | None = None, **container: object) -> Object:
    containers = [{"name": "web", "image": "web:1", **container}]
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": containers}}


@pytest.mark.parametrize(
    ("labels", "enforce", "warn"),
    [
        ({}, "privileged:latest", "privileged:latest"),
        ({ENFORCE: "baseline"}, "baseline:latest", "baseline:latest"),
        ({ENFORCE: "baseline", f"{ENFORCE}-version": "v1.9"}, "baseline:v1.9", "baseline:v1.9"),
        (
            {ENFORCE: "baseline", f"{ENFORCE}-version": "v1.9", f"{WARN}-version": "v1.2"},
            "baseline:v1.9",
            "baseline:v1.2",
        ),
        ({ENFORCE: "baseline", WARN: "privileged"}, "baseline:latest", "privileged:latest"),
        # What cannot be read must not open a door.
        ({ENFORCE: "strict"}, "restricted:latest", "privileged:latest"),
        ({ENFORCE: "baseline", f"{ENFORCE}-version": "9"}, "baseline:latest", "baseline:latest"),
    ],
)
def test_labels_say_a_policy(labels: dict[str, str], enforce: str, warn: str) -> None:
    policy, wrong = read_policy(labels)

    assert (str(policy.enforce), str(policy.warn)) == (enforce, warn)
    assert bool(wrong) == ("strict" in labels.values() or "9" in labels.values())


def test_an_old_version_looks_at_annotations_where_there_was_no_field() -> None:
    key = "seccomp.security.alpha.kubernetes.io/pod"
    unconfined = pod(annotations={key: "unconfined"})

    assert [str(each) for each in violations(LevelVersion("baseline", 18), unconfined)] == [
        f'seccompProfile (forbidden annotation {key}="unconfined")'
    ]
    assert violations(LevelVersion("baseline", 19), unconfined) == []


def test_an_annotation_without_the_field_is_a_profile_as_well() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/web"

    (found,) = violations(LevelVersion("baseline"), pod(annotations={key: "unconfined"}))

    assert found.reason == "forbidden AppArmor profile"
    assert violations(LevelVersion("baseline"), pod(annotations={key: "localhost/mine"})) == []


def test_nothing_is_wrong_with_anything_at_the_loosest_level() -> None:
    assert violations(LevelVersion(), pod(securityContext={"privileged": True})) == []
