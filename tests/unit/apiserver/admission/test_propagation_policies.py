"""Policies are completed as recorded, and refused with every reason."""

from typing import Any

import pytest
from tests.corpus import load_scenario
from tests.unit.apiserver.hub_subjects import hub_state
from tests.unit.fleet.propagation.policy_objects import config_maps, policy

from clusterspace.apis.crds import definitions
from clusterspace.apis.policies import selectors_of
from clusterspace.apiserver.admission.propagation import PolicyRules
from clusterspace.apiserver.custom_resources import resource_of
from clusterspace.apiserver.http.users import ANONYMOUS
from clusterspace.apiserver.state import Admission
from clusterspace.builtins.definitions import read_definition
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, find_at, metadata_of, with_metadata, with_value

SERVED = {
    read.names.kind: resource_of(read, read.versions[0])
    for read in map(read_definition, definitions())
}


async def admitted(new: Object, old: Object | None = None) -> Object:
    admission = Admission(SERVED[new["kind"]], ANONYMOUS, new, old)
    return await PolicyRules().admit(hub_state(), admission)


async def refused(new: Object, old: Object | None = None) -> set[str]:
    """Return the fields a policy is refused for."""
    with pytest.raises(Invalid) as refusal:
        await admitted(new, old)
    assert refusal.value.details is not None
    return {cause.field for cause in refusal.value.details.causes}


def placing(**placement: Any) -> Object:
    return policy("a", "shop", config_maps(), placement=placement)


def override(**spec: Any) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {"name": "a", "namespace": "shop"},
        "spec": spec,
    }


def overriding(**overriders: Any) -> Object:
    return override(overrideRules=[{"overriders": overriders}])


@pytest.mark.parametrize(
    ("scene", "see"),
    [("duplicated", "hub: pp dup"), ("override_and_cluster_scope", "hub: cpp cpp")],
)
async def test_a_new_policy_gets_what_recorded_ones_have(scene: str, see: str) -> None:
    steps = load_scenario("karmada", scene)["steps"]
    recorded = next(step["objects"] for step in steps if step.get("see") == see)
    if metadata_of(recorded).get("namespace"):
        # Karmada writes the namespace into them. Then `kubectl apply` of the same file says
        # "configured" every time, and server-side apply conflicts: here it is understood.
        selectors = [
            {key: value for key, value in each.items() if key != "namespace"}
            for each in recorded["spec"]["resourceSelectors"]
        ]
        recorded = with_value(recorded, selectors, "spec", "resourceSelectors")

    assert await admitted(with_metadata(recorded, finalizers=None)) == recorded


