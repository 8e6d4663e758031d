"""Which names a CustomResourceDefinition gets, whether it is served, and how it ends."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, cast

from clusterspace.builtins.definitions.reading import (
    ESTABLISHED,
    FINALIZER,
    NAMES_ACCEPTED,
    TERMINATING,
    Names,
)
from clusterspace.kube.conditions import Condition, is_true, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.times import parse_time

_PENDING: Final = Condition(
    TERMINATING,
    "True",
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
DELETING: Final = Condition(
    TERMINATING,
    "True",
    "InstanceDeletionInProgress",
    "CustomResource deletion is in progress",
)
DELETED: Final = Condition(
    TERMINATING, "False", "InstanceDeletionCompleted", "removed all instances"
)
_NO_CONFLICT: Final = Condition(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found")
_SERVED: Final = Condition(
    ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted"
)
_NOT_SERVED: Final = Condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")


def plan_status(crd_object: Object, others: Iterable[Object], now: float) -> Object:
    """Return the status of a definition beside these others; the same one when it is right.

    Names that another definition of the group has are not given away twice. A definition that
    was served once stays served, with the names it had.
    """
    status = cast("Object", crd_object.get("status") or {})
    own, name = Names.read(find_at(crd_object, "spec", "names")), name_of(crd_object)
    group, resources, kinds = find_at(crd_object, "spec", "group"), set[str](), set[str]()
    for other in others:
        if find_at(other, "spec", "group") != group or name_of(other) == name:
            continue
        # Its names alone: every definition is planned beside all others of its group.
        names = Names.read(find_at(other, "status", "acceptedNames"))
        resources |= {names.plural, names.singular, *names.short_names} - {""}
        kinds |= {names.kind, names.list_kind} - {""}
    # Each name is accepted on its own; one that is taken leaves what was accepted before.
    accepted, conflict = Names.read(status.get("acceptedNames")), None
    for field, reason, taken in (
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("short_names", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("list_kind", "ListKindConflict", kinds),
    ):
        wanted: str | tuple[str, ...] = getattr(own, field)
        asked = (wanted,) if isinstance(wanted, str) else wanted
        lost = [f'"{each}" is already in use' for each in asked if each in taken]
        if lost:
            message = lost[0] if len(lost) == 1 else f"[{', '.join(lost)}]"
            conflict = Condition(NAMES_ACCEPTED, "False", reason, message)
        else:
            accepted = replace(accepted, **{field: wanted})
    accepted = replace(accepted, categories=own.categories)
    conditions = status.get("conditions")
    changed = set_condition(conditions, conflict or _NO_CONFLICT, now).conditions
    if conflict is None:
        changed = set_condition(changed, _SERVED, now).conditions
    elif not is_true(conditions, ESTABLISHED):
        changed = set_condition(changed, _NOT_SERVED, now).conditions
    planned = {**status, "conditions": changed, "acceptedNames": accepted.to_object()}
    return status if planned == status else planned


def mark_definition_deleted(marked: Object, old: Object) -> Object:
    """Return how a definition looks that is being deleted: held until its objects are gone.

    Unlike other kinds it keeps its generation and has no grace period.
    """
    metadata = metadata_of(marked)
    if metadata_of(old).get("deletionTimestamp"):
        return with_metadata(marked, deletionGracePeriodSeconds=None)
    finalizers = cast("list[str]", metadata.get("finalizers") or [])
    protected = with_metadata(
        marked,
        deletionGracePeriodSeconds=None,
        generation=metadata_of(old).get("generation"),
        finalizers=finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER],
    )
    return with_condition(protected, _PENDING, parse_time(metadata["deletionTimestamp"]))


def with_condition(crd_object: Object, condition: Condition, now: float) -> Object:
    """Return the definition with the condition as wanted."""
    conditions = find_at(crd_object, "status", "conditions")
    changed = set_condition(conditions, condition, now)
    if not changed.is_changed:
        return crd_object
    return with_value(crd_object, changed.conditions, "status", "conditions")


def released(crd_object: Object) -> Object:
    """Return the definition without our hold on it."""
    finalizers = cast("list[str]", metadata_of(crd_object).get("finalizers") or [])
    kept = [each for each in finalizers if each != FINALIZER]
    return with_metadata(crd_object, finalizers=kept or None)
