"""Field selectors over any field: what clusters know themselves, they are sent; the rest is ours.

    status.phase!=Running,spec.containers[*].image=nginx:1.27
    └─ pods select by it: sent to clusters       └─ nobody does: judged here, object by object

A field is named by its path, as in JSONPath and without the first dot. An absent field is the empty
string, as everywhere in field selectors; numbers and booleans are compared as JSON writes them.
Where a path leads to several values, `=` asks for one of them and `!=` for none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Final

import msgspec

from clusterspace.builtins.resources import find_resource
from clusterspace.errors import ClusterMisbehaved, MalformedPath, MalformedSelector
from clusterspace.fleet.gateway.merge.lists import ClusterList, Row
from clusterspace.fleet.gateway.merge.sorting import Order
from clusterspace.fleet.gateway.renaming import Fields, encode, read_object
from clusterspace.fleet.gateway.routes import Subject, unqualifier
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.json_paths import Anywhere, Child, JsonPath, find_in_text, read_json_path
from clusterspace.kube.selectors import (
    ALWAYS_SELECTABLE,
    FieldRequirement,
    FieldSelector,
    parse_field_selector,
)
from clusterspace.kube.tables import META_VERSION

_PARTIAL: Final[Mapping[str, str]] = {"kind": "PartialObjectMetadata", "apiVersion": META_VERSION}


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """The part of a field selector that no cluster judges."""

    requirements: tuple[FieldRequirement, ...]
    paths: tuple[JsonPath, ...]
    """Of each requirement, where its field is."""
    sent: str = ""
    """The part that clusters do judge, as they are sent it."""
    include: str = "Object"
    """How much of an object the client wants beside a row of a Table."""
    is_metadata_only: bool = False
    """Whether the client wants no more than the metadata of objects."""
    order: Order | None = None
    """By what the list is to be sorted: read here too, while whole objects are at hand."""
    namespaces: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Of which namespaces objects are shown, by cluster, where not of all."""

    def select(self, listed: ClusterList) -> ClusterList:
        """Return the list with what matches, in the form that the client wants it."""
        fits = self.matches(listed)
        rows, items = list(compress(listed.rows, fits)), list(compress(listed.items, fits))
        kept = replace(listed, rows=rows, items=items)
        if self.order is not None:
            kept = replace(kept, sort_keys=[self.order.key_of(each) for each in _objects_of(kept)])
        return self.reduce(kept)

    def matches(self, listed: ClusterList) -> list[bool]:
        """Tell of each row or item whether it is as asked; ClusterMisbehaved if unreadable."""
        own = unqualifier(listed.cluster)
        values = [own(each.value) for each in self.requirements]
        namespaces = self.namespaces.get(listed.cluster)
        try:
            return [
                _is_within(each, namespaces) and self._is_met(each, values)
                for each in _objects_of(listed)
            ]
        except UNREADABLE as error:
            why = f"its list has an object that cannot be read: {error}"
            raise ClusterMisbehaved(listed.cluster, why, code=200) from error

    def _is_met(self, fields: Fields, values: Sequence[str]) -> bool:
        read: dict[str, Any] = {}
        for requirement, path, value in zip(self.requirements, self.paths, values, strict=True):
            # Objects are mostly unread text: what is decoded is the field at the top, once.
            top = path.steps[0].name if isinstance(path.steps[0], Child) else ""
            if top not in read and top in fields:
                field = fields[top]
                read[top] = msgspec.json.decode(field) if isinstance(field, msgspec.Raw) else field
            texts = [_text(each) for each in path.find_all(read)] or [""]
            if (value in texts) is not requirement.is_equal:
                return False
        return True

    def texts_at(
        self, path: JsonPath, text: msgspec.Raw, own: Callable[[str], str]
    ) -> tuple[str, ...]:
        """Return what an object says at a path, as it is compared; names by `own`."""
        texts = tuple(map(_text, find_in_text(path, text))) or ("",)
        return tuple(own(each) for each in texts if each is not None)

    def reduce(self, listed: ClusterList) -> ClusterList:
        """Return a list in the form that the client wants; clusters are asked for whole objects."""
        if listed.is_table:
            if self.include == "Object":
                return listed
            rows = [replace_beside(row, is_shown=self.include != "None") for row in listed.rows]
            return replace(listed, rows=rows)
        if not self.is_metadata_only:
            return listed
        kind = "PartialObjectMetadata" + ("List" if listed.kind.endswith("List") else "")
        items = [
            {**_PARTIAL, "metadata": item.get("metadata", msgspec.Raw(b"{}"))}
            for item in listed.items
        ]
        return replace(listed, kind=kind, api_version=META_VERSION, items=items)


class _Place(msgspec.Struct):
    namespace: str = ""


_read_place: Final = msgspec.json.Decoder(_Place).decode


def _is_within(fields: Fields, namespaces: frozenset[str] | None) -> bool:
    """Whether an object is in one of these namespaces, or in none at all."""
    if not namespaces:
        return True
    found = _read_place(fields.get("metadata", b"{}")).namespace
    return not found or found in namespaces


def _objects_of(listed: ClusterList) -> Iterator[Fields]:
    if not listed.is_table:
        yield from listed.items
    for row in listed.rows:
        yield {} if row.beside is msgspec.UNSET else read_object(row.beside)


def replace_beside(row: Row, *, is_shown: bool) -> Row:
    """Return a row with the metadata of its object beside it, or nothing."""
    if not is_shown or row.beside is msgspec.UNSET:
        return Row(row.cells, row.conditions, msgspec.Raw(b"null"))
    fields = read_object(row.beside)
    metadata = {**_PARTIAL, "metadata": fields.get("metadata", msgspec.Raw(b"{}"))}
    return Row(row.cells, row.conditions, msgspec.Raw(encode(metadata)))


def _text(value: Any) -> str | None:
    match value:
        case str():
            return value
        case None:
            return ""
        case bool() | int() | float():
            return msgspec.json.encode(value).decode()
        case _:
            return None  # an object or a list is like no text at all


def read_filter(
    text: str,
    subject: Subject,
    *,
    include: str,
    is_metadata_only: bool,
    order: Order | None = None,
    namespaces: Mapping[str, frozenset[str]] | None = None,
) -> FieldFilter | None:
    """Take a field selector apart; None when clusters judge all of it, and nothing is sorted.

    Raise MalformedSelector for one that cannot be read, and for a field that is no path.
    """
    asked = parse_field_selector(text).requirements
    builtin = find_resource(subject.group, subject.version, subject.resource)
    known = builtin.selectable_fields if builtin else ALWAYS_SELECTABLE
    own = tuple(each for each in asked if each.field not in known)
    if not own and order is None and not namespaces:
        return None
    return FieldFilter(
        own,
        tuple(_read_path(each.field) for each in own),
        str(FieldSelector(tuple(each for each in asked if each.field in known))),
        include,
        is_metadata_only,
        order,
        namespaces or {},
    )


def _read_path(field: str) -> JsonPath:
    try:
        path = read_json_path(f".{field}")
    except MalformedPath as error:
        raise MalformedSelector(f"field label not supported: {field}", place=field) from error
    is_fit = bool(path.steps) and isinstance(path.steps[0], Child)
    if not is_fit or any(isinstance(step, Anywhere) for step in path.steps):
        why = "name a field by its path, as in spec.containers[0].image"
        raise MalformedSelector(f"field label not supported: {field}: {why}", place=field)
    return path
