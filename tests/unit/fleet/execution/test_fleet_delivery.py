"""Works in KubeFleet's shape: how they are to be applied, and what its agent's word is worth."""

from typing import Any

import pytest

from clusterspace.apis.fleet_placements import APPLY_TYPE, CO_OWNERSHIP, COMPARISON, WHEN_TO_APPLY
from clusterspace.apis.stamps import CONFLICT_RESOLUTION
from clusterspace.fleet.execution.fleet_delivery import (
    WORK_GENERATION,
    apply_strategy,
    fleet_work_of,
    keeps_objects,
    results_of,
)
from clusterspace.kube.objects import Object

CONFIG_MAP: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings", "namespace": "app"},
    "data": {"v": "1"},
}
NAMESPACE: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "app"}}
PLACED = {"kubernetes-fleet.io/parent-CRP": "crp"}


def work(*manifests: Object, labels: Object | None = None, **annotations: str) -> Object:
    named = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    return {
        "metadata": {
            "name": "w",
            "namespace": "karmada-es-west",
            "uid": "u",
            "generation": 3,
            "labels": labels or {},
            "annotations": named,
        },
        "spec": {"workload": {"manifests": list(manifests or (CONFIG_MAP,))}},
    }


def annotated(**annotations: str) -> Object:
    made = work()
    made["metadata"]["annotations"] = annotations
    return made


def reported(*entries: Object, generation: int = 5, of: str = "3", observed: int = 5) -> Object:
    condition = {"type": "Applied", "status": "True", "observedGeneration": observed}
    return {
        "metadata": {"generation": generation, "annotations": {WORK_GENERATION: of}},
        "status": {"conditions": [condition], "manifestConditions": list(entries)},
    }


def entry(status: str = "True", reason: str = "Applied", **more: Any) -> Object:
    identifier = {
        "ordinal": 0, "version": "v1", "kind": "ConfigMap", "resource": "configmaps",
        "namespace": "app", "name": "settings",
    }  # fmt: skip
    applied = {"type": "Applied", "status": status, "reason": reason, "observedGeneration": 2}
    available = {"type": "Available", "status": "True", "reason": "Available"}
    return {"identifier": identifier, "conditions": [applied, available], **more}


def test_manifests_are_handed_over_as_they_are() -> None:
    handed = fleet_work_of(work(CONFIG_MAP, NAMESPACE), "west")

    assert handed["spec"]["workload"]["manifests"] == [CONFIG_MAP, NAMESPACE]
    assert handed["metadata"]["namespace"] == "fleet-member-west"
    assert handed["metadata"]["name"] == "w"


@pytest.mark.parametrize(
    ("annotations", "field", "value"),
    [
        ({CONFLICT_RESOLUTION: "overwrite"}, "whenToTakeOver", "Always"),
        ({CONFLICT_RESOLUTION: "abort"}, "whenToTakeOver", "Never"),
        ({}, "whenToTakeOver", "Never"),
        ({"clusterspace.io/when-to-take-over": "IfNoDiff"}, "whenToTakeOver", "IfNoDiff"),
        ({APPLY_TYPE: "ReportDiff"}, "type", "ReportDiff"),
        ({}, "type", "ClientSideApply"),
        ({WHEN_TO_APPLY: "IfNotDrifted"}, "whenToApply", "IfNotDrifted"),
        ({COMPARISON: "FullComparison"}, "comparisonOption", "FullComparison"),
        ({CO_OWNERSHIP: "true"}, "allowCoOwnership", True),
    ],
)
def test_how_a_work_is_applied_is_carried_over(
    annotations: dict[str, str], field: str, value: Any
) -> None:
    assert apply_strategy(annotated(**annotations))[field] == value


def test_a_namespace_that_comes_along_is_never_taken_over() -> None:
    along = work(NAMESPACE)
    along["metadata"]["annotations"] = {CONFLICT_RESOLUTION: "overwrite"}

    assert apply_strategy(along)["whenToTakeOver"] == "Never"


LEAVING: Object = {"metadata": {"name": "west", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
STAYING: Object = {"metadata": {"name": "west"}}


@pytest.mark.parametrize(
    ("manifest", "labels", "asked", "cluster", "keeps"),
    [
        (CONFIG_MAP, {}, False, STAYING, False),
        (CONFIG_MAP, {}, False, LEAVING, False),
        (NAMESPACE, {}, False, STAYING, True),
        (NAMESPACE, {}, True, STAYING, False),
        (NAMESPACE, PLACED, False, STAYING, False),
        (NAMESPACE, PLACED, False, LEAVING, True),
    ],
)
def test_a_namespace_stays_unless_somebody_let_go_of_it(
    manifest: Object, labels: Object, asked: bool, cluster: Object, keeps: bool
) -> None:
    going = work(manifest, labels=labels)
    if asked:
        going["metadata"]["annotations"] = {"clusterspace.io/deletion-asked-for": "true"}

    assert keeps_objects(going, cluster) is keeps


def test_everything_stays_on_a_leave_that_keeps_it() -> None:
    keeping = {"clusterspace.io/keep-resources-on-leave": "true"}
    leaving = {"metadata": {**LEAVING["metadata"], "annotations": keeping}}

    assert keeps_objects(work(), leaving)


@pytest.mark.parametrize("stale", [{"of": "2"}, {"observed": 4}, {"generation": 6}])
def test_a_report_about_an_earlier_state_is_no_answer(stale: dict[str, Any]) -> None:
    assert results_of(work(), reported(entry(), **stale)) is None


def test_an_applied_object_is_told_with_its_health_and_status() -> None:
    status = {"observedStatus": {"apiVersion": "v1", "kind": "ConfigMap", "status": {"a": 1}}}

    results = results_of(work(), reported(entry(backReportedStatus=status)))

    assert results is not None
    assert results[0].problem == ""
    assert results[0].interpreted is not None
    assert results[0].interpreted.health == "Healthy"
    assert results[0].interpreted.status == {"a": 1}


@pytest.mark.parametrize(
    "identifier",
    [
        {"name": "other"},
        {"namespace": "kube-system"},
        {"kind": "Secret"},
        {"group": "apps"},
        {"ordinal": 1},
        {"ordinal": -1},
        {"ordinal": "0"},
    ],
)
def test_an_entry_about_something_else_is_not_believed(identifier: Object) -> None:
    told = entry()
    told["identifier"] = {**told["identifier"], **identifier}

    results = results_of(work(), reported(told))

    assert results is not None
    assert results[0].live is None
    assert "does not say" in results[0].problem


def test_an_object_of_somebody_else_is_told_as_being_there_already() -> None:
    results = results_of(work(), reported(entry("False", "NotTakenOver")))

    assert results is not None
    assert "already exists in the cluster" in results[0].problem


@pytest.mark.parametrize(
    "observed",
    [
        {"apiVersion": "v1", "kind": "Secret", "status": {"a": 1}},
        {"apiVersion": "v1", "kind": "ConfigMap", "status": {"a": "x" * 70_000}},
        {"apiVersion": "v1", "kind": "ConfigMap", "status": "text"},
        "text",
    ],
)
def test_a_status_that_is_not_one_of_the_object_is_left_out(observed: Any) -> None:
    told = entry(backReportedStatus={"observedStatus": observed})

    results = results_of(work(), reported(told))

    assert results is not None
    assert results[0].interpreted is not None
    assert results[0].interpreted.status is None
