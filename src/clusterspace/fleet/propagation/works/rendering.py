"""Template, binding and cluster to the Work that cluster is to have.

    template ──replicas of this cluster──> ──overrides──> ──without what is the hub's──> ──stamps──>

It leaves as the object it was: no override changes its kind, name or namespace, or what it grants.
The stamps say on the member whose object this is and where it came from, and which of its labels
and annotations are ours to take away again.
"""

from collections.abc import Mapping
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
from clusterspace.apis.interpreter import revision
from clusterspace.apis.interpreter.pruning import pruned
from clusterspace.apis.policies import OVERWRITE
from clusterspace.apis.works import API_VERSION, KIND
from clusterspace.fleet.propagation.overrides.policies import (
    Overridden,
    OverridePolicies,
    applied_text,
    override,
)
from clusterspace.fleet.propagation.scheduling.affinities import Traits
from clusterspace.fleet.propagation.targets import find_share, is_suspended, share_completions
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
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


def outline_for_binding(
    binding: Object,
    template: Object,
    target: TargetCluster,
    traits: Traits,
    policies: OverridePolicies,
) -> Outline:
    """Return the Work a binding calls for in one cluster; OverrideFailed when it cannot be made."""
    overridden = override(_with_share(template, binding, target), traits, policies)
    return Outline(
        cluster=target.name,
        template=template,
        manifest=overridden.manifest,
        labels=_binding_labels(binding),
        annotations={
            **_binding_annotations(binding),
            stamps.CONFLICT_RESOLUTION: conflict_resolution(binding, template),
        },
        notes={**notes_of(overridden), **_state_note(binding, target)},
        options={
            "preserveResourcesOnDeletion": preserves_resources(binding),
            "suspendDispatching": is_suspended(binding, target.name),
        },
    )


def conflict_resolution(binding: Object, template: Object) -> str:
    """Return what to do when the cluster has such an object of its own: the template's word counts.

    | template \\ policy | unset, Abort | Overwrite |
    | absent, nonsense  | abort        | overwrite |
    | abort             | abort        | abort     |
    | overwrite         | overwrite    | overwrite |
    """
    told = annotations_of(template).get(stamps.CONFLICT_RESOLUTION)
    if told in (_ABORT, _OVERWRITE):
        return told
    return _OVERWRITE if conflict_resolution_of(binding) == OVERWRITE else _ABORT


def notes_of(overridden: Overridden) -> Mapping[str, str]:
    """Return what a Work says of the overrides that were made."""
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


def _with_share(template: Object, binding: Object, target: TargetCluster) -> Object:
    """Return the template with the replicas and completions of one cluster, if it has a share."""
    share = find_share(binding, target)
    if share is None:
        return template
    shared = revision.with_replicas(template, share)
    completions = revision.find_completions(template)
    if completions is None:
        return shared
    owed = share_completions(completions, binding).get(target.name)
    return shared if owed is None else revision.with_completions(shared, owed)


def _stamped(outline: Outline, work_id: str) -> Object:
    manifest = pruned(outline.manifest)
    labels = {
        **labels_of(manifest),
        **outline.labels,
        stamps.MANAGED: "true",
        stamps.WORK_ID: work_id,
    }
    annotations = {
        **annotations_of(manifest),
        **outline.annotations,
        **_origin(outline.template),
        stamps.WORK_NAMESPACE: outline.namespace,
        stamps.WORK_NAME: outline.name,
    }
    lists = {
        stamps.MANAGED_LABELS_LIST: _listed(labels),
        stamps.MANAGED_ANNOTATIONS_LIST: _listed(
            {*annotations, stamps.MANAGED_LABELS_LIST, stamps.MANAGED_ANNOTATIONS_LIST}
        ),
    }
    return with_metadata(manifest, labels=labels, annotations={**annotations, **lists})


def _origin(template: Object) -> Mapping[str, str]:
    """Return which template this is, and in which state; not all kinds count their states."""
    generation = metadata_of(template).get("generation")
    counted = {stamps.TEMPLATE_GENERATION: str(generation)} if generation else {}
    return {stamps.TEMPLATE_UID: uid_of(template), **counted}


def _listed(keys: Mapping[str, str] | set[str]) -> str:
    return ",".join(sorted(keys))


def _binding_labels(binding: Object) -> Mapping[str, str]:
    label = stamps.CLUSTER_BINDING_ID if is_for_cluster_scope(binding) else stamps.BINDING_ID
    parent = {PARENT: parent_of(binding)} if is_placed(binding) else {}
    return {label: labels_of(binding)[label], **parent}


def _binding_annotations(binding: Object) -> Mapping[str, str]:
    told = annotations_of(binding).get(TAKE_OVER)
    take_over = {TAKE_OVER: told} if told else {}
    if is_for_cluster_scope(binding):
        return {stamps.CLUSTER_BINDING_NAME: name_of(binding), **take_over}
    return {
        **take_over,
        stamps.BINDING_NAMESPACE: namespace_of(binding),
        stamps.BINDING_NAME: name_of(binding),
    }


def _state_note(binding: Object, target: TargetCluster) -> Mapping[str, str]:
    """Return which state of its object a placement wants in a cluster."""
    wanted = hashes_of(binding).get(target.name) if is_placed(binding) else None
    return {MANIFEST_HASH: wanted} if wanted else {}
