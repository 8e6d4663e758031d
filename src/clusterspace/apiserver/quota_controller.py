"""What is used of ResourceQuotas, counted from what is stored: their status, and its corrections.

Admission counts what comes (`admission.quotas`); here everything is counted that goes, changes, or
was there before a quota was. A count is of one revision of the store, and what admission has
counted and the store does not have yet is added to it, so that a count never takes back the room of
a write on its way. A kube-controller-manager beside this server counts by the same rules: the two
write the same numbers, and neither writes what is there already.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.quotas import Charges, ResourceQuota, amounts_at
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.identity.following import MANAGER, RETRY_SECONDS
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import ABSENT, Event, KeyValue, Revision
from clusterspace.apiserver.writing import TRIES, write_of
from clusterspace.builtins.quota_usage import (
    CLAIMS,
    DEVICE_CLAIMS,
    PODS,
    SERVICES,
    Amounts,
    is_in_scope,
    resource_counted_as,
    usage_of,
)
from clusterspace.errors import ApiError, RevisionMismatch, StoreError
from clusterspace.kube.managed_fields.managers import track_update
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import ZERO, Quantity
from clusterspace.kube.resources import GroupResource

_log = structlog.get_logger(__name__)

_BATCH_SECONDS: Final = 0.1
"""What goes in one sweep is counted once."""
_RECOUNT_SECONDS: Final = 300.0
"""Everything is counted again this often, whatever was seen: time alone ends a pod, say."""
_COUNTED_AT_ONCE: Final = 300
"""Objects that are looked at in the event loop's own time: about 10 ms."""

_ROOT: Final = "/registry/"
_PARTS: Final = 4
"""Group, resource, namespace and name: the key of an object in a namespace."""

_LOOKED_INTO: Final = frozenset({PODS, SERVICES, CLAIMS, DEVICE_CLAIMS})
"""Of these more counts than their number."""


class _Sink:
    """Tells a controller of everything that changes in the store."""

    def __init__(self, controller: "QuotaController") -> None:
        self._controller = controller
        self.ended = asyncio.get_running_loop().create_future()

    def receive(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self._controller.note(event)

    def end(self, reason: StoreError) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)


