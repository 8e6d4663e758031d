"""The steps of a write that the server decides itself: create, update, status update."""

from typing import Final

from clusterspace.builtins import normal_form
from clusterspace.builtins.strategies.creation import AT_CREATION, Creation
from clusterspace.builtins.strategies.table import strategy_for
from clusterspace.builtins.strategies.update import AT_UPDATE
from clusterspace.kube.objects import Object, annotations_of, labels_of, metadata_of, with_metadata
from clusterspace.kube.resources import GroupVersionKind


def prepare_for_create(kind: GroupVersionKind, new: Object, creation: Creation) -> Object:
    """Return the object as it is first stored: generation one, an unreported status."""
    counts_generations = bool(strategy_for(kind.group_kind).generation_fields)
    unmarked = _without_deletion(new)
    prepared = _with_generation(unmarked, 1) if counts_generations else unmarked
    status = normal_form.empty_status(kind)
    if status is not None and kind.kind != "Node":  # a node reports itself as it registers
        prepared = {**prepared, "status": status}
    at_creation = AT_CREATION.get((kind.group, kind.kind))
    return at_creation(prepared, creation) if at_creation else prepared


def prepare_for_update(kind: GroupVersionKind, new: Object, old: Object) -> Object:
    """Return the replacement with what only the server or a controller may change put back."""
    born = metadata_of(old).get("creationTimestamp")
    prepared = with_metadata(new, creationTimestamp=born)
    if "status" in old:
        prepared = {**prepared, "status": old["status"]}
    at_update = AT_UPDATE.get((kind.group, kind.kind))
    if at_update:
        prepared = at_update(prepared, old)
    fields = strategy_for(kind.group_kind).generation_fields
    held = metadata_of(old).get("generation")
    if not fields:
        return _with_generation(prepared, held)
    is_changed = any(prepared.get(field) != old.get(field) for field in fields)
    is_changed = is_changed or _metadata_counts(kind, prepared, old)
    return _with_generation(prepared, (held or 0) + 1 if is_changed else held)


def prepare_for_status_update(new: Object, old: Object) -> Object:
    """Return the old object with the new status and metadata, but its own generation."""
    metadata = {**metadata_of(new), "generation": metadata_of(old).get("generation")}
    kept = {key: value for key, value in metadata.items() if value is not None}
    reported = {"status": new["status"]} if "status" in new else {}
    return {**old, "metadata": kept, **reported}


def _without_deletion(new: Object) -> Object:
    """Return the object without marks of a deletion: nothing is born dying."""
    if _DELETION_MARKS.isdisjoint(metadata_of(new)):
        return new
    return with_metadata(new, deletionTimestamp=None, deletionGracePeriodSeconds=None)


_DELETION_MARKS: Final = frozenset({"deletionTimestamp", "deletionGracePeriodSeconds"})


def _with_generation(kube_object: Object, generation: int | None) -> Object:
    if metadata_of(kube_object).get("generation") == generation:
        return kube_object
    return with_metadata(kube_object, generation=generation)


def _metadata_counts(kind: GroupVersionKind, new: Object, old: Object) -> bool:
    """Whether metadata changed that these kinds count as part of what is asked for."""
    if kind.kind == "Deployment":
        return annotations_of(new) != annotations_of(old)
    if kind.kind == "EndpointSlice":
        return labels_of(new) != labels_of(old)
    return False
