"""A budget for short requests; none for watches and streams."""

import asyncio
from typing import Final

from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.errors import BadRequest, MalformedDuration
from clusterspace.kube import statuses
from clusterspace.kube.durations import seconds_of

REQUEST_SECONDS: Final = 60.0
"""As kube-apiserver; clients give up at about the same time."""

LONG_RUNNING: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})


def is_long_running(context: RequestContext) -> bool:
    """Whether a request may stay open for as long as both sides like."""
    return context.info.is_watch or context.info.subresource in LONG_RUNNING


async def deadlines(context: RequestContext, rest: RequestHandler) -> Response | None:
    """Give up on a short request when its time is over."""
    if is_long_running(context):
        return await rest(context)
    seconds = _budget(context.info.query.get("timeout"))
    try:
        async with asyncio.timeout(seconds):
            return await rest(context)
    except TimeoutError as error:
        raise statuses.timed_out("request did not complete within the allotted timeout") from error


def _budget(asked: str) -> float:
    if not asked:
        return REQUEST_SECONDS
    try:
        seconds = seconds_of(asked)
    except MalformedDuration as error:
        why = f"invalid timeout specified in the request URL - {error.message}"
        raise BadRequest(why) from error
    return min(seconds, REQUEST_SECONDS) if seconds > 0 else REQUEST_SECONDS
