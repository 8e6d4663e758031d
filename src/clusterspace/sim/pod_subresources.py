"""The subresources of a pod that reach into its containers: log, exec, attach and port-forward.

A log is text that grows with time and is never stored. Line 7 of a container is the same whenever
somebody reads it: it is made from the container's name and the number 7. So a log needs no memory,
and a thousand followers see the same text. What exec runs is `shell/`, on files in memory.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver import forms
from clusterspace.apiserver.http.context import RequestContext, headers_for
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import Query
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, Verb
from clusterspace.errors import BadRequest, Malformed
from clusterspace.kube.objects import Object, find_at, name_of, uid_of
from clusterspace.kube.times import format_micro_time, parse_time
from clusterspace.sim.api import Mirror, key_of
from clusterspace.sim.containers import Containers, ProgramLog, Programs, Run
from clusterspace.sim.pods import containers_of, phase_of
from clusterspace.sim.streams.port_forwards import serve_port_forward
from clusterspace.sim.streams.remote_commands import StreamOptions, Terminal, serve_command

LINE_SECONDS: Final = 1.0
KEPT_LINES: Final = 10_000
"""As if older lines had been rotated away."""

_SAYINGS: Final = (
    "request served",
    "cache refreshed",
    "connection opened",
    "connection closed",
    "health checked",
    "queue drained",
    "configuration read",
    "nothing to do",
)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What a client wants to see of a log: PodLogOptions."""

    follow: bool = False
    timestamps: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    since_time: float | None = None

    @classmethod
    def read(cls, query: Query) -> "LogOptions":
        """Read the parameters of `pods/log`; BadRequest for what makes no sense."""
        since = query.get("sinceTime")
        try:
            since_time = parse_time(since) if since else None
        except Malformed as error:
            raise BadRequest(f"sinceTime: {error}") from error
        return cls(
            follow=query.is_true("follow"),
            timestamps=query.is_true("timestamps"),
            previous=query.is_true("previous"),
            tail_lines=_number(query, "tailLines", least=0),
            limit_bytes=_number(query, "limitBytes", least=1),
            since_seconds=_number(query, "sinceSeconds", least=1),
            since_time=since_time,
        )

    def since(self, now: float) -> float:
        """Return the time before which lines are left out."""
        if self.since_seconds is not None:
            return now - self.since_seconds
        return self.since_time or 0.0


def _number(query: Query, name: str, *, least: int) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not text.lstrip("-").isdigit() or not text.isascii() or int(text) < least:
        raise BadRequest(f"{name}: Invalid value: {text!r}: must be at least {least}")
    return int(text)


def choose_container(pod: Object, given: str) -> str:
    """Return the container that is meant; BadRequest in Kubernetes' words when there is none."""
    init_containers: list[Object] = find_at(pod, "spec", "initContainers") or []
    names = [str(each["name"]) for each in containers_of(pod)]
    if given:
        if given not in (*names, *(str(each["name"]) for each in init_containers)):
            raise BadRequest(f"container {given} is not valid for pod {name_of(pod)}")
        return given
    if len(names) != 1:
        raise BadRequest(
            f"a container name must be specified for pod {name_of(pod)}, "
            f"choose one of: [{' '.join(names)}]"
        )
    return names[0]


