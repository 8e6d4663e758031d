"""Continue tokens: where a paged list goes on, and at which revision."""

import base64
import binascii
from dataclasses import dataclass
from typing import Final

import msgspec

from clusterspace.errors import BadRequest
from clusterspace.kube.json_errors import describe_json_error

_VERSION: Final = "meta.k8s.io/v1"
_LARGEST: Final = 2**63

PRESENT: Final = -1


@dataclass(frozen=True, slots=True)
class Continue:
    """The revision the first page was read at, and the last key it showed."""

    revision: int
    """`PRESENT` goes on from the key as things are now: not one moment, but better than nothing."""
    last_key: str


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def encode_continue(place: Continue, prefix: str) -> str:
    """Return an opaque token; keys are relative, so that no client learns our key space."""
    token = _Token(v=_VERSION, rv=place.revision, start=place.last_key.removeprefix(prefix))
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def decode_continue(text: str, prefix: str) -> Continue:
    """Unpack a token; one we cannot read is refused, never taken for "from the start"."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadRequest(f"invalid continue token: continue key is not valid: {error}") from error
    try:
        token = msgspec.json.decode(raw, type=_Token)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = describe_json_error(raw) or str(error)
        raise BadRequest(f"invalid continue token: continue key is not valid: {why}") from error
    if token.v != _VERSION:
        raise BadRequest(f"invalid continue token: server does not recognize version {token.v!r}")
    is_moment = token.rv == PRESENT or 0 < token.rv < _LARGEST
    if not is_moment or ".." in token.start.split("/"):
        raise BadRequest("invalid continue token: continue key is not valid")
    return Continue(token.rv, prefix + token.start)
