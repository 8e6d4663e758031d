"""What is carried from one hub to another: templates, bindings and policies, as the next has them.

    theirs                     ours
    policy, suspended there    the same policy with the same permanent ID, not suspended
    template                   the same content, with the name of the migration
    binding                    the same permanent ID, placement, clusters and shares of replicas

The ID is what a member's object is known by: whoever's binding has it may write the object, without
being told to overwrite. And since the clusters come along, our scheduler has nothing to decide.
"""

from typing import Final

from clusterspace.apis import policies, stamps
from clusterspace.apis.affinities import Traits
from clusterspace.apis.interpreter.templates import pruned
from clusterspace.apis.works import TargetCluster, manifests_of, reference_to
from clusterspace.fleet.execution.takeover import OVERWRITE, without_stamps
from clusterspace.fleet.propagation.bindings import new_binding, targets_of
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.fleet.propagation.works.rendering import new_work, outline_for_binding
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    with_metadata,
    with_value,
    without_value,
)

PLACEHOLDER: Final = "00000000-0000-0000-0000-000000000000"
_LEFT_BEHIND: Final = ("resource", "suspension", "gracefulEvictionTasks", "requiredBy")
"""Fields of a binding that are about the hub it comes from, or written anew by ours."""


def carried_template(theirs: Object, migration: str) -> Object:
    """Return the template that is made of another hub's."""
    plain = pruned(without_stamps(theirs))
    # What its users say about conflicts is theirs to say. Else it is ours whatever happens: should
    # the other hub let go of the object in the end, it takes off all marks by which we know it.
    chosen = annotations_of(theirs).get(stamps.CONFLICT_RESOLUTION, OVERWRITE)
    marks = {stamps.CONFLICT_RESOLUTION: chosen, stamps.MIGRATION: migration}
    return with_metadata(plain, annotations={**annotations_of(plain), **marks})


def binding_id_of(binding: Object) -> str:
    """Return the permanent ID of a binding of either kind; empty when it has none."""
    label = stamps.BINDING_ID if namespace_of(binding) else stamps.CLUSTER_BINDING_ID
    return labels_of(binding).get(label, "")


def carried_binding(theirs: Object, template: Object, migration: str) -> Object:
    """Return the binding of a template of ours that goes on where another hub's binding is.

    Its clusters keep their objects whatever becomes of it: that way nothing is lost by a mistake,
    and it can be given back.
    """
    binding = new_binding(template, binding_id_of(theirs))
    placed: Object = theirs.get("spec") or {}
    spec = {key: value for key, value in placed.items() if key not in _LEFT_BEHIND}
    annotations = {stamps.MIGRATION: migration}
    if applied := annotations_of(theirs).get(stamps.APPLIED_PLACEMENT):
        annotations[stamps.APPLIED_PLACEMENT] = applied
    binding["spec"] = {
        **spec,
        "resource": reference_to(template),
        "preserveResourcesOnDeletion": True,
    }
    return with_metadata(binding, annotations=annotations)


def carried_policy(theirs: Object, migration: str) -> Object:
    """Return the policy of either kind, or the override policy, that is made of another hub's."""
    policy: Object = {
        "apiVersion": theirs.get("apiVersion"),
        "kind": theirs.get("kind"),
        "metadata": {
            "name": name_of(theirs),
            **({"namespace": namespace_of(theirs)} if namespace_of(theirs) else {}),
            "labels": dict(labels_of(theirs)),
            "annotations": {**annotations_of(theirs), stamps.MIGRATION: migration},
        },
        "spec": theirs.get("spec") or {},
    }
    if is_propagation_policy(theirs):
        policy = without_value(policy, "spec", "suspension")
        policy = with_value(policy, True, "spec", "preserveResourcesOnDeletion")
    return policy


def is_propagation_policy(kube_object: Object) -> bool:
    """Whether an object is a policy that places others, and can be suspended."""
    kinds = (policies.PROPAGATION_POLICY, policies.CLUSTER_PROPAGATION_POLICY)
    return kube_object.get("kind") in kinds


def suspended_policy(theirs: Object) -> Object:
    """Return a policy whose hub writes to no member, and deletes from none, for what it places."""
    # Everywhere, and not on some clusters alone: a policy cannot say both.
    present: Object = find_at(theirs, "spec", "suspension") or {}
    others = {key: value for key, value in present.items() if key != "dispatchingOnClusters"}
    suspended = with_value(theirs, {**others, "dispatching": True}, "spec", "suspension")
    return with_value(suspended, True, "spec", "preserveResourcesOnDeletion")


def resumed_policy(suspended: Object, original: Object) -> Object:
    """Return a policy that was suspended as its users had it; what they changed meanwhile stays."""
    resumed = suspended
    for field in ("suspension", "preserveResourcesOnDeletion"):
        value = find_at(original, "spec", field)
        if value is None:
            resumed = without_value(resumed, "spec", field)
        else:
            resumed = with_value(resumed, value, "spec", field)
    return resumed


def carried_manifest(
    template: Object,
    binding: Object,
    traits: Traits,
    overrides: OverridePolicies,
    revised: Object | None = None,
) -> Object:
    """Return the manifest our Work for one cluster will hold; OverrideFailed when it cannot be."""
    template = with_metadata(template, uid=PLACEHOLDER, generation=1)
    if revised is not None:
        revised = with_metadata(revised, uid=PLACEHOLDER, generation=1)
    outline = outline_for_binding(
        binding, template, target_on(binding, traits.name), traits, overrides, revised
    )
    return manifests_of(new_work(outline, PLACEHOLDER))[0]


def target_on(binding: Object, cluster: str) -> TargetCluster:
    """Return what a binding wants of one of its clusters."""
    return next(each for each in targets_of(binding) if each.name == cluster)
