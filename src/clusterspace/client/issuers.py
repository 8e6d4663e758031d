"""Asking an OpenID Connect issuer: what it says of itself, and what is behind the addresses there.

An issuer is somebody else's server that many depend on: it is asked over TLS alone, once, for ten
seconds, and not more than a megabyte of its answer is read.
"""

from dataclasses import dataclass
from random import SystemRandom
from typing import Any, Final, cast
from urllib.parse import urlencode, urlsplit

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest, Headers
from clusterspace.client.settings import ConnectionSettings, Pem, Trust
from clusterspace.errors import ApiError, ClusterspaceError

_LARGEST_DOCUMENT: Final = 1024 * 1024
_SECONDS: Final = 10.0
_DISCOVERY: Final = "/.well-known/openid-configuration"


class IssuerUnusable(ClusterspaceError):
    """An issuer that cannot be asked, or whose answer makes no sense."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """Where an issuer is, and who vouches for its certificate."""

    url: str
    clock: Clock
    authority: bytes = b""
    """The certificates to trust for it, in PEM; those of the system when empty."""
    discovery_url: str = ""

    async def discover(self) -> dict[str, Any]:
        """Return its discovery document, which is its own; IssuerUnusable."""
        document = await self.ask(self.discovery_url or self.url + _DISCOVERY)
        if document.get("issuer") != self.url:
            raise IssuerUnusable(f"its discovery document is that of {document.get('issuer')!r}")
        return document

    async def ask(
        self, url: str, form: dict[str, str] | None = None, headers: Headers = ()
    ) -> dict[str, Any]:
        """Return the JSON object at an address, for a form that is posted there if there is one."""
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise IssuerUnusable(f"{url!r} is no https address")
        connection = Connection(
            ConnectionSettings(
                cluster=f"issuer {self.url}",
                server=f"https://{parts.netloc}",
                trust=Trust(Pem(self.authority)),
            ),
            clock=self.clock,
            random=SystemRandom(),
        )
        body = None if form is None else urlencode(form).encode()
        if body is not None:
            headers = (*headers, ("Content-Type", "application/x-www-form-urlencoded"))
        request = ApiRequest(
            "GET" if body is None else "POST",
            parts.path + (f"?{parts.query}" if parts.query else ""),
            headers=(*headers, ("Accept", "application/json")),
            body=body,
            seconds=_SECONDS,
            most_bytes=_LARGEST_DOCUMENT,
            is_repeated=False,
        )
        try:
            document = msgspec.json.decode((await connection.ask(request)).body)
        except (ApiError, ClusterspaceError, msgspec.DecodeError) as error:
            raise IssuerUnusable(f"{url}: {error}") from error
        finally:
            await connection.close()
        if not isinstance(document, dict):
            raise IssuerUnusable(f"{url} answers with something else than a JSON object")
        return cast("dict[str, Any]", document)
