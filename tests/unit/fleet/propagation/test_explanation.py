"""People are told why an object is where it is, in words they can act on."""

from typing import Any

import msgspec
import pytest
from tests.corpus import load_scenario
from tests.unit.fleet.propagation.scheduler.fleet_objects import CORDON, binding, cluster, names

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import PARENT
from clusterspace.client.discovery import ServedResources
from clusterspace.errors import NotServed
from clusterspace.fleet.propagation.explanation import (
    Evidence,
    LiveNote,
    Standing,
    explain,
    find_named,
    state_text,
    work_note,
)
from clusterspace.kube.objects import Object, with_metadata, with_value
from clusterspace.kube.resources import ResourceInfo
from clusterspace.testing.builders import deployment

EAST, WEST, NORTH = cluster("east"), cluster("west"), cluster("north")


def policy(
    name: str, *, namespace: str = "default", by: Object | None = None, **spec: Any
) -> Object:
    selector = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        **({"name": "web"} if by is None else by),
    }
    held: Object = {"name": name, "labels": {stamps.POLICY_ID: f"id-of-{name}"}}
    if namespace:
        held["namespace"] = namespace
    return {
        "kind": "PropagationPolicy" if namespace else "ClusterPropagationPolicy",
        "metadata": held,
        "spec": {"resourceSelectors": [selector], **spec},
    }


def claimed(by: str) -> Object:
    return with_metadata(
        deployment("web"),
        labels={"app": "web", stamps.POLICY_ID: f"id-of-{by}"},
        annotations={stamps.POLICY_NAME: by, stamps.POLICY_NAMESPACE: "default"},
    )


def work(cluster_name: str, *, applied: str = "True", message: str = "", **spec: Any) -> Object:
    manifest = deployment("web")
    identifier = {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
        "namespace": "default",
        "name": "web",
        "ordinal": 0,
        "resource": "",
    }
    status = {"replicas": 2, "readyReplicas": 1}
    return {
        "metadata": {"namespace": f"karmada-es-{cluster_name}", "name": "web-687f7fb96f"},
        "spec": {"workload": {"manifests": [manifest]}, **spec},
        "status": {
            "conditions": [{"type": "Applied", "status": applied, "message": message}],
            "manifestStatuses": [
                {"identifier": identifier, "status": status, "health": "Unhealthy"}
            ],
        },
    }


def scheduled(held: Object, status: str = "True", message: str = "") -> Object:
    told = {"type": "Scheduled", "status": status, "reason": "Some", "message": message}
    return with_value(held, [told], "status", "conditions")


def test_without_a_policy_it_stays_on_the_hub():
    told = explain(Evidence(deployment("web"), policies=(policy("x", by={"name": "other"}),)))

    assert told.summary == "It stays on the hub: no policy selects it."
    assert told.policy is None
    assert told.other_policies == ()


def test_the_policy_followed_is_told_with_how_it_selects():
    told = explain(Evidence(claimed("mine"), policies=(policy("mine", priority=3),)))

    assert told.policy is not None
    assert (told.policy.kind, told.policy.name) == ("PropagationPolicy", "default/mine")
    assert (told.policy.why, told.policy.priority) == ("selects it by name", 3)
    assert told.summary == "It waits for its binding."


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (policy("x", namespace=""), "a policy of the namespace comes first"),
        (policy("x", priority=4), "its priority 4 is below 5"),
        (policy("x", by={}, priority=5), "selects all of its kind, which is less precise"),
        (policy("x", priority=5), "its name comes later in the alphabet"),
        (policy("a", priority=5), "came later, and a claim is kept"),
        (policy("x", priority=9), "came later, and a claim is kept"),
    ],
)
def test_policies_that_lost_are_told_what_they_lack(other: Object, why: str):
    told = explain(Evidence(claimed("mine"), policies=(policy("mine", priority=5), other)))

    assert [each.why for each in told.other_policies] == [why]


