"""Before and after to the smallest patch; spec or status, never both. And finalizers, by it.

A reconciler works on a copy and commits the difference. Spec and status are different resources
with different rights, and one write of both would undo what the other's owner did.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, PatchType, Writer
from clusterspace.errors import Conflict, MixedCommit, NotFound
from clusterspace.kube.objects import (
    Object,
    is_being_deleted,
    metadata_of,
    resource_version_of,
    uid_of,
    with_finalizer,
    without_finalizer,
)

STATUS: Final = "status"

_MOST_CONFLICTS: Final = 20
"""After which somebody writes without a pause, and the conflict is told."""

# Written by the server; a difference here is never ours to send.
_SERVERS: Final = frozenset({"managedFields", "resourceVersion", "generation", "uid"})


@dataclass(frozen=True, slots=True)
class Commit:
    """The merge patch that turns one state into the other, and the subresource it is for."""

    patch: Object
    subresource: str = ""


def plan_commit(before: Object, after: Object) -> Commit | None:
    """Return the smallest patch, or None when nothing changed; MixedCommit when both did.

    The patch carries the version and UID of `before`, so that it fails when either has changed.
    """
    # Status and the rest are two writes to the API, so one patch could only do half of what was
    # planned, and a crash between two of ours would leave that half. The caller says which comes
    # first, because it knows which half may stand alone.
    status = merge_difference(before.get(STATUS) or {}, after.get(STATUS) or {})
    rest = merge_difference(_without_status(before), _without_status(after))
    if status and rest:
        changed = ", ".join(sorted(rest))
        raise MixedCommit(f"status and {changed} were changed in one go; commit them one by one")
    if not status and not rest:
        return None
    patch = {STATUS: status} if status else rest
    metadata = {
        **metadata_of(patch),
        "resourceVersion": resource_version_of(before),
        "uid": uid_of(before),
    }
    named = {key: value for key, value in metadata.items() if value != ""}
    return Commit({**patch, "metadata": named}, STATUS if status else "")


async def commit(writer: Writer, path: ResourcePath, before: Object, after: Object) -> Object:
    """Write the difference, if there is one; return the object as it is now stored.

    The patch names the version it was planned on. When somebody wrote in between, the hub answers
    Conflict and nothing is written: the next attempt plans anew, on what they wrote.
    """
    planned = plan_commit(before, after)
    if planned is None:
        return after
    target = path.with_subresource(planned.subresource)
    return await writer.patch(target, PatchType.MERGE, planned.patch)


async def commit_change(
    client: Client, path: ResourcePath, change: Callable[[Object], Object]
) -> Object:
    """Change an object as it is now, whoever else writes to it; NotFound when it is not there.

    For commands, which have nobody to try again for them. A conflict means that somebody wrote
    between our look and our write, such as a heartbeat: `change` is asked anew, of what they wrote.
    """
    for _ in range(_MOST_CONFLICTS):
        present = await client.get(path)
        try:
            return await commit(client, path, present, change(present))
        except Conflict:
            continue
    present = await client.get(path)
    return await commit(client, path, present, change(present))


def merge_difference(before: Object, after: Object) -> Object:
    """Return the merge patch from one to the other: what changed, and null for what is gone."""
    gone: Object = {key: None for key in before if after.get(key) is None}
    patch = {key: value for key, value in gone.items() if before[key] is not None}
    for key, value in after.items():
        current = before.get(key)
        if value is None or value == current:
            continue
        if isinstance(value, dict) and isinstance(current, dict):
            patch[key] = merge_difference(cast("Object", current), cast("Object", value))
        else:
            patch[key] = _without_nulls(value)
    return patch


def _without_nulls(value: Any) -> Any:
    """Return the value as a merge patch can carry it: in objects null would mean "take out"."""
    if not isinstance(value, dict):
        return value
    fields = cast("Object", value)
    return {key: _without_nulls(each) for key, each in fields.items() if each is not None}


def _without_status(kube_object: Object) -> Object:
    ours = {key: each for key, each in metadata_of(kube_object).items() if key not in _SERVERS}
    rest = {key: each for key, each in kube_object.items() if key != STATUS}
    return {**rest, "metadata": ours}


# -- holding an object until its cleanup is done -----------------------------------------------


async def ensure_finalizer(
    writer: Writer, path: ResourcePath, kube_object: Object, finalizer: str
) -> Object:
    """Hold the object, before the first side effect that would need cleaning up.

    The order is the guarantee: killed after this write, nothing has happened yet; killed after the
    side effect, the object cannot go before somebody cleans up. An object that is being deleted
    takes no new finalizers, and is returned as it is.
    """
    if is_being_deleted(kube_object):
        return kube_object
    return await commit(writer, path, kube_object, with_finalizer(kube_object, finalizer))


async def release(writer: Writer, path: ResourcePath, kube_object: Object, finalizer: str) -> None:
    """Let the object go, after its cleanup; one that is gone or was made anew is left alone."""
    try:
        await commit(writer, path, kube_object, without_finalizer(kube_object, finalizer))
    except NotFound:
        # Ours was the last finalizer and somebody let go for us, or we did before a restart.
        return
