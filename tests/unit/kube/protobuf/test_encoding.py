"""Objects become the very bytes that Go clients write, and come back unchanged."""

from datetime import UTC
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.unit.kube.protobuf.recordings import EVERYTHING, Recording

from clusterspace.errors import MalformedObject, UnsupportedMediaType
from clusterspace.kube.protobuf.decoding import decode
from clusterspace.kube.protobuf.encoding import encode
from clusterspace.kube.protobuf.messages import (
    ANY_VERSION,
    Field,
    Presence,
    Shape,
    all_kinds,
    get_message,
)

SCHEMA = "apiextensions.JSONSchemaProps"
TEXT = st.text(max_size=5)
MOMENTS = st.datetimes(timezones=st.just(UTC)).filter(lambda moment: moment.year > 1)
JSON = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**53), 2**53), TEXT),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "double": st.one_of(
        st.integers(-(2**52), 2**52),
        st.floats(0.1, 0.9),
    ),
    "bytes": st.sampled_from(["AAEC", "/+8="]),
    "time": MOMENTS.map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")),
    "microtime": MOMENTS.map(
        lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
    ),
    "quantity": st.sampled_from(["0", "100m", "1Gi", "-2"]),
    "intorstring": st.integers(-(2**31), 2**31 - 1) | TEXT,
    "json": JSON,
    "strings": st.lists(TEXT, max_size=2),
}


def is_shown(field: Field, value: Any) -> bool:
    """Tell whether the JSON would show this value at all."""
    if field.presence is Presence.NOT_EMPTY:
        return value not in ("", 0, None, {}, [])
    return True


@st.composite
def messages(draw: st.DrawFn, name: str, budget: int = 4) -> dict[str, Any]:
    """An object with every field that must be there and some of the others."""
    shown: dict[str, Any] = {}
    for field in get_message(name).fields:
        if field.shape is Shape.INLINED:
            shown |= draw(messages(field.type, budget - 1))
            continue
        must = field.presence in (Presence.ALWAYS, Presence.OR_NULL)
        if not must and (budget <= 0 or not draw(st.booleans())):
            continue
        value = draw(field_values(field, budget - 1))
        if is_shown(field, value):
            shown[field.name] = value
    return shown


def field_values(field: Field, budget: int) -> st.SearchStrategy[Any]:
    one = values_of(field.type, budget)
    if field.shape is Shape.SINGLE:
        return st.none() if budget < 0 and field.presence is Presence.OR_NULL else one
    if budget < 0:
        return st.none()
    if field.shape is Shape.LIST:
        return st.lists(one, min_size=1, max_size=2)
    return st.dictionaries(TEXT, one, min_size=1, max_size=2)


def values_of(type_name: str, budget: int) -> st.SearchStrategy[Any]:
    if type_name in VALUES:
        return VALUES[type_name]
    schema = messages(SCHEMA, budget - 1)
    match type_name:
        case "apiextensions.JSONSchemaPropsOrArray":
            return schema | st.lists(schema, min_size=1, max_size=2)
        case "apiextensions.JSONSchemaPropsOrBool":
            return schema | st.booleans()
        case "apiextensions.JSONSchemaPropsOrStringArray":
            return schema | st.lists(TEXT, min_size=1, max_size=2)
        case _:
            return messages(type_name, budget)


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    (version, kind), name = draw(st.sampled_from(sorted(all_kinds().items())))
    typed = {"apiVersion": "v1" if version == ANY_VERSION else version, "kind": kind}
    return {**typed, **draw(messages(name))}


@pytest.mark.parametrize("recording", EVERYTHING, ids=lambda recording: recording.title)
def test_a_recorded_body_is_written_byte_for_byte(recording: Recording) -> None:
    assert encode(decode(recording.body)) == recording.body


@given(objects())
@settings(max_examples=150)
def test_an_object_comes_back_unchanged(kube_object: dict[str, Any]) -> None:
    assert decode(encode(kube_object)) == kube_object


def test_fields_left_out_come_back_as_a_go_client_would_show_them() -> None:
    named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t"}}

    assert decode(encode(named)) == {**named, "spec": {}, "status": {}}


def test_the_type_of_a_claim_template_has_no_place_on_the_wire() -> None:
    template = {"metadata": {"name": "data"}, "spec": {"resources": {}}, "status": {}}
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {
            "volumeClaimTemplates": [
                {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **template}
            ]
        },
    }

    assert decode(encode(stateful_set))["spec"]["volumeClaimTemplates"] == [template]


def test_a_field_the_kind_does_not_have_is_refused() -> None:
    with pytest.raises(MalformedObject, match=r"ConfigMap\.metadata: meta\.ObjectMeta has no nam"):
        encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"nam": "x"}})


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"data": []}, "ConfigMap.data"),
        ({"data": {"a": 1}}, "ConfigMap.data[a]"),
        ({"binaryData": {"a": "?"}}, "ConfigMap.binaryData[a]"),
        ({"immutable": 1}, "ConfigMap.immutable"),
        ({"metadata": {"generation": True}}, "ConfigMap.metadata.generation"),
        ({"metadata": {"generation": 1 << 63}}, "ConfigMap.metadata.generation"),
        ({"metadata": {"creationTimestamp": "today"}}, "ConfigMap.metadata.creationTimestamp"),
        ({"metadata": {"finalizers": "x"}}, "ConfigMap.metadata.finalizers"),
        ({"metadata": {"name": "\ud800"}}, "ConfigMap.metadata.name"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_place(
    fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(MalformedObject) as refusal:
        encode({"apiVersion": "v1", "kind": "ConfigMap", **fields})

    assert refusal.value.place == place


def test_a_kind_without_a_protobuf_form_is_refused() -> None:
    with pytest.raises(UnsupportedMediaType, match="Widget"):
        encode({"apiVersion": "example.test/v1", "kind": "Widget"})
