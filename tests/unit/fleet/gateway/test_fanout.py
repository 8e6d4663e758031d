"""Who is asked, who is skipped, and why."""

from clusterspace.errors import ClusterTimeout, Forbidden
from clusterspace.fleet.gateway.fanout import Candidate, pick_targets


def test_those_in_whose_way_nothing_stands_are_asked_in_order():
    targets = pick_targets([Candidate("karmada"), Candidate("east"), Candidate("west")])

    assert targets.chosen == ("karmada", "east", "west")
    assert targets.skipped == ()


def test_who_may_not_reach_a_cluster_does_not_learn_how_it_is():
    refusal, problem = Forbidden("no"), ClusterTimeout("east", "late")

    targets = pick_targets([Candidate("east", refusal, problem), Candidate("west", None, problem)])

    assert targets.chosen == ()
    assert [(each.cluster, each.why) for each in targets.skipped] == [
        ("east", "no"),
        ("west", "late"),
    ]
