"""What is about the fleet itself: discovery, schemas, version, health."""

import hashlib
from dataclasses import dataclass
from typing import Final

import msgspec

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.authorize import refusal
from clusterspace.apiserver.http.negotiation import JSON, aggregated_version
from clusterspace.apiserver.http.relays import Passage, relay
from clusterspace.apiserver.http.responses import headers_for, text_response, value_response
from clusterspace.errors import ClusterError
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.answers.surveys import Surveys
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.merge import discovery
from clusterspace.fleet.gateway.merge.discovery import FleetApi
from clusterspace.kube import discovery_documents, statuses
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion
from clusterspace.telemetry import metrics

HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})


class Documents:
    """Answers what names no resource."""

    def __init__(self, surveys: Surveys) -> None:
        self._surveys = surveys
        self.is_ready = False
        """Whether /readyz says yes."""

    async def answer(self, asking: Asking) -> Response | None:
        """Answer a GET for a path that is no resource."""
        context, path = asking.context, asking.route.info.path
        if context.info.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        if path in HEALTH:
            return self._health(context, path)
        decision = await asking.fleet.reviews.decide(context.user, asking.route.info)
        if not decision.allowed:
            raise refusal(context.user, asking.route.info, decision.reason)
        if path == "/metrics":
            return Response(200, headers_for(context, metrics.CONTENT_TYPE), metrics.render())
        return await self._of_fleet(asking, path.strip("/").split("/"))

    def _health(self, context: RequestContext, path: str) -> Response:
        if path == "/readyz" and not self.is_ready:
            raise statuses.unavailable("the fleet API server is starting or stopping")
        return text_response(context, 200, "ok")

    async def _of_fleet(self, asking: Asking, segments: list[str]) -> Response | None:
        reached = await _reach(asking)
        links = reached.links
        match segments:
            case ["version"]:
                return await self._version(asking.context, links)
            case ["openapi", "v2"]:
                return await self._pass_on(asking, links[0], asking.context.request.path)
            case ["openapi", "v3"]:
                return await self._schema_index(asking.context, links)
            case ["openapi", "v3", *document]:
                return await self._schema(asking, links, "/".join(document))
            case ["api" | "apis", *_]:
                return _discover(asking.context, await self._api(reached), segments)
            case _:
                return _unknown(asking.context)

    async def _api(self, reached: "_Reached") -> FleetApi:
        return discovery.merge(await self._surveys.served.of(reached.links, reached.silent))

    async def _version(self, context: RequestContext, links: list[Link]) -> Response:
        found = discovery.merge_releases(await self._surveys.versions.of(links))
        if found is None:
            raise statuses.unavailable("no cluster tells its version")
        return value_response(context, 200, found)

    async def _schema_index(self, context: RequestContext, links: list[Link]) -> Response:
        indexes = await self._surveys.schemas.of(links)
        versions = await self._surveys.versions.of(links)
        known = {cluster: discovery.read_release(each) for cluster, each in versions.items()}
        return _tagged(
            context, discovery.schema_index(discovery.merge_schemas(indexes, known)), JSON
        )

    async def _schema(self, asking: Asking, links: list[Link], path: str) -> Response | None:
        indexes = await self._surveys.schemas.of(links)
        versions = await self._surveys.versions.of(links)
        known = {cluster: discovery.read_release(each) for cluster, each in versions.items()}
        wanted = asking.route.info.query.get("hash")
        picked = discovery.pick_schema(path, wanted, indexes, known)
        if picked is None:
            return _unknown(asking.context)
        link = next(each for each in links if each.cluster == picked.cluster)
        return await self._pass_on(asking, link, picked.url)

    async def _pass_on(self, asking: Asking, link: Link, target: str) -> Response | None:
        identity = asking.identity_for(link)
        passage = Passage(link.connection, target, identity, link.is_hub, asking.hold)
        return await relay(asking.context, passage)


@dataclass(frozen=True, slots=True)
class _Reached:
    """The clusters the caller may reach: those that can be asked, and those that cannot now."""

    links: list[Link]
    silent: tuple[str, ...]


async def _reach(asking: Asking) -> _Reached:
    """Return the ways to all clusters the caller may reach, the control plane among them."""
    targets = await asking.targets(asking.fleet.directory.everybody())
    silent = [each.cluster for each in targets.skipped if isinstance(each.error, ClusterError)]
    return _Reached(await asking.links(targets.chosen), tuple(silent))


def _discover(context: RequestContext, api: FleetApi, segments: list[str]) -> Response:
    match segments:
        case ["api" | "apis"]:
            return _root(context, api, is_core=segments == ["api"])
        case ["apis", name]:
            group = api.find_group(name)
            return _found(context, discovery_documents.group_document(group) if group else None)
        case ["api", version]:
            return _version_list(context, api, GroupVersion("", version))
        case ["apis", name, version]:
            return _version_list(context, api, GroupVersion(name, version))
        case _:
            return _unknown(context)


def _root(context: RequestContext, api: FleetApi, *, is_core: bool) -> Response:
    for sentence in api.disagreements:
        context.warn(sentence)
    wanted = aggregated_version(context.header("accept"))
    if wanted:
        groups = [each for each in api.groups if (each.name == "") is is_core]
        kind, group = discovery_documents.AGGREGATED_KIND, discovery_documents.AGGREGATED_GROUP
        media_type = f"{JSON};g={group};v={wanted};as={kind}"
        return _tagged(context, discovery_documents.aggregated(groups, wanted), media_type)
    if is_core:
        address = context.header("host")
        return value_response(context, 200, discovery_documents.core_versions(api.groups, address))
    return value_response(context, 200, discovery_documents.group_list(api.groups))


def _version_list(context: RequestContext, api: FleetApi, served: GroupVersion) -> Response:
    found = api.find_version(served)
    body = None if found is None else discovery_documents.resource_list(served.group, found)
    return _found(context, body)


def _found(context: RequestContext, body: Object | None) -> Response:
    return _unknown(context) if body is None else value_response(context, 200, body)


def _unknown(context: RequestContext) -> Response:
    return text_response(context, 404, "404 page not found\n")


def _tagged(context: RequestContext, document: Object, media_type: str) -> Response:
    """Answer with a document that clients keep, and ask about by its tag."""
    body = msgspec.json.encode(document)
    tag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
    headers = [
        *(pair for pair in headers_for(context, media_type) if pair[0] != "Cache-Control"),
        ("Cache-Control", "public"),
        ("ETag", tag),
        ("Vary", "Accept"),
    ]
    if context.header("if-none-match") == tag:
        return Response(304, headers)
    return Response(200, headers, body)
