"""What happens later, on the hub's own account: namespaces end, garbage goes, events expire.

Nothing here deletes because a list was empty or a kind unknown: every deletion follows a live
read of the very object, and names the revision it read. An owner is gone by a live read, too, or,
where its kind went with it, by the event of its own deletion.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final, NamedTuple, cast

import msgspec
import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import off_loop_if_large
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.apiserver.writing import (
    FOREGROUND,
    ORPHAN,
    REMOVER,
    as_controller,
    edit_own,
    remove,
)
from clusterspace.errors import (
    ApiError,
    Conflict,
    MalformedTimestamp,
    NotFound,
    RevisionMismatch,
    StoreClosed,
    StoreError,
)
from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import parse_api_version
from clusterspace.kube.times import parse_time

_log = structlog.get_logger(__name__)

_NAMESPACE_CONTROLLER: Final = as_controller("namespace-controller")
_COLLECTOR: Final = as_controller("generic-garbage-collector")

SETTLE_SECONDS: Final = 0.5
"""Changes come in bursts: a Deployment, its ReplicaSet, its Pods. One look serves them all."""

GRACE_SECONDS: Final = 5.0
"""For how long a namespace is Terminating before its content is looked at, as in Kubernetes.

What was let in just before the mark has arrived by then, and other hubs on the same etcd, which
decide by what they have seen of it, have seen the mark.
"""

NAMESPACE_RETRY_SECONDS: Final = 1.0
"""How often a namespace is looked at whose content waits for finalizers."""

RELIST_SECONDS: Final = 5.0
"""When the garbage collector lists everything again after the store ended its watch."""

EVENT_SECONDS: Final = 3600.0
"""As kube-apiserver's default."""

LOOK_SECONDS: Final = 60.0


# -- a namespace that was deleted ends: its content first, itself last -------------------------


FINALIZER: Final = "kubernetes"


class NamespaceController:
    """Follows namespaces and ends those that are marked for deletion."""

    grace_seconds: float = GRACE_SECONDS

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._marked_since: dict[str, float] = {}
        """When each mark was first seen, by UID and our own clock: a hub that takes over, or whose
        clock is ahead of the one that wrote the mark, shortens nobody's grace."""

    async def run(self) -> None:
        """Work until cancelled."""
        hub, prefix = self._hub, forms.collection_key("", "namespaces")
        while True:
            try:
                if seconds := await self._look():
                    await hub.clock.sleep(seconds)
                    continue
                with closing(hub.store.watch(prefix, after=hub.store.current_revision)) as watch:
                    # Looked at once more behind the beginning of the watch: a mark that was set
                    # since the last look is seen here, and one that is set from now on is an event.
                    if not await self._marked():
                        async for _events in watch:
                            break
                        continue
                # One that is ended here and held by somebody's finalizer stays marked: it is looked
                # at now and then, and never without a pause, in which others have their turn.
                await hub.clock.sleep(NAMESPACE_RETRY_SECONDS)
            except StoreClosed:
                raise
            except (Conflict, StoreError) as error:
                _log.warning("namespaces are listed again", reason=str(error))
                await hub.clock.sleep(NAMESPACE_RETRY_SECONDS)

    async def _look(self) -> float:
        """End the marked namespaces whose time has come; return when to look again, if at all."""
        now, marked = self._hub.clock.monotonic(), await self._marked()
        self._marked_since = {
            uid_of(each): self._marked_since.get(uid_of(each), now) for each in marked
        }
        again = 0.0
        for each in marked:
            if now - self._marked_since[uid_of(each)] < self.grace_seconds:
                # Sooner than this one is due: what is marked meanwhile has a time of its own.
                again = min(SETTLE_SECONDS, self.grace_seconds)
            elif not await self.end(name_of(each)):
                again = again or NAMESPACE_RETRY_SECONDS
        return again

    async def _marked(self) -> list[Object]:
        served = self._hub.catalog.get_storage("", "namespaces")
        page = await self._hub.store.range(served.prefix())
        # What the bytes do not have, the object has not: nearly always.
        entries = [each for each in page.items if b"deletionTimestamp" in each.value]
        objects = [forms.decode_stored(each, served.form) for each in entries]
        return [each for each in objects if find_at(each, "metadata", "deletionTimestamp")]

    async def end(self, namespace: str) -> bool:
        """Delete what is in a namespace; when nothing is left, let it go. Say whether it went.

        Pods go first, and alone: what they use while they stop (Secrets, policies, accounts) is
        there until the last of them is gone. Admission lets nothing new in once the mark is stored.
        A crash anywhere in here leaves a marked namespace with less in it, and the next look goes
        on from there.
        """
        hub = self._hub
        # One served version for each storage: the same objects must not be counted twice.
        resources = {served.prefix(): served for served in hub.catalog.all()}.values()
        namespaced = [served for served in resources if served.info.namespaced]
        pods = [each for each in namespaced if (each.info.group, each.info.plural) == ("", "pods")]
        left = await self._empty(namespace, pods) or await self._empty(namespace, namespaced)
        served = hub.catalog.get_storage("", "namespaces")
        if left:

            def described(live: Object) -> Object:
                conditions = find_at(live, "status", "conditions")
                for each in _conditions_of_end(left):
                    conditions = set_condition(conditions, each, hub.clock.now()).conditions
                return with_value(live, conditions, "status", "conditions")

            await edit_own(hub, served, served.key("", namespace), described)
            return False

        def released(live: Object) -> Object:
            finalizers = cast("list[str]", find_at(live, "spec", "finalizers") or [])
            kept = [each for each in finalizers if each != FINALIZER]
            return with_value(live, kept, "spec", "finalizers")

        await edit_own(hub, served, served.key("", namespace), released)
        return True

    async def _empty(
        self, namespace: str, resources: Iterable[Served]
    ) -> list[tuple[str, list[str]]]:
        """Delete all objects of these kinds; return what waits: its resource, its finalizers."""
        hub = self._hub
        left: list[tuple[str, list[str]]] = []
        for served in resources:
            page = await hub.store.range(served.prefix(namespace))
            for entry in page.items:
                try:
                    removed = await remove(
                        hub, served, entry.key, DeleteOptions(), _NAMESPACE_CONTROLLER
                    )
                except NotFound:
                    continue
                except ApiError as refused:
                    # By a policy or a webhook. It is asked again, and holds up nothing else.
                    _log.warning(
                        "content of a namespace stays", key=entry.key, reason=refused.message
                    )
                    left.append((f"{served.info.plural}.{served.info.group}", []))
                    continue
                if not removed.is_gone:
                    finalizers: list[str] = metadata_of(removed.kube_object).get("finalizers") or []
                    left.append((f"{served.info.plural}.{served.info.group}", finalizers))
        return left


