"""What a KubeFleet places handed over to this hub, without a change on any member; and back.

    over   its placements only report ──agents say so──> AppliedWorks own nothing any more ──>
           templates ──> our placements compare ──the same──> they apply: members bear our marks
    back   our placements go, members keep their objects ──> AppliedWorks own them again ──>
           templates go ──> its placements apply

Nothing is deleted on the other hub. Should somebody delete a placement there, its agents delete
AppliedWorks, and the garbage collector of the member what these own: nothing. What a crash leaves:

    after                      left behind                     whoever goes on
    a placement lets go        members nobody writes to        finds it so
    an owner is taken off      an object that nobody owns      takes off the rest
    the template               no placement selects it         goes on
    our placement compares     Works that are not dispatched   compares, and lets it apply
    it applies                 members being marked            waits for them
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.envelopes import opened
from clusterspace.apis.fleet_placements import (
    ResourceIdentifier,
    abandons,
    identity_of,
    parent_labels,
    scope_at,
)
from clusterspace.apis.works import manifests_of
from clusterspace.client.discovery import ServedResources
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions, ListOptions, Propagation
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import CannotMigrate, Conflict, NotFound, NotServed
from clusterspace.fleet.execution.takeover import template_uid_of
from clusterspace.fleet.migration import kubefleet
from clusterspace.fleet.migration.apply import ApplyOptions, Progress, is_of
from clusterspace.fleet.migration.handover import GONE, Handover, Place, batches, is_policy
from clusterspace.fleet.migration.hub_planning import OVERRIDE_RANK
from clusterspace.fleet.migration.judgement import ask_effect
from clusterspace.fleet.migration.kubefleet import Placed
from clusterspace.fleet.migration.kubefleet_planning import carried_template
from clusterspace.fleet.migration.plan import Allow, PlanItem
from clusterspace.fleet.migration.progress import (
    Item,
    MigrationStore,
    Phase,
    State,
    count_states,
)
from clusterspace.fleet.migration.selection import NAMESPACE
from clusterspace.fleet.migration.undo import why_kept, work_path
from clusterspace.fleet.propagation.placements.rollout import cluster_of
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    is_being_deleted,
    name_of,
    uid_of,
)

_ROUNDS: Final = 5
_SPEC_HASH: Final = "kubernetes-fleet.io/spec-hash"
"""Annotation that an agent puts on whatever it applies."""


class KubeFleetHandover(Handover):
    """Hands what a KubeFleet places over to this hub, or back, from wherever that stands."""

    def __init__(
        self,
        store: MigrationStore,
        other: Client,
        members: Mapping[str, Client],
        serves: ServedResources,
        options: ApplyOptions,
        clock: Clock,
        progress: Progress = lambda _counts, _total: None,
    ) -> None:
        super().__init__(store, other, members, options, clock, progress)
        self._serves = serves
        self._placed: dict[str, Placed] = {}
        """What the placements have on members that are taken, by their keys."""

    # -- over -------------------------------------------------------------------------------------

    def let_go(self, theirs: Object) -> Object:
        """Return a placement that only reports."""
        return kubefleet.resting(theirs)

    async def stand_still(self, _policies: list[Place]) -> None:
        """Wait until agents say that they only look; see that nothing was placed meanwhile."""
        planned = {each.plan.title: each.plan for c, i in self._places() if (each := c.items[i])}
        for chunk, index in self._places():
            item = chunk.items[index]
            if not is_policy(item.plan) or item.state not in (State.TAKING, State.TAKEN):
                continue
            key = item.plan.path.key

            async def still(key: str = key) -> Placed | None:
                found = await kubefleet.read_placed(self._other, key)
                works = [each for works in found.works.values() for each in works]
                return found if all(map(kubefleet.stands_still, works)) else None

            placed = await self._waiting.until_seen(still)
            if placed is None:
                why = "not all agents say that they only look; do KubeFleet's programs run?"
                chunk.items[index] = item.now(item.state, why)
                continue
            self._placed[key] = placed
            new = next((e for e in self._sources(placed) if not _is_planned(e, planned)), None)
            if new is not None and item.state is State.TAKING:
                why = f"it places {new[0]} since the plan was made: undo this, and plan again"
                chunk.items[index] = item.now(item.state, why)

    def _sources(self, placed: Placed) -> list[tuple[str, tuple[str, ...]]]:
        """Return what objects on members come of, as plans call it, with their clusters."""
        plain = [(str(identity), clusters) for identity, clusters in placed.plain().items()]
        wrapped = [
            (f"{kubefleet.envelope_kind(path)} {path.key}", clusters)
            for path, clusters in placed.envelopes().items()
        ]
        return [*plain, *wrapped]

    def _placement_of(self, planned: PlanItem) -> str:
        """Return the key of the placement that an item is taken with; empty when with none."""
        for key, placed in self._placed.items():
            if planned.title in (title for title, _ in self._sources(placed)):
                return key
        return ""

    async def take_one(self, item: Item) -> Item:
        """Take a namespace, an override, or a template; nobody owns its objects from then on."""
        planned, name = item.plan, self._store.name
        is_namespace = planned.group_version_kind.group_kind == NAMESPACE
        if is_namespace and not planned.clusters:
            return await self._make_namespace(item)
        theirs = await self._other.find(planned.path)
        if theirs is None or uid_of(theirs) != planned.uid:
            return item.now(State.REFUSED, GONE)
        if planned.rank == OVERRIDE_RANK:
            return await self._carry(item, kubefleet.carried_object(theirs, name))
        key = self._placement_of(planned)
        if not key:
            return item.now(State.REFUSED, "its placement is not taken, and each is taken whole")
        present = await self._find_ours(planned.path) if is_namespace else None
        if present is not None and stamps.MIGRATION in annotations_of(present):
            made = item.now(State.TAKEN, template_uid=uid_of(present))
        else:
            made = await self._carry(item, carried_template(theirs, name))
        if made.state is not State.TAKEN:
            return made
        for identity, cluster, path in self._objects(theirs, key):
            owners = self._placed[key].owners(cluster, identity)
            await self._edit_on(
                cluster, path, lambda live, owners=owners: kubefleet.without_owners(live, owners)
            )
        return made.now(State.TAKING)

    def _objects(
        self, template: Object, key: str
    ) -> list[tuple[ResourceIdentifier, str, ResourcePath]]:
        """Return what members have of a template or an envelope, cluster by cluster."""
        places = self._placed[key].objects()
        return [
            (identity, cluster, self._path_of(identity))
            for identity in map(identity_of, opened(template))
            for cluster in places.get(identity, ())
        ]

    def _path_of(self, identity: ResourceIdentifier) -> ResourcePath:
        info = self._serves.find_kind(identity.group_version_kind)
        if info is None:
            raise CannotMigrate(f"the other hub does not serve {identity.kind}: plan again")
        return ResourcePath(info.group_version_resource, identity.namespace, identity.name)

    async def take_policy(self, item: Item) -> Item:
        """Have our placement compare; let it apply when members would not notice."""
        path = item.plan.path
        if item.state is not State.TAKING:
            return item
        theirs = await self._other.get(path)
        original = await self._store.original(item) or theirs
        carried = kubefleet.carried_placement(theirs, original, self._store.name)
        scope = scope_at(path.key)
        bindings = {
            cluster_of(each): name_of(each)
            for each in await self._other.list_objects(
                ResourcePath(scope.bindings, path.namespace), _of_placement(path.key)
            )
        }
        made = await self._carry(item, kubefleet.comparing(carried, bindings))
        if made.state is not State.TAKEN:
            return made
        item = made.now(State.TAKING)
        if why := await self._until_compared(item):
            return item.now(State.TAKING, why)
        # Till here nothing was written to any member but references to owners.
        await commit_change(self._hub, path, lambda found: kubefleet.taking(found, carried))
        for identity, cluster, uid in await self._meant(path.key):
            place = self._path_of(identity)
            if await self._until_taken(place, cluster, uid) is None:
                why = await self._why_not_taken(identity.kind, place, cluster)
                return item.now(State.TAKING, f"{cluster} has not taken {identity}: {why}")
        await commit_change(self._hub, path, lambda found: kubefleet.settled(found, carried))
        return item.now(State.TAKEN)

    async def _meant(self, key: str) -> list[tuple[ResourceIdentifier, str, str]]:
        """Return what a placement has on members, with the UIDs of our templates of it."""
        found: list[tuple[ResourceIdentifier, str, str]] = []
        for chunk, index in self._places():
            item = chunk.items[index]
            if not item.plan.clusters or self._placement_of(item.plan) != key:
                continue
            template = await self._hub.get(item.plan.path)
            objects = self._objects(template, key)
            found += ((identity, cluster, uid_of(template)) for identity, cluster, _ in objects)
        return found

    async def _until_compared(self, item: Item) -> str:
        """Wait until our Works would change nothing; return what they would, in the end."""
        path = item.plan.path
        scope, why = scope_at(path.key), ""
        allowed = {
            each.plan.title: set(each.plan.allow)
            for c, i in self._places()
            if (each := c.items[i]).plan.clusters
        }
        meant = await self._meant(path.key)

        async def compared() -> bool | None:
            nonlocal why
            place = ResourcePath(scope.bindings, path.namespace)
            ours = await self._hub.list_objects(place, _of_placement(path.key))
            clusters = {cluster_of(each) for each in ours}
            if clusters != set(self._placed[path.key].works):
                why = f"here it is on {', '.join(sorted(clusters)) or 'no cluster'}"
                return None
            for identity, cluster, uid in meant:
                where = self._path_of(identity)
                work = await self._hub.find(work_path(identity.kind, where, cluster)) or {}
                manifest = next(iter(manifests_of(work)), None)
                if manifest is None or template_uid_of(manifest) != uid:
                    why = f"there is no Work of {identity} for {cluster}; do the controllers run?"
                    return None
                live = await self._members[cluster].find(where)
                if live is None:
                    why = f"{identity} is gone from {cluster}"
                    return None
                effect = await ask_effect(self._members[cluster], where, live, manifest)
                may = allowed.get(str(identity), set[Allow]())
                if effect.on_pods and Allow.RESTART not in may:
                    why = f"{identity} on {cluster}: {effect.on_pods}"
                    return None
                if effect.fields and not may & {Allow.CHANGES, Allow.RESTART}:
                    why = f"{identity} on {cluster}: {effect.fields[0]} would change"
                    return None
            return True

        return "" if await self._waiting.until_seen(compared) else why

    async def confirm(self, item: Item) -> Item:
        """Call a template taken when its placement is: members bear its marks by then."""
        if item.state is not State.TAKING:
            return item
        key = self._placement_of(item.plan)
        states = {
            c.items[i].plan.path.key: c.items[i].state
            for c, i in self._places()
            if is_policy(c.items[i].plan)
        }
        return item.now(State.TAKEN) if states.get(key) is State.TAKEN else item

    # -- back -------------------------------------------------------------------------------------

    async def give_back(self) -> Counter[State]:
        """Hand back all that was taken; CannotMigrate names what cannot be, after all else was."""
        record = await self._begin()
        await self._tell(Phase.UNDOING)
        places = [(c, i) for c, i in self._places() if c.items[i].state is not State.UNDONE]
        places.reverse()
        policies = [(c, i) for c, i in places if is_policy(c.items[i].plan)]
        others = [each for each in places if each not in policies]
        for batch in batches(policies, self._options.at_once):
            await self._do(batch, self._withdraw, record.items)
        kept = [c.items[i] for c, i in policies if c.items[i].reason]
        if kept:
            why = f"{kept[0].plan.title} stays on this hub: {kept[0].reason}"
            await self._tell(Phase.UNDOING, why)
            raise CannotMigrate(why)
        for batch in batches(others, self._options.at_once):
            await self._do(batch, self._give_back_one, record.items)
        await self._stop_at_kept(others)
        for batch in batches(policies, self._options.at_once):
            await self._do(batch, self._resume, record.items)
        await self._tell(Phase.UNDONE)
        return count_states(self._chunks)

    async def _withdraw(self, item: Item) -> Item:
        """Delete our placement so that members keep their objects; have their owners own them."""
        path = item.plan.path
        if item.state not in (State.TAKING, State.TAKEN):
            return item.now(item.state)
        placed = await kubefleet.read_placed(self._other, path.key)
        ours = await self._hub.find(path)
        if ours is not None and is_of(ours, self._store.name):
            if not abandons(ours):
                why = "members lose all it places with it: set deleteStrategy to Abandon first"
                return item.now(item.state, why)
            place = ResourcePath(scope_at(path.key).bindings, path.namespace)
            bindings = await self._hub.list_objects(place, _of_placement(path.key))
            more = {cluster_of(each) for each in bindings} - placed.works.keys()
            if more and placed.works:
                back = f"change its policy back to {', '.join(sorted(placed.works))} alone"
                return item.now(item.state, f"it is on {', '.join(sorted(more))} as well: {back}")
            with suppress(NotFound):
                await self._hub.delete(path, DeleteOptions(uid_of(ours)))

            async def withdrawn() -> bool | None:
                found = await self._hub.find(path)
                if found is not None and uid_of(found) == uid_of(ours):
                    return None
                left = await self._hub.list_objects(ResourcePath(WORKS), _of_placement(path.key))
                return None if left else True

            if not await self._waiting.until_seen(withdrawn):
                why = "its Works were not withdrawn in time; do all clusters answer?"
                return item.now(item.state, why)
        # Nobody writes to these objects now: our Works are gone, and the other hub only looks.
        for cluster, works in placed.works.items():
            for work in works:
                await self._own_again(cluster, work)
        return item.now(item.state)

    async def _own_again(self, cluster: str, work: Object) -> None:
        """Have the AppliedWork of a Work own what it applied, if it is there to stay.

        An object that names an owner which is not there is deleted by the garbage collector.
        """
        where = ResourcePath(kubefleet.APPLIED_WORKS, name=name_of(work))
        try:
            owner = await self._members[cluster].find(where)
        except NotServed:
            return
        if owner is None or is_being_deleted(owner):
            return

        def owned(live: Object) -> Object:
            is_applied = _SPEC_HASH in annotations_of(live)
            return kubefleet.with_owner(live, owner) if is_applied else live

        for manifest in manifests_of(work):
            await self._edit_on(cluster, self._path_of(identity_of(manifest)), owned)

    async def _give_back_one(self, item: Item) -> Item:
        """Delete a template or an override; no placement of ours selects it any more."""
        planned = item.plan
        is_taken = item.state in (State.TAKING, State.TAKEN)
        if not is_taken or planned.group_version_kind.group_kind == NAMESPACE:
            return item.now(State.UNDONE, item.reason)
        template = await self._find_ours(planned.path)
        if template is not None and is_of(template, self._store.name):
            if why := await why_kept(self._hub, planned.path, template, planned.clusters):
                return item.now(item.state, why)
            with suppress(NotFound):
                options = DeleteOptions(uid_of(template), propagation=Propagation.BACKGROUND)
                await self._hub.delete(planned.path, options)
        return item.now(State.UNDONE)

    async def _resume(self, item: Item) -> Item:
        """Have a placement of the other hub apply again, as its users had it."""
        original = await self._store.original(item)
        if item.state in (State.TAKING, State.TAKEN) and original is not None:
            with suppress(NotFound):
                await commit_change(
                    self._other, item.plan.path, lambda found: kubefleet.resumed(found, original)
                )
        return item.now(State.UNDONE)

    # -- both -------------------------------------------------------------------------------------

    async def _find_ours(self, path: ResourcePath) -> Object | None:
        try:
            return await self._hub.find(path)
        except NotServed:
            return None

    async def _edit_on(
        self, cluster: str, path: ResourcePath, edit: Callable[[Object], Object]
    ) -> None:
        """Change who owns an object of a member, and nothing else; one that is gone stays gone."""
        member = self._members[cluster]
        for _ in range(_ROUNDS):
            live = await member.find(path)
            if live is None or is_being_deleted(live) or (edited := edit(live)) is live:
                return
            with suppress(Conflict):
                await member.update(path, edited)
                return
        raise CannotMigrate(f"somebody changes {path} on {cluster} without a pause; go on later")


def _of_placement(key: str) -> ListOptions:
    labels = parent_labels(key)
    return ListOptions(label_selector=",".join(f"{key}={each}" for key, each in labels.items()))


def _is_planned(source: tuple[str, tuple[str, ...]], planned: Mapping[str, PlanItem]) -> bool:
    title, clusters = source
    return title in planned and set(clusters) <= set(planned[title].clusters)
