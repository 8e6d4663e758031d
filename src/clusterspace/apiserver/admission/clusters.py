"""Clusters and MemberClusters, and where the credentials of a cluster may be used.

Where a Cluster is and which Secrets it has are checked when a write says so anew: one that was let
in by an earlier version can still be cordoned, and is refused by whoever would connect to it.

A cluster joins by push, by registering itself, or by a MemberCluster. Two ways for one name would
mean two owners of one Cluster, so the second one is refused, with the name of the first. Both
may be on their way at the same moment: then the controller, which looks again, says it.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from clusterspace.apis import clusters, member_clusters
from clusterspace.apis.clusters import (
    USED_WITH,
    changed_fields,
    destination_of,
    owning_clusters,
)
from clusterspace.apiserver import forms
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.apiserver.writing import edit_own
from clusterspace.client.endpoints import AddressRules, endpoint_causes, problem_with_host
from clusterspace.errors import Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupKind
from clusterspace.kube.times import format_time

_CLUSTER: Final = GroupKind(clusters.CLUSTERS.group, clusters.KIND)
_MEMBER_CLUSTER: Final = GroupKind(member_clusters.GROUP, member_clusters.KIND)
_NAMESPACE: Final = GroupKind("", "Namespace")
_NAME: Final = "metadata.name"
_ID: Final = "spec.id"

ON_ITS_WAY_SECONDS: Final = 2.0
"""How long an admitted Cluster may take to reach the store; a disk takes milliseconds."""

_LOOK_AGAIN_SECONDS: Final = 0.02


async def _find_stored(hub: HubState, kind: GroupKind, name: str) -> Object | None:
    """Return an object at the cluster scope as it is now; None for a kind that is not served."""
    served = hub.catalog.find_kind(kind.group, kind.kind)
    entry = None if served is None else await hub.store.get(served.key("", name))
    if served is None or entry is None:
        return None
    return forms.decode_stored(entry, served.form)


@dataclass(frozen=True, slots=True)
class _Reservation:
    """An ID set aside for a Cluster that was admitted, and until when it may still be stored."""

    name: str
    until: float


class ClusterRules(Plugin):
    """Completes Clusters, and refuses those with a bad name, a taken ID or a forbidden address.

    An address is forbidden if the operator does not allow members there. Secrets outside of the
    clusters' own namespace, and malformed taints, are refused too.
    """

    def __init__(self, members: AddressRules | None = None) -> None:
        self._members = members or AddressRules()
        self._one_at_a_time = asyncio.Lock()
        self._reservations: dict[str, _Reservation] = {}

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a Cluster and complete it; other objects pass."""
        cluster, old = admission.new, admission.old
        if not admission.is_of(_CLUSTER.group, _CLUSTER.kind) or admission.subresource:
            return cluster
        zone = find_at(cluster, "spec", "zone")
        if zone and not find_at(cluster, "spec", "zones"):
            cluster = without_value(with_value(cluster, [zone], "spec", "zones"), "spec", "zone")
        if old is None and not find_at(cluster, "spec", "resourceModels"):
            models = clusters.default_resource_models()
            cluster = with_value(cluster, models, "spec", "resourceModels")

        cluster = with_taint_times(cluster, old, hub.clock.now())
        name, cluster_id = name_of(cluster), clusters.id_of(cluster)
        id_before = "" if old is None else clusters.id_of(old)
        found: list[Cause] = [] if old is not None else [*clusters.cluster_name_causes(name)]
        if id_before and id_before != cluster_id:
            why = f"field is immutable: the cluster was joined with the ID {id_before}"
            found.append(causes.invalid(_ID, cluster_id, why))
        found += taint_causes(cluster)
        if changed_fields(cluster, old):
            found += endpoint_causes(cluster, partial(problem_with_host, self._members))
            for field in ("secretRef", "impersonatorSecretRef"):
                namespace = find_at(cluster, "spec", field, "namespace")
                if namespace and namespace != clusters.CLUSTER_NAMESPACE:
                    path, allowed = f"spec.{field}.namespace", (clusters.CLUSTER_NAMESPACE,)
                    found.append(causes.not_supported(path, namespace, allowed))
        if found:
            raise statuses.invalid(_CLUSTER, name, found)
        if cluster_id and not id_before:
            await self._claim_id(hub, cluster_id, name)
        return cluster

    async def _claim_id(self, hub: HubState, cluster_id: str, name: str) -> None:
        """Return when the ID is this Cluster's alone; refuse when another has it.

        A cluster that joined twice would be given every workload twice. Whoever creates a Cluster
        looks at all others first, but two may look at the same moment, so the hub decides: under
        the lock, one sees what is stored and what is on its way to the store.

            west asks for id 1: nobody has it            -> set aside for west until now + 2 s
            east asks for id 1: west may be stored soon  -> waits, and looks again
            west is stored                               -> east is refused, by name
            west was a dry run, or refused later on      -> its time runs out, and east gets it

        Reservations are memory only: a crash forgets them together with the writes they stand
        for, and what was stored by then is found there.
        """
        hub_itself = await _find_stored(hub, _NAMESPACE, "kube-system")
        if hub_itself is not None and cluster_id == uid_of(hub_itself):
            why = "it is the hub itself, which cannot be its own member"
            raise statuses.invalid(_CLUSTER, name, (causes.invalid(_ID, cluster_id, why),))
        served = hub.catalog.get_storage(_CLUSTER.group, clusters.CLUSTERS.resource)
        while True:
            async with self._one_at_a_time:
                page = await hub.store.range(served.prefix())
                stored = [forms.decode_stored(entry, served.form) for entry in page.items]
                owner = clusters.find_same_id(stored, cluster_id, name)
                if owner is not None:
                    why = f"cluster {owner} has this ID: it is the same cluster or a clone"
                    raise statuses.invalid(_CLUSTER, name, (causes.invalid(_ID, cluster_id, why),))
                now = hub.clock.monotonic()
                self._reservations = {
                    key: each for key, each in self._reservations.items() if each.until > now
                }
                reserved = self._reservations.get(cluster_id)
                if reserved is None or reserved.name == name:
                    until = now + ON_ITS_WAY_SECONDS
                    self._reservations[cluster_id] = _Reservation(name, until)
                    return
            await hub.clock.sleep(_LOOK_AGAIN_SECONDS)


