"""Three machines in namespaces: each with a member of etcd, a hub, addresses and disks of its own.

Nothing of it is the real machine's. Whoever runs this is process 1 of a namespace of processes and
has a network and mounts of his own (`fault_runner.py` is started so): however he ends, all of it
ends with him.

    client 10.77.0.100 ──┬── hub-0 10.77.0.10     hub-1 10.77.0.11     hub-2 10.77.0.12
         a bridge        └── etcd-0 10.77.0.20    etcd-1 10.77.0.21    etcd-2 10.77.0.22
                              a disk               memory               memory, can be filled
"""

import asyncio
import os
import signal
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.component.hub_wire import HubClient, HubProcess, tls_of
from tests.component.test_several_hubs import encryption

from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.testing.etcd import EtcdCluster, EtcdMember, find_etcd

if TYPE_CHECKING:
    import ssl

COUNT: Final = 3
CLIENT: Final = "client"
PORT: Final = 6443
_SPARE: Final = 64 << 20
"""Bytes of the largest file that is written to fill a disk, at once."""

BLOCKS = Path("/sys/fs/cgroup/blkio")


async def run(*words: str) -> None:
    """Run a program that must succeed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: {output.decode().strip()}")


class Network:
    """A bridge with a namespace for every process, and links that are cut one way at a time."""

    def __init__(self) -> None:
        self.addresses = {CLIENT: "10.77.0.100"}
        for place in range(COUNT):
            self.addresses[f"hub-{place}"] = f"10.77.0.{10 + place}"
            self.addresses[f"etcd-{place}"] = f"10.77.0.{20 + place}"
        self._cut: set[tuple[str, str]] = set()

    async def build(self) -> None:
        await run("mount", "-t", "tmpfs", "tmpfs", "/run")
        await run("ip", "link", "set", "lo", "up")
        await run("ip", "link", "add", "br0", "type", "bridge")
        await run("ip", "addr", "add", f"{self.addresses[CLIENT]}/24", "dev", "br0")
        await run("ip", "link", "set", "br0", "up")
        for name, address in self.addresses.items():
            if name == CLIENT:
                continue
            await run("ip", "netns", "add", name)
            veth = ("type", "veth", "peer", "name", "eth0", "netns", name)
            await run("ip", "link", "add", f"to-{name}", *veth)
            await run("ip", "link", "set", f"to-{name}", "master", "br0", "up")
            await run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            await run("ip", "-n", name, "link", "set", "eth0", "up")
            await run("ip", "-n", name, "link", "set", "lo", "up")

    async def cut(self, source: str, target: str) -> None:
        """Lose everything on its way from one to the other, without a word to either."""
        if (source, target) not in self._cut:
            self._cut.add((source, target))
            await self._filter("-A", source, target)

    async def mend(self, source: str, target: str) -> None:
        if (source, target) in self._cut:
            self._cut.discard((source, target))
            await self._filter("-D", source, target)

    async def mend_all(self) -> None:
        for source, target in list(self._cut):
            await self.mend(source, target)

    async def _filter(self, change: str, source: str, target: str) -> None:
        inside = () if target == CLIENT else ("ip", "netns", "exec", target)
        rule = ("INPUT", "-s", self.addresses[source], "-j", "DROP")
        await run(*inside, "iptables", "-w", change, *rule)


class Disk:
    """A directory in memory of a size of its own, which can be filled to the last byte."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def build(self, megabytes: int) -> None:
        self.path.mkdir(parents=True)
        await run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(self.path))

    def fill(self) -> None:
        with (self.path / "filler").open("ab") as file:
            size = _SPARE
            while size:
                end = file.seek(0, os.SEEK_END)
                try:
                    os.posix_fallocate(file.fileno(), end, size)
                except OSError:
                    size //= 2

    def empty(self) -> None:
        (self.path / "filler").unlink(missing_ok=True)
        for copy in self.path.rglob("*.broken"):
            copy.unlink()  # what etcd keeps of a log it has repaired: whoever repairs it looks, too


class SlowDisk:
    """Lets a process write to its disk so many times a second, by a control group.

    Where there is none to be had the process is stopped for most of the time instead, in bursts: as
    far as others can tell, a member of etcd that waits for its disk does nothing else either.
    """

    def __init__(self, path: Path) -> None:
        device = os.stat(path).st_dev
        self._device = f"{os.major(device)}:{os.minor(device)}"
        self._group = BLOCKS / f"clusterspace-{path.parent.name}-{path.name}"
        self._stopping: asyncio.Task[None] | None = None
        try:
            self._group.mkdir()
            self._limit(1000)
        except OSError:
            with suppress(OSError):
                self._group.rmdir()
        self.is_throttled = self._group.exists()

    def _limit(self, writes: int) -> None:
        limit = f"{self._device} {writes}"
        (self._group / "blkio.throttle.write_iops_device").write_text(limit)

    def slow_down(self, process: int, writes: int) -> None:
        if self.is_throttled:
            self._limit(writes)
            with suppress(OSError):  # it was killed meanwhile
                (self._group / "cgroup.procs").write_text(str(process))
        else:
            self._stopping = asyncio.create_task(_stop_in_bursts(process))

    async def speed_up(self, process: int) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
            await asyncio.wait([self._stopping])
            self._stopping = None
        elif self.is_throttled:
            with suppress(OSError):  # it was killed meanwhile
                (BLOCKS / "cgroup.procs").write_text(str(process))
            self._limit(1000)

    def remove(self) -> None:
        with suppress(OSError):
            self._group.rmdir()


