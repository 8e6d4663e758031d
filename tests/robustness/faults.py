"""What goes wrong, by a seed: processes, links, disks, clocks, and etcd's memory of the past."""

import asyncio
import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, cast

from tests.robustness.etcd_log import EtcdLog
from tests.robustness.fault_world import CLIENT, COUNT, FaultyHub, World

from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdClient, EtcdSettings
from clusterspace.apiserver.store.etcd.store import compact_etcd
from clusterspace.errors import StoreError, StoreFull
from clusterspace.kube.protobuf.wire import read_fields, write_bytes_field, write_varint_field
from clusterspace.testing.etcd import EtcdMember

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ALARM = "/etcdserverpb.Maintenance/Alarm"
_DEFRAGMENT = "/etcdserverpb.Maintenance/Defragment"
_PUT = "/etcdserverpb.KV/Put"
_DELETE = "/etcdserverpb.KV/DeleteRange"
_ALL_FILLER = write_bytes_field(1, b"filler/") + write_bytes_field(2, b"filler0")


class Faults:
    """One fault after the other; each is over, and mended, when its method returns."""

    def __init__(self, world: World, seed: int, log: EtcdLog) -> None:
        self._world = world
        self._log = log
        self._random = Random(f"faults {seed}")
        self.done: list[str] = []
        self.kinds: dict[str, Callable[[], Awaitable[str]]] = {
            "kill a member": self.kill_member,
            "kill a hub": self.kill_hub,
            "kill a machine": self.kill_machine,
            "freeze a member": self.freeze_member,
            "freeze a hub": self.freeze_hub,
            "cut a hub from etcd": self.cut_hub_from_etcd,
            "cut a hub from a member": self.cut_hub_from_member,
            "cut a member from the others": self.cut_member,
            "cut clients from a hub": self.cut_clients,
            "slow disk": self.slow_disk,
            "full disk of a member": self.full_disk,
            "full disk of a hub": self.full_hub,
            "full etcd": self.full_etcd,
            "clock of a hub": self.turn_clock,
            "compaction": self.compact,
        }

    async def run(self, end: float, only: str = "") -> None:
        """Hit one place after the other until the time has come, in some runs two at a time."""
        lanes = self._random.choice((1, 1, 2))

        async def lane() -> None:
            while time.monotonic() < end:
                kind = only or self._random.choice(list(self.kinds))
                began = time.monotonic()
                self.done.append(kind)
                place = len(self.done) - 1
                found = await self.kinds[kind]()
                self.done[place] = f"{kind} ({found}, {time.monotonic() - began:.1f} s)"
                await asyncio.sleep(self._random.uniform(0.05, 0.5))

        async with asyncio.TaskGroup() as group:
            for _ in range(lanes):
                group.create_task(lane())

    async def _hold(self, least: float, most: float) -> None:
        await asyncio.sleep(self._random.uniform(least, most))

    @property
    def _member(self) -> EtcdMember:
        return self._random.choice(self._world.etcd.members)

    @property
    def _hub(self) -> FaultyHub:
        return self._random.choice(self._world.hubs)

    # -- processes -----------------------------------------------------------------------------

    async def kill_member(self) -> str:
        member = self._member
        await member.kill()
        await self._hold(0.1, 1.5)
        await _revive(member)
        return member.name

    async def kill_hub(self) -> str:
        hub = self._hub
        hub.kill()
        await self._hold(0.1, 1.0)
        await _restart(hub)
        return hub.name

    async def kill_machine(self) -> str:
        """A hub and a member at once, and not a word from either any more."""
        place = self._random.randrange(len(self._world.hubs))
        hub, member = self._world.hubs[place], self._world.etcd.members[place]
        others = [each for each in self._world.network.addresses if each not in _both(place)]
        for name in _both(place):
            for other in others:
                await self._world.network.cut(name, other)
        hub.kill()
        await member.kill()
        await self._hold(0.5, 2.0)
        for name in _both(place):
            for other in others:
                await self._world.network.mend(name, other)
        await _revive(member)
        await _restart(hub)
        return str(place)

    async def freeze_member(self) -> str:
        member = self._member
        member.freeze()
        await self._hold(0.3, 3.0)
        member.thaw()
        return member.name

    async def freeze_hub(self) -> str:
        """For longer than its lease, and than anybody waits, in every second case."""
        hub = self._hub
        hub.freeze()
        await self._hold(0.3, 5.0)
        hub.thaw()
        return hub.name

    # -- links ---------------------------------------------------------------------------------

    async def _cut(self, here: list[str], there: list[str]) -> str:
        """Cut all links between both sides, or those of one way."""
        to, back = [(a, b) for a in here for b in there], [(b, a) for a in here for b in there]
        ways = {"both ways": [*to, *back], "to": to, "from": back}
        way = self._random.choice(list(ways))
        for source, target in ways[way]:
            await self._world.network.cut(source, target)
        await self._hold(0.3, 3.0)
        for source, target in ways[way]:
            await self._world.network.mend(source, target)
        return f"{','.join(here)} {way} {','.join(there)}"

    async def cut_hub_from_etcd(self) -> str:
        return await self._cut([self._hub.name], [f"etcd-{place}" for place in range(COUNT)])

    async def cut_hub_from_member(self) -> str:
        return await self._cut([self._hub.name], [self._member.name])

    async def cut_member(self) -> str:
        """From one of the others, or from both."""
        names = [each.name for each in self._world.etcd.members]
        self._random.shuffle(names)
        return await self._cut(names[:1], names[1 : self._random.choice((2, 3))])

    async def cut_clients(self) -> str:
        return await self._cut([CLIENT], [self._hub.name])

    # -- disks ---------------------------------------------------------------------------------

    async def slow_disk(self) -> str:
        disk, member = self._world.slow_disk, self._world.etcd.members[0]
        if disk is None or member.process is None:
            return "none"
        process, writes = member.process.pid, self._random.choice((2, 5, 20))
        disk.slow_down(process, writes)
        await self._hold(0.5, 3.0)
        await disk.speed_up(process)
        return f"{writes} writes/s" if disk.is_throttled else "stopped in bursts"

    async def full_disk(self) -> str:
        """No room on the disk of a member: it dies of it, or it does not."""
        disk, member = self._world.small_disk, self._world.etcd.members[2]
        if disk is None:
            return "none"
        await asyncio.to_thread(disk.fill)
        await self._put_filler(4)  # whoever has nothing to write needs no room
        await self._hold(0.5, 2.0)
        has_died = member.process is None or member.process.returncode is not None
        disk.empty()
        if has_died:
            await _revive(member)
        client = await _opened(self._world.settings)
        if client is not None:
            with suppress(StoreError):
                await client.read(_DELETE, _ALL_FILLER)
            await client.close()
        return "it died" if has_died else "it lived"

    async def full_hub(self) -> str:
        hub = self._hub
        await asyncio.to_thread(hub.disk.fill)
        await self._hold(0.3, 2.0)
        hub.disk.empty()
        return hub.name

    async def full_etcd(self) -> str:
        """Fill it to its quota, let it refuse for a while, and make room as its guide says."""
        has_room = await self._put_filler(100)
        await self._hold(0.2, 1.0)
        await make_room(self._world, self._log)
        return "it had room" if has_room else "it refused"

    async def _put_filler(self, count: int) -> bool:
        """Put large values that no hub knows of; return whether there was room for all."""
        client = await _opened(self._world.settings)
        if client is None:
            return True
        try:
            for number in range(count):
                key = write_bytes_field(1, b"filler/" + str(number).encode())
                await client.call(_PUT, key + write_bytes_field(2, bytes(1_400_000)))
        except StoreError as error:
            return not isinstance(error, StoreFull)
        finally:
            await client.close()
        return True

    # -- time ----------------------------------------------------------------------------------

    async def turn_clock(self) -> str:
        hub, seconds = self._hub, self._random.choice((-3600.0, -7.0, 5.0, 40.0, 86400.0))
        hub.turn_clock(seconds)
        await self._hold(0.3, 2.0)
        hub.turn_clock(0.0)
        return f"{hub.name} by {seconds:g} s"

    async def compact(self) -> str:
        """Forget all that the judge has seen: hubs that are behind him find a gap."""
        revision = self._log.upto
        client = await _opened(self._world.settings)
        if client is None:
            return "nobody answers"
        try:
            with suppress(StoreError):
                await compact_etcd(client, revision)
        finally:
            await client.close()
        return f"to {revision}"