def with_taint_times(cluster: Object, old: Object | None, now: float) -> Object:
    """Return the Cluster with the time on every NoExecute taint since which it evicts.

    One that is written once more without its time keeps the time it had: applying the same file
    again does not give everybody their toleration anew.
    """
    if member_clusters.has_member_cluster(cluster):
        return cluster  # its taints are the MemberCluster's, as they are
    timed: list[Object] = []
    for taint in clusters.taints_of(cluster):
        if not isinstance(cast("object", taint), dict):
            return cluster  # the schema is asked later, and says so
        if taint.get("effect") != "NoExecute" or taint.get("timeAdded"):
            timed.append(taint)
            continue
        same = (
            each.get("timeAdded")
            for each in clusters.taints_of(old or {})
            if all(each.get(field) == taint.get(field) for field in ("key", "value", "effect"))
        )
        timed.append({**taint, "timeAdded": next(same, None) or format_time(now)})
    if timed == list(clusters.taints_of(cluster)):
        return cluster
    return with_value(cluster, timed, "spec", "taints")


def taint_causes(cluster: Object) -> list[Cause]:
    """Return a cause for each taint of a Cluster that is there twice."""
    # A MemberCluster may have two values for one key, and its Cluster has the same taints.
    has_member = member_clusters.has_member_cluster(cluster)
    fields = ("key", "value", "effect") if has_member else ("key", "effect")
    seen: set[tuple[str, ...]] = set()
    found: list[Cause] = []
    for index, taint in enumerate(clusters.taints_of(cluster)):
        if not isinstance(cast("object", taint), dict):
            continue  # the schema is asked later, and says so
        identity = tuple(str(taint.get(field) or "") for field in fields)
        if identity in seen:
            found.append(causes.duplicate(f"spec.taints[{index}]", ":".join(identity)))
        seen.add(identity)
    return found


