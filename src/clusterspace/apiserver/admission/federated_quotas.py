"""FederatedResourceQuotas: checked when written, and asked whenever a binding takes up more.

    binding ──takes more than before?──> room in every quota of its namespace? ──> overallUsed ──>
                                                                               by a swap       store

`status.overallUsed` is never too little: what a write takes is in it before the binding is stored,
and of two writers that read the same count one loses the swap and looks again. A write that fails
after it was counted leaves too much in it, until the controller has counted what is stored
(fleet/propagation/quotas.py). Room that is given back is the controller's to give back.
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.apis.quotas import (
    GROUP,
    KIND,
    Amounts,
    amounts_at,
    growth_of,
    quota_causes,
    taken_by,
    uncounted,
    why_exceeded,
)
from clusterspace.apis.works import RESOURCE_BINDING, RESOURCE_BINDINGS
from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.propagation import shape_causes
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.apiserver.writing import TRIES, write_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import Conflict, NotFound, QuotaExceeded, RevisionMismatch
from clusterspace.kube import statuses
from clusterspace.kube.managed_fields.managers import track_update
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    name_of,
    namespace_of,
    with_value,
)
from clusterspace.kube.quantities import ZERO, Quantity

_MANAGER: Final = "kube-apiserver"
_DENIED: Final = 'admission webhook "resourcebinding.karmada.io" denied the request: '
"""Karmada's words, which its clients look for."""


class FederatedQuotaRules(Plugin):
    """Checks quotas; warns of what a quota names and nobody counts."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a quota; other objects pass."""
        new = admission.new
        if not admission.is_of(GROUP, KIND) or admission.subresource or is_being_deleted(new):
            return new
        if found := shape_causes(admission) or quota_causes(new):
            raise statuses.invalid(admission.served.info.group_kind, name_of(new), found)
        if unlimited := uncounted(new):
            admission.warn(
                f"spec.overall does not limit {', '.join(unlimited)} in the fleet: bindings are "
                "counted by what their replicas request and by pods; staticAssignments limit it"
            )
        return new


class FederatedQuotaEnforcement(Plugin):
    """Refuses bindings that take more than a quota of their namespace leaves."""

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Count what a binding takes more than before in the quotas of its namespace."""
        new, old = admission.new, admission.old
        is_binding = admission.is_of(RESOURCE_BINDINGS.group, RESOURCE_BINDING)
        if not is_binding or admission.subresource or not find_at(new, "spec", "clusters"):
            return
        namespace = admission.namespace
        served = hub.catalog.find_kind(GROUP, KIND)
        if served is None or not await hub.store.count(served.prefix(namespace)):
            return
        charged: set[str] = set()
        for _ in range(TRIES):
            page = await hub.store.range(served.prefix(namespace))
            pending: dict[str, tuple[KeyValue, Object, Mapping[str, Quantity]]] = {}
            for entry in page.items:
                quota = forms.decode_stored(entry, served.form)
                if entry.key in charged or is_being_deleted(quota):
                    continue
                more = growth_of(quota, old, new)
                if not more:
                    continue
                used = amounts_at(quota, "status", "overallUsed")
                if find_at(quota, "status", "overallUsed") is None:
                    # Nobody has counted yet: a quota that is a moment old limits all the same.
                    used = await self._count(hub, namespace, amounts_at(quota, "spec", "overall"))
                total = {**used, **{name: used.get(name, ZERO) + more[name] for name in more}}
                if why := why_exceeded(quota, more, total):
                    raise QuotaExceeded(f"{_DENIED}{why}")
                pending[entry.key] = entry, quota, total
            # All quotas have room: then it is counted in all. Killed between two of them, the first
            # has counted what never comes, and the controller takes it out again.
            if not admission.dry_run:
                for key, (entry, quota, total) in pending.items():
                    if await self._write_used(hub, served, entry, quota, total):
                        charged.add(key)
            if admission.dry_run or pending.keys() <= charged:
                return
        raise statuses.conflict(served.info.group_resource, namespace)

    async def _count(
        self, hub: HubState, namespace: str, names: Mapping[str, object]
    ) -> dict[str, Quantity]:
        served = hub.catalog.find_kind(RESOURCE_BINDINGS.group, RESOURCE_BINDING)
        used: dict[str, Quantity] = {}
        if served is None:
            return used
        for entry in (await hub.store.range(served.prefix(namespace))).items:
            for name, amount in taken_by(forms.decode_stored(entry, served.form), names).items():
                used[name] = used.get(name, ZERO) + amount
        return used

    async def _write_used(
        self, hub: HubState, served: Served, entry: KeyValue, quota: Object, used: Amounts
    ) -> bool:
        """Write the count into the quota as it was read; False when somebody else was quicker."""
        write = write_of(hub, served, manager=_MANAGER, subresource="status")
        new = track_update(quota, _with_used(quota, used), write)
        stored = forms.encode_stored(new, served.form)
        try:
            await hub.store.put(entry.key, stored, expected=entry.mod_revision)
        except RevisionMismatch:
            return False
        return True


class ReviewedQuotaEnforcement(FederatedQuotaEnforcement):
    """The same where the hub is a kube-apiserver: it keeps the quotas, and asks us by a webhook."""

    def __init__(self, hub: ClusterClient) -> None:
        self._hub = hub

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Count a binding; an API server that changes it afterwards asks, and counts, again."""
        await super().validate(hub, admission)
        return admission.new

    async def _write_used(
        self, hub: HubState, served: Served, entry: KeyValue, quota: Object, used: Amounts
    ) -> bool:
        path = ResourcePath(
            served.info.group_version_resource, namespace_of(quota), name_of(quota), "status"
        )
        try:
            await self._hub.update(path, _with_used(quota, used))
        except (Conflict, NotFound):
            return False
        return True


def _with_used(quota: Object, used: Amounts) -> Object:
    texts = {name: str(amount) for name, amount in used.items()}
    return with_value(quota, texts, "status", "overallUsed")
