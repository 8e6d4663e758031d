"""What a leave removes, and in which order."""

from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.leave import placed_objects, plan_removals


def test_the_hub_ends_its_own_rights_with_its_last_request() -> None:
    order = plan_removals("west", is_shared=False, as_administrator=False)

    assert order == (
        names.role_binding_place("karmada-impersonator:karmada-west"),
        names.role_place("karmada-impersonator:karmada-west"),
        names.role_place("karmada-controller-manager:karmada-west"),
    )


def test_an_administrator_removes_everything_the_namespace_last() -> None:
    order = plan_removals("west", is_shared=False, as_administrator=True)

    assert len(order) == 9
    assert order[-1] == names.namespace_place("karmada-cluster")


def test_what_another_membership_uses_stays() -> None:
    for as_administrator in (True, False):
        order = plan_removals("west", is_shared=True, as_administrator=as_administrator)
        assert names.namespace_place("karmada-cluster") not in order
        assert names.role_place(names.IMPERSONATOR) not in order


def test_placed_objects_are_told_by_kind_and_name() -> None:
    manifests = [
        {"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}},
        {"kind": "ClusterRole", "metadata": {"name": "reader"}},
    ]
    works = [{"spec": {"workload": {"manifests": manifests}}}, {"spec": {}}]

    assert placed_objects(works) == ["ClusterRole reader", "Deployment shop/web"]