def test_a_policy_that_goes_or_cannot_be_read_is_said_to():
    going = with_metadata(
        policy("going"), name="going", namespace="default", deletionTimestamp="2024-01-01T00:00:00Z"
    )
    broken = policy("broken", by={"labelSelector": {"matchExpressions": [{"key": "!"}]}})

    told = explain(Evidence(deployment("web"), policies=(going, broken)))

    whys = {each.name: each.why for each in told.other_policies}
    assert whys["default/going"] == "is being deleted"
    assert whys["default/broken"].startswith("cannot be read: spec.resourceSelectors[0]")


def test_a_claim_of_a_policy_that_is_gone_is_named():
    told = explain(Evidence(claimed("gone")))

    assert told.summary == "It stays on the hub: the policy default/gone that claimed it is gone."


def test_overrides_that_are_awaited_are_named():
    waiting = policy("mine", dependentOverrides=["colours"])

    assert "colours" in explain(Evidence(claimed("mine"), policies=(waiting,))).summary


def test_every_cluster_is_told_with_its_reason():
    held = scheduled(binding(names("east", "west"), replicas=2, placed={"east": 2}))
    cordoned = cluster("west", taints=[CORDON])

    told = explain(
        Evidence(
            claimed("mine"), binding=held, works=(work("east"),), clusters=(EAST, cordoned, NORTH)
        )
    )

    east, north, west = told.clusters
    assert (east.name, east.standing, east.replicas) == ("east", Standing.PLACED, 2)
    assert (north.standing, north.why) == (
        Standing.REJECTED,
        "did not match the placement cluster affinity constraint",
    )
    assert west.why.startswith("had the untolerated taint")
    assert told.summary == "It is placed on 1 cluster, and applied on all of them."


def test_what_a_cluster_says_is_told():
    overridden = with_metadata(
        work("east"),
        annotations={
            stamps.APPLIED_CLUSTER_OVERRIDES: '[{"policyName":"region"}]',
            stamps.APPLIED_OVERRIDES: '[{"policyName":"colour"},{"policyName":"colour"}]',
        },
    )
    held = scheduled(binding({}, replicas=2, placed={"east": 2, "west": 2}))
    failing = work("west", applied="False", message="already exists", suspendDispatching=True)

    told = explain(
        Evidence(claimed("mine"), binding=held, works=(overridden, failing), clusters=(EAST, WEST))
    )

    east, west = (each.work for each in told.clusters)
    assert east is not None
    assert west is not None
    assert east.overrides == ("ClusterOverridePolicy region", "OverridePolicy colour")
    assert (east.is_applied, east.health, east.reported) == (True, "Unhealthy", "1/2 ready")
    assert (west.is_applied, west.message, west.is_suspended) == (False, "already exists", True)
    assert told.summary == "It is placed on 2 clusters, and not applied on west."


def test_a_note_somebody_garbled_is_passed_over():
    garbled = with_metadata(work("east"), annotations={stamps.APPLIED_OVERRIDES: "nonsense"})
    held = scheduled(binding({}, replicas=2, placed={"east": 2}))

    told = explain(Evidence(claimed("mine"), binding=held, works=(garbled,), clusters=(EAST,)))

    assert told.clusters[0].work is not None
    assert told.clusters[0].work.overrides == ()


def test_a_cluster_that_still_has_it_is_said_to_be_giving_it_up():
    held = scheduled(binding(names("east"), replicas=2, placed={"east": 2}))

    told = explain(
        Evidence(claimed("mine"), binding=held, works=(work("west"),), clusters=(EAST, WEST))
    )

    assert told.clusters[1].standing is Standing.WITHDRAWING
    assert told.clusters[1].why == "did not match the placement cluster affinity constraint"


def test_a_dependency_names_what_needs_it():
    needed = binding(
        {}, requiredBy=[{"namespace": "shop", "name": "web", "clusters": [{"name": "east"}]}]
    )
    attached = with_metadata(with_value(needed, None, "spec", "placement"), labels={})

    told = explain(Evidence(deployment("web"), binding=attached, clusters=(EAST, WEST)))

    assert [(each.name, each.standing, each.why) for each in told.clusters] == [
        ("east", Standing.REQUIRED, "needed there by shop/web")
    ]


def test_a_target_that_left_the_fleet_is_said_to_be_gone():
    held = scheduled(binding({}, replicas=1, placed={"old": 1}))

    told = explain(Evidence(claimed("mine"), binding=held, clusters=(EAST,)))

    assert told.clusters[0].why == "is not in the fleet any more"


