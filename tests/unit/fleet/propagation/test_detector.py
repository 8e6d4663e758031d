"""One binding per claimed template: the detector's fields, and nobody else's."""

from typing import Any

import pytest
from tests.unit.fleet.propagation.policy_objects import config_maps, policy

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.templates import replicas_in
from clusterspace.controllers.commit import plan_commit
from clusterspace.fleet.propagation.bindings import (
    Policy,
    binding_path,
    is_own,
    new_binding,
    read_policy,
)
from clusterspace.fleet.propagation.detector import Size, bound
from clusterspace.kube.objects import Object, find_at, labels_of, metadata_of, with_value
from clusterspace.testing.builders import config_map, deployment

WEB = config_map("Web:1", namespace="shop", uid="uid-1", resourceVersion="7")
ROLE: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "reader", "uid": "uid-2", "resourceVersion": "8"},
}


def a_policy(**spec: Any) -> Policy:
    held = policy("all", "shop", config_maps(), **{"conflictResolution": "Abort", **spec})
    labelled = with_value(held, {stamps.POLICY_ID: "id-1"}, "metadata", "labels")
    return read_policy(labelled)


def bind(template: Object, binding: Object | None = None, **spec: Any) -> Object:
    held = binding or new_binding(template, "id-9")
    size = Size(replicas_in(template))
    return bound(held, template, a_policy(**spec), size, takes_version=True)


def test_a_new_binding_is_owned_held_and_named_as_karmada_would() -> None:
    made = bind(WEB)

    assert binding_path(WEB).key == "shop/web.1-configmap"
    assert metadata_of(made) == {
        "name": "web.1-configmap",
        "namespace": "shop",
        "labels": {stamps.BINDING_ID: "id-9", stamps.POLICY_ID: "id-1"},
        "annotations": {stamps.POLICY_NAMESPACE: "shop", stamps.POLICY_NAME: "all"},
        "finalizers": ["karmada.io/binding-controller"],
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "Web:1",
                "uid": "uid-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def test_what_has_no_namespace_gets_a_cluster_binding() -> None:
    made = new_binding(ROLE, "id-9")

    assert made["kind"] == "ClusterResourceBinding"
    assert "namespace" not in made["metadata"]
    assert labels_of(made) == {stamps.CLUSTER_BINDING_ID: "id-9"}
    assert metadata_of(made)["finalizers"] == ["karmada.io/cluster-resource-binding-controller"]


def test_binding_again_changes_nothing() -> None:
    made = bind(WEB)

    assert bind(WEB, made) == made
    assert plan_commit(made, bind(WEB, made)) is None


def test_what_others_wrote_stays() -> None:
    theirs = {
        "clusters": [{"name": "one"}],
        "requiredBy": [{"name": "x"}],
        "suspension": {"scheduling": True, "dispatching": True},
        "rescheduleTriggeredAt": "now",
    }
    made = bind(WEB)
    held = {**made, "spec": {**made["spec"], **theirs}, "status": {"conditions": []}}
    labelled = with_value(held, {**labels_of(held), "their": "label"}, "metadata", "labels")

    after = bind(WEB, labelled)

    assert after["status"] == {"conditions": []}
    assert labels_of(after)["their"] == "label"
    assert after["spec"] == {**held["spec"], "suspension": {"scheduling": True}}


def test_what_the_policy_no_longer_says_goes() -> None:
    said: Object = {
        "failover": {"cluster": {"purgeMode": "Directly"}},
        "preserveResourcesOnDeletion": True,
        "propagateDeps": True,
        "suspension": {"dispatching": True},
    }
    made = bind(WEB, **said)
    assert {key: made["spec"][key] for key in said} == said

    after = bind(WEB, made, propagateDeps=False)

    assert set(after["spec"]) == {"conflictResolution", "placement", "resource"}


def test_replicas_are_copied_and_none_are_left_out() -> None:
    web = deployment("web", replicas=3, namespace="shop")

    assert bind(web)["spec"]["replicas"] == 3
    assert "replicas" not in bind(deployment("web", replicas=0, namespace="shop"))["spec"]
    assert "replicas" not in bind(WEB)["spec"]


def test_a_policy_without_a_placement_places_everywhere() -> None:
    assert bind(WEB, placement=None)["spec"]["placement"] == {}


@pytest.mark.parametrize(("takes_version", "expected"), [(True, "9"), (False, "7")])
def test_the_version_is_taken_when_there_is_news(takes_version: bool, expected: str) -> None:
    later = with_value(WEB, "9", "metadata", "resourceVersion")

    after = bound(bind(WEB), later, a_policy(), Size(), takes_version=takes_version)

    assert find_at(after, "spec", "resource", "resourceVersion") == expected


def test_a_binding_of_another_template_of_that_name_is_not_ours() -> None:
    again = with_value(WEB, "uid-3", "metadata", "uid")

    assert is_own(bind(WEB), WEB)
    assert not is_own(bind(WEB), again)
    assert is_own({"metadata": {}}, WEB)


def test_a_binding_has_the_groups_that_the_labels_of_its_template_say() -> None:
    placement = {
        "workloadAffinity": {
            "affinity": {"groupByLabelKey": "app"},
            "antiAffinity": {"groupByLabelKey": "tier"},
        }
    }
    labelled = with_value(WEB, {"app": "shop"}, "metadata", "labels")
    cluster_wide = with_value(ROLE, {"app": "shop"}, "metadata", "labels")

    def groups(template: Object, **spec: Any) -> object:
        return find_at(bind(template, **spec), "spec", "workloadAffinityGroups")

    assert groups(labelled, placement=placement) == {"affinityGroup": "app=shop"}
    assert groups(WEB, placement=placement) is None
    assert groups(labelled) is None
    assert groups(cluster_wide, placement=placement) is None
    before = bind(labelled, placement=placement)
    assert find_at(bind(WEB, before, placement=placement), "spec", "workloadAffinityGroups") is None
