"""Manifest to member object: create, adopt, update; what is the member's stays the member's.

The decision (`plan_update`) is pure: docs/decisions/0007-what-a-manifest-replaces.md has its
reasons. It ends in one PUT at the version that was looked at, so nothing is ever overwritten
unseen.
"""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from clusterspace.apis.interpreter.retention import retain
from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.normal_form import is_built_in, normalize
from clusterspace.builtins.schemas import schema_for
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.client.writes import WriteOptions
from clusterspace.errors import AlreadyExists, Conflict, Malformed, NotFound
from clusterspace.fleet.execution import ownership
from clusterspace.fleet.execution.takeover import Verdict, judge
from clusterspace.kube.managed_fields.comparison import compare
from clusterspace.kube.managed_fields.field_sets import FieldSet, Path
from clusterspace.kube.managed_fields.merging import merge
from clusterspace.kube.managed_fields.typed_values import object_schema, owned_fields
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    labels_of,
    resource_version_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.schemas.model import ANYTHING, Schema

FIELD_MANAGER: Final = "clusterspace-execution"
"""The name members know us by in `managedFields`: what is under it, we set."""

_AS_US: Final = WriteOptions(field_manager=FIELD_MANAGER)
_APART: Final = ("metadata", "status")
_METADATA: Final = "f:metadata"
_VOLATILE: Final = FieldSet.of(
    ("f:status",),
    *(
        ("f:metadata", f"f:{name}")
        for name in ("managedFields", "resourceVersion", "generation", "creationTimestamp")
    ),
)
_ROUNDS: Final = 3
"""How often to decide anew, at once, when somebody writes between our look and our write."""


@dataclass(frozen=True, slots=True)
class Update:
    """What to PUT, and which fields of the member object that changes."""

    body: Object
    fields: FieldSet


class Action(Enum):
    """What was done about a manifest."""

    CREATED = "created"
    ADOPTED = "adopted"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    LEFT = "left as it is"
    WAITS = "waits"
    CONFLICTS = "conflicts"


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done, what is there now, and what an update changed."""

    action: Action
    live: Object
    update: Update | None = None

    @property
    def is_in_force(self) -> bool:
        """Whether the member holds what the manifest asks for."""
        return self.action not in (Action.WAITS, Action.CONFLICTS)


def plan_update(manifest: Object, live: Object) -> Update | None:
    """Return how to bring a member object to its manifest; None when there is nothing to do."""
    kind = GroupVersionKind.of(str(manifest.get("apiVersion")), str(manifest.get("kind")))
    schema = _schema_of(kind)
    wanted = retain(manifest, live)
    body = {
        **_content_over(wanted, live, schema),
        "metadata": _metadata_over(wanted, live),
        **({"status": live["status"]} if "status" in live else {}),
    }
    if body == live:
        return None
    fields = _difference(kind, live, body, schema)
    return Update(body, fields) if fields else None


def content_difference(before: Object, after: Object) -> FieldSet:
    """Return what is different between two states of an object, names and stamps aside."""
    kind = GroupVersionKind.of(str(before.get("apiVersion")), str(before.get("kind")))
    return _difference(kind, before, after, _schema_of(kind)).without(ownership.APART)


def changes_content(update: Update | None) -> bool:
    """Whether an update changes anything besides the labels and annotations of an object."""
    paths = () if update is None else update.fields.paths()
    return any(path[0] != _METADATA for path in paths)


def leaf_paths(fields: FieldSet) -> list[Path]:
    """Return the paths with nothing below them: a changed field, not the places it is in."""
    paths = list(fields.paths())
    return [
        each for each in paths if not any(other[: len(each)] == each != other for other in paths)
    ]


def _content_over(wanted: Object, live: Object, schema: Schema) -> Object:
    """Return everything but metadata and status: the manifest's, over what others have there."""
    content = _content_of(wanted)
    try:
        told = owned_fields(content, schema)
        owners = ownership.owners_of(live, told, FIELD_MANAGER)
        if owners is None:
            return content  # nobody knows whose anything is: the manifest is all there is
        merged = merge(_content_of(live), content, schema)
        return ownership.without_untold(merged, told, owners, schema)
    except Malformed:
        # Elements without names or with the same name cannot be matched: the member is to judge.
        return content


def _content_of(kube_object: Object) -> Object:
    return {key: value for key, value in kube_object.items() if key not in _APART}


def _metadata_over(wanted: Object, live: Object) -> Object:
    stamped = with_metadata(
        live,
        labels=dict(labels_of(wanted)) or None,
        annotations=dict(annotations_of(wanted)) or None,
    )
    return stamped["metadata"]


def _difference(kind: GroupVersionKind, before: Object, after: Object, schema: Schema) -> FieldSet:
    """Return what a PUT would change; defaults it leaves out come back by themselves.

    Fields that only newer servers know have no normal form here, and are compared as they are.
    """
    if is_built_in(kind):
        try:
            old, new = normalize(before, kind), normalize(after, kind)
        except Malformed:
            return _compared(before, after, schema)
        if not old.unknown_fields and not new.unknown_fields:
            before, after = apply_defaults(kind, old.object), apply_defaults(kind, new.object)
    return _compared(before, after, schema)


def _compared(before: Object, after: Object, schema: Schema) -> FieldSet:
    found = compare(before, after, schema).without(_VOLATILE)
    return found.changed | found.removed


@lru_cache(maxsize=256)
def _schema_of(kind: GroupVersionKind) -> Schema:
    found = schema_for(kind.group, kind.version, kind.kind)
    return ANYTHING if found is None else object_schema(found)


async def apply(member: Client, place: Place, manifest: Object, seen: Object | None) -> Applied:
    """Bring one member object to its manifest, beginning with what was last seen of it.

    What was seen may be old: the member then refuses the write, and we look and decide anew.
    """
    live = seen
    for _ in range(_ROUNDS - 1):
        try:
            return await _apply_once(member, place, manifest, live)
        except (AlreadyExists, Conflict):
            live = await member.find(place)
        except NotFound:
            if live is None:
                raise  # not the object is missing, but the namespace it goes into
            live = await member.find(place)
    return await _apply_once(member, place, manifest, live)


async def _apply_once(
    member: Client, place: Place, manifest: Object, live: Object | None
) -> Applied:
    match judge(manifest, live):
        case Verdict.CREATE:
            made = await member.create(place.collection, manifest, _AS_US)
            return Applied(Action.CREATED, made)
        case Verdict.UPDATE:
            return await _update(member, place, manifest, live or {}, Action.UPDATED)
        case Verdict.ADOPT:
            return await _update(member, place, manifest, live or {}, Action.ADOPTED)
        case Verdict.ADOPT_IF_SAME:
            if changes_content(plan_update(manifest, live or {})):
                return Applied(Action.CONFLICTS, live or {})
            return await _update(member, place, manifest, live or {}, Action.ADOPTED)
        case Verdict.LEAVE:
            return Applied(Action.LEFT, live or {})
        case Verdict.WAIT:
            return Applied(Action.WAITS, live or {})
        case Verdict.CONFLICT:
            return Applied(Action.CONFLICTS, live or {})


async def _update(
    member: Client, place: Place, manifest: Object, live: Object, action: Action
) -> Applied:
    planned = plan_update(manifest, live)
    if planned is None:
        return Applied(Action.UNCHANGED, live)
    stored = await member.update(place, planned.body, _AS_US)
    if resource_version_of(stored) == resource_version_of(live):
        # The member takes what we said for what it has: written differently, meant the same.
        return Applied(Action.UNCHANGED, stored)
    return Applied(action, stored, planned)
