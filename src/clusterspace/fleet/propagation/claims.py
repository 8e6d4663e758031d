"""The marks by which a template and its binding say which policy they follow.

A claim is sticky: a better policy that comes later does not take over. It ends when its policy
goes or no longer means the template; then the marks go, and everything placed stays placed.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from clusterspace.apis import stamps
from clusterspace.kube.objects import Object, annotations_of, labels_of, with_metadata

_LABELS: Final = frozenset({stamps.POLICY_ID, stamps.CLUSTER_POLICY_ID})
_ANNOTATIONS: Final = frozenset(
    {stamps.POLICY_NAMESPACE, stamps.POLICY_NAME, stamps.CLUSTER_POLICY_NAME}
)


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
    held = annotations_of(kube_object)
    return {key: value for key, value in held.items() if key not in _ANNOTATIONS}
