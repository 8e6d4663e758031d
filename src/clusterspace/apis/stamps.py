"""What propagation writes on objects so that they find each other: labels, annotations, names.

All of it is Karmada's, letter for letter: its tools look for these words and compute these names.
A few words are ours, for what Karmada does not have.
"""

from typing import Final

from clusterspace.kube.resources import GroupVersionKind

MANAGED: Final = "karmada.io/managed"
MANAGED_LABELS_LIST: Final = "resourcetemplate.karmada.io/managed-labels"
MANAGED_ANNOTATIONS_LIST: Final = "resourcetemplate.karmada.io/managed-annotations"

POLICY_ID: Final = "propagationpolicy.karmada.io/permanent-id"
POLICY_NAMESPACE: Final = "propagationpolicy.karmada.io/namespace"
POLICY_NAME: Final = "propagationpolicy.karmada.io/name"
CLUSTER_POLICY_ID: Final = "clusterpropagationpolicy.karmada.io/permanent-id"
CLUSTER_POLICY_NAME: Final = "clusterpropagationpolicy.karmada.io/name"

BINDING_ID: Final = "resourcebinding.karmada.io/permanent-id"
BINDING_NAMESPACE: Final = "resourcebinding.karmada.io/namespace"
BINDING_NAME: Final = "resourcebinding.karmada.io/name"
BINDING_DEPENDENCIES: Final = "resourcebinding.karmada.io/dependencies"
DEPENDED_BY_PREFIX: Final = "resourcebinding.karmada.io/depended-by-"
CLUSTER_BINDING_ID: Final = "clusterresourcebinding.karmada.io/permanent-id"
CLUSTER_BINDING_NAME: Final = "clusterresourcebinding.karmada.io/name"
BINDING_MANAGED_BY: Final = "binding.karmada.io/managed-by"
APPLIED_PLACEMENT: Final = "policy.karmada.io/applied-placement"
FOUND_NO_NODE: Final = "clusterspace.io/found-no-node"
"""Of a binding: clusters that replicas left for want of a node, and for which template that was."""
APPLIED_OVERRIDES: Final = "policy.karmada.io/applied-overrides"
APPLIED_CLUSTER_OVERRIDES: Final = "policy.karmada.io/applied-cluster-overrides"

WORK_ID: Final = "work.karmada.io/permanent-id"
WORK_NAMESPACE: Final = "work.karmada.io/namespace"
WORK_NAME: Final = "work.karmada.io/name"
CONFLICT_RESOLUTION: Final = "work.karmada.io/conflict-resolution"
OVERWRITE: Final = "overwrite"
"""Its value on what takes over an object that is on a member already."""

MIGRATION: Final = "migration.clusterspace.io/migration"
"""Annotation of a template that a migration made, with its name; on the member, too."""
MOVED_FROM: Final = "migration.clusterspace.io/moved-from"
"""Annotation of a binding: clusters, by commas, that somebody asked its object to leave."""

TEMPLATE_UID: Final = "resourcetemplate.karmada.io/uid"
TEMPLATE_GENERATION: Final = "resourcetemplate.karmada.io/generation"
TEMPLATE_CLAIMED_BY: Final = "resourcetemplate.karmada.io/claimed-by"
DELETION_PROTECTED: Final = "resourcetemplate.karmada.io/deletion-protected"
"""Label: with the value `Always` the hub refuses to delete the object."""

RETAIN_REPLICAS: Final = "resourcetemplate.karmada.io/retain-replicas"
SKIP_AUTO_PROPAGATION: Final = "namespace.karmada.io/skip-auto-propagation"

BINDING_FINALIZER: Final = "karmada.io/binding-controller"
CLUSTER_BINDING_FINALIZER: Final = "karmada.io/cluster-resource-binding-controller"
DEPENDENCIES_FINALIZER: Final = "karmada.io/binding-dependencies-distributor"
POLICY_FINALIZER: Final = "karmada.io/propagation-policy-controller"
CLUSTER_POLICY_FINALIZER: Final = "karmada.io/cluster-propagation-policy-controller"

_FNV_OFFSET: Final = 2166136261
_FNV_PRIME: Final = 16777619
_SAFE_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, and no digits that look like letters: no hash spells a word."""


def binding_name(kind: str, name: str) -> str:
    """Return the name of a template's binding."""
    return f"{name.replace(':', '.')}-{kind}".lower()


def work_name(kind: str, namespace: str, name: str) -> str:
    """Return the name of a template's Works, the same in every cluster's execution namespace."""
    safe_name = name.replace(":", ".").lower()
    seed = "-".join(part for part in (namespace, safe_name, kind) if part).lower()
    return f"{safe_name}-{short_hash(seed)}"


def promoted_policy_name(kind: GroupVersionKind, namespace: str, name: str) -> str:
    """Return the name of the policy that is made for a promoted object, as karmadactl makes it."""
    # Names of roles may have colons, and names of policies may not.
    return f"{name.replace(':', '.')}-{short_hash(f'{namespace}{kind}')}".lower()


def depended_by_label(namespace: str, binding: str) -> str:
    """Return the label that a dependency's binding carries for the binding that needs it."""
    return DEPENDED_BY_PREFIX + short_hash(f"{namespace}/{binding}")


def short_hash(text: str) -> str:
    """Return the FNV-1a hash of a text, in letters that are fit for names."""
    letters = len(_SAFE_LETTERS)
    return "".join(_SAFE_LETTERS[ord(digit) % letters] for digit in str(fnv1a_32(text)))


def fnv1a_32(text: str) -> int:
    """Return the 32-bit FNV-1a hash of a text."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) % 2**32
    return value
