"""May we touch what is already there? Conflict resolution and ownership, as pure decisions.

    nothing is there                              create it
    it is on its way out                          wait until it is gone
    it bears the stamp of our Work or binding     update it
    it is not ours, and we are told to overwrite  adopt it
    it is not ours, and may be had if it agrees   adopt it if the manifest says the same
    it is a namespace nobody asked us to own      leave it as it is, and use it
    it is not ours                                a conflict: it is not touched, and we say so

The manifest says whether to overwrite: its annotation was made from policy and template before.
"""

from enum import Enum
from typing import Final

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import IF_NO_DIFF, TAKE_OVER
from clusterspace.apis.interpreter.kinds import kind_of
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
)
from clusterspace.kube.resources import GroupKind

OVERWRITE: Final = "overwrite"
MANAGED: Final = "true"

_NAMESPACE: Final = GroupKind("", "Namespace")
_OWNER_LABELS: Final = (stamps.WORK_ID, stamps.BINDING_ID, stamps.CLUSTER_BINDING_ID)
"""Labels whose values no other hub gives out, and which outlive whatever bears them."""


class TakeoverDecision(Enum):
    """The decision about the place of a manifest on the member, empty or taken."""

    CREATE = "create"
    WAIT = "wait"
    UPDATE = "update"
    ADOPT = "adopt"
    ADOPT_IF_SAME = "adopt if it says the same"
    LEAVE = "leave"
    CONFLICT = "conflict"


def decide(manifest: Object, live: Object | None) -> TakeoverDecision:
    """Decide what may be done about a manifest, seeing what is there."""
    # Two Works, or two hubs, may be meant for the same object. Whoever comes first stamps it, and
    # the stamps decide from then on, not the time: the second is told of a conflict at every look,
    # for as long as the first one's stamps are there. With `overwrite` on both sides they take it
    # from each other for ever, which cannot be decided here; the pace of repairs slows them down.
    if live is None:
        return TakeoverDecision.CREATE
    if is_being_deleted(live):
        return TakeoverDecision.WAIT
    if is_ours(manifest, live):
        return TakeoverDecision.UPDATE
    if annotations_of(manifest).get(stamps.CONFLICT_RESOLUTION) == OVERWRITE:
        return TakeoverDecision.ADOPT
    if annotations_of(manifest).get(TAKE_OVER) == IF_NO_DIFF:
        return TakeoverDecision.ADOPT_IF_SAME
    is_asked_for = stamps.CONFLICT_RESOLUTION in annotations_of(manifest)
    if kind_of(manifest) == _NAMESPACE and not is_asked_for:
        # Wanted for what goes into it, and not for its own sake.
        return TakeoverDecision.LEAVE
    return TakeoverDecision.CONFLICT


def is_managed(live: Object) -> bool:
    """Whether an object says that some hub looks after it."""
    return labels_of(live).get(stamps.MANAGED) == MANAGED


def is_ours(manifest: Object, live: Object) -> bool:
    """Whether an object bears our own stamps, and not those of another hub or binding.

    A Work that was made anew for the same binding has another ID, and is still the same order.
    """
    if not is_managed(live):
        return False
    desired, current = labels_of(manifest), labels_of(live)
    return any(desired.get(each) and desired[each] == current.get(each) for each in _OWNER_LABELS)


def owner_text(live: Object) -> str:
    """Return who looks after an object that is not ours, as a sentence says it."""
    if not is_managed(live):
        return "no hub manages it"
    annotations = annotations_of(live)
    work = f"{annotations.get(stamps.WORK_NAMESPACE, '')}/{annotations.get(stamps.WORK_NAME, '')}"
    return f"it is managed by Work {work} of another binding or hub"


def subject_text(manifest: Object) -> str:
    """Return kind and key of a manifest's object, as Karmada's messages name it."""
    key = f"{namespace_of(manifest)}/{name_of(manifest)}"
    return f"resource(kind={manifest.get('kind')}, {key})"
