"""Files of the operator: read with clear refusals, and followed while a process runs.

Here are those that say who may log in. The keys of what is stored are read in stores.py, the audit
policy in audit_logs.py.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import structlog
import yaml

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.identity.bearer_tokens import StaticTokens
from clusterspace.apiserver.identity.oidc import IssuerSettings, OidcTokens, read_issuers
from clusterspace.errors import StoreUnreadable, UnusableConfiguration

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0
"""How soon a changed file counts; kube-apiserver takes a minute."""


def read_document(file: Path, read: Callable[[Any], Any]) -> Any:
    """Read a YAML file by a function that knows its kind; UnusableConfiguration names the file."""
    try:
        return read(yaml.safe_load(file.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableConfiguration(f"{file} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        # What the parser cites of the file could be a key.
        raise UnusableConfiguration(f"{file} is no YAML") from error
    except UnusableConfiguration as error:
        raise UnusableConfiguration(f"{file}: {error}") from None


async def follow_file(
    file: Path, clock: Clock, take: Callable[[], Awaitable[None]], what: str
) -> None:
    """Take a file whenever it has changed, until cancelled; one that cannot be used is not."""
    known = _content(file)
    while True:
        await clock.sleep(LOOK_SECONDS)
        found = _content(file)
        if found == known:
            continue
        known = found
        try:
            await take()
        except (UnusableConfiguration, StoreUnreadable) as error:
            _log.error(f"{what} are as before", reason=str(error))
        else:
            _log.info(f"{what} are replaced", file=str(file))


def _content(file: Path) -> bytes | None:
    """Return what is in the file; None when it cannot be read just now."""
    try:
        return file.read_bytes()
    except OSError:
        return None


def load_tokens(file: Path | None) -> StaticTokens:
    """Read static tokens in Kubernetes' format, once; without a file there are none."""
    return StaticTokens({}) if file is None else StaticTokens.parse(file.read_text())


def load_issuers(file: Path | None) -> tuple[IssuerSettings, ...]:
    """Read an AuthenticationConfiguration; without a file no issuer counts."""
    return () if file is None else read_document(file, read_issuers)


def issuer_tasks(
    file: Path | None,
    issuers: OidcTokens,
    clock: Clock,
    taken: Callable[[], None] = lambda: None,
) -> Tasks:
    """Return the task that takes other issuers when the file changes, and says so."""
    if file is None:
        return {}

    async def take() -> None:
        issuers.replace(load_issuers(file))
        taken()

    return {"issuers": lambda: follow_file(file, clock, take, "issuers")}
