"""A kubectl command and what we claim of it: that it works, fails, or differs for a reason."""

from dataclasses import dataclass
from typing import Final

from tests.conformance.kubectl_checks import Check

WEB: Final = ("web", "p")


@dataclass(frozen=True)
class Command:
    """One command line, in a namespace NS with files in DIR."""

    text: str
    checks: tuple[Check, ...] = ()
    given: tuple[str, ...] | None = WEB
    """What is in the namespace before; None when there is not even the namespace."""
    after: str = ""
    """A command to run first."""
    exit_code: int = 0
    sentence: str = ""
    """What kubectl must say on standard error."""
    differs: str = ""
    """Why the answer is another one than a cluster with nodes and controllers gives."""
    flags: str = ""
    """Added by the test so that it need not wait long; part of no claim."""


def works(
    text: str, *checks: Check, given: tuple[str, ...] | None = WEB, after: str = ""
) -> Command:
    """A command that succeeds here as it does there."""
    return Command(text, checks, given, after)


def fails(text: str, sentence: str, *checks: Check, given: tuple[str, ...] = WEB) -> Command:
    """A command that fails here as it does there."""
    return Command(text, checks, given, exit_code=1, sentence=sentence)


def differs(
    text: str,
    *checks: Check,
    why: str,
    sentence: str = "",
    exit_code: int = 0,
    flags: str = "",
    given: tuple[str, ...] = WEB,
) -> Command:
    """A command that answers otherwise here, for a reason."""
    return Command(
        text, checks, given, exit_code=exit_code, sentence=sentence, differs=why, flags=flags
    )
