"""The OIDC issuers whose tokens count: read from a file, and again when it changes."""

from pathlib import Path

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.identity.oidc import IssuerSettings, OidcTokens, read_issuers
from clusterspace.roots.config_files import follow_file, read_document


def load_issuers(file: Path | None) -> tuple[IssuerSettings, ...]:
    """Read an AuthenticationConfiguration; without a file no issuer counts."""
    return () if file is None else read_document(file, read_issuers)


def issuer_tasks(file: Path, issuers: OidcTokens, clock: Clock) -> Tasks:
    """Return the task that takes other issuers when the file changes."""

    async def take() -> None:
        issuers.replace(load_issuers(file))

    return {"issuers": lambda: follow_file(file, clock, take, "issuers")}
