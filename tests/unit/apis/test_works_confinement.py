"""What a binding or a Work may carry follows from its namespace; some things stay at home."""

from typing import Any

import pytest

from clusterspace.apis import stamps
from clusterspace.apis.works import (
    is_reserved_namespace,
    why_at_home,
    why_not_carried,
    why_not_ordered,
)
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map, namespace


def binding(inside: str, **resource: Any) -> Object:
    metadata = {"name": "b", **({"namespace": inside} if inside else {})}
    return {
        "kind": "ResourceBinding" if inside else "ClusterResourceBinding",
        "metadata": metadata,
        "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "web", **resource}},
    }


def work(**annotations: str) -> Object:
    return {"metadata": {"name": "w", "annotations": annotations}}


OF_SHOP = work(**{stamps.BINDING_NAMESPACE: "shop", stamps.BINDING_NAME: "b"})


@pytest.mark.parametrize(
    ("name", "is_reserved"),
    [
        ("karmada-cluster", True),
        ("karmada-system", True),
        ("karmada-es-west", True),
        ("kube-system", True),
        ("kube-node-lease", True),
        ("fleet-system", True),
        ("fleet-member-west", True),
        ("default", False),
        ("fleet-trucks", False),
        ("karmada", False),
    ],
)
def test_namespaces_of_control_planes_are_reserved(name: str, is_reserved: bool) -> None:
    assert is_reserved_namespace(name) is is_reserved
    assert bool(why_at_home(config_map("web", namespace=name))) is is_reserved
    assert bool(why_at_home(namespace(name))) is is_reserved


def test_only_the_core_kind_is_a_namespace_or_a_secret() -> None:
    odd = {**namespace("kube-system"), "apiVersion": "example.com/v1"}
    token = {"type": "bootstrap.kubernetes.io/token", "metadata": {"name": "t"}}

    assert why_at_home(odd) == ""
    assert why_at_home({**token, "apiVersion": "v1", "kind": "Secret"})
    assert why_at_home({**token, "apiVersion": "example.com/v1", "kind": "Secret"}) == ""


@pytest.mark.parametrize(
    ("held", "is_namespaced", "may"),
    [
        (binding("shop", namespace="shop"), None, True),
        (binding("shop", namespace="shop"), True, True),
        (binding("shop", namespace="shop"), False, False),
        (binding("shop", namespace="other"), True, False),
        (binding("shop"), True, False),
        (binding("kube-system", namespace="kube-system"), True, False),
        (binding(""), None, True),
        (binding(""), False, True),
        (binding(""), True, False),
        (binding("", namespace="shop"), None, False),
    ],
)
def test_a_binding_carries_what_is_of_its_own_scope(
    held: Object, is_namespaced: bool | None, may: bool
) -> None:
    assert (why_not_carried(held, is_namespaced=is_namespaced) == "") is may


@pytest.mark.parametrize(
    ("order", "manifest", "is_namespaced", "may"),
    [
        (OF_SHOP, config_map("web", namespace="shop"), True, True),
        (OF_SHOP, config_map("web", namespace="other"), True, False),
        # The member may have another idea of a kind's scope than the hub.
        (OF_SHOP, config_map("web", namespace="shop"), False, False),
        (OF_SHOP, namespace("shop"), False, False),
        (work(**{stamps.CLUSTER_BINDING_NAME: "b"}), namespace("shop"), False, True),
        (work(), namespace("shop"), False, True),
        # Half of a mark is no reason to let go of it.
        (work(**{stamps.BINDING_NAME: "b"}), config_map("web", namespace="shop"), True, False),
    ],
)
def test_a_work_orders_what_its_binding_may_carry(
    order: Object, manifest: Object, is_namespaced: bool, may: bool
) -> None:
    assert (why_not_ordered(order, manifest, is_namespaced=is_namespaced) == "") is may
