"""Which objects are left to their cluster, and in which order the others come."""

from typing import Any

import pytest

from clusterspace.apis import kinds
from clusterspace.apis.interpreter.templates import dependencies_in
from clusterspace.fleet.migration.selection import (
    DEFINITION,
    NAMESPACE,
    hub_effect,
    needs_of,
    rank_of,
    why_left,
)
from clusterspace.kube.objects import Object, with_metadata, with_value
from clusterspace.kube.resources import GroupKind
from clusterspace.testing.builders import config_map, deployment, namespace, pod, secret

RBAC = "rbac.authorization.k8s.io"
GEAR = GroupKind("example.com", "Gear")


def of(kind: str, name: str, api_version: str = "v1", **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


@pytest.mark.parametrize(
    ("live", "why"),
    [
        (deployment("web"), ""),
        (config_map("settings"), ""),
        (namespace("shop"), ""),
        (namespace("default"), "every cluster has it"),
        (namespace("kube-system"), "it is in a namespace of the cluster itself"),
        (config_map("a", namespace="kube-public"), "it is in a namespace of the cluster itself"),
        (config_map("a", namespace="karmada-es-west"), "it is in a namespace of the cluster"),
        (config_map("kube-root-ca.crt"), "every cluster makes it for itself"),
        (
            pod("web-1", ownerReferences=[{"kind": "ReplicaSet", "name": "w", "controller": True}]),
            "a ReplicaSet made it and looks after it",
        ),
        (config_map("a", deletionTimestamp="2026-01-01T00:00:00Z"), "it is being deleted"),
        (
            with_value(secret("t"), "kubernetes.io/service-account-token", "type"),
            "it is a credential of this cluster",
        ),
        (with_value(secret("r"), "helm.sh/release.v1", "type"), "Helm keeps its releases in it"),
        (of("ClusterRole", "system:node", f"{RBAC}/v1"), "it came with the cluster"),
        (of("ClusterRole", "karmada-x", f"{RBAC}/v1"), "it is part of a membership"),
        (of("ClusterRole", "reader", f"{RBAC}/v1"), ""),
        (
            with_metadata(
                of("PersistentVolume", "pvc-1"),
                annotations={"pv.kubernetes.io/provisioned-by": "csi.example.com"},
            ),
            "a provisioner made it for a claim",
        ),
    ],
)
def test_what_is_a_clusters_own_is_left_to_it(live: Object, why: str) -> None:
    said = why_left(live)

    assert said.startswith(why) if why else not said


def test_what_others_need_comes_before_them() -> None:
    order = [
        NAMESPACE,
        DEFINITION,
        kinds.SECRET,
        kinds.SERVICE,
        kinds.DEPLOYMENT,
        kinds.AUTOSCALER,
        GroupKind("", "ResourceQuota"),
    ]

    ranks = [rank_of(each) for each in order]

    assert ranks == sorted(set(ranks))
    assert rank_of(GEAR) > rank_of(DEFINITION)
    assert rank_of(kinds.CLAIM) < rank_of(kinds.STATEFUL_SET)


@pytest.mark.parametrize(
    ("kind", "has_effect"),
    [
        (GroupKind(RBAC, "RoleBinding"), True),
        (GroupKind(RBAC, "ClusterRole"), True),
        (GroupKind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"), True),
        (GroupKind("", "ResourceQuota"), True),
        (GroupKind(RBAC, "Role"), False),
        (kinds.DEPLOYMENT, False),
        (GEAR, False),
    ],
)
def test_kinds_that_the_hub_would_obey_are_known(kind: GroupKind, has_effect: bool) -> None:
    assert bool(hub_effect(kind)) is has_effect


def test_an_object_names_what_it_needs() -> None:
    web = deployment("web", namespace="shop")
    web["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "db"}}]
    ingress = {
        **of("Ingress", "front", "networking.k8s.io/v1"),
        "spec": {"defaultBackend": {"service": {"name": "web"}}, "tls": [{"secretName": "cert"}]},
    }
    gear = with_metadata(of("Gear", "g", "example.com/v1"), namespace="shop")

    assert needs_of(web, {}, dependencies_in(web)) == ("Namespace shop", "Secret shop/db")
    ingress = with_metadata(ingress, namespace="shop")
    assert needs_of(ingress, {}, dependencies_in(ingress)) == (
        "Namespace shop",
        "Secret shop/cert",
        "Service shop/web",
    )
    assert needs_of(gear, {GEAR: "gears.example.com"}, ()) == (
        "Namespace shop",
        "CustomResourceDefinition gears.example.com",
    )
