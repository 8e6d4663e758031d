"""What KubeFleet's overrides mean, and what they make of an object on a cluster."""

from typing import Any

import pytest

from clusterspace.apis.fleet_overrides import (
    apply_rules,
    is_for_placement,
    means,
    rules_for,
    takes_away,
)
from clusterspace.apis.fleet_placements import ResourceIdentifier, read_state, state_text
from clusterspace.errors import OverrideFailed
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map

LABELS = {"region": "west", "example.com/tier": "gold"}
EVERYWHERE: Object = {"clusterSelectorTerms": []}


def changing(path: str, value: Any, op: str = "replace") -> list[Object]:
    return [{"jsonPatchOverrides": [{"op": op, "path": path, "value": value}]}]


def of(*rules: Object, **more: Any) -> Object:
    return {"policy": {"overrideRules": list(rules)}, **more}


def selecting(region: str) -> Object:
    return {"clusterSelectorTerms": [{"labelSelector": {"matchLabels": {"region": region}}}]}


def test_a_rule_without_a_selector_is_for_no_cluster_and_an_empty_one_for_all() -> None:
    nobody, everybody = {"name": "nobody"}, {"name": "all", "clusterSelector": EVERYWHERE}
    west = {"name": "west", "clusterSelector": selecting("west")}
    east = {"name": "east", "clusterSelector": selecting("east")}

    held = rules_for(of(nobody, everybody, west, east), LABELS)

    assert [each["name"] for each in held] == ["all", "west"]


def test_variables_are_filled_in_wherever_a_text_is() -> None:
    value = {
        "on": "${MEMBER-CLUSTER-NAME}",
        "${MEMBER-CLUSTER-NAME}": "${MEMBER-CLUSTER-LABEL-KEY-example.com/tier}",
    }

    made = apply_rules(config_map("a", {"v": "1"}), changing("/data", value), "west", LABELS)

    assert made["data"] == {"on": "west", "west": "gold"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("${MEMBER-CLUSTER-LABEL-KEY-none}", "has no label none"),
        ("${MEMBER-CLUSTER-LABEL-KEY-region", "closing brace"),
    ],
)
def test_a_variable_that_cannot_be_filled_in_fails_the_override(value: str, why: str) -> None:
    with pytest.raises(OverrideFailed, match=why):
        apply_rules(config_map("a", {"v": "1"}), changing("/data/v", value), "west", LABELS)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/metadata/name", "other"),
        ("/metadata/namespace", "kube-system"),
        ("/kind", "Secret"),
        ("/metadata/labels", {"karmada.io/managed": "true"}),
        ("/metadata/annotations", {"clusterspace.io/kept-copy-of": "x"}),
    ],
)
def test_an_override_keeps_which_object_it_is_whoever_wrote_it(path: str, value: Any) -> None:
    with pytest.raises(OverrideFailed):
        apply_rules(config_map("a", {"v": "1"}), changing(path, value, "add"), "west", LABELS)


def test_a_namespace_means_all_that_is_in_it_and_an_override_in_one_means_its_own() -> None:
    inside = ResourceIdentifier("", "v1", "ConfigMap", "app", "a")
    home = ResourceIdentifier("", "v1", "Namespace", "", "app")
    named = {"group": "", "version": "v1"}
    wide = {"clusterResourceSelectors": [{**named, "kind": "Namespace", "name": "app"}]}
    own = {"resourceSelectors": [{**named, "kind": "ConfigMap", "name": "a"}]}

    assert means(wide, "", inside)
    assert means(wide, "", home)
    assert means(own, "app", inside)
    assert not means(own, "other", inside)


def test_an_override_is_for_the_placement_it_names_or_for_all() -> None:
    assert is_for_placement({}, "", "crp")
    assert is_for_placement({"placement": {"name": "crp", "scope": "Cluster"}}, "app", "crp")
    assert not is_for_placement({"placement": {"name": "crp", "scope": "Namespaced"}}, "app", "crp")
    assert not is_for_placement({"placement": {"name": "other"}}, "", "crp")


def test_one_rule_of_type_delete_is_enough() -> None:
    assert takes_away([{"overrideType": "JSONPatch"}, {"overrideType": "Delete"}])
    assert not takes_away([{}])


def test_a_state_without_overrides_is_the_hash_of_its_manifest() -> None:
    assert state_text("abc", ()) == "abc"
    assert read_state(state_text("abc", ("cro-0", "app/ro-1"))).overrides == ("cro-0", "app/ro-1")
