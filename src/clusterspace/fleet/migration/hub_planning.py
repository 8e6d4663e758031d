"""A plan for another hub: what it places, where that is, and what carrying it over would do.

Every binding of that hub is looked at. Its template becomes an entry, with the clusters it is on;
each of them must be a member of this hub, too, and is asked by a dry run what our Work would make
of its object. Nothing is written anywhere.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from clusterspace.apis import policies
from clusterspace.apis.clusters import CLUSTERS, id_of
from clusterspace.apis.interpreter.templates import dependencies_in
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    requirers_of,
    template_of,
)
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import ClusterClient, Reader
from clusterspace.errors import CannotMigrate
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.fleet.migration.carrying import (
    binding_id_of,
    carried_binding,
    carried_manifest,
    carried_template,
    target_on,
)
from clusterspace.fleet.migration.judgement import Judge, revised_for
from clusterspace.fleet.migration.plan import (
    LeftOut,
    MigrationPlan,
    PlanItem,
    PlannedCluster,
    PlannedOwner,
    PlanSpec,
    Verdict,
    in_order,
    new_plan,
    objection_to,
)
from clusterspace.fleet.migration.planning import (
    NAMESPACES,
    PlanRequest,
    Progress,
    make_judge,
    uid_of_cluster,
)
from clusterspace.fleet.migration.selection import (
    DEFINITION,
    hub_effect,
    needs_of,
    rank_of,
    why_left,
)
from clusterspace.fleet.propagation.bindings import claim_of, targets_of
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.fleet.propagation.works.rendering import is_suspended
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from clusterspace.kube.resources import GroupKind
from clusterspace.kube.times import format_time

KARMADA: Final = "karmada"
NAMESPACE_RANK: Final = 0
OVERRIDE_RANK: Final = 1
POLICY_RANK: Final = 2
TEMPLATE_RANK: Final = 3
"""The first of templates: among them, what others need comes first, as always."""

WORST: Final = (Verdict.REFUSED, Verdict.WOULD_RESTART, Verdict.CHANGES, Verdict.SAME)


@dataclass(frozen=True, slots=True)
class _Theirs:
    """What is read of the other hub once, for all entries."""

    hub: ClusterClient
    serves: ServedResources
    cluster_overrides: tuple[Object, ...]
    overrides: Mapping[str, tuple[Object, ...]]
    missing: Mapping[str, str]
    """Why one of its clusters cannot be used here, by the cluster's name."""


async def plan_hub(
    hub: ClusterClient,
    other: ClusterClient,
    members: Mapping[str, ClusterClient],
    request: PlanRequest,
    now: float,
    progress: Progress = lambda _count, _resource: None,
    interpreter: Interpreter | None = None,
) -> MigrationPlan:
    """Look at another hub and say what carrying over what it places would do."""
    uid, own_uid = await uid_of_cluster(other), await uid_of_cluster(hub)
    if uid == own_uid:
        raise CannotMigrate("--hub-kubeconfig leads to this hub itself: give that of the other one")
    overrides: dict[str, tuple[Object, ...]] = {}
    for each in await other.list_objects(ResourcePath(policies.OVERRIDE_POLICIES)):
        overrides[namespace_of(each)] = (*overrides.get(namespace_of(each), ()), each)
    theirs = _Theirs(
        other,
        await Discovery(other.connection).served(),
        tuple(await other.list_objects(ResourcePath(policies.CLUSTER_OVERRIDE_POLICIES))),
        overrides,
        await _unusable_clusters(hub, other, members),
    )
    judges: dict[str, Judge] = {}
    for name, member in members.items():
        cluster = await hub.get(ResourcePath(CLUSTERS, name=name))
        judges[name] = await make_judge(
            hub, member, cluster, request.name, request.at_once, interpreter
        )
    left: Counter[tuple[str, str]] = Counter()
    items: list[PlanItem] = []
    followed: dict[ResourcePath, None] = {}
    bindings = [
        each
        for resource in (CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS)
        for each in await other.list_objects(ResourcePath(resource))
        if not request.namespaces or namespace_of(each) in request.namespaces
    ]
    definitions = frozenset(defined_kinds(await _templates_of(theirs, bindings)))
    for judge in judges.values():
        judge.planned_kinds = definitions
    for at in range(0, len(bindings), request.at_once):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_plan_template(theirs, judges, each, request.name))
                for each in bindings[at : at + request.at_once]
            ]
        batch = zip(bindings[at : at + request.at_once], tasks, strict=True)
        for binding, planned in ((each, task.result()) for each, task in batch):
            if isinstance(planned, str):
                left[template_of(binding).kind, planned] += 1
                continue
            items.append(planned)
            claim = claim_of(binding)
            if planned.take and claim is not None:
                kind = (
                    policies.PROPAGATION_POLICIES
                    if claim.namespace
                    else policies.CLUSTER_PROPAGATION_POLICIES
                )
                followed[ResourcePath(kind, claim.namespace, claim.name)] = None
        progress(len(items), "bindings")
    places = {each.namespace for each in items if each.take}
    items += await _plan_policies(hub, theirs, followed, places)
    spaces = {each.namespace for each in items if each.take and each.namespace}
    for space in sorted(spaces):
        found = await other.get(ResourcePath(NAMESPACES, name=space))
        if not why_left(found):  # every hub has `default`
            items.append(entry(ResourcePath(NAMESPACES, name=space), found, NAMESPACE_RANK))
    spec = PlanSpec(
        hub_uid=own_uid,
        cluster=PlannedCluster(name=KARMADA, uid=uid),
        source=KARMADA,
        made_at=format_time(now),
        left=tuple(
            LeftOut(resource=resource, reason=why, count=count)
            for (resource, why), count in sorted(left.items())
        ),
    )
    return new_plan(request.name, spec, in_order(items))


