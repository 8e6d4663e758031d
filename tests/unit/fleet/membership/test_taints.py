"""Taints follow the Ready condition and leave people's own taints alone."""

import pytest
from tests.unit.fleet.membership.fleet_objects import cluster

from clusterspace.errors import Malformed
from clusterspace.fleet.membership.controller import (
    CORDON,
    Taint,
    TaintEdit,
    edited_taints,
    health_taints,
    parse_edit,
    with_taints,
)

NOW = 1_800_000_000.0
OWN = {"key": "team", "value": "a", "effect": "NoExecute"}
NOT_READY = "cluster.karmada.io/not-ready"
UNREACHABLE = "cluster.karmada.io/unreachable"


@pytest.mark.parametrize(
    ("ready", "key"), [("False", NOT_READY), ("Unknown", UNREACHABLE), ("", NOT_READY)]
)
def test_a_cluster_that_is_not_ready_gets_no_new_work(ready: str, key: str) -> None:
    taints = health_taints(cluster(ready=ready, taints=[OWN]), NOW)

    added = {"key": key, "effect": "NoSchedule", "timeAdded": "2027-01-15T08:00:00Z"}
    assert taints == [OWN, added]


def test_a_ready_cluster_loses_only_the_taints_the_hub_gave_it() -> None:
    held = [OWN, {"key": NOT_READY, "effect": "NoSchedule"}, CORDON.to_object()]

    assert health_taints(cluster(ready="True", taints=held), NOW) == [OWN, CORDON.to_object()]


def test_a_taint_that_is_there_keeps_its_time() -> None:
    held = [{"key": NOT_READY, "effect": "NoSchedule", "timeAdded": "2020-01-01T00:00:00Z"}]

    assert health_taints(cluster(ready="False", taints=held), NOW) == held


def test_one_reason_replaces_the_other() -> None:
    held = [{"key": NOT_READY, "effect": "NoSchedule"}]

    taints = health_taints(cluster(ready="Unknown", taints=held), NOW)

    assert [each["key"] for each in taints] == [UNREACHABLE]


def test_a_cluster_without_taints_has_no_field_for_them() -> None:
    assert "taints" not in with_taints(cluster(taints=[OWN]), [])["spec"]


def test_taints_are_read_as_kubectl_reads_them() -> None:
    edit = parse_edit(["a=b:NoSchedule", "c:NoExecute", "d-", "e:PreferNoSchedule-"])

    assert edit.added == (Taint("a", "NoSchedule", "b"), Taint("c", "NoExecute"))
    assert edit.removed == (Taint("d", ""), Taint("e", "PreferNoSchedule"))


@pytest.mark.parametrize("word", ["a", "a=b", "a=b:Sometimes", "=b:NoSchedule", "a b:NoSchedule"])
def test_what_is_no_taint_is_refused(word: str) -> None:
    with pytest.raises(Malformed, match="is no taint"):
        parse_edit([word])


def test_setting_a_taint_again_changes_its_value_and_nothing_else() -> None:
    present = [OWN, {"key": "a", "effect": "NoSchedule", "timeAdded": "2020-01-01T00:00:00Z"}]

    assert edited_taints(present, TaintEdit(added=(Taint("a", "NoSchedule"),))) == present
    changed = edited_taints(present, TaintEdit(added=(Taint("team", "NoExecute", "b"),)))
    assert changed[0]["value"] == "b"
    assert edited_taints(present, TaintEdit(removed=(Taint("team", ""),))) == present[1:]
