"""A plan for a live cluster: all of it listed page by page, each object judged, none touched."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from clusterspace.apis import kinds, policies
from clusterspace.apis.affinities import traits_of
from clusterspace.apis.clusters import WORKS, id_of
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.migrations import NAME_LABEL
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import ClusterClient, ListOptions, Reader
from clusterspace.errors import (
    CannotMigrate,
    Expired,
    Forbidden,
    InterpretationFailed,
    MethodNotAllowed,
    NotFound,
    NotServed,
    Unauthorized,
)
from clusterspace.fleet.execution.provenance import manifest_for, work_key_of
from clusterspace.fleet.execution.takeover import is_managed, is_ours
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.migration.judgement import Judge, Judgement
from clusterspace.fleet.migration.plan import (
    LeftOut,
    MigrationPlan,
    PlanItem,
    PlannedCluster,
    PlanSpec,
    Verdict,
    assign_policies,
    keep_in_order,
    new_plan,
    objection_to,
    planned_owner,
)
from clusterspace.fleet.migration.selection import (
    DEFINITION,
    NAMESPACE,
    hub_effect,
    needs_of,
    rank_of,
    why_left,
    why_resource_left,
)
from clusterspace.fleet.migration.spool import Spool
from clusterspace.fleet.propagation.bindings import Policy, read_policy
from clusterspace.fleet.propagation.explanation import find_named
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.fleet.propagation.templates import template_resources
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from clusterspace.kube.resources import GroupKind, GroupVersionResource, ResourceInfo
from clusterspace.kube.times import format_time

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
DEFINITIONS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_PAGE: Final = 250
"""Objects in memory at a time; the plan keeps a few lines of each."""

_UNREADABLE: Final = (Forbidden, Unauthorized, MethodNotAllowed, NotFound, NotServed)

_SCALABLE: Final = (kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.REPLICA_SET)

Progress = Callable[[int, str], None]
"""Told how many objects were judged, and of which resource."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is to be planned; nothing said is everything."""

    name: str
    cluster: str
    namespaces: frozenset[str] = frozenset()
    label_selector: str = ""
    kinds: tuple[str, ...] = ()
    at_once: int = 16


async def uid_of_cluster(client: Reader) -> str:
    """Return what tells one cluster from all others: the UID of its namespace kube-system."""
    return uid_of(await client.get(ResourcePath(NAMESPACES, name="kube-system")))


async def require_cluster(hub: Reader, member: Reader, name: str) -> tuple[Object, str]:
    """Return a Cluster and its UID; CannotMigrate when the member's client leads to another one."""
    cluster = await hub.get(manifests.cluster_path(name))
    uid = await uid_of_cluster(member)
    if id_of(cluster) and id_of(cluster) != uid:
        raise CannotMigrate(
            f"the credentials lead to cluster {uid}, and {name} is {id_of(cluster)}: "
            "give the kubeconfig of that cluster"
        )
    return cluster, uid


async def read_overrides(hub: Reader, namespace: str) -> OverridePolicies:
    """Return the override policies of the hub that may concern objects of a namespace."""
    return OverridePolicies(
        cluster_wide=await hub.list_objects(ResourcePath(policies.CLUSTER_OVERRIDE_POLICIES)),
        namespaced=await hub.list_objects(ResourcePath(policies.OVERRIDE_POLICIES, namespace))
        if namespace
        else (),
    )


async def make_judge(
    hub: ClusterClient,
    member: ClusterClient,
    cluster: Object,
    migration: str,
    at_once: int,
    interpreter: Interpreter | None = None,
) -> Judge:
    """Read from the hub what decides how objects are rendered for a cluster."""
    own: dict[str, tuple[Object, ...]] = {}
    for each in await hub.list_objects(ResourcePath(policies.OVERRIDE_POLICIES)):
        own[namespace_of(each)] = (*own.get(namespace_of(each), ()), each)
    rivals: dict[str, tuple[Policy, ...]] = {}
    for resource in (policies.PROPAGATION_POLICIES, policies.CLUSTER_PROPAGATION_POLICIES):
        for each in await hub.list_objects(ResourcePath(resource)):
            if labels_of(each).get(NAME_LABEL) != migration:
                space = namespace_of(each)
                rivals[space] = (*rivals.get(space, ()), read_policy(each))
    return Judge(
        hub=hub,
        member=member,
        migration=migration,
        traits=traits_of(cluster),
        hub_serves=await Discovery(hub.connection).served(),
        hub_namespaces=frozenset(
            name_of(each) for each in await hub.list_objects(ResourcePath(NAMESPACES))
        ),
        cluster_overrides=tuple(
            await hub.list_objects(ResourcePath(policies.CLUSTER_OVERRIDE_POLICIES))
        ),
        overrides=own,
        rivals=rivals,
        at_once=at_once,
        interpreter=interpreter,
    )


