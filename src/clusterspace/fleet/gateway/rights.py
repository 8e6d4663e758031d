"""What the hub writes down about rights, followed: whose credentials are revoked, what changed.

The gateway checks client certificates itself, so it has the hub's list of revoked ones, and asks
the hub about everything else. It remembers those answers for seconds and asks about open streams
again when something changed; so it follows roles and bindings too, without reading what is in them.

A hub that does not let us follow them is asked about open streams every few seconds instead.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final

import structlog

from clusterspace.aio.clocks import exponential
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.http.chain import RECHECK_SECONDS, UNHEARD_SECONDS, Recheck
from clusterspace.apiserver.http.revocations import (
    AGENTS_NAME,
    NAME,
    NAMESPACE,
    NOTHING_REVOKED,
    RevocationList,
    is_agent_revoked,
    read_revocations,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.client.watch import WatchOptions, watch
from clusterspace.errors import ApiError, ClusterError, Forbidden
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource

_log = structlog.get_logger(__name__)

_CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
_LIST: Final = ResourcePath(_CONFIG_MAPS, NAMESPACE, NAME)
_AGENTS: Final = ResourcePath(_CONFIG_MAPS, NAMESPACE, AGENTS_NAME)
_ONLY_LIST: Final = ListOptions(field_selector=f"metadata.name={NAME}")
_FOLLOWED: Final[Mapping[str, ResourcePath]] = {
    plural: ResourcePath(GroupVersionResource("rbac.authorization.k8s.io", "v1", plural))
    for plural in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
}
_QUIET_SECONDS: Final = 90.0
"""Bookmarks come every minute: a watch that says nothing for this long has broken off unseen."""
_BETWEEN_SECONDS: Final = 0.2


class HubRights:
    """The hub's list of revoked credentials, and word of every change of rights."""

    def __init__(self, hub: ClusterClient) -> None:
        self._hub = hub
        self._clock = hub.connection.clock
        self._unheard = {*_FOLLOWED, NAME}
        self._listeners: list[Callable[[], None]] = []
        self._recheck: Recheck | None = None
        self._revoked = NOTHING_REVOKED

    async def load(self) -> None:
        """Read the list, so that nobody is let in who is on it."""
        try:
            self._take(await self._hub.find(_LIST))
        except Forbidden as error:
            # An API server that keeps no such list, or one from before there was one.
            _log.warning("revoked credentials cannot be read", reason=error.message)

    def revoked(self) -> RevocationList:
        """Return whose credentials are refused."""
        return self._revoked

    async def is_agent_revoked(self, cluster: str, issued: float) -> bool:
        """Whether a certificate of a cluster's agent, issued then, is that of one that left.

        Read with every use, as on the hub: an agent comes seldom, and the cluster that has its name
        now is somebody else's.
        """
        try:
            revoked = await self._hub.find(_AGENTS)
        except Forbidden as error:
            # An API server that keeps no such list, or one that has not let us read it yet.
            _log.warning("revoked agents cannot be read", reason=error.message)
            return False
        return is_agent_revoked((revoked or {}).get("data"), cluster, issued)

    def on_change(self, *listeners: Callable[[], None]) -> None:
        """Call somebody whenever an answer of the hub may not be what it was."""
        self._listeners.extend(listeners)

    def tasks(self, recheck: Recheck) -> Tasks:
        """Return what follows; open streams are looked at by what it hears."""
        self._recheck = recheck
        recheck.look_every(UNHEARD_SECONDS)
        return {
            "revoked credentials": lambda: self._follow(NAME, _LIST.collection, _ONLY_LIST),
            **{
                f"changes of {name}": lambda name=name, place=place: self._follow(name, place)
                for name, place in _FOLLOWED.items()
            },
        }

    async def _follow(
        self, name: str, place: ResourcePath, selected: ListOptions | None = None
    ) -> None:
        """Hear of every change in one collection, until cancelled."""
        selected = selected or ListOptions(limit=1)
        delays = exponential(0.5, 30)
        while True:
            try:
                async with aclosing(self._hub.pages(place, selected)) as pages:
                    page = await anext(pages)
                version = page.head.resource_version
                if name == NAME:
                    await self.load()
                # Only now: what changed before the list is asked about with this.
                self._note_change()
                self._hear(name, is_heard=True)
                delays = exponential(0.5, 30)
                while True:
                    options = WatchOptions(
                        version,
                        field_selector=selected.field_selector,
                        quiet_seconds=_QUIET_SECONDS,
                    )
                    async with aclosing(watch(self._hub.connection, place, options)) as stream:
                        async for events in stream:
                            version = events[-1].item.version.resource_version
                            if not any(event.item.key for event in events):
                                continue  # a bookmark
                            if name == NAME:
                                await self.load()
                            self._note_change()
                    await self._clock.sleep(_BETWEEN_SECONDS)
            except (ApiError, ClusterError) as error:
                self._hear(name, is_heard=False)
                _log.debug("changes of rights are not followed", what=name, reason=str(error))
                await self._clock.sleep(next(delays))

    def _hear(self, name: str, *, is_heard: bool) -> None:
        was_whole = not self._unheard
        if is_heard:
            self._unheard.discard(name)
        else:
            self._unheard.add(name)
        if self._recheck is not None and was_whole is bool(self._unheard):
            self._recheck.look_every(UNHEARD_SECONDS if self._unheard else RECHECK_SECONDS)

    def _note_change(self) -> None:
        # What is remembered goes first, and what the hub is answering right now is not remembered:
        # the looks that follow must ask.
        for listener in self._listeners:
            listener()
        if self._recheck is not None:
            self._recheck.changed()

    def _take(self, found: Object | None) -> None:
        # One that is gone was deleted whole, and is put back by the hub: what is known counts.
        if found is not None:
            self._revoked = read_revocations(found.get("data"))
