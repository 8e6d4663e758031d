"""What a write says besides the object; blind writes are refused here.

A write that names no version overwrites whatever somebody else wrote since we looked. So a PUT
or PATCH names the version it was made from or the owner of the fields it sets, and a DELETE names
the UID of the object it is meant for.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from clusterspace.client.places import Place
from clusterspace.client.requests import Query
from clusterspace.errors import BlindWrite
from clusterspace.kube.objects import Object, find_at, resource_version_of

_VERSION_POINTER: Final = "/metadata/resourceVersion"
_VERSION_OPERATIONS: Final = frozenset({"add", "replace", "test"})


class PatchType(Enum):
    """The four kinds of patch, by media type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(Enum):
    """What becomes of the objects a deleted one owns."""

    DEFAULT = ""
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a write is to be carried out; the field manager is the client's unless told."""

    field_manager: str = ""
    is_dry_run: bool = False
    field_validation: str = ""
    force: bool = False
    """Of an apply: take fields over from other managers."""

    def query(self, field_manager: str) -> Query:
        """Return the query, with the manager to use when none was told."""
        pairs = {
            "fieldManager": self.field_manager or field_manager,
            "dryRun": "All" if self.is_dry_run else "",
            "fieldValidation": self.field_validation,
            "force": "true" if self.force else "",
        }
        return tuple((key, value) for key, value in pairs.items() if value)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Which object to delete, and how."""

    uid: str
    resource_version: str = ""
    propagation: Propagation = Propagation.DEFAULT
    grace_seconds: int | None = None
    is_dry_run: bool = False

    def body(self, place: Place) -> Object:
        """Return the DeleteOptions body."""
        if not self.uid:
            raise BlindWrite(f"deleting {place} needs the UID of the object that is meant")
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        options: Object = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        if self.propagation is not Propagation.DEFAULT:
            options["propagationPolicy"] = self.propagation.value
        if self.grace_seconds is not None:
            options["gracePeriodSeconds"] = self.grace_seconds
        if self.is_dry_run:
            options["dryRun"] = ["All"]
        return options


def refuse_blind_update(place: Place, kube_object: Object) -> None:
    """Raise BlindWrite unless the object says which version it was made from."""
    if not resource_version_of(kube_object):
        raise BlindWrite(f"updating {place} needs a resourceVersion")


def refuse_blind_patch(place: Place, patch_type: PatchType, patch: Any) -> None:
    """Raise BlindWrite unless the patch says which version it was made from.

    An apply needs none: the server knows which fields are whose.
    """
    if patch_type is PatchType.APPLY:
        return
    named = (
        _names_version(patch)
        if patch_type is PatchType.JSON
        else bool(find_at(patch, "metadata", "resourceVersion"))
    )
    if not named:
        raise BlindWrite(f"patching {place} needs a resourceVersion in the patch")


def _names_version(operations: Any) -> bool:
    if not isinstance(operations, list):
        return False
    return any(
        find_at(operation, "path") == _VERSION_POINTER
        and find_at(operation, "op") in _VERSION_OPERATIONS
        and bool(find_at(operation, "value"))
        for operation in cast("list[object]", operations)
    )
