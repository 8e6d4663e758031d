"""Not ready or unreachable to taints; and the taints people set.

A taint keeps new placements away. NoSchedule never removes what is placed, and nothing here ever
sets NoExecute by itself.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.clusters import CORDON_TAINT, NOT_READY_TAINT, UNREACHABLE_TAINT, taints_of
from clusterspace.errors import Malformed
from clusterspace.fleet.membership.status import ready_status
from clusterspace.kube.conditions import TRUE, UNKNOWN
from clusterspace.kube.names import label_value_problems, qualified_name_problems
from clusterspace.kube.objects import Object, with_value, without_value
from clusterspace.kube.times import format_time

NO_SCHEDULE: Final = "NoSchedule"
EFFECTS: Final = (NO_SCHEDULE, "PreferNoSchedule", "NoExecute")
_TAINT = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^:]*))?(?::(?P<effect>[A-Za-z]*))?")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint by its key and effect; a removal without an effect means every effect."""

    key: str
    effect: str
    value: str = ""

    def to_object(self) -> Object:
        """Return the taint as a Cluster holds it."""
        body = {"key": self.key, "value": self.value, "effect": self.effect}
        return {key: text for key, text in body.items() if text}

    def names(self, taint: Object) -> bool:
        """Whether this is the taint's key and effect."""
        return taint.get("key") == self.key and self.effect in ("", taint.get("effect"))


@dataclass(frozen=True, slots=True)
class TaintEdit:
    """Taints to set and taints to take away."""

    added: tuple[Taint, ...] = ()
    removed: tuple[Taint, ...] = ()


CORDON: Final = Taint(CORDON_TAINT, NO_SCHEDULE)
_NOT_READY: Final = Taint(NOT_READY_TAINT, NO_SCHEDULE)
_UNREACHABLE: Final = Taint(UNREACHABLE_TAINT, NO_SCHEDULE)


def with_taints(cluster: Object, taints: Iterable[Object]) -> Object:
    """Return the Cluster with these taints, and no others."""
    desired = list(taints)
    if not desired:
        return without_value(cluster, "spec", "taints")
    return with_value(cluster, desired, "spec", "taints")


def edited_taints(taints: Sequence[Object], edit: TaintEdit) -> list[Object]:
    """Return the taints after an edit; what is there with the same value stays as it is."""
    kept = [taint for taint in taints if not any(each.names(taint) for each in edit.removed)]
    for each in edit.added:
        present = next((taint for taint in kept if each.names(taint)), None)
        if present is None:
            kept = [*kept, each.to_object()]
        elif (present.get("value") or "") != each.value:
            kept = [each.to_object() if taint is present else taint for taint in kept]
    return kept


def health_taints(cluster: Object, now: float) -> list[Object]:
    """Return the taints a Cluster is to have by its Ready condition; others' taints stay."""
    status = ready_status(cluster)
    desired = None if status == TRUE else _UNREACHABLE if status == UNKNOWN else _NOT_READY
    others = tuple(each for each in (_NOT_READY, _UNREACHABLE) if each is not desired)
    kept = edited_taints(taints_of(cluster), TaintEdit(removed=others))
    if desired is None or any(desired.names(taint) for taint in kept):
        return kept
    return [*kept, {**desired.to_object(), "timeAdded": format_time(now)}]


def parse_edit(words: Iterable[str]) -> TaintEdit:
    """Read `key=value:Effect`, `key:Effect`, and with a minus at the end their removals."""
    added: list[Taint] = []
    removed: list[Taint] = []
    for word in words:
        is_removal = word.endswith("-")
        found = _TAINT.fullmatch(word.removesuffix("-"))
        if found is None:
            raise _unreadable(word, "write key=value:Effect, or key:Effect- to remove it")
        taint = Taint(found["key"], found["effect"] or "", found["value"] or "")
        problems = (*qualified_name_problems(taint.key), *label_value_problems(taint.value))
        if problems:
            raise _unreadable(word, problems[0])
        if taint.effect not in EFFECTS and not (is_removal and not taint.effect):
            raise _unreadable(word, f"the effect must be one of {', '.join(EFFECTS)}")
        (removed if is_removal else added).append(taint)
    return TaintEdit(tuple(added), tuple(removed))


def _unreadable(word: str, why: str) -> Malformed:
    return Malformed(f"{word!r} is no taint: {why}", place=word)
