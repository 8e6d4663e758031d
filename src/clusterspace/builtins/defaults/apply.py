"""Filling in an object: every struct in it that has a rule gets what it lacks, parents first.

Which fields can lead to a struct with a rule is worked out once per struct, so the walk touches
only those: most of a Pod is never looked at.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, TypeAlias, cast

from clusterspace.builtins import wire_types
from clusterspace.builtins.defaults import (
    aliases,
    gated,
    governance,
    pods,
    storage,
    traffic,
    workloads,
)
from clusterspace.builtins.defaults.rules import Rule, Rules, in_sequence
from clusterspace.builtins.wire_types import ListOf, MapOf, PointerTo, Scalar, StructRef, WireType
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind

_Fill: TypeAlias = Callable[[Any], Any]

_DEFAULTS: Final[Rules] = {
    **pods.RULES,
    **workloads.RULES,
    **traffic.RULES,
    **storage.RULES,
    **governance.RULES,
}

# A struct's own rules apply in this order: what was said, what may be said, what was not said.
_IN_ORDER: Final = (aliases.RULES, gated.RULES, _DEFAULTS)


def apply_defaults(kind: GroupVersionKind, kube_object: Object) -> Object:
    """Return the object with its defaults; the same object when it has them all.

    The object is in normal form. A kind that is not built in has no defaults here.
    """
    struct = wire_types.struct_of_kind(kind)
    if struct is None or not _has_rules(struct.name):
        return kube_object
    return cast("Object", _struct_filler(struct.name)(kube_object))


@cache
def _struct_filler(name: str) -> _Fill:
    rule = _rule_for(name)
    # Made at the first use: structs may hold themselves.
    children: dict[str, _Fill] = {}
    paths = {
        key: field.type
        for key, field in wire_types.struct_type(name).fields.items()
        if any(_has_rules(inner) for inner in _structs_of(field.type))
    }

    def fill(struct: Object) -> Object:
        if paths and not children:
            children.update({key: _filler(inner) for key, inner in paths.items()})
        filled = rule(struct)
        changed: Object = {}
        for key, fill_child in children.items():
            held = filled.get(key)
            if held is not None and (new := fill_child(held)) is not held:
                changed[key] = new
        return {**filled, **changed} if changed else filled

    return fill


def _rule_for(name: str) -> Rule:
    return in_sequence(*(rules[name] for rules in _IN_ORDER if name in rules))


def _filler(wire_type: WireType) -> _Fill:
    match wire_type:
        case StructRef():
            return _struct_filler(wire_type.name)
        case PointerTo():
            return _filler(wire_type.target)
        case ListOf():
            return _list_filler(_filler(wire_type.element))
        case MapOf():
            return _map_filler(_filler(wire_type.value))
        case Scalar():
            return lambda value: value


def _list_filler(fill: _Fill) -> _Fill:
    def fill_all(held: list[Any]) -> list[Any]:
        filled = [fill(each) for each in held]
        return held if _are_same(filled, held) else filled

    return fill_all


def _map_filler(fill: _Fill) -> _Fill:
    def fill_all(held: Object) -> Object:
        filled = {key: fill(each) for key, each in held.items()}
        return held if _are_same(filled.values(), held.values()) else filled

    return fill_all


def _are_same(filled: Iterable[Any], held: Iterable[Any]) -> bool:
    return all(new is old for new, old in zip(filled, held, strict=True))


@cache
def _has_rules(name: str) -> bool:
    """Whether the struct, or any struct it can hold, has a rule."""
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        if any(current in rules for rules in _IN_ORDER):
            return True
        for field in wire_types.struct_type(current).fields.values():
            new = [inner for inner in _structs_of(field.type) if inner not in seen]
            seen.update(new)
            pending.extend(new)
    return False


def _structs_of(wire_type: WireType) -> tuple[str, ...]:
    match wire_type:
        case StructRef():
            return (wire_type.name,)
        case PointerTo():
            return _structs_of(wire_type.target)
        case ListOf():
            return _structs_of(wire_type.element)
        case MapOf():
            return _structs_of(wire_type.value)
        case Scalar():
            return ()