async def clusters_in_use(other: Reader) -> list[str]:
    """Return the names of the clusters that a hub has anything on."""
    found: set[str] = set()
    for resource in (CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS):
        for each in await other.list_objects(ResourcePath(resource)):
            found |= {target.name for target in targets_of(each)}
    return sorted(found)


async def _unusable_clusters(
    hub: Reader, other: Reader, members: Mapping[str, ClusterClient]
) -> dict[str, str]:
    """Return why clusters of the other hub cannot be used: not joined here, or another one."""
    ours = {name_of(each): each for each in await hub.list_objects(ResourcePath(CLUSTERS))}
    found: dict[str, str] = {}
    for each in await other.list_objects(ResourcePath(CLUSTERS)):
        name = name_of(each)
        if name not in ours or name not in members:
            found[name] = f"{name} is no member of this hub: `clusterspace join {name}` first"
            continue
        uid = await uid_of_cluster(members[name])
        if id_of(each) and id_of(each) != uid:
            found[name] = f"{name} is cluster {uid} here and {id_of(each)} there: rename one"
    return found


async def _templates_of(theirs: _Theirs, bindings: Iterable[Object]) -> list[Object]:
    """Return the definitions among the templates: objects of their kinds can be taken with them."""
    found: list[Object] = []
    for each in bindings:
        reference = template_of(each)
        if reference.group_version_kind.group_kind == DEFINITION and reference.name:
            path = _path_of(theirs.serves, each)
            template = None if path is None else await theirs.hub.find(path)
            found += [] if template is None else [template]
    return found


def defined_kinds(definitions: Iterable[Object]) -> Iterable[GroupKind]:
    """Yield the kinds that definitions define."""
    for each in definitions:
        kind = str(find_at(each, "spec", "names", "kind"))
        yield GroupKind(str(find_at(each, "spec", "group")), kind)


def _path_of(serves: ServedResources, binding: Object) -> ResourcePath | None:
    reference = template_of(binding)
    resource = serves.find_kind(reference.group_version_kind)
    if resource is None:
        return None
    return ResourcePath(resource.group_version_resource, reference.namespace, reference.name)


