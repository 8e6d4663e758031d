"""Workloads that are to be together, or apart."""

from typing import Any

from tests.unit.fleet.propagation.scheduler.fleet_objects import binding, cluster, fleet

from clusterspace.fleet.propagation.scheduler.decisions import Decision, Reason, plan_for
from clusterspace.fleet.propagation.scheduler.peers import Peers, peers_among
from clusterspace.kube.objects import Object, with_metadata, with_value

ONE: Object = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}


def planned(peers: Peers, **given: Any) -> Decision:
    return plan_for(binding(ONE, **given), fleet(*map(cluster, ("a", "b", "c"))), peers)


def member(name: str, *clusters: str, **groups: str) -> Object:
    placed = with_metadata(binding({}, placed=dict.fromkeys(clusters, 0)), name=name)
    return with_value(placed, groups, "spec", "workloadAffinityGroups")


def test_a_workload_joins_those_that_it_belongs_to() -> None:
    assert planned(Peers(beside=frozenset({"c"}))).targets == {"c": 0}


def test_a_workload_keeps_away_from_those_it_is_to_be_apart_from() -> None:
    assert planned(Peers(apart=frozenset({"a", "c"}))).targets == {"b": 0}


def test_where_no_cluster_is_left_it_waits_and_says_why() -> None:
    decision = planned(Peers(beside=frozenset({"a"}), apart=frozenset({"a"})))

    assert decision.reason is Reason.NO_CLUSTER_FIT
    assert "1 cluster(s) already had a workload of the same anti-affinity group" in decision.message
    assert "2 cluster(s) did not have the workloads of the same affinity group" in decision.message


def test_what_is_placed_stays_wherever_others_are() -> None:
    peers = Peers(beside=frozenset({"b"}), apart=frozenset({"a"}))

    assert planned(peers, placed={"a": 0}).targets == {"a": 0}


def test_a_workload_is_together_with_all_of_its_group_and_apart_from_each_of_another() -> None:
    new = member("new", affinityGroup="app=x", antiAffinityGroup="tier=y")
    others = [
        member("one", "a", "b", affinityGroup="app=x"),
        member("two", "b", "c", affinityGroup="app=x"),
        member("nowhere", affinityGroup="app=x"),
        member("other", "a", affinityGroup="app=z"),
        member("three", "a", antiAffinityGroup="tier=y"),
        member("four", "c", antiAffinityGroup="tier=y"),
        new,
    ]

    assert peers_among(new, others) == Peers(frozenset({"b"}), frozenset({"a", "c"}))
    assert peers_among(member("first", affinityGroup="app=new"), others) == Peers()
