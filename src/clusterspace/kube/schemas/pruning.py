"""Defaulting and pruning: fill in what an object leaves out, drop what its schema does not know.

Both return the object they were given when there was nothing to do, so that the usual write
copies nothing.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.errors import MalformedObject
from clusterspace.kube.causes import Step, Steps, dotted_text
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import NOTHING, OBJECT_META, Schema

_META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


def apply_defaults(value: Any, schema: Schema) -> Any:
    """Return the value with its defaults; the same object when there was nothing to fill in.

    A default counts only where its parent is there, given or itself by default. A null that the
    schema does not allow is treated as left out: with `a` defaulted to 1 and `b` not, `{"a": null,
    "b": null}` becomes `{"a": 1}`.
    """
    try:
        return _filled(value, schema)
    except RecursionError as error:
        raise MalformedObject("the object is nested too deeply to be defaulted") from error


def _filled(value: Any, schema: Schema) -> Any:
    if not isinstance(value, dict):
        if not isinstance(value, list) or schema.items is None:
            return cast("Any", value)
        elements = cast("list[Any]", value)
        filled = [_filled_or_default(element, schema.items) for element in elements]
        is_unchanged = all(new is old for new, old in zip(filled, elements, strict=True))
        return elements if is_unchanged else filled

    present = cast("Object", value)
    changed: Object = {}
    dropped: set[str] = set()
    named, free = schema.properties, schema.additional
    for name, inner in present.items():
        known = named.get(name, free)
        if known is None or not (inner is None or isinstance(inner, (dict, list))):
            continue
        with_defaults = _filled_or_default(inner, known)
        if with_defaults is None and not known.is_nullable:
            dropped.add(name)
        elif with_defaults is not inner:
            changed[name] = with_defaults
    for name, known in schema.defaulted.items():
        if name not in present:
            changed[name] = _filled(known.default, known)
    if not changed and not dropped:
        return present
    return {name: inner for name, inner in {**present, **changed}.items() if name not in dropped}


def _filled_or_default(value: Any, schema: Schema) -> Any:
    is_refused_null = value is None and not schema.is_nullable
    return _filled(schema.default if is_refused_null else value, schema)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The value that is left, and the paths of the fields that went, sorted."""

    value: Any
    unknown: tuple[str, ...]


def prune(value: Any, schema: Schema, *, is_resource_root: bool) -> Pruned:
    """Return the value without unknown fields; the same object when there were none.

    A whole resource, at the root or embedded, keeps its apiVersion, kind and metadata whatever
    its schema says. Its metadata is pruned as ObjectMeta.
    """
    walk = _Walk([])
    try:
        kept = walk.pruned(value, schema, is_resource=is_resource_root)
    except RecursionError as error:
        raise MalformedObject("the object is nested too deeply to be pruned") from error
    return Pruned(kept, tuple(sorted(dotted_text(steps) for steps in walk.unknown)))


@dataclass(frozen=True, slots=True)
class _Walk:
    """One pass over a value.

    `unknown` has the steps to each dropped field, from the value being looked at down. Each level
    adds its own step on the way back, so that paths are built for what is dropped and nothing is
    spent on what stays: dropping `x` under `spec.a` puts `("x",)`, then `("a", "x")`, then
    `("spec", "a", "x")`.
    """

    unknown: list[Steps]

    def pruned(
        self, value: Any, schema: Schema, *, is_resource: bool = False, keeps_all: bool = False
    ) -> Any:
        keeps = keeps_all or schema.preserves_unknown_fields
        if isinstance(value, dict):
            whole = is_resource or schema.is_embedded_resource
            return self._object(cast("Object", value), schema, is_resource=whole, keeps=keeps)
        if not isinstance(value, list) or (schema.items is None and keeps):
            return cast("Any", value)
        # Below the elements of a list everything unknown is still kept where the list keeps it;
        # below the fields of an object each schema says so for itself.
        items = schema.items or NOTHING
        elements = cast("list[Any]", value)
        kept = [
            self._below(index, inner, items, keeps_all=keeps)
            for index, inner in enumerate(elements)
        ]
        is_unchanged = all(new is old for new, old in zip(kept, elements, strict=True))
        return elements if is_unchanged else kept

    def _object(self, fields: Object, schema: Schema, *, is_resource: bool, keeps: bool) -> Object:
        changed: Object = {}
        dropped: list[str] = []
        named, free = schema.properties, schema.additional
        for name, value in fields.items():
            known = named.get(name, free)
            if is_resource and name in _META_FIELDS:
                if name != "metadata":
                    continue
                # Kubernetes decodes metadata into its own type, which has no place for nulls.
                kept = apply_defaults(self._below(name, value, OBJECT_META), OBJECT_META)
            elif known is None:
                if not keeps:
                    dropped.append(name)
                continue
            elif isinstance(value, (dict, list)):
                kept = self._below(name, value, known)
            else:
                continue
            if kept is not value:
                changed[name] = kept
        self.unknown.extend((name,) for name in dropped)
        if not changed and not dropped:
            return fields
        return {name: value for name, value in {**fields, **changed}.items() if name not in dropped}

    def _below(self, step: Step, value: Any, schema: Schema, *, keeps_all: bool = False) -> Any:
        before = len(self.unknown)
        kept = self.pruned(value, schema, keeps_all=keeps_all)
        if len(self.unknown) > before:
            self.unknown[before:] = [(step, *steps) for steps in self.unknown[before:]]
        return kept
