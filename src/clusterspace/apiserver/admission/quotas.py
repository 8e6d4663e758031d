"""ResourceQuotas enforced: a write that takes up more is counted in the quota's status first.

    object ──> which quotas count it? ──> is there room? ──> status.used, by a swap ──> store

What is in `status.used` is never too little: the count is written before the object is, and of two
writers that read the same count one loses the swap and looks again. A crash between the two, or a
write that fails after it was counted, leaves too much counted until `quota_controller` has counted
what is stored. Writers of one namespace that come at the same moment share one look and one write.

A quota whose status nobody has filled in yet limits nothing, as in Kubernetes: what it limits is in
`status.hard`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.pods import refused
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.apiserver.writing import TRIES, write_of
from clusterspace.builtins.quota_usage import (
    PODS,
    Amounts,
    counts_of,
    is_in_scope,
    is_measured,
    unstated,
    usage_of,
)
from clusterspace.errors import ApiError, RevisionMismatch
from clusterspace.kube import statuses
from clusterspace.kube.managed_fields.managers import track_update
from clusterspace.kube.objects import Object, find_at, name_of, with_value
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity
from clusterspace.kube.resources import GroupResource

_QUOTAS: Final = GroupResource("", "resourcequotas")
_MANAGER: Final = "kube-apiserver"


def amounts_at(quota: Object, *path: str) -> dict[str, Quantity]:
    """Return the quantities in a part of a quota."""
    found = cast("dict[str, str]", find_at(quota, *path) or {})
    return {name: parse_quantity(str(text)) for name, text in found.items()}


# Two writers of one namespace, a hard limit of 5 pods, 4 of them used, and a controller that counts
# what is stored at the worst moment:
#
#     writer a    reads used 4   charge a   swaps used 5   ............... stores pod a
#     writer b    reads used 4 ........... its swap fails, reads used 5: refused
#     controller  ................................. counts 4 pods, adds charge a: 5, writes nothing
#
# What must hold: used is at least what is stored and what is on its way to the store. So a write is
# first remembered as a charge, then counted in the quota, then stored; the charge is let go when
# the store tells of the object (`settle`), or when it can come no more (`expire`). A process that
# dies between the second and the third step takes its charges with it and leaves used too large:
# the next count finds nothing on its way, and mends it. Too small it is never.
@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What a write that has not been stored yet is counted with, and in which quotas."""

    key: str
    """Of the object that is written."""
    after: Revision
    """The store's revision when it was counted: the object is stored at a later one, or never."""
    at: float
    amounts: dict[str, dict[str, Quantity]] = field(default_factory=dict[str, dict[str, Quantity]])
    """By the key of the quota."""


class Charges:
    """The writes between their counting and the store, as far as this process knows them.

    Whoever counts what is stored must add these, or it would take back what is on its way.
    """

    SECONDS = 10.0
    """A write that is not in the store after this long has failed."""

    def __init__(self) -> None:
        self._open: dict[str, list[Charge]] = {}

    def add(self, charge: Charge) -> None:
        """Remember a charge, before it is written into any quota."""
        charges = self._open.setdefault(charge.key, [])
        if charge not in charges:
            charges.append(charge)

    def drop(self, charge: Charge) -> None:
        """Forget a charge that has come to nothing."""
        left = [each for each in self._open.get(charge.key, ()) if each is not charge]
        if left:
            self._open[charge.key] = left
        else:
            self._open.pop(charge.key, None)

    def settle(self, key: str, revision: Revision) -> bool:
        """Forget the charges of a key that was written at a revision; whether there were any."""
        # An event at or before the revision at which a write was counted is not of that write: the
        # object was written before, and this one is still on its way.
        settled = [each for each in self._open.get(key, ()) if each.after < revision]
        for each in settled:
            self.drop(each)
        return bool(settled)

    def expire(self, now: float) -> list[str]:
        """Forget the charges of writes that have failed; return the quotas that have them."""
        late = [
            charge
            for charges in self._open.values()
            for charge in charges
            if now - charge.at > self.SECONDS
        ]
        for charge in late:
            self.drop(charge)
        return [quota for charge in late for quota in charge.amounts]

    def open_for(self, quota_key: str) -> Iterator[Amounts]:
        """Return what a quota was charged with and is not stored yet."""
        for charges in self._open.values():
            for charge in charges:
                if quota_key in charge.amounts:
                    yield charge.amounts[quota_key]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A write that waits to be counted."""

    admission: Admission
    resource: GroupResource
    charge: Charge
    is_settled: bool = False
    refusal: ApiError | None = None

    def settle(self, refusal: ApiError | None = None) -> None:
        self.is_settled = True
        self.refusal = refusal


@dataclass(slots=True)
class _Namespace:
    """The writes to one namespace that wait; whoever has the lock counts for them all."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Waiting] = field(default_factory=list[_Waiting])


