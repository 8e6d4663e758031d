"""What runs in containers: their files, their environment, their program, and what exec runs.

A container whose command the simulated shell understands runs it: `sleep 1000` takes 1000 seconds,
`sh -c "echo hello; exit 3"` writes a line to its log and fails. Every other container is a server:
it writes a made-up log and goes on until it is stopped, or, where its pod is meant to end, for as
long as the pace of the cluster says.
"""

import asyncio
import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.errors import CommandRefused
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.times import format_micro_time
from clusterspace.sim.api import Key, key_of
from clusterspace.sim.pods import containers_of
from clusterspace.sim.shell.commands import COMMANDS
from clusterspace.sim.shell.interpreter import BUILTINS, SHELLS, parse, run_program
from clusterspace.sim.shell.processes import (
    DEFAULT_LIMIT,
    Buffer,
    FileSystem,
    Input,
    LineEditor,
    Output,
    Process,
    for_screen,
)
from clusterspace.sim.streams.remote_commands import StreamOptions, Terminal

_log = structlog.get_logger(__name__)

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MAX_CONTAINERS: Final = 256
"""How many containers' files are kept; the oldest are forgotten first."""

_KEPT_LINES: Final = 10_000
_LONGEST_LINE: Final = 16 * 1024
_BROKEN: Final = 1


# -- files and environment -------------------------------------------------------------------------


def _hostname_of(pod: Object) -> str:
    return str(find_at(pod, "spec", "hostname") or name_of(pod))


_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def _field(pod: Object, path: str) -> str:
    """Return a field of a pod as the downward API gives it."""
    if keyed := _KEYED.fullmatch(path):
        values = labels_of(pod) if keyed[1] == "labels" else annotations_of(pod)
        return values.get(keyed[2], "")
    value: Any = find_at(pod, *path.split("."))
    return "" if value is None else str(value)


def environment_of(pod: Object, container: str) -> dict[str, str]:
    """Return the variables of a container; those from ConfigMaps and Secrets are left out."""
    spec = next((each for each in containers_of(pod) if each["name"] == container), None)
    variables = {
        "PATH": _PATH,
        "HOSTNAME": _hostname_of(pod),
        "HOME": "/root",
        "POD_NAMESPACE": namespace_of(pod),
    }
    for each in find_at(spec, "env") or ():
        path = find_at(each, "valueFrom", "fieldRef", "fieldPath")
        if path:
            variables[str(each["name"])] = _field(pod, str(path))
        elif "valueFrom" not in each:
            variables[str(each["name"])] = _substituted(str(each.get("value") or ""), variables)
    return variables


_REFERENCE: Final = re.compile(r"\$\$|\$\((\w[\w.-]*)\)")


