"""Template, binding and cluster to the Work that cluster is to have; and what to write for it.

    template ──replicas of this cluster──> ──overrides──> ──without what is the hub's──> ──stamps──>

It leaves as the object it was: no override changes its kind, name or namespace, or what it grants.
The stamps say on the member whose object this is and where it came from, and which of its labels
and annotations are ours to take away again.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from clusterspace.apis import stamps
from clusterspace.apis.affinities import Traits
from clusterspace.apis.clusters import WORK_FINALIZER, WORKS, execution_namespace
from clusterspace.apis.exclusive import EXCLUSIVE, LEASED, exclusiveness_of, failover_of
from clusterspace.apis.fleet_placements import (
    APPLIED_HASH,
    MANIFEST_HASH,
    STEERING,
    WHEN_TO_APPLY,
    hashes_of,
    is_placed,
    manifest_hash,
    parent_labels,
    parent_of,
)
from clusterspace.apis.interpreter.templates import (
    find_completions,
    pruned,
    with_completions,
    with_replicas,
)
from clusterspace.apis.policies import OVERWRITE
from clusterspace.apis.stamps import fnv1a_32
from clusterspace.apis.works import (
    DELETION_ASKED,
    WORK,
    WORK_API_VERSION,
    TargetCluster,
    binding_key_of,
    cluster_of,
    clusters_of,
    conflict_resolution_of,
    is_for_cluster_scope,
    manifests_of,
    preserves_resources,
    replicas_of,
    template_of,
)
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.informers import HubCaches, IndexKeys, OwnWrites
from clusterspace.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RequestEntityTooLarge,
)
from clusterspace.fleet.propagation.bindings import PURGED_AT_ONCE, targets_of
from clusterspace.fleet.propagation.overrides import (
    Overridden,
    OverridePolicies,
    applied_text,
    override,
)
from clusterspace.fleet.propagation.scheduler.decisions import allot
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_finalizer,
    with_metadata,
    with_value,
)

_ABORT: Final = "abort"
_OVERWRITE: Final = "overwrite"

NOTES: Final = (
    stamps.APPLIED_OVERRIDES,
    stamps.APPLIED_CLUSTER_OVERRIDES,
    EXCLUSIVE,
    *STEERING,
    APPLIED_HASH,
    MANIFEST_HASH,
)
"""Annotations of a Work that go when what they tell of is gone."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A Work but for its ID, which the one that is there may have already."""

    cluster: str
    template: Object
    manifest: Object
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """On the Work and on its manifest."""
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    """On the Work and on its manifest."""
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    """On the Work alone."""
    options: Mapping[str, bool] = field(default_factory=dict[str, bool])
    overridden: Overridden | None = None
    """By which policies the manifest differs from the template."""
    owners: tuple[Object, ...] = ()

    @property
    def name(self) -> str:
        """What the Work is called; the same in every cluster's execution space."""
        template = self.template
        return stamps.work_name(str(template["kind"]), namespace_of(template), name_of(template))

    @property
    def namespace(self) -> str:
        """The cluster's execution space."""
        return execution_namespace(self.cluster)

    @property
    def key(self) -> str:
        """The key of the Work in a cache."""
        return key_of(self.namespace, self.name)


def outline_for_binding(
    binding: Object,
    template: Object,
    target: TargetCluster,
    traits: Traits,
    policies: OverridePolicies,
    revised: Object | None = None,
    revision: str = "",
) -> Outline:
    """Return the Work a binding calls for in one cluster; OverrideFailed when it cannot be made.

    `revised` is the template with the cluster's replicas, of a kind whose own interpreter writes
    them. `revision` is which of its states the template is in, where a rollout brings one after
    the other.
    """
    shared, share = template, find_share(binding, target)
    if revised is not None:
        shared = revised
    elif share is not None:
        shared = with_replicas(template, share)
        completions = find_completions(template)
        owed = None if completions is None else share_completions(completions, binding)
        if owed is not None and target.name in owed:
            shared = with_completions(shared, owed[target.name])
    if state := state_to_take_along(binding, target.name):
        shared = with_metadata(shared, labels={**labels_of(shared), **state})
    overridden = override(shared, traits, policies)

    is_cluster_wide = is_for_cluster_scope(binding)
    label = stamps.CLUSTER_BINDING_ID if is_cluster_wide else stamps.BINDING_ID
    labels = {label: labels_of(binding)[label]}
    annotations = {stamps.CONFLICT_RESOLUTION: conflict_resolution(binding, template)}
    if is_cluster_wide:
        annotations[stamps.CLUSTER_BINDING_NAME] = name_of(binding)
    else:
        annotations[stamps.BINDING_NAMESPACE] = namespace_of(binding)
        annotations[stamps.BINDING_NAME] = name_of(binding)
    exclusiveness = exclusiveness_of(template, failover_of(binding))
    if exclusiveness == LEASED:
        # By which the agent finds what it has to stop. Not in `labels`, which lead to the binding.
        marked = {**labels_of(overridden.manifest), EXCLUSIVE: LEASED}
        overridden = replace(overridden, manifest=with_metadata(overridden.manifest, labels=marked))
    for steering in STEERING:
        if value := annotations_of(binding).get(steering):
            annotations[steering] = value
    if WHEN_TO_APPLY in annotations:
        # Of what is to be applied, and nothing of how: another strategy is no reason to overwrite.
        annotations[APPLIED_HASH] = manifest_hash(pruned(overridden.manifest))
    notes = dict(notes_of(overridden))
    if exclusiveness:
        notes[EXCLUSIVE] = exclusiveness
    if is_placed(binding):
        labels |= parent_labels(parent_of(binding))
        if state := hashes_of(binding).get(target.name):
            notes[MANIFEST_HASH] = state  # the state of its object a placement wants there
    elif revision:
        notes[MANIFEST_HASH] = revision
    return Outline(
        cluster=target.name,
        template=template,
        manifest=overridden.manifest,
        labels=labels,
        annotations=annotations,
        notes=notes,
        overridden=overridden,
        options={
            "preserveResourcesOnDeletion": preserves_resources(binding),
            "suspendDispatching": is_suspended(binding, target.name),
        },
    )


