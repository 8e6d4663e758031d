"""What a template loses when it leaves the hub, and what a member keeps."""

from typing import Any

import pytest

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.templates import is_autoscaled, pruned, retain
from clusterspace.builtins.pods import MOUNT_PATH, TOKEN_SOURCE
from clusterspace.kube.objects import Object, annotations_of, find_at, labels_of, with_value
from clusterspace.testing.builders import config_map, deployment


def made(api_version: str, kind: str, *, name: str = "web", **parts: Any) -> Object:
    metadata = {"name": name, **parts.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


@pytest.mark.parametrize(
    "field",
    [
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ],
)
def test_what_the_server_wrote_into_the_metadata_goes(field: str) -> None:
    template = config_map("web", {"a": "b"}, **{field: "something"})

    assert pruned(template) == config_map("web", {"a": "b"})


def test_a_status_goes_and_all_that_users_wrote_stays() -> None:
    template = {**deployment("web"), "status": {"replicas": 1}}

    assert pruned(template) == deployment("web")
    assert "status" in template


def test_the_revision_of_a_deployment_is_the_hubs() -> None:
    annotations = {"deployment.kubernetes.io/revision": "3", "mine": "yes"}
    template = made("apps/v1", "Deployment", metadata={"annotations": annotations})

    assert pruned(template)["metadata"]["annotations"] == {"mine": "yes"}


def test_a_job_loses_the_selector_the_hub_made_for_it() -> None:
    made_up = {"controller-uid": "1", "batch.kubernetes.io/controller-uid": "1"}
    names = {"job-name": "web", "batch.kubernetes.io/job-name": "web"}
    template = {"metadata": {"labels": {**made_up, **names, "app": "web"}}, "spec": {}}
    job = made(
        "batch/v1",
        "Job",
        spec={
            "selector": {"matchLabels": made_up},
            "template": template,
            "ttlSecondsAfterFinished": 60,
        },
    )

    assert pruned(job)["spec"] == {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {}}}


def test_a_job_with_a_selector_of_its_own_keeps_it() -> None:
    spec = {
        "manualSelector": True,
        "selector": {"matchLabels": {"controller-uid": "mine"}},
        "template": {"metadata": {"labels": {"controller-uid": "mine"}}},
    }

    assert pruned(made("batch/v1", "Job", spec=spec))["spec"] == spec


def test_a_service_gets_its_address_where_it_goes() -> None:
    spec = {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}]}

    assert pruned(made("v1", "Service", spec=spec))["spec"] == {"ports": [{"port": 80}]}


def test_a_service_that_wants_no_address_says_so_everywhere() -> None:
    spec = {"clusterIP": "None", "clusterIPs": ["None"]}

    assert pruned(made("v1", "Service", spec=spec))["spec"] == spec


def test_a_service_account_takes_none_of_its_tokens_along() -> None:
    secrets = [{"name": "web-token-x7"}, {"name": "registry"}]

    account = made("v1", "ServiceAccount", secrets=secrets)
    assert pruned(account)["secrets"] == [{"name": "registry"}]
    only_tokens = made("v1", "ServiceAccount", secrets=secrets[:1])
    assert "secrets" not in pruned(only_tokens)
    assert "secrets" not in pruned(made("v1", "ServiceAccount"))


def test_a_token_secret_is_sent_without_the_token() -> None:
    annotations = {
        "kubernetes.io/service-account.name": "web",
        "kubernetes.io/service-account.uid": "1",
    }
    secret = made(
        "v1",
        "Secret",
        type="kubernetes.io/service-account-token",
        data={"token": "eA=="},
        metadata={"annotations": annotations},
    )

    bare = pruned(secret)

    assert "data" not in bare
    assert bare["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "web"}


def test_any_other_secret_is_sent_whole() -> None:
    secret = made("v1", "Secret", type="Opaque", data={"a": "Yg=="})

    assert pruned(secret) == secret


def test_a_claim_forgets_the_node_that_was_chosen_for_it() -> None:
    annotations = {"volume.kubernetes.io/selected-node": "node-1"}
    claim = made("v1", "PersistentVolumeClaim", metadata={"annotations": annotations})

    assert "annotations" not in pruned(claim)["metadata"]


def test_objects_of_strangers_keep_everything_but_metadata_and_status() -> None:
    service = made("example.com/v1", "Service", spec={"clusterIP": "10.0.0.1"}, status={"a": 1})

    assert pruned(service)["spec"] == {"clusterIP": "10.0.0.1"}


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


MOUNT = {"readOnly": True, "mountPath": MOUNT_PATH}
TOKEN = {"name": "kube-api-access-ab3de", "projected": TOKEN_SOURCE}


def mounting(*mounts: Object, **spec: Any) -> Object:
    container = {"name": "a", "image": "a:1", **({"volumeMounts": list(mounts)} if mounts else {})}
    return of_kind("v1", "Pod", spec={"containers": [container], **spec})


def test_what_the_hub_adds_to_a_pod_stays_on_the_hub() -> None:
    own = {"name": "data", "emptyDir": {}}
    mine = {"name": "data", "mountPath": "/data"}
    completed = mounting(
        mine,
        {**MOUNT, "name": TOKEN["name"]},
        volumes=[own, TOKEN],
        priority=7,
        preemptionPolicy="Never",
        priorityClassName="gold",
    )

    kept = pruned(completed)

    assert kept == mounting(mine, volumes=[own], priorityClassName="gold")
    bare = mounting({**MOUNT, "name": TOKEN["name"]}, volumes=[TOKEN])
    assert pruned(bare) == mounting()


@pytest.mark.parametrize(
    "written",
    [
        mounting({**MOUNT, "name": "kube-api-access-ab3de"}, volumes=[{**TOKEN, "name": "other"}]),
        mounting({"name": TOKEN["name"], "mountPath": "/elsewhere"}, volumes=[TOKEN]),
        mounting(
            {**MOUNT, "name": TOKEN["name"]}, volumes=[TOKEN], automountServiceAccountToken=False
        ),
        mounting(volumes=[{"name": TOKEN["name"], "emptyDir": {}}]),
    ],
)
def test_a_token_volume_that_somebody_wrote_goes_along(written: Object) -> None:
    assert pruned(written) == written


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
