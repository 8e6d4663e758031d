"""What one list of every cluster costs, beside the members' own lists in the same run.

python -m tests.bench fleet

Hub and fleet API server are processes as users start them; the members are hubs with a thousand
pods each, in two further processes, and two real kube-apiservers where they are found. All of them,
and the client, share the processors of this machine. So the figures come with the processor time of
each, and with two times that no server in between could beat: what a client takes that asks all
members itself, at once, and what it takes to read as many bytes from a server that has them ready.
"""

import asyncio
import gc
import http.client
import multiprocessing
import os
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.api_servers import find_kubernetes, running_kubernetes, usage_of
from tests.bench.api_servers import running_hub as running_hub_process
from tests.bench.bench_hub import pod
from tests.bench.fleet_processes import in_processes
from tests.component.hub_wire import ADMIN, TOKENS

from clusterspace.aio import event_loop
from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.kube.objects import Object
from clusterspace.roots.clients import open_client
from clusterspace.roots.hub import running_hub
from clusterspace.roots.installation import write_pair
from clusterspace.roots.kubeconfigs import kubeconfig_of
from clusterspace.roots.membership import join_cluster
from clusterspace.roots.settings import HubSettings
from clusterspace.telemetry.logs import Format, Level, configure
from clusterspace.testing.builders import CONFIG_MAPS, PODS, config_map

MEMBERS = 10
PAIR = 2
"""As many members as were behind Karmada's search proxy when it took 1,009 ms for one list."""
PODS_EACH = 1_000
MAPS_EACH = 100
MAP_BYTES = 100_000
"""Ten members with a hundred of these make a list of 100 MB."""
CREATES_AT_ONCE = 32
ROUNDS = 15
PATIENCE = 120.0
PIECE_BYTES = 512 * 1024
"""What a sender writes in one go, as the fleet API server does."""
JSON = "application/json"
TABLE = f"{JSON};as=Table;v=v1;g=meta.k8s.io"
PODS_PATH = "/api/v1/namespaces/default/pods"
MAPS_PATH = "/api/v1/namespaces/default/configmaps"


# -- the members -----------------------------------------------------------------------------------


def run_members(
    fill: Callable[[ConnectionSettings], Awaitable[None]],
    directory: Path,
    members: Sequence[str],
    pipe: Pipe,
) -> None:
    """Run members in this process, filled, until the pipe says something."""
    configure(Format.JSON, Level.ERROR, sys.stderr)
    event_loop.run(_serve_members(fill, directory, members, pipe))


async def _serve_members(
    fill: Callable[[ConnectionSettings], Awaitable[None]],
    directory: Path,
    members: Sequence[str],
    pipe: Pipe,
) -> None:
    async with AsyncExitStack() as stack:
        for name in members:
            home = directory / name
            home.mkdir()
            tokens = home / "tokens.csv"
            tokens.write_text(TOKENS)
            settings = HubSettings(home, port=0, store="memory", token_auth_file=tokens)
            await stack.enter_async_context(running_hub(settings))
            await fill(settings_in(home, name))
            # As a member in a process of its own does; and of a hundred members that are done the
            # collector would look at all again for each that is being filled.
            gc.freeze()
        pipe.send(None)
        await asyncio.to_thread(pipe.recv)


async def _fill(settings: ConnectionSettings) -> None:
    maps = [config_map(f"map-{each:03}", {"k": "x" * MAP_BYTES}) for each in range(MAPS_EACH)]
    pods = [pod(each) for each in range(PODS_EACH)]
    async with open_client(settings) as member:

        async def create_all(place: ResourcePath, wanted: Sequence[Object]) -> None:
            rest = iter(wanted)

            async def create() -> None:
                for each in rest:
                    await member.create(place, each)

            async with asyncio.TaskGroup() as group:
                for _ in range(CREATES_AT_ONCE):
                    group.create_task(create())

        await create_all(ResourcePath(PODS, "default"), pods)
        await create_all(ResourcePath(CONFIG_MAPS, "default"), maps)


def settings_in(directory: Path, name: str) -> ConnectionSettings:
    return read_kubeconfig(kubeconfigs_in(directory)).settings(cluster=name)


def kubeconfigs_in(directory: Path) -> list[Path]:
    """Return what says where a server is, and who we are if it does not say that: the hub's."""
    files = (directory / "kubeconfig", directory.parent / "hub" / "kubeconfig")
    return [each for each in files if each.exists()]


# -- the fleet API server --------------------------------------------------------------------------


