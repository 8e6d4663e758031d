"""What a schema does not know goes, and is named as `fieldValidation` names it."""

from typing import Any

import pytest
from hypothesis import given
from tests.corpus import load_scenario
from tests.unit.kube.schemas import strategies

from clusterspace.errors import MalformedObject
from clusterspace.kube.schemas.model import Schema, read_schema
from clusterspace.kube.schemas.pruning import Pruned, prune

KEEPS = {"x-kubernetes-preserve-unknown-fields": True}
TEXT = {"type": "string"}


def schema_of(**properties: Any) -> Schema:
    return read_schema({"type": "object", "properties": properties})


def pruned(value: Any, schema: Schema) -> Pruned:
    return prune(value, schema, is_resource_root=False)


def test_a_recorded_widget_is_pruned_and_warned_about_as_by_a_real_server() -> None:
    steps = load_scenario("apiserver", "crd")["steps"]
    version = steps[1]["request"]["body"]["spec"]["versions"][0]
    [created] = [step for step in steps if step.get("note") == "pruned and defaulted"]

    left = prune(
        created["request"]["body"],
        read_schema(version["schema"]["openAPIV3Schema"]),
        is_resource_root=True,
    )

    warnings = [f'299 - "unknown field \\"{path}\\""' for path in left.unknown]
    assert warnings == created["response"]["warning"]
    assert left.value["spec"] == {"size": "M", "free": {"any": {"thing": 1}}}


def test_an_object_without_unknown_fields_is_returned_as_it_is() -> None:
    value = {"a": "x"}
    left = pruned(value, schema_of(a=TEXT))

    assert left.value is value
    assert left.unknown == ()


def test_unknown_fields_are_named_by_their_whole_path_and_sorted() -> None:
    inner = schema_of(known=TEXT).raw
    schema = schema_of(
        list={"type": "array", "items": inner},
        map={"type": "object", "additionalProperties": inner},
    )

    left = pruned({"z": 1, "map": {"k": {"y": 1}}, "list": [{"known": ""}, {"x": 1}]}, schema)

    assert left.unknown == ("list[1].x", "map.k.y", "z")
    assert left.value == {"map": {"k": {}}, "list": [{"known": ""}, {}]}


def test_the_object_given_is_never_edited() -> None:
    value = {"a": {"x": 1}, "b": "same"}

    pruned(value, schema_of(a=schema_of().raw, b=TEXT))

    assert value == {"a": {"x": 1}, "b": "same"}


def test_unknown_fields_stay_where_the_schema_keeps_them() -> None:
    schema = schema_of(free={"type": "object", **KEEPS})
    value = {"free": {"any": [{"thing": 1}]}}

    assert pruned(value, schema).value is value


def test_fields_specified_inside_a_free_object_are_pruned_again() -> None:
    free = {"type": "object", **KEEPS, "properties": {"typed": schema_of(a=TEXT).raw}}

    left = pruned({"free": {"any": 1, "typed": {"b": 1}}}, schema_of(free=free))

    assert left == Pruned({"free": {"any": 1, "typed": {}}}, ("free.typed.b",))


def test_elements_of_a_free_list_are_free() -> None:
    schema = schema_of(free={**KEEPS, "type": "array", "items": schema_of(a=TEXT).raw})
    value = {"free": [{"b": 1}]}

    assert pruned(value, schema).value is value


def test_a_resource_keeps_its_identity_and_its_known_metadata() -> None:
    value = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n", "nonsense": 1, "labels": {"free": "key"}},
    }

    left = prune(value, schema_of(), is_resource_root=True)

    assert left.unknown == ("metadata.nonsense",)
    assert left.value["metadata"] == {"name": "n", "labels": {"free": "key"}}
    assert pruned(value, schema_of()).value == {}


def test_nulls_in_metadata_are_dropped_without_a_word() -> None:
    left = prune({"metadata": {"creationTimestamp": None}}, schema_of(), is_resource_root=True)

    assert left == Pruned({"metadata": {}}, ())


def test_managed_fields_are_kept_whole() -> None:
    entry = {"manager": "m", "fieldsV1": {"f:spec": {"f:a": {}}}}
    value = {"metadata": {"managedFields": [entry]}}

    assert prune(value, schema_of(), is_resource_root=True).value is value


def test_an_embedded_resource_keeps_its_identity_too() -> None:
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {}}
    value = {"template": {"kind": "Pod", "metadata": {"name": "n", "x": 1}, "spec": {}}}

    left = pruned(value, schema_of(template=template))

    assert left.unknown == ("template.metadata.x", "template.spec")
    assert left.value == {"template": {"kind": "Pod", "metadata": {"name": "n"}}}


def test_an_object_deeper_than_we_can_follow_is_refused_by_name() -> None:
    raw: dict[str, Any] = {"type": "array"}
    raw["items"] = raw
    value: Any = []
    for _ in range(5000):
        value = [value]

    with pytest.raises(MalformedObject, match="nested too deeply"):
        pruned(value, Schema(raw))


@given(strategies.schemas, strategies.json_values)
def test_pruning_twice_changes_nothing_more(raw, value) -> None:
    schema = read_schema(raw)
    once = prune(value, schema, is_resource_root=True)
    twice = prune(once.value, schema, is_resource_root=True)

    assert twice.unknown == ()
    assert twice.value is once.value
