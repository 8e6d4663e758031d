"""What a drain, a failure or a fresh start would do, on values alone."""

from typing import Any

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import AGGREGATED, binding, cluster

from clusterspace.apis.exclusive import ACKNOWLEDGED, EXCLUSIVE, LEASED, STOPS_AFTER
from clusterspace.fleet.propagation.simulation import (
    LiveFleet,
    Outcome,
    Preview,
    drained,
    failed,
    placed_anew,
    placed_first,
)
from clusterspace.kube.objects import Object, with_metadata, with_value
from clusterspace.testing.clocks import ManualClock

ONE: Object = {
    "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
    "replicaScheduling": AGGREGATED,
}
READY = [{"type": "Ready", "status": "True"}]
EVICTS: Object = {
    "metadata": {"name": "silent"},
    "spec": {
        "addOnConditions": [
            {"conditionType": "Ready", "operator": "In", "statusValues": ["False", "Unknown"]}
        ],
        "taints": [{"key": "silent", "effect": "NoExecute"}],
    },
}


def member(name: str, *, mode: str = "Push", pods: int = 100, **spec: Any) -> Object:
    return with_value(
        cluster(name, pods=pods, syncMode=mode, **spec), READY, "status", "conditions"
    )


def workload(name: str, placement: Object, placed: dict[str, int], **spec: Any) -> Object:
    made = binding(placement, replicas=sum(placed.values()), placed=placed, **spec)
    resource = {**made["spec"]["resource"], "name": name}
    renamed = with_metadata(made, name=f"{name}-deployment")
    return with_value(renamed, resource, "spec", "resource")


def work(name: str, where: str, exclusive: str) -> Object:
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1}}
    return {
        "metadata": {
            "name": name,
            "namespace": f"karmada-es-{where}",
            "annotations": {
                "resourcebinding.karmada.io/name": f"{name}-deployment",
                "resourcebinding.karmada.io/namespace": "default",
                EXCLUSIVE: exclusive,
            },
        },
        "spec": {"workload": {"manifests": [manifest]}},
    }


def lease(name: str) -> Object:
    renewed = "2026-01-01T00:00:00.000000Z"
    noted = {STOPS_AFTER: f"120 {renewed}"}
    return {"metadata": {"name": name, "annotations": noted}, "spec": {"renewTime": renewed}}


def only(previews: tuple[Preview, ...]) -> Preview:
    (preview,) = previews
    return preview


def test_workloads_that_leave_one_cluster_do_not_all_count_on_the_same_room() -> None:
    fleet = LiveFleet(
        clusters=(member("west"), member("east", pods=3), member("north", pods=3)),
        bindings=tuple(workload(f"app-{n}", ONE, {"west": 2}) for n in range(3)),
    )

    told = drained(fleet, "west", ManualClock()).previews

    assert [(each.outcome, dict(each.after)) for each in told] == [
        (Outcome.MOVES, {"east": 2}),
        (Outcome.MOVES, {"north": 2}),
        (Outcome.STAYS, {"west": 2}),
    ]
    assert "have room for" in told[2].why


def test_a_drain_says_what_tolerates_it_and_what_is_pinned() -> None:
    pinned = {**ONE, "clusterAffinity": {"clusterNames": ["west"]}}
    calm = {**ONE, "clusterTolerations": [{"operator": "Exists", "tolerationSeconds": 60}]}
    fleet = LiveFleet(
        clusters=(member("west"), member("east")),
        bindings=(workload("a", pinned, {"west": 1}), workload("b", calm, {"west": 1})),
    )

    stays, waits = drained(fleet, "west", ManualClock()).previews

    assert stays.outcome is Outcome.STAYS
    assert "cluster affinity" in stays.why
    assert [(each.cluster, each.filter) for each in stays.others] == [("east", "ClusterAffinity")]
    assert waits.outcome is Outcome.MOVES
    assert waits.why.startswith("its policy tolerates west for 60 s more")


@pytest.mark.parametrize(
    ("mode", "exclusive", "leases", "outcome", "why"),
    [
        ("Pull", LEASED, ("west",), Outcome.MOVES, "starts 210 s after west was last heard"),
        ("Pull", LEASED, (), Outcome.STOPS, "does not promise to stop"),
        ("Push", LEASED, (), Outcome.STOPS, "it is a Push cluster"),
        ("Pull", ACKNOWLEDGED, ("west",), Outcome.STOPS, "only its own answer proves it"),
    ],
)
def test_an_exclusive_workload_of_a_dead_cluster_is_told_as_it_would_be_handled(
    mode: str, exclusive: str, leases: tuple[str, ...], outcome: Outcome, why: str
) -> None:
    fleet = LiveFleet(
        clusters=(member("west", mode=mode), member("east"), member("north")),
        bindings=(workload("db", ONE, {"west": 1}),),
        works=(work("db", "west", exclusive),),
        leases=tuple(lease(each) for each in leases),
        taint_policies=(EVICTS,),
    )

    told = failed(fleet, ["west"], ManualClock())

    preview = only(told.previews)
    assert (preview.workload_class, preview.outcome) == ("exclusive", outcome)
    assert why in preview.why
    assert not any("by itself" in each for each in told.notes)
    # A person who drains the cluster hears that it stops there first.
    assert (
        only(drained(fleet, "west", ManualClock()).previews).why
        == "starts when west has stopped it"
    )


