"""The table of messages is whole: every line reads, every type it names is there."""

from clusterspace.builtins.resource_model import CREATE_ONLY
from clusterspace.builtins.resources import all_resources
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
