"""Writes to the store that verbs and the hub's own controllers share.

A new object gets its identity, its owners and the server's say, and is checked; a changed one is
written over the revision it was read at. When admission is asked is drawn in state.py; it is not
asked about `edit_own`, which keeps the hub's own books. Deleting an object that something still
holds (a finalizer, dependents in the foreground, a grace period) marks it; it goes when the last
hold is taken away.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, cast

from clusterspace.aio.lanes import Run, at_once
from clusterspace.apis.identities import CHECKED_HEADER, LEADER_HEADER, Leadership, read_leadership
from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import RequestContext, off_loop_if_large
from clusterspace.apiserver.http.users import AUTHENTICATED, MASTERS, User
from clusterspace.apiserver.options import DeleteOptions, WriteOptions
from clusterspace.apiserver.state import Admission, Author, HubState, Operation
from clusterspace.apiserver.store.interface import ABSENT, Guard, KeyValue, Revision
from clusterspace.builtins.strategies import Creation
from clusterspace.errors import Conflict, GuardChanged, RevisionMismatch
from clusterspace.kube import statuses
from clusterspace.kube.managed_fields.managers import Write, track_update
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, namespace_of
from clusterspace.kube.times import format_time

TRIES: Final = 20
"""A write without a resourceVersion may lose this many races before it gives up with 409."""

SELF: Final = User("system:apiserver", (MASTERS,))
"""Who the hub itself is when it creates objects."""


def as_controller(name: str) -> Author:
    """Return who one of the hub's controllers is: what Kubernetes' own is called, for policies."""
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", AUTHENTICATED)
    return Author(User(f"system:serviceaccount:kube-system:{name}", groups))


_SERVER_SET: Final = (
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)

_STATUS_KEEPS: Final = frozenset({"spec", "metadata.deletionTimestamp", "metadata.finalizers"})
"""What a write of the status does not change."""

REMOVER: Final = "system:apiserver"
"""Whose turn it is when a large object goes: nobody waits in vain for what they delete."""

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

_PROTECTED_NAMESPACES: Final = ("default", "kube-public", "kube-system")
_DEFAULT_POD_GRACE: Final = 30

Edit: TypeAlias = Callable[[Object], Object]
"""The object there is to the object wanted; raises an ApiError when that makes no sense."""


def write_of(hub: HubState, served: Served, *, manager: str, subresource: str = "") -> Write:
    """Describe a write to an object of this resource, for the record of who owns its fields."""
    if subresource == "status":
        kept = _STATUS_KEEPS
    else:
        has_status = served.info.find_subresource("status") is not None
        kept = frozenset({"status"}) if has_status else frozenset[str]()
    return Write(
        manager=manager,
        api_version=served.info.api_version,
        now=hub.timestamp(),
        schema=served.rules.schema,
        subresource=subresource,
        reset=kept,
        blank=served.rules.blank,
    )


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
    hub: HubState,
    served: Served,
    newborn: Newborn,
    author: Author,
    write: Write | None,
    options: WriteOptions | None = None,
) -> Object:
    """Record who owns what was asked for, then add what the server decides, and check it all.

    Ownership comes first: what the server fills in (a status, an address) is nobody's. Without a
    `write` the owners are recorded already.
    """
    run, owned = author.run, newborn.kube_object
    if write is not None:
        owned = await run(lambda: track_update(None, owned, write))
    admission = Admission(
        served,
        author.user,
        owned,
        warn=author.warn,
        run=run,
        annotate=author.annotate,
        options=options,
    )
    mutated = await hub.mutate(admission)
    prepared = await run(lambda: served.rules.prepare_create(mutated, newborn.creation))
    admission = admission.about(prepared)
    new = await hub.admit(admission)
    found = await run(lambda: served.rules.validate_create(new))
    if found:
        raise statuses.invalid(served.info.group_kind, name_of(new), found)
    await hub.validate(admission.about(new))
    return new


async def write_new(hub: HubState, served: Served, new: Object, run: Run = at_once) -> KeyValue:
    """Store a new object; AlreadyExists when the name is taken."""
    key = served.key(namespace_of(new), name_of(new))
    kept, storage = await served.storable(new)
    stored = await run(lambda: forms.encode_stored(kept, storage.form))
    try:
        return await put_fenced(hub, key, stored, expected=ABSENT)
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
        served = served.as_stored(entry)
        new = await off_loop_if_large(
            SELF.name, entry.value, partial(_edited, served, entry, edit, write)
        )
        if new is None:
            return entry
        try:
            return await _replace_as_stored(hub, served, entry, new)
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
    kept, storage = (new, served) if is_finished(new) else await served.storable(new)
    return await _replace_as_stored(hub, storage, entry, kept, run)


async def _replace_as_stored(
    hub: HubState, storage: Served, entry: KeyValue, new: Object, run: Run = at_once
) -> KeyValue | None:
    if is_finished(new):
        await delete_fenced(hub, entry)
        return None
    stored = await run(lambda: forms.encode_stored(new, storage.form))
    return await put_fenced(hub, entry.key, stored, expected=entry.mod_revision)


def is_finished(kube_object: Object) -> bool:
    """Whether an object is being deleted and nothing holds it any more."""
    metadata = metadata_of(kube_object)
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds"):
        return False
    # A namespace has finalizers of its own: its content must be gone first.
    return kube_object.get("kind") != "Namespace" or not find_at(kube_object, "spec", "finalizers")


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a delete."""

    kube_object: Object
    entry: KeyValue | None = None
    """The stored entry when the object is only marked."""
    is_gone: bool = False
    """Whether nothing held the object; in a dry run, whether nothing would have."""


