"""Ends long answers whose caller may no longer have them: watches, logs, shells, tunnels.

A short request is over before anybody can take a right away. A watch lives for an hour, so the
questions that let it in are asked again every few seconds, from its credentials on: a token that
expired, an account that was deleted and a binding that was removed all end what they had opened.

Only a clear no ends anything. Who cannot be asked for now (the gateway asks the hub) changes
nothing, or every stream of a fleet would break with one restart of its hub.
"""

import asyncio
import copy
from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.context import RequestContext, RequestHandler, Step, chain
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.limits import is_long_running
from clusterspace.errors import ApiError, ClusterError, Forbidden, StoreError, Unauthorized
from clusterspace.kube import statuses

_log = structlog.get_logger(__name__)

RECHECK_SECONDS: Final = 5.0
"""Between two rounds, where answers come from memory: about 50 µs for each open request. A right
that was taken away is to end what it had opened within ten seconds."""

_AT_ONCE: Final = 16
"""How many requests are asked about at a time: one that waits for the hub does not hold up others.
"""


class Recheck:
    """The step that knows every long-running request, and asks about each again and again.

    It is the last one before the app: what it knows has been let in by the same `guards`.
    """

    def __init__(
        self, guards: Sequence[Step], clock: Clock, *, every_seconds: float = RECHECK_SECONDS
    ) -> None:

        async def admitted(_context: RequestContext) -> None:
            """Answer nothing: that it was reached is what counts."""

        self._admit = chain(guards, admitted)
        self._clock = clock
        self._every_seconds = every_seconds
        self._open: set[RequestContext] = set()

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Keep the request in sight for as long as its answer takes."""
        if not (is_long_running(context) or context.request.is_upgrade):
            return await rest(context)
        self._open.add(context)
        try:
            return await rest(context)
        finally:
            self._open.discard(context)

    async def run(self) -> None:
        """Ask about every open request, round after round, until cancelled."""
        while True:
            await self._clock.sleep(self._every_seconds)
            await self.look()

    async def look(self) -> None:
        """Ask about every open request once, and end those that are no longer allowed."""
        # One iterator for all tasks: each takes the next request when it is done with its last.
        requests = iter(tuple(self._open))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE, len(self._open))):
                group.create_task(self._look_at(requests), name="recheck open requests")

    async def _look_at(self, requests: Iterator[RequestContext]) -> None:
        for context in requests:
            # The same request, as if it came now: with the headers the chain has taken away since.
            request = copy.copy(context.request)
            request.headers = context.received
            again = RequestContext(request, context.info, context.request_id)
            try:
                await self._admit(again)
                if again.user != context.user:
                    raise statuses.unauthorized()  # the credential is somebody else's now
                for require in context.guards:
                    await require()
            except (Unauthorized, Forbidden) as refusal:
                # It may have ended by itself while we asked.
                if context in self._open:
                    _log.info("long answer ended", user=context.user.name, reason=refusal.message)
                    context.end(refusal)
            except (ApiError, ClusterError, StoreError) as error:
                _log.debug("rights could not be asked for", reason=str(error))
            # Questions that are answered from memory never wait: let others have a turn.
            await asyncio.sleep(0)
