"""Find, set and compare status conditions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.kube.objects import Object
from clusterspace.kube.times import format_time

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

_TIMES: Final = ("lastTransitionTime", "lastUpdateTime", "lastProbeTime", "lastHeartbeatTime")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without `lastTransitionTime`, which is added when it is set."""

    type: str
    status: str
    reason: str
    message: str = ""
    observed_generation: int | None = None

    def to_object(self) -> Object:
        """Return the fields of the condition, without its time."""
        body: Object = {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
        }
        if self.observed_generation is not None:
            body["observedGeneration"] = self.observed_generation
        return body


@dataclass(frozen=True, slots=True)
class SetConditions:
    """Conditions after an edit, and whether the edit changed anything."""

    conditions: list[Object]
    is_changed: bool


def find_condition(conditions: Iterable[Any] | None, condition_type: str) -> Object | None:
    """Return the condition of this type, or None."""
    bodies = (cast("Object", each) for each in conditions or () if isinstance(each, dict))
    return next((each for each in bodies if each.get("type") == condition_type), None)


def is_true(conditions: Iterable[Any] | None, condition_type: str) -> bool:
    """Tell whether the condition is there and holds."""
    found = find_condition(conditions, condition_type)
    return found is not None and found.get("status") == TRUE


def set_condition(
    conditions: Sequence[Object] | None, wanted: Condition, now: float
) -> SetConditions:
    """Return the conditions with this one as wanted.

    `lastTransitionTime` moves only when the status does: a new message for the same status
    must not make an old outage look young.
    """
    current = list(conditions or ())
    present = find_condition(current, wanted.type)
    body = wanted.to_object()
    if present is None:
        return SetConditions([*current, {**body, "lastTransitionTime": format_time(now)}], True)
    if all(present.get(key) == value for key, value in body.items()):
        return SetConditions(current, is_changed=False)
    merged = {**present, **body}
    if present.get("status") != wanted.status or not present.get("lastTransitionTime"):
        merged["lastTransitionTime"] = format_time(now)
    return SetConditions([merged if each is present else each for each in current], True)


def remove_condition(conditions: Sequence[Object] | None, condition_type: str) -> SetConditions:
    """Return the conditions without those of this type."""
    current = list(conditions or ())
    kept = [each for each in current if each.get("type") != condition_type]
    return SetConditions(kept, is_changed=len(kept) != len(current))


def are_alike(left: Iterable[Object], right: Iterable[Object]) -> bool:
    """Tell whether two lists say the same, whatever their order and times."""
    return _timeless(left) == _timeless(right)


def _timeless(conditions: Iterable[Object]) -> dict[str, Object]:
    return {
        str(each.get("type")): {key: value for key, value in each.items() if key not in _TIMES}
        for each in conditions
    }
