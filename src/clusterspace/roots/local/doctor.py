"""What can be wrong with a fleet on this machine, looked at in order, each with what to do."""

import os
import shutil
import socket
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, conditions_of
from clusterspace.apiserver.identity.authority import expires_at
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.errors import ClusterspaceError
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import name_of
from clusterspace.roots.clients import hub_settings, open_client
from clusterspace.roots.installation import Installation, check_store
from clusterspace.roots.local.files import LocalFiles

_LEAST_FREE_BYTES: Final = 512 * 1024 * 1024
_SOON_SECONDS: Final = 30 * 24 * 3600.0
_MAX_SKEW_SECONDS: Final = 30.0
_OLDEST_PYTHON: Final = (3, 11)
_PORTS: Final = (5443, 7443)


class Severity(Enum):
    """How bad what was found is."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at, what was seen, and what to do about it."""

    subject: str
    severity: Severity
    seen: str
    advice: str = ""


async def examine(files: LocalFiles, clock: Clock) -> AsyncGenerator[Finding]:
    """Look at everything that usually is the reason, and yield what was found."""
    for finding in (*_examine_machine(files), *_examine_processes(files, clock)):
        yield finding
    if not files.is_running():
        yield _examine_store(files)
        return
    try:
        async with open_client(hub_settings(files.hub_kubeconfig)) as hub:
            answer = await hub.connection.ask(ApiRequest("GET", "/readyz"))
            date = answer.headers.get("date", "")
            skew = abs(parsedate_to_datetime(date).timestamp() - clock.now()) if date else None
            if skew is None:
                yield Finding("hub", Severity.OK, "answers")
            elif skew <= _MAX_SKEW_SECONDS:
                yield Finding("hub", Severity.OK, "answers; its clock agrees with ours")
            else:
                advice = "set both clocks right: certificates and tokens depend on them"
                yield Finding("clock", Severity.BAD, f"{skew:.0f}s apart from the hub's", advice)
            for cluster in await hub.list_objects(ResourcePath(CLUSTERS)):
                name, ready = name_of(cluster), find_condition(conditions_of(cluster), "Ready")
                if ready is None:
                    advice = "do the controllers run?"
                    yield Finding(name, Severity.WARNING, "has not reported yet", advice)
                elif ready.get("status") == "True":
                    yield Finding(name, Severity.OK, "is Ready")
                else:
                    seen = f"{ready.get('reason', 'not Ready')}: {ready.get('message', '')}"
                    advice = f"kubectl describe cluster {name} says since when"
                    yield Finding(name, Severity.BAD, seen, advice)
    except ClusterspaceError as error:
        yield Finding("hub", Severity.BAD, str(error), "look at `clusterspace logs hub`")


def _examine_machine(files: LocalFiles) -> Iterator[Finding]:
    """Look at what is needed of the machine: programs, and room on the disk."""
    python = sys.version.split()[0]
    if sys.version_info >= _OLDEST_PYTHON:
        yield Finding("python", Severity.OK, python)
    else:
        yield Finding("python", Severity.BAD, python, "install Python 3.11 or later")

    kubectl = shutil.which("kubectl")
    if kubectl is not None:
        yield Finding("kubectl", Severity.OK, kubectl)
    else:
        advice = "install it to use the fleet: https://kubernetes.io/docs/tasks/tools/"
        yield Finding("kubectl", Severity.WARNING, "not on the PATH", advice)

    directory = files.directory if files.directory.exists() else files.directory.parent
    free = shutil.disk_usage(directory).free
    seen = f"{free // 1024**2} MiB free at {directory}"
    if not os.access(directory, os.W_OK):
        advice = "choose another --data-dir"
        yield Finding("disk", Severity.BAD, f"{directory} is not writable", advice)
    elif free < _LEAST_FREE_BYTES:
        yield Finding("disk", Severity.WARNING, seen, "make room: a full disk stops all writes")
    else:
        yield Finding("disk", Severity.OK, seen)


def _examine_processes(files: LocalFiles, clock: Clock) -> Iterator[Finding]:
    """Look at what can be seen of our processes without asking them; ports, when there are none."""
    certificate, _ = Installation(files.hub).server_files
    if not certificate.exists():
        yield Finding("certificates", Severity.OK, "none yet; made at the first start")
    else:
        left = expires_at(certificate.read_bytes()) - clock.now()
        seen = f"the hub's is good for {int(left // 86400)} days"
        if left > _SOON_SECONDS:
            yield Finding("certificates", Severity.OK, seen)
        else:
            advice = "restart the hub: it makes a new one"
            yield Finding("certificates", Severity.BAD, seen, advice)

    record = files.read_record()
    if record is not None:
        unwell = [each.name for each in record.components if each.state != "ready"]
        if unwell:
            advice = f"look at `clusterspace logs {unwell[0]}`"
            yield Finding("parts", Severity.BAD, f"not ready: {', '.join(unwell)}", advice)
        else:
            yield Finding("parts", Severity.OK, f"{len(record.components)} parts are ready")
        return
    taken = [str(port) for port in _PORTS if _is_taken(port)]
    if taken:
        advice = "choose others: clusterspace up --hub-port 0 --fleet-port 0"
        yield Finding("ports", Severity.WARNING, f"in use: {', '.join(taken)}", advice)
    else:
        yield Finding("ports", Severity.OK, "nothing runs; 5443 and 7443 are free")


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _examine_store(files: LocalFiles) -> Finding:
    """Read every record of the store of a fleet that does not run."""
    if not Installation(files.hub).store_file.exists():
        return Finding("store", Severity.OK, "empty; made at the first start")
    try:
        inspection = check_store(files.hub)
    except ClusterspaceError as error:
        advice = "restore a backup: clusterspace store restore"
        return Finding("store", Severity.BAD, str(error), advice)
    return Finding("store", Severity.OK, f"readable up to revision {inspection.revision}")
