"""What is placed of an object, and which objects never are."""

import pytest

from clusterspace.fleet.propagation.claims import Claim, with_claim
from clusterspace.fleet.propagation.placements.manifests import (
    is_kept_home,
    manifest_of,
    may_be_placed,
)
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map, pod


@pytest.mark.parametrize(
    ("namespace", "is_home"),
    [
        ("default", True),
        ("fleet-system", True),
        ("kube-system", True),
        ("karmada-es-west", True),
        ("app", False),
    ],
)
def test_namespaces_of_the_hub_are_never_placed(namespace: str, is_home: bool) -> None:
    assert is_kept_home(namespace) is is_home


@pytest.mark.parametrize(
    ("template", "is_placed"),
    [
        (config_map("a"), True),
        (config_map("kube-root-ca.crt"), False),
        (config_map("a", deletionTimestamp="2026-01-01T00:00:00Z"), False),
        (pod("a"), False),
        ({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, False),
        (
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/service-account-token",
                "metadata": {"name": "a"},
            },
            False,
        ),
        (
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": "a", "ownerReferences": [{"kind": "Deployment"}]},
            },
            False,
        ),
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"}}, True),
        (
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "a",
                    "labels": {
                        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller"
                    },
                },
            },
            False,
        ),
    ],
)
def test_what_clusters_make_by_themselves_is_never_placed(
    template: Object, is_placed: bool
) -> None:
    assert may_be_placed(template) is is_placed


def test_what_is_the_hubs_stays_there() -> None:
    noted = config_map(
        "a",
        {"v": "1"},
        uid="1",
        resourceVersion="5",
        annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    )

    assert manifest_of(with_claim(noted, Claim("id", "pp", "default"))) == config_map(
        "a", {"v": "1"}
    )


def test_each_cluster_gives_its_own_ports_and_addresses() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {
            "clusterIP": "10.0.0.1",
            "healthCheckNodePort": 30001,
            "ports": [{"port": 80, "nodePort": 30000}],
        },
    }

    assert manifest_of(service)["spec"] == {"ports": [{"port": 80}]}
