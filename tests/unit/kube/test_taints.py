"""Which toleration is for which taint."""

import pytest

from clusterspace.kube.selectors import tolerates

TAINT = {"key": "disk", "value": "slow", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "disk", "value": "slow"}, True),
        ({"key": "disk", "value": "slow", "operator": "Equal", "effect": "NoSchedule"}, True),
        ({"key": "disk", "value": "quick"}, False),
        ({"key": "disk"}, False),
        ({"key": "disk", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "net", "operator": "Exists"}, False),
        ({"value": "slow"}, False),
        ({}, False),
    ],
)
def test_a_toleration_is_for_the_taints_it_names(toleration, expected):
    assert tolerates(toleration, TAINT) is expected


def test_no_value_is_the_empty_value():
    assert tolerates({"key": "disk", "value": ""}, {"key": "disk", "effect": "NoSchedule"})
