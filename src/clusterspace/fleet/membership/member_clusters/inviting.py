"""What the hub makes for a member, in order, again and again.

    namespace ──> Role ──> binding ──> InternalMemberCluster ──> rights on lease and Cluster

What somebody changed is put back. What somebody else made under one of these names is not taken
over, unless it is in the member's own namespace, where everything is ours.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.clusters import CLUSTER_NAMESPACE
from clusterspace.apis.member_clusters import JOIN, is_owned_by, member_namespace
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.client.writes import DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import AlreadyExists, CannotJoin
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.manifests import namespace
from clusterspace.fleet.membership.member_clusters import manifests, places
from clusterspace.kube.objects import Object, labels_of, name_of, uid_of, with_metadata

_KEPT: Final = ("rules", "subjects", "spec")
"""What of an object is put back when somebody changes it, where the object has it."""

_CREATED: Final = "Created"
_CHANGED: Final = {"Namespace": "Patched", "InternalMemberCluster": "SpecUpdated"}
"""KubeFleet's words for it; everything else is Updated."""


@dataclass(frozen=True, slots=True)
class Provision:
    """One object a member is to have, and where."""

    place: Place
    wanted: Object

    @property
    def kind(self) -> str:
        """What it is."""
        return str(self.wanted["kind"])


def invitation(member_cluster: Object) -> tuple[Provision, ...]:
    """Return what a member needs before its agent can join, in order."""
    name = name_of(member_cluster)
    inside = member_namespace(name)
    return (
        Provision(places.namespace_place(name), manifests.namespace(member_cluster)),
        Provision(places.role_place(name, inside), manifests.member_role(member_cluster)),
        Provision(
            places.binding_place(name, inside), manifests.role_binding(member_cluster, inside)
        ),
        Provision(places.internal_place(name), manifests.internal(member_cluster, JOIN)),
        Provision(places.role_place(name, CLUSTER_NAMESPACE), manifests.lease_role(member_cluster)),
        Provision(
            places.binding_place(name, CLUSTER_NAMESPACE),
            manifests.role_binding(member_cluster, CLUSTER_NAMESPACE),
        ),
        Provision(places.cluster_role_place(name), manifests.cluster_role(member_cluster)),
        Provision(
            places.cluster_binding_place(name), manifests.cluster_role_binding(member_cluster)
        ),
    )


def restored(present: Object, wanted: Object) -> Object:
    """Return the object as it is to be; what others may add stays."""
    kept = {field: wanted[field] for field in _KEPT if field in wanted}
    labels = {**labels_of(present), **labels_of(wanted)}
    owners = wanted["metadata"]["ownerReferences"]
    marked = with_metadata(present, labels=labels or None)
    if not any(each.get("uid") == owners[0]["uid"] for each in _owners(present)):
        marked = with_metadata(marked, ownerReferences=[*_owners(present), *owners])
    return {**marked, **kept}


class Provider:
    """Gives one member what it needs."""

    def __init__(self, hub: Client, member_cluster: Object, events: EventRecorder) -> None:
        self._hub = hub
        self._member_cluster = member_cluster
        self._name = name_of(member_cluster)
        self._events = events

    async def invite(self) -> None:
        """Make or put back all of the invitation; CannotJoin when something stands in the way."""
        shared = names.namespace_place(CLUSTER_NAMESPACE)
        if await self._hub.find(shared) is None:
            with suppress(AlreadyExists):
                await self._hub.create(shared.collection, namespace(CLUSTER_NAMESPACE))
        for provision in invitation(self._member_cluster):
            await self.provide(provision)

    async def provide(self, provision: Provision) -> Object:
        """Return the object as it is to be, made or put back; CannotJoin when it is not ours."""
        present = await self._hub.find(provision.place)
        if present is None:
            return await self._create(provision)
        self._refuse_foreign(provision, present)
        wanted = provision.wanted
        if "roleRef" in wanted and wanted["roleRef"] != present.get("roleRef"):
            # A binding cannot be turned to another role.
            await self._hub.delete(provision.place, DeleteOptions(uid_of(present)))
            return await self._create(provision)
        stored = await commit(self._hub, provision.place, present, restored(present, wanted))
        if stored["metadata"].get("resourceVersion") != present["metadata"].get("resourceVersion"):
            self._tell(provision, _CHANGED.get(provision.kind, "Updated"))
        return stored

    async def _create(self, provision: Provision) -> Object:
        try:
            stored = await self._hub.create(provision.place.collection, provision.wanted)
        except AlreadyExists as error:
            raise CannotJoin(self._name, f"{provision.place} was made just now") from error
        self._tell(provision, _CREATED)
        return stored

    def _refuse_foreign(self, provision: Provision, present: Object) -> None:
        if is_being_deleted(present):
            raise CannotJoin(self._name, f"{provision.place} is still going away")
        is_inside = provision.place.namespace == member_namespace(self._name)
        if not is_inside and not is_owned_by(present, self._member_cluster):
            why = f"{provision.place} is there already, and was not made for this MemberCluster"
            raise CannotJoin(self._name, why)

    def _tell(self, provision: Provision, happened: str) -> None:
        verb = "made" if happened == _CREATED else "put back as it was"
        message = f"{verb}: {provision.place}"
        self._events.record(self._member_cluster, provision.kind + happened, message)


def _owners(kube_object: Object) -> list[Object]:
    return list(kube_object["metadata"].get("ownerReferences") or [])
