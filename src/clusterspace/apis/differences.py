"""How an object of a member differs from what the hub has: on a Work, for placements.

    DiffReported   of a Work that only compares: whether it could, and what is different
    DiffsFound     of one that would take an object over only if it said the same
    DriftsFound    of one whose object somebody changed since it was applied

These conditions have it as JSON, in their message: a Work has no other room for it, and conditions
pass every version of the API.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupKind
from clusterspace.kube.times import format_time

DIFF_REPORTED: Final = "DiffReported"
DIFFS_FOUND: Final = "DiffsFound"
DRIFTS_FOUND: Final = "DriftsFound"
FOUND_DRIFTS: Final = "FoundDrifts"
"""Reason of objects that are not applied because somebody changed them."""
WHOLE: Final = "/"
"""The path of an object that is not there at all."""

MOST_DIFFERENCES: Final = 100
_LONGEST_VALUE: Final = 256
_LONGEST_TEXT: Final = 30_000
_REDACTED: Final = "(redacted)"
_SECRET: Final = GroupKind("", "Secret")
_SECRET_FIELDS: Final = ("/data", "/stringData")

_encode: Final = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Differences:
    """The fields in which an object differs, as patch details of KubeFleet."""

    details: tuple[Object, ...]
    generation: int | None
    """Of the object on the member; None if there is none."""
    first_observed: str = ""
    observed: str = ""

    def to_drift(self) -> Object:
        """Return it as an entry of `driftedPlacements`, without what identifies the object."""
        return {
            "targetClusterObservedGeneration": self.generation or 0,
            "observationTime": self.observed,
            "firstDriftedObservedTime": self.first_observed,
            "observedDrifts": list(self.details),
        }

    def to_status(self) -> Object:
        """Return it as an entry of `diffedPlacements`, without what identifies the object."""
        seen = (
            {} if self.generation is None else {"targetClusterObservedGeneration": self.generation}
        )
        return {
            **seen,
            "observationTime": self.observed,
            "firstDiffedObservedTime": self.first_observed,
            "observedDiffs": list(self.details),
        }


def differences_between(
    kind: GroupKind, live: Object | None, desired: Object
) -> tuple[Object, ...]:
    """Return how an object would change: path, value on the member, value on the hub."""
    if live is None:
        return ({"path": WHOLE, "valueInHub": "(the whole object)"},)
    found: list[Object] = []
    _compare(live, desired, "", found)
    if kind == _SECRET:
        found = [_redacted(each) for each in found]
    return tuple(found[:MOST_DIFFERENCES])


def _compare(live: Any, desired: Any, path: str, found: list[Object]) -> None:
    if isinstance(live, dict) and isinstance(desired, dict):
        before, after = cast("Object", live), cast("Object", desired)
        for key in sorted({*before, *after}):
            step = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            _compare(before.get(key), after.get(key), step, found)
    elif isinstance(live, list) and isinstance(desired, list):
        mine, theirs = cast("list[Any]", live), cast("list[Any]", desired)
        for index in range(max(len(mine), len(theirs))):
            one = mine[index] if index < len(mine) else None
            other = theirs[index] if index < len(theirs) else None
            _compare(one, other, f"{path}/{index}", found)
    elif live != desired:
        values = {"valueInMember": _text(live), "valueInHub": _text(desired)}
        found.append({"path": path, **{key: each for key, each in values.items() if each}})


def _text(value: Any) -> str:
    if value is None:
        return ""
    return short_value(value if isinstance(value, str) else _encode(value).decode())


def short_value(text: str) -> str:
    """Return a value of a field, or the beginning of a long one."""
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _redacted(detail: Object) -> Object:
    if not str(detail["path"]).startswith(_SECRET_FIELDS):
        return detail
    return {key: value if key == "path" else _REDACTED for key, value in detail.items()}


def differences_text(
    details: Sequence[Object], generation: int | None, before: str, now: float
) -> str:
    """Return the message that tells of differences; `before` is the one it follows.

    As long as they are the same nothing changes, times included: a look is no news.
    """
    earlier = read_differences(before)
    kept = list(details)
    while len(_encode(kept)) > _LONGEST_TEXT:
        kept = kept[: len(kept) // 2]
    if earlier is not None and (earlier.details, earlier.generation) == (tuple(kept), generation):
        return before
    was_different = earlier is not None and earlier.details and earlier.first_observed
    first = earlier.first_observed if earlier and was_different else format_time(now)
    report = {"details": kept, "generation": generation, "first": first, "now": format_time(now)}
    return _encode(report).decode()


def read_differences(text: str) -> Differences | None:
    """Read what `differences_text` wrote; None when it is something else."""
    try:
        report = msgspec.json.decode(text, type=dict[str, Any])
        details = tuple(cast("list[Object]", report["details"]))
        return Differences(details, report["generation"], str(report["first"]), str(report["now"]))
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def differences_found(work: Object, generation: int, kind: str) -> Differences | None:
    """Return the differences that a condition of a Work of this generation tells of, if any."""
    condition = find_condition(find_at(work, "status", "conditions"), kind) or {}
    if condition.get("observedGeneration") != generation:
        return None
    return read_differences(str(condition.get("message") or ""))


def differences_on(work: Object, generation: int) -> tuple[Differences | None, str]:
    """Return what a Work of this generation reports, or why it cannot; neither if not yet."""
    condition = find_condition(find_at(work, "status", "conditions"), DIFF_REPORTED) or {}
    if condition.get("observedGeneration") != generation:
        return None, ""
    message = str(condition.get("message") or "")
    if condition.get("status") == "True":
        return read_differences(message), ""
    return None, message
