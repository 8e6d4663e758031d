"""The endpoints of Services that a member exports: read for the report of a Work, and followed.

A Work with a ServiceExport or a MultiClusterService asks for the EndpointSlices of a Service. They
are in the status of that Work, so they go when it goes; and they stay as they were while the member
cannot be asked, since no status is written then.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, TypeAlias

from clusterspace.apis.services import (
    DISPATCHER,
    ENDPOINT_SLICES,
    IMPORTER,
    MANAGED_BY,
    MOST_SLICES,
    SERVICE_NAME,
    Endpoints,
    read_endpoints,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.client.watch import Reflector
from clusterspace.errors import NotFound
from clusterspace.fleet.execution.member_informers import Versions
from clusterspace.kube.objects import Object, name_of, namespace_of

_PAGE: Final = 20
"""Slices asked for at a time: one may have a thousand endpoints."""

_Service: TypeAlias = tuple[str, str]
"""Namespace and name."""


class ExportedEndpoints:
    """Reads the EndpointSlices of exported Services; a change of one enqueues its Works."""

    # Of what a member says nothing is kept but versions: it may have any number of slices, of any
    # size. Each look asks for a few pages, and no more than may be exported.
    #
    # Read and changed by the workers of one member, all in one event loop, and never across an
    # await. Invariant: a Service has a task in `_following` exactly while a Work is in its set in
    # `_works` and `run` runs.

    def __init__(self, member: ClusterClient, enqueue: Callable[[str], None]) -> None:
        self._member = member
        self._enqueue = enqueue
        self._works: dict[_Service, set[str]] = {}
        self._following: dict[_Service, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Follow the slices of exported Services until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for service in self._works:
                    self._start(service)
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._following.clear()

    async def read(self, work_name: str, manifest: Object) -> Endpoints | None:
        """Return the endpoints of the Service that a manifest exports, and follow them from now on.

        None when the member knows no EndpointSlices. ApiError and ClusterError pass: not known is
        not "none", and nothing is reported then.
        """
        service = namespace_of(manifest), name_of(manifest)
        # Before the look: what changes during it is told by the watch, whose first list enqueues
        # the Work once more in any case.
        if service not in self._works:
            self._works[service] = set()
            self._start(service)
        self._works[service].add(work_name)
        slices: list[Object] = []
        place = ResourcePath(ENDPOINT_SLICES, service[0])
        try:
            async with aclosing(self._member.pages(place, _selection(service[1]))) as pages:
                async for page in pages:
                    slices += [item.decode() for item in page.items]
                    if len(slices) > MOST_SLICES:
                        break
        except NotFound:
            return None
        return read_endpoints(slices)

    def forget(self, work_name: str) -> None:
        """Follow nothing for this Work any more."""
        for service in [each for each, works in self._works.items() if work_name in works]:
            self._works[service].discard(work_name)
            if not self._works[service]:
                del self._works[service]
                if (task := self._following.pop(service, None)) is not None:
                    task.cancel()

    def _start(self, service: _Service) -> None:
        if self._group is not None:
            name = f"endpoints of {'/'.join(service)}"
            self._following[service] = self._group.create_task(self._follow(service), name=name)

    async def _follow(self, service: _Service) -> None:
        known = Versions()
        place = ResourcePath(ENDPOINT_SLICES, service[0])
        follower = Reflector(self._member, place, known, _selection(service[1]))
        is_synced = False
        async with aclosing(follower.batches()) as batches:
            async for batch in batches:
                for change in batch.changes:
                    known.take(change)
                if batch.changes or (batch.is_whole and not is_synced):
                    for work_name in tuple(self._works.get(service, ())):
                        self._enqueue(work_name)
                is_synced = is_synced or batch.is_whole


def _selection(service: str) -> ListOptions:
    foreign = f"{MANAGED_BY} notin ({IMPORTER},{DISPATCHER})"
    return ListOptions(label_selector=f"{SERVICE_NAME}={service},{foreign}", limit=_PAGE)
