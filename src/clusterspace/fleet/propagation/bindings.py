"""The one binding of each template: which policy it follows, whose it is, where it points.

A claim is written on template and binding as labels and annotations. It is sticky: a better policy
that comes later does not take over. It ends when its policy goes or no longer selects the template;
then the marks go, and everything placed stays placed.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from clusterspace.apis import stamps
from clusterspace.apis.bindings import (
    API_VERSION,
    CLUSTER_RESOURCE_BINDING,
    RESOURCE_BINDING,
    TargetCluster,
    clusters_of,
    controller_uid_of,
    name_for,
    reference_to,
    replicas_of,
    requirers_of,
    resource_for,
    template_of,
)
from clusterspace.apis.interpreter.kinds import kind_of
from clusterspace.apis.stamps import fnv1a_32
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.propagation.scheduler.division import allot
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)

WORKS_WRITTEN: Final = "WorksWritten"
"""Condition of a binding: False while a cluster lacks its Work, and absent otherwise."""

_LABELS: Final = frozenset({stamps.POLICY_ID, stamps.CLUSTER_POLICY_ID})
_ANNOTATIONS: Final = frozenset(
    {stamps.POLICY_NAMESPACE, stamps.POLICY_NAME, stamps.CLUSTER_POLICY_NAME}
)
_PURGED_AT_ONCE: Final = frozenset({"Directly", "Immediately"})


@dataclass(frozen=True, slots=True)
class Claim:
    """Which policy is followed; one without a namespace is a ClusterPropagationPolicy."""

    policy_id: str
    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        """The policy's key among policies of both kinds: only namespaced ones have a slash."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def claim_of(kube_object: Object) -> Claim | None:
    """Read the marks of a template or binding; None when they are not all there."""
    labels, annotations = labels_of(kube_object), annotations_of(kube_object)
    policy_id = labels.get(stamps.POLICY_ID)
    namespace = annotations.get(stamps.POLICY_NAMESPACE)
    name = annotations.get(stamps.POLICY_NAME)
    if policy_id and namespace and name:
        return Claim(policy_id, name, namespace)
    policy_id = labels.get(stamps.CLUSTER_POLICY_ID)
    name = annotations.get(stamps.CLUSTER_POLICY_NAME)
    return Claim(policy_id, name) if policy_id and name else None


def with_claim(kube_object: Object, claim: Claim) -> Object:
    """Return a template or binding with the marks of this claim and of no other."""
    if claim.namespace:
        labels = {stamps.POLICY_ID: claim.policy_id}
        annotations = {stamps.POLICY_NAMESPACE: claim.namespace, stamps.POLICY_NAME: claim.name}
    else:
        labels = {stamps.CLUSTER_POLICY_ID: claim.policy_id}
        annotations = {stamps.CLUSTER_POLICY_NAME: claim.name}
    return with_metadata(
        kube_object,
        labels={**_unmarked_labels(kube_object), **labels},
        annotations={**_unmarked_annotations(kube_object), **annotations},
    )


def without_claim(kube_object: Object) -> Object:
    """Return a template or binding without any marks."""
    return with_metadata(
        kube_object,
        labels=_unmarked_labels(kube_object) or None,
        annotations=_unmarked_annotations(kube_object) or None,
    )


def is_marked(kube_object: Object) -> bool:
    """Whether there is any mark, be it half of a claim."""
    labels, annotations = labels_of(kube_object), annotations_of(kube_object)
    return not (_LABELS.isdisjoint(labels) and _ANNOTATIONS.isdisjoint(annotations))


def by_claim(kube_object: Object) -> Iterable[str]:
    """Index objects by the key of the policy they follow."""
    claim = claim_of(kube_object)
    return () if claim is None else (claim.key,)


