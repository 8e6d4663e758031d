from typing import Any

import pytest
from tests.corpus import load_scenario
from tests.unit.kube.cel.recordings import recorded

from clusterspace.apiserver.custom_resources import CustomRules, resource_of
from clusterspace.builtins.definitions import read_definition
from clusterspace.builtins.strategies import Creation
from clusterspace.errors import BadRequest, MethodNotAllowed
from clusterspace.kube import statuses
from clusterspace.kube.resources import GroupKind, GroupVersionKind

KIND = GroupVersionKind("example.com", "v1", "Widget")
CREATION = Creation(uid="u", now="2026-01-01T00:00:00Z")
WIDGETS = "/apis/example.com/v1/namespaces/crd/widgets"


def _scenario() -> list[dict[str, Any]]:
    return [step for step in load_scenario("apiserver", "crd")["steps"] if "request" in step]


def _widget_rules() -> CustomRules:
    crd_object = _scenario()[1]["response"]["body"]
    definition = read_definition(crd_object)
    return CustomRules(KIND, definition.versions[0].raw_schema, has_status=True)


def _create(rules: CustomRules, body: dict[str, Any]) -> dict[str, Any]:
    read = rules.read({**body, "metadata": {**body["metadata"], "namespace": "crd"}}).kube_object
    return rules.prepare_create(rules.default(read), CREATION)


def _recorded_creates() -> list[dict[str, Any]]:
    steps = [step for step in _scenario() if step["request"]["path"].partition("?")[0] == WIDGETS]
    return [step for step in steps if step["request"]["method"] == "POST"]


def test_every_recorded_create_is_answered_the_same():
    rules = _widget_rules()
    answered = 0
    for step in _recorded_creates():
        answer = step["response"]["body"]
        new = _create(rules, step["request"]["body"])
        found = rules.validate_create(new)
        if step["response"]["status"] == 201:
            assert found == ()
            assert new["spec"] == answer["spec"]
            assert new["metadata"]["generation"] == 1
        elif step["response"]["status"] == 422:
            name = new["metadata"]["name"]
            refusal = statuses.invalid(GroupKind("example.com", "Widget"), name, found)
            assert statuses.status_of(refusal) == answer
        answered += 1
    assert answered >= 7


def test_recorded_unknown_fields_are_named():
    step = _recorded_creates()[0]
    reading = _widget_rules().read(step["request"]["body"])
    warned = [f'299 - "unknown field \\"{field}\\""' for field in reading.unknown_fields]
    assert warned == step["response"]["warning"]


@pytest.mark.parametrize("update", recorded("updates")["updates"], ids=lambda held: str(held))
def test_a_change_is_blamed_for_what_it_changes_alone(update):
    recording = recorded("updates")
    rules = CustomRules(KIND, recording["schema"], has_status=False)
    head = {"apiVersion": "example.com/v1", "kind": "Widget"}
    old = {**head, "metadata": {"name": "x", "uid": "u"}, "spec": recording["old"]}
    spec = {**recording["old"], **update["change"]}
    spec = {key: value for key, value in spec.items() if value is not None}
    new = rules.default(rules.read({**old, "spec": spec}).kube_object)
    found = rules.validate_update(new, old, "")
    shown = sorted([cause.reason, cause.field, cause.message] for cause in found)
    assert shown == sorted(update["causes"])


PLAIN = {"type": "object", "properties": {"spec": {"type": "object"}, "status": {"type": "object"}}}
RULES = CustomRules(
    KIND,
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "held": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    },
    has_status=True,
)


def _widget(**members: Any) -> dict[str, Any]:
    metadata = {"name": "x", "generation": 3, **members.pop("metadata", {})}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, **members}


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (
            {"labels": {"a": 1}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
        (
            {"finalizers": "x"},
            "json: cannot unmarshal string into Go struct field ObjectMeta.finalizers "
            "of type []string",
        ),
        (
            {"generation": "1"},
            "json: cannot unmarshal string into Go struct field ObjectMeta.generation "
            "of type int64",
        ),
        (
            {"uid": 5},
            "json: cannot unmarshal number into Go struct field ObjectMeta.uid of type types.UID",
        ),
    ],
)
def test_metadata_of_the_wrong_type_is_refused_in_the_words_of_kubernetes(metadata, why):
    with pytest.raises(BadRequest) as refused:
        RULES.read(_widget(metadata=metadata))
    assert refused.value.message == (f'Widget in version "v1" cannot be handled as a Widget: {why}')


