"""What placements are worked on with: the caches, the writes, and our own latest ones."""

from dataclasses import dataclass
from typing import Final

from clusterspace.apis.fleet_placements import (
    FLEET_BINDINGS,
    PLACEMENTS,
    POLICY_SNAPSHOTS,
    RESOURCE_SNAPSHOTS,
    parent_of,
)
from clusterspace.client.places import Place, place_of
from clusterspace.client.raw_objects import version_in
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.client.writes import DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import AlreadyExists, Conflict, NotFound
from clusterspace.fleet.propagation.placements.bindings import cluster_of
from clusterspace.fleet.propagation.template_informers import TemplateInformers
from clusterspace.fleet.propagation.works.revisions import BY_PARENT, SNAPSHOT_INDEXES
from clusterspace.kube.objects import Object, name_of, resource_version_of, uid_of
from clusterspace.kube.resources import GroupVersionResource

BEHIND_SECONDS: Final = 0.5
"""When to look again while a cache is behind."""


@dataclass(frozen=True, slots=True)
class PlacementInformers:
    """The kinds that belong to placements; whoever makes them runs them."""

    placements: Informer
    policy_snapshots: Informer
    resource_snapshots: Informer
    fleet_bindings: Informer

    @classmethod
    def of(cls, hub: ClusterClient) -> "PlacementInformers":
        """Make them, with the indexes they need."""
        return cls(
            Informer(hub, Place(PLACEMENTS)),
            Informer(hub, Place(POLICY_SNAPSHOTS), indexes=SNAPSHOT_INDEXES),
            Informer(hub, Place(RESOURCE_SNAPSHOTS), indexes=SNAPSHOT_INDEXES),
            Informer(hub, Place(FLEET_BINDINGS), indexes=SNAPSHOT_INDEXES),
        )

    @property
    def all(self) -> tuple[Informer, ...]:
        """Return every one of them."""
        return (
            self.placements,
            self.policy_snapshots,
            self.resource_snapshots,
            self.fleet_bindings,
        )


@dataclass(frozen=True, slots=True)
class PlacementSources:
    """What placements are decided by.

    bindings, cluster_bindings   with `works.triggers.BINDING_INDEXES`
    works                        with `works.known_works.WORK_INDEXES`
    """

    own: PlacementInformers
    bindings: Informer
    cluster_bindings: Informer
    works: Informer
    clusters: Informer
    templates: TemplateInformers

    def bindings_of(self, namespace: str) -> Informer:
        """Return the engine's bindings of objects in namespaces, or of those in none."""
        return self.bindings if namespace else self.cluster_bindings


def of_parent(informer: Informer, parent: str) -> list[Object]:
    """Return what a cache has of one placement."""
    return informer.cache.objects_at(BY_PARENT, parent)


class Desk:
    """Writes what comes of placements; a write that somebody was faster with is a Conflict."""

    def __init__(self, hub_client: Client) -> None:
        self._hub_client = hub_client

    async def create(self, resource: GroupVersionResource, wanted: Object) -> Object:
        """Make an object; one that is there already was made by us, and is on its way to us."""
        place = place_of(resource, wanted)
        try:
            return await self._hub_client.create(place.collection, wanted)
        except AlreadyExists as error:
            raise Conflict(f"{place} is there already") from error

    async def change(self, resource: GroupVersionResource, before: Object, after: Object) -> Object:
        """Write what is different, if anything is."""
        return await commit(self._hub_client, place_of(resource, before), before, after)

    async def remove(self, resource: GroupVersionResource, present: Object) -> None:
        """Delete exactly this object."""
        try:
            await self._hub_client.delete(
                place_of(resource, present), DeleteOptions(uid=uid_of(present))
            )
        except NotFound:
            return


class KnownFleetBindings:
    """The bindings of placements to clusters, our own latest writes included.

    Whoever went by a cache that has not seen the last rollout yet would take it back.
    """

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._unseen: dict[str, Object | None] = {}
        informer.add_handler(self._see)

    def of(self, placement_name: str) -> dict[str, Object]:
        """Return the bindings of a placement, by cluster."""
        cached = {name_of(each): each for each in of_parent(self._informer, placement_name)}
        known = [self._latest(key, each) for key, each in cached.items()]
        fresh = [
            each
            for key, each in self._unseen.items()
            if key not in cached and each is not None and parent_of(each) == placement_name
        ]
        held = [each for each in (*known, *fresh) if each is not None]
        return {cluster_of(each): each for each in sorted(held, key=name_of)}

    def note(self, binding: Object) -> None:
        """Remember a binding as it was just written, until the cache is as far."""
        cached = self._informer.cache.find_version(name_of(binding))
        if cached is None or int(cached.resource_version) < int(resource_version_of(binding)):
            self._unseen[name_of(binding)] = binding

    def forget(self, binding: Object) -> None:
        """Remember that a binding was deleted, until the cache is as far."""
        if name_of(binding) in self._informer.cache:
            self._unseen[name_of(binding)] = None
        else:
            self._unseen.pop(name_of(binding), None)

    def _latest(self, key: str, cached: Object) -> Object | None:
        return self._unseen.get(key, cached)

    def _see(self, update: Update) -> None:
        if update.key not in self._unseen:
            return
        noted = self._unseen[update.key]
        is_over = update.after is None if noted is None else _is_as_new(update.after, noted)
        if is_over:
            del self._unseen[update.key]


def _is_as_new(raw: bytes | None, noted: Object) -> bool:
    if raw is None:
        return True
    return int(version_in(raw).resource_version) >= int(resource_version_of(noted))
