"""`promote` and `resume` put together: clients opened, one look at the clusters, a few writes.

`promote` looks at the member, says what a takeover changes, and writes on the hub. The policy is
written before the template: a template that is there first could be claimed by another policy, and
go where nobody wants it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.affinities import traits_of
from clusterspace.apis.clusters import WORKS, conditions_of
from clusterspace.apis.interpreter.templates import Dependency
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.endpoints import Network
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import (
    Client,
    ClusterClient,
    DeleteOptions,
    Propagation,
    WriteOptions,
)
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit_change
from clusterspace.errors import AlreadyExists, ApiError, CannotPromote, ClusterError, NotFound
from clusterspace.fleet.execution.contents import is_kept, seen_condition
from clusterspace.fleet.execution.promotion import (
    Effect,
    Promotion,
    plan_promotion,
)
from clusterspace.fleet.execution.provenance import work_key_of
from clusterspace.fleet.execution.prune import (
    APPROVED_UNTIL,
    is_paused,
    resumed_condition,
)
from clusterspace.fleet.execution.takeover import is_managed, owner_text
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.migration.judgement import ask_effect, manifest_for
from clusterspace.fleet.migration.planning import read_overrides
from clusterspace.fleet.migration.undo import why_kept, work_path
from clusterspace.fleet.migration.waiting import Waiting
from clusterspace.fleet.propagation.explanation import find_named
from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.roots.clients import open_client
from clusterspace.roots.cluster_migration import open_member
from clusterspace.roots.interpreting import interpreting
from clusterspace.roots.membership import Progress

_FOR_REAL: Final = WriteOptions()
_PATIENCE: Final = 120.0
"""Seconds in which a member must have let go of an object that is given back."""


@dataclass(frozen=True, slots=True)
class PromoteRequest:
    """Which object is to be taken over, from where, and how."""

    kind: str
    name: str
    namespace: str
    cluster: str
    member: ConnectionSettings | None = None
    """The member's administrator; without one the hub looks with its own rights."""
    policy_name: str = ""
    creates_policy: bool = True
    allows_restarts: bool = False
    takes_dependencies: bool = False
    """Whether ConfigMaps, Secrets, accounts and claims that it needs are promoted, too."""
    member_cidrs: tuple[Network, ...] = ()
    """Where the member may be, for when the hub's own way in is used from here."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """An object that can be promoted: where it is, what would be written, what would change."""

    path: ResourcePath
    promotion: Promotion
    effect: Effect
    dependencies: tuple[Dependency, ...] = ()
    """What it needs and only the member has; those asked for are promoted before it."""


@dataclass(frozen=True, slots=True)
class _Written:
    policy: Object
    is_new: bool


async def look(request: PromoteRequest, hub: ConnectionSettings) -> Prospect:
    """Find out what a promotion would do, by a dry run on the member; write nothing."""
    async with open_client(hub) as hub_client:
        served = await Discovery(hub_client.connection).served()
        resource = find_named(served, request.kind)
        namespace = request.namespace if resource.namespaced else ""
        path = ResourcePath(resource.group_version_resource, namespace, request.name)
        async with open_member(
            hub_client, request.cluster, request.member, request.member_cidrs
        ) as member:
            live = await member.get(path)
            if is_managed(live):
                space, work = work_key_of(live)
                is_ours = work and await hub_client.find(ResourcePath(WORKS, space, work))
                owner = f"Work {space}/{work} of this hub keeps it already"
                why = owner if is_ours else owner_text(live)
                raise CannotPromote(f"{path} in {request.cluster} cannot be taken over: {why}")
            promotion = plan_promotion(live, request.cluster, request.policy_name)
            cluster = await hub_client.get(manifests.cluster_path(request.cluster))
            overrides = await read_overrides(hub_client, namespace)
            async with interpreting(hub_client) as interpreter:
                manifest = await manifest_for(
                    promotion.template, traits_of(cluster), overrides, interpreter
                )
                # What the object would be like, as the member itself sees it.
                effect = await ask_effect(member, path, live, manifest, interpreter)
                needed = await interpreter.dependencies(live) if request.takes_dependencies else ()
            beside = tuple(
                [each for each in needed if await _is_legacy(member, hub_client, served, each)]
            )
    return Prospect(path, promotion, effect, beside)


async def _is_legacy(
    member: ClusterClient, hub: ClusterClient, served: ServedResources, needed: Dependency
) -> bool:
    """Whether the member has what a workload needs, and no hub has it."""
    resource = served.find_kind(GroupVersionKind.of(needed.api_version, needed.kind))
    if resource is None or not needed.name:
        return False  # what is selected by labels is nobody's in particular
    namespace = needed.namespace if resource.namespaced else ""
    path = ResourcePath(resource.group_version_resource, namespace, needed.name)
    live = await member.find(path)
    return live is not None and not is_managed(live) and await hub.find(path) is None


async def rehearse(request: PromoteRequest, prospect: Prospect, hub: ConnectionSettings) -> None:
    """Raise what `promote` would; nothing is written, not even for a moment."""
    async with open_client(hub) as hub_client:
        await _refuse_unfit(hub_client, request, prospect)
        dry = WriteOptions(is_dry_run=True)
        await _write_policy(hub_client, request, prospect.promotion, dry)
        await hub_client.create(prospect.path.collection, prospect.promotion.template, dry)


async def _refuse_unfit(
    hub_client: ClusterClient, request: PromoteRequest, prospect: Prospect
) -> None:
    if prospect.effect.on_pods and not request.allows_restarts:
        raise CannotPromote(f"{prospect.effect.on_pods}; --allow-restarts says that this is fine")
    if await hub_client.find(prospect.path) is not None:
        raise CannotPromote(f"{prospect.path} is on the hub already; nothing was changed")


async def promote(
    request: PromoteRequest, prospect: Prospect, hub: ConnectionSettings, progress: Progress
) -> None:
    """Write template and policy; CannotPromote when pods would notice, unless that is allowed."""
    async with open_client(hub) as hub_client:
        await _refuse_unfit(hub_client, request, prospect)
        written = await _write_policy(hub_client, request, prospect.promotion)
        # A crash right here leaves a policy that selects nothing; promoting again finds it.
        try:
            await hub_client.create(prospect.path.collection, prospect.promotion.template)
        except (ApiError, ClusterError):
            if written is not None and written.is_new:
                options = DeleteOptions(uid_of(written.policy))
                await hub_client.delete(prospect.promotion.policy_path, options)
            raise
    template = prospect.promotion.template
    progress(f"ResourceTemplate ({_key(template)}) is created successfully")
    if written is not None:
        progress(f"{written.policy.get('kind')} ({_key(written.policy)}) is created successfully")
    progress(f'Resource "{prospect.path.resource}"({_key(template)}) is promoted successfully')


async def _write_policy(
    hub_client: ClusterClient,
    request: PromoteRequest,
    promotion: Promotion,
    options: WriteOptions = _FOR_REAL,
) -> _Written | None:
    """Write the policy, or find it as an interrupted promotion left it."""
    if not request.creates_policy:
        return None
    path = promotion.policy_path
    try:
        made = await hub_client.create(path.collection, promotion.policy, options)
        return _Written(made, is_new=True)
    except AlreadyExists as error:
        present = await hub_client.get(path)
        spec = promotion.policy["spec"]
        if {key: present["spec"].get(key) for key in spec} == spec:  # beside what was defaulted
            return _Written(present, is_new=False)
        why = f"{path} is there already: --policy-name chooses another name"
        raise CannotPromote(why) from error
    except NotFound as error:
        why = f"namespace {request.namespace} does not exist on the hub: create it there first"
        raise CannotPromote(why) from error


async def give_back(request: PromoteRequest, hub: ConnectionSettings, progress: Progress) -> None:
    """Take a promotion back: the member keeps its object, without our marks.

    The template goes first, by its UID, then the policy that the promotion wrote, if it means
    nothing else. Killed in between, it leaves a policy that selects nothing; whoever gives back
    again finds no template, and deletes that.
    """
    async with open_client(hub) as hub_client:
        served = await Discovery(hub_client.connection).served()
        resource = find_named(served, request.kind)
        namespace = request.namespace if resource.namespaced else ""
        path = ResourcePath(resource.group_version_resource, namespace, request.name)
        kind = resource.kind
        about = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": path.name}}
        if namespace:
            about = with_metadata(about, namespace=namespace)
        promotion = plan_promotion(about, request.cluster, request.policy_name)
        policy = await hub_client.find(promotion.policy_path)
        selectors = find_at(policy or {}, "spec", "resourceSelectors")
        if selectors != promotion.policy["spec"]["resourceSelectors"]:
            policy = None  # not the one that the promotion wrote, or somebody uses it for more
        template = await hub_client.find(path)
        if template is None and policy is None:
            raise CannotPromote(f"{path} is no template of the hub: there is nothing to undo")
        async with open_member(
            hub_client, request.cluster, request.member, request.member_cidrs
        ) as member:
            if template is not None:
                migration = annotations_of(template).get(stamps.MIGRATION)
                if migration:
                    raise CannotPromote(
                        f"migration {migration} took it: `clusterspace migrate undo {migration} "
                        f"{kind}/{path.key}` gives it back"
                    )
                if why := await why_kept(hub_client, path, template, (request.cluster,)):
                    raise CannotPromote(f"{path} stays on the hub: {why}")
                options = DeleteOptions(uid_of(template), propagation=Propagation.BACKGROUND)
                await hub_client.delete(path, options)

            async def let_go() -> bool | None:
                work = await hub_client.find(work_path(kind, path, request.cluster))
                found = None if work is not None else await member.find(path)
                return None if work is not None or (found and is_managed(found)) else True

            if not await Waiting(SystemClock(), _PATIENCE).until_seen(let_go):
                raise CannotPromote(
                    f"{request.cluster} has not let go of {path} in time: is it Ready? Its object "
                    "stays, and undoing again goes on"
                )
        progress(f'Resource "{path.resource}"({path.key}) is given back to {request.cluster}')
        if policy is not None:
            with suppress(NotFound):
                await hub_client.delete(promotion.policy_path, DeleteOptions(uid_of(policy)))
            progress(f"{policy.get('kind')} ({_key(policy)}) is deleted")


def _key(kube_object: Object) -> str:
    return f"{namespace_of(kube_object)}/{name_of(kube_object)}"


# -- resume: a person lets the deletions on a member go on --------------------------------------


@dataclass(frozen=True, slots=True)
class Resumed:
    """Whether there was a pause, and how many Works may be withdrawn now."""

    was_paused: bool
    waiting: int


async def resume_deletions(name: str, hub: ConnectionSettings) -> Resumed:
    """End the pause of a member; what waits to be deleted at this moment is approved."""
    async with open_client(hub) as hub_client:
        return await resume(hub_client, name, SystemClock())


async def resume(hub: Client, name: str, clock: Clock) -> Resumed:
    """End the pause: first what waits is approved, by its time, then the condition says so.

    The time is the hub's own, of the last Work that waits: whoever resumes may have a clock that
    is wrong, and must not approve of deletions that nobody has asked for yet.
    """
    path = manifests.cluster_path(name)
    cluster = await hub.get(path)
    works = await hub.list_objects(manifests.works_path(name))
    moments = [metadata_of(each)["deletionTimestamp"] for each in works if is_being_deleted(each)]
    now = clock.now()

    def stating(condition: Condition) -> Callable[[Object], Object]:
        def stated(cluster: Object) -> Object:
            conditions = set_condition(conditions_of(cluster), condition, now).conditions
            return with_value(cluster, conditions, "status", "conditions")

        return stated

    if is_kept(cluster):
        cluster = await commit_change(hub, path, stating(seen_condition()))
    if not is_paused(cluster):
        return Resumed(was_paused=False, waiting=len(moments))
    if moments:

        def approved(cluster: Object) -> Object:
            noted = {**annotations_of(cluster), APPROVED_UNTIL: max(moments)}
            return with_metadata(cluster, annotations=noted)

        await commit_change(hub, path, approved)
    await commit_change(hub, path, stating(resumed_condition()))
    return Resumed(was_paused=True, waiting=len(moments))
