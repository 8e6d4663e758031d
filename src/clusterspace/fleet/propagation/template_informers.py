"""One informer for every kind the hub serves, as kinds come and go.

A kind that discovery could not tell of just now is not gone: its informer stays. One that is no
longer served takes its informer with it, and nobody is told that its objects were deleted.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import structlog

from clusterspace.aio.clocks import Alarm, Clock
from clusterspace.apis.policies import ResourceSelector
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.places import Place, key_of
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.propagation.claims import by_claim
from clusterspace.fleet.propagation.templates import (
    TemplateRequest,
    keys_in,
    template_request,
    template_resources,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource, ResourceInfo

_log = structlog.get_logger(__name__)

DEFINITIONS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")

REFRESH_SECONDS: Final = 60.0
"""Kinds that come without a definition, from aggregated API servers, are noticed after this."""

SETTLE_SECONDS: Final = 0.2
"""Definitions come by the dozen; one look serves them all."""

RETRY_SECONDS: Final = 2.0
_CLAIM: Final = "claim"

TemplateHandler: TypeAlias = Callable[[GroupVersionResource, Update], None]
"""Told of every change of every template, in order; it must not wait."""


class TemplateInformers:
    """Caches of everything on the hub that may be a template.

        templates = TemplateInformers(hub_client, definitions, clock=clock)
        templates.add_handler(note_change)
        tasks.keep("definitions", definitions.run)
        tasks.keep("templates", templates.run)

    `definitions` is an informer of `DEFINITIONS` that somebody else runs.
    """

    def __init__(
        self,
        hub_client: ClusterClient,
        definitions: Informer,
        *,
        clock: Clock,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._hub_client = hub_client
        self._discovery = Discovery(hub_client.connection)
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._informers: dict[GroupVersionResource, Informer] = {}
        self._kinds: dict[GroupVersionKind, ResourceInfo] = {}
        self._running: dict[GroupVersionResource, asyncio.Task[None]] = {}
        self._handlers: list[TemplateHandler] = []
        self._news = asyncio.Event()
        self._discovered = False
        self._alarm = Alarm(clock, self._news.set)
        definitions.add_handler(lambda _: self._news.set())

    def add_handler(self, handler: TemplateHandler) -> None:
        """Tell a handler of every change from now on, and of what is there already as added."""
        self._handlers.append(handler)
        for resource, informer in self._informers.items():
            informer.add_handler(_bound(handler, resource))

    @property
    def has_synced(self) -> bool:
        """Whether every kind has been listed; one that cannot be listed is not waited for."""
        told = (each.has_synced or each.trouble is not None for each in self._informers.values())
        return self._discovered and all(told)

    def find_resource(self, kind: GroupVersionKind) -> GroupVersionResource | None:
        """Return how URLs name a kind; None when none of its objects may be templates."""
        found = self._kinds.get(kind)
        return None if found is None else found.group_version_resource

    def find_info(self, kind: GroupVersionKind) -> ResourceInfo | None:
        """Return all that is known of a kind; None when none of its objects may be templates."""
        return self._kinds.get(kind)

    def find(self, kind: GroupVersionKind, namespace: str, name: str) -> Object | None:
        """Return a template from the cache, or None; ask the hub before acting on a None."""
        resource = self.find_resource(kind)
        return None if resource is None else self.find_at(Place(resource, namespace, name))

    def find_at(self, place: Place) -> Object | None:
        """Return the template at a place from the cache, or None."""
        informer = self._informers.get(place.resource)
        if informer is None:
            return None
        return informer.cache.find(key_of(place.namespace, place.name))

    def claimed_by(self, policy_key: str) -> list[TemplateRequest]:
        """Return the templates that follow a policy."""
        return [
            template_request(resource, key)
            for resource, informer in self._informers.items()
            for key in informer.cache.keys_at(_CLAIM, policy_key)
        ]

    def selected_by(self, selector: ResourceSelector, namespace: str = "") -> list[TemplateRequest]:
        """Return the templates a selector may mean, labels not looked at."""
        resource = self.find_resource(GroupVersionKind.of(selector.api_version, selector.kind))
        if resource is None:
            return []
        keys = self._informers[resource].cache.keys()
        within = selector.namespace or namespace
        meant = keys_in(keys, namespace=within, name=selector.name)
        return [template_request(resource, key) for key in meant]

    def within(self, namespace: str) -> list[TemplateRequest]:
        """Return everything in a namespace that may be a template."""
        return [
            template_request(resource, key)
            for resource, informer in self._informers.items()
            for key in keys_in(informer.cache.keys(), namespace=namespace)
        ]

    async def run(self) -> None:
        """Follow every kind until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._news.clear()
                    self._alarm.set(await self._look(group))
                    await self._news.wait()
                    await self._clock.sleep(SETTLE_SECONDS)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first is the reason
        finally:
            self._alarm.cancel()
            self._running.clear()

    async def _look(self, group: asyncio.TaskGroup) -> float:
        """Start and stop informers by what is served; return when to look again at the latest."""
        self._discovery.forget()
        try:
            served = await self._discovery.served()
        except (ApiError, ClusterError) as error:
            _log.warning("kinds not discovered", reason=str(error))
            return RETRY_SECONDS
        wanted = {each.group_version_resource: each for each in template_resources(served)}
        for resource in self._gone(wanted, served):
            self._stop(resource)
        for resource, info in wanted.items():
            if resource not in self._running:
                self._start(group, resource, info)
        self._discovered = True
        return self._refresh_seconds

    def _gone(
        self, wanted: Mapping[GroupVersionResource, ResourceInfo], served: ServedResources
    ) -> Iterable[GroupVersionResource]:
        unsure = set(served.failed)
        return [
            resource
            for resource in self._informers
            if resource not in wanted and resource.group_version not in unsure
        ]

    def _start(
        self, group: asyncio.TaskGroup, resource: GroupVersionResource, info: ResourceInfo
    ) -> None:
        informer = self._informers.get(resource) or self._make(resource)
        self._informers[resource] = informer
        self._kinds[info.group_version_kind] = info
        self._running[resource] = group.create_task(informer.run(), name=f"templates {resource}")

    def _make(self, resource: GroupVersionResource) -> Informer:
        informer = Informer(self._hub_client, Place(resource), indexes={_CLAIM: by_claim})
        for handler in self._handlers:
            informer.add_handler(_bound(handler, resource))
        return informer

    def _stop(self, resource: GroupVersionResource) -> None:
        _log.info("kind is no longer served", resource=str(resource))
        del self._informers[resource]
        self._kinds = {
            kind: info
            for kind, info in self._kinds.items()
            if info.group_version_resource != resource
        }
        self._running.pop(resource).cancel()


def _bound(handler: TemplateHandler, resource: GroupVersionResource) -> Callable[[Update], None]:
    return lambda update: handler(resource, update)