class MemberClusterRules(Plugin):
    """Refuses MemberClusters that cannot be meant, and a second way to join under one name."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a MemberCluster or a new Cluster; other objects pass."""
        if admission.subresource:
            return admission.new
        if admission.is_of(_MEMBER_CLUSTER.group, _MEMBER_CLUSTER.kind):
            return await self._admit_member(hub, admission)
        if admission.is_create and admission.is_of(_CLUSTER.group, _CLUSTER.kind):
            return await self._admit_cluster(hub, admission)
        return admission.new

    async def _admit_member(self, hub: HubState, admission: Admission) -> Object:
        member_cluster, name = admission.new, name_of(admission.new)
        if metadata_of(admission.old or {}).get("deletionTimestamp"):
            return member_cluster  # no rule may keep one from going
        found = member_clusters.member_cluster_causes(member_cluster, is_new=admission.is_create)
        if admission.is_create and not found:
            cluster = await _find_stored(hub, _CLUSTER, name)
            if cluster is not None:
                is_pull = clusters.is_pull(cluster)
                joined = "registered itself (Pull)" if is_pull else "was joined (Push)"
                leave = f"clusterspace {'unregister' if is_pull else 'unjoin'}"
                why = f"a Cluster of this name {joined}: let it leave with `{leave}` first"
                found = (causes.invalid(_NAME, name, why),)
        if found:
            raise statuses.invalid(_MEMBER_CLUSTER, name, found)
        return member_cluster

    async def _admit_cluster(self, hub: HubState, admission: Admission) -> Object:
        """Let a MemberCluster's own agent and controller make its Cluster, and nobody else."""
        cluster, name, user = admission.new, name_of(admission.new), admission.user
        member_cluster = await _find_stored(hub, _MEMBER_CLUSTER, name)
        if member_cluster is None or member_clusters.is_owned_by(cluster, member_cluster):
            return cluster
        identity = member_clusters.identity_of(member_cluster)
        is_leaving = bool(metadata_of(member_cluster).get("deletionTimestamp"))
        if is_leaving or not member_clusters.names_user(identity, user.name, user.groups):
            why = (
                "a MemberCluster of this name is how this cluster joins: "
                "start the agent of its spec.identity, or delete the MemberCluster first"
            )
            raise statuses.invalid(_CLUSTER, name, (causes.invalid(_NAME, name, why),))
        owner = member_clusters.owner_reference(member_cluster)
        return with_metadata(cluster, ownerReferences=[owner])


class ClusterSecrets(Plugin):
    """Ties the credentials of a cluster to where it is, in the write that makes them a Cluster's.

    Every join, Karmada's own too, ends by naming the Cluster as the owner of its Secrets. In that
    write the hub notes where the Cluster is. Whoever writes the note himself, as our join does, is
    believed: who may write a Secret could send its token anywhere as it is. Taking the note away
    has it written anew, for the address the Cluster has now.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Note it on a Secret that has a Cluster as its owner and no note of its own."""
        new, old = admission.new, admission.old or {}
        if not admission.is_of("", "Secret") or namespace_of(new) != clusters.CLUSTER_NAMESPACE:
            return new
        noted = annotations_of(new).get(USED_WITH)
        # A note that was there before another Cluster became the owner is about the one before.
        is_handed_over = owning_clusters(new) != owning_clusters(old)
        is_stale = is_handed_over and noted == annotations_of(old).get(USED_WITH)
        return await tied(hub, new) if not noted or is_stale else new


async def tied(hub: HubState, secret: Object) -> Object:
    """Return a Secret with a note of where its Cluster is; as it is when it has no Cluster."""
    owners = owning_clusters(secret)
    if len(owners) != 1:
        return secret
    cluster = await _find_stored(hub, _CLUSTER, str(owners[0].get("name")))
    if cluster is None or uid_of(cluster) != owners[0].get("uid"):
        return secret
    noted = {**annotations_of(secret), USED_WITH: destination_of(cluster)}
    return with_metadata(secret, annotations=noted)


async def tie_all(hub: HubState) -> None:
    """Tie the Secrets that an earlier version wrote; harmless if repeated.

    Run before the hub serves its first request, so that nobody can move a Cluster in between.
    """
    served = hub.catalog.get_storage("", "secrets")
    page = await hub.store.range(served.prefix(clusters.CLUSTER_NAMESPACE))
    for entry in page.items:
        secret = forms.decode_stored(entry, served.form)
        if USED_WITH in annotations_of(secret):
            continue
        noted = await tied(hub, secret)
        if noted is not secret:
            await edit_own(hub, served, entry.key, lambda _, noted=noted: noted)
