"""The scheduler looks at bindings that are its own, and at no others."""

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import binding

from clusterspace.fleet.propagation.scheduler.demands import is_to_schedule, read_demand
from clusterspace.kube.objects import Object, with_metadata, with_value
from clusterspace.kube.quantities import parse_quantity

OURS = binding({}, replicas=2)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (OURS, True),
        (with_metadata(OURS, labels={"binding.karmada.io/managed-by": "someone"}), True),
        (with_metadata(OURS, labels={}), False),
        (with_metadata(OURS, deletionTimestamp="2024-01-01T00:00:00Z"), False),
        (with_value(OURS, "default-scheduler", "spec", "schedulerName"), True),
        (with_value(OURS, "another", "spec", "schedulerName"), False),
        (with_value(OURS, {"scheduling": True}, "spec", "suspension"), False),
        (with_value(OURS, {"dispatching": True}, "spec", "suspension"), True),
        (with_value(OURS, None, "spec", "placement"), False),
    ],
)
def test_only_claimed_bindings_that_are_not_held_back_are_scheduled(held: Object, expected: bool):
    assert is_to_schedule(held) is expected


def test_what_each_replica_needs_is_read():
    needing = binding({}, replicas=2, replicaRequirements={"resourceRequest": {"cpu": "250m"}})

    assert read_demand(needing).each_needs == {"cpu": parse_quantity("250m")}


def test_objects_of_several_parts_are_not_shared_out():
    parts = [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]

    assert not read_demand(binding({}, replicas=3, components=parts)).has_replicas


def test_a_deployment_scaled_to_nothing_still_has_replicas_to_share():
    assert read_demand(binding({}, replicaRequirements={})).has_replicas
    assert not read_demand(binding({})).has_replicas
