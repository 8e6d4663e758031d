"""A fleet on this machine: hub, fleet API server, controllers and simulated members as children."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor
from clusterspace.errors import ClusterspaceError, TaskFailed, UnusableDirectory
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.roots.clients import hub_settings, member_settings
from clusterspace.roots.installation import Installation
from clusterspace.roots.local.children import Child, Component, State
from clusterspace.roots.local.commands import (
    CONTROLLERS,
    ETCD,
    FLEET,
    HUB,
    ComponentCommands,
    UpSettings,
    peer_of,
)
from clusterspace.roots.local.etcd import LocalEtcd, find_etcd
from clusterspace.roots.local.files import ComponentRecord, LocalFiles, RunRecord
from clusterspace.roots.local.load_balancer import LoadBalancer
from clusterspace.roots.membership import join_cluster
from clusterspace.roots.migration import migrate
from clusterspace.roots.processes import stop_event

_log = structlog.get_logger(__name__)

_FIRST_PORTS: Final = {HUB: 5443, FLEET: 7443}


class LocalFleet:
    """Everything `clusterspace up` runs."""

    def __init__(
        self,
        commands: ComponentCommands,
        clock: Clock,
        *,
        hurry: asyncio.Event,
        on_change: Callable[[ComponentRecord], None],
    ) -> None:
        self._commands = commands
        self._files = commands.files
        self._clock = clock
        self._hurry = hurry
        self._on_change = on_change
        self._started = clock.now()
        self._is_ready = False
        self._children: dict[str, Child] = {}
        self._balancers: dict[str, LoadBalancer] = {}
        self._has_hub = asyncio.Event()

    async def run(self, when_ready: Callable[[], Awaitable[None]]) -> None:
        """Run the fleet until cancelled; call back once everything is ready."""
        settings, commands = self._commands.settings, self._commands
        # Inner groups end first: the controllers stop before the hub they write to, and that
        # before the etcd it writes to.
        async with Supervisor(self._clock, _report) as ground:
            if settings.is_ha:
                await self._lay_ground(ground)
            async with Supervisor(self._clock, _report) as outer:
                for name in settings.member_names:
                    self._keep(outer, commands.member(name, lambda name=name: self._join(name)))
                await self._start_hubs(outer)
                self._has_hub.set()
                async with Supervisor(self._clock, _report) as inner:
                    if settings.is_ha:
                        self._copy_authority()
                        inner.keep("authority of the gateways", self._follow_authority)
                    for name in settings.replicas(FLEET):
                        self._keep(inner, commands.fleet(name))
                    for name in settings.replicas(CONTROLLERS):
                        self._keep(inner, commands.controllers(name))
                    for child in self._children.values():
                        await child.wait_ready()
                    for balancer in self._balancers.values():
                        await balancer.wait_ready()
                    self._files.write_kubeconfig()
                    inner.keep("kubeconfig", self._keep_kubeconfig)
                    await when_ready()
                    self._is_ready = True
                    self._write_record()
                    await asyncio.Event().wait()

    async def _lay_ground(self, tasks: Supervisor) -> None:
        """Start what several hubs stand on: etcd, and one address before all of them."""
        settings, commands = self._commands.settings, self._commands
        etcd, store = commands.etcd_cluster, Installation(self._files.hub).store_file
        etcd.forget_unfinished_move(store)
        if store.exists():
            if etcd.has_data():
                raise UnusableDirectory(
                    f"{store} and {etcd.directory} both have the objects of a fleet:"
                    " put the one aside that is out of date"
                )
            etcd.begin_move()
        etcd.prepare(self._clock.now())
        commands.write_encryption()
        for name in settings.replicas(ETCD):
            self._keep(tasks, commands.etcd(name))
        for server in (HUB, FLEET):
            ports = {name: commands.ports[name] for name in settings.replicas(server)}
            balancer = LoadBalancer(
                commands.ports[server],
                ports,
                self._clock,
                on_change=lambda server=server: self._balancer_changed(server),
            )
            self._balancers[server] = balancer
            tasks.keep(f"address of {server}", balancer.run)
        for name in settings.replicas(ETCD):
            await self._children[name].wait_ready()
        if store.exists():
            # The hubs start after this line. A crash before it leaves the file as it was, and a
            # note that what is in etcd may be half of it.
            servers = ",".join(etcd.settings.servers)
            source, target = f"sqlite:{self._files.hub}", f"etcd:{servers}"
            access = replace(etcd.settings, allows_unsafe_version=settings.etcd_unsafe_version)
            moved = await migrate(
                source, target, access, self._clock.now(), lambda _done, _all: None
            )
            etcd.finish_move(store)
            _log.warning("the objects are in etcd now", objects=moved.objects, before=str(store))

    async def _start_hubs(self, tasks: Supervisor) -> None:
        first, *others = self._commands.settings.replicas(HUB)
        self._keep(tasks, self._commands.hub(first))
        # The first one's authority may be older than etcd, and known to people: it has to be there
        # before another one makes one up. From then on they all start with the same.
        has_all = all(
            Installation(self._commands.home_of(name)).authority_file.exists() for name in others
        )
        if not has_all:
            await self._children[first].wait_ready()
        for name in others:
            self._keep(tasks, self._commands.hub(name))
        for name in (first, *others):
            await self._children[name].wait_ready()

    def _copy_authority(self) -> None:
        first, *others = (
            Installation(self._commands.home_of(name))
            for name in self._commands.settings.replicas(FLEET)
        )
        first.make_authority(self._clock.now())
        for each in others:
            each.copy_authority(first)

    async def _follow_authority(self) -> None:
        """Give every gateway the authority that `certs rotate` has given to the first."""
        first = Installation(self._files.fleet)
        known = first.key_files()
        while True:
            await self._clock.sleep(1)
            found = first.key_files()
            if found != known:
                self._copy_authority()
                known = found

    def _keep(self, tasks: Supervisor, component: Component) -> None:
        child = Child(component, self._clock, on_change=self._changed, hurry=self._hurry)
        self._children[component.name] = child
        tasks.keep(component.name, child.run)

    async def _join(self, name: str) -> None:
        """Let a simulated member join; what it forgot when it stopped, it is given again."""
        await self._has_hub.wait()
        for delay in clocks.exponential(0.2, 2.0):
            try:
                hub = hub_settings(self._files.hub_kubeconfig)
                member = member_settings(name, self._files.member_kubeconfig(name))
                await join_cluster(JoinRequest(name=name, member=member), hub, _log.debug)
            except ClusterspaceError as error:
                _log.warning("a member could not join yet", member=name, reason=str(error))
            else:
                return
            await self._clock.sleep(delay)

    async def _keep_kubeconfig(self) -> None:
        """Write the kubeconfig again whenever a component has renewed its own."""
        files = (self._files.fleet_kubeconfig, self._files.hub_kubeconfig)
        written = tuple(each.stat().st_mtime for each in files)
        while True:
            found = tuple(each.stat().st_mtime for each in files if each.exists())
            if len(found) == len(files) and found != written:
                self._files.write_kubeconfig()
                written = found
            await self._clock.sleep(1)

    def _changed(self, child: Child) -> None:
        self._on_change(self._record(child))
        self._write_record()

    def _balancer_changed(self, server: str) -> None:
        self._on_change(self._balancer_record(server))
        self._write_record()

    def _balancer_record(self, server: str) -> ComponentRecord:
        state = State.READY if self._balancers[server].ready else State.STARTING
        port = self._commands.ports[server]
        return ComponentRecord(
            server, state.value, os.getpid(), 0, port, str(self._files.log("up"))
        )

    def _write_record(self) -> None:
        components = (
            *(self._balancer_record(server) for server in self._balancers),
            *(self._record(child) for child in self._children.values()),
        )
        self._files.write_record(RunRecord(os.getpid(), self._started, self._is_ready, components))

    def _record(self, child: Child) -> ComponentRecord:
        component = child.component
        return ComponentRecord(
            name=component.name,
            state=child.state.value,
            pid=child.pid,
            restarts=child.restarts,
            port=component.listens_at,
            log=str(component.log),
        )


async def run_until_stopped(
    settings: UpSettings,
    when_ready: Callable[[LocalFiles], Awaitable[None]],
    on_change: Callable[[ComponentRecord], None],
) -> None:
    """Run a local fleet until told to stop; a second signal ends the components at once."""
    clock = SystemClock()
    hurry = asyncio.Event()
    stopped = stop_event(again=hurry)
    files = LocalFiles(settings.data_dir.absolute())
    files.prepare()
    with files.locked():
        commands = _prepare(settings, files)
        fleet = LocalFleet(commands, clock, hurry=hurry, on_change=on_change)
        async with Supervisor(clock, _report) as tasks:
            tasks.keep("local fleet", lambda: fleet.run(lambda: when_ready(files)))
            await stopped.wait()


def _prepare(settings: UpSettings, files: LocalFiles) -> ComponentCommands:
    """Choose the ports of all components, and refuse what cannot be started from here."""
    requested: dict[str, int | None] = {HUB: settings.hub_port, FLEET: settings.fleet_port}
    kinds = (ETCD, HUB, FLEET, CONTROLLERS)
    names = [name for kind in kinds for name in settings.replicas(kind)]
    for name in (*names, *settings.member_names):
        requested.setdefault(name, 0)
    peers = tuple(map(peer_of, settings.replicas(ETCD)))
    has_store = Installation(files.hub).store_file.exists()
    if not settings.is_ha and not has_store and LocalEtcd(files.etcd, {}, {}).has_data():
        raise UnusableDirectory(
            f"the objects of the fleet in {files.directory} are in etcd: start it with --ha"
        )
    if not settings.is_ha:
        return ComponentCommands(settings, files, files.choose_ports(requested, _FIRST_PORTS))
    program = find_etcd(allows_unsafe_version=settings.etcd_unsafe_version)
    ports = files.choose_ports(requested, _FIRST_PORTS, lasting=peers)
    return ComponentCommands(settings, files, ports, program)


def _report(failure: TaskFailed) -> None:
    _log.debug("part failed", reason=str(failure))