@dataclass(frozen=True, slots=True)
class ContainerLog:
    """The log of one container, from its start to its end or to now."""

    source: str
    started: float
    ended: float | None

    @classmethod
    def of(cls, pod: Object, container: str) -> "ContainerLog":
        """Find when a container ran; BadRequest when it has not started."""
        statuses: list[Object] = [
            *(find_at(pod, "status", "initContainerStatuses") or []),
            *(find_at(pod, "status", "containerStatuses") or []),
        ]
        status = next((each for each in statuses if each.get("name") == container), None)
        started = find_at(status, "state", "running", "startedAt")
        ended = find_at(status, "state", "terminated", "finishedAt")
        started = started or find_at(status, "state", "terminated", "startedAt")
        if not started:
            raise BadRequest(
                f'container "{container}" in pod "{name_of(pod)}" is waiting to start: '
                "ContainerCreating"
            )
        until = parse_time(str(ended)) if ended else None
        return cls(f"{uid_of(pod)}/{container}", parse_time(str(started)), until)

    def count(self, now: float) -> int:
        """Return how many lines there are by a time; the first comes at once."""
        until = now if self.ended is None else min(self.ended, now)
        return max(0, int((until - self.started) / LINE_SECONDS) + 1)

    def time_of(self, number: int) -> float:
        """Return when a line was written."""
        return self.started + number * LINE_SECONDS

    def next_after(self, written: int) -> float:
        """Return when the line behind so many will come."""
        return self.time_of(written)

    def line(self, number: int, *, with_time: bool = False) -> bytes:
        """Return one line of the log."""
        digest = hashlib.sha256(f"{self.source}/{number}".encode()).digest()
        saying = _SAYINGS[digest[0] % len(_SAYINGS)]
        text = f"{number:06d} {saying} ({digest[1:4].hex()})\n"
        stamp = f"{format_micro_time(self.time_of(number))} " if with_time else ""
        return f"{stamp}{text}".encode()

    def first_line(self, options: LogOptions, now: float) -> int:
        """Return the number of the first line that is wanted."""
        count = self.count(now)
        first = max(0, count - KEPT_LINES)
        since = options.since(now)
        if since > self.started:
            first = max(first, int((since - self.started) / LINE_SECONDS))
        if options.tail_lines is not None:
            first = max(first, count - options.tail_lines)
        return min(first, count)

    def lines(self, first: int, last: int, *, with_time: bool) -> Iterator[bytes]:
        """Return the lines from one number up to another, which is left out."""
        return (self.line(number, with_time=with_time) for number in range(first, last))


class WrittenLog:
    """The log of a program that is run: what it wrote, and nothing else."""

    def __init__(self, log: ProgramLog, ended: float | None) -> None:
        self._log = log
        self.ended = ended

    @classmethod
    def of(cls, run: Run) -> "WrittenLog":
        """Return the log of one run, until its end or until now."""
        return cls(run.log, None if run.exit_code is None else run.ended)

    def count(self, now: float) -> int:
        """Return how many lines there are."""
        del now
        return self._log.count

    def next_after(self, written: int) -> float:
        """Return when to look again: nobody knows when a program writes."""
        del written
        return 0.0

    def first_line(self, options: LogOptions, now: float) -> int:
        """Return the number of the first line that is wanted."""
        first, count, since = self._log.first, self._log.count, options.since(now)
        while first < count and self._log.time_of(first) < since:
            first += 1
        return first if options.tail_lines is None else max(first, count - options.tail_lines)

    def lines(self, first: int, last: int, *, with_time: bool) -> Iterator[bytes]:
        """Return the lines from one number up to another, which is left out."""
        return self._log.lines(first, last, with_time=with_time)


# -- the subresources, each from its request to its end --------------------------------------------


