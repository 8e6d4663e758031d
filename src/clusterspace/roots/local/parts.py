"""How the parts of a fleet are, each asked itself: for `status` and `doctor`.

Which parts there are is said by the directory of a fleet that `up` runs, else by kubeconfigs and
settings: parts may have been started one by one, here or elsewhere. What is named and cannot be
asked is reported like what is ill: nobody knows that it is well.
"""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from clusterspace.aio.clocks import Clock
from clusterspace.apis.identities import CONTROLLERS_LEASE
from clusterspace.client.kubeconfig import kubeconfig_files, read_kubeconfig
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.leases import LEASES, LeaseTimings
from clusterspace.errors import (
    ApiError,
    ClusterError,
    Forbidden,
    Malformed,
    UnusableKubeconfig,
)
from clusterspace.kube.objects import find_at
from clusterspace.kube.times import age, parse_time
from clusterspace.roots.clients import HUB, open_client
from clusterspace.roots.kubeconfigs import FLEET_CONTEXT
from clusterspace.roots.local.etcd import LocalEtcd, ask_health
from clusterspace.roots.local.files import ComponentRecord, LocalFiles

_PATIENCE: Final = 3.0
"""How long a part may take to say that it is well: people wait for it."""
CONTROLLERS: Final = "controllers"
_LEASE: Final = ResourcePath(LEASES, "kube-system", CONTROLLERS_LEASE)
_ETCD: Final = "etcd"
_READ_ONLY: Final = "read-only"

READY: Final = "ready"
DOWN: Final = "does not run"
SILENT: Final = "does not answer"
UNASKED: Final = "could not be asked"


@dataclass(frozen=True, slots=True)
class PartReport:
    """One part: how it is, by its own word where it could be asked."""

    name: str
    state: str
    says: str = ""
    """What it said besides, or why it could not be asked."""
    address: str = ""
    pid: int | None = None
    restarts: int = 0
    port: int | None = None
    log: str = ""
    is_named: bool = True
    """Whether something says that it is there: a fleet may well be without some parts."""

    @property
    def is_well(self) -> bool:
        """Whether it does all it is there for."""
        return self.state == READY


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The parts of one fleet; none when nothing names any."""

    source: str
    """Who named the parts: a directory, or kubeconfigs."""
    parts: tuple[PartReport, ...]
    hub: ConnectionSettings | None = None

    @property
    def is_well(self) -> bool:
        """Whether there are parts, and all that anything names are well."""
        named = [each for each in self.parts if each.is_named]
        return bool(named) and all(each.is_well for each in named)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where to look for parts that `up` did not start."""

    kubeconfig: Path | None = None
    context: str = ""
    directories: tuple[Path, ...] = ()
    """Data directories that settings name."""
    metrics_port: int | None = None
    """Where the controllers of this machine answer, if settings say so."""


async def ask_parts(files: LocalFiles, where: Whereabouts, clock: Clock) -> FleetReport:
    """Ask every part that something names, all at once."""
    record = files.read_record() if where.kubeconfig is None else None
    if record is None:
        return await _ask_named(files, where, clock)
    hub = _settings_in((files.hub_kubeconfig,), "", HUB)
    asked: list[Awaitable[PartReport]] = []
    for part in record.components:
        if part.state != READY:
            asked.append(_known(_recorded(part, part.state, "see its log")))
            continue
        kind, _, number = part.name.partition("-")
        if kind == CONTROLLERS:
            asked.append(_ask_controllers(hub, part.port, clock, part))
        elif kind == _ETCD:
            asked.append(_ask_etcd(files, part))
        else:
            # The gateway's own file says where it is, the hub's who people are.
            own = {
                HUB: (files.hub_kubeconfig,),
                FLEET_CONTEXT: (files.fleet_kubeconfig, files.hub_kubeconfig),
            }
            kubeconfigs = own.get(kind, (files.member_kubeconfig(part.name),))
            settings = _settings_in(kubeconfigs, "", part.name)
            if settings is not None and number and kind in own:
                # What kubeconfigs say leads to any of the replicas: this one is asked itself.
                settings = replace(settings, server=f"https://127.0.0.1:{part.port}")
            asked.append(_ask_server(part.name, settings, part))
    return FleetReport(str(files.directory), await _all(asked), hub)


async def _ask_etcd(files: LocalFiles, part: ComponentRecord) -> PartReport:
    """Ask a member of etcd how it is."""
    report = _recorded(part, READY)
    try:
        trouble = await ask_health(LocalEtcd(files.etcd, {}, {}).settings, part.port or 0)
    except TimeoutError:
        return replace(report, state=SILENT, says=_why_silent(part.pid))
    except OSError as error:
        return replace(report, state=DOWN, says=f"{error.strerror or error}".lower())
    return replace(report, state="not ready", says=trouble) if trouble else report


async def _ask_named(files: LocalFiles, where: Whereabouts, clock: Clock) -> FleetReport:
    """Ask the parts that kubeconfigs and settings name."""
    if where.kubeconfig is not None:
        kubeconfigs: tuple[Path, ...] = (where.kubeconfig,)
    elif os.environ.get("KUBECONFIG"):
        kubeconfigs = kubeconfig_files(os.environ, Path.home())
    else:
        # A hub alone keeps its files where `up` has the whole fleet's.
        directories = (files.directory, files.hub, files.fleet, *where.directories)
        kubeconfigs = tuple(each / "kubeconfig" for each in directories)
    found = [each for each in kubeconfigs if each.exists()]
    if not found:
        return FleetReport(", ".join(map(str, kubeconfigs)), ())
    hub = _settings_in(found, where.context or HUB, HUB) or _settings_in(found, "", HUB)
    fleet = _settings_in(found, FLEET_CONTEXT, FLEET_CONTEXT)
    if hub is not None and fleet is not None and hub.server == fleet.server:
        hub = None  # the file names the unified view alone
    asked = [
        _ask_server(HUB, hub),
        _ask_server(FLEET_CONTEXT, fleet),
        _ask_controllers(hub, where.metrics_port, clock),
    ]
    return FleetReport(", ".join(map(str, found)), await _all(asked), hub)


