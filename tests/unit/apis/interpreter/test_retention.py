from typing import Any

import pytest

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.retention import is_autoscaled, retain
from clusterspace.kube.objects import Object, annotations_of, find_at, labels_of, with_value
from clusterspace.testing.builders import config_map, deployment


def of_kind(api_version: str, kind: str, **content: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **content}


def scaled_by(live: Object, manager: str) -> Object:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "apps/v1",
        "subresource": "scale",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    return with_value(live, [entry], "metadata", "managedFields")


@pytest.mark.parametrize(
    ("kind", "live", "wanted", "path"),
    [
        ("Service", {"clusterIP": "10.0.0.7"}, {"ports": []}, ("spec", "clusterIP")),
        ("Service", {"healthCheckNodePort": 30000}, {}, ("spec", "healthCheckNodePort")),
        ("PersistentVolumeClaim", {"volumeName": "pv-1"}, {}, ("spec", "volumeName")),
        ("PersistentVolume", {"claimRef": {"name": "c"}}, {}, ("spec", "claimRef")),
        ("Pod", {"nodeName": "n1"}, {"containers": []}, ("spec", "nodeName")),
        ("Pod", {"volumes": [{"name": "token"}]}, {}, ("spec", "volumes")),
        ("Pod", {"serviceAccountName": "robot"}, {}, ("spec", "serviceAccountName")),
    ],
)
def test_what_the_member_decides_stays(
    kind: str, live: Object, wanted: Object, path: tuple[str, ...]
) -> None:
    held = of_kind("v1", kind, spec=live)

    kept = retain(of_kind("v1", kind, spec=wanted), held)

    assert find_at(kept, *path) == find_at(held, *path)


def test_a_pod_keeps_what_was_mounted_into_each_of_its_containers() -> None:
    mounts = [{"name": "token", "mountPath": "/var/run"}]
    live = of_kind("v1", "Pod", spec={"containers": [{"name": "a", "volumeMounts": mounts}]})
    wanted = of_kind("v1", "Pod", spec={"containers": [{"name": "a"}, {"name": "b"}]})

    kept = retain(wanted, live)

    assert kept["spec"]["containers"] == [{"name": "a", "volumeMounts": mounts}, {"name": "b"}]


def test_a_job_keeps_the_labels_it_finds_its_pods_by() -> None:
    labels = {"batch.kubernetes.io/controller-uid": "1"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    live = of_kind("batch/v1", "Job", spec=spec)

    kept = retain(of_kind("batch/v1", "Job", spec={"template": {"spec": {}}}), live)

    assert find_at(kept, "spec", "selector", "matchLabels") == labels
    assert find_at(kept, "spec", "template", "metadata", "labels") == labels
    assert find_at(kept, "spec", "template", "spec") == {}


def test_an_account_keeps_the_tokens_its_cluster_gave_it() -> None:
    live = of_kind("v1", "ServiceAccount", secrets=[{"name": "x-token-1"}, {"name": "ours"}])

    kept = retain(of_kind("v1", "ServiceAccount", secrets=[{"name": "ours"}]), live)

    assert kept["secrets"] == [{"name": "ours"}, {"name": "x-token-1"}]


def test_the_data_of_a_token_secret_is_the_members_and_of_others_it_is_not() -> None:
    token = "kubernetes.io/service-account-token"
    live = of_kind("v1", "Secret", type=token, data={"token": "member"})
    opaque = of_kind("v1", "Secret", type="Opaque", data={"a": "member"})
    wanted = of_kind("v1", "Secret", data={"a": "hub"})

    assert retain(wanted, live)["data"] == {"token": "member"}
    assert retain(wanted, opaque)["data"] == {"a": "hub"}


@pytest.mark.parametrize(
    ("manager", "is_machine"),
    [("kube-controller-manager", True), ("keda-operator", True), ("kubectl", False)],
)
def test_replicas_stay_when_an_autoscaler_set_them_and_only_then(
    manager: str, *, is_machine: bool
) -> None:
    live = scaled_by(deployment("web", replicas=5), manager)

    kept = retain(deployment("web", replicas=2), live)

    assert is_autoscaled(live) is is_machine
    assert kept["spec"]["replicas"] == (5 if is_machine else 2)


def test_replicas_stay_when_the_template_says_so() -> None:
    wanted = deployment("web", replicas=2)
    wanted = with_value(wanted, {stamps.RETAIN_REPLICAS: "true"}, "metadata", "labels")

    assert retain(wanted, deployment("web", replicas=5))["spec"]["replicas"] == 5


def test_labels_of_the_member_stay_and_those_the_template_dropped_go() -> None:
    annotations = {stamps.MANAGED_LABELS_LIST: "kept,dropped"}
    labels = {"kept": "old", "dropped": "1", "theirs": "2"}
    live = config_map("a", labels=labels, annotations=annotations)

    kept = retain(config_map("a", labels={"kept": "new"}), live)

    assert labels_of(kept) == {"kept": "new", "theirs": "2"}


def test_annotations_follow_the_same_rule() -> None:
    annotations = {stamps.MANAGED_ANNOTATIONS_LIST: "dropped", "dropped": "1", "theirs": "2"}
    live = config_map("a", annotations=annotations)

    kept = retain(config_map("a", annotations={"new": "1"}), live)

    listed = {stamps.MANAGED_ANNOTATIONS_LIST: "dropped"}
    assert annotations_of(kept) == {**listed, "theirs": "2", "new": "1"}
