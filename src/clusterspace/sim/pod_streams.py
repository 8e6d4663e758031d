"""The doors into a pod: log, exec, attach and port-forward, each from its request to its end."""

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import headers_for
from clusterspace.apiserver.http.streams import Stream
from clusterspace.errors import BadRequest
from clusterspace.kube.objects import Object, name_of, uid_of
from clusterspace.sim.containers import Containers, running_place
from clusterspace.sim.listeners import PodListeners
from clusterspace.sim.logs import LINE_SECONDS, ContainerLog, LogRequest, choose_container
from clusterspace.sim.mirror import Mirror, key_of
from clusterspace.sim.pod_states import phase_of
from clusterspace.sim.streams.port_forwards import serve_port_forward
from clusterspace.sim.streams.remote_commands import serve_command
from clusterspace.sim.streams.terminals import Terminal, Wanted


class PodStreams:
    """Answers requests for what a pod says and does; the pod has been found already."""

    def __init__(self, containers: Containers, mirror: Mirror, clock: Clock) -> None:
        self._containers = containers
        self._mirror = mirror
        self._clock = clock

    async def log(self, context: RequestContext, pod: Object) -> Response | None:
        """Answer GET on `pods/log`: all there is, and with `follow` what comes after."""
        request = LogRequest.read(context.info.query)
        container = choose_container(pod, context.info.query.get("container"))
        if request.previous:
            raise BadRequest(
                f'previous terminated container "{container}" in pod "{name_of(pod)}" not found'
            )
        log, now = ContainerLog.of(pod, container), self._clock.now()
        first, last = log.first_line(request, now), log.count(now)
        text = b"".join(log.lines(first, last, with_time=request.timestamps))
        text = text[: request.limit_bytes]
        headers = headers_for(context, "text/plain")
        if not request.follow or context.info.method == "HEAD":
            return Response(200, headers, text)
        stream = context.request.start_stream(200, headers)
        stream.be_patient()
        stream.write(text)
        room = None if request.limit_bytes is None else request.limit_bytes - len(text)
        await self._follow(stream, pod, container, last, request, room)
        stream.end()
        return None

    async def _follow(  # noqa: PLR0913 - one log being followed, all of it named
        self,
        stream: Stream,
        pod: Object,
        container: str,
        number: int,
        request: LogRequest,
        room: int | None,
    ) -> None:
        """Write lines as their time comes, until the container ends or the pod is gone."""
        while stream.is_open and (room is None or room > 0):
            held = self._mirror.find(key_of(pod))
            if held is None or uid_of(held) != uid_of(pod):
                return
            log, now = ContainerLog.of(held, container), self._clock.now()
            for line in log.lines(number, log.count(now), with_time=request.timestamps):
                stream.write(line[:room])
                room = None if room is None else max(0, room - len(line))
            number = max(number, log.count(now))
            await stream.drain()
            if log.ended is not None:
                return
            await self._clock.sleep(max(LINE_SECONDS / 4, log.time_of(number) - now))

    async def execute(self, context: RequestContext, pod: Object) -> None:
        """Answer `pods/exec`."""
        query = context.info.query
        place = running_place(pod, query.get("container"))
        command = query.get_all("command")
        if not command:
            raise BadRequest("you must specify at least one command for the container")

        async def program(terminal: Terminal, wanted: Wanted) -> int:
            return await self._containers.execute(place, command, terminal, wanted)

        await serve_command(context, program)

    async def attach(self, context: RequestContext, pod: Object) -> None:
        """Answer `pods/attach`."""
        place = running_place(pod, context.info.query.get("container"))

        def is_there() -> bool:
            held = self._mirror.find(key_of(pod))
            return held is not None and uid_of(held) == uid_of(pod)

        async def program(terminal: Terminal, wanted: Wanted) -> int:
            return await self._containers.attach(place, is_there, terminal, wanted)

        await serve_command(context, program)

    async def port_forward(self, context: RequestContext, pod: Object) -> None:
        """Answer `pods/portforward`."""
        if phase_of(pod) != "Running":
            raise BadRequest(
                f"unable to forward port because pod is not running. Current status={phase_of(pod)}"
            )
        await serve_port_forward(context, PodListeners(pod))
