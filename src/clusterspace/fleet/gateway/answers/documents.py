"""What is about the fleet itself: discovery, schemas, version, health.

What each cluster serves and which release it runs is remembered, and the last word counts. A
cluster that cannot be asked still serves what it served: what a client may ask for must not change
because one cluster is slow.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.flagz import Flagz
from clusterspace.apiserver.http.context import RequestContext, headers_for
from clusterspace.apiserver.http.guards import refusal
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.relays import Passage, relay
from clusterspace.apiserver.http.request_info import JSON, aggregated_version
from clusterspace.apiserver.http.responses import (
    indented_response,
    text_response,
    value_response,
)
from clusterspace.client.connection import Connection
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ApiRequest, unreadable
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.gateway.clusters import Link, Troubles
from clusterspace.fleet.gateway.fanout import FleetContext, find_targets
from clusterspace.fleet.gateway.merge import discovery
from clusterspace.fleet.gateway.merge.discovery import FleetApi
from clusterspace.kube import discovery_documents, statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion, ResourceInfo
from clusterspace.telemetry import metrics

HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})


FRESH_SECONDS: Final = 5.0
"""New kinds are served within this time; an answer that has not changed costs a cluster nothing."""

PAUSE_SECONDS: Final = 10.0
"""After which a cluster is asked again that did not answer."""

_MOST_BYTES: Final = 4 * 1024 * 1024

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Surveyed(Generic[Found]):
    connection: Connection
    found: Found
    until: float

    def is_fresh(self, connection: Connection, now: float) -> bool:
        """Whether the same cluster would hardly say anything else now."""
        return self.connection is connection and now < self.until


class Survey(Generic[Found]):
    """One question, put to every cluster now and then."""

    def __init__(
        self, ask: Callable[[Connection], Awaitable[Found]], clock: Clock, *, seconds_each: float
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._seconds = seconds_each
        self._known: dict[str, _Surveyed[Found]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._not_before: dict[str, float] = {}
        """When a cluster that failed is asked again."""

    async def of(
        self, links: Sequence[Link], troubles: Troubles, silent: Iterable[str] = ()
    ) -> dict[str, Found]:
        """Return each cluster's document, or its last one; those that never had one are left out.

        `silent` are clusters that cannot be asked now; `troubles` hears of those that fail to.
        """
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(self._refresh(link, troubles), name=f"survey {link.cluster}")
        clusters = (*(link.cluster for link in links), *silent)
        return {each: self._known[each].found for each in clusters if each in self._known}

    async def _refresh(self, link: Link, troubles: Troubles) -> None:
        async with self._locks.setdefault(link.cluster, asyncio.Lock()):
            known = self._known.get(link.cluster)
            if known is not None and known.is_fresh(link.connection, self._clock.monotonic()):
                return
            if self._clock.monotonic() < self._not_before.get(link.cluster, 0.0):
                return
            try:
                async with asyncio.timeout(self._seconds):
                    found = await self._ask(link.connection)
            except (ApiError, ClusterError, TimeoutError) as failure:
                # Whoever asks next does not wait for it again: one slow cluster costs one client.
                self._not_before[link.cluster] = self._clock.monotonic() + PAUSE_SECONDS
                if not (link.is_hub or isinstance(failure, ApiError)):
                    # Nor does who asks for something else, once it is found silent altogether.
                    troubles.suspect(link.cluster)
                return
            self._not_before.pop(link.cluster, None)
            until = self._clock.monotonic() + FRESH_SECONDS
            self._known[link.cluster] = _Surveyed(link.connection, found, until)


def _document(path: str) -> Callable[[Connection], Awaitable[Object]]:
    async def ask(connection: Connection) -> Object:
        headers = (("Accept", "application/json"),)
        answer = await connection.ask(
            ApiRequest("GET", path, headers=headers, most_bytes=_MOST_BYTES)
        )
        try:
            return msgspec.json.decode(answer.body, type=dict[str, Any])
        except UNREADABLE as error:
            raise unreadable(connection.cluster, f"{path} is no document", error) from error

    return ask


async def _own_metrics() -> bytes:
    return metrics.render()


class Documents:
    """Answers what names no resource."""

    def __init__(
        self,
        clock: Clock,
        *,
        seconds_each: float,
        flagz: Flagz | None = None,
        read_metrics: Callable[[], Awaitable[bytes]] = _own_metrics,
    ) -> None:
        """`read_metrics` returns those of all workers, where there are several."""
        self._flagz = flagz or Flagz({})
        self._read_metrics = read_metrics
        self.is_ready = False
        """Whether /readyz says yes."""
        self._discoveries: WeakKeyDictionary[Connection, Discovery] = WeakKeyDictionary()
        self._served = Survey(self._discover, clock, seconds_each=seconds_each)
        self._versions = Survey(_document("/version"), clock, seconds_each=seconds_each)
        self._schemas = Survey(_document("/openapi/v3"), clock, seconds_each=seconds_each)

    async def _discover(self, connection: Connection) -> tuple[ResourceInfo, ...]:
        known = self._discoveries.get(connection)
        if known is None:
            # Kept, because it knows the tags of the documents it has.
            known = self._discoveries[connection] = Discovery(connection, fresh_seconds=0)
        return (await known.served()).resources

    async def answer(self, context: FleetContext) -> Response | None:
        """Answer a GET for a path that is no resource."""
        http, info = context.http, context.info
        if info.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        if info.path in HEALTH:
            if info.path == "/readyz" and not self.is_ready:
                raise statuses.unavailable("the fleet API server is starting or stopping")
            return text_response(http, 200, "ok")
        decision = await context.fleet.reviews.decide(http.user, info)
        if not decision.allowed:
            raise refusal(http.user, info, decision.reason)
        if info.path == "/metrics":
            headers = headers_for(http, metrics.CONTENT_TYPE)
            return Response(200, headers, await self._read_metrics())
        if settings := self._flagz.answer(http):
            return settings
        return await self._of_fleet(context, info.path.strip("/").split("/"))

    async def _of_fleet(self, context: FleetContext, segments: list[str]) -> Response | None:
        """Answer with what the clusters say that the caller may reach, the control plane first."""
        http, directory = context.http, context.fleet.directory
        troubles = directory.troubles
        targets = await find_targets(context, directory.all_clusters())
        links = [await directory.link(each) for each in targets.chosen]
        silent = [each.cluster for each in targets.skipped if isinstance(each.error, ClusterError)]

        async def api() -> FleetApi:
            return discovery.merge(await self._served.of(links, troubles, silent))

        match segments:
            case ["version"]:
                version = discovery.merge_releases(await self._versions.of(links, troubles))
                if version is None:
                    raise statuses.unavailable("no cluster could be asked for its version")
                return indented_response(http, 200, version)
            case ["openapi", "v2"]:
                return await _pass_on(context, links[0], http.request.path)
            case ["openapi", "v3", *document]:
                return await self._schema(context, links, "/".join(document))
            case ["api" | "apis"]:
                return _root(http, await api(), is_core=segments == ["api"])
            case ["apis", name]:
                group = (await api()).find_group(name)
                found = None if group is None else discovery_documents.group_document(group)
            case ["api", version]:
                found = _resource_list(await api(), GroupVersion("", version))
            case ["apis", name, version]:
                found = _resource_list(await api(), GroupVersion(name, version))
            case _:
                found = None
        return _unknown(http) if found is None else value_response(http, 200, found)

    async def _schema(
        self, context: FleetContext, links: Sequence[Link], path: str
    ) -> Response | None:
        """Answer with a document as the best cluster has it; without a path, with their index."""
        troubles = context.fleet.directory.troubles
        # Together: a cluster that answers neither is waited for once.
        async with asyncio.TaskGroup() as group:
            asked_schemas = group.create_task(self._schemas.of(links, troubles), name="schemas")
            asked_versions = group.create_task(self._versions.of(links, troubles), name="versions")
        indexes, versions = asked_schemas.result(), asked_versions.result()
        releases = {cluster: discovery.read_release(each) for cluster, each in versions.items()}
        described = [each for each in versions if discovery.describes_fields(versions[each])]
        if not path:
            documents = discovery.merge_schemas(indexes, releases, described)
            return _tagged(context.http, discovery.schema_index(documents), JSON)
        wanted = context.info.query.get("hash")
        picked = discovery.pick_schema(path, wanted, indexes, releases, described)
        if picked is None:
            return _unknown(context.http)
        link = next(each for each in links if each.cluster == picked.cluster)
        return await _pass_on(context, link, picked.url)


async def _pass_on(context: FleetContext, link: Link, target: str) -> Response | None:
    identity = context.identity_for(link)
    passage = Passage(link.connection, target, identity, link.is_hub, context.hold)
    return await relay(context.http, passage)


def _resource_list(api: FleetApi, served: GroupVersion) -> Object | None:
    found = api.find_version(served)
    return None if found is None else discovery_documents.resource_list(served.group, found)


def _root(http: RequestContext, api: FleetApi, *, is_core: bool) -> Response:
    for sentence in api.disagreements:
        http.warn(sentence)
    wanted = aggregated_version(http.header("accept"))
    if wanted:
        groups = [each for each in api.groups if (each.name == "") is is_core]
        kind, group = discovery_documents.AGGREGATED_KIND, discovery_documents.AGGREGATED_GROUP
        media_type = f"{JSON};g={group};v={wanted};as={kind}"
        return _tagged(http, discovery_documents.aggregated(groups, wanted), media_type)
    if is_core:
        address = http.header("host")
        return value_response(http, 200, discovery_documents.core_versions(api.groups, address))
    return value_response(http, 200, discovery_documents.group_list(api.groups))


def _unknown(http: RequestContext) -> Response:
    return text_response(http, 404, "404 page not found\n")


def _tagged(http: RequestContext, document: Object, media_type: str) -> Response:
    """Answer with a document that clients keep, and ask about by its tag: each caller their own.

    What is served depends on which clusters somebody reaches: nobody in between may keep it.
    """
    body = msgspec.json.encode(document)
    tag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
    headers = [
        *headers_for(http, media_type),
        ("ETag", tag),
        ("Vary", "Accept"),
    ]
    if http.header("if-none-match") == tag:
        return Response(304, headers)
    return Response(200, headers, body)
