"""How many requests of which kind, how they ended, and how long they took."""

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.telemetry import metrics
from clusterspace.telemetry.metrics import RequestLabels


class Measure:
    """The outermost step: it sees every answer, refusals included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Count and time the call."""
        started = self._clock.monotonic()
        response = await rest(context)
        labels = context.labels or RequestLabels(context.info.verb)
        code = 200 if response is None else response.status
        metrics.request_finished(labels, code, self._clock.monotonic() - started)
        return response