def find_share(binding: Object, target: TargetCluster) -> int | None:
    """Return how many replicas a cluster is to run; None when the template's count holds there.

    None at all is a share as well: a template that was just scaled up must not run in full
    everywhere until the scheduler has shared it out.
    """
    is_scheduled = any(each.name == target.name for each in clusters_of(binding))
    requirements = find_at(binding, "spec", "replicaRequirements")
    has_replicas = replicas_of(binding) > 0 or requirements is not None
    return target.replicas if is_scheduled and has_replicas else None


def state_to_take_along(binding: Object, cluster: str) -> Mapping[str, str]:
    """Return the labels that tell a copy which replaces another how far that one was.

    Only where there is no doubt: one cluster, and a copy that was told to go at once. A cluster
    that had a copy before it happened goes on by itself.
    """
    tasks: list[Object] = find_at(binding, "spec", "gracefulEvictionTasks") or []
    if len(targets_of(binding)) != 1 or not tasks:
        return {}
    last = tasks[-1]
    is_new = cluster not in (last.get("clustersBeforeFailover") or ())
    if last.get("purgeMode") not in PURGED_AT_ONCE or not is_new:
        return {}
    return last.get("preservedLabelState") or {}


def is_suspended(binding: Object, cluster: str) -> bool:
    """Whether a cluster is not to be changed for now."""
    suspension: Object = find_at(binding, "spec", "suspension") or {}
    named = find_at(suspension, "dispatchingOnClusters", "clusterNames") or ()
    return suspension.get("dispatching") is True or cluster in named


def share_completions(completions: int, binding: Object) -> Mapping[str, int]:
    """Return how many completions of a Job each cluster owes; none when each owes them all."""
    scheduling = find_at(binding, "spec", "placement", "replicaScheduling")
    if find_at(scheduling, "replicaSchedulingType") != "Divided":
        return {}
    weights = {target.name: target.replicas for target in targets_of(binding)}
    is_odd = fnv1a_32(template_of(binding).uid) % 2 == 1
    return allot(completions, weights, last_name_first=is_odd)


def conflict_resolution(binding: Object, template: Object) -> str:
    """Return the conflict resolution for a Work: the template's annotation, else the policy's.

    | template \\ policy | unset, Abort | Overwrite |
    | absent, nonsense  | abort        | overwrite |
    | abort             | abort        | abort     |
    | overwrite         | overwrite    | overwrite |

    A placement that takes nothing over, or only what is the same, is taken at its word: its
    vocabulary knows no annotation by which whoever writes a template has more say than it.
    """
    chosen = annotations_of(template).get(stamps.CONFLICT_RESOLUTION)
    if chosen == _ABORT or (chosen == _OVERWRITE and not is_placed(binding)):
        return chosen
    return _OVERWRITE if conflict_resolution_of(binding) == OVERWRITE else _ABORT


def notes_of(overridden: Overridden) -> Mapping[str, str]:
    """Return the annotations of a Work that list the applied overrides."""
    notes = {
        stamps.APPLIED_OVERRIDES: applied_text(overridden.namespaced),
        stamps.APPLIED_CLUSTER_OVERRIDES: applied_text(overridden.cluster_wide),
    }
    return {key: text for key, text in notes.items() if text}


