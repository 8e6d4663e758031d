"""Bodies become exactly the JSON their senders would have written; objects become the very bytes
that Go clients write, and come back unchanged.
"""

from datetime import UTC
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.unit.kube.protobuf.recordings import APISERVER, EVERYTHING, KUBECTL, Recording

from clusterspace.errors import MalformedObject, RequestEntityTooLarge, UnsupportedMediaType
from clusterspace.kube.protobuf import wire
from clusterspace.kube.protobuf.bodies import MAX_DEPTH, decode
from clusterspace.kube.protobuf.encoding import encode
from clusterspace.kube.protobuf.messages import (
    ANY_VERSION,
    Field,
    Presence,
    Shape,
    all_kinds,
    get_message,
)
from clusterspace.kube.protobuf.wire import Envelope, read_envelope, write_envelope

REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
TOKEN_REQUEST = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenRequest",
    "metadata": {},
    "status": {"token": "", "expirationTimestamp": None},
}
WITHOUT_DRY_RUN: dict[str, dict[str, Any]] = {
    "kubectl create token bot": {
        **TOKEN_REQUEST,
        "spec": {"audiences": None, "expirationSeconds": None, "boundObjectRef": None},
    },
    "kubectl create token bot --duration=10m --audience=a --bound-object-kind=Pod"
    " --bound-object-name=p --bound-object-uid=u": {
        **TOKEN_REQUEST,
        "spec": {
            "audiences": ["a"],
            "expirationSeconds": 600,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"},
        },
    },
    "kubectl auth can-i list pods -A": {
        **REVIEW,
        "metadata": {},
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
        "status": {"allowed": False},
    },
    "kubectl auth can-i get deployments.apps/web --subresource=scale -n t": {
        **REVIEW,
        "metadata": {},
        "spec": {
            "resourceAttributes": {
                "namespace": "t",
                "verb": "get",
                "group": "apps",
                "resource": "deployments",
                "subresource": "scale",
                "name": "web",
            }
        },
        "status": {"allowed": False},
    },
    "kubectl auth can-i get /healthz": {
        **REVIEW,
        "metadata": {},
        "spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}},
        "status": {"allowed": False},
    },
    "kubectl auth can-i --list": {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {"namespace": "default"},
        "status": {"resourceRules": None, "nonResourceRules": None, "incomplete": False},
    },
    "kubectl auth whoami": {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "metadata": {},
        "status": {"userInfo": {}},
    },
    "kubectl drain n1": {"apiVersion": "v1", "kind": "DeleteOptions"},
}


def without_unset_creation_times(value: Any) -> Any:
    """kubectl 1.32 prints `creationTimestamp: null`; since 1.34 Kubernetes leaves it out."""
    if isinstance(value, list):
        return [without_unset_creation_times(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: without_unset_creation_times(held)
        for name, held in value.items()
        if (name, held) != ("creationTimestamp", None)
    }


@pytest.mark.parametrize("recording", KUBECTL, ids=lambda recording: recording.title)
def test_what_kubectl_sends_is_what_it_says_it_sends(recording: Recording) -> None:
    expected = recording.expected or WITHOUT_DRY_RUN[recording.title]

    assert decode(recording.body) == without_unset_creation_times(expected)


@pytest.mark.parametrize("recording", APISERVER, ids=lambda recording: recording.title)
def test_an_api_server_says_the_same_in_protobuf_and_in_json(recording: Recording) -> None:
    assert decode(recording.body) == recording.expected


def test_the_type_of_an_object_comes_first() -> None:
    decoded = decode(KUBECTL[0].body)

    assert list(decoded)[:2] == ["apiVersion", "kind"]


def deployment(spec: bytes) -> bytes:
    return write_envelope(Envelope("apps/v1", "Deployment", wire.write_bytes_field(2, spec)))


def test_a_chosen_zero_is_kept() -> None:
    decoded = decode(deployment(wire.write_varint_field(1, 0)))

    assert decoded["spec"]["replicas"] == 0


def test_a_zero_nobody_chose_is_left_out() -> None:
    decoded = decode(deployment(wire.write_varint_field(5, 0) + wire.write_varint_field(7, 0)))

    assert "minReadySeconds" not in decoded["spec"]
    assert "paused" not in decoded["spec"]


def test_a_required_reference_that_was_not_sent_is_null() -> None:
    assert decode(deployment(b""))["spec"]["selector"] is None


def test_delete_options_are_read_under_any_version() -> None:
    body = write_envelope(Envelope("apps/v1", "DeleteOptions", wire.write_varint_field(1, 0)))

    assert decode(body) == {
        "apiVersion": "apps/v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
    }


def test_a_message_sent_in_pieces_is_put_together() -> None:
    pieces = wire.write_bytes_field(2, wire.write_varint_field(1, 3)) + wire.write_bytes_field(
        2, wire.write_varint_field(5, 7)
    )
    decoded = decode(write_envelope(Envelope("apps/v1", "Deployment", pieces)))

    assert decoded["spec"]["replicas"] == 3
    assert decoded["spec"]["minReadySeconds"] == 7


def test_packed_numbers_are_numbers() -> None:
    groups = wire.write_bytes_field(4, b"\x01\x02\xac\x02")
    spec = wire.write_bytes_field(14, groups)
    decoded = decode(write_envelope(Envelope("v1", "Pod", wire.write_bytes_field(2, spec))))

    assert decoded["spec"]["securityContext"]["supplementalGroups"] == [1, 2, 300]


def test_an_unknown_field_is_refused_and_named() -> None:
    with pytest.raises(UnsupportedMediaType, match=r"apps.DeploymentSpec at Deployment.spec.*99"):
        decode(deployment(wire.write_varint_field(99, 1)))


def test_a_kind_without_a_protobuf_form_is_refused() -> None:
    with pytest.raises(UnsupportedMediaType, match=r"Widget \(example.test/v1\)"):
        decode(write_envelope(Envelope("example.test/v1", "Widget", b"")))


def test_a_part_of_an_object_is_not_an_object() -> None:
    with pytest.raises(UnsupportedMediaType, match="Container"):
        decode(write_envelope(Envelope("v1", "Container", b"")))


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (b"\x08\xff", "ends inside a number"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "longer than 64 bits"),
        (b"\x1a\x05a", "5 bytes has only 1"),
        (b"\x0d\x00\x00\x00\x00", "cannot have wire type 5"),
        (b"\x0b", "unknown wire type 3"),
        (b"\x00\x01", "0 is not a field number"),
        (wire.write_varint_field(1, 1 << 40), "does not fit 32 bits"),
        (wire.write_varint_field(7, 2), "not a boolean"),
    ],
)
def test_broken_bytes_are_refused_with_their_place(spec: bytes, complaint: str) -> None:
    with pytest.raises(MalformedObject, match=complaint) as refusal:
        decode(deployment(spec))

    assert refusal.value.place.startswith("Deployment.spec")


