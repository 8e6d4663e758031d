"""Selectors to objects to snapshot: what a placement places, written down.

An object goes from a placement only when the hub itself says that it is gone or no longer meant:
one that is missing from a cache is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterspace.apis.fleet_placements import (
    RESOURCE_INDEX,
    RESOURCE_SNAPSHOTS,
    Identity,
    identity_of,
    is_of,
    manifest_hash,
)
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.placements.manifests import manifest_of
from clusterspace.fleet.propagation.placements.selection import (
    Selection,
    Selector,
    read_selectors,
    select,
    still_means,
)
from clusterspace.fleet.propagation.placements.snapshots import (
    history_limit,
    outdated,
    plan_resource_snapshot,
)
from clusterspace.fleet.propagation.placements.sources import Desk, PlacementSources, of_parent
from clusterspace.fleet.propagation.works.revisions import Contents, Revisions
from clusterspace.kube.objects import Object, name_of


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a placement selects now, and every state of it that was written down."""

    templates: Mapping[Identity, Object]
    index: int
    contents: Mapping[int, Contents]
    """By number of the snapshot; the newest is at `index`."""

    @property
    def latest(self) -> Contents:
        """The objects selected now, each with its state."""
        return self.contents[self.index]


class Gathering:
    """Keeps what placements select written down."""

    def __init__(self, hub_client: Client, sources: PlacementSources) -> None:
        self._hub_client = hub_client
        self._sources = sources
        self._desk = Desk(hub_client)
        self._revisions = Revisions(sources.own.resource_snapshots)

    async def select(self, placement: Object) -> Selection | None:
        """Return what is selected, or None while that cannot be told yet."""
        try:
            selectors = read_selectors(placement)
        except MalformedSelector as error:
            return Selection(problems=(error.message,))
        selection = select(selectors, self._sources.templates)
        if selection.problems:
            return selection
        for identity in sorted(self._known(placement).keys() - selection.identities()):
            if not await self._is_gone(identity, selectors, selection):
                return None
        return selection

    async def write_down(
        self, placement: Object, selection: Selection, in_use: frozenset[int]
    ) -> Gathered:
        """Write a snapshot of what is selected, if it is not what was selected last."""
        manifests = [manifest_of(each) for each in selection.templates]
        present = self._snapshots(placement)
        plan = plan_resource_snapshot(placement, manifests, present)
        for each in plan.new:
            await self._desk.create(RESOURCE_SNAPSHOTS, each)
        for before, after in plan.changed:
            await self._desk.change(RESOURCE_SNAPSHOTS, before, after)
        kept = in_use | {plan.index}
        for each in outdated(present, RESOURCE_INDEX, history_limit(placement), kept):
            await self._desk.remove(RESOURCE_SNAPSHOTS, each)
        latest = {identity_of(each): manifest_hash(each) for each in manifests}
        contents = {**self._revisions.contents(name_of(placement)), plan.index: latest}
        templates = {identity_of(each): each for each in selection.templates}
        return Gathered(templates, plan.index, contents)

    def _snapshots(self, placement: Object) -> list[Object]:
        held = of_parent(self._sources.own.resource_snapshots, name_of(placement))
        return [each for each in held if is_of(each, placement)]

    def _known(self, placement: Object) -> Contents:
        """Return what the newest snapshot holds."""
        contents = self._revisions.contents(name_of(placement))
        return contents[max(contents)] if contents else {}

    async def _is_gone(
        self, identity: Identity, selectors: Sequence[Selector], selection: Selection
    ) -> bool:
        """Make sure that an object is no longer there, or no longer meant."""
        info = self._sources.templates.find_info(identity.group_version_kind)
        if info is None:
            return False  # a kind that cannot be seen: what was placed of it stays
        place = Place(info.group_version_resource, identity.namespace, identity.name)
        live = await self._hub_client.find(place)
        return live is None or not still_means(selectors, live, selection)
