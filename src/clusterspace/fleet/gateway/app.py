"""Mounts the flow under the gateway's URL space: a call to its route, its route to its answer."""

from dataclasses import replace
from functools import cache

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.authorize import refusal
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.requests import Request
from clusterspace.apiserver.http.users import UNAUTHENTICATED
from clusterspace.fleet.gateway.answers.asking import Asking, Fleet
from clusterspace.fleet.gateway.answers.documents import Documents
from clusterspace.fleet.gateway.answers.every import list_every
from clusterspace.fleet.gateway.answers.every_watch.watch import watch_every
from clusterspace.fleet.gateway.answers.follow_ups import kept_in_place
from clusterspace.fleet.gateway.answers.one import answer_one
from clusterspace.fleet.gateway.answers.reviews import answer_review, is_review
from clusterspace.fleet.gateway.answers.search import answer_found
from clusterspace.fleet.gateway.flow import BodyNames, Reach, Route, Subject
from clusterspace.fleet.gateway.identity import proxy_request
from clusterspace.fleet.gateway.renaming import inbound
from clusterspace.fleet.gateway.routes import QUESTIONS, FleetRequest, read_fleet_request, route_for


def read_fleet_info(request: Request) -> RequestInfo:
    """Return what a request asks, without the words that say of which cluster."""
    return read_fleet_request(request.method, request.path, request.query).info


class FleetApp:
    """Answers authenticated calls; what they may do is for each cluster to decide."""

    def __init__(self, fleet: Fleet, documents: Documents) -> None:
        self._fleet = fleet
        self._documents = documents

    async def __call__(self, context: RequestContext) -> Response | None:
        """Answer a call; what clusters answered counts until the client has it."""
        hold = self._fleet.memory.open_hold(context.user.name)
        context.request.after_answer(hold.close)
        return await self._answer(replace(await self._route(context), hold=hold))

    async def _answer(self, asking: Asking) -> Response | None:
        route = asking.route
        if is_review(route):
            return await answer_review(asking)
        if route.reach is Reach.ONE:
            return await answer_one(asking, route.naming)
        if not route.info.is_resource:
            return await self._documents.answer(asking)
        if route.reach is not Reach.EVERY:
            return await answer_found(asking)
        if route.info.is_watch:
            return await watch_every(asking)
        return await list_every(asking)

    async def _route(self, context: RequestContext) -> Asking:
        raw = context.request
        request = read_fleet_request(raw.method, raw.path, raw.query)
        body = await self._body_of(context, request)

        @cache
        def body_names() -> BodyNames:
            return inbound.names_in(body, context.header("content-type"), Subject.of(request.info))

        federation = self._fleet.federation
        context.cluster = request.clusterspace or ""  # for the record, if there is no route

        def route_named() -> tuple[Route, str]:
            route = route_for(request, federation=federation, body_names=body_names)
            is_made = bool(body) and request.info.group not in QUESTIONS
            return route, body_names().name if is_made else ""

        route, context.new_name = await context.run(route_named)
        asking = kept_in_place(Asking(self._fleet, context, request, route))
        context.cluster = asking.route.naming.cluster
        return asking

    async def _body_of(self, context: RequestContext, request: FleetRequest) -> bytes:
        """Return the body of a create: nothing else says what the new object is called."""
        is_create = request.info.verb == "create" and not request.info.name
        if request.is_prefix or not is_create:
            return b""
        if UNAUTHENTICATED in context.user.groups:
            # A body takes memory and a place in flight for as long as it is sent. A stranger who
            # may neither create such a thing on the hub nor reach a member is refused before that.
            reviews, user = self._fleet.reviews, context.user
            decision = await reviews.decide(user, request.info)
            reach = proxy_request("create", request.clusterspace or "")
            if not decision.allowed and not (await reviews.decide(user, reach)).allowed:
                raise refusal(user, request.info, decision.reason)
        return await context.read_body()
