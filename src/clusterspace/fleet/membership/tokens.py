"""A service account's token: from a Secret that the member fills, else asked for.

Karmada makes a Secret and waits for it. Members whose controllers do not fill such Secrets any
more, or run none, are asked for a token that lasts instead.
"""

import asyncio
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.client.resources import Client, Reader
from clusterspace.fleet.membership import manifests, names
from clusterspace.fleet.membership.journal import Journal
from clusterspace.kube.objects import Object, find_at

FILL_SECONDS: Final = 4.0
"""Controllers fill a Secret within milliseconds; where there are none, waiting longer is no use."""

_LOOK_AGAIN_SECONDS: Final = 0.1
_TEN_YEARS: Final = 10 * 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class AccountToken:
    """What the hub identifies itself with to a member."""

    token: bytes = field(repr=False)
    authority: bytes = b""
    """The authority the member names in its Secret, if it does."""
    expires: str = ""
    """When it ends; a token from a Secret lasts as long as the Secret does."""


async def obtain_token(
    member: Client, side: str, account: str, journal: Journal, clock: Clock
) -> AccountToken:
    """Return a token of the account, which must be there."""
    place = names.secret_place(account)
    await journal.ensure(side, member, place, manifests.token_secret(account))
    filled = await _filled_secret(member, account, clock)
    if filled is not None:
        return AccountToken(secret_value(filled, "token"), secret_value(filled, "ca.crt"))
    return await _requested_token(member, account)


async def _filled_secret(member: Reader, account: str, clock: Clock) -> Object | None:
    place = names.secret_place(account)
    try:
        async with asyncio.timeout(FILL_SECONDS):
            while True:
                secret = await member.get(place)
                if secret_value(secret, "token"):
                    return secret
                await clock.sleep(_LOOK_AGAIN_SECONDS)
    except TimeoutError:
        return None


async def _requested_token(member: Client, account: str) -> AccountToken:
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TEN_YEARS},
    }
    answer = await member.create(names.account_place(account).part("token"), wanted)
    token = str(find_at(answer, "status", "token") or "")
    expires = str(find_at(answer, "status", "expirationTimestamp") or "")
    return AccountToken(token.encode(), expires=expires)


def secret_value(secret: Object, key: str) -> bytes:
    """Return what a Secret holds under a key, or nothing."""
    encoded = find_at(secret, "data", key)
    return b64decode(encoded) if isinstance(encoded, str) else b""
