"""The components of a local fleet as command lines: one of each, or several with `up --ha`."""

import asyncio
import os
import secrets
import zlib
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from clusterspace.client.endpoints import ALLOW_FLAG, LOOPBACK, Network
from clusterspace.roots.installation import write_private
from clusterspace.roots.local.children import Component
from clusterspace.roots.local.etcd import LocalEtcd, ask_health
from clusterspace.roots.local.files import LocalFiles

HUB: Final = "hub"
FLEET: Final = "fleet"
CONTROLLERS: Final = "controllers"
ETCD: Final = "etcd"

_REPLICAS: Final = {ETCD: 3, HUB: 3, FLEET: 2, CONTROLLERS: 2}
_MASTERS: Final = "--impersonate-masters"
"""Whoever starts a fleet on their own machine is the administrator of all of it."""
_LEAVE: Final = ("--shutdown-delay-duration", "2")
"""The load balancer looks every second, and has then seen that a server is on its way out."""
_HEALTH_SECONDS: Final = 0.2
_OWN_KEYS: Final = "CLUSTERSPACE_HUB_ENCRYPTION_PROVIDER_CONFIG"


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
    is_ha: bool = False
    """Whether there are several of everything, and the objects are in etcd."""
    workers: int = 1
    """Processes of a fleet API server."""
    etcd_unsafe_version: bool = False
    """Whether any version of etcd will do."""

    @property
    def member_names(self) -> tuple[str, ...]:
        """What the simulated members are called."""
        return tuple(f"member{number}" for number in range(1, self.members + 1))

    def replicas(self, kind: str) -> tuple[str, ...]:
        """Return the components of a kind by name; their numbers begin with 1."""
        if not self.is_ha:
            return () if kind == ETCD else (kind,)
        return tuple(f"{kind}-{number}" for number in range(1, _REPLICAS[kind] + 1))


@dataclass(frozen=True, slots=True)
class ComponentCommands:
    """The components of one local fleet, as command lines."""

    settings: UpSettings
    files: LocalFiles
    ports: dict[str, int]
    """By component; with `up --ha` also where `hub` and `fleet` as a whole are reached."""
    etcd_program: Path = Path("etcd")

    @property
    def etcd_cluster(self) -> LocalEtcd:
        """The members of etcd, where there are any."""
        names = self.settings.replicas(ETCD)
        return LocalEtcd(
            self.files.etcd,
            {name: self.ports[name] for name in names},
            {name: self.ports[peer_of(name)] for name in names},
        )

    def etcd(self, name: str) -> Component:
        """Return a member of etcd; it is ready once there is a quorum that it belongs to."""
        cluster, port = self.etcd_cluster, self.ports[name]

        async def until_well() -> None:
            while True:
                try:
                    if not await ask_health(cluster.settings, port):
                        return
                except (OSError, TimeoutError):
                    pass
                await asyncio.sleep(_HEALTH_SECONDS)

        command = cluster.command(self.etcd_program, name)
        return self._component(name, (), program=command, settle=until_well)

    def hub(self, name: str) -> Component:
        """Return a hub."""
        home = self.home_of(name)
        arguments = (HUB, *self._place(name, home), _MASTERS, *self._member_cidrs)
        if self.settings.is_ha:
            etcd = self.etcd_cluster.settings
            arguments += (
                *("--etcd-servers", ",".join(etcd.servers)),
                *("--etcd-cafile", str(etcd.ca_file)),
                *("--etcd-certfile", str(etcd.cert_file), "--etcd-keyfile", str(etcd.key_file)),
                *self._encryption,
                *(("--etcd-unsafe-version",) if self.settings.etcd_unsafe_version else ()),
                *self._behind(HUB),
            )
        return self._component(name, arguments, ready_file=home / "kubeconfig")

    def fleet(self, name: str) -> Component:
        """Return a fleet API server."""
        home = self.home_of(name)
        given = (*self._place(name, home), _MASTERS, *self._federation, *self._member_cidrs)
        arguments = (FLEET, *self._identity(FLEET), *given)
        if self.settings.workers > 1:
            arguments += ("--workers", str(self.settings.workers), "--last-state", "0")
        if self.settings.is_ha:
            arguments += self._behind(FLEET)
        return self._component(name, arguments, ready_file=home / "kubeconfig")

    def controllers(self, name: str) -> Component:
        """Return the controllers; of several, one works."""
        port = ("--metrics-port", str(self.ports[name]))
        given = (*port, *self._federation, *self._member_cidrs)
        return self._component(name, (CONTROLLERS, *self._identity(CONTROLLERS), *given))

    def member(self, name: str, settle: Callable[[], Awaitable[None]]) -> Component:
        """Return a simulated member."""
        # A member that starts again must be the same cluster: its identity is in its UIDs.
        identity = ("--seed", str(zlib.crc32(name.encode())))
        arguments = ("sim", name, *self._place(name, self.files.member(name)), *identity)
        ready = self.files.member_kubeconfig(name)
        return self._component(name, arguments, ready_file=ready, settle=settle)

    def home_of(self, name: str) -> Path:
        """Return the data directory of a hub or a fleet API server."""
        server, _, number = name.partition("-")
        return self.files.replica(server, int(number or 1))

    def write_encryption(self) -> None:
        """Make the keys that hubs have in common, unless there are some.

        With them, hubs share their authority through etcd, and Secrets are encrypted there.
        """
        if self.files.encryption.exists():
            return
        key = {"name": "first", "secret": b64encode(secrets.token_bytes(32)).decode()}
        # What was stored before there were keys is read as it is.
        providers: list[dict[str, Any]] = [{"aesgcm": {"keys": [key]}}, {"identity": {}}]
        config: dict[str, Any] = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": providers}],
        }
        write_private(self.files.encryption, msgspec.json.encode(config))

    def _component(self, name: str, arguments: tuple[str, ...], **more: object) -> Component:
        return Component(name, arguments, self.files.log(name), self.ports[name], **more)  # pyright: ignore[reportArgumentType]

    def _place(self, name: str, home: Path) -> tuple[str, ...]:
        return ("--data-dir", str(home), "--port", str(self.ports[name]))

    def _behind(self, server: str) -> tuple[str, ...]:
        """Return what a server is told that has others beside it and a load balancer before it."""
        return ("--control-plane-endpoint", f"127.0.0.1:{self.ports[server]}", *_LEAVE)

    def _identity(self, component: str) -> tuple[str, str]:
        return ("--hub-kubeconfig", str(self.files.component_kubeconfig(component)))

    @property
    def _encryption(self) -> tuple[str, ...]:
        """Return the keys of the hubs, unless the environment says which ones they have."""
        if os.environ.get(_OWN_KEYS):
            return ()
        return ("--encryption-provider-config", str(self.files.encryption))

    @property
    def _member_cidrs(self) -> tuple[str, ...]:
        networks = (*LOOPBACK, *self.settings.member_cidrs)
        return tuple(word for each in networks for word in (ALLOW_FLAG, str(each)))

    @property
    def _federation(self) -> tuple[str, ...]:
        return () if self.settings.federation else ("--federation=false",)


def peer_of(name: str) -> str:
    """Return what the port is called by which other members of etcd reach one."""
    return f"{name} among its peers"