async def _plan_template(
    theirs: _Theirs, judges: Mapping[str, Judge], binding: Object, migration: str
) -> PlanItem | str:
    """Return the entry of a binding's template, or why it has none."""
    path = _path_of(theirs.serves, binding)
    template = None if path is None else await theirs.hub.find(path)
    if path is None or template is None or is_being_deleted(template):
        return "its template is gone"
    targets = [each.name for each in targets_of(binding)]
    if not targets:
        return "it is on no cluster"
    if why := why_left(carried_template(template, migration)):
        return why
    verdict, reason, changes = Verdict.SAME, "", ()
    if requirers_of(binding) and claim_of(binding) is None:
        # Whoever has what needs it would bind it anew, under an ID that members do not know.
        reason = "it follows what needs it: give it a policy of its own, and plan again"
        verdict = Verdict.REFUSED
    elif any(is_suspended(binding, name) for name in targets):
        # Somebody has it stand still there. Here it would go on, and nobody asked for that.
        verdict, reason = Verdict.REFUSED, "its policy is suspended there: let it go on first"
    elif not binding_id_of(binding):
        verdict, reason = Verdict.REFUSED, "its binding has no permanent ID"
    for name in targets if not reason else ():
        if why := theirs.missing.get(name, "" if name in judges else f"there is no {name} there"):
            verdict, reason = Verdict.REFUSED, why
            break
        found = await _judge_on(theirs, judges[name], path, template, binding, migration)
        if WORST.index(found[0]) < WORST.index(verdict):
            verdict, changes = found[0], found[2]
            reason = f"on {name}: {found[1]}"
    owner = PlannedOwner(kind="OtherHub", name=name_of(binding), evidence="its binding there")
    item = entry(path, template, TEMPLATE_RANK + rank_of(kind_of(template)), verdict)
    item = msgspec.structs.replace(
        item,
        reason=reason,
        changes=changes,
        owner=owner,
        clusters=tuple(targets),
        hub_effect=hub_effect(kind_of(template)),
        needs=needs_of(template, {}, dependencies_in(template)),
    )
    why = objection_to(item)
    return msgspec.structs.replace(item, take=not why, reason=reason or why)


async def _judge_on(
    theirs: _Theirs,
    judge: Judge,
    path: ResourcePath,
    template: Object,
    binding: Object,
    migration: str,
) -> tuple[Verdict, str, tuple[str, ...]]:
    live = await judge.member.find(path)
    if live is None:
        return Verdict.REFUSED, "it is not there", ()
    binding_id = binding_id_of(binding)
    if not is_managed(live) or binding_id not in labels_of(live).values():
        return Verdict.REFUSED, "the object of this name bears no stamp of its binding", ()
    overrides = OverridePolicies(
        (*judge.cluster_overrides, *theirs.cluster_overrides),
        (
            *judge.overrides.get(path.namespace, ()),
            *theirs.overrides.get(path.namespace, ()),
        ),
    )

    async def render(kept: Object) -> Object:
        ours = carried_binding(binding, kept, migration)
        target = target_on(ours, judge.traits.name)
        revised = await revised_for(judge.interpreter, kept, ours, target)
        return carried_manifest(kept, ours, judge.traits, overrides, revised)

    judged = await judge.judge_carried(path, live, carried_template(template, migration), render)
    return judged.verdict, judged.reason, judged.changes


async def _plan_policies(
    hub: Reader, theirs: _Theirs, followed: Iterable[ResourcePath], places: Collection[str]
) -> list[PlanItem]:
    """Return the entries of the policies that carry the templates, and of override policies.

    `places` are the namespaces that anything is taken from: overrides of others are left.
    """
    items: list[PlanItem] = []
    overrides = [
        each
        for each in (*theirs.cluster_overrides, *sum(theirs.overrides.values(), ()))
        if namespace_of(each) in places or (not namespace_of(each) and places)
    ]
    chosen = [(path, await theirs.hub.find(path), POLICY_RANK) for path in followed]
    for each in overrides:
        kind = (
            policies.OVERRIDE_POLICIES if namespace_of(each) else policies.CLUSTER_OVERRIDE_POLICIES
        )
        chosen.append((resource_path_of(kind, each), each, OVERRIDE_RANK))
    for path, policy, rank in chosen:
        if policy is None:
            continue
        item = entry(path, policy, rank)
        if await hub.find(path) is not None:
            why = "this hub has a policy of this name, which is not touched"
            item = msgspec.structs.replace(item, verdict=Verdict.REFUSED, reason=why, take=False)
        items.append(item)
    return items


def entry(
    path: ResourcePath, theirs: Object, rank: int, verdict: Verdict = Verdict.SAME
) -> PlanItem:
    """Return the entry of an object of the other hub."""
    return PlanItem(
        api_version=str(theirs["apiVersion"]),
        kind=str(theirs["kind"]),
        resource=path.resource.resource,
        namespace=path.namespace,
        name=path.name,
        uid=uid_of(theirs),
        resource_version=resource_version_of(theirs),
        verdict=verdict,
        rank=rank,
        take=verdict is not Verdict.REFUSED,
    )
