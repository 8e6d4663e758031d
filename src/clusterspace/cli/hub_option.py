"""What commands that talk to the hub share: its kubeconfig, an event loop, errors as sentences."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from clusterspace.cli.sentences import sentence_of
from clusterspace.errors import ClusterspaceError

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])

_KUBECONFIG: Final = click.option(
    "--kubeconfig",
    "kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Kubeconfig of the hub.  [default: KUBECONFIG, else .clusterspace/kubeconfig]",
)
_CONTEXT: Final = click.option(
    "--context", "context", default="", help="Context in the hub's kubeconfig."
)


def hub_options(command: Command) -> Command:
    """Give a command the options that say where the hub is."""
    return _KUBECONFIG(_CONTEXT(command))


def run(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a command's work; what we raise on purpose is told in a sentence, without a trace."""
    try:
        return asyncio.run(work())
    except (ClusterspaceError, OSError) as error:
        raise click.ClickException(sentence_of(error)) from error
