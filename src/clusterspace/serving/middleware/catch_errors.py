"""The only place an exception becomes a Status body."""

import structlog

from clusterspace.errors import ApiError, StoreClosed, StoreError, StoreFull
from clusterspace.kube import statuses
from clusterspace.serving.calls import Call, CallHandler
from clusterspace.serving.messages import Response
from clusterspace.serving.responses import error_response

_log = structlog.get_logger(__name__)


async def catch_errors(call: Call, rest: CallHandler) -> Response | None:
    """Answer refusals as they are; log a bug once, with its traceback, and answer 500."""
    try:
        return await rest(call)
    except ApiError as error:
        return error_response(call, error)
    except StoreError as error:
        return error_response(call, _store_refusal(error))
    except ConnectionError:
        if not call.request.is_disconnected:
            raise
        return None  # the client has gone: there is nobody to tell
    except Exception:  # noqa: BLE001 - the edge: a bug in one request must not end the others
        _log.exception(
            "request failed",
            request_id=call.request_id,
            method=call.info.method,
            path=call.info.path,
        )
        return error_response(call, statuses.internal(f"request {call.request_id} failed"))


def _store_refusal(error: StoreError) -> ApiError:
    if isinstance(error, StoreClosed):
        return statuses.unavailable("the server is shutting down")
    if isinstance(error, StoreFull):
        return statuses.internal(f"the store is out of disk space: {error}")
    return statuses.internal(str(error))
