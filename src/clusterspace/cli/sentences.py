"""Errors told to people: one sentence, and what to do next where we know it."""

import errno
from typing import Final

from clusterspace.errors import (
    ApiError,
    ClusterUnreachable,
    CredentialsUnusable,
    NotFound,
    Unauthorized,
    UnusableKubeconfig,
)

_HUB: Final = "hub"
_LOCAL: Final = ".clusterspace"
_CLUSTERS: Final = "clusters.cluster.karmada.io"


def sentence_of(error: Exception) -> str:
    """Return what went wrong and, after a semicolon, what helps."""
    advice = _advice(error)
    return f"{_told(error)}; {advice}" if advice else _told(error)


def _told(error: Exception) -> str:
    if isinstance(error, ApiError):
        return f"{error.cluster}: {error.message}" if error.cluster else error.message
    if isinstance(error, OSError) and error.strerror:
        what = error.strerror[0].lower() + error.strerror[1:]
        return f"{error.filename}: {what}" if error.filename else what
    return str(error)


def _advice(error: Exception) -> str:
    match error:
        case UnusableKubeconfig() if error.place.startswith(_LOCAL):
            return "start a fleet with `clusterspace up`, or set KUBECONFIG to the hub's"
        case ClusterUnreachable() if error.cluster == _HUB:
            return "does it run? `clusterspace up` starts one here, KUBECONFIG names another"
        case Unauthorized() | CredentialsUnusable():
            return "take a newer kubeconfig: credentials end, and are made for one hub only"
        case NotFound() if error.message.startswith(_CLUSTERS):
            return "`clusterspace clusters` shows those there are"
        case OSError() if error.errno == errno.ENOSPC:
            return "make room on the disk, or choose another place with --data-dir"
        case OSError() if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return "choose a place that you may write to, for instance with --data-dir"
        case _:
            return ""
