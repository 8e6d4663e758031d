"""The Cluster of a member whose agent was heard: one fleet, two vocabularies.

A Cluster is made when the agent has said that it is in and who its cluster is, so that the same
cluster under two names is refused before anything is placed there. From then on the Cluster is
looked after like any other; what the MemberCluster says of it, labels and taints, is carried over.
"""

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import execution_namespace, id_of
from clusterspace.apis.member_clusters import cluster_id_of, is_owned_by
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import AlreadyExists, CannotJoin, Invalid
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.lease import lease_object
from clusterspace.fleet.membership.member_clusters import manifests, places
from clusterspace.fleet.membership.member_clusters.inviting import Provider, Provision
from clusterspace.fleet.membership.member_clusters.mirror import mirrored
from clusterspace.fleet.membership.member_clusters.reports import has_joined
from clusterspace.kube.objects import Object, name_of, with_value


class Enlistment:
    """The Cluster of one member, made and kept as the MemberCluster says."""

    def __init__(self, hub: Client, member_cluster: Object, provider: Provider) -> None:
        self._hub = hub
        self._member_cluster = member_cluster
        self._name = name_of(member_cluster)
        self._provider = provider

    async def enlist(self, internal: Object, clock: Clock) -> bool:
        """Make what is missing and return whether all is there; CannotJoin when it may not be."""
        cluster = await self._hub.find(names.cluster_place(self._name))
        if cluster is None:
            if not has_joined(internal):
                return True  # nothing is wanted yet
            cluster = await self._create(cluster_id_of(internal))
        self._refuse_foreign(cluster)
        cluster = await self._carry_over(cluster, cluster_id_of(internal))
        await self._ensure_lease(cluster, clock.now())
        return await self._give_rights_on_works()

    async def _create(self, cluster_id: str) -> Object:
        wanted = mirrored(manifests.cluster(self._member_cluster, cluster_id), self._member_cluster)
        place = names.cluster_place(self._name)
        try:
            return await self._hub.create(place.collection, wanted)
        except AlreadyExists:
            return await self._hub.get(place)
        except Invalid as error:
            raise CannotJoin(self._name, error.message) from error

    def _refuse_foreign(self, cluster: Object) -> None:
        if not is_owned_by(cluster, self._member_cluster):
            why = "a Cluster of this name joined by another door, and has to leave first"
            raise CannotJoin(self._name, why)
        if is_being_deleted(cluster):
            why = "its Cluster was deleted: it is made anew once it is gone"
            raise CannotJoin(self._name, why)

    async def _carry_over(self, cluster: Object, cluster_id: str) -> Object:
        wanted = mirrored(cluster, self._member_cluster)
        if cluster_id and not id_of(cluster):
            wanted = with_value(wanted, cluster_id, "spec", "id")
        try:
            return await commit(self._hub, names.cluster_place(self._name), cluster, wanted)
        except Invalid as error:
            raise CannotJoin(self._name, error.message) from error

    async def _ensure_lease(self, cluster: Object, now: float) -> None:
        """Make the lease: the agent may renew it, and may not create any."""
        place = names.lease_place(self._name)
        if await self._hub.find(place) is not None:
            return
        try:
            await self._hub.create(place.collection, lease_object(cluster, now))
        except AlreadyExists:
            return

    async def _give_rights_on_works(self) -> bool:
        """Give them once the namespace is there, which every Cluster gets from its own upkeep."""
        namespace = execution_namespace(self._name)
        if await self._hub.find(places.works_namespace(self._name)) is None:
            return False
        role, binding = (
            places.role_place(self._name, namespace),
            places.binding_place(self._name, namespace),
        )
        await self._provider.provide(Provision(role, manifests.works_role(self._member_cluster)))
        bound = manifests.role_binding(self._member_cluster, namespace)
        await self._provider.provide(Provision(binding, bound))
        return True