def test_nothing_moves_when_most_of_the_fleet_would_look_dead() -> None:
    fleet = LiveFleet(
        clusters=(member("west"), member("east"), member("north")),
        bindings=(workload("web", ONE, {"west": 2}),),
        taint_policies=(EVICTS,),
    )

    told = failed(fleet, ["west", "east"], ManualClock())

    assert only(told.previews).outcome is Outcome.STAYS
    assert any("2 of 3 clusters are not ready" in each for each in told.notes)


def test_one_of_two_dead_clusters_is_no_place_for_what_was_on_the_other() -> None:
    names = ("west", "east", "north", "south", "central")
    fleet = LiveFleet(
        clusters=(*(member(each) for each in names[:2]), *(member(e, pods=5) for e in names[2:])),
        bindings=(workload("web", ONE, {"west": 2}),),
        taint_policies=(EVICTS,),
    )

    assert only(failed(fleet, ["west", "east"], ManualClock()).previews).after == {"central": 2}


def test_a_fresh_start_begins_with_the_first_group() -> None:
    groups = [
        {"affinityName": "home", "clusterNames": ["west"]},
        {"affinityName": "away", "clusterNames": ["east"]},
    ]
    placement = {"clusterAffinities": groups, "replicaScheduling": AGGREGATED}
    web = workload("web", placement, {"east": 2})
    web["status"] = {
        "schedulerObservingAffinityName": "away",
        "lastScheduledTime": "2026-01-01T00:00:00Z",
    }
    fleet = LiveFleet(clusters=(member("west"), member("east")), bindings=(web,))

    preview = only(placed_anew(fleet, fleet.bindings, ManualClock()))

    assert (preview.outcome, dict(preview.after)) == (Outcome.MOVES, {"west": 2})


def test_workloads_that_must_be_apart_do_not_meet_where_they_flee_to() -> None:
    apart = {"workloadAffinityGroups": {"antiAffinityGroup": "app=db"}}
    fleet = LiveFleet(
        clusters=(member("west"), member("east"), member("north")),
        bindings=(
            workload("db-0", ONE, {"west": 1}, **apart),
            workload("db-1", ONE, {"east": 1}, **apart),
        ),
    )

    assert only(drained(fleet, "west", ManualClock()).previews).after == {"north": 1}


def quota(**status: object) -> Object:
    metadata = {"name": "team", "namespace": "default"}
    return {"metadata": metadata, "spec": {"overall": {"pods": "5"}}, "status": status}


@pytest.mark.parametrize("status", [{}, {"overallUsed": {"pods": "2"}}])
def test_what_a_quota_of_the_fleet_has_no_room_for_is_not_placed(status: Object) -> None:
    running = workload("running", ONE, {"west": 2})
    unplaced = {**running["spec"], "clusters": []}
    new = [{**workload(name, ONE, {}), "spec": unplaced} for name in "ab"]

    first, second = placed_first(
        new, [member("west")], ManualClock(), beside=[running], quotas=[quota(**status)]
    )

    assert first.outcome is Outcome.PLACED
    assert second.outcome is Outcome.STAYS
    assert second.why == (
        "FederatedResourceQuota(default/team) exceeded for resource pods: requested sum 6, limit 5."
    )


def test_a_move_takes_no_more_of_a_quota_than_before() -> None:
    fleet = LiveFleet(
        clusters=(member("west"), member("east")),
        bindings=(workload("web", ONE, {"west": 5}),),
        quotas=(quota(overallUsed={"pods": "5"}),),
    )

    assert only(drained(fleet, "west", ManualClock()).previews).after == {"east": 5}


def test_quotas_of_members_and_room_on_their_nodes_decide_where_a_workload_moves() -> None:
    rooms = [{"count": 1, "free": {"pods": "50"}}]
    limit = {"namespace": "default", "name": "small", "free": {"pods": "1"}}
    limited, free = member("east"), member("north", pods=2)
    limited["status"]["estimate"] = {"nodes": [{"rooms": rooms}], "quotas": [limit]}
    by_room = {**ONE, "replicaScheduling": AGGREGATED}
    fleet = LiveFleet(
        clusters=(member("west"), limited, free),
        bindings=(workload("web", by_room, {"west": 2}),),
    )

    moved = only(drained(fleet, "west", ManualClock()).previews)

    assert moved.after == {"north": 2}