@contextmanager
def running_fleet(directory: Path, hub_kubeconfig: Path, *options: str) -> Generator[int]:
    """Run the fleet API server as a user does, and end it in good order; yield its process."""
    (directory / "kubeconfig").unlink(missing_ok=True)
    command = [sys.executable, "-m", "clusterspace", "fleet", "--port", "0", *options]
    command += ["--allow-member-cidrs", "127.0.0.0/8", "--impersonate-masters"]
    identity = hub_kubeconfig.parent / "parts" / "fleet" / "kubeconfig"
    command += ["--hub-kubeconfig", str(identity), "--data-dir", str(directory)]
    with (directory.parent / f"{directory.name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (directory / "kubeconfig").exists():
            assert process.poll() is None, "the fleet API server ended at once"
            assert time.monotonic() < deadline, "the fleet API server is not ready"
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


# -- asking ----------------------------------------------------------------------------------------


class Lister:
    """A client that reads lists over one connection, with as little as it can."""

    def __init__(self, settings: ConnectionSettings, authority: Path) -> None:
        place = urlsplit(settings.server)
        trust = ssl.create_default_context(cafile=str(authority))
        self._connection = http.client.HTTPSConnection(
            place.hostname or "", place.port, context=trust
        )
        self._room = memoryview(bytearray(2**20))
        self.warning = ""
        """What the last answer warned of: a member that is left out."""

    def read(self, path: str, accept: str = JSON) -> int:
        """Return how many bytes the list has."""
        headers = {"Authorization": f"Bearer {ADMIN}", "Accept": accept}
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        self.warning = answer.headers.get("Warning", "")
        size = 0
        while taken := answer.readinto(self._room):
            size += taken
        return size


@dataclass(frozen=True)
class Scene:
    """Everybody who takes part."""

    directory: Path
    fleet: Lister
    """Reads all of every list."""
    keeping: Lister
    """Keeps objects for the next list of them, as it does unless told otherwise."""
    members: dict[str, Lister]
    processes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Timing:
    """How long something took in each round, and the processor time of each party in all."""

    seconds: list[float]
    size: int
    cpu: dict[str, float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def shares(self) -> str:
        rounds = len(self.seconds)
        each = (f"{name} {used / rounds * 1e3:.0f}" for name, used in self.cpu.items())
        return f"processor ms: {', '.join(each)}"


def timed(scene: Scene, work: Callable[[], int], rounds: int = ROUNDS) -> Timing:
    (timing,) = in_turns(scene, work, rounds=rounds)
    return timing


def in_turns(scene: Scene, *works: Callable[[], int], rounds: int = ROUNDS) -> list[Timing]:
    """Do each of these once in every round, after one that does not count."""
    timings = [Timing([], 0, dict.fromkeys((*scene.processes, "client"), 0.0)) for _ in works]
    for work in works:
        work()
    for _ in range(rounds):
        for at, work in enumerate(works):
            before = {name: usage_of(ids).cpu_seconds for name, ids in scene.processes.items()}
            own, started = time.process_time(), time.perf_counter()
            size = work()
            timings[at].seconds.append(time.perf_counter() - started)
            used = {name: usage_of(ids).cpu_seconds for name, ids in scene.processes.items()}
            cpu = timings[at].cpu
            for name in used:
                cpu[name] += used[name] - before[name]
            cpu["client"] += time.process_time() - own
            timings[at] = replace(timings[at], size=size)
    return timings


# -- what is measured ------------------------------------------------------------------------------


def measure_lists(scene: Scene, names: Sequence[str]) -> None:
    """Compare one list of all with the lists of each, asked alone and asked at once."""
    readers = [scene.members[name] for name in names]
    alone = [timed(scene, lambda one=each: one.read(PODS_PATH)) for each in readers]
    slowest = max(alone, key=lambda each: each.median)
    for _ in range(3):  # what is asked for again and again is kept
        scene.keeping.read(PODS_PATH)
        scene.keeping.read(PODS_PATH, TABLE)
    with ThreadPoolExecutor(len(names)) as pool:

        def ask_all(accept: str = JSON) -> int:
            return sum(pool.map(lambda each: each.read(PODS_PATH, accept), readers))

        # In turns, so that whatever else the machine does is the same to all of them.
        direct, unified, known, any_state, tables, table, known_table = in_turns(
            scene,
            ask_all,
            lambda: scene.fleet.read(PODS_PATH),
            lambda: scene.keeping.read(PODS_PATH),
            lambda: scene.keeping.read(f"{PODS_PATH}?resourceVersion=0"),
            lambda: ask_all(TABLE),
            lambda: scene.fleet.read(PODS_PATH, TABLE),
            lambda: scene.keeping.read(PODS_PATH, TABLE),
        )
    with sender_of(unified.size) as sender:
        (sending,) = in_turns(scene, lambda: sender.read("/"))
    print(f"{len(names)} members x {PODS_EACH:,} pods, {unified.size / 1e6:.1f} MB:")
    for what, timing in (
        ("the slowest member's own list", slowest),
        ("all members asked at once by a client", direct),
        ("one list of the fleet, read whole", unified),
        ("  of what is known already", known),
        ("  any state will do", any_state),
        ("as many bytes, from who has them ready", sending),
        ("all members asked at once for Tables", tables),
        ("one Table of the fleet, read whole", table),
        ("  of what is known already", known_table),
    ):
        print(f"  {what:40} {timing.median * 1e3:6.0f} ms  {timing.shares()}")
    megabytes = unified.size / 1e6
    for what, figure in (
        ("in lists of the slowest member", f"{unified.median / slowest.median:.2f} x"),
        ("in lists of all members at once", f"{unified.median / direct.median:.2f} x"),
        ("  of what is known already", f"{known.median / direct.median:.2f} x"),
        ("  any state will do", f"{any_state.median / direct.median:.2f} x"),
        ("in the time to send the bytes, known", f"{known.median / sending.median:.2f} x"),
        ("  any state will do", f"{any_state.median / sending.median:.2f} x"),
        ("in Tables of all members at once", f"{table.median / tables.median:.2f} x"),
        ("  of what is known already", f"{known_table.median / tables.median:.2f} x"),
        ("processor time of the fleet, read whole", f"{per(unified, 'fleet', megabytes)} merged"),
        ("  of what is known already", f"{per(known, 'keeping', megabytes)} merged"),
        ("  any state will do", f"{per(any_state, 'keeping', megabytes)} merged"),
    ):
        print(f"  {what:40} {figure}")


def per(timing: Timing, party: str, megabytes: float) -> str:
    """Return what one megabyte costs this party."""
    return f"{timing.cpu[party] / len(timing.seconds) / megabytes * 1e3:.1f} ms per MB"


@contextmanager
def sender_of(size: int) -> Generator["Lister"]:
    """Run a process that has an answer of this size ready, and sends it whenever it is asked."""
    spawning = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        ours, theirs = spawning.Pipe()
        process = spawning.Process(target=_run_sender, args=(Path(name), size, theirs))
        process.start()
        try:
            port = ours.recv()
            server = ConnectionSettings("sender", f"https://127.0.0.1:{port}")
            yield Lister(server, Path(name) / "ca.crt")
        finally:
            process.kill()
            process.join()


def _run_sender(directory: Path, size: int, pipe: Pipe) -> None:
    event_loop.run(_send(directory, size, pipe))


async def _send(directory: Path, size: int, pipe: Pipe) -> None:
    now = SystemClock().now()
    authority = Authority.create("sender", now)
    write_pair(authority.pair, directory / "ca.crt", directory / "ca.key")
    shown = directory / "server.crt", directory / "server.key"
    write_pair(authority.issue_server(("127.0.0.1",), now), *shown)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*shown)
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    piece = b"x" * PIECE_BYTES

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(head)
            for start in range(0, size, PIECE_BYTES):
                writer.write(piece[: size - start])
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def measure_memory(scene: Scene) -> None:
    """Stream a list of 100 MB, and see how high the fleet's memory goes."""
    (fleet,) = scene.processes["fleet"]
    before = usage_of([fleet]).resident_bytes
    Path(f"/proc/{fleet}/clear_refs").write_text("5")  # forget the highest mark so far
    size = scene.fleet.read(MAPS_PATH)
    grown = _highest_resident(fleet) - before
    print(f"a list of {size / 1e6:.0f} MB: {grown / 1e6:.0f} MB more memory at most", end="")
    print(f" ({grown / size:.2f} x), {before / 1e6:.0f} MB before")


def _highest_resident(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def measure_kubectl(scene: Scene, names: Sequence[str]) -> None:
    """Compare one command with one command for each context."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        print("kubectl not found: not compared")
        return

    def get_pods(home: Path, *options: str) -> int:
        environment = {
            "KUBECONFIG": os.pathsep.join(map(str, kubeconfigs_in(home))),
            "KUBECACHEDIR": str(scene.directory / "cache"),
            "HOME": str(scene.directory),
            "PATH": os.environ.get("PATH", ""),
        }
        command = [kubectl, "get", "pods", *options]
        ran = subprocess.run(command, env=environment, capture_output=True)
        assert ran.returncode == 0, ran.stderr
        return len(ran.stdout.splitlines())

    homes = [scene.directory / name for name in names]
    for options in (("-l", "app=app-1"), ()):
        loop = timed(scene, lambda given=options: sum(get_pods(home, *given) for home in homes), 3)
        once = timed(scene, lambda given=options: get_pods(scene.directory / "fleet", *given), 3)
        print(f"kubectl get pods {' '.join(options)}: {once.size - 1:,} pods, ", end="")
        print(
            f"{once.median * 1e3:.0f} ms on the fleet, {loop.median * 1e3:.0f} ms once per ", end=""
        )
        print(f"context: {loop.median / once.median:.1f} x")


# -- how it is run ---------------------------------------------------------------------------------


async def join_all(directory: Path, hub: Path, names: Sequence[str]) -> None:
    for name in names:
        request = JoinRequest(name, settings_in(directory / name, name))
        await join_cluster(request, settings_in(hub, "hub"), lambda _: None)


def wait_until_listed(scene: Scene, size: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while min(each.read(PODS_PATH) for each in (scene.fleet, scene.keeping)) < size:
        assert time.monotonic() < deadline, "the fleet does not list all members"
        time.sleep(0.1)


@contextmanager
def real_members(directory: Path, assets: Path, names: Sequence[str]) -> Generator[tuple[int, ...]]:
    """Run kube-apiservers with the same pods; yield the ids of their processes."""
    with ExitStack() as stack:
        processes: list[int] = []
        for name in names:
            home = directory / name
            (home / "pki").mkdir(parents=True)
            server = stack.enter_context(running_kubernetes(home, assets))
            processes += server.processes
            authority = (home / "certificates" / "apiserver.crt").read_bytes()
            (home / "pki" / "ca.crt").write_bytes(authority)
            where = {name: f"https://{server.host}:{server.port}"}
            kubeconfig = kubeconfig_of(where, authority, AuthInfo(token=ADMIN))
            (home / "kubeconfig").write_bytes(kubeconfig)
            asyncio.run(_fill(settings_in(home, name)))
        yield tuple(processes)


@contextmanager
def running_scene(
    directory: Path, names: Sequence[str], members: tuple[int, ...]
) -> Generator[Scene]:
    """Run a hub that knows nobody yet, and two fleet API servers beside members that run."""
    with ExitStack() as stack:
        hub = stack.enter_context(running_hub_process(directory / "hub"))
        kubeconfig = directory / "hub" / "kubeconfig"
        fleet = stack.enter_context(
            running_fleet(directory / "fleet", kubeconfig, "--cache-mib", "0")
        )
        keeping = stack.enter_context(running_fleet(directory / "keeping", kubeconfig))
        yield Scene(
            directory,
            lister_in(directory / "fleet"),
            lister_in(directory / "keeping"),
            {name: lister_in(directory / name) for name in names},
            {"hub": hub.processes, "members": members, "fleet": (fleet,), "keeping": (keeping,)},
        )


def join_and_measure(scene: Scene, names: Sequence[str], new: Sequence[str]) -> None:
    asyncio.run(join_all(scene.directory, scene.directory / "hub", new))
    wait_until_listed(scene, sum(scene.members[each].read(PODS_PATH) for each in names))
    measure_lists(scene, names)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        assets = find_kubernetes()
        if assets is None:
            print("kube-apiserver not found: lists of real members are not measured")
        else:
            names = [f"real-{number}" for number in range(PAIR)]
            directory = Path(name) / "real"
            with (
                real_members(directory, assets, names) as members,
                running_scene(directory, names, members) as scene,
            ):
                join_and_measure(scene, names, names)
        names = [f"member-{number:02}" for number in range(MEMBERS)]
        directory = Path(name) / "simulated"
        directory.mkdir()
        with (
            in_processes(partial(run_members, _fill), directory, names) as members,
            running_scene(directory, names, members) as scene,
        ):
            join_and_measure(scene, names[:PAIR], names[:PAIR])
            join_and_measure(scene, names, names[PAIR:])
            measure_memory(scene)
            measure_kubectl(scene, names)


def lister_in(home: Path) -> Lister:
    return Lister(settings_in(home, home.name), home / "pki" / "ca.crt")


if __name__ == "__main__":
    main()