def new_work(outline: Outline, work_id: str) -> Object:
    """Return the Work an outline stands for, with its ID in all places."""
    metadata: dict[str, Any] = {
        "name": outline.name,
        "namespace": outline.namespace,
        "labels": {**outline.labels, stamps.WORK_ID: work_id},
        "finalizers": [WORK_FINALIZER],
    }
    annotations = {**outline.annotations, **outline.notes}
    if annotations:
        metadata["annotations"] = annotations
    if outline.owners:
        metadata["ownerReferences"] = list(outline.owners)
    return {
        "apiVersion": WORK_API_VERSION,
        "kind": WORK,
        "metadata": metadata,
        "spec": {
            **outline.options,
            "workload": {"manifests": [_stamped(outline, work_id)]},
        },
    }


def _stamped(outline: Outline, work_id: str) -> Object:
    """Return the manifest with what says on the member whose it is and where it came from."""
    manifest, template = pruned(outline.manifest), outline.template
    labels = {
        **labels_of(manifest),
        **outline.labels,
        stamps.MANAGED: "true",
        stamps.WORK_ID: work_id,
    }
    annotations = {
        **annotations_of(manifest),
        **outline.annotations,
        stamps.TEMPLATE_UID: uid_of(template),
        stamps.WORK_NAMESPACE: outline.namespace,
        stamps.WORK_NAME: outline.name,
    }
    # Not all kinds count their states.
    if generation := metadata_of(template).get("generation"):
        annotations[stamps.TEMPLATE_GENERATION] = str(generation)
    listed = {*annotations, stamps.MANAGED_LABELS_LIST, stamps.MANAGED_ANNOTATIONS_LIST}
    annotations[stamps.MANAGED_LABELS_LIST] = ",".join(sorted(labels))
    annotations[stamps.MANAGED_ANNOTATIONS_LIST] = ",".join(sorted(listed))
    return with_metadata(manifest, labels=labels, annotations=annotations)


@dataclass(frozen=True, slots=True)
class Change:
    """A Work as it should be, and as it is; `before` is None for one that is not there."""

    after: Object
    before: Object | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to write."""
        return self.after != self.before


def plan_works(
    outlines: Iterable[Outline], existing: Mapping[str, Object], new_id: Callable[[], str]
) -> tuple[Change, ...]:
    """Compare the Works that are called for with those there are; `existing` is by cluster.

    A Work that is on its way out is waited for, and made anew when it is gone.
    """
    changes = (
        plan_change(outline, existing.get(outline.cluster), new_id)
        for outline in outlines
        if not is_being_deleted(existing.get(outline.cluster, {}))
    )
    return tuple(change for change in changes if change.is_needed)


def plan_change(outline: Outline, existing: Object | None, new_id: Callable[[], str]) -> Change:
    """Return the Work as it should be: our fields in it, the marks of others left alone."""
    if existing is None:
        return Change(new_work(outline, new_id()))
    desired = new_work(outline, labels_of(existing)[stamps.WORK_ID])
    kept = {key: each for key, each in annotations_of(existing).items() if key not in NOTES}
    owners = metadata_of(desired).get("ownerReferences")
    changed = with_metadata(
        with_finalizer(existing, WORK_FINALIZER),
        labels={**labels_of(existing), **labels_of(desired)},
        annotations={**kept, **annotations_of(desired)} or None,
        **({"ownerReferences": owners} if owners else {}),
    )
    return Change({**changed, "spec": desired["spec"]}, existing)


def is_free_for(work: Object, template: Object) -> bool:
    """Whether a Work holds just this template, and no binding has it."""
    templates = [annotations_of(each).get(stamps.TEMPLATE_UID) for each in manifests_of(work)]
    return not binding_key_of(work) and templates == [uid_of(template)]


def find_orphans(existing: Iterable[Object], kept: frozenset[str]) -> tuple[Object, ...]:
    """Return the Works in clusters that are not to have the object, and nobody deleted yet."""
    return tuple(
        work for work in existing if cluster_of(work) not in kept and not is_being_deleted(work)
    )


def plan_farewell(work: Object, *, is_preserved: bool, is_asked: bool = False) -> Change:
    """Return the Work as it must be before it is deleted: it says what the cluster keeps.

    And whether somebody asked for this, by deleting the template or draining the cluster: others
    are counted.

    Whether members keep their objects may have been decided only just now; a Work that is deleted
    without knowing takes them along.
    """
    after = work
    if preserves_resources(work) != is_preserved:
        after = with_value(work, is_preserved, "spec", "preserveResourcesOnDeletion")
    if is_asked and not is_preserved and annotations_of(work).get(DELETION_ASKED) != "true":
        asked = {**annotations_of(after), DELETION_ASKED: "true"}
        after = with_metadata(after, annotations=asked)
    return Change(after, work)


# -- the Works there are, our own writes included; and how they are written and removed --------

# What the hub refuses is returned as a Failure, one cluster at a time, and not raised.


ALTERED: Final = "SnapshotAltered"
STAYS_HOME: Final = "PropagationForbidden"
SYNC_FAILED: Final = "SyncWorkFailed"
"""Why a cluster lacks its Work, as conditions and events say it."""

_REFUSALS: Final = (BadRequest, Forbidden, Invalid, RequestEntityTooLarge)
"""What trying again will not change before somebody changes something."""


BY_BINDING: Final = "binding"


def by_binding(work: Object) -> Iterable[str]:
    """Index Works by the key of the binding they are from."""
    key = binding_key_of(work)
    return (key,) if key else ()


WORK_INDEXES: Final[dict[str, IndexKeys]] = {BY_BINDING: by_binding}


class KnownWorks(OwnWrites):
    """All Works of the hub, our own latest writes included; made by `caches.shared`."""

    def __init__(self, caches: HubCaches) -> None:
        super().__init__(caches.informer(WORKS, indexes=WORK_INDEXES))

    def of_binding(self, binding_key: str) -> dict[str, Object]:
        """Return the Works of a binding by cluster, in the order of their clusters."""
        works = {cluster_of(work): work for work in self.objects_at(BY_BINDING, binding_key)}
        return dict(sorted(works.items()))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cluster does not have the Work it should have."""

    cluster: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Written:
    """The clusters whose Works were written, and those whose were refused."""

    clusters: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()


