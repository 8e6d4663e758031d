import json
from typing import Any

import pytest

from clusterspace.errors import OverrideFailed
from clusterspace.fleet.propagation.overrides.policies import (
    OverridePolicies,
    applied_text,
    override,
    rules_for,
)
from clusterspace.fleet.propagation.scheduler.affinities import Traits
from clusterspace.kube.objects import Object, annotations_of, labels_of
from clusterspace.testing.builders import deployment

NORTH = Traits("north", {"tier": "gold"}, provider="p", region="r", zones=frozenset({"z1"}))
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}


def add_label(value: str, key: str = "who") -> Object:
    return {"labelsOverrider": [{"operator": "add", "value": {key: value}}]}


def policy(name: str, *rules: Object, selectors: list[Object] | None = None) -> Object:
    spec: Object = {"overrideRules": list(rules)}
    if selectors is not None:
        spec["resourceSelectors"] = selectors
    return {"metadata": {"name": name}, "spec": spec}


def rule(overriders: Object, **target: Any) -> Object:
    return {"overriders": overriders, **({"targetCluster": target} if target else {})}


def names_of(*policies: Object, cluster: Traits = NORTH) -> list[str]:
    return [each.policy for each in rules_for(deployment("web"), cluster, policies)]


def test_the_more_precisely_a_policy_means_the_object_the_later_it_comes() -> None:
    by_name = policy("a", rule(add_label("1")), selectors=[{**DEPLOYMENT, "name": "web"}])
    labels = {"matchLabels": {"app": "web"}}
    by_labels = policy(
        "b", rule(add_label("2")), selectors=[{**DEPLOYMENT, "labelSelector": labels}]
    )
    by_kind = policy("d", rule(add_label("3")), selectors=[DEPLOYMENT])
    everything = policy("c", rule(add_label("4")))

    assert names_of(by_name, by_labels, by_kind, everything) == ["c", "d", "b", "a"]


def test_equally_precise_policies_go_by_name_and_rules_as_written() -> None:
    second = policy("b", rule(add_label("1")))
    first = policy("a", rule(add_label("2")), rule(add_label("3")))

    assert names_of(second, first) == ["a", "a", "b"]


def test_policies_for_other_objects_do_not_apply() -> None:
    others = [
        policy("kind", rule(add_label("1")), selectors=[{"apiVersion": "v1", "kind": "Pod"}]),
        policy("name", rule(add_label("1")), selectors=[{**DEPLOYMENT, "name": "other"}]),
        policy("place", rule(add_label("1")), selectors=[{**DEPLOYMENT, "namespace": "shop"}]),
    ]

    assert names_of(*others) == []


@pytest.mark.parametrize(
    ("target", "is_meant"),
    [
        ({}, True),
        ({"clusterNames": ["north"]}, True),
        ({"clusterNames": ["south"]}, False),
        ({"exclude": ["north"]}, False),
        ({"labelSelector": {"matchLabels": {"tier": "gold"}}}, True),
        ({"labelSelector": {"matchLabels": {"tier": "iron"}}}, False),
        ({"clusterNames": ["north"], "exclude": ["north"]}, False),
        (
            {
                "fieldSelector": {
                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]
                }
            },
            True,
        ),
        (
            {
                "fieldSelector": {
                    "matchExpressions": [{"key": "region", "operator": "NotIn", "values": ["r"]}]
                }
            },
            False,
        ),
    ],
)
def test_a_rule_applies_to_the_clusters_it_names(target: Object, is_meant: bool) -> None:
    named = policy("a", {"overriders": add_label("1"), "targetCluster": target})

    assert names_of(named) == (["a"] if is_meant else [])


def test_the_fields_of_older_policies_are_one_rule() -> None:
    old = {
        "metadata": {"name": "old"},
        "spec": {"targetCluster": {"clusterNames": ["north"]}, "overriders": add_label("1")},
    }

    assert names_of(old) == ["old"]
    assert names_of(old, cluster=Traits("south", {})) == []


def test_policies_of_the_namespace_have_the_last_word() -> None:
    policies = OverridePolicies(
        cluster_wide=[
            policy("z", rule(add_label("wide")), selectors=[{**DEPLOYMENT, "name": "web"}])
        ],
        namespaced=[policy("a", rule(add_label("own")))],
    )

    overridden = override(deployment("web"), NORTH, policies)

    assert labels_of(overridden.manifest)["who"] == "own"
    assert [each.policy for each in overridden.cluster_wide] == ["z"]
    assert [each.policy for each in overridden.namespaced] == ["a"]


def test_without_policies_the_manifest_is_the_template() -> None:
    template = deployment("web")

    overridden = override(template, NORTH, OverridePolicies())

    assert overridden.manifest is template
    assert applied_text(overridden.namespaced) == ""


def test_a_policy_that_fails_is_named() -> None:
    failing = {"plaintext": [{"path": "/absent/x", "operator": "replace", "value": 1}]}
    policies = OverridePolicies(namespaced=[policy("bad", rule(failing))])

    with pytest.raises(OverrideFailed, match=r"override policy bad: plaintext\[0\]: "):
        override(deployment("web"), NORTH, policies)


@pytest.mark.parametrize(
    "broken",
    [
        policy("bad", rule({}, labelSelector={"matchLabels": {"a b": "c"}})),
        policy(
            "bad",
            rule({}),
            selectors=[{**DEPLOYMENT, "labelSelector": {"matchLabels": {"a b": "c"}}}],
        ),
    ],
)
def test_a_policy_that_cannot_be_read_is_named(broken: Object) -> None:
    with pytest.raises(OverrideFailed, match="override policy bad: "):
        override(deployment("web"), NORTH, OverridePolicies(namespaced=[broken]))


def test_what_was_applied_is_noted_in_karmadas_order_of_fields() -> None:
    overriders = {
        "imageOverrider": [{"value": "v", "operator": "add", "component": "Registry"}],
        "plaintext": [{"value": {"b": 1, "a": 2}, "operator": "add", "path": "/x"}],
    }
    rules = rules_for(deployment("web"), NORTH, [policy("ovr", rule(overriders))])

    assert applied_text(rules) == (
        '[{"policyName":"ovr","overriders":{'
        '"plaintext":[{"path":"/x","operator":"add","value":{"b":1,"a":2}}],'
        '"imageOverrider":[{"component":"Registry","operator":"add","value":"v"}]}}]'
    )


def test_every_applied_rule_is_noted() -> None:
    rules = rules_for(
        deployment("web"), NORTH, [policy("ovr", rule(add_label("1")), rule(add_label("2")))]
    )

    assert [each["policyName"] for each in json.loads(applied_text(rules))] == ["ovr", "ovr"]


def test_overriding_leaves_the_template_as_it_was() -> None:
    template = deployment("web")
    annotate = {"plaintext": [{"path": "/metadata/annotations", "operator": "add", "value": {}}]}

    override(template, NORTH, OverridePolicies(namespaced=[policy("a", rule(annotate))]))

    assert template == deployment("web")
    assert annotations_of(template) == {}