def _both(place: int) -> tuple[str, str]:
    return f"hub-{place}", f"etcd-{place}"


async def _revive(member: EtcdMember) -> None:
    if member.process is None or member.process.returncode is not None:
        await member.start()


async def _restart(hub: FaultyHub) -> None:
    # It may have to wait for etcd, which another fault holds up: whoever heals waits for it.
    if not hub.is_running:
        hub.start()
        await asyncio.sleep(0.5)


async def _opened(settings: EtcdSettings) -> EtcdClient | None:
    with suppress(StoreError):
        return await EtcdClient.open(settings)
    return None


async def make_room(world: World, log: EtcdLog) -> None:
    """Delete the filler, compact, defragment every member, and lift the alarms, until it is so."""
    async with asyncio.timeout(60):
        while True:
            with suppress(StoreError):
                client = await EtcdClient.open(world.settings)
                try:
                    await client.read(_DELETE, _ALL_FILLER)
                    answer = await client.read(messages.RANGE, messages.range_request(b"/"))
                    revision = messages.read_range(answer).revision
                    await log.reach(revision)
                    await compact_etcd(client, revision)
                    for server in world.settings.servers:
                        await _defragment(server)
                    await _lift_alarms(client)
                    return
                finally:
                    await client.close()
            await asyncio.sleep(0.2)


async def _defragment(server: str) -> None:
    client = await _opened(EtcdSettings((server,)))
    if client is not None:  # else it is dead just now, and has done so when it comes back
        try:
            with suppress(StoreError):
                await client.call(_DEFRAGMENT, b"", seconds=10)
        finally:
            await client.close()


async def _lift_alarms(client: EtcdClient) -> None:
    answer = await client.read(_ALARM, b"")
    for alarm in read_fields(answer, "etcd"):
        if alarm.number == 2:
            # Whose it is and which, to be lifted; both numbers are one higher in a request.
            request = write_varint_field(1, 2)
            for field in read_fields(cast("bytes", alarm.value), "etcd"):
                request += write_varint_field(field.number + 1, cast("int", field.value))
            await client.read(_ALARM, request)