class WorkWriter:
    """Writes Works to the hub, and keeps what is known of them up to date."""

    def __init__(self, hub: Client, works: KnownWorks) -> None:
        self._hub = hub
        self._works = works

    async def write(self, changes: Iterable[Change]) -> Written:
        """Write all changes, in order; one that is refused does not hold up the others.

        A cluster that is new has no execution space yet: NotFound, after all others were written.
        """
        clusters: list[str] = []
        failures: list[Failure] = []
        # A cluster gets its namespace from another controller, a moment after it joined. Raised at
        # once it would keep all clusters behind it waiting; swallowed, nobody would try again.
        missing: NotFound | None = None
        for change in changes:
            cluster = cluster_of(change.after)
            try:
                if change.before is None:
                    await self._create(change.after)
                else:
                    await self._update(change, change.before)
            except _REFUSALS as error:
                failures.append(Failure(cluster, SYNC_FAILED, error.message))
            except NotFound as error:
                missing = error
            else:
                clusters.append(cluster)
        if missing is not None:
            raise missing
        return Written(tuple(clusters), tuple(failures))

    async def find(self, cluster: str, name: str) -> Object | None:
        """Return a Work as the hub has it now, or None."""
        return await self._hub.find(ResourcePath(WORKS, execution_namespace(cluster), name))

    async def remove(self, work: Object, *, is_preserved: bool, is_asked: bool = False) -> None:
        """Delete exactly this Work, having it say first whether its cluster keeps the object.

        Two writes, in this order: an executor that sees the Work leaving reads from it whether to
        delete the object. Killed between them, the Work says the right thing and is deleted later.
        """
        with suppress(NotFound):
            farewell = plan_farewell(work, is_preserved=is_preserved, is_asked=is_asked)
            await self._update(farewell, work)
            await self._hub.delete(resource_path_of(WORKS, work), DeleteOptions(uid=uid_of(work)))

    async def mark_asked(self, work: Object) -> None:
        """Have a Work say that somebody asked for its end, which comes by other hands."""
        with suppress(NotFound):
            farewell = plan_farewell(work, is_preserved=preserves_resources(work), is_asked=True)
            await self._update(farewell, work)

    async def _create(self, work: Object) -> None:
        path = resource_path_of(WORKS, work)
        try:
            written = await self._hub.create(path.collection, work)
        except AlreadyExists as error:
            # Names of Works do not tell API groups apart, so two objects may claim the same one.
            existing = await self._hub.find(path)
            if existing is not None and binding_key_of(existing) != binding_key_of(work):
                owner = binding_key_of(existing) or "somebody else"
                raise Forbidden(f"{path} is of {owner}, and one cannot be two") from error
            # It is ours, of before a restart, and the cache has not seen it: plan again with it.
            if existing is not None:
                self._works.note(existing)
            raise Conflict(f"{path} is there already") from error
        self._works.note(written)

    async def _update(self, change: Change, existing: Object) -> None:
        if not change.is_needed:
            return
        path = resource_path_of(WORKS, existing)
        try:
            written = await commit(self._hub, path, existing, change.after)
        except NotFound:
            # Deleted under us. What we noted of it would hide that from the next attempt, which
            # has to create it anew.
            self._works.forget(path.key)
            raise
        self._works.note(written)