def _substituted(text: str, variables: dict[str, str]) -> str:
    """Return a text with `$(NAME)` replaced, as kubelets do; what is not set stays as it is."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


class Containers:
    """The containers of one simulated cluster, as far as somebody has looked into them."""

    def __init__(self, clock: Clock, *, limit: int = DEFAULT_LIMIT) -> None:
        self._clock = clock
        self._limit = limit
        self._files: dict[str, dict[str, FileSystem]] = {}
        """Pod UID to container to files."""

    def forget(self, pod: Object) -> None:
        """Let go of the files of a pod that is gone."""
        self._files.pop(uid_of(pod), None)

    def files_of(self, pod: Object, container: str) -> FileSystem:
        """Return a container's files; made when somebody first asks."""
        of_pod = self._files.setdefault(uid_of(pod), {})
        if container not in of_pod:
            contents = {
                "/etc/hostname": f"{_hostname_of(pod)}\n".encode(),
                "/etc/os-release": b'NAME="Clusterspace simulation"\nID=clusterspace-sim\n',
            }
            of_pod[container] = FileSystem(contents, self._clock.now(), self._limit)
        while len(self._files) > _MAX_CONTAINERS:
            del self._files[next(iter(self._files))]
        return of_pod[container]

    async def execute(
        self,
        pod: Object,
        container: str,
        command: tuple[str, ...],
        terminal: Terminal,
        options: StreamOptions,
    ) -> int:
        """Run a command in a container and return its exit code."""
        stdin: Input = terminal
        stdout: Output = terminal.write
        stderr: Output = terminal.write_error
        variables = environment_of(pod, container)
        if options.tty:
            stdout, stderr = for_screen(stdout), for_screen(stderr)
            stdin = LineEditor(terminal, stdout)
            variables = {**variables, "PS1": "/ # ", "TERM": "xterm"}
        process = Process(
            arguments=command,
            variables=variables,
            directory="/",
            files=self.files_of(pod, container),
            clock=self._clock,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        return await run_program(process)


# -- programs --------------------------------------------------------------------------------------


def program_of(container: Object) -> tuple[str, ...]:
    """Return the command of a container that the simulated shell can run; empty for a server.

    A script that calls for anything the shell does not have is a server as a whole: half a script
    would say that it failed where the real one would not.
    """
    command: list[str] = container.get("command") or []
    if not command:
        return ()  # what the image does by itself is not known
    args: list[str] = container.get("args") or []
    words = (*command, *args)
    name = posixpath.basename(words[0])
    if name in SHELLS:
        return words if words[1:2] == ("-c",) and _is_understood("".join(words[2:3])) else ()
    return words if name in COMMANDS else ()


@lru_cache(maxsize=1024)
def _is_understood(script: str) -> bool:
    try:
        pipelines = parse(script)
    except CommandRefused:
        return False
    known = COMMANDS.keys() | BUILTINS.keys()
    for pipeline in pipelines:
        for command in pipeline.commands:
            words = ["".join(text for text, _ in word.pieces) for word in command.words]
            called = next((each for each in words if "=" not in each), None)
            if called is not None and posixpath.basename(called) not in known:
                return False
    return True


def never_ends(container: Object) -> bool:
    """Whether a container's image does nothing but wait to be stopped."""
    image = str(container.get("image") or "")
    return not container.get("command") and posixpath.basename(image).startswith("pause")


class ProgramLog:
    """What a program has written, line by line, each with its time."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, bytes]] = deque(maxlen=_KEPT_LINES)
        self._unfinished = b""
        self.count = 0
        """How many lines there were in all; the oldest may be gone."""

    def write(self, data: bytes, now: float) -> None:
        """Add output; what has no newline yet waits for one."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._lines.append((now, line + b"\n"))
        self.count += len(lines)
        if len(self._unfinished) > _LONGEST_LINE:
            self.close(now)

    def close(self, now: float) -> None:
        """Say that nothing more comes: what is left is a line too."""
        if self._unfinished:
            self._lines.append((now, self._unfinished))
            self.count += 1
            self._unfinished = b""

    @property
    def first(self) -> int:
        """The number of the oldest line that is kept."""
        return self.count - len(self._lines)

    def time_of(self, number: int) -> float:
        """Return when a line was written."""
        return self._lines[number - self.first][0]

    def lines(self, first: int, last: int, *, with_time: bool) -> Iterator[bytes]:
        """Return the lines from one number up to another, which is left out."""
        for number in range(max(first, self.first), min(last, self.count)):
            written, line = self._lines[number - self.first]
            yield f"{format_micro_time(written)} ".encode() + line if with_time else line


@dataclass(slots=True)
class Run:
    """One run of a container's program."""

    log: ProgramLog
    task: "asyncio.Task[None] | None" = None
    exit_code: int | None = None
    ended: float = 0.0
    previous: "Run | None" = None


class Programs:
    """The programs that run in the containers of one simulated cluster."""

    def __init__(self, containers: Containers, clock: Clock) -> None:
        self._containers = containers
        self._clock = clock
        self._runs: dict[str, dict[str, Run]] = {}
        """Pod UID to container to its run."""
        self._group: asyncio.TaskGroup | None = None
        self._on_end: Callable[[Key], None] = lambda _: None

    def on_end(self, callback: Callable[[Key], None]) -> None:
        """Call back with the pod whenever one of its programs ends."""
        self._on_end = callback

    async def run(self) -> None:
        """Let programs run until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None

    def start(self, pod: Object, container: Object) -> None:
        """Start the program of a container, if it has one that is understood."""
        words = program_of(container)
        if not words or self._group is None:
            return
        name = str(container["name"])
        runs = self._runs.setdefault(uid_of(pod), {})
        last = runs.get(name)
        if last is not None:
            last.previous = None  # only the run before this one can be asked for
        run = runs[name] = Run(ProgramLog(), previous=last)
        run.task = self._group.create_task(self._follow(pod, name, words, run), name="program")

    async def _follow(self, pod: Object, name: str, words: tuple[str, ...], run: Run) -> None:
        async def write(data: bytes) -> None:
            run.log.write(data, self._clock.now())

        variables = environment_of(pod, name)
        process = Process(
            arguments=tuple(_substituted(word, variables) for word in words),
            variables=variables,
            directory="/",
            files=self._containers.files_of(pod, name),
            clock=self._clock,
            stdin=Buffer(),
            stdout=write,
            stderr=write,
        )
        code = _BROKEN
        try:
            code = await run_program(process)
        except Exception as error:  # noqa: BLE001 - one bad script must not end all the others
            _log.warning("program broke", pod=key_of(pod), container=name, reason=str(error))
        run.log.close(self._clock.now())
        run.exit_code, run.ended = code, self._clock.now()
        self._on_end(key_of(pod))

    def find(self, pod: Object, container: str) -> Run | None:
        """Return the latest run of a container's program; None for a server."""
        return self._runs.get(uid_of(pod), {}).get(container)

    def forget(self, pod: Object) -> None:
        """Stop the programs of a pod that is gone."""
        for run in self._runs.pop(uid_of(pod), {}).values():
            if run.task is not None:
                run.task.cancel()
