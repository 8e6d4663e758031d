"""What a template needs goes where it goes: its dependencies get bindings of their own.

    parent      propagateDeps, the chosen clusters, and in an annotation what the template needs
    attached    the binding of one of those: `requiredBy` names its parents and their clusters

An attached binding that also follows a policy of its own keeps both. A binding that nobody
requires any more keeps no cluster by it; what its own policy placed stays.
"""

from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.bindings import (
    conflict_resolution_of,
    placement_of,
    preserves_resources,
    reference_to,
    requirers_of,
)
from clusterspace.apis.interpreter.dependencies import Dependency
from clusterspace.apis.policies import ABORT, OVERWRITE
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    with_finalizer,
    with_metadata,
    with_value,
    without_finalizer,
    without_value,
)
from clusterspace.kube.resources import GroupResource

BY_DEPENDENCY: Final = "dependency"
BY_REQUIRER: Final = "requirer"

DEPENDENCY_KINDS: Final = {
    GroupResource("", "configmaps"): "ConfigMap",
    GroupResource("", "persistentvolumeclaims"): "PersistentVolumeClaim",
    GroupResource("", "secrets"): "Secret",
    GroupResource("", "serviceaccounts"): "ServiceAccount",
}
"""What the templates we know can need."""


def parent_with(parent: Object, needed: Iterable[Dependency]) -> Object:
    """Return a parent that says what it needs, held until that is let go of."""
    written = msgspec.json.encode([each.written() for each in needed]).decode()
    noted = {**annotations_of(parent), stamps.BINDING_DEPENDENCIES: written}
    return with_finalizer(with_metadata(parent, annotations=noted), stamps.DEPENDENCIES_FINALIZER)


def parent_without(parent: Object) -> Object:
    """Return a parent that needs nothing, and need not be held."""
    released = without_finalizer(parent, stamps.DEPENDENCIES_FINALIZER)
    annotations = annotations_of(parent)
    if stamps.BINDING_DEPENDENCIES not in annotations:
        return released
    kept = {key: each for key, each in annotations.items() if key != stamps.BINDING_DEPENDENCIES}
    return with_metadata(released, annotations=kept or None)


def attached(binding: Object, dependency: Object, parent: Object) -> Object:
    """Return the binding of a dependency, required by a parent on the parent's clusters."""
    namespace, name = namespace_of(parent), name_of(parent)
    entry = {"namespace": namespace, "name": name, "clusters": find_at(parent, "spec", "clusters")}
    entries = [
        *_entries_but(binding, namespace, name),
        {key: value for key, value in entry.items() if value},
    ]
    entries.sort(key=lambda each: (str(each.get("namespace") or ""), str(each.get("name"))))
    label = stamps.depended_by_label(namespace, name)
    labels = {**labels_of(binding), label: labels_of(parent).get(stamps.BINDING_ID, "")}
    required = with_value(with_metadata(binding, labels=labels), entries, "spec", "requiredBy")
    return with_value(required, reference_to(dependency), "spec", "resource")


def detached(binding: Object, namespace: str, name: str) -> Object:
    """Return the binding of a dependency without a parent that no longer requires it."""
    label = stamps.depended_by_label(namespace, name)
    labels = {key: each for key, each in labels_of(binding).items() if key != label}
    kept = _entries_but(binding, namespace, name)
    unlabelled = with_metadata(binding, labels=labels or None)
    if kept:
        return with_value(unlabelled, kept, "spec", "requiredBy")
    return without_value(unlabelled, "spec", "requiredBy")


def as_required(binding: Object, parents: Iterable[Object]) -> Object:
    """Return the binding of a dependency on the terms of its parents.

    Overwriting wins over aborting, and preserving over deleting.

    One that follows a policy of its own is as that policy says.
    """
    if placement_of(binding) is not None:
        return binding
    known = list(parents)
    if not known:
        plain = with_value(binding, ABORT, "spec", "conflictResolution")
        return without_value(plain, "spec", "preserveResourcesOnDeletion")
    overwrites = any(conflict_resolution_of(each) == OVERWRITE for each in known)
    preserves = any(preserves_resources(each) for each in known)
    resolved = with_value(binding, OVERWRITE if overwrites else ABORT, "spec", "conflictResolution")
    return with_value(resolved, preserves, "spec", "preserveResourcesOnDeletion")


def disagreements(parents: Iterable[Object]) -> tuple[str, ...]:
    """Return the fields on which parents of one dependency do not agree."""
    known = list(parents)
    terms = {
        "conflictResolution": {conflict_resolution_of(each) for each in known},
        "preserveResourcesOnDeletion": {preserves_resources(each) for each in known},
    }
    return tuple(field for field, values in terms.items() if len(values) > 1)


def dependency_word(kind: str, namespace: str, name: str) -> str:
    """Return the word under which parents that need an object are found."""
    return f"{kind} {namespace}/{name}"


def needed_by(parent: Object) -> tuple[Dependency, ...]:
    """Read what a parent says it needs; what cannot be read counts as nothing."""
    text = annotations_of(parent).get(stamps.BINDING_DEPENDENCIES) or "[]"
    try:
        listed = msgspec.json.decode(text.encode(), type=list[dict[str, Any]])
    except msgspec.DecodeError:
        return ()  # our next look at the parent writes it anew
    return tuple(
        Dependency(
            kind=str(each.get("kind")),
            namespace=str(each.get("namespace") or ""),
            name=str(each.get("name")),
            api_version=str(each.get("apiVersion")),
        )
        for each in listed
        if each.get("name")
    )


def by_dependency(parent: Object) -> Iterable[str]:
    """Index parents by what they need."""
    return [dependency_word(each.kind, each.namespace, each.name) for each in needed_by(parent)]


def by_requirer(binding: Object) -> Iterable[str]:
    """Index bindings of dependencies by the parents that require them."""
    return [f"{each.namespace}/{each.name}" for each in requirers_of(binding)]


BINDING_INDEXES: Final = {BY_DEPENDENCY: by_dependency, BY_REQUIRER: by_requirer}


def _entries_but(binding: Object, namespace: str, name: str) -> list[Object]:
    """Return the entries of `requiredBy` for all parents but one."""
    entries = cast("list[Object]", find_at(binding, "spec", "requiredBy") or [])
    return [
        each
        for each in entries
        if (each.get("namespace", ""), each.get("name")) != (namespace, name)
    ]