def _conditions_of_end(left: Sequence[tuple[str, list[str]]]) -> Iterator[Condition]:
    """Tell what the end of a namespace waits for, in the words that operators search for."""
    yield Condition(
        "NamespaceDeletionDiscoveryFailure",
        "False",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    )
    yield Condition(
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    )
    yield Condition(
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    )
    counts = sorted(Counter(resource for resource, _ in left).items())
    listed = ", ".join(f"{resource} has {count} resource instances" for resource, count in counts)
    yield Condition(
        "NamespaceContentRemaining",
        "True",
        "SomeResourcesRemain",
        f"Some resources are remaining: {listed}",
    )
    holds = sorted(Counter(each for _, finalizers in left for each in finalizers).items())
    if not holds:
        yield Condition(
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        )
        return
    listed = ", ".join(f"{each} in {count} resource instances" for each, count in holds)
    yield Condition(
        "NamespaceFinalizersRemaining",
        "True",
        "SomeFinalizersRemain",
        f"Some content in the namespace has finalizers remaining: {listed}",
    )


# -- objects whose owners are gone go too, after a live look at every owner --------------------


_LOOKED_AT_ONCE: Final = 64
"""Owners of one object that are looked at before the event loop gets a turn."""


class _Owner(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    ownerReferences: list[_Owner] | None = None  # noqa: N815 - Kubernetes' own spelling
    finalizers: list[str] | None = None
    deletionTimestamp: str | None = None  # noqa: N815 - Kubernetes' own spelling


class _Traits(msgspec.Struct):
    metadata: _Metadata
    apiVersion: str = ""  # noqa: N815 - Kubernetes' own spelling
    kind: str = ""


_traits: Final = msgspec.json.Decoder(_Traits)


class _Gone(NamedTuple):
    """Which object it was whose deletion was seen."""

    group: str
    kind: str
    namespace: str
    name: str


# A Deployment d with its ReplicaSet r and a pod p of that, d deleted in the foreground. Two tasks
# share the work: `_follow` keeps the index and says what to look at, `_work` looks and writes, and
# what it wrote comes back to `_follow` as events:
#
#     event            index             looked at, and what comes of it
#     d is marked      d waits           d: r blocks it, and stays; r: its only owner waits, and p
#                                        names r: r is deleted in the foreground, too
#     r is marked      r waits           r: p blocks it; p: its only owner waits: p is deleted
#     p is gone        p is forgotten    r, which waited for p: nobody blocks it, it is released
#     r is gone        r is forgotten    d: released
#
# Every step follows from what is stored, so a hub that is killed anywhere in between finds the
# rest (but see `_gone`): at its start everything that has owners, or waits, is looked at once. The
# index may be behind the store, never ahead of it. What it lacks comes by an event, and what it has
# too much is found to be otherwise by the live reads.
class GarbageCollector:
    """Follows every object and deletes dependents whose owners are gone.

    The index says which objects *might* be concerned; it never decides. Before anything is deleted
    the object and each of its owners are read from the store, an owner of a kind we do not serve
    counts as present unless it was seen to go, and the delete names the UID and version that were
    read.
    """

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._dependents: defaultdict[str, set[str]] = defaultdict(set)
        """Owner UID to keys of objects that name it."""
        self._owners: dict[str, tuple[str, ...]] = {}
        """Key to the owner UIDs it names: what to take out of the index when it changes."""
        self._waiting: dict[str, str] = {}
        """UID to key of objects that wait for their dependents."""
        self._gone: dict[str, _Gone] = {}
        """By UID, the owners that were seen to go and are still named by others.

        A definition is deleted together with its objects, and is gone, like the kind, before we
        look at what they owned. A hub that ends in that moment leaves the dependents: the next one
        knows neither the kind nor the owner, and keeps what it cannot judge."""
        self._to_check: set[str] = set()
        """Keys to look at, each once however often it was named since the last look."""
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work(), name="garbage collection")
            while True:
                try:
                    await self._follow()
                except StoreClosed:
                    raise
                except StoreError as error:
                    _log.warning("all objects are looked at again", reason=str(error))
                    await self._hub.clock.sleep(RELIST_SECONDS)

    async def _follow(self) -> None:
        """Keep the index, from a list of everything on, until the store ends the watch."""
        page = await self._hub.store.range("/registry/")
        for index in (self._dependents, self._owners, self._waiting):
            index.clear()
        for entry in page.items:
            self._note(entry)
        with closing(self._hub.store.watch("/registry/", after=page.revision)) as watch:
            async for events in watch:
                for event in events:
                    if not event.is_delete:
                        self._note(event.item)
                        continue
                    self._forget(event.key)
                    if event.previous is None:
                        continue
                    traits = _traits.decode(event.previous.value)
                    gone = traits.metadata
                    if gone.uid in self._dependents:
                        self._gone[gone.uid] = _Gone(
                            traits.apiVersion.rpartition("/")[0],
                            traits.kind,
                            gone.namespace or "",
                            gone.name,
                        )
                        self._check(self._dependents[gone.uid])
                    # An owner that waits for this one in the foreground can be looked at again.
                    self._waiting.pop(gone.uid, None)
                    owners = (each.uid for each in gone.ownerReferences or ())
                    self._check(self._waiting[uid] for uid in owners if uid in self._waiting)

    # -- what might be concerned: no awaits, so the index is whole whenever `_work` reads it -----

    def _note(self, entry: KeyValue) -> None:
        # Whoever waits for this object may have been let go of, without its being deleted.
        before = self._owners.get(entry.key, ())
        self._check(self._waiting[uid] for uid in before if uid in self._waiting)
        self._forget(entry.key)
        metadata = _traits.decode(entry.value).metadata
        owners = tuple(each.uid for each in metadata.ownerReferences or ())
        for uid in owners:
            self._dependents[uid].add(entry.key)
        if owners:
            self._owners[entry.key] = owners
            self._check((entry.key,))
        holds = set(metadata.finalizers or ()) & {FOREGROUND, ORPHAN}
        if metadata.deletionTimestamp and holds:
            self._waiting[metadata.uid] = entry.key
            self._check((entry.key,))
            self._check(self._dependents.get(metadata.uid, ()))

    def _forget(self, key: str) -> None:
        for uid in self._owners.pop(key, ()):
            dependents = self._dependents[uid]
            dependents.discard(key)
            if not dependents:
                del self._dependents[uid]

    def _check(self, keys: Iterable[str]) -> None:
        self._to_check.update(keys)
        if self._to_check:
            self._wake.set()

    # -- what is done about it -----------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            await self._hub.clock.sleep(SETTLE_SECONDS)
            # In one step: a key that is added after it wakes us again. What is in `keys` when the
            # hub stops is not lost either, for the next one looks at everything that has owners.
            self._wake.clear()
            keys, self._to_check = self._to_check, set()
            # Here and not where dependents are forgotten: a change forgets one and notes it again.
            self._gone = {uid: it for uid, it in self._gone.items() if uid in self._dependents}
            for key in sorted(keys):
                try:
                    await self.collect(key)
                except (NotFound, Conflict):
                    continue  # it changed under our hands: its own event brings us back
                except ApiError as error:
                    _log.warning("garbage collection failed", key=key, reason=error.message)

    async def collect(self, key: str) -> None:
        """Look at one object and do what its owners and finalizers ask for."""
        found = await self._read(key)
        if found is None:
            return
        served, kube_object = found
        uid, metadata = uid_of(kube_object), metadata_of(kube_object)
        finalizers = cast("list[str]", metadata.get("finalizers") or [])
        if not metadata.get("deletionTimestamp"):
            await self._collect_dependent(served, key, kube_object)
        elif uid not in self._waiting:
            # The store is ahead of the index, which has not seen the mark, and so perhaps not all
            # dependents that were written before it. The event of the mark brings us back.
            return
        elif ORPHAN in finalizers:
            # References first, the finalizer last: a crash in between leaves an owner that still
            # waits, and this is done again. The other way round its dependents would be deleted.
            for dependent_key in sorted(self._dependents.get(uid, ())):
                dependent = await self._read(dependent_key)
                if dependent is not None:
                    await self._drop_references(dependent[0], dependent_key, {uid})
            await self._release(served, key, ORPHAN)
        elif FOREGROUND in finalizers:
            await self._finish_foreground(served, key, uid)

    async def _collect_dependent(self, served: Served, key: str, dependent: Object) -> None:
        """Delete an object none of whose owners stay; else drop its references to those that go."""
        references = _references(dependent)
        if not references:
            return
        owners: dict[str, _Metadata | None] = {}
        gone: list[Object] = []
        waiting: list[Object] = []
        for index, each in enumerate(references):
            state = await self._read_owner(dependent, each, owners)
            if state != "present":
                (gone if state == "gone" else waiting).append(each)
            if index % _LOOKED_AT_ONCE == _LOOKED_AT_ONCE - 1:
                # A look reads memory and waits for nothing, and there may be thousands of them.
                await self._hub.clock.sleep(0)
        if len(gone) + len(waiting) == len(references):
            blocks = any(each.get("blockOwnerDeletion") for each in waiting)
            has_dependents = bool(self._dependents.get(uid_of(dependent)))
            policy = "Foreground" if blocks and has_dependents else "Background"
            # By the UID and version that were read: a write in between, such as one that gives it
            # a new owner, is a Conflict, and the object is looked at again.
            options = DeleteOptions(
                propagation=policy,
                uid=uid_of(dependent),
                resource_version=str(metadata_of(dependent)["resourceVersion"]),
            )
            await remove(self._hub, served, key, options, _COLLECTOR)
            _log.info("object without owners deleted", key=key, uid=uid_of(dependent))
        elif gone or waiting:
            # With an owner that stays it stays too, and holds up none of those that go.
            leaving = {str(each.get("uid")) for each in (*gone, *waiting)}
            await self._drop_references(served, key, leaving)

    async def _read_owner(
        self, dependent: Object, reference: Object, read: dict[str, "_Metadata | None"]
    ) -> str:
        """Return `present`, `waiting` (deleted in the foreground) or `gone`, by a live read.

        `read` has the owners that other references of the same object named.
        """
        group = parse_api_version(str(reference.get("apiVersion"))).group
        kind, name = str(reference.get("kind")), str(reference.get("name"))
        served = self._hub.catalog.find_kind(group, kind)
        namespace = str(metadata_of(dependent).get("namespace") or "")
        if served is None:
            # Not ours to judge: a kind nobody serves is not an owner that is gone. But one that was
            # seen to go does not come back, for no UID is given out twice.
            seen = self._gone.get(str(reference.get("uid")))
            is_gone = (
                seen is not None
                and (seen.group, seen.kind, seen.name) == (group, kind, name)
                and seen.namespace in ("", namespace)
            )
            return "gone" if is_gone else "present"
        if served.info.namespaced and not namespace:
            return "present"
        key = served.key(namespace, name)
        if key not in read:
            entry = await self._hub.store.get(key)
            read[key] = None if entry is None else _traits.decode(entry.value).metadata
        owner = read[key]
        if owner is None or owner.uid != reference.get("uid"):
            return "gone"
        is_leaving = bool(owner.deletionTimestamp) and FOREGROUND in (owner.finalizers or ())
        return "waiting" if is_leaving else "present"

    async def _finish_foreground(self, served: Served, key: str, uid: str) -> None:
        """Let an owner go once no dependent that blocks it is left."""
        blocking = 0
        for dependent_key in sorted(self._dependents.get(uid, ())):
            found = await self._read(dependent_key)
            if found is None:
                continue
            dependent_served, dependent = found
            reference = next((r for r in _references(dependent) if r.get("uid") == uid), None)
            if reference is None:
                continue
            if reference.get("blockOwnerDeletion"):
                blocking += not self._waits_for(dependent_key, key)
            if not metadata_of(dependent).get("deletionTimestamp"):
                await self._collect_dependent(dependent_served, dependent_key, dependent)
        if not blocking:
            await self._release(served, key, FOREGROUND)

    def _waits_for(self, key: str, sought: str) -> bool:
        """Whether an object waits for another one, directly or by others that wait.

        In a circle of owners everybody waits for everybody. Nobody in it holds up the others then:
        all of them are being deleted, and none would ever be the first.
        """
        waiting = {key: uid for uid, key in self._waiting.items()}
        seen, ahead = set[str](), [key]
        while ahead:
            key = ahead.pop()
            if key == sought:
                return True
            if key in waiting and key not in seen:
                seen.add(key)
                ahead += self._dependents.get(waiting[key], ())
        return False

    async def _release(self, served: Served, key: str, finalizer: str) -> None:
        def released(live: Object) -> Object:
            finalizers = cast("list[str]", metadata_of(live).get("finalizers") or [])
            kept = [each for each in finalizers if each != finalizer]
            return with_metadata(live, finalizers=kept or None)

        await edit_own(self._hub, served, key, released)

    async def _drop_references(self, served: Served, key: str, uids: set[str]) -> None:
        def without(live: Object) -> Object:
            kept = [each for each in _references(live) if each.get("uid") not in uids]
            return with_metadata(live, ownerReferences=kept or None)

        await edit_own(self._hub, served, key, without)

    async def _read(self, key: str) -> tuple[Served, Object] | None:
        group, plural = key.removeprefix("/registry/").split("/", 2)[:2]
        try:
            served = self._hub.catalog.get_storage("" if group == "core" else group, plural)
        except KeyError:
            return None
        entry = await self._hub.store.get(key)
        if entry is None:
            return None
        decode = partial(forms.decode_stored, entry, served.form)
        return served, await off_loop_if_large(REMOVER, entry.value, decode)


