"""How commands run what they are for: an event loop, logs, errors as one sentence with advice."""

import errno
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from clusterspace.errors import (
    ApiError,
    ClusterspaceError,
    ClusterUnreachable,
    CredentialsUnusable,
    NotFound,
    Unauthorized,
    UnusableKubeconfig,
)

Result = TypeVar("Result")


def run(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a command's work; what we raise on purpose is told in a sentence, without a trace."""
    import asyncio

    try:
        return asyncio.run(work())
    except (ClusterspaceError, OSError) as error:
        raise click.ClickException(sentence_of(error)) from error


def serve(
    work: Callable[[], Coroutine[Any, Any, None]],
    log_format: str,
    *,
    port: int | None = None,
    port_flag: str = "--port",
) -> None:
    """Run a server or controllers in this process until they end; logs go to standard error."""
    from clusterspace.aio import event_loop
    from clusterspace.telemetry.logs import Format, Level, configure

    configure(Format(log_format), Level.INFO, sys.stderr)
    try:
        event_loop.run(work())
    except (ClusterspaceError, OSError) as error:
        sentence = sentence_of(error)
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            remedy = f"stop what listens there, or choose another with {port_flag}"
            sentence = f"port {port} is in use: {remedy}"
        raise click.ClickException(sentence) from error


def sentence_of(error: Exception) -> str:
    """Return an error as one sentence: the problem and, after a semicolon, the remedy."""
    if isinstance(error, ApiError):
        sentence = f"{error.cluster}: {error.message}" if error.cluster else error.message
    elif isinstance(error, OSError) and error.strerror:
        what = error.strerror[0].lower() + error.strerror[1:]
        sentence = f"{error.filename}: {what}" if error.filename else what
    else:
        sentence = str(error)
    advice = _advice_on(error)
    return f"{sentence}; {advice}" if advice else sentence


def _advice_on(error: Exception) -> str:
    """Return the remedy, where we know one; otherwise nothing."""
    match error:
        case UnusableKubeconfig() if error.place.startswith(".clusterspace"):
            return "start a fleet with `clusterspace up`, or set KUBECONFIG to the hub's"
        case ClusterUnreachable() if error.cluster == "hub":
            return "does it run? `clusterspace up` starts one here, KUBECONFIG names another"
        case Unauthorized() | CredentialsUnusable():
            return "take a newer kubeconfig: credentials end, and are made for one hub only"
        case NotFound() if error.message.startswith("clusters.cluster.karmada.io"):
            return "`clusterspace clusters` shows those there are"
        case OSError() if error.errno == errno.ENOSPC:
            return "make room on the disk, or choose another place with --data-dir"
        case OSError() if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return "choose a place that you may write to, for instance with --data-dir"
        case _:
            return ""
