"""What runs in a simulated container: the shell on exec, the log on attach; files per container."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.errors import BadRequest
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of, uid_of
from clusterspace.sim.logs import LINE_SECONDS, ContainerLog, choose_container
from clusterspace.sim.pod_states import containers_of, phase_of
from clusterspace.sim.shell.files import DEFAULT_LIMIT, FileSystem
from clusterspace.sim.shell.interpreter import run_program
from clusterspace.sim.shell.line_editing import LineEditor, for_screen
from clusterspace.sim.shell.processes import Input, Output, Process
from clusterspace.sim.streams.terminals import Terminal, Wanted

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_CONTAINERS: Final = 256
"""How many containers' files are kept; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class Place:
    """A container of a pod."""

    pod: Object
    container: str


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
                "/etc/hostname": f"{hostname_of(pod)}\n".encode(),
                "/etc/os-release": b'NAME="Clusterspace simulation"\nID=clusterspace-sim\n',
            }
            of_pod[container] = FileSystem(contents, self._clock.now(), self._limit)
        while len(self._files) > _MOST_CONTAINERS:
            del self._files[next(iter(self._files))]
        return of_pod[container]

    async def execute(
        self, place: "Place", command: tuple[str, ...], terminal: Terminal, wanted: Wanted
    ) -> int:
        """Run a command in a container and return its exit code."""
        stdin: Input = terminal
        stdout: Output = terminal.write
        stderr: Output = terminal.complain
        variables = environment_of(place.pod, place.container)
        if wanted.tty:
            stdout, stderr = for_screen(stdout), for_screen(stderr)
            stdin = LineEditor(terminal, stdout)
            variables = {**variables, "PS1": "/ # ", "TERM": "xterm"}
        process = Process(
            arguments=command,
            variables=variables,
            directory="/",
            files=self.files_of(place.pod, place.container),
            clock=self._clock,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        return await run_program(process)

    async def attach(
        self, place: "Place", is_there: Callable[[], bool], terminal: Terminal, wanted: Wanted
    ) -> int:
        """Give back what is typed; without a stdin, show the log as it grows from now on."""
        log = ContainerLog.of(place.pod, place.container)
        if wanted.stdin:
            while typed := await terminal.read():
                await terminal.write(typed)
            return 0
        number = log.count(self._clock.now())
        while is_there():
            await terminal.write(log.line(number))
            number += 1
            await self._clock.sleep(max(LINE_SECONDS / 2, log.time_of(number) - self._clock.now()))
        return 0


def hostname_of(pod: Object) -> str:
    """Return what a pod calls itself."""
    return str(find_at(pod, "spec", "hostname") or name_of(pod))


def environment_of(pod: Object, container: str) -> Mapping[str, str]:
    """Return the environment of a container: the usual, and what its spec says literally."""
    held = next((each for each in containers_of(pod) if each["name"] == container), None)
    listed: list[Object] = find_at(held, "env") or []
    own = {str(each["name"]): str(each["value"]) for each in listed if "value" in each}
    return {
        "PATH": _PATH,
        "HOSTNAME": hostname_of(pod),
        "HOME": "/root",
        "POD_NAMESPACE": namespace_of(pod),
        **own,
    }


def running_place(pod: Object, asked: str) -> Place:
    """Return the container that is meant, or refuse when nothing can be run in it."""
    container = choose_container(pod, asked)
    if phase_of(pod) != "Running":
        raise BadRequest(
            f"cannot exec into a container in a pod that is not running; "
            f"current phase is {phase_of(pod)}"
        )
    return Place(pod, container)
