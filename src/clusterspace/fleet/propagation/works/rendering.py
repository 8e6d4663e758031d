"""Template, binding and cluster to the Work that cluster is to have; and what to write for it.

    template ──replicas of this cluster──> ──overrides──> ──without what is the hub's──> ──stamps──>

It leaves as the object it was: no override changes its kind, name or namespace, or what it grants.
The stamps say on the member whose object this is and where it came from, and which of its labels
and annotations are ours to take away again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from clusterspace.apis import stamps
from clusterspace.apis.bindings import (
    TargetCluster,
    conflict_resolution_of,
    is_for_cluster_scope,
    preserves_resources,
)
from clusterspace.apis.clusters import WORK_FINALIZER, execution_namespace
from clusterspace.apis.fleet_placements import (
    MANIFEST_HASH,
    PARENT,
    TAKE_OVER,
    hashes_of,
    is_placed,
    parent_of,
)
from clusterspace.apis.interpreter.manifests import pruned
from clusterspace.apis.interpreter.replicas import (
    find_completions,
    with_completions,
    with_replicas,
)
from clusterspace.apis.policies import OVERWRITE
from clusterspace.apis.works import API_VERSION, KIND, binding_key_of, cluster_of, manifests_of
from clusterspace.apis.works import preserves_resources as work_preserves_resources
from clusterspace.client.requests import key_of
from clusterspace.fleet.propagation.bindings import find_share, is_suspended, share_completions
from clusterspace.fleet.propagation.overrides import (
    Overridden,
    OverridePolicies,
    applied_text,
    override,
)
from clusterspace.fleet.propagation.scheduler.affinities import Traits
from clusterspace.kube.objects import (
    Object,
    annotations_of,
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

NOTES: Final = (stamps.APPLIED_OVERRIDES, stamps.APPLIED_CLUSTER_OVERRIDES)
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
) -> Outline:
    """Return the Work a binding calls for in one cluster; OverrideFailed when it cannot be made."""
    shared, share = template, find_share(binding, target)
    if share is not None:
        shared = with_replicas(template, share)
        completions = find_completions(template)
        owed = None if completions is None else share_completions(completions, binding)
        if owed is not None and target.name in owed:
            shared = with_completions(shared, owed[target.name])
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
    if take_over := annotations_of(binding).get(TAKE_OVER):
        annotations[TAKE_OVER] = take_over
    notes = dict(notes_of(overridden))
    if is_placed(binding):
        labels[PARENT] = parent_of(binding)
        if state := hashes_of(binding).get(target.name):
            notes[MANIFEST_HASH] = state  # the state of its object a placement wants there
    return Outline(
        cluster=target.name,
        template=template,
        manifest=overridden.manifest,
        labels=labels,
        annotations=annotations,
        notes=notes,
        options={
            "preserveResourcesOnDeletion": preserves_resources(binding),
            "suspendDispatching": is_suspended(binding, target.name),
        },
    )


def conflict_resolution(binding: Object, template: Object) -> str:
    """Return the conflict resolution for a Work: the template's annotation, else the policy's.

    | template \\ policy | unset, Abort | Overwrite |
    | absent, nonsense  | abort        | overwrite |
    | abort             | abort        | abort     |
    | overwrite         | overwrite    | overwrite |
    """
    chosen = annotations_of(template).get(stamps.CONFLICT_RESOLUTION)
    if chosen in (_ABORT, _OVERWRITE):
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
        "apiVersion": API_VERSION,
        "kind": KIND,
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


def plan_farewell(work: Object, *, is_preserved: bool) -> Change:
    """Return the Work as it must be before it is deleted: it says what the cluster keeps.

    Whether members keep their objects may have been decided only just now; a Work that is deleted
    without knowing takes them along.
    """
    if work_preserves_resources(work) == is_preserved:
        return Change(work, work)
    return Change(with_value(work, is_preserved, "spec", "preserveResourcesOnDeletion"), work)
