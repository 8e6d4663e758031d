"""PropagationPolicy and OverridePolicy, and their cluster-wide twins: which objects they mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from clusterspace.errors import MalformedSelector
from clusterspace.kube.objects import Object, find_at, labels_of, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.selectors import LabelSelector, label_selector_of

GROUP: Final = "policy.karmada.io"
API_VERSION: Final = f"{GROUP}/v1alpha1"

PROPAGATION_POLICY: Final = "PropagationPolicy"
CLUSTER_PROPAGATION_POLICY: Final = "ClusterPropagationPolicy"
OVERRIDE_POLICY: Final = "OverridePolicy"
CLUSTER_OVERRIDE_POLICY: Final = "ClusterOverridePolicy"

PROPAGATION_POLICIES: Final = GroupVersionResource(GROUP, "v1alpha1", "propagationpolicies")
CLUSTER_PROPAGATION_POLICIES: Final = GroupVersionResource(
    GROUP, "v1alpha1", "clusterpropagationpolicies"
)
OVERRIDE_POLICIES: Final = GroupVersionResource(GROUP, "v1alpha1", "overridepolicies")
CLUSTER_OVERRIDE_POLICIES: Final = GroupVersionResource(
    GROUP, "v1alpha1", "clusteroverridepolicies"
)

ABORT: Final = "Abort"
OVERWRITE: Final = "Overwrite"
LAZY: Final = "Lazy"


class Precision(IntEnum):
    """How precisely a selector means an object; of two policies the more precise one wins."""

    NOT_MEANT = 0
    EVERYTHING = 1
    BY_LABELS = 2
    BY_NAME = 3


@dataclass(frozen=True, slots=True)
class ResourceSelector:
    """Objects of one kind: one by its name, some by their labels, or all."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    labels: LabelSelector | None = None
    """Not looked at when there is a name."""

    def precision(self, kube_object: Object) -> Precision:
        """Tell whether an object is meant, and how precisely."""
        if not self._is_of_kind(kube_object):
            return Precision.NOT_MEANT
        if self.namespace and self.namespace != namespace_of(kube_object):
            return Precision.NOT_MEANT
        if self.name:
            is_it = self.name == name_of(kube_object)
            return Precision.BY_NAME if is_it else Precision.NOT_MEANT
        if self.labels is None:
            return Precision.EVERYTHING
        is_meant = self.labels.matches(labels_of(kube_object))
        return Precision.BY_LABELS if is_meant else Precision.NOT_MEANT

    def _is_of_kind(self, kube_object: Object) -> bool:
        # The exact text, as users of Karmada expect: no version stands for another.
        held = kube_object.get("apiVersion"), kube_object.get("kind")
        return held == (self.api_version, self.kind)


def selectors_of(policy: Object) -> tuple[ResourceSelector, ...]:
    """Read the resource selectors of a policy of any kind; MalformedSelector names the place."""
    written: list[Object] = find_at(policy, "spec", "resourceSelectors") or []
    return tuple(
        _read_selector(each, f"spec.resourceSelectors[{index}]")
        for index, each in enumerate(written)
    )


def best_precision(selectors: tuple[ResourceSelector, ...], kube_object: Object) -> Precision:
    """Return how precisely the most precise of the selectors means an object."""
    return max(
        (selector.precision(kube_object) for selector in selectors), default=Precision.NOT_MEANT
    )


def _read_selector(written: Mapping[str, Any], place: str) -> ResourceSelector:
    labels = written.get("labelSelector")
    try:
        read = None if labels is None else label_selector_of(labels)
    except MalformedSelector as error:
        where = f"{place}.labelSelector"
        raise MalformedSelector(f"{where}: {error.message}", place=where) from error
    return ResourceSelector(
        api_version=str(written.get("apiVersion") or ""),
        kind=str(written.get("kind") or ""),
        namespace=str(written.get("namespace") or ""),
        name=str(written.get("name") or ""),
        labels=read,
    )
