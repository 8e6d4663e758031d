from typing import Any

import pytest

from clusterspace.builtins.strategies import with_stored_version
from clusterspace.builtins.validation.definitions import (
    check_schema,
    validate_definition,
    validate_definition_update,
)

SCHEMA = {"openAPIV3Schema": {"type": "object"}}
VERSION = {"name": "v1", "served": True, "storage": True, "schema": SCHEMA}
LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def _definition(**spec: Any) -> dict[str, Any]:
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    held = {"group": "probe.io", "scope": "Namespaced", "names": names, "versions": [VERSION]}
    metadata = {"name": "things.probe.io"}
    return with_stored_version({"metadata": metadata, "spec": {**held, **spec}, "status": {}})


def _found(definition: dict[str, Any]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in validate_definition(definition)]


def test_a_sound_definition_is_taken():
    assert _found(_definition()) == []


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"scope": ""}, ["spec.scope: Required value"]),
        (
            {"scope": "X"},
            ['spec.scope: Unsupported value: "X": supported values: "Cluster", "Namespaced"'],
        ),
        (
            {"preserveUnknownFields": True},
            [
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
                "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
            ],
        ),
        (
            {"versions": [{**VERSION, "schema": {}}]},
            ["spec.versions[0].schema.openAPIV3Schema: Required value"],
        ),
        (
            {"versions": []},
            [
                "spec.versions: Invalid value: []: must have exactly one version marked as "
                "storage version",
                "status.storedVersions: Invalid value: null: must have at least one stored version",
            ],
        ),
        (
            {"versions": [{**VERSION, "deprecationWarning": "x"}]},
            [
                'spec.versions[0].deprecationWarning: Invalid value: "x": '
                "can only be set for deprecated versions"
            ],
        ),
        (
            {"conversion": {"strategy": "Nope"}},
            [
                'spec.conversion.strategy: Unsupported value: "Nope": '
                'supported values: "None", "Webhook"'
            ],
        ),
        (
            {"names": {"plural": "things", "kind": "T_x", "singular": "t", "listKind": "T_x"}},
            [
                'spec.names.kind: Invalid value: "T_x": may have mixed case, but should otherwise '
                f"match: {LABEL}",
                'spec.names.listKind: Invalid value: "T_x": may have mixed case, but should '
                f"otherwise match: {LABEL}",
                'spec.names.listKind: Invalid value: "T_x": kind and listKind may not be the same',
            ],
        ),
    ],
)
def test_a_definition_is_refused_in_the_words_of_kubernetes(spec, found):
    assert _found(_definition(**spec)) == found


def test_a_definition_is_named_after_its_resource():
    found = _found(_definition(names={**_definition()["spec"]["names"], "plural": "others"}))
    assert found == [
        'metadata.name: Invalid value: "things.probe.io": must be spec.names.plural+"."+spec.group'
    ]


def test_a_group_of_the_kubernetes_project_needs_its_approval():
    definition = _definition(group="a.k8s.io")
    named = {**definition, "metadata": {"name": "things.a.k8s.io"}}
    (found,) = _found(named)
    assert found.startswith("metadata.annotations[api-approved.kubernetes.io]: Required value: ")
    approved = {"api-approved.kubernetes.io": "unapproved, a test"}
    assert _found({**named, "metadata": {**named["metadata"], "annotations": approved}}) == []


def test_a_conversion_webhook_needs_an_address_and_the_versions_it_reads():
    found = _found(_definition(conversion={"strategy": "Webhook"}))
    assert [each.split(":")[0] for each in found] == [
        "spec.conversion.webhookClientConfig",
        "spec.conversion.conversionReviewVersions",
    ]


def test_what_all_versions_share_is_blamed_once():
    wrong = {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}
    second = {**VERSION, "name": "v2", "storage": False}
    shared = [{**VERSION, "schema": wrong}, {**second, "schema": wrong}]
    detail = ".properties[a].type: Required value: must not be empty for specified object fields"
    assert _found(_definition(versions=shared)) == [f"spec.validation.openAPIV3Schema{detail}"]
    own = [VERSION, {**second, "schema": wrong}]
    place = "spec.versions[1].schema.openAPIV3Schema"
    assert _found(_definition(versions=own)) == [f"{place}{detail}"]