def test_text_that_is_not_utf8_is_refused_with_its_place() -> None:
    meta = wire.write_bytes_field(1, wire.write_bytes_field(1, b"\xff"))

    with pytest.raises(MalformedObject, match=r"Namespace\.metadata\.name: the text is not UTF-8"):
        decode(write_envelope(Envelope("v1", "Namespace", meta)))


def test_a_body_that_is_not_protobuf_is_refused() -> None:
    with pytest.raises(MalformedObject, match="does not start as Kubernetes protobuf"):
        decode(b'{"kind": "Pod"}')


def test_a_compressed_body_is_refused() -> None:
    body = write_envelope(Envelope("v1", "Pod", b"")) + wire.write_bytes_field(3, b"gzip")

    with pytest.raises(UnsupportedMediaType, match="gzip"):
        decode(body)


def nested_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"deeper": schema}}
    return schema


def definition_of(schema: dict[str, Any]) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {"group": "x.test", "scope": "Cluster", "versions": [version]},
    }


def schema_in(definition: dict[str, Any]) -> Any:
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_a_schema_of_forty_levels_is_read() -> None:
    schema = nested_schema(40)

    assert schema_in(decode(encode(definition_of(schema)))) == schema


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(MalformedObject, match=f"nested deeper than {MAX_DEPTH}"):
        decode(encode(definition_of(nested_schema(MAX_DEPTH + 1))))


def test_embedded_json_without_end_is_refused() -> None:
    deep = wire.write_bytes_field(1, b"[" * 50_000)
    data = wire.write_bytes_field(2, deep)

    with pytest.raises(MalformedObject, match=r"ControllerRevision\.data"):
        decode(write_envelope(Envelope("apps/v1", "ControllerRevision", data)))


@pytest.mark.parametrize("seconds", [-62_135_596_801, 253_402_300_800, 1 << 62])
def test_a_time_that_has_no_text_is_refused(seconds: int) -> None:
    created = wire.write_bytes_field(8, wire.write_varint_field(1, seconds))

    with pytest.raises(MalformedObject, match=r"Namespace\.metadata\.creationTimestamp"):
        decode(write_envelope(Envelope("v1", "Namespace", wire.write_bytes_field(1, created))))


@given(raw=st.binary(max_size=200), kind=st.sampled_from([recording.body for recording in KUBECTL]))
def test_any_bytes_are_an_object_or_a_refusal(raw: bytes, kind: bytes) -> None:
    envelope = read_envelope(kind)
    body = write_envelope(Envelope(envelope.api_version, envelope.kind, raw))

    assert_object_or_refusal(body)


@given(st.data())
def test_a_damaged_body_is_an_object_or_a_refusal(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from(EVERYTHING)).body)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(body) - 1))
        body[position] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(body)))

    assert_object_or_refusal(bytes(body[:end]))


def assert_object_or_refusal(body: bytes) -> None:
    try:
        decoded = decode(body)
    except (MalformedObject, UnsupportedMediaType):
        return
    assert decoded["kind"] == read_envelope(body).kind


# Encoding.

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


def test_a_kind_without_a_protobuf_form_is_not_written() -> None:
    with pytest.raises(UnsupportedMediaType, match="Widget"):
        encode({"apiVersion": "example.test/v1", "kind": "Widget"})


@pytest.mark.parametrize("default", [[[]] * 70_000, [0] * 140_000], ids=["lists", "values"])
def test_json_inside_of_a_body_counts_like_the_rest(default: object) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "default": default}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"versions": [{"name": "v1", "schema": schema}]},
    }

    with pytest.raises(RequestEntityTooLarge, match="more than"):
        decode(encode(definition))
