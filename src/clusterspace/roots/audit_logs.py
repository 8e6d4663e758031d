"""The audit logs of a data directory, or those that are named, verified."""

import re
from pathlib import Path
from typing import Final

from clusterspace.apiserver.access import audit_chain
from clusterspace.apiserver.access.audit_chain import Link, Verification
from clusterspace.errors import UnusableDirectory

_LOG: Final = "audit.log"
_NUMBERED: Final = re.compile(r"(.+)\.(\d+)")


def verify_logs(
    files: tuple[Path, ...], data_dir: Path | None, noted: tuple[int, str] | None = None
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
    return {log: audit_chain.verify(log, read, link) for log, read in logs.items()}