def test_rules_are_compiled_when_the_definition_is_created():
    rule = {"type": "object", "x-kubernetes-validations": [{"rule": "self.x"}]}
    (found,) = _found(_definition(versions=[{**VERSION, "schema": {"openAPIV3Schema": rule}}]))
    assert "compilation failed: ERROR: <input>:1:5: undefined field 'x'" in found


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ({"name": "a", "type": "string", "jsonPath": ".a"}, []),
        ({"name": "", "type": "string", "jsonPath": ".a"}, [".name: Required value"]),
        (
            {"name": "a", "type": "nope", "jsonPath": "a"},
            [
                '.type: Invalid value: "nope": must be one of boolean,date,integer,number,string',
                '.JSONPath: Invalid value: "a": must be a simple json path starting with .',
            ],
        ),
    ],
)
def test_columns_must_be_ones_we_can_print(column, found):
    version = {**VERSION, "additionalPrinterColumns": [column]}
    place = "spec.additionalPrinterColumns[0]"
    assert _found(_definition(versions=[version])) == [f"{place}{each}" for each in found]


def test_scale_paths_must_lead_to_where_replicas_are():
    scale = {
        "specReplicasPath": ".a.b",
        "statusReplicasPath": ".spec[0]",
        "labelSelectorPath": "y",
    }
    version = {**VERSION, "subresources": {"scale": scale}}
    place = "spec.subresources.scale."
    assert _found(_definition(versions=[version])) == [
        f'{place}specReplicasPath: Invalid value: ".a.b": should be a json path under .spec',
        f'{place}statusReplicasPath: Invalid value: ".spec[0]": '
        "should be a json path under .status",
        f'{place}labelSelectorPath: Invalid value: "y": must be a simple json path starting with .',
    ]


def _established(definition: dict[str, Any]) -> dict[str, Any]:
    conditions = [{"type": "Established", "status": "True"}]
    return {**definition, "status": {**definition["status"], "conditions": conditions}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"scope": "Cluster"}, "spec.scope"),
        ({"group": "x.y"}, "spec.group"),
        ({"names": {**_definition()["spec"]["names"], "kind": "Other"}}, "spec.names.kind"),
        ({"names": {**_definition()["spec"]["names"], "plural": "others"}}, "spec.names.plural"),
    ],
)
def test_what_clients_rely_on_never_changes(spec, field):
    old = _established(_definition())
    new = {**old, "spec": {**old["spec"], **spec}}
    (cause,) = validate_definition_update(new, old)
    assert cause.field == field
    assert cause.message.endswith("field is immutable")


def test_a_version_that_objects_are_stored_in_stays_listed():
    old = _established(_definition())
    renamed = {**old["spec"], "versions": [{**VERSION, "name": "v2"}]}
    new = with_stored_version({**old, "spec": renamed})
    (cause,) = validate_definition_update(new, old)
    assert cause.field == "status.storedVersions[0]"


def test_a_schema_that_was_taken_once_is_not_refused_later():
    odd = {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}
    old = _established(_definition(versions=[{**VERSION, "schema": odd}]))
    assert validate_definition_update(old, old) == ()


def test_a_schema_that_was_sound_is_looked_at_again_when_it_changes():
    sound = {"type": "object", "properties": {"spec": {"type": "object"}}}
    unsound = {"type": "object", "properties": {"spec": {}}}

    first = [check_schema(each, "here") for each in (sound, sound, unsound)]

    assert first[:2] == [(), ()]
    assert [cause.field for cause in first[2]] == ["here.properties[spec].type"]
    assert [cause.field for cause in check_schema(unsound, "there")] == [
        "there.properties[spec].type"
    ]
