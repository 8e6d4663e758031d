"""The steps a request to the hub or to the fleet goes through, in the order it meets them."""

from collections.abc import Callable
from typing import TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.app import RequireScope
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.http.context import RequestContext, RequestHandler, chain
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.audit import AUDITED_READS, Audit, AuditSink
from clusterspace.apiserver.http.middleware.authenticate import (
    Authenticate,
    Authenticator,
    FailedLogins,
)
from clusterspace.apiserver.http.middleware.authorize import Authorize, Authorizer, Impersonate
from clusterspace.apiserver.http.middleware.limits import InFlightLimits, deadlines
from clusterspace.apiserver.http.middleware.outcomes import Measure, catch_errors
from clusterspace.apiserver.http.middleware.recheck import Recheck
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.requests import Handler, Request
from clusterspace.apiserver.http.responses import error_response
from clusterspace.apiserver.verbs.proxy import read_hub_info
from clusterspace.errors import ApiError
from clusterspace.fleet.gateway.app import read_fleet_info
from clusterspace.fleet.gateway.identity import RECHECK_SECONDS
from clusterspace.telemetry.logs import accept_request_id, request_id_of

ReadInfo: TypeAlias = Callable[[Request], RequestInfo]
"""Reads what a request asks from its method and URL; an ApiError when it cannot be read."""


def hub_handler(  # noqa: PLR0913 - what the steps of one chain work with
    app: RequestHandler,
    catalog: Catalog,
    authenticator: Authenticator,
    authorizer: Authorizer,
    audit: AuditSink,
    failed_logins: FailedLogins,
    clock: Clock,
    recheck: Recheck | None = None,
    audited_reads: frozenset[str] = AUDITED_READS,
) -> Handler:
    """Return the handler of the hub's requests: every step, and the app at the end."""
    answer = chain(
        (
            Measure(clock),
            catch_errors,
            deadlines,
            Authenticate(authenticator, failed_logins),
            Audit(clock, audit, audited_reads),
            Impersonate(authorizer),
            InFlightLimits(),
            RequireScope(catalog, authorizer),
            Authorize(authorizer),
            *((recheck,) if recheck is not None else ()),
        ),
        app,
    )
    return _handler_of(answer, read_hub_info)


def hub_recheck(authenticator: Authenticator, authorizer: Authorizer, clock: Clock) -> Recheck:
    """Return the step that asks again what let long answers in; its `run` must be kept."""
    guards = (Authenticate(authenticator), Impersonate(authorizer), Authorize(authorizer))
    return Recheck(guards, clock)


def fleet_handler(  # noqa: PLR0913 - what the steps of one chain work with
    app: RequestHandler,
    authenticator: Authenticator,
    authorizer: Authorizer,
    audit: AuditSink,
    failed_logins: FailedLogins,
    clock: Clock,
    recheck: Recheck | None = None,
    audited_reads: frozenset[str] = AUDITED_READS,
) -> Handler:
    """Return the handler of the fleet's requests; it authorizes nothing but impersonation.

    Each cluster authorizes what is asked of it.
    """
    answer = chain(
        (
            Measure(clock),
            catch_errors,
            deadlines,
            Authenticate(authenticator, failed_logins),
            Audit(clock, audit, audited_reads),
            Impersonate(authorizer),
            InFlightLimits(),
            *((recheck,) if recheck is not None else ()),
        ),
        app,
    )
    return _handler_of(answer, read_fleet_info)


def fleet_recheck(authenticator: Authenticator, authorizer: Authorizer, clock: Clock) -> Recheck:
    """Return the step that asks the hub again who reads long answers; its `run` must be kept."""
    guards = (Authenticate(authenticator), Impersonate(authorizer))
    return Recheck(guards, clock, every_seconds=RECHECK_SECONDS)


def _handler_of(answer: RequestHandler, read_info: ReadInfo) -> Handler:
    """Return the handler that reads a request's URL once, gives it an id, and has it answered."""

    async def handle(request: Request) -> Response | None:
        request_id = accept_request_id(request.headers.get("audit-id"))
        try:
            info = read_info(request)
        except ApiError as error:
            unread = RequestInfo(method=request.method, path="", verb="")
            return error_response(RequestContext(request, unread, request_id), error)
        with request_id_of(request_id):
            return await answer(RequestContext(request, info, request_id))

    return handle
