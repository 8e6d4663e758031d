"""Writes to the store that verbs and the hub's own controllers share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from clusterspace.aio.lanes import Run, at_once
from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.chain import admit
from clusterspace.apiserver.admissions import Admission, Author
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import off_loop_if_large
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.apiserver.ownership import write_of
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.revisions import ABSENT, KeyValue
from clusterspace.builtins.strategies.creation import Creation
from clusterspace.errors import Conflict, RevisionMismatch
from clusterspace.kube import statuses
from clusterspace.kube.managed_fields.update import Write, track_update
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, namespace_of

TRIES: Final = 20
"""A write without a resourceVersion may lose this many races before it gives up with 409."""

SELF: Final = User("system:apiserver", (MASTERS,))
"""Who the hub itself is when it creates objects."""

_SERVER_SET: Final = (
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)

Edit: TypeAlias = Callable[[Object], Object]
"""The object there is to the object wanted; raises an ApiError when that makes no sense."""


@dataclass(frozen=True, slots=True)
class Newborn:
    """A new object with its identity and defaults, before the server has its say."""

    kube_object: Object
    creation: Creation


def begin_new(hub: HubState, served: Served, incoming: Object, user: User) -> Newborn:
    """Give an object its identity and its defaults: what its creator will own."""
    creation = Creation(
        uid=hub.new_uid(),
        now=hub.timestamp(),
        username=user.name,
        user_uid=user.uid,
        groups=user.groups,
        user_extra=user.extra,
    )
    metadata = {k: v for k, v in metadata_of(incoming).items() if k not in _SERVER_SET}
    metadata |= {"uid": creation.uid, "creationTimestamp": creation.now}
    return Newborn(served.rules.default({**incoming, "metadata": metadata}), creation)


async def finish_new(
    hub: HubState, served: Served, newborn: Newborn, author: Author, write: Write | None
) -> Object:
    """Record who owns what was asked for, then add what the server decides, and check it all.

    Ownership comes first: what the server fills in (a status, an address) is nobody's. Without a
    `write` the owners are recorded already.
    """

    def prepared() -> Object:
        held = newborn.kube_object
        owned = track_update(None, held, write) if write is not None else held
        return served.rules.prepare_create(owned, newborn.creation)

    run = author.run
    admission = Admission(served, author.user, await run(prepared), warn=author.warn, run=run)
    new = await admit(hub, admission)
    found = await run(lambda: served.rules.validate_create(new))
    if found:
        raise statuses.invalid(served.info.group_kind, name_of(new), found)
    return new


async def write_new(hub: HubState, served: Served, new: Object, run: Run = at_once) -> KeyValue:
    """Store a new object; AlreadyExists when the name is taken."""
    key = served.key(namespace_of(new), name_of(new))
    stored = await run(lambda: forms.encode_stored(new, served.form))
    try:
        return await hub.store.put(key, stored, expected=ABSENT)
    except RevisionMismatch as taken:
        raise statuses.already_exists(served.info.group_resource, name_of(new)) from taken


async def create_own(hub: HubState, served: Served, wanted: Object, manager: str) -> KeyValue:
    """Create an object on the hub's own account, by the same rules as everybody's."""
    newborn = begin_new(hub, served, served.rules.read(wanted).kube_object, SELF)
    write = write_of(hub, served, manager=manager)
    new = await finish_new(hub, served, newborn, Author(SELF), write)
    return await write_new(hub, served, new)


async def edit_own(
    hub: HubState, served: Served, key: str, edit: Edit, *, write: Write | None = None
) -> KeyValue | None:
    """Edit a stored object on the hub's own account; None when it is not there, or now gone.

    An object that the edit leaves without anything holding it is removed. With a `write`, the
    fields that change become its manager's.
    """
    for _ in range(TRIES):
        entry = await hub.store.get(key)
        if entry is None:
            return None
        new = await off_loop_if_large(
            SELF.name, entry.value, partial(_edited, served, entry, edit, write)
        )
        if new is None:
            return entry
        try:
            return await replace_or_remove(hub, served, entry, new)
        except RevisionMismatch:
            continue
    raise Conflict(f"{key} changed too often to be edited")


def _edited(served: Served, entry: KeyValue, edit: Edit, write: Write | None) -> Object | None:
    """Return the object as the edit wants it; None when it is so already."""
    old = forms.decode_stored(entry, served.form)
    new = edit(old)
    if new == old:
        return None
    return new if write is None else track_update(old, new, write)


async def replace_or_remove(
    hub: HubState, served: Served, entry: KeyValue, new: Object, run: Run = at_once
) -> KeyValue | None:
    """Store a changed object, or remove it when its deletion has nothing left to wait for."""
    if is_finished(new):
        await hub.store.delete(entry.key, expected=entry.mod_revision)
        return None
    stored = await run(lambda: forms.encode_stored(new, served.form))
    return await hub.store.put(entry.key, stored, expected=entry.mod_revision)


def is_finished(kube_object: Object) -> bool:
    """Whether an object is being deleted and nothing holds it any more."""
    metadata = metadata_of(kube_object)
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    # A namespace has finalizers of its own: its content must be gone first.
    return kube_object.get("kind") != "Namespace" or not find_at(kube_object, "spec", "finalizers")
