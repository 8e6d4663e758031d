"""Preconditions, finalizers, propagation policy: the end of an object, or its beginning.

Deleting an object that something still holds (a finalizer, dependents in the foreground, a grace
period) marks it; it goes when the last hold is taken away.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from clusterspace.apiserver import forms, keys
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import off_loop_if_large
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.revisions import KeyValue
from clusterspace.apiserver.writing import TRIES, is_finished
from clusterspace.errors import RevisionMismatch
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of
from clusterspace.kube.timestamps import format_time

REMOVER: Final = "system:apiserver"
"""Whose turn it is when a large object goes: nobody waits in vain for what they delete."""

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

_PROTECTED_NAMESPACES: Final = ("default", "kube-public", "kube-system")
_DEFAULT_POD_GRACE: Final = 30


@dataclass(frozen=True, slots=True)
class Removed:
    """What a delete left behind."""

    kube_object: Object
    entry: KeyValue | None = None
    """The stored entry when the object is only marked."""
    is_gone: bool = False
    """Whether nothing held the object; in a dry run, whether nothing would have."""


async def remove(hub: HubState, served: Served, key: str, options: DeleteOptions) -> Removed:
    """Mark or remove one object; try again when somebody changes it meanwhile."""
    for attempt in range(TRIES):
        entry = await hub.store.get(key)
        if entry is None:
            raise statuses.not_found(served.info.group_resource, keys.name_in(key))
        mark = partial(_marked, hub, served, entry, options)
        old, marked = await off_loop_if_large(REMOVER, entry.value, mark)
        try:
            return await _carry_out(hub, served, entry, old, marked, options)
        except RevisionMismatch as lost:
            if attempt == TRIES - 1:
                raise statuses.conflict(served.info.group_resource, name_of(old)) from lost
    raise AssertionError("unreachable: the last attempt returns or raises")


def _marked(
    hub: HubState, served: Served, entry: KeyValue, options: DeleteOptions
) -> tuple[Object, Object]:
    """Return the object there is and as the delete wants it, or refuse the delete."""
    old = forms.decode_stored(entry, served.form)
    _require_preconditions(served, old, options)
    _refuse_protected(served, old)
    return old, marked_for_removal(hub, served, old, options)


async def _carry_out(  # noqa: PLR0913 - one delete, all of it named
    hub: HubState,
    served: Served,
    entry: KeyValue,
    old: Object,
    marked: Object,
    options: DeleteOptions,
) -> Removed:
    if is_finished(marked):
        if not options.dry_run:
            await hub.store.delete(entry.key, expected=entry.mod_revision)
        return Removed(old, is_gone=True)
    if marked == old:
        return Removed(old, entry)
    if options.dry_run:
        return Removed(marked)
    encode = partial(forms.encode_stored, marked, served.form)
    stored = await off_loop_if_large(REMOVER, entry.value, encode)
    return Removed(marked, await hub.store.put(entry.key, stored, expected=entry.mod_revision))


def _require_preconditions(served: Served, old: Object, options: DeleteOptions) -> None:
    kind, metadata = served.info.group_kind, metadata_of(old)
    if options.uid and options.uid != metadata.get("uid"):
        held = str(metadata.get("uid"))
        raise statuses.uid_conflict(kind, name_of(old), wanted=options.uid, held=held)
    if options.resource_version and options.resource_version != metadata["resourceVersion"]:
        raise statuses.version_conflict(
            kind, name_of(old), wanted=options.resource_version, held=metadata["resourceVersion"]
        )


def _refuse_protected(served: Served, old: Object) -> None:
    info = served.info
    if (info.group, info.kind) == ("", "Namespace") and name_of(old) in _PROTECTED_NAMESPACES:
        raise statuses.forbidden(
            info.group_resource, name_of(old), "this namespace may not be deleted"
        )


def marked_for_removal(
    hub: HubState, served: Served, old: Object, options: DeleteOptions
) -> Object:
    """Return the object as the delete wants it: marked, and held by what the policy adds."""
    metadata = dict(metadata_of(old))
    is_first = "deletionTimestamp" not in metadata
    grace = _grace(served, old, options)
    held = cast("list[str]", metadata.get("finalizers") or [])
    finalizers = _with_policy(held, options.propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if is_first:
        metadata["deletionTimestamp"] = format_time(hub.clock.now() + grace)
        if metadata.get("generation"):
            # Controllers that look only at generations must notice.
            metadata["generation"] += 1
    if is_first or grace < metadata.get("deletionGracePeriodSeconds", 0):
        metadata["deletionGracePeriodSeconds"] = grace
    return served.rules.prepare_delete({**old, "metadata": metadata}, old)


def _with_policy(present: list[str], propagation: str) -> list[str]:
    """Return the finalizers a policy leaves: foreground and orphan exclude each other."""
    if not propagation:
        return present
    added = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(propagation)
    kept = [each for each in present if each not in (FOREGROUND, ORPHAN)]
    return [*kept, added] if added else kept


def _grace(served: Served, old: Object, options: DeleteOptions) -> int:
    """Return how long a pod on a node has to stop; everything else goes at once."""
    info = served.info
    if (info.group, info.kind) != ("", "Pod") or not find_at(old, "spec", "nodeName"):
        return 0
    if find_at(old, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_seconds is not None:
        return max(0, options.grace_seconds)
    seconds = find_at(old, "spec", "terminationGracePeriodSeconds")
    return _DEFAULT_POD_GRACE if seconds is None else int(seconds)
