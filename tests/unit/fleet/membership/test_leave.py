"""What a leave removes, and in which order."""

from typing import Any

from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.leave import placed_objects, plan_removals, unreported_objects
from clusterspace.kube.objects import Object


def test_the_hub_ends_its_own_rights_with_its_last_request() -> None:
    order = plan_removals("west", is_shared=False, as_administrator=False)

    assert order == (
        manifests.role_binding_path("karmada-impersonator:karmada-west"),
        manifests.role_path("karmada-impersonator:karmada-west"),
        manifests.role_path("karmada-controller-manager:karmada-west"),
    )


def test_an_administrator_removes_everything_the_namespace_last() -> None:
    order = plan_removals("west", is_shared=False, as_administrator=True)

    assert len(order) == 9
    assert order[-1] == manifests.namespace_path("karmada-cluster")


def test_what_another_membership_uses_stays() -> None:
    for as_administrator in (True, False):
        order = plan_removals("west", is_shared=True, as_administrator=as_administrator)
        assert manifests.namespace_path("karmada-cluster") not in order
        assert manifests.role_path(manifests.IMPERSONATOR) not in order


def _work(*applied: Object, **rest: Any) -> Object:
    entries = [{"identifier": each} for each in applied]
    return {"spec": {}, "status": {"manifestStatuses": entries, **rest}}


def test_placed_objects_are_told_by_kind_and_name() -> None:
    web = {"group": "apps", "kind": "Deployment", "name": "web", "namespace": "shop"}
    reader = {"kind": "ClusterRole", "name": "reader"}

    works = [_work(web), _work(reader), {"spec": {}}]

    assert placed_objects(works) == ["ClusterRole reader", "Deployment shop/web"]


def test_what_a_member_would_not_have_is_not_told_as_placed() -> None:
    web = {"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}
    spec = {"workload": {"manifests": [web]}}
    refused = {"type": "Applied", "status": "False"}

    silent, told = {"spec": spec}, {"spec": spec, "status": {"conditions": [refused]}}

    assert placed_objects([silent, told]) == []
    assert unreported_objects([told]) == []
    assert unreported_objects([silent]) == ["Deployment shop/web"]
