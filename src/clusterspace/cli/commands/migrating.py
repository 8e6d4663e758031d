"""What the commands of migrations share: options, and how they talk."""

import sys
from typing import Final

import click

MOST_LINES: Final = 12
"""Objects that a summary names one by one: it is to fit on a screen."""

at_once_option: Final = click.option(
    "--concurrency",
    "at_once",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="Objects at a time.",
)


def words(text: str) -> tuple[str, ...]:
    """Return what is separated by commas."""
    return tuple(each.strip() for each in text.split(",") if each.strip())


def say(sentence: str) -> None:
    """Say something besides what the command answers."""
    click.echo(sentence, err=True)


def quiet() -> None:
    """Have the log of the election and of retries say only what people must know."""
    from clusterspace.telemetry.logs import Format, Level, configure

    configure(Format("console"), Level.ERROR, sys.stderr)
