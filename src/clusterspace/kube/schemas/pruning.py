"""Drop what a schema does not know, and name what was dropped."""

from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.errors import MalformedObject
from clusterspace.kube.field_paths import Step, Steps, dotted_text
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.defaulting import apply_defaults
from clusterspace.kube.schemas.model import NOTHING, Schema
from clusterspace.kube.schemas.object_meta import OBJECT_META

_META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


@dataclass(frozen=True, slots=True)
class Pruned:
    """What is left, and the paths of the fields that went, sorted."""

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
    """One pass over a value; `unknown` has the steps to each dropped field, as far as known."""

    unknown: list[Steps]

    def pruned(
        self, value: Any, schema: Schema, *, is_resource: bool = False, keeps_all: bool = False
    ) -> Any:
        keeps = keeps_all or schema.preserves_unknown_fields
        if isinstance(value, dict):
            whole = is_resource or schema.is_embedded_resource
            return self._object(cast("Object", value), schema, is_resource=whole, keeps=keeps)
        if isinstance(value, list):
            return self._list(cast("list[Any]", value), schema, keeps=keeps)
        return value

    def _object(self, held: Object, schema: Schema, *, is_resource: bool, keeps: bool) -> Object:
        changed: Object = {}
        dropped: list[str] = []
        named, free = schema.properties, schema.additional
        for name, value in held.items():
            known = named.get(name, free)
            if is_resource and name in _META_FIELDS:
                kept = self._meta_field(name, value)
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
            return held
        return {name: value for name, value in {**held, **changed}.items() if name not in dropped}

    def _meta_field(self, name: str, value: Any) -> Any:
        if name != "metadata":
            return value
        # Kubernetes decodes metadata into its own type, which has no place for nulls.
        return apply_defaults(self._below(name, value, OBJECT_META), OBJECT_META)

    def _list(self, held: list[Any], schema: Schema, *, keeps: bool) -> list[Any]:
        items = schema.items
        if items is None:
            if keeps:
                return held
            items = NOTHING
        kept = [
            self._below(index, value, items, keeps_all=keeps) for index, value in enumerate(held)
        ]
        unchanged = all(new is old for new, old in zip(kept, held, strict=True))
        return held if unchanged else kept

    def _below(self, step: Step, value: Any, schema: Schema, *, keeps_all: bool = False) -> Any:
        """Prune one level down; paths grow on the way back, so nothing unknown costs nothing."""
        before = len(self.unknown)
        kept = self.pruned(value, schema, keeps_all=keeps_all)
        if len(self.unknown) > before:
            self.unknown[before:] = [(step, *steps) for steps in self.unknown[before:]]
        return kept