@pytest.mark.parametrize(
    ("placed", "summary"),
    [
        ({}, "0/1 clusters are available."),
        ({"east": 1}, "It is placed on 1 cluster, and stays there: 0/1 clusters are available."),
    ],
)
def test_what_the_scheduler_could_not_do_is_told(placed: dict[str, int], summary: str):
    held = scheduled(binding({}, replicas=1, placed=placed), "False", "0/1 clusters are available.")

    assert explain(Evidence(claimed("mine"), binding=held, clusters=(EAST,))).summary == summary


def test_a_refused_override_is_told_with_what_becomes_of_what_is_there():
    refused = {"type": "WorksWritten", "status": "False", "message": "east: it would change /kind"}
    held = scheduled(binding({}, replicas=2, placed={"east": 2}))
    told = with_value(held, [*held["status"]["conditions"], refused], "status", "conditions")

    note = explain(Evidence(claimed("mine"), (policy("mine"),), told, clusters=(EAST,)))

    assert note.summary == (
        "It is placed on 1 cluster, and what is there stays as it is: east: it would change /kind"
    )


def test_what_never_leaves_the_hub_says_why():
    token = {**deployment("token"), "apiVersion": "v1", "kind": "Secret"}
    token["type"] = "bootstrap.kubernetes.io/token"

    assert explain(Evidence(token)).summary == (
        "It never leaves the hub: "
        "a Secret of type bootstrap.kubernetes.io/token is a credential of the hub."
    )


def test_an_explanation_is_plain_json():
    held = scheduled(binding({}, replicas=1, placed={"east": 1}))
    told = explain(Evidence(claimed("mine"), binding=held, works=(work("east"),), clusters=(EAST,)))

    read = msgspec.json.decode(msgspec.json.encode(told))

    assert read["clusters"][0]["standing"] == "placed"
    assert read["clusters"][0]["work"]["reported"] == "1/2 ready"


def test_the_recorded_deployment_is_explained():
    steps = load_scenario("karmada", "duplicated")["steps"]
    seen = {step["see"]: step["objects"] for step in steps[:7] if "see" in step}
    works = [
        each
        for each in seen["hub: works -A -l "]["items"]
        if stamps.BINDING_NAME in each["metadata"].get("annotations", {})
    ]

    told = explain(
        Evidence(
            seen["hub: deploy dup"],
            policies=(seen["hub: pp dup"],),
            binding=seen["hub: rb dup-deployment"],
            works=tuple(works),
            clusters=(cluster("member1"), cluster("member2")),
        )
    )

    assert told.summary == "It is placed on 2 clusters, and applied on all of them."
    assert told.policy is not None
    assert told.policy.name == "default/dup"
    assert [(each.name, each.replicas) for each in told.clusters] == [
        ("member1", 2),
        ("member2", 2),
    ]
    assert [each.work.reported for each in told.clusters if each.work] == ["0/2 ready"] * 2


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({}, ""),
        ({"replicas": 3, "readyReplicas": 2}, "2/3 ready"),
        ({"desiredNumberScheduled": 4}, "0/4 ready"),
        ({"phase": "Bound"}, "Bound"),
        ({"active": 1, "succeeded": 2}, "1 active, 2 succeeded"),
    ],
)
def test_a_status_is_put_in_a_few_words(status: dict[str, Any], text: str):
    assert state_text(status) == text


def resource(group: str, plural: str, kind: str, *short: str) -> ResourceInfo:
    return ResourceInfo(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=True,
        verbs=("get",),
        short_names=short,
    )


@pytest.mark.parametrize(
    ("word", "group"),
    [
        ("deploy", "apps"),
        ("Deployment", "apps"),
        ("deployments", "apps"),
        ("events", ""),
        ("events.events.k8s.io", "events.k8s.io"),
    ],
)
def test_resources_are_found_by_the_words_kubectl_takes(word: str, group: str):
    served = ServedResources(
        (
            resource("", "events", "Event", "ev"),
            resource("apps", "deployments", "Deployment", "deploy"),
            resource("events.k8s.io", "events", "Event", "ev"),
        )
    )

    assert find_named(served, word).group == group