async def _all(asked: Sequence[Awaitable[PartReport]]) -> tuple[PartReport, ...]:
    async def one(report: Awaitable[PartReport]) -> PartReport:
        return await report

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(each)) for each in asked]
    return tuple(task.result() for task in tasks)


async def _known(report: PartReport) -> PartReport:
    return report


def _settings_in(files: Sequence[Path], context: str, cluster: str) -> ConnectionSettings | None:
    try:
        return read_kubeconfig(files).settings(context, cluster=cluster)
    except UnusableKubeconfig:
        return None


def _recorded(part: ComponentRecord | None, state: str, says: str = "") -> PartReport:
    if part is None:
        return PartReport("", state, says)
    address = f"127.0.0.1:{part.port}" if part.port else ""
    return PartReport(part.name, state, says, address, part.pid, part.restarts, part.port, part.log)


async def _ask_server(
    name: str, settings: ConnectionSettings | None, part: ComponentRecord | None = None
) -> PartReport:
    """Ask an API server whether it is ready."""
    if settings is None:
        report = _recorded(part, UNASKED, "no kubeconfig says where it is")
        return replace(report, name=name, is_named=part is not None or name == HUB)
    url = urlsplit(settings.server)
    address = url.netloc + url.path
    base = replace(_recorded(part, READY), name=name, address=address)
    try:
        async with asyncio.timeout(_PATIENCE):
            if not settings.proxy_url:
                # Nobody there is said at once, and apart from somebody who does not answer.
                _, writer = await asyncio.open_connection(url.hostname, url.port or 443)
                writer.close()
            async with open_client(settings) as client:
                answer = await client.connection.ask(ApiRequest("GET", "/readyz"))
    except TimeoutError:
        return replace(base, state=SILENT, says=_why_silent(base.pid))
    except OSError as error:
        return replace(base, state=DOWN, says=f"{error.strerror or error}".lower())
    except (ApiError, ClusterError, UnusableKubeconfig) as error:
        return replace(base, state="not ready", says=str(error))
    _, _, more = answer.body.decode(errors="replace").partition("\n")
    if more.startswith(_READ_ONLY):
        return replace(base, state=_READ_ONLY, says=more.partition(": ")[2].strip())
    return base


def _why_silent(pid: int | None) -> str:
    """Return why a part does not answer, as far as its process shows it."""
    late = f"nothing within {_PATIENCE:g}s"
    if pid is None:
        return late
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return late
    return f"{late}: process {pid} is stopped (kill -CONT {pid})" if state == "T" else late


async def _ask_controllers(
    hub: ConnectionSettings | None,
    port: int | None,
    clock: Clock,
    part: ComponentRecord | None = None,
) -> PartReport:
    """Ask the controllers of this machine, and the lease which of all of them works.

    A process of theirs may be well and stand by, or be frozen while it still holds the lease.
    """
    base = replace(_recorded(part, READY), name=part.name if part else CONTROLLERS)
    if port is not None:
        base = replace(base, address=f"127.0.0.1:{port}")
        says, problem = await _ask_readiness(port, base.pid)
        if problem:
            return replace(base, state=problem, says=says)
    if hub is None:
        return replace(base, state=UNASKED, says="no kubeconfig says where the hub is")
    try:
        async with asyncio.timeout(_PATIENCE), open_client(hub) as client:
            lease = await client.find(_LEASE)
    except TimeoutError:
        return replace(base, state=UNASKED, says="the hub, which has their lease, does not answer")
    except (Forbidden, UnusableKubeconfig) as error:
        return replace(base, state=UNASKED, says=str(error))
    except (ApiError, ClusterError) as error:
        return replace(base, state=UNASKED, says=f"the hub has their lease: {error}")
    holder = str(find_at(lease, "spec", "holderIdentity") or "")
    renewed = str(find_at(lease, "spec", "renewTime") or "")
    if not holder or not renewed:
        return replace(base, state=DOWN, says="nobody holds their lease")
    try:
        seconds = clock.now() - parse_time(renewed)
    except Malformed:
        return replace(base, state=UNASKED, says="their lease cannot be read")
    lasts = find_at(lease, "spec", "leaseDurationSeconds") or LeaseTimings().lease_seconds
    if seconds > 2 * lasts:
        says = f"{holder} led, and has not renewed its lease for {age(seconds)}"
        return replace(base, state=DOWN, says=says)
    return replace(base, says=f"{holder} leads, heard {age(max(seconds, 0))} ago")


async def _ask_readiness(port: int, pid: int | None) -> tuple[str, str]:
    """Ask a process that serves no API whether it is ready; return its words and what is wrong."""
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(
                    b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                )
                answer = (await reader.read()).decode(errors="replace")
            finally:
                writer.close()
    except TimeoutError:
        return _why_silent(pid), SILENT
    except OSError as error:
        return f"{error.strerror or error}".lower(), DOWN
    head, _, body = answer.partition("\r\n\r\n")
    says = body.removeprefix("ok").strip()
    return says, "" if " 200 " in head.partition("\r\n")[0] else "not ready"
