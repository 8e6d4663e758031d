"""Names are computed as Karmada computes them."""

import pytest

from clusterspace.apis import stamps
from clusterspace.kube.resources import GroupVersionKind


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "expected"),
    [
        ("Deployment", "default", "nginx", "nginx-687f7fb96f"),
        ("Namespace", "", "predict", "predict-5c885f7948"),
        ("Namespace", "", "test", "test-69fd499b4c"),
        ("ClusterRole", "", "karmada-impersonator", "karmada-impersonator-7cbb6bd5c9"),
        ("ClusterRoleBinding", "", "karmada-impersonator", "karmada-impersonator-84f8c8f8c6"),
    ],
)
def test_works_are_called_what_karmada_calls_them(kind, namespace, name, expected):
    assert stamps.work_name(kind, namespace, name) == expected


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "expected"),
    [
        ("apps/v1", "Deployment", "nginx", "nginx-6d7f8d5f5b"),
        # As a real karmadactl called them.
        ("v1", "ConfigMap", "conf", "conf-75f5f4f477"),
        ("v1", "Pod", "solo", "solo-847459f8b6"),
    ],
)
def test_a_promoted_objects_policy_is_called_what_karmada_calls_it(
    api_version, kind, name, expected
):
    named = GroupVersionKind.of(api_version, kind)

    assert stamps.promoted_policy_name(named, "default", name) == expected


def test_the_policy_of_a_role_has_a_name_that_policies_may_have():
    role = GroupVersionKind.of("rbac.authorization.k8s.io/v1", "ClusterRole")

    assert stamps.promoted_policy_name(role, "", "system:Basic").startswith("system.basic-")


def test_a_dependency_points_at_the_binding_that_needs_it():
    label = stamps.depended_by_label("default", "nginx-deployment")

    assert label == "resourcebinding.karmada.io/depended-by-5bdc5c4dcf"


def test_colons_in_a_templates_name_become_dots():
    assert stamps.binding_name("ClusterRole", "system:Node") == "system.node-clusterrole"
    assert stamps.work_name("ClusterRole", "", "system:node").startswith("system.node-")


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)]
)
def test_hashes_are_those_of_the_published_test_vectors(text: str, expected: int):
    assert stamps.fnv1a_32(text) == expected
