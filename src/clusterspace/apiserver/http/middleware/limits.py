"""How many requests are worked on at once; the rest are asked to come again."""

from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.deadlines import is_long_running
from clusterspace.kube import statuses


class InFlightLimits:
    """Counts short requests in flight; reads and writes apart, so that neither starves."""

    def __init__(self, *, reads: int = 400, writes: int = 200) -> None:
        self._room = {False: reads, True: writes}

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Work on the call if there is room, else answer 429 with a time to come back."""
        if is_long_running(context):
            return await rest(context)
        is_write = context.info.is_write
        if self._room[is_write] <= 0:
            raise statuses.too_many_requests()
        self._room[is_write] -= 1
        try:
            return await rest(context)
        finally:
            self._room[is_write] += 1
