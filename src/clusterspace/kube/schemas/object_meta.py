"""ObjectMeta: the schema of `metadata`, the one part that every kind shares."""

from typing import Any, Final

from clusterspace.kube.schemas.model import Schema

_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "format": "date-time"}
_COUNT: Final = {"type": "integer", "format": "int64"}
_FLAG: Final = {"type": "boolean"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}

_OWNER_REFERENCE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["apiVersion", "kind", "name", "uid"],
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "apiVersion": _TEXT,
        "blockOwnerDeletion": _FLAG,
        "controller": _FLAG,
        "kind": _TEXT,
        "name": _TEXT,
        "uid": _TEXT,
    },
}

_MANAGED_FIELDS_ENTRY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "apiVersion": _TEXT,
        "fieldsType": _TEXT,
        "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "manager": _TEXT,
        "operation": _TEXT,
        "subresource": _TEXT,
        "time": _TIME,
    },
}

OBJECT_META: Final = Schema(
    {
        "type": "object",
        "properties": {
            "annotations": _TEXTS,
            "creationTimestamp": _TIME,
            "deletionGracePeriodSeconds": _COUNT,
            "deletionTimestamp": _TIME,
            "finalizers": {
                "type": "array",
                "items": _TEXT,
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "generateName": _TEXT,
            "generation": _COUNT,
            "labels": _TEXTS,
            "managedFields": {
                "type": "array",
                "items": _MANAGED_FIELDS_ENTRY,
                "x-kubernetes-list-type": "atomic",
            },
            "name": _TEXT,
            "namespace": _TEXT,
            "ownerReferences": {
                "type": "array",
                "items": _OWNER_REFERENCE,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
            },
            "resourceVersion": _TEXT,
            "selfLink": _TEXT,
            "uid": _TEXT,
        },
    }
)
"""The same facts as the published definition; a test compares the two."""
