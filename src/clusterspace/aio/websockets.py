"""WebSocket frames around a stream of bytes: RFC 6455, as far as two programs of ours need it.

The bytes of all data frames, in order, are one stream: where a message begins and ends says
nothing, because proxies may cut messages as they like. A frame is handed on as it arrives, so that
a frame of any size costs no more memory than the piece that was read.

    client ──masked──> server        every frame of a client is masked, and none of a server
    either ──PING──> the other       is to be answered by a PONG with the same content
    either ──CLOSE──> the other      with a code and a sentence; the last frame
"""

import base64
import hashlib
import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from clusterspace.errors import StreamBroken

VERSION: Final = "13"
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""The fixed text of the handshake (RFC 6455, section 1.3)."""

_FINAL: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_CONTROL_BYTES: Final = 125
_LONGEST_HEAD: Final = 14

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
VIOLATION: Final = 1002


class Opcode(IntEnum):
    """The type of a frame. Text is for people's clients; programs of ours do not speak it."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


_KNOWN: Final = frozenset(Opcode)


class Control(NamedTuple):
    """A PING, PONG or CLOSE."""

    opcode: Opcode
    content: bytes


def new_key() -> str:
    """Return a Sec-WebSocket-Key."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_key(key: str) -> str:
    """Return the Sec-WebSocket-Accept of a client's key.

    >>> accept_key("dGhlIHNhbXBsZSBub25jZQ==")
    's3pPLMBiTxaQ9kYGzzhZRbK+xOo='
    """
    digest = hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def close_content(code: int, why: str) -> bytes:
    """Return the content of a CLOSE frame, cut to what fits."""
    return struct.pack(">H", code) + why.encode()[: _CONTROL_BYTES - 2]


def read_close(content: bytes) -> tuple[int, str]:
    """Return code and sentence of a CLOSE frame; 1005 when it has none.

    >>> read_close(close_content(1001, "the server is stopping"))
    (1001, 'the server is stopping')
    """
    if len(content) < 2:
        return 1005, ""
    return int.from_bytes(content[:2], "big"), content[2:].decode(errors="replace")


def masked(content: bytes, key: bytes) -> bytes:
    """Return content as it is with its mask put on, or taken off."""
    if not content:
        return b""
    size = len(content)
    mask = (key * (size // 4 + 1))[:size]
    # As one large number each: a loop over bytes would cost a hundred times as much.
    mixed = int.from_bytes(content, "little") ^ int.from_bytes(mask, "little")
    return mixed.to_bytes(size, "little")


def encode_frame(opcode: Opcode, content: bytes, *, is_client: bool) -> bytes:
    """Return one whole frame."""
    size, mask_bit = len(content), _MASKED if is_client else 0
    if size <= _CONTROL_BYTES:
        head = struct.pack(">BB", _FINAL | opcode, mask_bit | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", _FINAL | opcode, mask_bit | 126, size)
    else:
        head = struct.pack(">BBQ", _FINAL | opcode, mask_bit | 127, size)
    if not is_client:
        return head + content
    key = os.urandom(4)
    return b"".join((head, key, masked(content, key)))


class FrameReader:
    """Takes frames apart as their bytes arrive."""

    def __init__(self, *, from_client: bool, has_text: bool = False) -> None:
        self._from_client = from_client
        self._has_text = has_text
        self._unread = bytearray()
        self._left = 0
        """How much of the content of a data frame is to come."""
        self._key = b""

    def feed(self, arrived: bytes) -> Iterator[bytes | Control]:
        """Yield what arrived: content of data frames, and control frames.

        StreamBroken when it is none that a WebSocket carries.
        """
        unread = self._unread
        unread += arrived
        while unread:
            if self._left:
                piece = bytes(unread[: self._left])
                del unread[: len(piece)]
                self._left -= len(piece)
                if self._key:
                    plain, turned = masked(piece, self._key), len(piece) % 4
                    # The next piece goes on where in the key this one ended.
                    self._key = self._key[turned:] + self._key[:turned]
                    piece = plain
                yield piece
                continue
            head = self._read_head()
            if head is None:
                return
            if head is not _DATA:
                yield head
            elif not self._left:
                yield b""  # a frame all the same, and it was work to read

    def _read_head(self) -> Control | None:
        """Read the head of a frame, and a control frame whole; None when it is not all there."""
        unread = self._unread
        if len(unread) < 2:
            return None
        first, second = unread[0], unread[1]
        size, at = second & 0x7F, 2
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(unread) < at:
                return None
            size = int.from_bytes(unread[2:at], "big")
        if bool(second & _MASKED) is not self._from_client:
            who = "client" if self._from_client else "server"
            raise StreamBroken(f"a frame of a {who} is masked as no {who}'s is")
        if second & _MASKED:
            at += 4
            if len(unread) < at:
                return None
        if first & _RESERVED:
            raise StreamBroken("a frame uses an extension that nobody agreed on")
        number = first & 0x0F
        if number not in _KNOWN or (number == Opcode.TEXT and not self._has_text):
            raise StreamBroken(f"frames of type {number} are not spoken here")
        opcode = Opcode(number)
        key = bytes(unread[at - 4 : at]) if second & _MASKED else b""
        if opcode < Opcode.CLOSE:
            del unread[:at]
            self._left, self._key = size, key
            return _DATA
        if not first & _FINAL or size > _CONTROL_BYTES:
            raise StreamBroken("a control frame is in pieces, or too long")
        if len(unread) < at + size:
            return None
        content = bytes(unread[at : at + size])
        del unread[: at + size]
        return Control(opcode, masked(content, key) if key else content)


_DATA: Final = Control(Opcode.BINARY, b"")
"""Says that the head of a data frame was read; its content follows."""
