"""SPDY/3.1 as Kubernetes clients speak it, in words: frames, and the headers that open streams.

    control  1 | version 15 | type 16 | flags 8 | length 24 | …
    data     0 | stream 31            | flags 8 | length 24 | …

https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
"""

import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from clusterspace.errors import StreamBroken

VERSION: Final = 3
FIN: Final = 0x01
FRAME_LIMIT: Final = 1 << 20
_HEADER_LIMIT: Final = 64 * 1024
CONTROL_BIT: Final = 0x80000000
ID_MASK: Final = 0x7FFFFFFF
HEAD: Final = struct.Struct(">II")

_NAMES: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base "
    "content-encoding content-language content-length content-location content-md5 "
    "content-range content-type date etag expect expires from host if-match if-modified-since "
    "if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status"
)
_WORDS: Final = (
    *re.findall("[^ ]+", _NAMES),
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
)
_TAIL: Final = (
    "origin100101201202205206300302303304305306307402405406407408409410411412413414415416417502"
    "504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 "
    "Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service "
    "UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, "
    "Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml"
    "+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset="
    "iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(struct.pack(">I", len(word)) + word.encode() for word in _WORDS)
    + struct.pack(">I", len("origin"))
    + _TAIL.encode()
)
"""What both sides' compressors start with (section 2.6.10.1): no header is sent without it."""


class Kind(IntEnum):
    """The type of a control frame."""

    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


@dataclass(frozen=True, slots=True)
class Control:
    """A control frame, its body not read yet."""

    kind: int
    flags: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of one stream."""

    stream: int
    flags: int
    payload: bytes

    @property
    def is_last(self) -> bool:
        """Whether the stream's sender sends no more."""
        return bool(self.flags & FIN)


def encode_control(kind: Kind, body: bytes, flags: int = 0) -> bytes:
    """Return a control frame."""
    first = CONTROL_BIT | VERSION << 16 | kind
    return HEAD.pack(first, flags << 24 | len(body)) + body


def encode_data(stream: int, payload: bytes, *, is_last: bool = False) -> bytes:
    """Return a data frame."""
    flags = FIN if is_last else 0
    return HEAD.pack(stream, flags << 24 | len(payload)) + payload


def read_id(body: bytes) -> int:
    """Return the stream or ping number a control frame begins with."""
    if len(body) < 4:
        raise StreamBroken("a control frame is too short")
    return int.from_bytes(body[:4]) & ID_MASK


class HeaderReader:
    """Reads header blocks; every one must pass through here, for they share one compressor."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def read(self, block: bytes) -> dict[str, str]:
        """Return the headers of a block, names in lower case."""
        try:
            text = self._inflate.decompress(block, _HEADER_LIMIT)
        except zlib.error as error:
            raise StreamBroken(f"a header block cannot be read: {error}") from error
        if self._inflate.unconsumed_tail:
            raise StreamBroken("a header block is over the limit")
        # A count, then name and value in turn, each with its length before it.
        offset = 4
        words: list[str] = []
        try:
            for _ in range(2 * struct.unpack_from(">I", text, 0)[0]):
                (size,) = struct.unpack_from(">I", text, offset)
                words.append(text[offset + 4 : offset + 4 + size].decode())
                offset += 4 + size
        except (struct.error, UnicodeDecodeError) as error:
            raise StreamBroken("a header block is cut short or is not text") from error
        return {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}


class HeaderWriter:
    """Writes header blocks, in the order in which they are sent."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def write(self, headers: Mapping[str, str]) -> bytes:
        """Return the block of these headers."""
        text = [struct.pack(">I", len(headers))]
        for pair in headers.items():
            text += [struct.pack(">I", len(each.encode())) + each.encode() for each in pair]
        return self._deflate.compress(b"".join(text)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
