"""What can be wrong with a fleet, looked at in order, each with what to do."""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    DELETIONS_PAUSED,
    conditions_of,
    is_pull,
)
from clusterspace.apis.witnesses import CONFIRMED, LEASE_NAMESPACE, read_report
from clusterspace.apiserver.identity.authority import expires_at
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import ClusterspaceError, Malformed
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, is_being_deleted, metadata_of, name_of
from clusterspace.kube.times import age, parse_time
from clusterspace.roots.clients import hub_settings, open_client
from clusterspace.roots.hub_rules import examine_rules
from clusterspace.roots.installation import Installation, check_store
from clusterspace.roots.local.files import LocalFiles
from clusterspace.roots.local.parts import (
    CONTROLLERS,
    DOWN,
    SILENT,
    PartReport,
    Whereabouts,
    ask_parts,
)

_LEAST_FREE_BYTES: Final = 512 * 1024 * 1024
_SOON_SECONDS: Final = 30 * 24 * 3600.0
_MAX_SKEW_SECONDS: Final = 30.0
_HUB_SECONDS: Final = 10.0
_LONG_LEAVE_SECONDS: Final = 120.0
"""A leave takes seconds; whoever is well and takes longer is held up by something."""
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


async def examine(files: LocalFiles, where: Whereabouts, clock: Clock) -> AsyncGenerator[Finding]:
    """Look at everything that usually is the reason, and yield what was found."""
    for finding in (*_examine_machine(files), *_examine_certificates(files, clock)):
        yield finding
    report = await ask_parts(files, where, clock)
    if not report.parts:
        seen = f"nothing runs from {files.directory}, and no kubeconfig names a fleet"
        advice = "start one with `clusterspace up`, or set KUBECONFIG to that of a hub"
        yield Finding("parts", Severity.BAD, seen, advice)
    for part in report.parts:
        yield _finding_of(part, is_local=files.is_running())
    if report.hub is not None and where.kubeconfig is None and os.environ.get("KUBECONFIG"):
        with suppress(ClusterspaceError):
            named = hub_settings(None, where.context).server
            if named != report.hub.server:
                seen = f"names the hub at {named}, not {report.hub.server}, which is looked at here"
                advice = f"export KUBECONFIG={files.kubeconfig}"
                yield Finding("KUBECONFIG", Severity.WARNING, seen, advice)
    if not files.is_running() and Installation(files.hub).store_file.exists():
        yield _examine_store(files)
    if not files.is_running():
        yield _examine_ports()
    if report.hub is None or any(
        p.name == "hub" and p.state in (DOWN, SILENT) for p in report.parts
    ):
        yield Finding("clusters", Severity.BAD, "could not be asked for: the hub does not answer")
        return
    try:
        async with asyncio.timeout(_HUB_SECONDS), open_client(report.hub) as hub:
            is_watched = any(
                each.name.startswith(CONTROLLERS) and each.is_well for each in report.parts
            )
            async for finding in _examine_fleet(hub, clock, is_watched=is_watched):
                yield finding
    except (ClusterspaceError, TimeoutError) as error:
        reason = str(error) or f"no answer within {_HUB_SECONDS:g}s"
        advice = "look at `clusterspace logs hub`, or at who KUBECONFIG says you are"
        yield Finding("clusters", Severity.BAD, f"could not be asked for: {reason}", advice)


def _finding_of(part: PartReport, *, is_local: bool) -> Finding:
    """Return how a part is, and where to look when it is not well."""
    said = f": {part.says}" if part.says else ""
    where = f" at {part.address}" if part.address else ""
    if part.is_well:
        return Finding(part.name, Severity.OK, f"{part.state}{where}{said}")
    if not part.is_named:
        advice = "if there is one, add its kubeconfig to KUBECONFIG: it may name several files"
        return Finding(part.name, Severity.WARNING, f"{part.state}{said}", advice)
    advice = "start it, or say where it is: KUBECONFIG names hub and fleet"
    if is_local:
        advice = f"look at `clusterspace logs {part.name}`"
    return Finding(part.name, Severity.BAD, f"{part.state}{where}{said}", advice)


async def _examine_fleet(
    hub: ClusterClient, clock: Clock, *, is_watched: bool
) -> AsyncGenerator[Finding]:
    """Look at what the hub says: its clock, its rules if it is not ours, and every cluster."""
    answer = await hub.connection.ask(ApiRequest("GET", "/readyz"))
    date = answer.headers.get("date", "")
    skew = abs(parsedate_to_datetime(date).timestamp() - clock.now()) if date else 0.0
    if skew > _MAX_SKEW_SECONDS:
        advice = "set both clocks right: certificates and tokens depend on them"
        yield Finding("clock", Severity.BAD, f"{skew:.0f}s apart from the hub's", advice)
    async for rule in examine_rules(hub):
        severity = Severity.OK if rule.holds else Severity.WARNING
        yield Finding("rule", Severity.BAD if rule.is_bad else severity, rule.says, rule.advice)
    leases = await hub.list_objects(ResourcePath(LEASES, CLUSTER_NAMESPACE))
    heartbeats = {name_of(each): each for each in leases}
    clusters = await hub.list_objects(ResourcePath(CLUSTERS))
    if not clusters:
        advice = "clusterspace join --help says how"
        yield Finding("clusters", Severity.OK, "no cluster has joined yet", advice)
    if not all(map(is_pull, clusters)):
        found = map(read_report, await hub.list_objects(ResourcePath(LEASES, LEASE_NAMESPACE)))
        places = sorted(each.place or each.identity for each in found if each is not None)
        seen = f"Push clusters are looked at by the leader, and by {', '.join(places)}"
        advice = ""
        if not places:
            seen = (
                "Push clusters are looked at by the leader alone: silence evicts nobody from them"
            )
            advice = "run a fleet API server, or a second process of the controllers"
        yield Finding("witnesses", Severity.OK, seen, advice)
    for cluster in clusters:
        lease = heartbeats.get(name_of(cluster))
        for finding in examine_cluster(cluster, lease, clock.now(), is_watched=is_watched):
            yield finding


