"""What runs of placements and of policies write alike: statuses, and requests for approval."""

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.fleet_placements import generation_of
from clusterspace.apis.staged_updates import approval_request, staged_scope_at
from clusterspace.apis.works import controller_uid_of
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.errors import AlreadyExists, Conflict
from clusterspace.kube.conditions import TRUE, Condition, find_condition, set_condition
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of, uid_of

_log = structlog.get_logger(__name__)


class RunWriter:
    """Writes what becomes of runs, and asks for their approvals."""

    def __init__(self, hub: Client, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock

    async def ask_for_approval(self, run: Object, stage: str, *, is_before: bool) -> None:
        """Make the request that a stage waits for, if it is not there."""
        request = approval_request(run, stage, is_before=is_before)
        resource = staged_scope_at(namespace_of(run)).approvals
        path = resource_path_of(resource, request)
        try:
            await self._hub.create(path.collection, request)
        except AlreadyExists:
            live = await self._hub.find(path)
            if live is None or controller_uid_of(live) != uid_of(run):
                # Of an earlier run of this name, which the hub collects.
                raise Conflict(f"{path} is not of this run, and must go first") from None
            return
        self._events.record(run, "ApprovalRequested", f"{path.name} waits to be approved")

    async def accept(self, run: Object, name: str) -> None:
        """Say on a request that its approval was seen."""
        scope = staged_scope_at(namespace_of(run))
        path = ResourcePath(scope.approvals, namespace_of(run), name)
        request = await self._hub.find(path)
        if request is None:
            return
        generation = generation_of(request)
        accepted = Condition(
            "ApprovalAccepted", TRUE, "ApprovalRequestApprovalAccepted", "", generation
        )
        before = find_at(request, "status", "conditions")
        conditions = set_condition(before, accepted, self._clock.now()).conditions
        await commit(self._hub, path, request, {**request, "status": {"conditions": conditions}})

    async def write(self, run: Object, status: Object) -> Object:
        """Write the status of a run, and tell of conditions that changed."""
        path = resource_path_of(staged_scope_at(namespace_of(run)).runs, run)
        before = find_at(run, "status", "conditions")
        written = await commit(self._hub, path, run, {**run, "status": status})
        for each in status.get("conditions") or ():
            known = find_condition(before, each["type"]) or {}
            if known.get("reason") == each["reason"]:
                continue
            is_warning = str(each["reason"]).endswith(("Failed", "Stuck"))
            self._events.record(run, each["reason"], each["message"], is_warning=is_warning)
            _log.info("update run changed", run=name_of(run), reason=each["reason"])
        return written
