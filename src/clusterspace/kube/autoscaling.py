"""How many replicas a load asks for, and how fast they may change: the rules of autoscaling/v2.

    loads of pods ──replicas_for──> the size they ask for ──ScaleHistory.next_size──> the next size

The first step knows pods of which nothing was heard, and never takes them for idle; the second has
the windows and policies of `spec.behavior`. Who remembers the history decides what a restart
forgets: `remember` has to be told the present size first, or a load that was not seen for a moment
scales down at once. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from clusterspace.errors import MalformedQuantity
from clusterspace.kube.conditions import FALSE, TRUE, Condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import parse_quantity

SYNC_SECONDS: Final = 15.0
TOLERANCE: Final = 0.1
_DOWN_WINDOW: Final = 300.0
_LONGEST_PERIOD: Final = 1800.0
_UP: Final = (
    {"type": "Pods", "value": 4, "periodSeconds": 15},
    {"type": "Percent", "value": 100, "periodSeconds": 15},
)
_DOWN: Final = ({"type": "Percent", "value": 100, "periodSeconds": 15},)


# -- how many --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodLoad:
    """What one pod uses beside what it should use, in any one unit."""

    goal: int
    """What it uses when the autoscaler is content."""
    used: int | None = None
    """None when nobody could tell."""
    is_ready: bool = True
    """One that only starts says little about the load, whatever it uses."""
    most: int = 0
    """What one of which nothing is known is taken to use where less would scale down."""


def replicas_for(
    loads: Sequence[PodLoad],
    current: int,
    *,
    tolerances: Mapping[str, float] | None = None,
    share: float = 1.0,
) -> int | None:
    """Return how many replicas these loads ask for; None when nothing was measured.

    Pods of which nothing is known count against whatever the others say: as busy when those ask
    for less, as idle when they ask for more. So a cluster that fell silent never scales anything
    down, and pods that still start never scale up once more. `share` is the current size over all
    the pods it stands for, which are more where every cluster has a full copy.
    """
    measured = [each for each in loads if each.used is not None and each.is_ready and each.goal > 0]
    if not measured:
        return None
    ratio = sum(each.used or 0 for each in measured) / sum(each.goal for each in measured)
    unknown = [each for each in loads if each.used is None]
    starting = [each for each in loads if each.used is not None and not each.is_ready]
    counted = len(measured)
    if unknown or (starting and ratio > 1):
        is_up = ratio > 1
        supposed = 0 if is_up else sum(max(each.goal, each.most) for each in unknown)
        others = [*unknown, *(starting if is_up else ())]
        goals = sum(each.goal for each in (*measured, *others))
        cautious = (sum(each.used or 0 for each in measured) + supposed) / goals
        # On the other side of the goal now: what is not known decides, so nothing is decided.
        if (cautious > 1) != is_up:
            return current
        ratio, counted = cautious, counted + len(others)
    tolerance = (tolerances or {}).get("scaleUp" if ratio > 1 else "scaleDown", TOLERANCE)
    if abs(1 - ratio) <= tolerance:
        return current
    asked = ceil(round(ratio * counted * share, 6))
    return max(asked, current) if ratio > 1 else min(asked, current)


def replicas_for_value(value: float, goal: float, ready: int, current: int) -> int:
    """Return how many replicas one value for all pods asks for, as of a queue beside its goal."""
    ratio = value / goal
    if abs(1 - ratio) <= TOLERANCE:
        return current
    return ceil(round(ratio * ready, 6))


def tolerances_of(spec: Object) -> dict[str, float]:
    """Return the tolerances that `spec.behavior` names, by direction."""
    found: dict[str, float] = {}
    for way in ("scaleUp", "scaleDown"):
        given = find_at(spec, "behavior", way, "tolerance")
        if given is None:
            continue
        try:
            found[way] = parse_quantity(str(given)).milli / 1000
        except MalformedQuantity:
            continue
    return found


# -- how fast --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NextSize:
    """The size to have next, and the conditions that say how it came to be."""

    replicas: int
    able_to_scale: Condition
    limited: Condition


@dataclass(slots=True)
class ScaleHistory:
    """What one autoscaler lately found necessary and did; at most half an hour of it."""

    wanted: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """The sizes that were asked for, with the times."""
    steps: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """How many replicas were added or taken, with the times."""

    def remember(self, size: int, now: float) -> None:
        """Take the present size for what was asked for so far, if nothing was asked yet."""
        if not self.wanted:
            self.wanted.append((now, size))

    def stepped(self, change: int, now: float) -> None:
        """Count replicas that were added, or taken."""
        self.steps.append((now, change))

    def next_size(self, spec: Object, current: int, desired: int, now: float) -> NextSize:
        """Return the next size: not before the windows, not faster than the policies allow."""
        rules: dict[str, Object] = {
            which: find_at(spec, "behavior", which) or {} for which in ("scaleUp", "scaleDown")
        }
        given = rules["scaleDown"].get("stabilizationWindowSeconds")
        windows = {
            "scaleUp": float(rules["scaleUp"].get("stabilizationWindowSeconds") or 0),
            "scaleDown": _DOWN_WINDOW if given is None else float(given),
        }
        longest = max(*windows.values(), SYNC_SECONDS)
        self.wanted = [each for each in self.wanted if each[0] > now - longest]
        self.wanted.append((now, desired))
        highest = max(size for at, size in self.wanted if at >= now - windows["scaleDown"])
        lowest = min(size for at, size in self.wanted if at >= now - windows["scaleUp"])
        stable = min(max(current, lowest), highest) if lowest <= highest else desired
        reason, message = "ReadyForNewScale", "recommended size matches current size"
        if stable > desired:
            reason = "ScaleDownStabilized"
            message = (
                "recent recommendations were higher than current one, "
                "applying the highest recent recommendation"
            )
        elif stable < desired:
            reason = "ScaleUpStabilized"
            message = (
                "recent recommendations were lower than current one, "
                "applying the lowest recent recommendation"
            )
        able = Condition("AbleToScale", TRUE, reason, message)

        self.steps = [each for each in self.steps if each[0] > now - _LONGEST_PERIOD]
        given_least = spec.get("minReplicas")
        least, most = 1 if given_least is None else int(given_least), int(spec["maxReplicas"])
        is_up = stable > current
        if is_up:
            bound = _bound(rules["scaleUp"], _UP, current, self.steps, now, sign=1)
            paced = min(stable, bound)
        else:
            bound = _bound(rules["scaleDown"], _DOWN, current, self.steps, now, sign=-1)
            paced = max(stable, bound)
        final = max(least, min(paced, most))
        status, reason = FALSE, "DesiredWithinRange"
        message = "the desired count is within the acceptable range"
        if final < stable and final == most:
            status, reason = TRUE, "TooManyReplicas"
            message = "the desired replica count is more than the maximum replica count"
        elif final > stable and final == least:
            status, reason = TRUE, "TooFewReplicas"
            message = "the desired replica count is less than the minimum replica count"
        elif final != stable:
            status, reason = TRUE, "ScaleUpLimit" if is_up else "ScaleDownLimit"
            way = "increasing" if is_up else "decreasing"
            message = f"the desired replica count is {way} faster than the maximum scale rate"
        return NextSize(final, able, Condition("ScalingLimited", status, reason, message))


def _bound(
    rule: Object,
    otherwise: Sequence[Object],
    current: int,
    steps: Sequence[tuple[float, int]],
    now: float,
    *,
    sign: int,
) -> int:
    """Return how far the policies let a size go in one direction now."""
    choose = rule.get("selectPolicy") or "Max"
    if choose == "Disabled":
        return current
    bounds: list[int] = []
    for policy in rule.get("policies") or otherwise:
        period = float(policy.get("periodSeconds") or SYNC_SECONDS)
        done = sum(step for at, step in steps if at > now - period and step * sign > 0)
        start = current - done
        value = int(policy.get("value") or 0)
        if policy.get("type") == "Percent":
            share = start * value / 100
            bounds.append(start + sign * ceil(share) if sign > 0 else int(start - share))
        else:
            bounds.append(start + sign * value)
    far = max if (choose == "Max") == (sign > 0) else min
    return max(0, far(bounds)) if bounds else current