async def _stop_in_bursts(process: int) -> None:
    with suppress(ProcessLookupError):
        try:
            while True:
                os.kill(process, signal.SIGSTOP)
                await asyncio.sleep(0.2)
                os.kill(process, signal.SIGCONT)
                await asyncio.sleep(0.05)
        finally:
            os.kill(process, signal.SIGCONT)


class FaultyHub:
    """One hub, on its machine: killed, frozen, started again, and told a wrong time."""

    def __init__(self, name: str, address: str, directory: Path, words: Sequence[str]) -> None:
        self.name = name
        self.address = address
        self.disk = Disk(directory)
        self._clock = directory.parent / f"{name}.clock"
        self._words = ["tests.robustness.fault_hub", "--netns", name, "--clock", str(self._clock)]
        self._words += [*words, "--host", address]
        self._process: HubProcess | None = None
        self.tls: ssl.SSLContext | None = None
        self.turn_clock(0.0)

    def start(self) -> None:
        self._process = HubProcess(self.disk.path, self._words, port=PORT)

    async def wait_ready(self) -> None:
        assert self._process is not None
        await asyncio.to_thread(self._process.wait_ready)
        self.tls = tls_of(self.disk.path)

    def kill(self) -> None:
        if self._process is not None:
            self.thaw()
            self._process.kill()

    def freeze(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.process_id, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.process_id, signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def turn_clock(self, seconds: float) -> None:
        """Set its time of day this far from the true one, at once."""
        self._clock.write_bytes(struct.pack("d", seconds))

    def client(self) -> HubClient:
        assert self.tls is not None
        return HubClient(self.address, PORT, self.tls)

    @property
    def log(self) -> str:
        return "" if self._process is None else self._process.log.read_text()


class World:
    """All of it."""

    def __init__(self, network: Network, etcd: EtcdCluster, hubs: list[FaultyHub]) -> None:
        self.network = network
        self.etcd = etcd
        self.hubs = hubs
        self.slow_disk: SlowDisk | None = None
        self.small_disk: Disk | None = None

    @property
    def settings(self) -> EtcdSettings:
        return self.etcd.settings

    async def heal(self) -> None:
        """Have everything run and reach everything."""
        await self.network.mend_all()
        if self.small_disk is not None:
            self.small_disk.empty()
        for member in self.etcd.members:
            member.thaw()
            if member.process is None or member.process.returncode is not None:
                await member.start()
        for hub in self.hubs:
            hub.thaw()
            hub.disk.empty()
            if not hub.is_running:
                hub.start()
        for hub in self.hubs:
            try:
                await hub.wait_ready()
            except AssertionError:
                # It had found nobody of etcd for ten seconds, and ended: others start it again.
                await self.etcd.until_ready()
                hub.start()
                await hub.wait_ready()


@asynccontextmanager
async def world(
    directory: Path, *, hubs: int = COUNT, plant: str = "", quota: int = 64 << 20
) -> AsyncGenerator[World]:
    """Build it and start everything."""
    program = find_etcd()
    assert program is not None
    network = Network()
    await network.build()
    addresses = network.addresses
    names = [f"etcd-{place}" for place in range(COUNT)]
    peers = ",".join(f"{name}=http://{addresses[name]}:2380" for name in names)
    servers = tuple(f"http://{addresses[name]}:2379" for name in names)
    etcd = EtcdCluster(EtcdSettings(servers))
    slow = directory / names[0]
    slow.mkdir()
    fast, small = Disk(directory / names[1]), Disk(directory / names[2])
    await fast.build(1024)
    await small.build(400)
    for name, path in zip(names, (slow, fast.path, small.path), strict=True):
        arguments = [
            *("netns", "exec", name, str(program)),
            f"--name={name}",
            f"--data-dir={path / 'data'}",
            f"--listen-client-urls=http://{addresses[name]}:2379",
            f"--advertise-client-urls=http://{addresses[name]}:2379",
            f"--listen-peer-urls=http://{addresses[name]}:2380",
            f"--initial-advertise-peer-urls=http://{addresses[name]}:2380",
            f"--initial-cluster={peers}",
            f"--quota-backend-bytes={quota}",
        ]
        member = EtcdMember(Path("/usr/sbin/ip"), name, servers[0], arguments, directory)
        etcd.members.append(member)
        await member.start()
    words = ["--etcd-servers", ",".join(servers)]
    words += ["--encryption-provider-config", str(encryption(directory))]
    if plant:
        words = ["--plant", plant, *words]
    running: list[FaultyHub] = []
    for place in range(hubs):
        name = f"hub-{place}"
        hub = FaultyHub(name, addresses[name], directory / name, words)
        await hub.disk.build(8)
        running.append(hub)
    built = World(network, etcd, running)
    built.slow_disk, built.small_disk = SlowDisk(slow), small
    try:
        await etcd.until_ready()
        for hub in running:
            hub.start()
        for hub in running:
            await hub.wait_ready()
        yield built
    finally:
        for hub in running:
            if hub.is_running:
                hub.kill()
        for member in etcd.members:
            await member.kill()
        built.slow_disk.remove()  # the processes are gone: it is empty
