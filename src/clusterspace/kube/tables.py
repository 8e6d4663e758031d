"""Rows and columns for `kubectl get`: the Table and PartialObjectMetadata forms of any object."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from clusterspace.kube.objects import Object, metadata_of

META_GROUP: Final = "meta.k8s.io"
META_VERSION: Final = f"{META_GROUP}/v1"


class IncludeObject(Enum):
    """How much of each object a Table carries beside its cells; the values of `includeObject`."""

    METADATA = "Metadata"
    OBJECT = "Object"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; a priority above zero shows only with `-o wide`."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    @property
    def definition(self) -> Object:
        """The column as a Table declares it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def table(
    columns: Sequence[Column], rows: Iterable[Object], list_metadata: Mapping[str, Any]
) -> Object:
    """Return the Table; its metadata is that of the list, or of the one object asked for."""
    kept = ("resourceVersion", "continue", "remainingItemCount")
    return {
        "kind": "Table",
        "apiVersion": META_VERSION,
        "metadata": {name: list_metadata[name] for name in kept if name in list_metadata},
        "columnDefinitions": [column.definition for column in columns],
        "rows": list(rows),
    }


def table_row(
    cells: Sequence[Any],
    kube_object: Object,
    include: IncludeObject = IncludeObject.METADATA,
    conditions: Sequence[Object] = (),
) -> Object:
    """Return one row: the cells, and as much of the object as was asked for."""
    beside = {"conditions": list(conditions)} if conditions else {}
    included: Object | None = None
    if include is IncludeObject.METADATA:
        included = partial_metadata(kube_object)
    elif include is IncludeObject.OBJECT:
        included = kube_object
    return {"cells": list(cells), **beside, "object": included}


def partial_metadata(kube_object: Mapping[str, Any]) -> Object:
    """Return the object's metadata alone, as a PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": META_VERSION,
        "metadata": metadata_of(kube_object),
    }


def partial_metadata_list(
    kube_objects: Iterable[Mapping[str, Any]], list_metadata: Mapping[str, Any]
) -> Object:
    """Return the metadata of many objects as a PartialObjectMetadataList."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": META_VERSION,
        "metadata": dict(list_metadata),
        "items": [partial_metadata(kube_object) for kube_object in kube_objects],
    }


def in_version(document: Object, version: str) -> Object:
    """Return a Table or metadata in this version of the group: one format under two names.

    The metadata beside the rows of a Table is in the version of the Table.
    """
    if document.get("apiVersion") in (None, version) or document.get("kind") not in _DOCUMENTS:
        return document
    changed = {**document, "apiVersion": version}
    if "rows" in document:
        changed["rows"] = [
            {**row, "object": row["object"] and in_version(row["object"], version)}
            for row in document["rows"]
        ]
    if "items" in document:
        changed["items"] = [in_version(each, version) for each in document["items"]]
    return changed


_DOCUMENTS: Final = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