async def remove(
    hub: HubState,
    served: Served,
    key: str,
    options: DeleteOptions,
    author: Author | None,
    *,
    is_one_of_many: bool = False,
) -> Removed:
    """Mark or remove one object; try again when somebody changes it meanwhile.

    Without an author nobody is asked whether it may go. `is_one_of_many` when the request names
    only the collection: then admission is told no name.
    """
    for attempt in range(TRIES):
        try:
            return await _remove_once(
                hub, served, key, options, author, is_one_of_many=is_one_of_many
            )
        except RevisionMismatch as lost:
            if attempt == TRIES - 1:
                name = forms.name_in(key)
                raise statuses.conflict(served.info.group_resource, name) from lost
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _remove_once(
    hub: HubState,
    served: Served,
    key: str,
    options: DeleteOptions,
    author: Author | None,
    *,
    is_one_of_many: bool,
) -> Removed:
    """Mark or remove the object as it is now; RevisionMismatch when it has changed by then."""
    info = served.info
    entry = await hub.store.get(key)
    if entry is None:
        raise statuses.not_found(info.group_resource, forms.name_in(key))
    served = served.as_stored(entry)

    def mark() -> tuple[Object, Object]:
        old = forms.decode_stored(entry, served.form)
        uid, version = str(metadata_of(old).get("uid")), metadata_of(old)["resourceVersion"]
        if options.uid and options.uid != uid:
            raise statuses.uid_conflict(
                info.group_kind, name_of(old), wanted=options.uid, actual=uid
            )
        if options.resource_version and options.resource_version != version:
            raise statuses.version_conflict(
                info.group_kind, name_of(old), wanted=options.resource_version, actual=version
            )
        is_namespace = (info.group, info.kind) == ("", "Namespace")
        if is_namespace and name_of(old) in _PROTECTED_NAMESPACES:
            why = "this namespace may not be deleted"
            raise statuses.forbidden(info.group_resource, name_of(old), why)
        return old, marked_for_removal(hub, served, old, options)

    old, marked = await off_loop_if_large(REMOVER, entry.value, mark)
    if author is not None and hub.is_asked_about(Operation.DELETE):
        admission = Admission(
            served,
            author.user,
            old,
            old,
            warn=author.warn,
            run=author.run,
            annotate=author.annotate,
            options=options,
            other=Operation.DELETE,
            place=(namespace_of(old), "") if is_one_of_many else None,
        )
        await hub.mutate(admission)
        await hub.admit(admission)
        await hub.validate(admission)
    if is_finished(marked):
        if not options.dry_run:
            await delete_fenced(hub, entry)
        return Removed(old, is_gone=True)
    if marked == old:
        return Removed(old, entry)
    if options.dry_run:
        return Removed(marked)
    encode = partial(forms.encode_stored, marked, served.form)
    stored = await off_loop_if_large(REMOVER, entry.value, encode)
    written = await put_fenced(hub, entry.key, stored, expected=entry.mod_revision)
    return Removed(marked, written)


