"""What the gateway knows of each cluster, kept fresh from the hub.

Clusters and the Secrets that hold credentials are followed, so a cluster that joins, moves or
leaves is known within a moment and no request has to ask. What cannot be reached for want of
credentials is known too: it is left out with its reason, never without a word.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    SecretRef,
    impersonator_ref_of,
    secret_ref_of,
)
from clusterspace.client.connection import Connection, Connections
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import BadRequest, ClusterError, Details, NotFound
from clusterspace.fleet.gateway.names import HUB
from clusterspace.fleet.gateway.troubles import Troubles
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource

_SECRETS: Final = GroupVersionResource("", "v1", "secrets")

UserSettings: TypeAlias = Callable[[Object, Object | None, Object | None], ConnectionSettings]
"""A Cluster, its Secret and its impersonator's Secret to how users reach it; ClusterError if not"""


@dataclass(frozen=True, slots=True)
class Link:
    """A way to one cluster."""

    cluster: str
    connection: Connection

    @property
    def is_hub(self) -> bool:
        """Whether the control plane is at the other end."""
        return self.cluster == HUB

    @property
    def speaker(self) -> str:
        """Who the cluster's warnings are said to be from: the hub's are the fleet's own."""
        return "" if self.is_hub else self.cluster


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A cluster that joined the fleet, or left it."""

    cluster: str
    has_left: bool


Membership: TypeAlias = asyncio.Queue[MembershipChange]
"""What happened to the fleet, in order; one that nobody reads has as many entries as happened."""


class Directory:
    """The clusters of the fleet, and the connections to them."""

    def __init__(
        self,
        hub: ClusterClient,
        connections: Connections,
        user_settings: UserSettings,
        *,
        credentials_namespace: str = CLUSTER_NAMESPACE,
    ) -> None:
        self._hub = hub
        self._connections = connections
        self._user_settings = user_settings
        self._namespace = credentials_namespace
        self._clusters = Informer(hub, ResourcePath(CLUSTERS))
        self._secrets = Informer(hub, ResourcePath(_SECRETS, credentials_namespace))
        self._known: dict[str, Object] = {}
        self._settings: dict[str, ConnectionSettings | ClusterError] = {}
        self._left: set[str] = set()
        self._has_left = asyncio.Event()
        self._listeners: set[Membership] = set()
        self.troubles = Troubles(hub.connection.clock)
        """Which of the clusters could not be reached a moment ago."""
        self._clusters.add_handler(self._cluster_changed)
        self._secrets.add_handler(self._secret_changed)

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return the background tasks, by name."""
        return {
            "clusters": self._clusters.run,
            "credentials": self._secrets.run,
            "connections of clusters that left": self._close_left,
            "clusters in trouble": lambda: self.troubles.look_after(self.find_connection),
        }

    @contextmanager
    def listening(self) -> Generator[Membership]:
        """Tell of every cluster that joins or leaves for as long as the block lasts."""
        listener: Membership = asyncio.Queue()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def wait_synced(self) -> None:
        """Wait until every cluster is known."""
        await self._secrets.wait_synced()
        await self._clusters.wait_synced()

    def members(self) -> tuple[str, ...]:
        """Return the names of all members, reachable or not."""
        return tuple(sorted(self._known))

    def all_clusters(self) -> tuple[str, ...]:
        """Return the names of all clusters, the control plane first."""
        return (HUB, *self.members())

    def problem_with(self, cluster: str) -> ClusterError | None:
        """Return why a member cannot be reached whoever asks, if that is so."""
        settings = self._settings.get(cluster)
        return settings if isinstance(settings, ClusterError) else None

    def require(self, cluster: str, *, is_create: bool) -> None:
        """Refuse a cluster nobody knows; a create by 400, for its 404 would be the namespace's."""
        if cluster == HUB or cluster in self._known:
            return
        message = f"there is no cluster {cluster!r} in the fleet"
        if is_create:
            raise BadRequest(message)
        details = Details(name=cluster, group=CLUSTERS.group, kind=CLUSTERS.resource)
        raise NotFound(message, details)

    async def link(self, cluster: str) -> Link:
        """Return the way to a cluster; ClusterError when there is none."""
        if cluster == HUB:
            return Link(HUB, self._hub.connection)
        settings = self._settings.get(cluster)
        if settings is None:
            raise ClusterError(cluster, "is no member of the fleet")
        if isinstance(settings, ClusterError):
            raise settings
        return Link(cluster, await self._connections.get(settings))

    async def find_connection(self, cluster: str) -> Connection | None:
        """Return the connection to a member; None when it has left or cannot be reached."""
        settings = self._settings.get(cluster)
        return (
            await self._connections.get(settings)
            if isinstance(settings, ConnectionSettings)
            else None
        )

    def _cluster_changed(self, update: Update) -> None:
        # Called by the informer, in the order of its events, with no wait in between: whoever
        # listens hears of a member after `members` knows it, and of its end after it is forgotten.
        # So a watch that listens first and then counts may hear of a member twice, and misses none.
        cluster = update.decode_after()
        if cluster is None:
            self._known.pop(update.key, None)
            self._settings.pop(update.key, None)
            self._left.add(update.key)
            self._has_left.set()
            self._notify(MembershipChange(update.key, has_left=True))
            return
        is_new = update.key not in self._known
        self._known[update.key] = cluster
        self._read_settings(update.key, cluster)
        if is_new:
            self._notify(MembershipChange(update.key, has_left=False))

    def _notify(self, change: MembershipChange) -> None:
        for listener in self._listeners:
            listener.put_nowait(change)

    def _secret_changed(self, update: Update) -> None:
        changed = SecretRef(*update.key.split("/", 1))
        for name, cluster in self._known.items():
            if changed in (secret_ref_of(cluster), impersonator_ref_of(cluster)):
                self._read_settings(name, cluster)

    def _read_settings(self, name: str, cluster: Object) -> None:
        own, impersonator = secret_ref_of(cluster), impersonator_ref_of(cluster)
        try:
            found = self._user_settings(cluster, self._secret(own), self._secret(impersonator))
        except ClusterError as error:
            self._settings[name] = error
            return
        if found != self._settings.get(name):
            self._settings[name] = found
            self.troubles.let_go(name)

    def _secret(self, ref: SecretRef | None) -> Object | None:
        if ref is None or ref.namespace != self._namespace:
            return None
        return self._secrets.cache.find(f"{ref.namespace}/{ref.name}")

    async def _close_left(self) -> None:
        # Closing waits, and handlers of an informer may not. A member that left and joined again
        # meanwhile is known again, and its connection stays.
        while True:
            await self._has_left.wait()
            self._has_left.clear()
            for name in self._left - self._known.keys():
                self.troubles.let_go(name)
                await self._connections.forget(name)
            self._left.clear()
