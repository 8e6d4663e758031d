"""Events of an audit log on one level, as tests ask for them."""

import json
import threading
import time
from pathlib import Path
from typing import Any

from clusterspace.apiserver.access.audit_log import AuditWriter

PREFIX = "audit.clusterspace.io/"


def flat(event: dict[str, Any]) -> dict[str, Any]:
    """Return what an event says, by short names; what it does not say is not there."""
    reference, notes = event.get("objectRef", {}), event.get("annotations", {})
    said = {
        "user": event["user"].get("username"),
        "as": event.get("impersonatedUser", {}).get("username"),
        "sourceIP": event["sourceIPs"][0],
        "requestId": event["auditID"],
        "verb": event["verb"],
        "stage": event["stage"],
        "path": event["requestURI"].partition("?")[0],
        "code": event.get("responseStatus", {}).get("code"),
        "group": reference.get("apiGroup"),
        "version": reference.get("apiVersion"),
        **{key: reference.get(key) for key in ("resource", "subresource", "namespace")},
        **{key: reference.get(key) for key in ("name", "uid")},
        "cluster": notes.get(f"{PREFIX}cluster"),
        "reportedBy": notes.get(f"{PREFIX}reported-by"),
        "credential": notes.get(f"{PREFIX}credential"),
        "count": int(notes.get(f"{PREFIX}count", 0)),
    }
    return {key: value for key, value in said.items() if value}


def wait_written() -> None:
    """Wait until the servers of this process have written what they were given to write."""
    for thread in threading.enumerate():
        writer = getattr(getattr(thread, "_target", None), "__self__", None)
        while isinstance(writer, AuditWriter) and writer._written < writer._queued:
            time.sleep(0.001)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Return all events of a file, oldest first."""
    wait_written()
    return [flat(json.loads(line)) for line in log.read_bytes().splitlines()]
