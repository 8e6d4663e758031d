"""A fleet on this machine: hub, fleet API server, controllers and simulated members as children."""

import asyncio
import os
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor
from clusterspace.client.endpoints import ALLOW_FLAG, LOOPBACK, Network
from clusterspace.errors import ClusterspaceError, TaskFailed
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.roots.clients import hub_settings, member_settings
from clusterspace.roots.local.children import Child, Component
from clusterspace.roots.local.files import ComponentRecord, LocalFiles, RunRecord
from clusterspace.roots.membership import join_cluster
from clusterspace.roots.processes import stop_event

_log = structlog.get_logger(__name__)

_HUB: Final = "hub"
_FLEET: Final = "fleet"
_CONTROLLERS: Final = "controllers"
_FIRST_PORTS: Final = {_HUB: 5443, _FLEET: 7443}
_MASTERS: Final = "--impersonate-masters"
"""Whoever starts a fleet on their own machine is the administrator of all of it."""


@dataclass(frozen=True, slots=True)
class UpSettings:
    """The settings a local fleet is started with."""

    data_dir: Path
    hub_port: int | None = None
    fleet_port: int | None = None
    """0 is a free one, or the one of last time; not to say any is the one of last time, too, and
    at first the one that everybody knows."""
    members: int = 0
    federation: bool = True
    member_cidrs: tuple[Network, ...] = ()
    """Where members may be; on this machine they may be in any case, for here is where it runs."""

    @property
    def member_names(self) -> tuple[str, ...]:
        """What the simulated members are called."""
        return tuple(f"member{number}" for number in range(1, self.members + 1))


@dataclass(frozen=True, slots=True)
class ComponentCommands:
    """The components of one local fleet, as command lines."""

    settings: UpSettings
    files: LocalFiles
    ports: dict[str, int]

    def hub(self) -> Component:
        """Return the hub."""
        place = ("--data-dir", str(self.files.hub), "--port", str(self.ports[_HUB]))
        arguments = (_HUB, *place, _MASTERS, *self._member_cidrs)
        return self._component(_HUB, arguments, ready_file=self.files.hub_kubeconfig)

    def fleet(self) -> Component:
        """Return the fleet API server."""
        place = ("--data-dir", str(self.files.fleet), "--port", str(self.ports[_FLEET]))
        given = (*place, _MASTERS, *self._federation, *self._member_cidrs)
        arguments = (_FLEET, *self._identity(_FLEET), *given)
        return self._component(_FLEET, arguments, ready_file=self.files.fleet_kubeconfig)

    def controllers(self) -> Component:
        """Return the controllers."""
        port = ("--metrics-port", str(self.ports[_CONTROLLERS]))
        given = (*port, *self._federation, *self._member_cidrs)
        arguments = (_CONTROLLERS, *self._identity(_CONTROLLERS), *given)
        return self._component(_CONTROLLERS, arguments)

    def member(self, name: str, settle: Callable[[], Awaitable[None]]) -> Component:
        """Return a simulated member."""
        place = ("--data-dir", str(self.files.member(name)), "--port", str(self.ports[name]))
        # A member that starts again must be the same cluster: its identity is in its UIDs.
        identity = ("--seed", str(zlib.crc32(name.encode())))
        ready = self.files.member_kubeconfig(name)
        return self._component(
            name, ("sim", name, *place, *identity), ready_file=ready, settle=settle
        )

    def _component(self, name: str, arguments: tuple[str, ...], **more: object) -> Component:
        return Component(name, arguments, self.files.log(name), self.ports[name], **more)  # pyright: ignore[reportArgumentType]

    def _identity(self, component: str) -> tuple[str, str]:
        return ("--hub-kubeconfig", str(self.files.component_kubeconfig(component)))

    @property
    def _member_cidrs(self) -> tuple[str, ...]:
        networks = (*LOOPBACK, *self.settings.member_cidrs)
        return tuple(word for each in networks for word in (ALLOW_FLAG, str(each)))

    @property
    def _federation(self) -> tuple[str, ...]:
        return () if self.settings.federation else ("--federation=false",)


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
        self._has_hub = asyncio.Event()

    async def run(self, when_ready: Callable[[], Awaitable[None]]) -> None:
        """Run the fleet until cancelled; call back once everything is ready."""
        # Inner groups end first: the controllers stop before the hub they write to.
        async with Supervisor(self._clock, _report) as outer:
            self._keep(outer, self._commands.hub())
            for name in self._commands.settings.member_names:
                self._keep(outer, self._commands.member(name, lambda name=name: self._join(name)))
            await self._children[_HUB].wait_ready()
            self._has_hub.set()
            async with Supervisor(self._clock, _report) as inner:
                self._keep(inner, self._commands.fleet())
                self._keep(inner, self._commands.controllers())
                for child in self._children.values():
                    await child.wait_ready()
                self._files.write_kubeconfig()
                inner.keep("kubeconfig", self._keep_kubeconfig)
                await when_ready()
                self._is_ready = True
                self._write_record()
                await asyncio.Event().wait()

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

    def _write_record(self) -> None:
        components = tuple(self._record(child) for child in self._children.values())
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
        requested = {_HUB: settings.hub_port, _FLEET: settings.fleet_port, _CONTROLLERS: 0}
        everyone = {**requested, **dict.fromkeys(settings.member_names, 0)}
        ports = files.choose_ports(everyone, first=_FIRST_PORTS)
        fleet = LocalFleet(
            ComponentCommands(settings, files, ports), clock, hurry=hurry, on_change=on_change
        )
        async with Supervisor(clock, _report) as tasks:
            tasks.keep("local fleet", lambda: fleet.run(lambda: when_ready(files)))
            await stopped.wait()


def _report(failure: TaskFailed) -> None:
    _log.debug("part failed", reason=str(failure))