def permanent_id(random: Random) -> str:
    """Return a new ID, such as policies and bindings keep for life."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def _unmarked_labels(kube_object: Object) -> Mapping[str, str]:
    return {key: value for key, value in labels_of(kube_object).items() if key not in _LABELS}


def _unmarked_annotations(kube_object: Object) -> Mapping[str, str]:
    annotations = annotations_of(kube_object)
    return {key: value for key, value in annotations.items() if key not in _ANNOTATIONS}


def binding_place(template: Object) -> ResourcePath:
    """Return where the binding of a template is."""
    namespace = namespace_of(template)
    return ResourcePath(resource_for(namespace), namespace, name_for(template))


def is_own(binding: Object, template: Object) -> bool:
    """Whether a binding is this template's, and not one of the same name that is gone or going.

    Nor one that somebody wrote for another object under the name this template's has: what a
    binding is about never changes.
    """
    about = template_of(binding)
    group, kind = kind_of(template).group, kind_of(template).kind
    is_about = about.subject == (group, kind, namespace_of(template), name_of(template))
    is_free = controller_uid_of(binding) in ("", uid_of(template))
    return is_free and (is_about or not about.name)


def new_binding(template: Object, binding_id: str) -> Object:
    """Return a binding of a template that follows no policy yet."""
    is_namespaced = bool(namespace_of(template))
    label = stamps.BINDING_ID if is_namespaced else stamps.CLUSTER_BINDING_ID
    place = binding_place(template)
    metadata = {"name": place.name, "namespace": place.namespace, "labels": {label: binding_id}}
    binding = {
        "apiVersion": API_VERSION,
        "kind": RESOURCE_BINDING if is_namespaced else CLUSTER_RESOURCE_BINDING,
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"resource": reference_to(template)},
    }
    return with_owner(binding, template)


def with_owner(binding: Object, template: Object) -> Object:
    """Return the binding, owned by its template and held until its Works are gone."""
    is_namespaced = bool(namespace_of(template))
    finalizer = stamps.BINDING_FINALIZER if is_namespaced else stamps.CLUSTER_BINDING_FINALIZER
    finalizers: list[str] = find_at(binding, "metadata", "finalizers") or []
    owner = {
        "apiVersion": template.get("apiVersion"),
        "kind": template.get("kind"),
        "name": name_of(template),
        "uid": uid_of(template),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return with_metadata(
        binding,
        finalizers=finalizers if finalizer in finalizers else [*finalizers, finalizer],
        ownerReferences=[owner],
    )


def targets_of(binding: Object) -> tuple[TargetCluster, ...]:
    """Return the clusters that are to have the object.

    They are those it was scheduled to, and those where something that needs it was scheduled to.
    The latter say nothing about replicas: theirs are of what needs it.
    """
    scheduled = {each.name: each for each in clusters_of(binding)}
    required = {
        each.name: TargetCluster(each.name)
        for requirer in requirers_of(binding)
        for each in requirer.clusters
    }
    return tuple(
        {**scheduled, **{k: v for k, v in required.items() if k not in scheduled}}.values()
    )


def kept_clusters(binding: Object) -> frozenset[str]:
    """Return the clusters whose Works stay: the targets, and those the object leaves gracefully."""
    tasks: list[Object] = find_at(binding, "spec", "gracefulEvictionTasks") or []
    leaving = (
        str(each.get("fromCluster"))
        for each in tasks
        if each.get("purgeMode") not in _PURGED_AT_ONCE
    )
    return frozenset({*(target.name for target in targets_of(binding)), *leaving})


def find_share(binding: Object, target: TargetCluster) -> int | None:
    """Return how many replicas a cluster is to run; None when the template's count holds there.

    None at all is a share as well: a template that was just scaled up must not run in full
    everywhere until the scheduler has shared it out.
    """
    is_scheduled = any(each.name == target.name for each in clusters_of(binding))
    requirements = find_at(binding, "spec", "replicaRequirements")
    has_replicas = replicas_of(binding) > 0 or requirements is not None
    return target.replicas if is_scheduled and has_replicas else None


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
