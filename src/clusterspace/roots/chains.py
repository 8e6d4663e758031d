"""The steps a request to the hub or to the fleet goes through, in the order it meets them."""

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.app import RequireScope
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.http.audit_events import Audit
from clusterspace.apiserver.http.chain import (
    InFlightLimits,
    Measure,
    Recheck,
    Step,
    catch_errors,
    chain,
    deadlines,
    handler_of,
)
from clusterspace.apiserver.http.context import RequestHandler
from clusterspace.apiserver.http.guards import (
    Authenticate,
    Authenticator,
    Authorize,
    Authorizer,
    Impersonate,
)
from clusterspace.apiserver.http.messages import Handler
from clusterspace.apiserver.verbs.proxy import read_hub_info
from clusterspace.fleet.gateway.routes import read_fleet_info
from clusterspace.roots.audit_logs import Auditing


def hub_handler(  # noqa: PLR0913 - what the steps of one chain work with
    app: RequestHandler,
    catalog: Catalog,
    authenticator: Authenticator,
    authorizer: Authorizer,
    audit: Auditing,
    clock: Clock,
    recheck: Recheck | None = None,
    limits: Step | None = None,
    narrowing: Step | None = None,
) -> Handler:
    """Return the handler of the hub's requests: every step, and the app at the end.

    `limits` is the step that says how many requests are worked on at once, and whose; `narrowing`
    one that answers some lists for their caller alone.
    """
    answer = chain(
        (
            Measure(clock),
            catch_errors,
            deadlines,
            Authenticate(authenticator, audit.failed_logins),
            Audit(clock, audit.write, audit.policy, room=audit.room, written=audit.written),
            Impersonate(authorizer),
            limits or InFlightLimits(),
            *((narrowing,) if narrowing is not None else ()),
            RequireScope(catalog, authorizer),
            Authorize(authorizer),
            *((recheck,) if recheck is not None else ()),
        ),
        app,
    )
    return handler_of(answer, read_hub_info)


def hub_recheck(authenticator: Authenticator, authorizer: Authorizer, clock: Clock) -> Recheck:
    """Return the step that asks again what let long answers in; its `run` must be kept."""
    guards = (Authenticate(authenticator), Impersonate(authorizer), Authorize(authorizer))
    return Recheck(guards, clock)


def fleet_handler(  # noqa: PLR0913 - what the steps of one chain work with
    app: RequestHandler,
    authenticator: Authenticator,
    authorizer: Authorizer,
    audit: Auditing,
    clock: Clock,
    recheck: Recheck | None = None,
    limits: Step | None = None,
    rules: Step | None = None,
) -> Handler:
    """Return the handler of the fleet's requests; it authorizes nothing but impersonation.

    Each cluster authorizes what is asked of it. `rules` is a step that some requests meet before
    anybody asks whose they are.
    """
    answer = chain(
        (
            Measure(clock),
            catch_errors,
            deadlines,
            *((rules,) if rules is not None else ()),
            Authenticate(authenticator, audit.failed_logins),
            Audit(
                clock,
                audit.write,
                audit.policy,
                room=audit.room,
                written=audit.written,
                answers_of_members=True,
            ),
            Impersonate(authorizer),
            limits or InFlightLimits(),
            *((recheck,) if recheck is not None else ()),
        ),
        app,
    )
    return handler_of(answer, read_fleet_info)


def fleet_recheck(authenticator: Authenticator, authorizer: Authorizer, clock: Clock) -> Recheck:
    """Return the step that asks the hub again who reads long answers; its `run` must be kept."""
    guards = (Authenticate(authenticator), Impersonate(authorizer))
    return Recheck(guards, clock)
