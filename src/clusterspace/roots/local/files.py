"""The directory of a local fleet: who runs it, on which ports, with which kubeconfig.

D/kubeconfig   contexts `fleet` and `hub`, for people
D/up.json      what runs: processes, ports, logs; D/up.lock is held while it does
D/hub, D/fleet the data of the components; D/members/NAME those of simulated members
D/hub-2, D/fleet-2 and so on those of further replicas, with `up --ha`; D/etcd that of etcd
D/encryption.json  the keys that replicas of the hub have in common
D/logs/PART.log
"""

import fcntl
import os
import socket
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import shuffle

import msgspec

from clusterspace.apiserver.store.files import STORE_FILE_NAME
from clusterspace.errors import AlreadyRunning, PortTaken, UnusableDirectory
from clusterspace.roots.installation import Installation, write_private
from clusterspace.roots.kubeconfigs import merged_kubeconfig


class ComponentRecord(msgspec.Struct, frozen=True):
    """One component as `status` shows it."""

    name: str
    state: str
    pid: int | None
    restarts: int
    port: int | None
    log: str


class RunRecord(msgspec.Struct, frozen=True):
    """A local fleet that runs."""

    pid: int
    started: float
    is_ready: bool
    """Whether everything has been ready once."""
    components: tuple[ComponentRecord, ...] = msgspec.field(default=(), name="parts")
    """In the file, and in what `status` prints, they are its parts."""


class Ports(msgspec.Struct, frozen=True):
    """Ports that stay the same from one start to the next, by component."""

    chosen: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Where everything of a local fleet is."""

    directory: Path

    @property
    def hub(self) -> Path:
        """The hub's data."""
        return self.directory / "hub"

    @property
    def fleet(self) -> Path:
        """The fleet API server's data."""
        return self.directory / "fleet"

    @property
    def etcd(self) -> Path:
        """The data of etcd, where the objects are in one."""
        return self.directory / "etcd"

    @property
    def encryption(self) -> Path:
        """The keys that replicas of the hub have in common."""
        return self.directory / "encryption.json"

    def replica(self, server: str, number: int) -> Path:
        """Return the data of one of several hubs or fleet API servers, counted from 1.

        The first has the place of one that is alone: what is known about it stays true.
        """
        return self.directory / (server if number == 1 else f"{server}-{number}")

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig for people."""
        return self.directory / "kubeconfig"

    @property
    def hub_kubeconfig(self) -> Path:
        """The hub's own kubeconfig."""
        return self.hub / "kubeconfig"

    @property
    def fleet_kubeconfig(self) -> Path:
        """The fleet API server's own kubeconfig."""
        return self.fleet / "kubeconfig"

    def component_kubeconfig(self, component: str) -> Path:
        """Return who a component is at the hub."""
        return Installation(self.hub).component_kubeconfig(component)

    def member(self, name: str) -> Path:
        """Return where a simulated member keeps its files."""
        return self.directory / "members" / name

    def member_kubeconfig(self, name: str) -> Path:
        """Return the kubeconfig of a simulated member's administrator."""
        return self.member(name) / "kubeconfig"

    def log(self, component: str) -> Path:
        """Return the log of a component."""
        return self.directory / "logs" / f"{component}.log"

    def prepare(self) -> None:
        """Make the directories; refuse one that holds something else."""
        if (self.directory / STORE_FILE_NAME).exists():
            raise UnusableDirectory(
                f"{self.directory} holds the data of a hub that was started alone: "
                f"choose another --data-dir, or move its files into {self.hub}"
            )
        for each in (self.directory, self.directory / "logs"):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextmanager
    def locked(self) -> Generator[None]:
        """Be the one who runs this fleet; AlreadyRunning when another process does."""
        with self._lock_file.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AlreadyRunning(f"the fleet in {self.directory} is running") from error
            try:
                self._record_file.unlink(missing_ok=True)
                yield
            finally:
                self._record_file.unlink(missing_ok=True)

    def is_running(self) -> bool:
        """Whether some process runs this fleet."""
        if not self._lock_file.exists():
            return False
        with self._lock_file.open("r") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def read_record(self) -> RunRecord | None:
        """Return the record of the fleet that runs, or None when none does."""
        if not self.is_running():
            return None
        try:
            return msgspec.json.decode(self._record_file.read_bytes(), type=RunRecord)
        except FileNotFoundError:
            return None

    def is_ready_for_people(self) -> bool:
        """Whether every component that runs is ready and the kubeconfig is there."""
        record = self.read_record()
        return record is not None and record.is_ready and self.kubeconfig.exists()

    def write_record(self, record: RunRecord) -> None:
        """Write down what runs."""
        write_private(self._record_file, msgspec.json.encode(record))

    def choose_ports(
        self,
        requested: Mapping[str, int | None],
        first: Mapping[str, int] | None = None,
        lasting: Collection[str] = (),
    ) -> dict[str, int]:
        """Return a port for each component: the requested, else the last one, else a free one.

        For None it is the last one, or the one it has at first: what people have written down must
        not change under them. PortTaken when somebody else listens on one that people know, or on
        one of the `lasting`, by which components know each other for ever.
        """
        last: dict[str, int] = {}
        with suppress(FileNotFoundError):
            last = msgspec.json.decode(self._ports_file.read_bytes(), type=Ports).chosen
        chosen: dict[str, int] = {}
        for name, port in requested.items():
            usual = last.get(name) or (first or {}).get(name)
            chosen[name] = usual if port is None and usual else port or _free_port(last.get(name))
            if name in (first or {}) and not _is_free(chosen[name]):
                remedy = f"stop what listens there, or choose another with --{name}-port"
                raise PortTaken(f"port {chosen[name]} is in use: {remedy}")
        for name in lasting:
            chosen[name] = last.get(name) or _lasting_port(chosen.values())
            if not _is_free(chosen[name]):
                raise PortTaken(
                    f"port {chosen[name]}, by which the others know {name}, is in use:"
                    " stop what listens there"
                )
        write_private(self._ports_file, msgspec.json.encode(Ports({**last, **chosen})))
        return chosen

    def write_kubeconfig(self) -> None:
        """Put the contexts of both servers into one kubeconfig; the first is the current one."""
        files = [each for each in (self.fleet_kubeconfig, self.hub_kubeconfig) if each.exists()]
        write_private(self.kubeconfig, merged_kubeconfig([each.read_bytes() for each in files]))

    @property
    def _lock_file(self) -> Path:
        return self.directory / "up.lock"

    @property
    def _record_file(self) -> Path:
        return self.directory / "up.json"

    @property
    def _ports_file(self) -> Path:
        return self.directory / "ports.json"


def _is_free(port: int) -> bool:
    """Whether nobody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _lasting_port(taken: Collection[int]) -> int:
    """Return a free port that the system does not give to outgoing connections meanwhile."""
    ports = [each for each in range(20_000, 30_000) if each not in taken]
    shuffle(ports)
    return next(each for each in ports if _is_free(each))


def _free_port(last: int | None) -> int:
    """Return the last port if it is free, else one that is."""
    for port in (last or 0, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise OSError(os.strerror(24))
