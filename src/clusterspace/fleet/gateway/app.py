"""Mounts the gateway under its URL space: a request to its route, its route to its answer."""

from dataclasses import replace
from functools import cache
from typing import Final

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.identities import AGENTS
from clusterspace.apis.tunnels import SUBRESOURCE
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.guards import refusal
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import CONNECTS, RequestInfo
from clusterspace.apiserver.http.users import UNAUTHENTICATED
from clusterspace.fleet.gateway import inbound
from clusterspace.fleet.gateway.answers.documents import Documents
from clusterspace.fleet.gateway.answers.list_all import list_all
from clusterspace.fleet.gateway.answers.reviews import answer_review
from clusterspace.fleet.gateway.answers.search import answer_search
from clusterspace.fleet.gateway.answers.single import answer_single, find_naming
from clusterspace.fleet.gateway.answers.watch_all import watch_all
from clusterspace.fleet.gateway.callers import proxy_request, tunnel_request
from clusterspace.fleet.gateway.fanout import Fleet, FleetContext
from clusterspace.fleet.gateway.routes import (
    QUESTIONS,
    BodyNames,
    FleetRequestInfo,
    Reach,
    Route,
    Subject,
    route_for,
)
from clusterspace.kube import statuses
from clusterspace.telemetry import metrics
from clusterspace.telemetry.metrics import RequestLabels

_MOST_LABELLED: Final = 1000
_SUBRESOURCES: Final = CONNECTS | {"binding", "eviction", "log", "scale", "status", "token"}


class _ServedResources:
    """The resources that some cluster has answered for: labels are made of these only.

    What a client makes up must not become a label, and a member that answers whatever is asked must
    not make them without end: after a thousand, requests for others are counted without a name.
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, str, str]] = set()

    def labels(self, info: RequestInfo, *, is_served: bool = False) -> RequestLabels:
        """Return the metric labels of a request; `is_served` says that a cluster answered it."""
        resource = (info.group, info.version, info.resource)
        if is_served and len(self._known) < _MOST_LABELLED:
            self._known.add(resource)
        if resource not in self._known:
            return RequestLabels(info.verb)
        scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
        subresource = info.subresource if info.subresource in _SUBRESOURCES else ""
        return RequestLabels(info.verb, *resource, subresource, scope)


_TUNNEL: Final = (
    CLUSTERS.group,
    CLUSTERS.version,
    CLUSTERS.resource,
    SUBRESOURCE,
    "resource",
)


def _is_tunnel(info: RequestInfo) -> bool:
    """Whether a request is for the tunnel of a cluster, at this server itself."""
    if not isinstance(info, FleetRequestInfo) or info.clusterspace is not None:
        return False
    kind = (info.group, info.version, info.resource, info.subresource)
    return kind == _TUNNEL[:4] and bool(info.name)


class FleetApp:
    """Answers authenticated requests; what they may do is for each cluster to decide."""

    def __init__(self, fleet: Fleet, documents: Documents) -> None:
        self._fleet = fleet
        self._documents = documents
        self._served = _ServedResources()

    async def __call__(self, http: RequestContext) -> Response | None:
        """Answer a request; what clusters answered counts until the client has it."""
        if _is_tunnel(http.info):
            await self._accept_tunnel(http)
            return None
        if AGENTS in http.user.groups:
            raise statuses.unauthorized()  # whatever let one in, there is nothing else for it here
        hold = self._fleet.memory.open_hold(http.user.name)
        http.request.after_answer(hold.close)
        context = FleetContext(self._fleet, http, await self._route(http), hold)
        info = context.route.info
        if not info.is_watch:
            response = await self._answer(context)
            is_served = info.is_resource and (response is None or response.status < 400)
            http.labels = self._served.labels(info, is_served=is_served)
            return response
        # Who watches has listed before, so what it watches is known by then.
        http.labels = labels = self._served.labels(info)
        metrics.watch_started(labels.group, labels.version, labels.resource)
        try:
            return await self._answer(context)
        finally:
            metrics.watch_ended(labels.group, labels.version, labels.resource)

    async def _accept_tunnel(self, http: RequestContext) -> None:
        """Carry the tunnel of a cluster for its agent, for as long as it may have one."""
        fleet, cluster = self._fleet, http.info.name
        http.cluster = cluster

        async def require() -> None:
            decision = await fleet.reviews.decide(http.user, tunnel_request(cluster))
            if not decision.allowed:
                raise refusal(http.user, tunnel_request(cluster), decision.reason)

        await require()
        fleet.directory.require_tunnelled(cluster)
        http.guards.append(require)
        http.labels = RequestLabels("create", *_TUNNEL)
        await fleet.directory.tunnels.accept(http, cluster)

    async def _answer(self, context: FleetContext) -> Response | None:
        route = context.route
        if route.info.search is not None:
            return await answer_search(context, route.info.search)
        if route.is_review:
            return await answer_review(context)
        if route.reach is Reach.ONE:
            return await answer_single(context, route.naming)
        if not route.info.is_resource:
            return await self._documents.answer(context)
        if route.reach is not Reach.ALL:
            if naming := await find_naming(context):
                return await answer_single(context, naming)
            # Nothing is selected: then the list is of nothing in every cluster, and has the version
            # to watch from until something is.
            context = replace(context, route=replace(route, reach=Reach.ALL))
        if route.info.is_watch:
            return await watch_all(context)
        return await list_all(context)

    async def _route(self, http: RequestContext) -> Route:
        info = http.info
        if not isinstance(info, FleetRequestInfo):
            raise TypeError("the chain in front of a fleet reads requests with read_fleet_info")
        body = b""
        is_passed_on = info.is_prefix or info.search is not None
        if info.verb == "create" and not info.name and not is_passed_on:
            if UNAUTHENTICATED in http.user.groups:
                # A body takes memory and a place in flight for as long as it is sent. A stranger
                # who may neither create such a thing on the hub nor reach a member is refused now.
                reviews = self._fleet.reviews
                decision = await reviews.decide(http.user, info)
                reach = proxy_request("create", info.clusterspace or "")
                if not decision.allowed and not (await reviews.decide(http.user, reach)).allowed:
                    raise refusal(http.user, info, decision.reason)
            # Nothing else says what the new object is called, and thereby in which cluster.
            body = await http.read_body()

        http.cluster = info.clusterspace or ""  # for the record, if there is no route
        if body:
            route, http.new_name = await http.run(lambda: self._route_named(http, info, body))
        else:
            route = route_for(info, federation=self._fleet.federation)
        route = self._fleet.sessions.keep_in_place(http, route)
        http.cluster = route.naming.cluster
        return route

    def _route_named(
        self, http: RequestContext, info: FleetRequestInfo, body: bytes
    ) -> tuple[Route, str]:
        """Return the route of a create, and what its body calls the new object."""

        @cache
        def body_names() -> BodyNames:
            return inbound.names_in(body, http.header("content-type"), Subject.of(info))

        route = route_for(info, federation=self._fleet.federation, body_names=body_names)
        return route, body_names().name if info.group not in QUESTIONS else ""