class QuotaController:
    """Keeps the status of every ResourceQuota."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._served = hub.catalog.get_storage("", "resourcequotas")
        found = (each.charges for each in hub.plugins if isinstance(each, ResourceQuota))
        self._charges = next(found, Charges())
        self._namespaces: dict[str, set[str]] = {}
        """The keys of the quotas of each namespace that has any."""
        self._unchanged: dict[str, tuple[Revision, float]] = {}
        """At which revision a quota was last looked at, and since when it has been at it."""
        self._to_count: set[str] = set()
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        store = self._hub.store
        while True:
            sink = _Sink(self)
            # Subscribed before it is listed: what changes in between is seen twice, not never.
            subscription = store.subscribe(_ROOT, after=store.current_revision, sink=sink)
            try:
                await self._count_all()
                async with asyncio.TaskGroup() as tasks:
                    working = [
                        tasks.create_task(self._count_what_changed()),
                        tasks.create_task(self._count_now_and_then()),
                    ]
                    reason = await sink.ended
                    for each in working:
                        each.cancel()
            finally:
                subscription.close()
            _log.warning("quotas are counted anew", reason=str(reason))
            await self._hub.clock.sleep(RETRY_SECONDS)

    def note(self, event: Event) -> None:
        """Take note of a change; called for every change there is, so it must be quick."""
        # Called in the step of the loop in which the store publishes, before the writer of the
        # object is answered: a charge is never let go while the store lacks what it stands for.
        key = event.key
        settled = self._charges.settle(key, event.revision)
        parts = key.removeprefix(_ROOT).split("/")
        if len(parts) != _PARTS:
            return
        group, plural, namespace, _ = parts
        if key.startswith(self._served.prefix()):
            self._note_quota(event, namespace)
        elif namespace not in self._namespaces:
            return
        resource = GroupResource("" if group == "core" else group, plural)
        if event.is_delete:
            self._want(namespace)
        elif event.previous is None:
            # What admission has counted needs no other look.
            if not settled:
                self._want(namespace)
        elif resource in _LOOKED_INTO and self._is_used_otherwise(resource, event):
            self._want(namespace)

    def _note_quota(self, event: Event, namespace: str) -> None:
        """Remember where quotas are; count for one that is new or has other limits.

        What others write into the status stays until something is counted.
        """
        keys = self._namespaces.setdefault(namespace, set())
        if event.is_delete:
            keys.discard(event.key)
            if not keys:
                del self._namespaces[namespace]
            return
        keys.add(event.key)
        form, previous = self._served.form, event.previous
        if previous is None:
            self._want(namespace)
            return
        new, old = (forms.decode_stored(each, form) for each in (event.item, previous))
        if new.get("spec") != old.get("spec"):
            self._want(namespace)

    def _is_used_otherwise(self, resource: GroupResource, event: Event) -> bool:
        """Whether a change of an object makes another difference to quotas than before."""
        served = self._hub.catalog.get_storage(resource.group, resource.resource)
        now, previous = self._hub.clock.now(), event.previous
        if previous is None:
            return True
        new, old = (forms.decode_stored(each, served.form) for each in (event.item, previous))
        if usage_of(resource, new, now) != usage_of(resource, old, now):
            return True
        # Scopes look at these; a spec that is the same is in the same ones.
        return new.get("spec") != old.get("spec") or (
            resource == CLAIMS and new.get("status") != old.get("status")
        )

    def _want(self, namespace: str) -> None:
        self._to_count.add(namespace)
        self._woken.set()

    async def _count_all(self) -> None:
        page = await self._hub.store.range(self._served.prefix())
        self._namespaces = {}
        for entry in page.items:
            namespace = entry.key.removeprefix(self._served.prefix()).partition("/")[0]
            self._namespaces.setdefault(namespace, set()).add(entry.key)
            self._want(namespace)

    async def _count_now_and_then(self) -> None:
        elapsed = 0.0
        while True:
            await self._hub.clock.sleep(Charges.SECONDS)
            elapsed += Charges.SECONDS
            for quota_key in self._charges.expire(self._hub.clock.monotonic()):
                self._want(quota_key.removeprefix(self._served.prefix()).partition("/")[0])
            if elapsed >= _RECOUNT_SECONDS:
                elapsed = 0.0
                await self._count_all()

    async def _count_what_changed(self) -> None:
        while True:
            await self._woken.wait()
            await self._hub.clock.sleep(_BATCH_SECONDS)
            # No await between these two: what changes from here on wakes us again.
            self._woken.clear()
            namespaces, self._to_count = sorted(self._to_count), set()
            for namespace in namespaces:
                try:
                    for key in sorted(self._namespaces.get(namespace, ())):
                        await self._count(key, namespace)
                except (ApiError, StoreError) as error:
                    _log.warning("quota is counted later", namespace=namespace, reason=str(error))
                    await self._hub.clock.sleep(RETRY_SECONDS)
                    self._want(namespace)

    async def _count(self, key: str, namespace: str) -> None:
        """Write how much of one quota is used, unless its status says so."""
        hub, served = self._hub, self._served
        for _ in range(TRIES):
            entry = await hub.store.get(key)
            if entry is None:
                return
            quota = forms.decode_stored(entry, served.form)
            hard = amounts_at(quota, "spec", "hard")
            # Of one moment, with no await in between: what is stored by then is in the count, and
            # what was charged and is not stored yet is in the charges. The swap below fails when
            # anything is charged after the quota was read.
            revision = hub.store.current_revision
            on_its_way = list(self._charges.open_for(key))
            used = await self._counted(quota, hard, namespace, revision)
            for amounts in on_its_way:
                used = {n: each + amounts.get(n, ZERO) for n, each in used.items()}
            if _is_reported(quota, hard, used):
                return
            if hub.store.is_shared and not self._may_lower(entry, quota, used, namespace):
                return
            status = {
                "hard": find_at(quota, "spec", "hard") or {},
                "used": {name: str(amount) for name, amount in used.items()},
            }
            write = write_of(hub, served, manager=MANAGER, subresource="status")
            new = track_update(quota, {**quota, "status": status}, write)
            try:
                stored = forms.encode_stored(new, served.form)
                await hub.store.put(key, stored, expected=entry.mod_revision)
            except RevisionMismatch:
                continue
            return
        self._want(namespace)

    def _may_lower(self, entry: KeyValue, quota: Object, used: Amounts, namespace: str) -> bool:
        """Whether less may be reported than is: not while another hub may have more on its way.

        Its charges are known only to itself. But each is a change of the quota, and what is not
        stored a while after it has failed. So less is reported once the quota has been left alone
        for that long; more, at once.
        """
        now = self._hub.clock.monotonic()
        revision, since = self._unchanged.get(entry.key, (ABSENT, now))
        if revision != entry.mod_revision:
            since = now
        self._unchanged[entry.key] = (entry.mod_revision, since)
        reported = amounts_at(quota, "status", "used")
        is_lower = any(amount < reported.get(name, ZERO) for name, amount in used.items())
        if not is_lower or now - since > Charges.SECONDS:
            return True
        asyncio.get_running_loop().call_later(Charges.SECONDS, self._want, namespace)
        return False

    async def _counted(
        self, quota: Object, names: Iterable[str], namespace: str, revision: Revision
    ) -> dict[str, Quantity]:
        """Return how much is used of what a quota limits, as far as anything counts for it."""
        by_resource: dict[GroupResource, list[str]] = {}
        for name in names:
            resource = resource_counted_as(name)
            if resource is not None:
                by_resource.setdefault(resource, []).append(name)
        used: dict[str, Quantity] = {}
        for resource, counted in by_resource.items():
            try:
                served = self._hub.catalog.get_storage(resource.group, resource.resource)
            except KeyError:
                continue  # nothing of the kind is served, and nothing is said of it
            page = await self._hub.store.range(served.prefix(namespace), at=revision)
            total = partial(total_usage, resource, served, page.items, quota, self._hub.clock.now())
            is_long = len(page.items) > _COUNTED_AT_ONCE and resource in _LOOKED_INTO
            sums = await off_loop(MANAGER, total) if is_long else total()
            used |= {name: sums.get(name, ZERO) for name in counted}
        return used


def total_usage(
    resource: GroupResource, served: Served, entries: Iterable[KeyValue], quota: Object, now: float
) -> dict[str, Quantity]:
    """Return what the stored objects of a resource take up of a quota, by every name."""
    totals: dict[str, Quantity] = {}
    for entry in entries:
        stored: Object = {}
        if resource in _LOOKED_INTO:
            stored = forms.decode_stored(entry, served.form)
        if is_in_scope(resource, quota, stored):
            for name, amount in usage_of(resource, stored, now).items():
                totals[name] = totals[name] + amount if name in totals else amount
    return totals


def _is_reported(quota: Object, hard: Amounts, used: Amounts) -> bool:
    """Whether the status says so already, in whatever form its quantities are written."""
    return (
        amounts_at(quota, "status", "hard") == hard and amounts_at(quota, "status", "used") == used
    )
