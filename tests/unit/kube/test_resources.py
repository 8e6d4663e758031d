import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import MalformedObject
from clusterspace.kube.resources import (
    GroupKind,
    GroupResource,
    GroupVersion,
    GroupVersionKind,
    GroupVersionResource,
    ResourceInfo,
    Subresource,
    parse_api_version,
    version_priority,
)

SCALE = Subresource("scale", "Scale", "autoscaling", "v1", ("get", "patch", "update"))
DEPLOYMENTS = ResourceInfo(
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    singular="deployment",
    namespaced=True,
    verbs=("get", "list"),
    short_names=("deploy",),
    categories=("all",),
    subresources=(SCALE,),
)


@pytest.mark.parametrize(
    ("text", "parsed", "path"),
    [
        ("v1", GroupVersion("", "v1"), "/api/v1"),
        ("apps/v1", GroupVersion("apps", "v1"), "/apis/apps/v1"),
    ],
)
def test_an_api_version_reads_and_prints_the_same(text: str, parsed: GroupVersion, path: str):
    assert parse_api_version(text) == parsed
    assert parsed.api_version == str(parsed) == text
    assert parsed.path == path


@pytest.mark.parametrize("text", ["", "/", "apps/", "/v1", "a/b/v1"])
def test_an_api_version_that_names_no_group_and_version_is_refused(text: str):
    with pytest.raises(MalformedObject, match="unexpected GroupVersion string") as refusal:
        parse_api_version(text)

    assert refusal.value.place == "apiVersion"


@given(st.text())
def test_any_text_is_an_api_version_or_is_refused_as_one(text: str):
    try:
        parsed = parse_api_version(text)
    except MalformedObject:
        return
    assert parsed.api_version == text


def test_versions_come_in_the_order_kubernetes_prefers_them():
    preferred = [
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v10beta3",
        "v3beta1",
        "v12alpha1",
        "v11alpha2",
        "foo1",
        "foo10",
        "v1.1",
    ]
    shuffled = random.Random(7).sample(preferred, k=len(preferred))

    assert sorted(shuffled, key=version_priority) == preferred


@given(st.text())
def test_any_text_has_a_place_among_versions(text: str):
    assert version_priority("v999999999") <= version_priority(text) or text.startswith("v")


def test_a_resource_is_called_by_every_name_it_has():
    assert str(DEPLOYMENTS.group_resource) == "deployments.apps"
    assert str(DEPLOYMENTS.group_kind) == "Deployment.apps"
    assert DEPLOYMENTS.group_version_resource == GroupVersionResource("apps", "v1", "deployments")
    assert DEPLOYMENTS.group_version_kind == GroupVersionKind.of("apps/v1", "Deployment")
    assert DEPLOYMENTS.api_version == "apps/v1"
    assert DEPLOYMENTS.list_kind == "DeploymentList"


def test_the_core_group_has_no_suffix():
    assert str(GroupResource("", "pods")) == "pods"
    assert str(GroupKind("", "Pod")) == "Pod"
    # Letter for letter as client-go: karmadactl makes names of policies from it.
    assert str(GroupVersionKind("", "v1", "Pod")) == "/v1, Kind=Pod"
    assert str(GroupVersionResource("", "v1", "pods")) == "/v1, Resource=pods"


def test_a_version_is_dropped_where_it_does_not_matter():
    assert GroupVersionResource("apps", "v1", "deployments").group_resource == GroupResource(
        "apps", "deployments"
    )
    assert GroupVersionKind("apps", "v1", "Deployment").group_kind == GroupKind(
        "apps", "Deployment"
    )


def test_a_subresource_is_found_by_name_and_speaks_its_own_kind():
    found = DEPLOYMENTS.find_subresource("scale")

    assert found is not None
    assert found.group_version_kind.api_version == "autoscaling/v1"
    assert DEPLOYMENTS.find_subresource("status") is None