async def test_a_policy_that_is_applied_again_is_unchanged() -> None:
    written = policy("a", "shop", {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"})

    made = await admitted(written)

    assert made["spec"]["resourceSelectors"] == written["spec"]["resourceSelectors"]
    (selector,) = selectors_of(made)
    assert selector.namespace == "shop"
    foreign = policy("a", "shop", {**written["spec"]["resourceSelectors"][0], "namespace": "bank"})
    assert await refused(foreign) == {"spec.resourceSelectors[0].namespace"}


async def test_a_policy_that_lost_its_finalizer_does_not_get_it_back_here() -> None:
    made = await admitted(policy("a", "shop", config_maps()))
    bare = with_metadata(made, finalizers=None)

    assert metadata_of(await admitted(bare, made)).get("finalizers") is None


async def test_what_authors_left_out_is_filled_in() -> None:
    spread = [{"maxGroups": 2}, {"spreadByField": "region", "minGroups": 2}]
    divided = {"replicaSchedulingType": "Divided"}
    failover = {"application": {"purgeMode": "Gracefully", "decisionConditions": {}}}
    imported = {"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport"}
    placement = {"spreadConstraints": spread, "replicaScheduling": divided}

    made = await admitted(policy("a", "shop", imported, placement=placement, failover=failover))

    assert made["spec"]["propagateDeps"] is True
    assert find_at(made, "spec", "failover", "application", "gracePeriodSeconds") == 600
    assert made["spec"]["placement"] == {
        "spreadConstraints": [
            {"maxGroups": 2, "spreadByField": "cluster", "minGroups": 1},
            {"spreadByField": "region", "minGroups": 2},
        ],
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
        },
    }


LIKE = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["a"]}]}
SHORT_FIELD = {"matchExpressions": [{"key": "name", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("wrong", "fields"),
    [
        (
            policy("a", "shop", config_maps(namespace="other")),
            {"spec.resourceSelectors[0].namespace"},
        ),
        (
            policy("a", "shop", config_maps(labelSelector=LIKE)),
            {"spec.resourceSelectors[0].labelSelector"},
        ),
        (
            policy("a", "", config_maps(name="web"), config_maps(), preemption="Always"),
            {"spec.resourceSelectors[1].name"},
        ),
        (
            policy(
                "a",
                "",
                config_maps(),
                suspension={
                    "dispatching": True,
                    "dispatchingOnClusters": {"clusterNames": ["one"]},
                },
            ),
            {"spec.suspension"},
        ),
        (
            policy(
                "a",
                "",
                config_maps(),
                failover={
                    "application": {
                        "decisionConditions": {"tolerationSeconds": -1},
                        "purgeMode": "Directly",
                        "gracePeriodSeconds": 0,
                    },
                    "cluster": {"statePreservation": {"rules": [{"aliasLabelName": "-"}]}},
                },
            ),
            {
                "spec.propagateDeps",
                "spec.failover.application.decisionConditions.tolerationSeconds",
                "spec.failover.application.gracePeriodSeconds",
                "spec.failover.cluster.statePreservation.rules[0].aliasLabelName",
            },
        ),
        (placing(clusterAffinity={}, clusterAffinities=[]), {"spec.placement"}),
        (
            placing(clusterAffinity={"labelSelector": LIKE, "fieldSelector": SHORT_FIELD}),
            {
                "spec.placement.clusterAffinity.labelSelector",
                "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].key",
                "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].operator",
            },
        ),
        (
            placing(
                clusterAffinities=[
                    {"affinityName": "a", "overflowAffinities": [{"affinityName": "a"}]},
                    {"affinityName": "a"},
                    {"affinityName": "-"},
                ]
            ),
            {
                "spec.placement.clusterAffinities[0].overflowAffinities",
                "spec.placement.clusterAffinities[0].overflowAffinities[0].affinityName",
                "spec.placement.clusterAffinities[1].affinityName",
                "spec.placement.clusterAffinities[2].affinityName",
            },
        ),
        (
            placing(
                spreadConstraints=[
                    {"spreadByField": "region", "spreadByLabel": "x", "minGroups": 3},
                    {"spreadByField": "region", "minGroups": 3, "maxGroups": 2},
                    {"spreadByField": "zone", "minGroups": -1, "maxGroups": -1},
                ]
            ),
            {
                "spec.placement.spreadConstraints",
                "spec.placement.spreadConstraints[0]",
                "spec.placement.spreadConstraints[1].spreadByField",
                "spec.placement.spreadConstraints[1].maxGroups",
                "spec.placement.spreadConstraints[2].minGroups",
                "spec.placement.spreadConstraints[2].maxGroups",
            },
        ),
        (
            placing(clusterTolerations=[{"operator": "Gt"}, {"operator": "Exists"}]),
            {"spec.placement.clusterTolerations[0].operator"},
        ),
        (
            placing(
                workloadAffinity={
                    "affinity": {"groupByLabelKey": "-"},
                    "antiAffinity": {"groupByLabelKey": "-"},
                }
            ),
            {
                "spec.placement.workloadAffinity",
                "spec.placement.workloadAffinity.affinity.groupByLabelKey",
                "spec.placement.workloadAffinity.antiAffinity.groupByLabelKey",
            },
        ),
        (
            override(targetCluster={"exclude": ["x"]}, overriders={"x": 1}, overrideRules=[{}]),
            {"spec.targetCluster", "spec.overriders"},
        ),
        (
            override(resourceSelectors=[config_maps(namespace="x")]),
            {"spec.resourceSelectors[0].namespace"},
        ),
        (
            overriding(
                labelsOverrider=[{"operator": "add", "value": {"app": "not a value"}}],
                annotationsOverrider=[{"operator": "add", "value": {"not a key": ""}}],
                imageOverrider=[{"predicate": {"path": "spec"}}],
                plaintext=[{"path": "spec", "operator": "remove"}],
            ),
            {
                "spec.overrideRules[0].overriders.labelsOverrider[0].value[app]",
                "spec.overrideRules[0].overriders.annotationsOverrider[0].value",
                "spec.overrideRules[0].overriders.imageOverrider[0].predicate.path",
                "spec.overrideRules[0].overriders.plaintext[0].path",
            },
        ),
        (
            overriding(
                fieldOverrider=[
                    {"fieldPath": "/data/a"},
                    {
                        "fieldPath": "data",
                        "json": [
                            {"subPath": "a", "operator": "remove", "value": 1},
                            {"subPath": "/a", "operator": "add"},
                        ],
                    },
                ]
            ),
            {
                "spec.overrideRules[0].overriders.fieldOverrider[0]",
                "spec.overrideRules[0].overriders.fieldOverrider[1].fieldPath",
                "spec.overrideRules[0].overriders.fieldOverrider[1].json[0].subPath",
                "spec.overrideRules[0].overriders.fieldOverrider[1].json[0].value",
                "spec.overrideRules[0].overriders.fieldOverrider[1].json[1].value",
            },
        ),
    ],
)
async def test_a_policy_that_cannot_be_meant_is_refused_with_every_reason(
    wrong: Object, fields: set[str]
) -> None:
    assert await refused(wrong) == fields


@pytest.mark.parametrize("odd", ["text", 1, [1], [[]]])
async def test_a_policy_of_another_shape_is_refused_by_its_schema(odd: Any) -> None:
    for wrong in (
        override(overrideRules=odd),
        overriding(plaintext=odd),
        overriding(labelsOverrider=odd),
    ):
        assert all(field.startswith("spec.overrideRules") for field in await refused(wrong))
    assert await refused(policy("a", "shop", odd))


async def test_overflow_is_for_replicas_that_can_overflow() -> None:
    term = {
        "affinityName": "a",
        "clusterNames": ["one"],
        "overflowAffinities": [{"affinityName": "b", "clusterNames": ["two"]}],
    }
    scheduling = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}
    fine = placing(clusterAffinities=[term], replicaScheduling=scheduling)

    assert find_at(await admitted(fine), "spec", "placement") == fine["spec"]["placement"]
    assert await refused(placing(clusterAffinities=[term])) == {
        "spec.placement.clusterAffinities[0].overflowAffinities"
    }


async def test_the_scheduler_of_a_policy_cannot_be_changed() -> None:
    old = policy("a", "shop", config_maps(), schedulerName="one")
    new = policy("a", "shop", config_maps(), schedulerName="two")

    assert await refused(new, old) == {"spec.schedulerName"}


async def test_no_rule_keeps_a_broken_policy_from_going() -> None:
    wrong = policy("a", "shop", config_maps(namespace="other"))
    going = with_metadata(wrong, deletionTimestamp="now", finalizers=["x"])

    assert await admitted(with_metadata(going, finalizers=None), going)


async def test_other_kinds_of_the_group_pass() -> None:
    taint = {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy", "spec": {}}

    assert await admitted(taint) is taint
