"""What goes to another cluster, what stays, and what is to be on both."""

from clusterspace.fleet.migration.groups import Group, notes_on, plan_groups
from clusterspace.fleet.migration.plan import PlanItem, Verdict


def item(kind: str, name: str, *needs: str, api: str = "v1", namespace: str = "shop") -> PlanItem:
    return PlanItem(
        api_version=api,
        kind=kind,
        namespace=namespace,
        name=name,
        take=True,
        verdict=Verdict.SAME,
        needs=needs,
        policy="migration-m",
        rank=1,
        resource=f"{kind.lower()}s",
        uid="1",
        resource_version="1",
    )


def groups_of(*items: PlanItem, is_move: bool) -> dict[str, Group]:
    return {each.planned.title: each.group for each in plan_groups(items, is_move=is_move)}


CLAIM = item("PersistentVolumeClaim", "data")
MOUNTING = item("Deployment", "db", "PersistentVolumeClaim shop/data", api="apps/v1")
SCALING = item("HorizontalPodAutoscaler", "db", "Deployment shop/db", api="autoscaling/v2")
WEB = item("Deployment", "web", api="apps/v1")
SETTINGS = item("ConfigMap", "settings")
ELSEWHERE = item("ConfigMap", "settings", namespace="bank")
ROLE = item("ClusterRole", "reader", api="rbac.authorization.k8s.io/v1", namespace="")


def test_what_mounts_a_claim_stays_with_it_and_so_does_what_needs_that():
    found = groups_of(SCALING, MOUNTING, CLAIM, WEB, is_move=False)

    assert found == {
        "HorizontalPodAutoscaler shop/db": Group.STAYS,
        "Deployment shop/db": Group.STAYS,
        "PersistentVolumeClaim shop/data": Group.STAYS,
        "Deployment shop/web": Group.GOES,
    }


def test_what_stays_keeps_what_it_may_need():
    found = groups_of(CLAIM, SETTINGS, ELSEWHERE, WEB, ROLE, is_move=True)

    assert found == {
        "PersistentVolumeClaim shop/data": Group.STAYS,
        "ConfigMap shop/settings": Group.SHARED,
        "ConfigMap bank/settings": Group.GOES,
        "Deployment shop/web": Group.GOES,
        "ClusterRole reader": Group.SHARED,
    }


def test_where_nothing_is_removed_nothing_is_kept_apart_but_data():
    found = groups_of(CLAIM, SETTINGS, ROLE, is_move=False)

    assert found["ConfigMap shop/settings"] is Group.GOES
    assert found["ClusterRole reader"] is Group.GOES


def test_addresses_that_are_others_elsewhere_are_noted():
    service = {"kind": "Service", "spec": {"type": "LoadBalancer", "ports": [{"nodePort": 30080}]}}

    assert notes_on(service) == (
        "its node ports may be taken there",
        "its load balancer has another address there",
    )
    assert notes_on({"kind": "ConfigMap"}) == ()
