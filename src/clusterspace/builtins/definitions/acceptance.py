"""Which names a CustomResourceDefinition gets, whether it is served, and how it ends."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, cast

from clusterspace.builtins.definitions.reading import (
    ESTABLISHED,
    FINALIZER,
    NAMES_ACCEPTED,
    TERMINATING,
    Names,
    read_definition,
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
from clusterspace.kube.timestamps import parse_time

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


@dataclass(frozen=True, slots=True)
class _Taken:
    """The names that other definitions of the group have."""

    resources: frozenset[str]
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Decision:
    accepted: Names
    conflict: Condition | None = None


def plan_status(crd_object: Object, others: Iterable[Object], now: float) -> Object:
    """Return the status of a definition beside these others; the same one when it is right.

    Names that another definition of the group has are not given away twice. A definition that
    was served once stays served, with the names it had.
    """
    status = cast("Object", crd_object.get("status") or {})
    definition = read_definition(crd_object)
    decision = _decide(definition.names, definition.accepted, _taken(crd_object, others))
    conditions = status.get("conditions")
    named = set_condition(conditions, decision.conflict or _NO_CONFLICT, now).conditions
    if decision.conflict is None:
        named = set_condition(named, _SERVED, now).conditions
    elif not is_true(conditions, ESTABLISHED):
        named = set_condition(named, _NOT_SERVED, now).conditions
    planned = {**status, "conditions": named, "acceptedNames": decision.accepted.to_object()}
    return status if planned == status else planned


def _taken(crd_object: Object, others: Iterable[Object]) -> _Taken:
    group, resources, kinds = find_at(crd_object, "spec", "group"), set[str](), set[str]()
    for other in others:
        if find_at(other, "spec", "group") != group or name_of(other) == name_of(crd_object):
            continue
        names = read_definition(other).accepted
        resources |= {names.plural, names.singular, *names.short_names}
        kinds |= {names.kind, names.list_kind}
    return _Taken(frozenset(resources - {""}), frozenset(kinds - {""}))


def _decide(wanted: Names, held: Names, taken: _Taken) -> _Decision:
    """Accept each name on its own; a name that is taken leaves what was accepted before."""
    accepted, conflict = held, None
    for field, reason, pool in (
        ("plural", "PluralConflict", taken.resources),
        ("singular", "SingularConflict", taken.resources),
        ("short_names", "ShortNamesConflict", taken.resources),
        ("kind", "KindConflict", taken.kinds),
        ("list_kind", "ListKindConflict", taken.kinds),
    ):
        name: str | tuple[str, ...] = getattr(wanted, field)
        names = (name,) if isinstance(name, str) else name
        lost = [each for each in names if each in pool]
        if lost:
            conflict = Condition(NAMES_ACCEPTED, "False", reason, _in_use(lost))
        else:
            accepted = replace(accepted, **{field: name})
    return _Decision(replace(accepted, categories=wanted.categories), conflict)


def _in_use(names: list[str]) -> str:
    texts = [f'"{name}" is already in use' for name in names]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def mark_definition_deleted(marked: Object, old: Object) -> Object:
    """Return how a definition looks that is being deleted: held until its objects are gone.

    Unlike other kinds it keeps its generation and has no grace period.
    """
    metadata = metadata_of(marked)
    if metadata_of(old).get("deletionTimestamp"):
        return with_metadata(marked, deletionGracePeriodSeconds=None)
    finalizers = cast("list[str]", metadata.get("finalizers") or [])
    held = with_metadata(
        marked,
        deletionGracePeriodSeconds=None,
        generation=metadata_of(old).get("generation"),
        finalizers=finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER],
    )
    return with_condition(held, _PENDING, parse_time(metadata["deletionTimestamp"]))


def with_condition(crd_object: Object, condition: Condition, now: float) -> Object:
    """Return the definition with the condition as wanted."""
    held = find_at(crd_object, "status", "conditions")
    changed = set_condition(held, condition, now)
    if not changed.is_changed:
        return crd_object
    return with_value(crd_object, changed.conditions, "status", "conditions")


def released(crd_object: Object) -> Object:
    """Return the definition without our hold on it."""
    held = cast("list[str]", metadata_of(crd_object).get("finalizers") or [])
    kept = [each for each in held if each != FINALIZER]
    return with_metadata(crd_object, finalizers=kept or None)
