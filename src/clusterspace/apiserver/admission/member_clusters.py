"""MemberClusters: rules beyond their schema, and one door for one cluster.

A cluster joins by push, by registering itself, or by a MemberCluster. Two doors for one name would
mean two owners of one Cluster, so the second one is refused and told which the first was. Both
may be on their way at the same moment: then the controller, which looks again, says it.
"""

from typing import Final

from clusterspace.apis import clusters, member_clusters
from clusterspace.apiserver import forms
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.errors import Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import Object, metadata_of, name_of, with_metadata
from clusterspace.kube.resources import GroupKind

_KIND: Final = GroupKind(member_clusters.GROUP, member_clusters.KIND)
_CLUSTER_KIND: Final = GroupKind(clusters.CLUSTERS.group, clusters.KIND)
_NAME: Final = "metadata.name"


class MemberClusterRules:
    """Refuses MemberClusters that cannot be meant, and a second door for one name."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Check a MemberCluster or a new Cluster; other objects pass."""
        if admission.subresource:
            return admission.new
        if admission.is_of(_KIND.group, _KIND.kind):
            return await self._admit_member(hub, admission)
        if admission.is_create and admission.is_of(_CLUSTER_KIND.group, _CLUSTER_KIND.kind):
            return await self._admit_cluster(hub, admission)
        return admission.new

    async def _admit_member(self, hub: HubState, admission: Admission) -> Object:
        member_cluster = admission.new
        if metadata_of(admission.old or {}).get("deletionTimestamp"):
            return member_cluster  # no rule may keep one from going
        found = member_clusters.member_cluster_causes(member_cluster, is_new=admission.is_create)
        if admission.is_create and not found:
            cluster = await _find_stored(hub, _CLUSTER_KIND, name_of(member_cluster))
            found = () if cluster is None else (_taken_by_cluster(cluster),)
        if found:
            raise statuses.invalid(_KIND, name_of(member_cluster), found)
        return member_cluster

    async def _admit_cluster(self, hub: HubState, admission: Admission) -> Object:
        """Let a MemberCluster's own agent and controller make its Cluster, and nobody else."""
        cluster, user = admission.new, admission.user
        member_cluster = await _find_stored(hub, _KIND, name_of(cluster))
        if member_cluster is None or member_clusters.is_owned_by(cluster, member_cluster):
            return cluster
        identity = member_clusters.identity_of(member_cluster)
        is_leaving = bool(metadata_of(member_cluster).get("deletionTimestamp"))
        if is_leaving or not member_clusters.names_user(identity, user.name, user.groups):
            raise statuses.invalid(_CLUSTER_KIND, name_of(cluster), (_taken_by_member(cluster),))
        owner = member_clusters.owner_reference(member_cluster)
        return with_metadata(cluster, ownerReferences=[owner])


async def _find_stored(hub: HubState, kind: GroupKind, name: str) -> Object | None:
    served = hub.catalog.find_kind(kind.group, kind.kind)
    if served is None:
        return None  # who does not serve a kind has none of it
    entry = await hub.store.get(served.key("", name))
    return None if entry is None else forms.decode_stored(entry, served.form)


def _taken_by_cluster(cluster: Object) -> Cause:
    door = "registered itself (Pull)" if clusters.is_pull(cluster) else "was joined (Push)"
    leave = "unregister" if clusters.is_pull(cluster) else "unjoin"
    why = f"a Cluster of this name {door}: let it leave with `clusterspace {leave}` first"
    return causes.invalid(_NAME, name_of(cluster), why)


def _taken_by_member(cluster: Object) -> Cause:
    why = (
        "a MemberCluster of this name is how this cluster joins: "
        "start the agent of its spec.identity, or delete the MemberCluster first"
    )
    return causes.invalid(_NAME, name_of(cluster), why)