class PodSubresources:
    """Answers requests for what a pod says and does; the pod has been found already."""

    def __init__(
        self, containers: Containers, programs: Programs, mirror: Mirror, clock: Clock
    ) -> None:
        self._containers = containers
        self._programs = programs
        self._mirror = mirror
        self._clock = clock

    def verbs(self) -> Mapping[tuple[str, str], Verb]:
        """Return the verbs of the subresources; to connect is to create, whatever the method."""
        return {
            ("/pods/log", "get"): _on_stored_pod(self.log),
            ("/pods/exec", "create"): _on_stored_pod(self.execute),
            ("/pods/attach", "create"): _on_stored_pod(self.attach),
            ("/pods/portforward", "create"): _on_stored_pod(self.port_forward),
        }

    async def log(self, context: RequestContext, pod: Object) -> Response | None:
        """Answer GET on `pods/log`: all there is, and with `follow` what comes after."""
        options = LogOptions.read(context.info.query)
        container = choose_container(pod, context.info.query.get("container"))
        run = self._programs.find(pod, container)
        if options.previous:
            run = None if run is None else run.previous
            if run is None:
                raise BadRequest(
                    f'previous terminated container "{container}" in pod "{name_of(pod)}" not found'
                )
        now = self._clock.now()
        log = ContainerLog.of(pod, container) if run is None else WrittenLog.of(run)
        first, written = log.first_line(options, now), log.count(now)
        text = b"".join(log.lines(first, written, with_time=options.timestamps))
        text = text[: options.limit_bytes]
        headers = headers_for(context, "text/plain")
        if not options.follow or context.info.method == "HEAD":
            return Response(200, headers, text)

        stream = context.request.start_stream(200, headers)
        stream.be_patient()
        stream.write(text)
        room = None if options.limit_bytes is None else options.limit_bytes - len(text)
        # Lines are written as their time comes, until the container ends or the pod is gone. The
        # pod is looked up anew each time: the one the request found is a picture of that moment.
        while stream.is_open and (room is None or room > 0):
            current = self._find_same(pod)
            if current is None:
                break
            now = self._clock.now()
            log = ContainerLog.of(current, container) if run is None else WrittenLog.of(run)
            for line in log.lines(written, log.count(now), with_time=options.timestamps):
                stream.write(line[:room])
                room = None if room is None else max(0, room - len(line))
            written = max(written, log.count(now))
            await stream.drain()
            if log.ended is not None:
                break
            await self._clock.sleep(max(LINE_SECONDS / 4, log.next_after(written) - now))
        stream.end()
        return None

    async def execute(self, context: RequestContext, pod: Object) -> None:
        """Answer `pods/exec`."""
        query = context.info.query
        container = _running_container(pod, query.get("container"))
        command = query.get_all("command")
        if not command:
            raise BadRequest("you must specify at least one command for the container")

        async def program(terminal: Terminal, options: StreamOptions) -> int:
            return await self._containers.execute(pod, container, command, terminal, options)

        await serve_command(context, program)

    async def attach(self, context: RequestContext, pod: Object) -> None:
        """Answer `pods/attach`: give back what is typed, or show the log as it grows."""
        container = _running_container(pod, context.info.query.get("container"))

        async def program(terminal: Terminal, options: StreamOptions) -> int:
            log = ContainerLog.of(pod, container)
            if options.stdin:
                while typed := await terminal.read():
                    await terminal.write(typed)
                return 0
            number = log.count(self._clock.now())
            while self._find_same(pod) is not None:
                await terminal.write(log.line(number))
                number += 1
                left = log.time_of(number) - self._clock.now()
                await self._clock.sleep(max(LINE_SECONDS / 2, left))
            return 0

        await serve_command(context, program)

    async def port_forward(self, context: RequestContext, pod: Object) -> None:
        """Answer `pods/portforward`."""
        if phase_of(pod) != "Running":
            raise BadRequest(
                f"unable to forward port because pod is not running. Current status={phase_of(pod)}"
            )
        await serve_port_forward(context, pod)

    def _find_same(self, pod: Object) -> Object | None:
        """Return a pod as it is now; None when it is gone, though another may have its name."""
        current = self._mirror.find(key_of(pod))
        return None if current is None or uid_of(current) != uid_of(pod) else current


def _running_container(pod: Object, given: str) -> str:
    """Return the container that is meant; BadRequest when nothing can be run in it."""
    container = choose_container(pod, given)
    if phase_of(pod) != "Running":
        raise BadRequest(
            f"cannot exec into a container in a pod that is not running; "
            f"current phase is {phase_of(pod)}"
        )
    return container


def _on_stored_pod(
    answer: Callable[[RequestContext, Object], Awaitable[Response | None]],
) -> Verb:
    """Return the verb that reads the pod a request names and answers for it."""

    async def verb(request: ResourceRequest) -> Response | None:
        entry = await request.hub.store.get(request.key)
        if entry is None:
            raise request.not_found()
        return await answer(request.context, forms.decode_stored(entry, request.served.form))

    return verb
