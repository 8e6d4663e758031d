"""How requests end: counted and timed, and the only place an exception becomes a Status body."""

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import error_response
from clusterspace.errors import (
    ApiError,
    BadGateway,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    Details,
    ServiceUnavailable,
    StoreClosed,
    StoreError,
    StoreFull,
)
from clusterspace.kube import statuses
from clusterspace.telemetry import metrics
from clusterspace.telemetry.metrics import RequestLabels

_log = structlog.get_logger(__name__)


class Measure:
    """The outermost step: it sees every answer, refusals included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Count and time the request."""
        started = self._clock.monotonic()
        response = await rest(context)
        labels = context.labels or RequestLabels(context.info.verb)
        code = 200 if response is None else response.status
        metrics.request_finished(labels, code, self._clock.monotonic() - started)
        return response


async def catch_errors(context: RequestContext, rest: RequestHandler) -> Response | None:
    """Answer refusals as they are; log a bug once, with its traceback, and answer 500."""
    try:
        return await rest(context)
    except ApiError as error:
        return error_response(context, error)
    except StoreError as error:
        refused = statuses.internal(str(error))
        if isinstance(error, StoreClosed):
            refused = statuses.unavailable("the server is shutting down")
        elif isinstance(error, StoreFull):
            refused = statuses.internal(f"the store is out of disk space: {error}")
        return error_response(context, refused)
    except ClusterError as error:
        return error_response(context, cluster_refusal(error))
    except ConnectionError:
        if not context.request.is_disconnected:
            raise
        return None  # the client has gone: there is nobody to answer
    except Exception:  # noqa: BLE001 - the edge: a bug in one request must not end the others
        _log.exception(
            "request failed",
            request_id=context.request_id,
            method=context.info.method,
            path=context.info.path,
        )
        return error_response(context, statuses.internal(f"request {context.request_id} failed"))


def cluster_refusal(error: ClusterError) -> ApiError:
    """Return the refusal for a cluster that cannot be asked: never 404, which means "deleted".

    Clients repeat what is refused with a time to come back, writes too; so only what certainly
    had no effect gets one.
    """
    if isinstance(error, ClusterMisbehaved) and error.is_unfit:
        return BadGateway(str(error))
    if isinstance(error, ClusterTimeout):
        return statuses.timed_out(str(error))
    was_sent = not isinstance(error, ClusterUnreachable) or error.was_sent
    return ServiceUnavailable(str(error), Details(retry_after_seconds=0 if was_sent else 1))