class ResourceQuota(Plugin):
    """Refuses what no quota has room for, and what leaves open how much room it needs."""

    name = "ResourceQuota"

    def __init__(self) -> None:
        self.charges = Charges()
        self._namespaces: dict[str, _Namespace] = {}

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Count a write in every quota of its namespace that is about it."""
        info, new = admission.served.info, admission.new
        if not info.namespaced:
            return
        resource = info.group_resource
        if not is_measured(resource, admission.subresource, new, admission.old):
            return
        namespace = admission.namespace
        quotas = hub.catalog.get_storage("", "resourcequotas")
        if not await hub.store.count(quotas.prefix(namespace)):
            return
        key = admission.served.key(namespace, admission.name)
        if admission.is_create and await hub.store.get(key) is not None:
            await hub.store.sync()  # another hub may have deleted it a moment ago
            if await hub.store.get(key) is not None:
                return  # it is refused for its name, and takes up nothing
        charge = Charge(key, hub.store.current_revision, hub.clock.monotonic())
        mine = _Waiting(admission, resource, charge)
        # Nothing is awaited from here to the lock: who finds an entry of a namespace is in its list
        # before anybody can take the entry for unused and drop it.
        waiting = self._namespaces.setdefault(namespace, _Namespace())
        waiting.waiting.append(mine)
        try:
            # The first one in decides for all that wait by then; each of those, when its turn at
            # the lock comes, finds that it is settled. A hundred pods of one ReplicaSet are a few
            # swaps instead of a hundred, of which all but one would fail.
            async with waiting.lock:
                if not mine.is_settled:
                    batch, waiting.waiting = waiting.waiting, []
                    try:
                        await self._settle(hub, quotas, namespace, batch)
                    finally:
                        # Whoever counts may be cancelled in the middle of it. The others must not
                        # suffer: the next of them counts anew. What was written by then is counted
                        # twice, which a recount mends.
                        left = [each for each in batch if not each.is_settled and each is not mine]
                        waiting.waiting = [*left, *waiting.waiting]
        finally:
            if mine in waiting.waiting:
                waiting.waiting.remove(mine)
            if not waiting.waiting and not waiting.lock.locked():
                self._namespaces.pop(namespace, None)
        if mine.refusal is not None:
            raise mine.refusal

    async def _settle(
        self, hub: HubState, served: Served, namespace: str, batch: list[_Waiting]
    ) -> None:
        """Decide about every write of a batch; those that fit are in the quotas afterwards."""
        for _ in range(TRIES):
            page = await hub.store.range(served.prefix(namespace))
            entries = {each.key: each for each in page.items}
            quotas = {key: forms.decode_stored(each, served.form) for key, each in entries.items()}
            used = {key: amounts_at(each, "status", "used") for key, each in quotas.items()}
            before = dict(used)
            # In the order they came: `used` grows from one to the next, so the first that finds no
            # room is refused with numbers that include those before it.
            left = [each for each in batch if not each.is_settled]
            for each in left:
                self._charge(each, quotas, used, hub.clock.now())
            lost = [
                key
                for key in quotas
                if used[key] != before[key]
                and not await _write_used(hub, served, entries[key], quotas[key], used[key])
            ]
            # A write may be counted in some quotas and have lost the swap of others. It keeps what
            # it has, and only the rest is tried again: to count it anew everywhere would count it
            # twice where it won.
            for each in left:
                missed = [key for key in lost if key in each.charge.amounts]
                for key in missed:
                    del each.charge.amounts[key]
                if not each.charge.amounts:
                    self.charges.drop(each.charge)
                if not missed and not each.is_settled:
                    each.settle()
            if all(each.is_settled for each in batch):
                return
        for each in batch:
            if not each.is_settled:
                each.settle(statuses.conflict(_QUOTAS, namespace))

    def _charge(
        self,
        write: _Waiting,
        quotas: dict[str, Object],
        used: dict[str, dict[str, Quantity]],
        now: float,
    ) -> None:
        """Add a write to what is used, or settle it: it is refused, or makes no difference."""
        charged = write.charge.amounts
        # A quota that has it already was written before another one lost its race.
        todo = {key: quota for key, quota in quotas.items() if key not in charged}
        try:
            added = checked(write.admission, write.resource, todo, used, now)
        except ApiError as refusal:
            write.settle(refusal)
            return
        if write.admission.dry_run or not added:
            write.settle()
            return
        # Before the quota shows it: a recount from here on adds what is on its way.
        self.charges.add(write.charge)
        for key, amounts in added.items():
            charged[key] = amounts
            used[key] = _sum(used[key], amounts)


def checked(
    admission: Admission,
    resource: GroupResource,
    quotas: dict[str, Object],
    used: dict[str, dict[str, Quantity]],
    now: float,
) -> dict[str, dict[str, Quantity]]:
    """Return what a write adds to each quota that counts it; raise when one has no room."""
    new, old = admission.new, admission.old
    interesting: list[str] = []
    for key, quota in quotas.items():
        hard = amounts_at(quota, "status", "hard")
        counted = counts_of(resource, hard)
        if not counted or not is_in_scope(resource, quota, new):
            continue
        name = name_of(quota)
        missing = unstated(new, counted) if resource == PODS else ""
        if missing:
            raise refused(admission, f"failed quota: {name}: {missing}")
        if any(each not in used[key] for each in counted):
            why = f"status unknown for quota: {name}, resources: {','.join(counted)}"
            raise refused(admission, why)
        interesting.append(key)
    if not interesting:
        return {}
    usage = usage_of(resource, new, now)
    negative = sorted(name for name, amount in usage.items() if amount < ZERO)
    if negative:
        why = f"quota usage is negative for resource(s): {','.join(negative)}"
        raise refused(admission, why)
    previous = {} if old is None else usage_of(resource, old, now)
    added: dict[str, dict[str, Quantity]] = {}
    for key in interesting:
        quota = quotas[key]
        # An object that comes into the scope of a quota is new to it, however old it is.
        was_counted = old is not None and is_in_scope(resource, quota, old)
        hard = amounts_at(quota, "status", "hard")
        requested = {
            name: more
            for name, amount in usage.items()
            if name in hard
            and (more := amount - previous.get(name, ZERO) if was_counted else amount) > ZERO
        }
        if not requested:
            continue
        total = _sum(used[key], requested)
        exceeded = sorted(name for name in requested if total[name] > hard[name])
        if exceeded and admission.subresource != "status":
            raise refused(
                admission,
                f"exceeded quota: {name_of(quota)}, requested: {_text(requested, exceeded)}, "
                f"used: {_text(used[key], exceeded)}, limited: {_text(hard, exceeded)}",
            )
        added[key] = requested
    return added


async def _write_used(
    hub: HubState, served: Served, entry: KeyValue, quota: Object, used: dict[str, Quantity]
) -> bool:
    """Write the count into the quota as it was read; False when somebody else was quicker."""
    texts = {name: str(amount) for name, amount in used.items()}
    write = write_of(hub, served, manager=_MANAGER, subresource="status")
    new = track_update(quota, with_value(quota, texts, "status", "used"), write)
    stored = forms.encode_stored(new, served.form)
    try:
        await hub.store.put(entry.key, stored, expected=entry.mod_revision)
    except RevisionMismatch:
        return False
    return True


def _sum(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    return {
        **one,
        **{name: one[name] + more if name in one else more for name, more in other.items()},
    }


def _text(amounts: Amounts, names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)
