"""An object that lives on a member, made a template of the hub: what is written, what changes.

The template is the object as it runs, so that taking it over changes nothing; the policy places it
on the cluster it came from, and leaves it there should the template ever be deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.apis import kinds, policies, stamps
from clusterspace.apis.interpreter.templates import pruned
from clusterspace.apis.kinds import kind_of
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.execution.takeover import OVERWRITE, content_difference, leaf_paths
from clusterspace.kube.managed_fields.field_sets import path_text
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    namespace_of,
    with_metadata,
    without_value,
)
from clusterspace.kube.resources import GroupKind, GroupVersionKind

_POD_TEMPLATES: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    kinds.DEPLOYMENT: ("spec", "template"),
    kinds.STATEFUL_SET: ("spec", "template"),
    kinds.DAEMON_SET: ("spec", "template"),
}
"""Where kinds that replace their pods have what pods are made of."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """The template and the policy that a promotion writes on the hub."""

    template: Object
    policy: Object

    @property
    def policy_path(self) -> ResourcePath:
        """Where the policy is."""
        namespace = namespace_of(self.policy)
        if namespace:
            return ResourcePath(policies.PROPAGATION_POLICIES, namespace, name_of(self.policy))
        return ResourcePath(policies.CLUSTER_PROPAGATION_POLICIES, name=name_of(self.policy))


@dataclass(frozen=True, slots=True)
class Effect:
    """What a takeover changes on the member, stamps aside, and what that does to pods."""

    fields: tuple[str, ...]
    on_pods: str = ""
    """Why pods would restart or go; empty when they would not notice."""


def plan_promotion(live: Object, cluster_name: str, policy_name: str = "") -> Promotion:
    """Return the template and the policy for an object of a member."""
    template = pruned(live)
    if kind_of(live) == kinds.POD:
        # Which node it runs on is the member's business, and the pod stays there. On the hub it
        # would be a pod that only the kubelet of that node can let go.
        template = without_value(template, "spec", "nodeName")
    annotations = {stamps.CONFLICT_RESOLUTION: OVERWRITE, **annotations_of(template)}
    kind_in_full = GroupVersionKind.of(str(live.get("apiVersion")), str(live.get("kind")))
    named = policy_name or stamps.promoted_policy_name(
        kind_in_full, namespace_of(live), name_of(live)
    )
    namespace = namespace_of(live)
    inside = {"namespace": namespace} if namespace else {}
    selector = {
        "apiVersion": live.get("apiVersion"),
        "kind": live.get("kind"),
        "name": name_of(live),
        **inside,
    }
    kind = policies.PROPAGATION_POLICY if namespace else policies.CLUSTER_PROPAGATION_POLICY
    policy = {
        "apiVersion": policies.API_VERSION,
        "kind": kind,
        "metadata": {"name": named, **inside},
        "spec": {
            "conflictResolution": policies.OVERWRITE,
            "placement": {"clusterAffinity": {"clusterNames": [cluster_name]}},
            "preserveResourcesOnDeletion": True,
            "resourceSelectors": [selector],
        },
    }
    return Promotion(with_metadata(template, annotations=annotations), policy)


def effect_of(before: Object, after: Object) -> Effect:
    """Return the fields that differ between two states of an object, and the effect on pods."""
    paths = leaf_paths(content_difference(before, after))
    fields = tuple(path_text(path).removeprefix(".") for path in paths)
    pod_template = ".".join(_POD_TEMPLATES.get(kind_of(before), ()))
    changed = [each for each in fields if pod_template and each.startswith(f"{pod_template}.")]
    if changed:
        return Effect(fields, f"pods would restart, for {', '.join(changed)} would change")
    current, desired = find_at(before, "spec", "replicas"), find_at(after, "spec", "replicas")
    if isinstance(current, int) and isinstance(desired, int) and desired < current:
        return Effect(fields, f"{current - desired} of {current} pods would go")
    return Effect(fields)
