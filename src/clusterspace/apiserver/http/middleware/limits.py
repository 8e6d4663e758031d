"""A budget of time for short requests, none for watches; and how many are worked on at once."""

import asyncio
from collections import Counter
from typing import Final

from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.users import UNAUTHENTICATED
from clusterspace.errors import BadRequest, MalformedDuration
from clusterspace.kube import statuses
from clusterspace.kube.times import seconds_of

REQUEST_SECONDS: Final = 60.0
"""As kube-apiserver; clients give up at about the same time."""

LONG_RUNNING: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})

_USERS_SHARE: Final = 2
"""One user has at most half of the places. A request keeps its place while its body is on the way,
which may take as long as its deadline: whoever sends slowly must not keep all others out."""
_STRANGERS_SHARE: Final = 8
"""All who are not authenticated have an eighth of them together: they can make up any name."""


def is_long_running(context: RequestContext) -> bool:
    """Whether a request may stay open for as long as both sides like."""
    return context.info.is_watch or context.info.subresource in LONG_RUNNING


async def deadlines(context: RequestContext, rest: RequestHandler) -> Response | None:
    """Give up on a short request when its time is over."""
    if is_long_running(context):
        return await rest(context)
    seconds, asked = REQUEST_SECONDS, context.info.query.get("timeout")
    if asked:
        try:
            seconds = seconds_of(asked)
        except MalformedDuration as error:
            why = f"invalid timeout specified in the request URL - {error.message}"
            raise BadRequest(why) from error
        seconds = min(seconds, REQUEST_SECONDS) if seconds > 0 else REQUEST_SECONDS
    try:
        async with asyncio.timeout(seconds):
            return await rest(context)
    except TimeoutError as error:
        raise statuses.timed_out("request did not complete within the allotted timeout") from error


class InFlightLimits:
    """Counts short requests in flight; reads and writes apart, so that neither starves.

    The user who counts is the one acted as: what the gateway passes on to the hub for a hundred
    people is a hundred shares, and what it asks in its own name is one more.
    """

    def __init__(self, *, reads: int = 400, writes: int = 200) -> None:
        self._limits = {False: reads, True: writes}
        self._in_flight: Counter[bool] = Counter()
        self._by_user: Counter[tuple[bool, str]] = Counter()

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Work on the request if there is room, else answer 429 with a time to come back."""
        if is_long_running(context):
            return await rest(context)
        is_write, user = context.info.is_write, context.user
        is_stranger = UNAUTHENTICATED in user.groups
        limit, key = self._limits[is_write], (is_write, "" if is_stranger else user.name)
        share = max(1, limit // (_STRANGERS_SHARE if is_stranger else _USERS_SHARE))
        if self._in_flight[is_write] >= limit or self._by_user[key] >= share:
            raise statuses.too_many_requests()
        self._in_flight[is_write] += 1
        self._by_user[key] += 1
        try:
            return await rest(context)
        finally:
            self._in_flight[is_write] -= 1
            self._by_user[key] -= 1
            if not self._by_user[key]:
                del self._by_user[key]  # there is no end of names, and few at a time
