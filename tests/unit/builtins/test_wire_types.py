"""The facts about wire types agree with the published schemas, and read as they are packed."""

import pytest

from clusterspace.builtins import schemas as builtin_schemas
from clusterspace.builtins import wire_types
from clusterspace.builtins.wire_types import ListOf, MapOf, PointerTo, Scalar, StructRef, WireType
from clusterspace.kube.resources import GroupVersionKind


def structs_below(name: str, seen: set[str]) -> set[str]:
    if name in seen:
        return seen
    seen.add(name)
    for field in wire_types.struct_type(name).fields.values():
        inner = innermost(field.type)
        if isinstance(inner, StructRef):
            structs_below(inner.name, seen)
    return seen


def innermost(wire_type: WireType) -> Scalar | StructRef:
    match wire_type:
        case PointerTo():
            return innermost(wire_type.target)
        case ListOf():
            return innermost(wire_type.element)
        case MapOf():
            return innermost(wire_type.value)
        case Scalar() | StructRef():
            return wire_type


def all_structs() -> set[str]:
    seen: set[str] = set()
    for kind in wire_types.built_in_kinds():
        struct = wire_types.struct_of_kind(kind)
        assert struct is not None
        structs_below(struct.name, seen)
    return seen


def test_every_struct_has_exactly_the_fields_its_schema_publishes() -> None:
    different = {
        name
        for name in all_structs()
        if set(wire_types.struct_type(name).fields)
        != set(builtin_schemas.definition(name).properties)
    }

    assert different == set()


@pytest.mark.parametrize(
    ("struct", "field", "expected"),
    [
        ("core.v1.PodSpec", "containers", ListOf(StructRef("io.k8s.api.core.v1.Container"))),
        ("core.v1.ConfigMap", "data", MapOf(Scalar("string", "string"))),
        ("core.v1.ConfigMap", "immutable", PointerTo(Scalar("bool", "bool"))),
        ("core.v1.Container", "imagePullPolicy", Scalar("string", "v1.PullPolicy")),
        (
            "core.v1.ResourceQuotaSpec",
            "hard",
            MapOf(Scalar("quantity", "resource.Quantity"), "v1.ResourceList"),
        ),
    ],
)
def test_a_field_has_its_type(struct, field, expected) -> None:
    assert wire_types.struct_type(f"io.k8s.api.{struct}").fields[field].type == expected


def test_a_field_of_an_embedded_struct_remembers_the_way() -> None:
    probe = wire_types.struct_type("io.k8s.api.core.v1.Probe")

    assert probe.fields["httpGet"].via == "ProbeHandler."
    assert probe.fields["periodSeconds"].via == ""


@pytest.mark.parametrize(
    ("wire_type", "name"),
    [
        (ListOf(StructRef("io.k8s.api.core.v1.Container")), "[]v1.Container"),
        (MapOf(Scalar("string", "string")), "map[string]string"),
        (PointerTo(Scalar("int32", "int32")), "int32"),
        (MapOf(Scalar("quantity", "resource.Quantity"), "v1.ResourceList"), "v1.ResourceList"),
    ],
)
def test_types_are_spelled_as_messages_spell_them(wire_type, name) -> None:
    assert wire_types.type_name(wire_type) == name


def test_a_kind_that_is_not_built_in_has_no_struct() -> None:
    assert wire_types.struct_of_kind(GroupVersionKind("example.com", "v1", "Widget")) is None