def _references(kube_object: Object) -> list[Object]:
    return cast("list[Object]", find_at(kube_object, "metadata", "ownerReferences") or [])


# -- what is kept for a while only: events, for an hour --------------------------------------


_TIMES: Final = (
    ("lastTimestamp",),
    ("series", "lastObservedTime"),
    ("eventTime",),
    ("firstTimestamp",),
    ("metadata", "creationTimestamp"),
)


async def remove_expired(
    hub: HubState,
    group: str,
    plural: str,
    is_expired: Callable[[Object], bool],
    *,
    namespace: str = "",
) -> list[str]:
    """Remove the objects of a resource that are past their time; return the keys of those."""
    served = hub.catalog.get_storage(group, plural)
    page = await hub.store.range(served.prefix(namespace))
    removed: list[str] = []
    for entry in page.items:
        if not is_expired(forms.decode_stored(entry, served.form)):
            continue
        try:
            # By the revision that was judged: what somebody has just written again stays.
            await hub.store.delete(entry.key, expected=entry.mod_revision)
        except RevisionMismatch:
            continue
        removed.append(entry.key)
    return removed


async def expire_events(hub: HubState, *, seconds: float = EVENT_SECONDS) -> None:
    """Look at every event now and then, until cancelled."""
    while True:
        await hub.clock.sleep(LOOK_SECONDS)
        await forget_old_events(hub, seconds)


async def forget_old_events(hub: HubState, seconds: float) -> int:
    """Remove the events that last happened longer ago than this; return how many went."""
    oldest = hub.clock.now() - seconds
    return len(await remove_expired(hub, "", "events", lambda each: last_happened(each) < oldest))


def last_happened(event: Object) -> float:
    """Return when an event last happened; one without a readable time never expires."""
    times: list[float] = []
    for path in _TIMES:
        text = find_at(event, *path)
        if isinstance(text, str):
            try:
                times.append(parse_time(text))
            except MalformedTimestamp:
                continue
    return max(times, default=float("inf"))
