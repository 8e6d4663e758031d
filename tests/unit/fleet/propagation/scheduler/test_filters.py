"""A cluster that may not be used is rejected with a reason people understand."""

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import binding, cluster, plan

from clusterspace.fleet.propagation.scheduler.filters import find_untolerated

TAINT = {"key": "maintenance", "value": "today", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "maintenance", "operator": "Exists"}, True),
        ({"key": "maintenance", "operator": "Equal", "value": "today"}, True),
        ({"key": "maintenance", "value": "today"}, True),
        ({"key": "maintenance", "value": "tomorrow"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({}, False),
    ],
)
def test_tolerations_are_those_of_pods_and_nodes(toleration, is_tolerated):
    assert (find_untolerated([TAINT], [toleration]) is None) is is_tolerated


def test_a_taint_that_only_prefers_keeps_nothing_away():
    assert find_untolerated([{**TAINT, "effect": "PreferNoSchedule"}], []) is None


@pytest.mark.parametrize(
    ("placement", "spec", "reason"),
    [
        (
            {"clusterAffinity": {"clusterNames": ["x"]}},
            {},
            "did not match the placement cluster affinity constraint",
        ),
        ({}, {"taints": [TAINT]}, "had the untolerated taint maintenance=today:NoSchedule"),
        (
            {"spreadConstraints": [{"spreadByField": "region"}]},
            {},
            "did not have the region that the placement spreads over",
        ),
    ],
)
def test_the_reason_says_what_is_in_the_way(placement, spec, reason):
    decision = plan(binding(placement), cluster("east", **spec))

    assert [each.reason for each in decision.rejected] == [reason]


def test_a_kind_the_cluster_does_not_serve_is_named():
    of_widget = binding({})
    of_widget["spec"]["resource"] |= {"apiVersion": "example.com/v1", "kind": "Widget"}

    decision = plan(of_widget, cluster("east"))

    assert decision.rejected[0].reason == "did not serve Widget of example.com/v1"
