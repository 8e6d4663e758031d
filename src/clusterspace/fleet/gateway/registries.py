"""Which clusters and namespaces ResourceRegistries select for a kind, as the hub has them now.

A registry names kinds, a URL names resources. Built-in kinds are known; of others, each Cluster
says in its status what its member serves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from clusterspace.apis.affinities import traits_of
from clusterspace.apis.registries import (
    RESOURCE_REGISTRIES,
    Namespaces,
    Registry,
    read_registry,
    select,
)
from clusterspace.builtins.resources import find_resource
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import Details, Malformed, ServiceUnavailable
from clusterspace.fleet.gateway.routes import Subject
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionKind

_log = structlog.get_logger(__name__)

_SECONDS: Final = 5.0
"""How long a request waits for the registries of a hub that has not told them yet."""


class Clusters(Protocol):
    """Whoever knows the Clusters of the fleet."""

    def objects(self) -> tuple[Object, ...]:
        """Return the Cluster of each member."""
        ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back whenever a cluster joins, leaves or has other labels."""
        ...


@dataclass(frozen=True, slots=True)
class Selected:
    """Where a kind is selected."""

    is_registered: bool = False
    """Whether any registry speaks of the kind: if none does, the hub's own objects are meant."""
    clusters: Mapping[str, Namespaces] | None = None
    """The clusters, and in which of their namespaces; all of them when that is empty."""

    def in_namespace(self, namespace: str) -> dict[str, Namespaces]:
        """Return the clusters for a request in a namespace; an empty one is for all of them."""
        found = self.clusters or {}
        if not namespace:
            return dict(found)
        return {each: names for each, names in found.items() if not names or namespace in names}


class Registries:
    """The ResourceRegistries of the hub."""

    def __init__(self, hub: ClusterClient, clusters: Clusters) -> None:
        self._clusters = clusters
        self._informer = Informer(hub, ResourcePath(RESOURCE_REGISTRIES))
        self._informer.add_handler(self._changed)
        self._known: dict[str, Registry] = {}
        self._followers: set[Callable[[], None]] = set()
        clusters.on_change(self._notify)

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return the background task, by name."""
        return {"resource registries": self._informer.run}

    @contextmanager
    def following(self, callback: Callable[[], None]) -> Generator[None]:
        """Call back, while the block lasts, whenever something else may be selected."""
        self._followers.add(callback)
        try:
            yield
        finally:
            self._followers.discard(callback)

    async def select(self, subject: Subject) -> Selected:
        """Return where a kind is selected; ServiceUnavailable when the hub has not told yet.

        To answer without the registries would show nothing where there is something.
        """
        try:
            async with asyncio.timeout(_SECONDS):
                await self._informer.wait_synced()
        except TimeoutError as error:
            why = f"the hub's ResourceRegistries are not known yet: {self._informer.trouble}"
            raise ServiceUnavailable(why, Details(retry_after_seconds=1)) from error
        return self.selected_now(subject)

    def selected_now(self, subject: Subject) -> Selected:
        """Return where a kind is selected, by what is known at this moment."""
        clusters = self._clusters.objects()
        kind = kind_of(subject, clusters)
        if kind is None:
            return Selected()
        found = select(self._known.values(), kind, map(traits_of, clusters))
        return Selected(found is not None, found)

    def _changed(self, update: Update) -> None:
        registry = update.decode_after()
        self._known.pop(update.key, None)
        try:
            if registry is not None:
                self._known[update.key] = read_registry(registry)
        except Malformed as error:
            # The hub refuses such a one. Another hub may not, and one that means nothing selects
            # nothing.
            _log.warning("resource registry is ignored", name=update.key, reason=error.message)
        self._notify()

    def _notify(self) -> None:
        for callback in tuple(self._followers):
            callback()


def kind_of(subject: Subject, clusters: tuple[Object, ...]) -> GroupVersionKind | None:
    """Return the kind of a resource; None when nobody serves it."""
    builtin = find_resource(subject.group, subject.version, subject.resource)
    if builtin is not None:
        return builtin.info.group_version_kind
    version = f"{subject.group}/{subject.version}" if subject.group else subject.version
    for cluster in clusters:
        enabled: Any = find_at(cluster, "status", "apiEnablements") or ()
        for group in (each for each in enabled if each.get("groupVersion") == version):
            for resource in group.get("resources") or ():
                if resource.get("name") == subject.resource:
                    kind = str(resource.get("kind"))
                    return GroupVersionKind(subject.group, subject.version, kind)
    return None
