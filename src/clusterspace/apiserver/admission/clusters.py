"""Clusters: names that can be used, one ID for one cluster, and what a new one is given.

Where a Cluster is and which Secrets it has are checked when a write says so anew: one that was let
in by an earlier version can still be cordoned, and is refused by whoever would connect to it.

A cluster that joined twice would be given every workload twice. Whoever creates a Cluster looks at
all others first, but two may look at the same moment, so the hub decides: one at a time, with the
ID of a Cluster that is on its way to the store set aside for it.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from clusterspace.apis import clusters
from clusterspace.apis.cluster_credentials import changed_fields
from clusterspace.apis.member_clusters import has_member_cluster
from clusterspace.apiserver import forms
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.client.addresses import problem_with_host
from clusterspace.client.endpoints import AddressRules, endpoint_causes
from clusterspace.errors import Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import (
    Object,
    find_at,
    name_of,
    uid_of,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupKind

_GROUP: Final = clusters.CLUSTERS.group
_KIND: Final = GroupKind(_GROUP, clusters.KIND)
_ID: Final = "spec.id"
_IS_THE_HUB: Final = "it is the hub itself, which cannot be its own member"

ON_ITS_WAY_SECONDS: Final = 2.0
"""How long an admitted Cluster may take to reach the store; a disk takes milliseconds."""

_LOOK_AGAIN_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class _OnItsWay:
    """A Cluster that was admitted with an ID, and until when it may still be stored."""

    name: str
    until: float


class ClusterRules:
    """Refuses Clusters with a bad name, an ID that another one has, or a way that leads astray."""

    def __init__(self, members: AddressRules | None = None) -> None:
        self._members = members or AddressRules()
        self._one_at_a_time = asyncio.Lock()
        self._on_their_way: dict[str, _OnItsWay] = {}

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a Cluster and complete it; other objects pass."""
        if not admission.is_of(_GROUP, clusters.KIND) or admission.subresource:
            return admission.new
        cluster = _completed(admission)
        found = (*_name_causes(admission), *_id_causes(admission), *_taint_causes(cluster))
        if changed_fields(cluster, admission.old):
            judge = partial(problem_with_host, self._members)
            found = (*found, *endpoint_causes(cluster, judge), *_reference_causes(cluster))
        if found:
            raise statuses.invalid(_KIND, name_of(cluster), found)
        is_new_id = admission.old is None or not clusters.id_of(admission.old)
        if is_new_id and clusters.id_of(cluster):
            await self._claim_id(hub, cluster)
        return cluster

    async def _claim_id(self, hub: HubState, cluster: Object) -> None:
        """Return when the ID is this Cluster's alone; refuse when another has it."""
        cluster_id, name = clusters.id_of(cluster), name_of(cluster)
        if cluster_id == await _own_id(hub):
            raise statuses.invalid(_KIND, name, (causes.invalid(_ID, cluster_id, _IS_THE_HUB),))
        while True:
            async with self._one_at_a_time:
                present = await _stored_clusters(hub)
                holder = clusters.find_same_id(present, cluster_id, name)
                if holder is not None:
                    raise statuses.invalid(_KIND, name, (_taken(cluster_id, holder),))
                if self._reserve(cluster_id, name, hub.clock.monotonic()):
                    return
            await hub.clock.sleep(_LOOK_AGAIN_SECONDS)

    def _reserve(self, cluster_id: str, name: str, now: float) -> bool:
        """Set the ID aside unless a Cluster of another name that has it may be stored any moment.

        That one may also have been refused later on, or been a dry run: then its time runs out.
        """
        self._on_their_way = {
            key: held for key, held in self._on_their_way.items() if held.until > now
        }
        held = self._on_their_way.get(cluster_id)
        if held is not None and held.name != name:
            return False
        self._on_their_way[cluster_id] = _OnItsWay(name, now + ON_ITS_WAY_SECONDS)
        return True


async def _own_id(hub: HubState) -> str:
    """Return the ID this hub would have as a cluster."""
    served = hub.catalog.get_storage("", "namespaces")
    entry = await hub.store.get(served.key("", "kube-system"))
    return "" if entry is None else uid_of(forms.decode_stored(entry, served.form))


async def _stored_clusters(hub: HubState) -> list[Object]:
    served = hub.catalog.get_storage(_GROUP, clusters.CLUSTERS.resource)
    page = await hub.store.range(served.prefix())
    return [forms.decode_stored(entry, served.form) for entry in page.items]


def _completed(admission: Admission) -> Object:
    """Return the Cluster with its one zone as a list and, when new, the sizes of nodes to count."""
    cluster = admission.new
    zone = find_at(cluster, "spec", "zone")
    if zone and not find_at(cluster, "spec", "zones"):
        cluster = without_value(with_value(cluster, [zone], "spec", "zones"), "spec", "zone")
    if admission.is_create and not find_at(cluster, "spec", "resourceModels"):
        cluster = with_value(cluster, clusters.default_resource_models(), "spec", "resourceModels")
    return cluster


def _name_causes(admission: Admission) -> tuple[Cause, ...]:
    return clusters.cluster_name_causes(name_of(admission.new)) if admission.is_create else ()


def _id_causes(admission: Admission) -> tuple[Cause, ...]:
    if admission.old is None:
        return ()
    before, after = clusters.id_of(admission.old), clusters.id_of(admission.new)
    if not before or before == after:
        return ()
    why = f"field is immutable: the cluster was joined with the ID {before}"
    return (causes.invalid(_ID, after, why),)


def _taint_causes(cluster: Object) -> tuple[Cause, ...]:
    # A MemberCluster may have two values for one key, and its Cluster has the same taints.
    fields = ("key", "value", "effect") if has_member_cluster(cluster) else ("key", "effect")
    seen: set[tuple[str, ...]] = set()
    found: list[Cause] = []
    for index, taint in enumerate(clusters.taints_of(cluster)):
        if not isinstance(cast("object", taint), dict):
            continue  # the schema is asked later, and says so
        told = tuple(str(taint.get(field) or "") for field in fields)
        if told in seen:
            found.append(causes.duplicate(f"spec.taints[{index}]", ":".join(told)))
        seen.add(told)
    return tuple(found)


def _reference_causes(cluster: Object) -> Iterator[Cause]:
    for field in ("secretRef", "impersonatorSecretRef"):
        namespace = find_at(cluster, "spec", field, "namespace")
        if namespace and namespace != clusters.CLUSTER_NAMESPACE:
            yield causes.not_supported(
                f"spec.{field}.namespace", namespace, (clusters.CLUSTER_NAMESPACE,)
            )


def _taken(cluster_id: str, holder: str) -> Cause:
    return causes.invalid(
        _ID, cluster_id, f"cluster {holder} has this ID: it is the same cluster or a clone"
    )
