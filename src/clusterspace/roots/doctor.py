"""What can be wrong with a fleet on this machine, looked at in order, each with what to do."""

import os
import shutil
import socket
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from pathlib import Path
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, conditions_of
from clusterspace.apiserver.identity.authority import expires_at
from clusterspace.client.places import Place
from clusterspace.client.requests import ApiRequest
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import ClusterspaceError
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, name_of
from clusterspace.roots.clients import hub_settings, open_client
from clusterspace.roots.installation import Installation
from clusterspace.roots.local_files import LocalFiles
from clusterspace.roots.store_files import check

_LEAST_FREE_BYTES: Final = 512 * 1024 * 1024
_SOON_SECONDS: Final = 30 * 24 * 3600.0
_MOST_SKEW_SECONDS: Final = 30.0
_OLDEST_PYTHON: Final = (3, 11)


class Verdict(Enum):
    """How a look ended."""

    FINE = "ok"
    DOUBTFUL = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at, what was seen, and what to do about it."""

    subject: str
    verdict: Verdict
    seen: str
    advice: str = ""


async def examine(files: LocalFiles, clock: Clock) -> AsyncGenerator[Finding]:
    """Look at everything that usually is the reason, and yield what was found."""
    yield _python()
    yield _kubectl()
    yield _disk(files.directory)
    yield _certificate(Installation(files.hub), clock.now())
    is_running = files.is_running()
    yield _parts(files)
    if not is_running:
        yield _store(files)
        return
    async for finding in _hub(files, clock):
        yield finding


def _python() -> Finding:
    seen = sys.version.split()[0]
    if sys.version_info >= _OLDEST_PYTHON:
        return Finding("python", Verdict.FINE, seen)
    return Finding("python", Verdict.BAD, seen, "install Python 3.11 or later")


def _kubectl() -> Finding:
    found = shutil.which("kubectl")
    if found is not None:
        return Finding("kubectl", Verdict.FINE, found)
    advice = "install it to use the fleet: https://kubernetes.io/docs/tasks/tools/"
    return Finding("kubectl", Verdict.DOUBTFUL, "not on the PATH", advice)


def _disk(directory: Path) -> Finding:
    place = directory if directory.exists() else directory.parent
    free = shutil.disk_usage(place).free
    seen = f"{free // 1024**2} MiB free at {place}"
    if not os.access(place, os.W_OK):
        return Finding("disk", Verdict.BAD, f"{place} is not writable", "choose another --data-dir")
    if free < _LEAST_FREE_BYTES:
        return Finding("disk", Verdict.DOUBTFUL, seen, "make room: a full disk stops all writes")
    return Finding("disk", Verdict.FINE, seen)


def _certificate(hub: Installation, now: float) -> Finding:
    certificate, _ = hub.server_files
    if not certificate.exists():
        return Finding("certificates", Verdict.FINE, "none yet; made at the first start")
    left = expires_at(certificate.read_bytes()) - now
    seen = f"the hub's is good for {int(left // 86400)} days"
    if left > _SOON_SECONDS:
        return Finding("certificates", Verdict.FINE, seen)
    return Finding("certificates", Verdict.BAD, seen, "restart the hub: it makes a new one")


def _parts(files: LocalFiles) -> Finding:
    record = files.read_record()
    if record is None:
        return _ports()
    unwell = [each.name for each in record.parts if each.state != "ready"]
    if not unwell:
        return Finding("parts", Verdict.FINE, f"{len(record.parts)} parts are ready")
    advice = f"look at `clusterspace logs {unwell[0]}`"
    return Finding("parts", Verdict.BAD, f"not ready: {', '.join(unwell)}", advice)


def _ports() -> Finding:
    taken = [port for port in (5443, 7443) if _is_taken(port)]
    if not taken:
        return Finding("ports", Verdict.FINE, "nothing runs; 5443 and 7443 are free")
    advice = "choose others: clusterspace up --hub-port 0 --fleet-port 0"
    return Finding("ports", Verdict.DOUBTFUL, f"in use: {', '.join(map(str, taken))}", advice)


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _store(files: LocalFiles) -> Finding:
    installation = Installation(files.hub)
    if not installation.store_file.exists():
        return Finding("store", Verdict.FINE, "empty; made at the first start")
    try:
        inspection = check(files.hub)
    except ClusterspaceError as error:
        advice = "restore a backup: clusterspace store restore"
        return Finding("store", Verdict.BAD, str(error), advice)
    return Finding("store", Verdict.FINE, f"readable up to revision {inspection.revision}")


async def _hub(files: LocalFiles, clock: Clock) -> AsyncGenerator[Finding]:
    try:
        async with open_client(hub_settings(files.hub_kubeconfig)) as hub:
            yield await _clock_of(hub, clock)
            for cluster in await hub.list_objects(Place(CLUSTERS)):
                yield _member(cluster)
    except ClusterspaceError as error:
        yield Finding("hub", Verdict.BAD, str(error), "look at `clusterspace logs hub`")


async def _clock_of(hub: ClusterClient, clock: Clock) -> Finding:
    answer = await hub.connection.ask(ApiRequest("GET", "/readyz"))
    told = answer.headers.get("date", "")
    if not told:
        return Finding("hub", Verdict.FINE, "answers")
    skew = abs(parsedate_to_datetime(told).timestamp() - clock.now())
    if skew <= _MOST_SKEW_SECONDS:
        return Finding("hub", Verdict.FINE, "answers; its clock agrees with ours")
    advice = "set both clocks right: certificates and tokens depend on them"
    return Finding("clock", Verdict.BAD, f"{skew:.0f}s apart from the hub's", advice)


def _member(cluster: Object) -> Finding:
    name = name_of(cluster)
    ready = find_condition(conditions_of(cluster), "Ready")
    if ready is None:
        return Finding(name, Verdict.DOUBTFUL, "has not reported yet", "do the controllers run?")
    if ready.get("status") == "True":
        return Finding(name, Verdict.FINE, "is Ready")
    seen = f"{ready.get('reason', 'not Ready')}: {ready.get('message', '')}"
    return Finding(name, Verdict.BAD, seen, f"kubectl describe cluster {name} says since when")
