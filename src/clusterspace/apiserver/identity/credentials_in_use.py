"""Who still comes with credentials of which authority and of which key, while one takes over.

An authority or a key can be dropped when nobody uses what it signed. Each server notes who does and
writes it down, for the operator and for `certs rotate`:

    kind: ConfigMap, metadata: {name: credentials-in-use, namespace: kube-system}
    data:
      hub-3f2a: '{"<id of the key>":{"jane":"2026-11-16T04:00:00Z"}}'

While there is one authority and one key there is nothing to know, and nothing is noted.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from clusterspace.apiserver.identity.following import edit_config_map, find_object
from clusterspace.apiserver.state import HubState
from clusterspace.errors import ApiError, MalformedTimestamp, StoreClosed, StoreError
from clusterspace.kube.objects import find_at
from clusterspace.kube.times import format_time, parse_time

_log = structlog.get_logger(__name__)

NAMESPACE: Final = "kube-system"
NAME: Final = "credentials-in-use"
WRITE_SECONDS: Final = 2.0
_MOST: Final = 1000
"""Of one key: who has so many users has them listed often enough."""


class CredentialsInUse:
    """The last use of what each key signed, by user."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, float]] = {}
        self.is_rolling = False
        """Whether one authority or key takes over from another."""

    def note(self, key_id: str, user: str, now: float) -> None:
        """Note that somebody came with what this key signed."""
        if self.is_rolling:
            users = self._last.setdefault(key_id, {})
            if user in users or len(users) < _MOST:
                users[user] = now

    def roll(self, *, is_rolling: bool) -> None:
        """Begin to take notes, or forget them."""
        self.is_rolling = is_rolling
        if not is_rolling:
            self._last.clear()

    def as_text(self) -> str:
        """Return the notes as they are written down; empty when there are none."""
        if not self._last:
            return "{}" if self.is_rolling else ""
        shown = {
            key_id: {user: format_time(at) for user, at in sorted(users.items())}
            for key_id, users in sorted(self._last.items())
        }
        return msgspec.json.encode(shown).decode()

    def take_up(self, text: str) -> None:
        """Go on from what was written down before a restart."""
        try:
            noted = msgspec.json.decode(text, type=dict[str, dict[str, str]])
        except msgspec.DecodeError:
            return
        for key_id, users in noted.items():
            for user, at in users.items():
                with suppress(MalformedTimestamp):
                    self._last.setdefault(key_id, {}).setdefault(user, parse_time(at))


def with_notes(data: Mapping[str, str], server: str, text: str) -> dict[str, str]:
    """Return what is written down with the notes of one server, or without them."""
    others = {key: value for key, value in data.items() if key != server}
    return {**others, server: text} if text else others


async def publish_forever(hub: HubState, in_use: CredentialsInUse, server: str) -> None:
    """Write down who uses what, while there is anything to know, until cancelled."""
    written, has_begun = "", False
    while True:
        if in_use.is_rolling and not has_begun:
            found = await find_object(hub, "", "configmaps", NAMESPACE, NAME)
            in_use.take_up(str(find_at(found, "data", server) or ""))
        has_begun = in_use.is_rolling
        text = in_use.as_text()
        if text != written:
            try:
                await edit_config_map(
                    hub, NAMESPACE, NAME, lambda data, text=text: with_notes(data, server, text)
                )
                written = text
            except StoreClosed:
                raise
            except (ApiError, StoreError) as error:
                _log.warning("credentials in use are not written down", reason=str(error))
        await hub.clock.sleep(WRITE_SECONDS)
