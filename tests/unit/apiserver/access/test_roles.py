"""Default roles, how they are completed, and how roles are gathered."""

from typing import Any

from clusterspace.apiserver.access.default_roles import (
    AUTOUPDATE,
    BINDINGS,
    ROLES,
    complete,
    gathered_rules,
)

DISCOVERY = next(role for role in ROLES if role.name == "system:discovery").as_object()
BINDING = next(each for each in BINDINGS if each.name == "system:discovery").as_object()
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
OTHER = {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}


def role(name: str, *rules: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "rules": list(rules)}


def aggregate(name: str, label: str) -> dict[str, Any]:
    selector = {"matchLabels": {label: "true"}}
    return {**role(name), "aggregationRule": {"clusterRoleSelectors": [selector]}}


def test_no_right_waits_for_an_account_or_a_program_that_is_not_there() -> None:
    # What docs/kubernetes-compatibility.md says: rights of controllers that do not run here would
    # be for whoever may make an account of their name.
    assert not [each.name for each in ROLES if each.name.startswith("system:controller:")]
    for binding in BINDINGS:
        kinds = {each["kind"] for each in binding.as_object()["subjects"]}
        assert "ServiceAccount" not in kinds, binding.name
        assert not any(user.startswith("system:kube-") for user in binding.users), binding.name


def test_a_complete_role_stays_the_same_object() -> None:
    assert complete(DISCOVERY, DISCOVERY) is DISCOVERY


def test_a_missing_rule_comes_back_and_an_added_one_stays() -> None:
    changed = {**DISCOVERY, "rules": [RULE]}

    completed = complete(changed, DISCOVERY)

    assert completed["rules"] == [RULE, *DISCOVERY["rules"]]


def test_a_rule_that_more_rules_cover_is_not_added_again() -> None:
    wide = {"verbs": ["*"], "nonResourceURLs": ["*"]}

    assert complete({**DISCOVERY, "rules": [wide]}, DISCOVERY)["rules"] == [wide]


def test_a_role_that_opted_out_is_left_alone() -> None:
    metadata = {**DISCOVERY["metadata"], "annotations": {AUTOUPDATE: "false"}}
    own = {**DISCOVERY, "metadata": metadata, "rules": []}

    assert complete(own, DISCOVERY) is own


def test_a_missing_subject_comes_back_and_an_added_one_stays() -> None:
    added = {"kind": "User", "name": "jane"}

    assert complete({**BINDING, "subjects": [added]}, BINDING)["subjects"] == [
        added,
        *BINDING["subjects"],
    ]


def test_an_aggregate_holds_each_selected_rule_once_by_role_name() -> None:
    roles = [
        role("b", RULE, OTHER, pick="true"),
        role("a", RULE, pick="true"),
        role("c", {"verbs": ["*"]}),
        aggregate("all", "pick"),
    ]

    assert gathered_rules(roles[-1], roles) == [RULE, OTHER]


def test_an_aggregate_does_not_gather_itself() -> None:
    metadata = {"name": "all", "labels": {"pick": "true"}}
    itself = {**aggregate("all", "pick"), "metadata": metadata, "rules": [RULE]}

    assert gathered_rules(itself, [itself]) == []