async def plan_cluster(
    hub: ClusterClient,
    member: ClusterClient,
    request: PlanRequest,
    now: float,
    progress: Progress = lambda _count, _resource: None,
    interpreter: Interpreter | None = None,
) -> MigrationPlan:
    """Look at a member and say what taking it in would do; nothing is written anywhere."""
    cluster, uid = await require_cluster(hub, member, request.cluster)
    judge = await make_judge(hub, member, cluster, request.name, request.at_once, interpreter)
    for name in sorted(request.namespaces):
        # A list in one that is misspelt is empty, and a plan for nothing looks like a success.
        with suppress(Forbidden):
            if await member.find(ResourcePath(NAMESPACES, name=name)) is None:
                raise CannotMigrate(f"{request.cluster} has no namespace {name}")
    served = await Discovery(member.connection).served()
    left: Counter[tuple[str, str]] = Counter()
    unread: list[LeftOut] = [
        LeftOut(resource=version.api_version, reason="the cluster could not say what it serves")
        for version in served.failed
    ]
    definitions = await _definitions_of(member)
    judge.planned_kinds = frozenset(definitions)
    scaled = await _scaled_by_autoscalers(member, served)
    items, judged = Spool(PlanItem), 0
    for resource in _chosen(served, request):
        title = str(resource.group_resource)
        if why := why_resource_left(resource):
            left[title, why] += 0
            continue
        try:
            async for page in _pages(member, resource, request):
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_plan_one(judge, resource, live, definitions, scaled))
                        for live in page
                        if _is_chosen(live, request) and not _is_left(live, title, left)
                    ]
                for planned in (task.result() for task in tasks):
                    if isinstance(planned, PlanItem):
                        keep_in_order(items, planned)
                    else:
                        left[title, planned] += 1
                judged += len(tasks)
                progress(judged, title)
        except _UNREADABLE as error:
            unread.append(LeftOut(resource=title, reason=error.message))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first is the reason
    spec = PlanSpec(
        hub_uid=await uid_of_cluster(hub),
        cluster=PlannedCluster(name=request.cluster, uid=uid),
        made_at=format_time(now),
        left=tuple(
            LeftOut(resource=resource, reason=why, count=count)
            for (resource, why), count in sorted(left.items())
        ),
        unread=tuple(unread),
    )
    return new_plan(request.name, spec, assign_policies(items.ordered(), request.name))


async def _plan_one(
    judge: Judge,
    resource: ResourceInfo,
    live: Object,
    definitions: Mapping[GroupKind, str],
    scaled: frozenset[tuple[str, str, str]] | None,
) -> PlanItem | str:
    """Return the entry of an object, or why it has none."""
    if is_managed(live):
        namespace, work = work_key_of(live)
        kept = bool(work) and await judge.hub.find(ResourcePath(WORKS, namespace, work))
        manifest = manifest_for(kept or None, live)
        if manifest is not None and is_ours(manifest, live):
            return "this hub keeps it already"
    path = resource_path_of(resource.group_version_resource, live)
    kind = kind_of(live)
    # Whose replicas nobody could tell are the member's: an autoscaler may be there, unseen.
    is_seen = scaled is not None
    retains = (path.namespace, kind.kind, path.name) in scaled if is_seen else kind in _SCALABLE
    judged = await judge.judge(path, live, retains_replicas=retains)
    try:
        needed = await judge.dependencies(judged.live)
    except InterpretationFailed as error:
        # What it needs would be left behind when it is spread or moved.
        needed, judged = (), Judgement(Verdict.REFUSED, judged.live, str(error))
    item = PlanItem(
        api_version=str(live["apiVersion"]),
        kind=str(live["kind"]),
        resource=path.resource.resource,
        namespace=path.namespace,
        name=path.name,
        uid=uid_of(judged.live),
        resource_version=resource_version_of(judged.live),
        verdict=judged.verdict,
        reason=judged.reason,
        changes=judged.changes,
        owner=planned_owner(judged.live),
        hub_effect=hub_effect(kind),
        needs=needs_of(judged.live, definitions, needed),
        rank=rank_of(kind),
        retains_replicas=retains,
        take=False,
    )
    why = objection_to(item)
    return msgspec.structs.replace(item, take=not why, reason=item.reason or why)