def marked_for_removal(
    hub: HubState, served: Served, old: Object, options: DeleteOptions
) -> Object:
    """Return the object as the delete wants it: marked, and held by what the policy adds."""
    metadata = dict(metadata_of(old))
    is_first = "deletionTimestamp" not in metadata
    grace = _grace(served, old, options)
    finalizers = cast("list[str]", metadata.get("finalizers") or [])
    if options.propagation:
        # Foreground and orphan exclude each other; the last delete decides.
        added = {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(options.propagation, [])
        finalizers = [each for each in finalizers if each not in (FOREGROUND, ORPHAN)] + added
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


# -- writes of a leader that leads no longer -------------------------------------------------------
#
# The header (apis/identities.py) is read when a request begins, and held against the Lease when all
# else is done and its object goes to the store: reading a body, admission and a turn for a large
# object may take long, and the Lease may change hands meanwhile.

_LEASES: Final = ("coordination.k8s.io", "v1", "leases")
_SAFE: Final = frozenset({"get", "list", "watch"})

_leadership: Final[ContextVar[Leadership | None]] = ContextVar("leadership", default=None)


@contextmanager
def fenced(context: RequestContext) -> Generator[None]:
    """Tie the writes of one request to the leadership it names, if it names one."""
    header = context.header(LEADER_HEADER.lower())
    if not header or context.info.verb in _SAFE:
        yield
        return
    leadership = read_leadership(header)
    checked = (CHECKED_HEADER, str(leadership.epoch))
    context.answer_headers = [*context.answer_headers, checked]
    token = _leadership.set(leadership)
    try:
        yield
    finally:
        _leadership.reset(token)


@contextmanager
def leading(leadership: Leadership) -> Generator[None]:
    """Tie all that is written in the block, or by tasks begun in it, to our own leadership."""
    token = _leadership.set(leadership)
    try:
        yield
    finally:
        _leadership.reset(token)


async def put_fenced(hub: HubState, key: str, value: bytes, *, expected: Revision) -> KeyValue:
    """Put a key, unless a deposed leader sent it."""
    while True:
        guard = await require_leadership(hub)
        with suppress(GuardChanged):  # the Lease was renewed, or changed hands
            return await hub.store.put(key, value, expected=expected, guard=guard)


async def delete_fenced(hub: HubState, entry: KeyValue) -> None:
    """Delete a key as it was read, unless a deposed leader wants it."""
    while True:
        guard = await require_leadership(hub)
        with suppress(GuardChanged):
            await hub.store.delete(entry.key, expected=entry.mod_revision, guard=guard)
            return


async def require_leadership(hub: HubState) -> Guard | None:
    """Refuse what a deposed leader sent; return what the write is to be tied to, if to anything."""
    # A look at the Lease alone is not enough, however late: between the look and the write this hub
    # may be frozen, or the member of etcd that it asked, for as long as it takes to elect another
    # leader. So the store compares the Lease once more, in the step in which it writes.
    leadership = _leadership.get()
    if leadership is None:
        return None
    # The Lease may have changed hands at another hub, which this one has not heard of yet.
    await hub.store.sync()
    served = hub.catalog.find(*_LEASES)
    if served is None:
        raise Conflict("this server has no leases, so nobody leads")
    key = served.key(leadership.namespace, leadership.name)
    entry = await hub.store.get(key)
    lease = None if entry is None else forms.decode_stored(entry, served.form)
    if entry is None or not leadership.holds(lease):
        raise Conflict(
            f"the lease {leadership.namespace}/{leadership.name} has changed hands since epoch"
            f" {leadership.epoch}: whoever sent this leads no longer"
        )
    return Guard(key, entry.mod_revision)
