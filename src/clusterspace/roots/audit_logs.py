"""Audit logs: opened by the servers with their policy, and verified by a command."""

import re
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.access import audit_chain
from clusterspace.apiserver.access.audit_chain import Key, Link, Verification
from clusterspace.apiserver.access.audit_log import AuditLog, AuditWriter
from clusterspace.apiserver.http.audit_events import at_once, failed_login_events
from clusterspace.apiserver.http.audit_policy import Policy, default_policy, read_policy
from clusterspace.apiserver.http.guards import AuditSink, AuditWait, FailedLogins
from clusterspace.errors import UnusableConfiguration, UnusableDirectory
from clusterspace.roots.config_files import read_document
from clusterspace.roots.settings import ServerSettings

_LOG: Final = "audit.log"
_SHORTEST_KEY: Final = 32
_NUMBERED: Final = re.compile(r"(.+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Auditing:
    """Where a server's audit lines go, by which policy, and who counts failed logins into them."""

    write: AuditSink
    failed_logins: FailedLogins
    policy: Policy = field(default_factory=default_policy)
    room: AuditWait = at_once
    """Waits while too much is unwritten."""
    written: AuditWait = at_once
    """Waits until all that was handed over is written."""


@contextmanager
def open_audit(settings: ServerSettings, file: Path, clock: Clock) -> Generator[Auditing]:
    """Open a server's log for as long as the block lasts, and read the policy it is to follow.

    A policy that cannot be used ends the start: a server that audits something else is worse.
    """
    policy = settings.audit
    if settings.audit_policy_file is not None:
        policy = read_document(settings.audit_policy_file, read_policy)
    keys = read_keys(settings.audit_key_file) if settings.audit_key_file is not None else ()
    path = settings.audit_log_path or file
    log = AuditLog(path, settings.audit_rotation, clock, keys[0] if keys else None)
    writer = AuditWriter(log)
    failed_logins = FailedLogins(clock, writer.write, failed_login_events(policy, clock))
    # What was counted of failed logins is the last that is written.
    with closing(writer), closing(failed_logins):
        yield Auditing(writer.write, failed_logins, policy, writer.room, writer.written)


def read_keys(file: Path) -> tuple[Key, ...]:
    """Read the keys of an audit log, one a line; the first is the one that lines are written with.

    UnusableConfiguration names what is wrong, and never what is in the file.
    """
    try:
        lines = [line.strip() for line in file.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise UnusableConfiguration(f"{file} cannot be read: {error}") from error
    if not lines or any(len(line) < _SHORTEST_KEY for line in lines):
        why = f"each line must be a key of at least {_SHORTEST_KEY} characters"
        raise UnusableConfiguration(f"{file}: {why}: openssl rand -hex 32 > {file}")
    return tuple(map(Key, lines))


@contextmanager
def audit_into_nothing(clock: Clock) -> Generator[Auditing]:
    """Audit as a server does whose log nobody keeps."""

    def drop(_: dict[str, Any]) -> None:
        pass

    nothing = Policy()
    with closing(FailedLogins(clock, drop, failed_login_events(nothing, clock))) as failed_logins:
        yield Auditing(drop, failed_logins, nothing)


def verify_logs(
    files: tuple[Path, ...],
    data_dir: Path | None,
    noted: tuple[int, str] | None = None,
    key_file: Path | None = None,
) -> dict[Path, Verification]:
    """Verify each log with the older files beside it; UnusableDirectory when there is none."""
    logs: dict[Path, list[Path]] = {}
    if data_dir is not None:
        # A log that is gone is found by its head.
        for pattern in (_LOG, f"*/{_LOG}"):
            for found in (*data_dir.glob(pattern), *data_dir.glob(f"{pattern}.head")):
                log = found.with_name(_LOG)
                logs[log] = audit_chain.files_of(log)
        if not logs:
            raise UnusableDirectory(f"there is no {_LOG} in {data_dir} or right below it")
    for file in (each for each in files if each.suffix != ".head"):
        numbered = _NUMBERED.fullmatch(file.name)
        if numbered is None:
            logs[file] = audit_chain.files_of(file)
            if not logs[file]:
                raise UnusableDirectory(f"{file}: there is no such file")
        elif file.with_name(numbered[1]) not in files:
            # A single older file: whether it ends where it did, only its successor knows.
            logs[file] = [file]
    link = Link(noted[0], "", noted[1]) if noted is not None else None
    keys = read_keys(key_file) if key_file is not None else ()
    return {log: audit_chain.verify(log, read, link, keys) for log, read in logs.items()}
