"""What a Karmada places handed over to this hub, without a change on any member; and back.

    over   suspend its policies ──> its Works stand still ──> template, binding ──> members bear our
           marks ──> policies, and we go on
    back   delete templates ──> members keep their objects ──> their marks again ──> delete policies
           ──> its policies go on

At no moment do two hubs write to an object: the other one is suspended before our first template is
made, and goes on after our last one is gone. Nothing is deleted on the other hub, and nothing on a
member: policies on both sides say that members keep what they have. What a crash leaves:

    after              left behind                    whoever goes on
    the original       a Secret nobody needs          replaces it
    suspended          members nobody writes to       finds it suspended
    the template       no policy claims it, so        makes its binding
                       nothing is placed
    the binding        members being stamped          waits for them
    the policy         all of it                      is done
"""

from collections import Counter
from contextlib import suppress
from typing import Final

from clusterspace.apis.works import (
    clusters_of,
    manifests_of,
    name_for,
    resource_for,
    suspends_dispatching,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions, Propagation
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import AlreadyExists, CannotMigrate, Conflict, NotFound, NotServed
from clusterspace.fleet.execution.takeover import is_managed, with_stamps_of
from clusterspace.fleet.migration.apply import is_of
from clusterspace.fleet.migration.carrying import (
    carried_binding,
    carried_policy,
    carried_template,
    is_propagation_policy,
    resumed_policy,
    suspended_policy,
)
from clusterspace.fleet.migration.handover import GONE, Handover, batches, is_policy
from clusterspace.fleet.migration.hub_planning import OVERRIDE_RANK
from clusterspace.fleet.migration.judgement import pod_template_of
from clusterspace.fleet.migration.plan import Allow, PlanItem
from clusterspace.fleet.migration.progress import Item, Phase, State, count_states
from clusterspace.fleet.migration.selection import NAMESPACE
from clusterspace.fleet.migration.undo import why_kept, work_path
from clusterspace.kube.objects import Object, name_of, uid_of

_ROUNDS: Final = 5


class KarmadaHandover(Handover):
    """Hands what a Karmada places over to this hub, or back, from wherever that stands."""

    def let_go(self, theirs: Object) -> Object:
        """Return a policy that is suspended."""
        return suspended_policy(theirs)

    async def take_one(self, item: Item) -> Item:
        """Take a namespace, an override policy, or a template with its binding."""
        planned, name = item.plan, self._store.name
        if planned.group_version_kind.group_kind == NAMESPACE:
            return await self._make_namespace(item)
        theirs = await self._other.find(planned.path)
        if theirs is None or uid_of(theirs) != planned.uid:
            return item.now(State.REFUSED, GONE)
        if planned.rank == OVERRIDE_RANK:
            return await self._carry(item, carried_policy(theirs, name))
        binding = await self._other.find(
            ResourcePath(resource_for(planned.namespace), planned.namespace, name_for(theirs))
        )
        if binding is None:
            return item.now(State.REFUSED, "its binding is gone from the other hub: plan again")
        clusters = {each.name for each in clusters_of(binding)}
        if not clusters <= set(planned.clusters):
            more = ", ".join(sorted(clusters - set(planned.clusters)))
            return item.now(State.REFUSED, f"it is on {more} since the plan was made: plan again")
        if why := await self._until_standing_still(planned):
            return item.now(item.state, why)
        before = {each: await self._members[each].find(planned.path) for each in planned.clusters}
        made = await self._carry(item, carried_template(theirs, name))
        if made.state is not State.TAKEN:
            return made
        item = made.now(State.TAKING)
        template = await self._hub.get(planned.path)
        ours = carried_binding(binding, template, name)
        place = ResourcePath(resource_for(planned.namespace), planned.namespace, name_of(ours))
        with suppress(AlreadyExists):
            await self._hub.create(place.collection, ours)
        for cluster in planned.clusters:
            live = await self._until_taken(planned.path, cluster, uid_of(template))
            if live is None:
                why = await self._why_not_taken(planned.kind, planned.path, cluster)
                return item.now(State.TAKING, f"{cluster} has not taken it in time: {why}")
            was = before[cluster]
            is_same = was is not None and pod_template_of(was) == pod_template_of(live)
            if not is_same and Allow.RESTART not in planned.allow:
                return item.now(State.TAKEN, f"its pods on {cluster} are being replaced")
        return item.now(State.TAKEN)

    async def take_policy(self, item: Item) -> Item:
        """Have a policy on this hub, which goes on with what it places."""
        if item.state is not State.TAKING:
            return item
        theirs = await self._other.get(item.plan.path)
        return await self._carry(item, carried_policy(theirs, self._store.name))

    async def _until_standing_still(self, planned: PlanItem) -> str:
        """Wait until the other hub's Works are suspended; return why they are not."""
        for cluster in planned.clusters:

            async def suspended(cluster: str = cluster) -> bool | None:
                work = await self._other.find(work_path(planned.kind, planned.path, cluster))
                return True if work is None or suspends_dispatching(work) else None

            if not await self._waiting.until_seen(suspended):
                return (
                    f"the other hub does not suspend its Work for {cluster}; do its programs run?"
                )
        return ""

    # -- back -------------------------------------------------------------------------------------

    async def give_back(self) -> Counter[State]:
        """Hand back all that was taken; CannotMigrate names what cannot be, after all else was."""
        record = await self._begin()
        await self._tell(Phase.UNDOING)
        places = [(c, i) for c, i in self._places() if c.items[i].state is not State.UNDONE]
        places.reverse()
        policies = [(c, i) for c, i in places if is_policy(c.items[i].plan)]
        overrides = [(c, i) for c, i in places if c.items[i].plan.rank == OVERRIDE_RANK]
        others = [each for each in places if each not in policies and each not in overrides]
        for batch in batches(others, self._options.at_once):
            await self._do(batch, self._give_back_one, record.items)
        # Only when no template of ours is left: until then members might be written to by two.
        await self._stop_at_kept(others)
        for batch in batches([*policies, *overrides], self._options.at_once):
            await self._do(batch, self._give_back_policy, record.items)
        await self._tell(Phase.UNDONE)
        return count_states(self._chunks)

    async def _give_back_one(self, item: Item) -> Item:
        planned, name = item.plan, self._store.name
        if item.state not in (State.TAKING, State.TAKEN) or not planned.clusters:
            return item.now(State.UNDONE, item.reason)
        try:
            template = await self._hub.find(planned.path)
        except NotServed:
            template = None
        if template is not None and is_of(template, name):
            if why := await why_kept(self._hub, planned.path, template, planned.clusters):
                return item.now(item.state, why)
            with suppress(NotFound):
                options = DeleteOptions(uid_of(template), propagation=Propagation.BACKGROUND)
                await self._hub.delete(planned.path, options)
        for cluster in planned.clusters:
            if not await self._until_let_go(planned, cluster):
                why = f"its Work for {cluster} was not withdrawn in time; does the cluster answer?"
                return item.now(item.state, why)
            await self._stamp_as_theirs(planned, cluster)
        return item.now(State.UNDONE)

    async def _until_let_go(self, planned: PlanItem, cluster: str) -> bool:
        async def let_go() -> bool | None:
            if await self._hub.find(work_path(planned.kind, planned.path, cluster)) is not None:
                return None
            live = await self._members[cluster].find(planned.path)
            is_ours = live is not None and is_managed(live) and is_of(live, self._store.name)
            return None if is_ours else True

        return bool(await self._waiting.until_seen(let_go))

    async def _stamp_as_theirs(self, planned: PlanItem, cluster: str) -> None:
        """Give an object the marks by which the other hub knows it; it is suspended still."""
        work = await self._other.find(work_path(planned.kind, planned.path, cluster))
        if work is None:
            return
        meant = (planned.kind, planned.name)
        found = (m for m in manifests_of(work) if (m.get("kind"), name_of(m)) == meant)
        manifest = next(found, None)
        if manifest is None:
            return
        member = self._members[cluster]
        for _ in range(_ROUNDS):
            live = await member.find(planned.path)
            if live is None:
                return
            with suppress(Conflict):
                await member.update(planned.path, with_stamps_of(live, manifest))
                return
        raise CannotMigrate(f"somebody changes {planned.title} without a pause; undo it again")

    async def _give_back_policy(self, item: Item) -> Item:
        """Take a policy from this hub, and have the other one go on with its own."""
        planned = item.plan
        if item.state not in (State.TAKING, State.TAKEN):
            return item.now(State.UNDONE, item.reason)
        await self._delete_ours(planned.path)
        original = await self._store.original(item)
        if original is not None and is_propagation_policy(original):
            with suppress(NotFound):
                await commit_change(
                    self._other, planned.path, lambda found: resumed_policy(found, original)
                )
        return item.now(State.UNDONE)
