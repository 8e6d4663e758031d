"""Read back: what a member object is like, in the words of a Work's status."""

from collections.abc import Sequence
from typing import Final

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.health import health_of
from clusterspace.apis.interpreter.reflection import reflect_status
from clusterspace.apis.works import ALREADY_EXISTS, identifier_of
from clusterspace.fleet.execution.apply import Update, leaf_paths
from clusterspace.fleet.execution.ownership import managers_at, names_of
from clusterspace.fleet.execution.takeover import owner_text, subject_text
from clusterspace.kube.managed_fields.field_sets import Path, path_text
from clusterspace.kube.managed_fields.managers import raw_entries, read_entries
from clusterspace.kube.objects import Object, annotations_of, metadata_of

_MOST_FIELDS: Final = 5
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def manifest_status(manifest: Object, ordinal: int, live: Object) -> Object:
    """Return what a Work says of one of its manifests, seeing the object on the member."""
    told: Object = {"identifier": identifier_of(manifest, ordinal), "health": health_of(live)}
    status = reflect_status(live)
    return told if status is None else {**told, "status": status}


def shape_of(live: Object) -> int:
    """Return a number that changes with everything a manifest can say of an object."""
    metadata = metadata_of(live)
    said = {key: value for key, value in live.items() if key not in ("metadata", "status")}
    stamped = {key: metadata.get(key) for key in ("uid", "labels", "annotations")}
    return hash(_encode([said, stamped]))


def conflict_text(manifest: Object, live: Object, cluster: str, update: Update | None) -> str:
    """Return what is in the way of a manifest: what is there, whose it is, what is different."""
    resolution = annotations_of(manifest).get(stamps.CONFLICT_RESOLUTION) or "empty"
    differing = _content_fields(update)
    says = f"they differ in {differing}" if differing else "it says the same"
    return (
        f"{subject_text(manifest)} {ALREADY_EXISTS} {cluster} and the"
        f" {stamps.CONFLICT_RESOLUTION} strategy value is {resolution}:"
        f" {owner_text(live)}, it was written by {names_of(_writers(live))}, and {says}"
    )


def drift_text(update: Update, before: Object) -> str:
    """Return which fields were changed behind our back, and by whom."""
    return _enumerated(
        [
            f"{_text_of(path)} (changed by {names_of(managers_at(before, path))})"
            for path in leaf_paths(update.fields)
        ]
    )


def _content_fields(update: Update | None) -> str:
    paths = [] if update is None else leaf_paths(update.fields)
    return _enumerated([_text_of(path) for path in paths if path[0] != "f:metadata"])


def _enumerated(texts: Sequence[str]) -> str:
    """Return the first few of many texts, and how many more there are."""
    shown = ", ".join(texts[:_MOST_FIELDS])
    return f"{shown} and {len(texts) - _MOST_FIELDS} more" if len(texts) > _MOST_FIELDS else shown


def _text_of(path: Path) -> str:
    return path_text(path).removeprefix(".")


def _writers(live: Object) -> list[str]:
    """Return who wrote the object: those who own something of it and not just of its status."""
    entries = read_entries(raw_entries(live)).values()
    return sorted({entry.manager for entry in entries if not entry.subresource})
