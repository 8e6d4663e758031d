from tests.corpus import load_scenario
from tests.unit.fleet.execution.member_objects import written

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.templates import retain
from clusterspace.fleet.execution.promotion import effect_of, plan_promotion
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    labels_of,
    name_of,
    with_metadata,
    with_value,
)
from clusterspace.testing.builders import config_map, deployment


def recorded(see: str) -> Object:
    steps = load_scenario("karmada", "promote")["steps"]
    return next(each["objects"] for each in steps if each.get("see") == see)


def test_the_template_is_the_recorded_one() -> None:
    live, kept = recorded("member1: deploy legacy"), recorded("hub: deploy legacy")

    template = plan_promotion(live, "member1").template

    claims = (stamps.POLICY_NAME, stamps.POLICY_NAMESPACE, stamps.POLICY_ID)
    assert template["spec"] == kept["spec"]
    assert annotations_of(template) == {
        key: value for key, value in annotations_of(kept).items() if key not in claims
    }
    assert labels_of(template) == {
        key: value for key, value in labels_of(kept).items() if key not in claims
    }
    assert "status" not in template
    assert set(template["metadata"]) == {"annotations", "labels", "name", "namespace"}


def test_the_policy_is_the_recorded_one_but_for_defaults() -> None:
    live = recorded("member1: deploy legacy")
    listed = recorded("hub: pp")["items"]
    kept = next(each for each in listed if name_of(each).startswith("legacy"))

    policy = plan_promotion(live, "member1").policy

    assert name_of(policy) == name_of(kept)
    defaults = {"preemption", "priority", "schedulerName"}
    assert policy["spec"] == {
        key: value for key, value in kept["spec"].items() if key not in defaults
    }


def test_an_object_without_a_namespace_gets_a_policy_without_one() -> None:
    role: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
    }

    promotion = plan_promotion(role, "west", "chosen")

    assert promotion.policy["kind"] == "ClusterPropagationPolicy"
    assert promotion.policy["metadata"] == {"name": "chosen"}
    assert promotion.policy_path.key == "chosen"


def test_a_resolution_the_owner_chose_is_kept() -> None:
    live = config_map("a", annotations={stamps.CONFLICT_RESOLUTION: "abort"})

    template = plan_promotion(live, "west").template

    assert annotations_of(template)[stamps.CONFLICT_RESOLUTION] == "abort"


def test_stamps_alone_change_nothing_that_counts() -> None:
    live = written(deployment("web"), "kubectl")

    effect = effect_of(live, with_metadata(live, labels={"new": "1"}, annotations={"x": "y"}))

    assert effect.fields == ()
    assert effect.on_pods == ""


def test_a_changed_pod_template_means_that_pods_restart() -> None:
    live = written(deployment("web"), "kubectl")
    containers = [{"name": "main", "image": "web:2"}]
    after = with_value(live, containers, "spec", "template", "spec", "containers")

    effect = effect_of(live, after)

    assert effect.fields == ('spec.template.spec.containers[name="main"].image',)
    assert "pods would restart" in effect.on_pods


def test_fewer_replicas_mean_that_pods_go_and_more_that_none_does() -> None:
    live = written(deployment("web", replicas=3), "kubectl")

    assert effect_of(live, with_value(live, 1, "spec", "replicas")).on_pods == (
        "2 of 3 pods would go"
    )
    assert effect_of(live, with_value(live, 5, "spec", "replicas")).on_pods == ""


def test_a_pod_is_promoted_without_its_node_which_is_the_members() -> None:
    live = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "solo", "namespace": "default"},
        "spec": {"nodeName": "node-0", "containers": [{"name": "web", "image": "nginx"}]},
    }

    template = plan_promotion(live, "west").template

    # With a node only the kubelet of that node could ever let the hub's pod go.
    assert "nodeName" not in template["spec"]
    assert retain(template, live)["spec"]["nodeName"] == "node-0"