def test_metadata_that_says_nothing_is_dropped():
    said = {
        "labels": {"a": None},
        "annotations": {},
        "finalizers": [],
        "creationTimestamp": None,
        "ownerReferences": None,
    }
    read = RULES.read(_widget(metadata=said)).kube_object
    assert read["metadata"] == {"name": "x", "generation": 3, "labels": {"a": ""}}


def test_an_object_inside_of_another_must_have_readable_metadata_too():
    with pytest.raises(BadRequest) as refused:
        RULES.read(_widget(held={"metadata": {"labels": {"a": 1}}}))
    assert refused.value.message.endswith(
        'held.metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number '
        "into Go struct field ObjectMeta.labels of type string"
    )


def test_a_status_is_written_through_its_own_door_only():
    old = _widget(spec={"a": 1}, status={"b": 1})
    new = _widget(spec={"a": 2}, status={"b": 2}, metadata={"labels": {"l": "m"}})
    through_main = RULES.prepare_update(new, old, "")
    assert (through_main["spec"], through_main["status"]) == ({"a": 2}, {"b": 1})
    assert through_main["metadata"]["generation"] == 4
    through_status = RULES.prepare_update(new, old, "status")
    assert (through_status["spec"], through_status["status"]) == ({"a": 1}, {"b": 2})
    assert through_status["metadata"] == {"name": "x", "generation": 3}


def test_a_new_object_has_no_status_and_the_first_generation():
    new = RULES.prepare_create(_widget(spec={}, status={"b": 1}), CREATION)
    assert "status" not in new
    assert new["metadata"]["generation"] == 1


def test_labels_alone_do_not_make_a_generation():
    old = _widget(spec={"a": 1})
    new = RULES.prepare_update(_widget(spec={"a": 1}, metadata={"labels": {"a": "b"}}), old, "")
    assert new["metadata"]["generation"] == 3


def test_without_a_door_of_its_own_the_status_is_a_field_like_any_other():
    rules = CustomRules(KIND, PLAIN, has_status=False)
    old, new = _widget(status={}), _widget(status={"b": 1})
    changed = rules.prepare_update(new, old, "")
    assert changed["status"] == {"b": 1}
    assert changed["metadata"]["generation"] == 4


def test_nothing_is_created_while_the_definition_ends():
    rules = CustomRules(KIND, PLAIN, has_status=False, is_ending=True)
    with pytest.raises(MethodNotAllowed, match="while custom resource definition is terminating"):
        rules.prepare_create(_widget(), CREATION)


def test_the_recorded_definition_is_served_as_recorded():
    served = resource_of(*_definition_and_version())
    (listed,) = [
        step["response"]["body"]
        for step in _scenario()
        if step["request"]["path"] == "/apis/example.com/v1"
    ]
    first, status, scale = listed["resources"]
    assert list(served.info.verbs) == first["verbs"]
    assert served.storage_version_hash == first["storageVersionHash"]
    assert list(served.info.short_names) == first["shortNames"]
    assert list(served.info.categories) == first["categories"]
    assert [f"widgets/{part.name}" for part in served.info.subresources] == [
        status["name"],
        scale["name"],
    ]
    assert served.scale is not None
    assert served.scale.spec_replicas == ("spec", "replicas")


def test_recorded_rows_are_printed_as_recorded():
    served = resource_of(*_definition_and_version())
    steps = _scenario()
    table = next(
        step["response"]["body"]
        for step in steps
        if step["response"]["body"].get("kind") == "Table"
    )
    listed = next(
        step["response"]["body"]
        for step in steps
        if step["response"]["body"].get("kind") == "WidgetList"
    )
    for row, item in zip(table["rows"], listed["items"], strict=True):
        held = {**item, "metadata": {**item["metadata"], "creationTimestamp": _MOMENT}}
        assert served.printer.cells_of(held, _NOW) == row["cells"]
    definitions = [column.definition for column in served.printer.columns]
    assert definitions[1:] == table["columnDefinitions"][1:]


_MOMENT = "2023-11-14T22:13:20Z"
_NOW = 1_700_000_000.0


def _definition_and_version():
    definition = read_definition(_scenario()[1]["response"]["body"])
    return definition, definition.versions[0]
