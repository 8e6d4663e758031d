"""Write Work status: what the member holds of a Work's manifests, and what is in the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.fleet_placements import is_placed
from clusterspace.apis.works import APPLIED, DISPATCHING, suspends_dispatching
from clusterspace.client.places import place_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.fleet.execution.observe import manifest_status
from clusterspace.kube.conditions import FALSE, TRUE, Condition, is_true, set_condition
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of

APPLIED_SUCCESSFUL: Final = "AppliedSuccessful"
APPLIED_FAILED: Final = "AppliedFailed"
RECREATED: Final = "ReCreateSuccessful"

_LONGEST_MESSAGE: Final = 8192
"""A member may refuse a large object at great length; a condition has room for four times this."""

QUIET_SECONDS: Final = 0.5
"""How long a status that only counts pods is held back after the last: a rollout has many."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one manifest: the object that is there, or why it is not in force."""

    manifest: Object
    live: Object | None = None
    problem: str = ""
    is_recreated: bool = False
    """Somebody had deleted the object on the member, and we made it again."""


def next_status(work: Object, findings: Sequence[Finding], now: float) -> Object:
    """Return the status of a Work, seeing what became of its manifests."""
    status: Object = work.get("status") or {}
    conditions = set_condition(status.get("conditions"), _dispatching(work), now).conditions
    applied = None if suspends_dispatching(work) else _applied(work, conditions, findings)
    if applied is not None:
        conditions = set_condition(conditions, applied, now).conditions
    told = [
        manifest_status(each.manifest, ordinal, each.live)
        for ordinal, each in enumerate(findings)
        if each.live is not None
    ]
    kept = {key: value for key, value in status.items() if key != "manifestStatuses"}
    seen = {"manifestStatuses": told} if told else {}
    return {**kept, "conditions": conditions, **seen}


def _dispatching(work: Object) -> Condition:
    if suspends_dispatching(work):
        why = "Work dispatching is in a suspended state."
        return Condition(DISPATCHING, FALSE, "SuspendDispatching", why)
    return Condition(
        DISPATCHING, TRUE, "Dispatching", "Work is being dispatched to member clusters."
    )


def _applied(
    work: Object, conditions: list[Object], findings: Sequence[Finding]
) -> Condition | None:
    """Return what to say about Applied; None when what is said already still holds.

    A placement goes on to the next cluster when this one is done, so its Works also say which of
    their states that is about.
    """
    generation = int(metadata_of(work).get("generation") or 0) if is_placed(work) else None
    problems = [each.problem for each in findings if each.problem]
    if problems:
        done = len(findings) - len(problems)
        message = f"Failed to apply all manifests ({done}/{len(findings)}): {'; '.join(problems)}"
        short = message[:_LONGEST_MESSAGE]
        return Condition(APPLIED, FALSE, APPLIED_FAILED, short, generation)
    if any(each.is_recreated for each in findings):
        message = "Manifest has been created again after it was deleted in the cluster"
        return Condition(APPLIED, TRUE, RECREATED, message, generation)
    if is_true(conditions, APPLIED) and generation is None:
        return None
    message = "Manifest has been successfully applied"
    return Condition(APPLIED, TRUE, APPLIED_SUCCESSFUL, message, generation)


class Reporter:
    """Writes the statuses of one member's Works, no oftener than anybody wants to know."""

    def __init__(self, hub: Client, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._written: dict[str, float] = {}

    async def write(self, work: Object, findings: Sequence[Finding]) -> float:
        """Write what changed; return after how many seconds to try again, if it is too early."""
        status = next_status(work, findings, self._clock.now())
        if status == (work.get("status") or {}):
            return 0.0
        wait = self._wait_seconds(work, status)
        if wait > 0:
            return wait
        await commit(self._hub, place_of(WORKS, work), work, {**work, "status": status})
        self._written[name_of(work)] = self._clock.monotonic()
        return 0.0

    def forget(self, work_name: str) -> None:
        """Forget a Work that is gone."""
        self._written.pop(work_name, None)

    def _wait_seconds(self, work: Object, status: Object) -> float:
        said: Any = find_at(work, "status", "conditions")
        if said != status.get("conditions"):
            return 0.0
        last = self._written.get(name_of(work), float("-inf"))
        return last + QUIET_SECONDS - self._clock.monotonic()
