"""A plan for a KubeFleet: what its placements have on members, and what carrying it over would do.

    Works ──> objects and where they are ──> template, overrides ──> our Work, dry run ──> verdict

A placement is taken as a whole or not at all: what it selects is found by kinds and labels, so an
object of it that stayed behind would be placed by nobody. Nothing is written anywhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.envelopes import is_envelope, opened
from clusterspace.apis.fleet_overrides import apply_rules, is_for_placement, means, rules_for
from clusterspace.apis.fleet_placements import (
    BOUND,
    GROUP,
    ResourceIdentifier,
    identity_of,
    is_external,
    key_of_placement,
    parent_of,
    placement_text,
    reports_only,
)
from clusterspace.apis.interpreter.templates import dependencies_in
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.apis.works import TargetCluster, manifests_of
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.errors import ApiError, CannotMigrate, NotFound, OverrideFailed
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.fleet.migration import kubefleet
from clusterspace.fleet.migration.carrying import PLACEHOLDER
from clusterspace.fleet.migration.hub_planning import (
    NAMESPACE_RANK,
    OVERRIDE_RANK,
    POLICY_RANK,
    TEMPLATE_RANK,
    WORST,
    defined_kinds,
    entry,
)
from clusterspace.fleet.migration.judgement import Judge, template_for
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
    NAMESPACE,
    hub_effect,
    needs_of,
    rank_of,
    why_left,
)
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.fleet.propagation.placements.picking import (
    Fleet,
    PickedCluster,
    member_of,
    pick,
    read_pick_policy,
)
from clusterspace.fleet.propagation.placements.rollout import (
    PlacedObject,
    cluster_of,
    desired_binding,
    state_of,
)
from clusterspace.fleet.propagation.placements.selection import manifest_of
from clusterspace.fleet.propagation.works.rendering import new_work, outline_for_binding
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    with_metadata,
)
from clusterspace.kube.times import format_time

KUBEFLEET: Final = "kubefleet"
_CO_OWNERSHIP: Final = ("spec", "strategy", "applyStrategy", "allowCoOwnership")


@dataclass(frozen=True, slots=True)
class _Theirs:
    """What is read of the other hub once, and of this one, for all placements."""

    hub: ClusterClient
    ours: ClusterClient
    serves: ServedResources
    placed: Mapping[str, kubefleet.Placed]
    bindings: Mapping[str, tuple[Object, ...]]
    """By the key of their placement."""
    overrides: tuple[Object, ...]
    labels: Mapping[str, Mapping[str, str]]
    """Of its MemberClusters."""
    clusters: Mapping[str, Object]
    """Of this hub."""
    judges: Mapping[str, Judge]
    migration: str
    now: float
    owners: dict[ResourceIdentifier, str] = field(default_factory=dict[ResourceIdentifier, str])
    """Which placement an object was planned for, of those looked at already."""

    def overrides_of(self, key: str) -> list[Object]:
        """Return the overrides that are about anything of a placement."""
        objects = self.placed[key].objects()
        return [e for e in self.overrides if any(_overrides(e, key, one) for one in objects)]


async def plan_fleet(
    hub: ClusterClient,
    other: ClusterClient,
    members: Mapping[str, ClusterClient],
    request: PlanRequest,
    now: float,
    progress: Progress = lambda _count, _resource: None,
    interpreter: Interpreter | None = None,
) -> MigrationPlan:
    """Look at a KubeFleet and say what carrying over what it places would do."""
    uid, own_uid = await uid_of_cluster(other), await uid_of_cluster(hub)
    if uid == own_uid:
        raise CannotMigrate("--hub-kubeconfig leads to this hub itself: give that of the other one")
    bindings: dict[str, tuple[Object, ...]] = {}
    for each in await kubefleet.read_bindings(other):
        bindings[parent_of(each)] = (*bindings.get(parent_of(each), ()), each)
    judges: dict[str, Judge] = {}
    for name, member in members.items():
        cluster = await hub.get(ResourcePath(CLUSTERS, name=name))
        judges[name] = await make_judge(
            hub, member, cluster, request.name, request.at_once, interpreter
        )
    theirs = _Theirs(
        hub=other,
        ours=hub,
        serves=await Discovery(other.connection).served(),
        placed=await kubefleet.read_all_placed(other),
        bindings=bindings,
        overrides=tuple(await kubefleet.read_overrides(other)),
        labels={
            name_of(each): labels_of(each)
            for each in await other.list_objects(ResourcePath(MEMBER_CLUSTERS))
        },
        clusters={name_of(each): each for each in await hub.list_objects(ResourcePath(CLUSTERS))},
        judges=judges,
        migration=request.name,
        now=now,
    )
    left: Counter[tuple[str, str]] = Counter()
    items: list[PlanItem] = []
    overridden: dict[ResourcePath, Object] = {}
    for placement in await kubefleet.read_placements(other):
        namespace = namespace_of(placement)
        if request.namespaces and namespace and namespace not in request.namespaces:
            continue
        key = key_of_placement(placement)
        if key not in theirs.placed or is_being_deleted(placement):
            left[str(placement["kind"]), "it has nothing on any cluster"] += 1
            continue
        planned = await _plan_placement(theirs, placement)
        if planned[0].verdict is not Verdict.REFUSED:
            overridden |= {kubefleet.override_path(e): e for e in theirs.overrides_of(key)}
        items += planned
        progress(len(items), "placements")
    items += (entry(path, each, OVERRIDE_RANK) for path, each in overridden.items())
    titles = {each.title for each in items}
    for space in sorted({each.namespace for each in items if each.take and each.namespace}):
        if f"Namespace {space}" not in titles:
            found = await other.get(ResourcePath(NAMESPACES, name=space))
            items.append(entry(ResourcePath(NAMESPACES, name=space), found, NAMESPACE_RANK))
    left += await _left_there(theirs)
    spec = PlanSpec(
        hub_uid=own_uid,
        cluster=PlannedCluster(name=KUBEFLEET, uid=uid),
        source=KUBEFLEET,
        made_at=format_time(now),
        left=tuple(
            LeftOut(resource=resource, reason=why, count=count)
            for (resource, why), count in sorted(left.items())
        ),
    )
    return new_plan(request.name, spec, in_order(items))


async def _left_there(theirs: _Theirs) -> Counter[tuple[str, str]]:
    """Count what users wrote on the other hub and is not carried, by kind and why."""
    left: Counter[tuple[str, str]] = Counter()
    for info in theirs.serves.resources:
        why = kubefleet.NOT_CARRIED.get(info.plural, "")
        if why and info.group_version_resource.group == GROUP:
            found = await theirs.hub.list_objects(ResourcePath(info.group_version_resource))
            left[info.kind, why] = len(found)
    return +left


def _overrides(override: Object, placement: str, identity: ResourceIdentifier) -> bool:
    """Whether an override is about an object of a placement."""
    spec: Object = override.get("spec") or {}
    namespace = namespace_of(override)
    return means(spec, namespace, identity) and is_for_placement(spec, namespace, placement)


async def _plan_placement(theirs: _Theirs, placement: Object) -> list[PlanItem]:
    """Return the entries of a placement and of all it places."""
    key = key_of_placement(placement)
    placed = theirs.placed[key]
    reason = await _why_not_carried(theirs, placement, placed)
    paths = dict(placed.envelopes())
    for identity, clusters in placed.plain().items():
        rival = theirs.owners.setdefault(identity, key)
        if rival != key:
            reason = reason or f"{placement_text(rival)} places {identity}, too: here one can"
        info = theirs.serves.find_kind(identity.group_version_kind)
        if info is None:
            reason = reason or f"that hub serves no {identity.kind} any more"
            continue
        resource = info.group_version_resource
        paths[ResourcePath(resource, identity.namespace, identity.name)] = clusters
    templates: dict[ResourcePath, Object] = {}
    for path in paths:
        found = await theirs.hub.find(path)
        if found is None or is_being_deleted(found):
            reason = reason or f"{path} is gone from that hub: wait until members lose it, too"
            continue
        templates[path] = found
    definitions = [each for each in templates.values() if kind_of(each) == DEFINITION]
    for judge in theirs.judges.values():
        judge.planned_kinds |= frozenset(defined_kinds(definitions))
    items = [
        await _plan_template(theirs, placement, path, template, paths[path], reason)
        for path, template in templates.items()
    ]
    left = next((each for each in items if not each.take), None)
    item = entry(kubefleet.placement_path(placement), placement, POLICY_RANK)
    if reason:
        item = msgspec.structs.replace(item, verdict=Verdict.REFUSED, reason=reason, take=False)
    elif left is not None:
        why = f"it is taken as a whole, and {left.title} is not: {left.reason}"
        item = msgspec.structs.replace(item, reason=why, take=False)
    return [item, *items]


async def _why_not_carried(theirs: _Theirs, placement: Object, placed: kubefleet.Placed) -> str:
    """Return why a placement cannot be carried, whatever it places."""
    if kubefleet.is_at_rest(placement):
        return "it was told to let go: after a handover that was not finished, `migrate undo` does"
    if reports_only(placement):
        return "it only reports differences, and places nothing"
    if is_external(placement):
        return "its strategy is External: create it on this hub, and a run there brings it on"
    key = key_of_placement(placement)
    bindings = theirs.bindings.get(key, ())
    moving = [each for each in bindings if state_of(each) != BOUND or is_being_deleted(each)]
    if moving or {cluster_of(each) for each in bindings} != set(placed.works):
        return "it is being rolled out there: wait until that is done"
    for name in sorted(placed.works):
        if name not in theirs.judges:
            return f"{name} is no member of this hub: `clusterspace join {name}` first"
    specs = [placement.get("spec"), *(each.get("spec") for each in theirs.overrides_of(key))]
    for label in sorted({each for spec in specs for each in kubefleet.labels_gone_by(spec)}):
        for name in sorted(placed.works):
            wanted = theirs.labels.get(name, {}).get(label)
            if wanted is not None and labels_of(theirs.clusters[name]).get(label) != wanted:
                given = f"kubectl label clusters {name} {label}={wanted}"
                return f"{name} lacks a label here that it has there: `{given}` first"
    members = {name: member_of(each) for name, each in theirs.clusters.items()}
    current = [PickedCluster(each, BOUND, is_current=True) for each in sorted(placed.works)]
    policy = read_pick_policy(find_at(placement, "spec", "policy"))
    picking = pick(policy, Fleet(members, theirs.now), current)
    if more := sorted(picking.picked.keys() - placed.works.keys()):
        return f"here it would go to {', '.join(more)}, too: take what its policy goes by from them"
    for each in theirs.overrides_of(key):
        path = kubefleet.override_path(each)
        carried = kubefleet.carried_object(each, theirs.migration)
        if why := await _refusal_of(theirs.ours, path, carried):
            return f"it needs {each['kind']} {path.key}: {why}"
    path = kubefleet.placement_path(placement)
    carried = kubefleet.carried_placement(placement, placement, theirs.migration)
    return await _refusal_of(theirs.ours, path, carried)


async def _refusal_of(hub: ClusterClient, path: ResourcePath, desired: Object) -> str:
    """Return why this hub would not have an object that comes from the other one."""
    if await hub.find(path) is not None:
        return f"this hub has a {desired['kind']} of this name, which is not touched"
    try:
        await hub.create(path.collection, desired, WriteOptions(is_dry_run=True))
    except NotFound:
        return ""  # its namespace comes along
    except ApiError as error:
        # Kinds that it selects may come along with their definitions.
        return "" if "serves no" in error.message else f"the hub refuses it: {error.message}"
    return ""


async def _plan_template(
    theirs: _Theirs,
    placement: Object,
    path: ResourcePath,
    template: Object,
    clusters: tuple[str, ...],
    reason: str,
) -> PlanItem:
    """Return the entry of a template or an envelope; `reason` is why its placement is refused."""
    key = key_of_placement(placement)
    verdict, changes = (Verdict.REFUSED if reason else Verdict.SAME), ()
    rank = TEMPLATE_RANK + rank_of(kind_of(template))
    if kind_of(template) == NAMESPACE:
        rank = NAMESPACE_RANK
        # All of a namespace may be selected: what this hub has in one would go along.
        ours = await theirs.ours.find(path)
        if not reason and ours is not None and stamps.MIGRATION not in annotations_of(ours):
            verdict = Verdict.REFUSED
            reason = "this hub has a namespace of this name, and what is in it might be placed, too"
    if not reason:
        judged = await _judge(theirs, placement, path, template)
        verdict, reason, changes = judged
    owner = PlannedOwner(
        kind="OtherHub", name=placement_text(key), evidence="its placement's Works there"
    )
    item = msgspec.structs.replace(
        entry(path, template, rank, verdict),
        reason=reason,
        changes=changes,
        owner=owner,
        clusters=clusters,
        hub_effect=hub_effect(kind_of(template)),
        needs=needs_of(template, {}, dependencies_in(template)),
    )
    why = objection_to(item)
    return msgspec.structs.replace(item, take=not why, reason=reason or why)


async def _judge(
    theirs: _Theirs, placement: Object, path: ResourcePath, template: Object
) -> tuple[Verdict, str, tuple[str, ...]]:
    """Return the worst of what members say that our Works would make of their objects."""
    key = key_of_placement(placement)
    placed = theirs.placed[key]
    desired = carried_template(template, theirs.migration)
    if why := why_left(desired) if not is_envelope(template) else "":
        return Verdict.REFUSED, why, ()
    worst: tuple[Verdict, str, tuple[str, ...]] = (Verdict.SAME, "", ())
    for inner in opened(template):
        identity = identity_of(inner)
        for cluster in placed.objects().get(identity, ()):
            judge, where = theirs.judges[cluster], path
            if inner is not template:
                info = theirs.serves.find_kind(identity.group_version_kind)
                if info is None:
                    return Verdict.REFUSED, f"that hub does not serve {identity.kind}", ()
                resource = info.group_version_resource
                where = ResourcePath(resource, identity.namespace, identity.name)
            live = await judge.member.find(where)
            owners = placed.owners(cluster, identity)
            if live is None or not kubefleet.is_owned_by(live, owners):
                why = "it is not there" if live is None else "no AppliedWork of its Work owns it"
                return Verdict.REFUSED, f"on {cluster}: {why}", ()
            shares = find_at(placement, *_CO_OWNERSHIP) is True
            if (others := kubefleet.other_owners(live, owners)) and not shares:
                return Verdict.REFUSED, f"on {cluster}: {others[0]} owns it as well", ()

            async def render(kept: Object, judge: Judge = judge) -> Object:
                return rendered(kept, placement, judge, theirs.overrides)

            try:
                if inner is template and kind_of(template) != NAMESPACE:
                    judged = await judge.judge_carried(where, live, desired, render)
                else:
                    # This hub has no object of what is in an envelope, and maybe the namespace.
                    manifest = await render(desired if inner is template else inner)
                    judged = await judge.judge_manifest(where, live, manifest)
            except OverrideFailed as error:
                return Verdict.REFUSED, f"on {cluster}: {error}", ()
            if WORST.index(judged.verdict) < WORST.index(worst[0]):
                worst = judged.verdict, f"on {cluster}: {judged.reason}", judged.changes
    return worst


def carried_template(template: Object, migration: str) -> Object:
    """Return the template that is made of another hub's, or the envelope."""
    if kind_of(template) == NAMESPACE:
        return template_for(template, migration)
    return kubefleet.carried_object(template, migration)


def rendered(
    template: Object, placement: Object, judge: Judge, overrides: Sequence[Object]
) -> Object:
    """Return the manifest our Work for one cluster will hold; OverrideFailed when it cannot be."""
    traits, identity = judge.traits, identity_of(template)
    state = with_metadata(manifest_of(template), uid=PLACEHOLDER)
    for each in overrides:
        if _overrides(each, key_of_placement(placement), identity):
            rules = rules_for(each.get("spec") or {}, traits.labels)
            state = apply_rules(state, rules, traits.name, traits.labels)
    placed = PlacedObject(identity, {traits.name: PLACEHOLDER}, PLACEHOLDER)
    binding = desired_binding(placed, placement, None, PLACEHOLDER)
    policies = OverridePolicies(
        judge.cluster_overrides, judge.overrides.get(identity.namespace, ())
    )
    target = TargetCluster(traits.name, 0)
    outline = outline_for_binding(binding, state, target, traits, policies)
    return manifests_of(new_work(outline, PLACEHOLDER))[0]
