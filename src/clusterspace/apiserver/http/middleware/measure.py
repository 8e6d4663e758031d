"""How many requests of which kind, how they ended, and how long they took."""

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.calls import Call, CallHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.telemetry import metrics
from clusterspace.telemetry.metrics import RequestLabels


class Measure:
    """The outermost step: it sees every answer, refusals included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, call: Call, rest: CallHandler) -> Response | None:
        """Count and time the call."""
        started = self._clock.monotonic()
        response = await rest(call)
        labels = call.labels or RequestLabels(call.info.verb)
        code = 200 if response is None else response.status
        metrics.request_finished(labels, code, self._clock.monotonic() - started)
        return response