def test_a_word_that_means_nothing_is_refused():
    with pytest.raises(NotServed, match="nothing called gadget"):
        find_named(ServedResources(()), "gadget")


def namespace(name: str = "shop", **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def namespace_work(cluster_name: str) -> Object:
    applied = {"type": "Applied", "status": "True", "lastTransitionTime": "2026-11-15T12:00:00Z"}
    return {
        "metadata": {"namespace": f"karmada-es-{cluster_name}", "name": "shop-1"},
        "spec": {"workload": {"manifests": [namespace()]}},
        "status": {"conditions": [applied]},
    }


def test_a_namespace_is_said_to_be_on_every_cluster():
    told = explain(
        Evidence(
            namespace(),
            works=(namespace_work("east"), namespace_work("west")),
            clusters=(EAST, WEST),
        )
    )

    assert told.summary.startswith("Every cluster gets it, as it gets every namespace;")
    assert told.summary.endswith("there are 2, and applied on all of them.")
    assert [(each.name, each.standing, each.is_well) for each in told.clusters] == [
        ("east", Standing.PLACED, True),
        ("west", Standing.PLACED, True),
    ]
    assert told.clusters[0].work is not None
    assert told.clusters[0].work.since == "2026-11-15T12:00:00Z"


@pytest.mark.parametrize(
    ("kept", "summary"),
    [
        (namespace("default"), "every cluster has a namespace of this name by itself"),
        (namespace("kube-system"), "belongs to the control plane"),
        (namespace(**{stamps.SKIP_AUTO_PROPAGATION: "true"}), "its label"),
    ],
)
def test_a_namespace_that_stays_on_the_hub_says_why(kept: Object, summary: str):
    told = explain(Evidence(kept, clusters=(EAST,)))

    assert summary in told.summary
    assert told.clusters == ()


def test_what_is_known_of_a_frozen_member_is_not_taken_for_news():
    frozen = with_value(
        WEST,
        [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-15T12:00:00Z"}],
        "status",
        "conditions",
    )
    bound = scheduled(binding({}, replicas=2, placed={"east": 1, "west": 1}))
    evidence = Evidence(
        deployment("web"),
        binding=bound,
        works=(work("east"), work("west")),
        clusters=(EAST, frozen),
    )

    told = explain(evidence)

    assert "what is said of west is old" in told.summary
    assert [each.is_silent for each in told.clusters] == [False, True]
    assert told.clusters[1].ready.since == "2026-11-15T12:00:00Z"
    # Whoever was asked and answered is heard, whatever the hub believes of them.
    answers = {"west": LiveNote(is_there=True, reported="2/2 ready")}
    assert not explain(evidence, answers).clusters[1].is_silent


def test_an_object_of_a_placement_names_the_placement():
    bound = with_metadata(
        scheduled(binding({}, replicas=1, placed={"east": 1})),
        labels={PARENT: "everything", "x": "y"},
    )

    told = explain(Evidence(deployment("web"), binding=bound, placement={"metadata": {}}))

    assert told.policy is not None
    assert (told.policy.kind, told.policy.name) == ("ClusterResourcePlacement", "everything")


def test_paused_deletions_are_told_of_the_cluster_they_pause_on():
    paused = with_value(
        EAST,
        [{"type": "DeletionsPaused", "status": "True", "message": "20 of 30"}],
        "status",
        "conditions",
    )
    told = explain(
        Evidence(
            deployment("web"),
            binding=binding(names("west"), replicas=1),
            works=(work("east"),),
            clusters=(paused,),
        )
    )

    (east,) = told.clusters
    assert (east.standing, east.pause) == (Standing.WITHDRAWING, "20 of 30")


def test_what_an_override_changes_is_named():
    applied = (
        '[{"policyName":"red","overriders":{"imageOverrider":[{"component":"Registry"}],'
        '"plaintext":[{"path":"/spec/replicas"}]}}]'
    )
    changed = with_metadata(work("east"), annotations={stamps.APPLIED_OVERRIDES: applied})

    assert work_note(changed).overrides == ("OverridePolicy red (image, /spec/replicas)",)
