"""The table of messages is whole: every line reads, every type it names is there."""

from clusterspace.builtins.resource_model import CREATE_ONLY
from clusterspace.builtins.resources import all_resources
from clusterspace.builtins.wire_types import (
    ListOf,
    PointerTo,
    Scalar,
    StructRef,
    StructType,
    struct_of_kind,
    struct_type,
)
from clusterspace.kube.protobuf.messages import Shape, all_kinds, find_kind, get_message
from clusterspace.kube.protobuf.values import VALUE_TYPES


def reachable(name: str, seen: set[str]) -> set[str]:
    if name in seen or name in VALUE_TYPES:
        return seen
    seen.add(name)
    for field in get_message(name).fields:
        reachable(field.type, seen)
    return seen


def test_every_type_a_message_names_is_in_the_table() -> None:
    seen: set[str] = set()
    for name in all_kinds().values():
        reachable(name, seen)

    assert {"core.PodSpec", "meta.ObjectMeta", "apiextensions.JSONSchemaProps"} <= seen


def test_numbers_and_names_are_used_once_in_a_message() -> None:
    for name in all_kinds().values():
        for held in reachable(name, set()):
            fields = get_message(held).fields
            assert len({field.number for field in fields}) == len(fields), held
            own = [field.name for field in fields if field.shape is not Shape.INLINED]
            inlined = [
                shown
                for field in fields
                if field.shape is Shape.INLINED
                for shown in get_message(field.type).json_names
            ]
            assert len({*own, *inlined}) == len(own) + len(inlined), held


def test_every_built_in_kind_can_be_sent_as_protobuf() -> None:
    missing = [
        resource.info.group_version_kind
        for resource in all_resources()
        if find_kind(resource.info.api_version, resource.info.kind) is None
    ]

    assert missing == []


def test_every_body_a_subresource_takes_can_be_sent_as_protobuf() -> None:
    taken = [
        part.group_version_kind
        for resource in all_resources()
        for part in resource.info.subresources
        if part.verbs == CREATE_ONLY or "update" in part.verbs
        if not part.kind.endswith("ProxyOptions")
    ]

    assert [held for held in taken if find_kind(held.api_version, held.kind) is None] == []


def test_every_field_that_can_be_stored_has_a_place_on_the_wire() -> None:
    """One that had none would fail every list its object is in."""
    missing: list[str] = []
    for resource in all_resources():
        kind = resource.info.group_version_kind
        struct, message = struct_of_kind(kind), find_kind(kind.api_version, kind.kind)
        assert struct is not None
        assert message is not None
        missing += lacking(struct, message.name, kind.kind, set())

    assert missing == []


def lacking(struct: StructType, name: str, place: str, seen: set[tuple[str, str]]) -> list[str]:
    """Return the fields of a struct, and of those in it, that its message does not have."""
    if (struct.name, name) in seen:
        return []
    seen.add((struct.name, name))
    by_name: dict[str, str] = {}
    waiting = [name]
    while waiting:
        for field in get_message(waiting.pop()).fields:
            if field.shape is Shape.INLINED:
                waiting.append(field.type)
            else:
                by_name[field.name] = field.type
    found: list[str] = []
    for field_name, held in struct.fields.items():
        if field_name in ("apiVersion", "kind") and field_name not in by_name:
            continue
        if field_name not in by_name:
            found.append(f"{place}.{field_name}")
            continue
        inner = held.type
        while not isinstance(inner, Scalar | StructRef):
            inner = (
                inner.target
                if isinstance(inner, PointerTo)
                else inner.element
                if isinstance(inner, ListOf)
                else inner.value
            )
        if isinstance(inner, StructRef) and by_name[field_name] not in VALUE_TYPES:
            below = f"{place}.{field_name}"
            found += lacking(struct_type(inner.name), by_name[field_name], below, seen)
    return found
