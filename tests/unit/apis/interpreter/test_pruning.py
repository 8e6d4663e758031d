from typing import Any

import pytest

from clusterspace.apis.interpreter.pruning import pruned
from clusterspace.kube.objects import Object
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