def _chosen(served: ServedResources, request: PlanRequest) -> Iterable[ResourceInfo]:
    """Return the resources to list: those asked for, and what objects of them stand on."""
    everything = template_resources(served)
    if not request.kinds:
        return everything
    try:
        named = {find_named(served, word).group_resource for word in request.kinds}
    except NotServed as error:
        raise CannotMigrate(
            f"--kinds: {error.message}".replace("the hub", request.cluster)
        ) from error
    named.add(NAMESPACES.group_resource)
    return [each for each in everything if each.group_resource in named]


def _is_chosen(live: Object, request: PlanRequest) -> bool:
    if not request.namespaces:
        return True
    is_namespace = kind_of(live) == NAMESPACE
    return (name_of(live) if is_namespace else namespace_of(live)) in request.namespaces


def _is_left(live: Object, resource: str, left: Counter[tuple[str, str]]) -> bool:
    """Whether an object is left out; then it is counted by its reason."""
    why = why_left(live)
    if why:
        left[resource, why] += 1
    return bool(why)


async def _pages(
    member: ClusterClient, resource: ResourceInfo, request: PlanRequest
) -> AsyncGenerator[list[Object]]:
    """Yield the objects of a resource, a page at a time."""
    # Namespaces are chosen by their names alone: without one, nothing of it can be taken.
    is_namespaces = resource.group_resource == NAMESPACES.group_resource
    selector = "" if is_namespaces else request.label_selector
    options = ListOptions(label_selector=selector, limit=_PAGE)
    place = resource.group_version_resource
    namespaces = sorted(request.namespaces) if resource.namespaced else []
    for namespace in namespaces or [""]:
        path = ResourcePath(place, namespace)
        seen: set[str] = set()
        try:
            async for page in member.pages(path, options):
                found = [each.decode() for each in page.items]
                seen |= {uid_of(each) for each in found}
                yield found
        except Expired:
            # The member forgot the moment of the first page while we judged: what is missing is
            # listed anew, and what was judged already is not judged again.
            whole = await member.list_objects(path, options)
            yield [each for each in whole if uid_of(each) not in seen]


async def _definitions_of(member: Reader) -> dict[GroupKind, str]:
    """Return the names of a member's definitions by the kinds they define."""
    try:
        listed = await member.list_objects(ResourcePath(DEFINITIONS))
    except _UNREADABLE:
        return {}
    return {
        GroupKind(str(find_at(each, "spec", "group")), str(find_at(each, "spec", "names", "kind"))):
        name_of(each)
        for each in listed
        if not why_left(each) and kind_of(each) == DEFINITION
    }  # fmt: skip


async def _scaled_by_autoscalers(
    member: Reader, served: ServedResources
) -> frozenset[tuple[str, str, str]] | None:
    """Return namespace, kind and name of what autoscalers of the member scale; None if unseen."""
    found = (each for each in served.resources if each.group_kind == kinds.AUTOSCALER)
    resource = next(found, None)
    if resource is None:
        return frozenset()
    try:
        listed = await member.list_objects(ResourcePath(resource.group_version_resource))
    except _UNREADABLE:
        return None
    targets = [(namespace_of(each), find_at(each, "spec", "scaleTargetRef")) for each in listed]
    return frozenset(
        (space, str(target.get("kind")), str(target.get("name")))
        for space, target in targets
        if target
    )
