"""Calling webhooks: programs elsewhere that are sent an object and say something of it.

Whoever may write a configuration says where objects are sent, Secrets among them: addresses are
judged when they are connected to, and no credentials of ours go along.
"""

import base64
import binascii
from random import Random, SystemRandom
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.client.connection import Connection, ConnectionLimits
from clusterspace.client.endpoints import AddressRules
from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import ConnectionSettings, Pem, Trust
from clusterspace.kube.objects import Object

_SECONDS: Final = 30.0
"""As long as Kubernetes waits for a conversion."""

_MOST_BYTES: Final = 64 * 1024 * 1024
_IDLE_SECONDS: Final = 1.0
"""How long a connection to a webhook is kept while nobody calls. Servers close idle ones too, the
most hasty after 2 s: a call that meets the goodbye would fail, for nobody knows whether it was
carried out. So ours is over before that, and what is kept is kept through a burst of writes."""

_KEPT_SECONDS: Final = 30.0
"""How long connections to one address are kept in use; a name that leads elsewhere is then seen."""

_MOST_KEPT: Final = 64
_KEPT_LIMITS: Final = ConnectionLimits(requests_at_once=256, keepalive_seconds=_IDLE_SECONDS)


class _Kept:
    """A connection that several calls use, one after the other or at once."""

    __slots__ = ("connection", "since", "used", "users")

    def __init__(self, connection: Connection, now: float) -> None:
        self.connection = connection
        self.since = self.used = now
        self.users = 0


class Webhooks:
    """How webhooks are reached: by addresses that are judged when they are connected to.

    While `run` runs, connections are kept between calls. They are found again by all that decides
    where they lead and whom they trust: whoever changes a configuration gets a new one.
    """

    def __init__(
        self,
        rules: AddressRules | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._rules = rules or AddressRules()
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._is_keeping = False
        self._kept: dict[ConnectionSettings, _Kept] = {}
        """Those that calls find. One that was replaced is closed by its last user."""

    async def run(self) -> None:
        """Keep connections between calls, until this is cancelled."""
        self._is_keeping = True
        try:
            while True:
                await self._clock.sleep(_IDLE_SECONDS)
                now = self._clock.monotonic()
                for settings, kept in tuple(self._kept.items()):
                    if not kept.users and now - kept.used >= _IDLE_SECONDS:
                        del self._kept[settings]
                        await kept.connection.close()
        finally:
            self._is_keeping = False
            kept_so_far, self._kept = tuple(self._kept.values()), {}
            for kept in kept_so_far:
                if not kept.users:
                    await kept.connection.close()

    async def call(
        self,
        name: str,
        config: Object,
        review: Object,
        *,
        seconds: float = _SECONDS,
        is_repeated: bool = True,
    ) -> Any:
        """Send a review to the webhook of a client configuration; return its answer, decoded.

        Whoever wrote the configuration says where it goes, so no credentials of ours go with it,
        and no answer of more than the limit is read.
        """
        address, server_name = urlsplit(url_of(config)), ""
        if not config.get("url"):
            server_name = str(address.hostname)
        try:
            authority = base64.b64decode(str(config.get("caBundle") or ""))
        except (binascii.Error, ValueError):
            authority = b""
        settings = ConnectionSettings(
            cluster=name,
            server=f"https://{address.netloc}",
            trust=Trust(Pem(authority), server_name),
            address_rules=self._rules,
        )
        kept = await self._take(settings)
        try:
            answer = await kept.connection.ask(
                ApiRequest(
                    "POST",
                    (address.path or "/") + (f"?{address.query}" if address.query else ""),
                    headers=(("Content-Type", "application/json"), ("Accept", "application/json")),
                    body=msgspec.json.encode(review),
                    seconds=seconds,
                    is_repeated=is_repeated,
                    most_bytes=_MOST_BYTES,
                )
            )
        finally:
            kept.users -= 1
            kept.used = self._clock.monotonic()
            if not kept.users and self._kept.get(settings) is not kept:
                await kept.connection.close()
        return msgspec.json.decode(answer.body)

    async def _take(self, settings: ConnectionSettings) -> _Kept:
        """Return the connection of a call, counted as used: one that is kept, or a new one."""
        now = self._clock.monotonic()
        kept = self._kept.get(settings)
        if kept is not None and now - kept.since >= _KEPT_SECONDS:
            # Found by nobody from here on; while it is used, its last user closes it.
            del self._kept[settings]
            if not kept.users:
                await kept.connection.close()
            kept = self._kept.get(settings)
        # Nothing awaits between finding one and counting its user: `run` closes what has none.
        if kept is None:
            connection = Connection(
                settings, clock=self._clock, random=self._random, limits=_KEPT_LIMITS
            )
            kept = _Kept(connection, now)
            if self._is_keeping and len(self._kept) < _MOST_KEPT:
                self._kept[settings] = kept
        kept.users += 1
        return kept


def url_of(config: Object) -> str:
    """Return where a client configuration leads: its URL, or its Service's name in the cluster."""
    url = str(config.get("url") or "")
    if url:
        return url
    service = cast("Object", config.get("service") or {})
    host = f"{service['name']}.{service['namespace']}.svc"
    return f"https://{host}:{service.get('port') or 443}{service.get('path') or '/'}"