def examine_cluster(
    cluster: Object, lease: Object | None, now: float, *, is_watched: bool = True
) -> Iterator[Finding]:
    """Look at one cluster: whether it is well, on its way out, or does not delete.

    Without controllers, which watch over clusters, what is known of it may be old.
    """
    name, conditions = name_of(cluster), conditions_of(cluster)
    subject = f"cluster {name}"
    ready = find_condition(conditions, "Ready")
    is_ready = ready is not None and ready.get("status") == "True"
    heard = str(find_at(lease, "spec", "renewTime") or "") if is_pull(cluster) else ""
    if is_being_deleted(cluster):
        begun = str(metadata_of(cluster)["deletionTimestamp"])
        since = _since(begun, now)
        advice = f"clusterspace unjoin {name} says what it waits for; with --force it does not wait"
        if is_ready and now - parse_time(begun) < _LONG_LEAVE_SECONDS:
            yield Finding(subject, Severity.WARNING, f"is leaving{since}", advice)
        elif is_ready:
            yield Finding(subject, Severity.BAD, f"is leaving{since}, and does not end", advice)
        else:
            advice = f"if it is gone for good: clusterspace unjoin {name} --force"
            yield Finding(subject, Severity.BAD, f"is leaving{since}, and does not answer", advice)
    elif ready is None:
        yield Finding(subject, Severity.WARNING, "has not reported yet", "do the controllers run?")
    elif is_ready:
        agent = f"; its agent was heard{_since(heard, now, 'ago')}" if heard else ""
        if is_watched:
            yield Finding(subject, Severity.OK, f"is Ready{agent}")
        else:
            seen = f"was Ready when it was last looked at{agent}"
            yield Finding(subject, Severity.WARNING, seen, "the controllers do that")
    else:
        since = _since(str(ready.get("lastTransitionTime") or ""), now)
        seen = f"{ready.get('reason', 'not Ready')}{since}: {ready.get('message', '')}"
        advice = f"kubectl describe cluster {name} says more"
        yield Finding(subject, Severity.BAD, seen, advice)
    confirmed = find_condition(conditions, CONFIRMED) or {}
    if not is_ready and confirmed.get("status") in ("False", "Unknown"):
        seen = f"nobody is evicted from it: {confirmed.get('message', '')}"
        if confirmed.get("status") == "False":
            advice = "look at the network of the machine on which the controllers lead"
        else:
            advice = (
                f"a second place has to look; or, by a person's word: clusterspace drain {name}"
            )
        yield Finding(subject, Severity.WARNING, seen, advice)
    paused = find_condition(conditions, DELETIONS_PAUSED) or {}
    if paused.get("status") == "True":
        advice = f"look at what is going, then: clusterspace resume {name}"
        seen = f"deletions are paused: {paused.get('message', '')}"
        yield Finding(subject, Severity.BAD, seen, advice)


def _since(time: str, now: float, word: str = "") -> str:
    try:
        lasting = age(max(now - parse_time(time), 0.0))
    except Malformed:
        return ""
    return f" {lasting} {word}" if word else f" for {lasting}"


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


def _examine_certificates(files: LocalFiles, clock: Clock) -> Iterator[Finding]:
    """Look at how long the hub's certificate is good for, if its files are here."""
    for directory in (files.hub, files.directory):
        certificate, _ = Installation(directory).server_files
        if not certificate.exists():
            continue
        left = expires_at(certificate.read_bytes()) - clock.now()
        seen = f"the hub's is good for {int(left // 86400)} days"
        if left > _SOON_SECONDS:
            yield Finding("certificates", Severity.OK, seen)
        else:
            advice = "restart the hub: it makes a new one"
            yield Finding("certificates", Severity.BAD, seen, advice)
        return


def _examine_ports() -> Finding:
    taken = [str(port) for port in _PORTS if _is_taken(port)]
    if not taken:
        return Finding("ports", Severity.OK, "5443 and 7443 are free for `clusterspace up`")
    advice = "for another fleet choose others: clusterspace up --hub-port 0 --fleet-port 0"
    return Finding("ports", Severity.WARNING, f"in use: {', '.join(taken)}", advice)


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _examine_store(files: LocalFiles) -> Finding:
    """Read every record of the store of a fleet that does not run."""
    try:
        inspection = check_store(files.hub)
    except ClusterspaceError as error:
        advice = "restore a backup: clusterspace store restore"
        return Finding("store", Severity.BAD, str(error), advice)
    return Finding("store", Severity.OK, f"readable up to revision {inspection.revision}")
