"""Which objects are templates, and when they changed."""

from typing import Any

import pytest

from clusterspace.apis import stamps
from clusterspace.client.discovery import ServedResources
from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.bindings import Claim, with_claim
from clusterspace.fleet.propagation.templates import (
    TemplateRequest,
    is_template,
    keys_in,
    template_request,
    template_resources,
    users_part,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import ResourceInfo
from clusterspace.testing.builders import CONFIG_MAPS, SECRETS, config_map, deployment, namespace

SECRET: Object = {**config_map("web"), "kind": "Secret"}
ALL = ("create", "delete", "get", "list", "patch", "update", "watch")


def resource(group: str, version: str, plural: str, verbs: tuple[str, ...] = ALL) -> ResourceInfo:
    return ResourceInfo(group, version, plural.title(), plural, plural, True, verbs)


def test_kinds_of_the_control_plane_and_kinds_that_cannot_be_followed_are_left_out() -> None:
    served = ServedResources(
        (
            resource("", "v1", "configmaps"),
            resource("", "v1", "events"),
            resource("events.k8s.io", "v1", "events"),
            resource("coordination.k8s.io", "v1", "leases"),
            resource("policy.karmada.io", "v1alpha1", "propagationpolicies"),
            resource("work.karmada.io", "v1alpha2", "resourcebindings"),
            resource("cluster.kubernetes-fleet.io", "v1", "memberclusters"),
            resource("authorization.k8s.io", "v1", "subjectaccessreviews", ("create",)),
            resource("autoscaling", "v2", "horizontalpodautoscalers"),
            resource("autoscaling", "v1", "horizontalpodautoscalers"),
            resource("multicluster.x-k8s.io", "v1alpha1", "serviceexports"),
        )
    )

    found = [f"{each.api_version} {each.plural}" for each in template_resources(served)]

    assert found == [
        "v1 configmaps",
        "autoscaling/v2 horizontalpodautoscalers",
        "multicluster.x-k8s.io/v1alpha1 serviceexports",
    ]


@pytest.mark.parametrize(
    ("kube_object", "expected"),
    [
        (config_map("web"), True),
        (config_map("web", namespace="kube-system"), False),
        (config_map("web", namespace="fleet-system"), False),
        (SECRET, True),
        ({**SECRET, "type": "kubernetes.io/service-account-token"}, False),
        ({**SECRET, "type": "bootstrap.kubernetes.io/token"}, False),
        (config_map("web", namespace="karmada-system"), False),
        (config_map("web", namespace="karmada-cluster"), False),
        (config_map("web", namespace="karmada-es-member1"), False),
        (config_map("web", namespace="karmada-fans"), True),
        (config_map("kube-root-ca.crt"), False),
        (config_map("web", labels={stamps.TEMPLATE_CLAIMED_BY: "service"}), False),
        (namespace("shop"), True),
        (namespace("kube-public"), False),
        (deployment("default"), True),
        ({**config_map("default"), "kind": "ServiceAccount"}, False),
        ({**config_map("kubernetes", namespace="default"), "kind": "Service"}, False),
        ({**config_map("kubernetes", namespace="default"), "kind": "Endpoints"}, False),
        ({**config_map("kubernetes", namespace="shop"), "kind": "Service"}, True),
    ],
)
def test_what_belongs_to_a_control_plane_or_to_every_cluster_is_no_template(
    kube_object: Object, expected: bool
) -> None:
    assert is_template(kube_object) is expected


def changed(**fields: Any) -> bool:
    before = deployment("web")
    return users_part({**before, **fields}) != users_part(before)


def test_only_what_users_write_counts_as_a_change() -> None:
    before = deployment("web")
    metadata = before["metadata"]

    assert not changed(status={"replicas": 3})
    assert not changed(metadata={**metadata, "resourceVersion": "9", "managedFields": [1]})
    assert not changed(metadata={**metadata, "generation": 4})
    assert users_part(with_claim(before, Claim("id", "a", "b"))) == users_part(before)
    assert changed(spec={"replicas": 5})
    assert changed(metadata={**metadata, "labels": {"app": "other"}})
    assert changed(metadata={**metadata, "annotations": {stamps.CONFLICT_RESOLUTION: "overwrite"}})
    assert changed(metadata={**metadata, "deletionTimestamp": "now"})


def test_templates_of_one_name_and_different_kinds_are_different_requests() -> None:
    one, other = template_request(CONFIG_MAPS, "shop/web"), template_request(SECRETS, "shop/web")

    assert one == TemplateRequest(name="web", namespace="shop", resource=CONFIG_MAPS)
    assert len({one, other, Request("web", "shop")}) == 3
    assert str(one) == "configmaps shop/web"


def test_keys_are_found_by_namespace_and_name() -> None:
    keys = ["shop/web", "shop/db", "shopping/web", "web"]

    assert keys_in(keys, namespace="shop") == ["shop/web", "shop/db"]
    assert keys_in(keys, name="web") == ["shop/web", "shopping/web", "web"]
    assert keys_in(keys, namespace="shop", name="db") == ["shop/db"]
    assert keys_in(keys) == keys
