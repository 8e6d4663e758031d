from typing import Any

from clusterspace.apis import stamps
from clusterspace.apis.works import (
    Report,
    binding_key_of,
    cluster_of,
    identifier_of,
    manifests_of,
    preserves_resources,
    report_of,
    suspends_dispatching,
)
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map, deployment


def work(*, annotations: dict[str, str] | None = None, **parts: Any) -> Object:
    metadata = {
        "name": "web-1",
        "namespace": "karmada-es-north",
        "annotations": annotations or {},
    }
    return {"metadata": metadata, **parts}


def reported(manifest: Object, condition: Object, *statuses: Object) -> Object:
    return work(
        spec={"workload": {"manifests": [manifest]}},
        status={"conditions": [condition], "manifestStatuses": list(statuses)},
    )


def test_a_work_is_for_the_cluster_whose_execution_space_it_is_in() -> None:
    assert cluster_of(work()) == "north"


def test_a_work_without_a_spec_holds_nothing_and_asks_for_nothing() -> None:
    assert manifests_of(work()) == ()
    assert not suspends_dispatching(work())
    assert not preserves_resources(work())


def test_a_work_knows_its_binding_of_either_kind() -> None:
    namespaced = {stamps.BINDING_NAMESPACE: "shop", stamps.BINDING_NAME: "web-deployment"}
    cluster_wide = {stamps.CLUSTER_BINDING_NAME: "reader-clusterrole"}

    assert binding_key_of(work(annotations=namespaced)) == "shop/web-deployment"
    assert binding_key_of(work(annotations=cluster_wide)) == "reader-clusterrole"
    assert binding_key_of(work()) == ""


def test_an_identifier_leaves_out_what_is_empty_but_for_the_resource() -> None:
    assert identifier_of(config_map("web"), 0) == {
        "kind": "ConfigMap",
        "name": "web",
        "namespace": "default",
        "version": "v1",
        "ordinal": 0,
        "resource": "",
    }


def test_a_cluster_that_applied_the_object_reports_its_status_and_health() -> None:
    manifest = deployment("web")
    told = {
        "identifier": identifier_of(manifest, 0),
        "status": {"replicas": 2},
        "health": "Healthy",
    }
    applied = {"type": "Applied", "status": "True", "message": "fine"}

    assert report_of(reported(manifest, applied, told)) == Report(
        "north", is_applied=True, status={"replicas": 2}, health="Healthy"
    )


def test_a_cluster_that_did_not_apply_it_reports_why_and_nothing_else() -> None:
    manifest = deployment("web")
    told = {"identifier": identifier_of(manifest, 0), "status": {"replicas": 2}}
    refused = {"type": "Applied", "status": "False", "message": "it is somebody else's"}

    assert report_of(reported(manifest, refused, told)) == Report(
        "north", is_applied=False, message="it is somebody else's"
    )


def test_a_status_of_another_object_is_no_report_of_this_one() -> None:
    told = {"identifier": identifier_of(deployment("old"), 0), "status": {"replicas": 2}}
    applied = {"type": "Applied", "status": "True"}

    assert report_of(reported(deployment("web"), applied, told)) == Report("north", is_applied=True)


def test_a_work_nobody_looked_at_yet_reports_that_it_is_not_applied() -> None:
    assert report_of(work()) == Report("north", is_applied=False)
