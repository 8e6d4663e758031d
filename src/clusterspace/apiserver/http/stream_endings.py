"""How a relayed exec or attach ends: with the command's status, or with an error in its place.

A client learns how a command ended from its error stream: a Status, the last thing to be said. A
connection that ends without one is a command that went well, to every kubectl over SPDY and to
newer ones if a WebSocket was closed in good order. So whoever relays such a stream has to see to it
that it does not just end:

    the cluster                         over SPDY                     over WebSocket
    sends a status, then ends           as it is                      as it is
    ends its streams without one        our Status, then the end      our Status, then the close
    is cut, or cuts itself              our Status, then the end      cut: no close is an error

Everything else passes untouched. A frame of which only a part has come is passed on as a frame of
its own, so that there is a place for ours whenever the rest does not come.
"""

from typing import Any, Final, Protocol

import msgspec

from clusterspace.apiserver.http.spdy_frames import (
    CONTROL_BIT,
    FIN,
    FRAME_LIMIT,
    HEAD,
    ID_MASK,
    HeaderReader,
    Kind,
    encode_data,
    read_id,
)
from clusterspace.errors import StreamBroken

_WITH_STATUS: Final = ("v4.channel.k8s.io", "v5.channel.k8s.io")
"""Protocols in which every command ends with a Status. Before, success was silence."""

_HEADERS_AT: Final[dict[int, int]] = {Kind.SYN_STREAM: 10, Kind.SYN_REPLY: 4, Kind.HEADERS: 4}
"""Where headers begin in frames that have some. All are read, for they share one compressor."""

_ERROR_CHANNEL: Final = 3
_TEXT, _BINARY, _CLOSE = 1, 2, 8
NO_STATUS: Final = "the cluster ended the stream without saying how the command ended"
_OPENING_BYTES: Final = 256 * 1024
"""More than all frames together that open the streams of a command."""


class Ending(Protocol):
    """Sees a stream pass, and knows whether it has ended."""

    @property
    def is_complete(self) -> bool:
        """Whether all has been said that was to be said."""
        ...

    def note_sent(self, content: bytes) -> None:
        """See what the client says."""
        ...

    def pass_on(self, content: bytes) -> bytes:
        """Return what to pass on to the client of what the cluster says."""
        ...

    def last_words(self, why: str) -> bytes:
        """Return what is left to pass on of a stream that broke off, and what tells so.

        It is complete then, if the client can tell from this alone; otherwise it is to be cut.
        """
        ...


def ending_of(protocol: str, version: str, *, is_command: bool) -> Ending:
    """Return what is to be seen to on a stream that switched to this protocol and version."""
    if is_command and protocol.lower() == "spdy/3.1":
        return SpdyEnding(has_status=version in _WITH_STATUS)
    if is_command and protocol.lower() == "websocket" and version in _WITH_STATUS:
        return WebSocketEnding()
    return BareEnding()


class BareEnding:
    """Bytes that mean nothing to us: port-forward, and what is inside services and pods."""

    def __init__(self) -> None:
        self.is_complete = True

    def note_sent(self, content: bytes) -> None:
        """See nothing."""

    def pass_on(self, content: bytes) -> bytes:
        """Return everything."""
        return content

    def last_words(self, why: str) -> bytes:
        """Return nothing: a stream that is cut is cut for the client, too."""
        del why
        self.is_complete = False
        return b""


def failure(why: str) -> bytes:
    """Return a Status that tells of a command whose end nobody saw."""
    status: dict[str, Any] = {
        "metadata": {},
        "status": "Failure",
        "message": why,
        "reason": "InternalError",
        "code": 500,
    }
    return msgspec.json.encode(status)


class SpdyEnding:
    """The error stream of a command over SPDY: found when it is opened, watched until it ends."""

    def __init__(self, *, has_status: bool) -> None:
        self._has_status = has_status
        self._error_stream = 0
        """Its number; there is no stream 0."""
        self._is_said = False
        self._is_blind = False
        """Whether something came that cannot be followed; it passes as it is."""
        self._read_headers: HeaderReader | None = HeaderReader()
        """None when the error stream is found: then nobody cares what else the client sends."""
        self._sent = b""
        self._skips = 0
        self._unsent = b""
        """The beginning of a frame of the cluster's, too short to know what it is."""
        self._data = (0, 0, 0)
        """Stream, flags, and how much is to come, of a data frame that has come in part."""

    @property
    def is_complete(self) -> bool:
        """Whether the status has passed."""
        return self._is_said and not self._data[2]

    def note_sent(self, content: bytes) -> None:
        """Look for the stream that is opened for errors."""
        if self._read_headers is None:
            return
        if self._skips >= len(content):
            self._skips -= len(content)
            return
        self._sent += content[self._skips :]
        self._skips = 0
        while len(self._sent) >= HEAD.size and not self._error_stream:
            first, second = HEAD.unpack_from(self._sent)
            whole = HEAD.size + (second & 0xFFFFFF)
            if first & CONTROL_BIT and whole <= _OPENING_BYTES:
                if len(self._sent) < whole:
                    return
                self._note_control(first & 0xFFFF, self._sent[HEAD.size : whole])
            # Of input only the length counts.
            self._skips = max(whole - len(self._sent), 0)
            self._sent = self._sent[whole:]

    def _note_control(self, kind: int, body: bytes) -> None:
        begins = _HEADERS_AT.get(kind)
        if begins is None or self._read_headers is None:
            return
        try:
            headers = self._read_headers.read(body[begins:])
        except StreamBroken:
            self._read_headers = None  # the cluster will say what it thinks of it
            return
        if kind == Kind.SYN_STREAM and headers.get("streamtype") == "error":
            self._error_stream = read_id(body)
            self._read_headers = None

    def pass_on(self, content: bytes) -> bytes:
        """Return frames, whole or cut to what has come of them."""
        if self._is_blind:
            return content
        content = self._unsent + content if self._unsent else content
        passed: list[bytes | memoryview] = []
        view, at = memoryview(content), 0
        while True:
            stream, flags, left = self._data
            if left:
                part = view[at : at + left]
                left -= len(part)
                self._data = (stream, flags, left)
                if part:
                    self._is_said = self._is_said or stream == self._error_stream
                    passed.append(HEAD.pack(stream, (0 if left else flags) << 24 | len(part)))
                    passed.append(part)
                at += len(part)
            if len(content) - at < HEAD.size:
                break
            first, second = HEAD.unpack_from(content, at)
            flags, size = second >> 24, second & 0xFFFFFF
            whole = HEAD.size + size
            if not first & CONTROL_BIT:
                if size and len(content) - at < whole:
                    self._data = (first, flags, size)
                    at += HEAD.size
                    continue
                if first == self._error_stream and flags & FIN and not size:
                    passed.append(self._end_of_errors())
                elif first == self._error_stream and size:
                    self._is_said = True
            elif size > FRAME_LIMIT:
                self._is_blind = True
                passed.append(view[at:])
                return b"".join(passed)
            elif len(content) - at < whole:
                break
            elif first & 0xFFFF == Kind.RST_STREAM and size >= 4:
                reset = int.from_bytes(view[at + HEAD.size : at + HEAD.size + 4]) & ID_MASK
                if reset == self._error_stream:
                    passed.append(self._end_of_errors())
            passed.append(view[at : at + whole])
            at += whole
        self._unsent = bytes(view[at:])
        return b"".join(passed)

    def last_words(self, why: str) -> bytes:
        """Return the error stream's end, after a status that tells why there is no other."""
        if self.is_complete:
            return b""
        if self._is_blind or not self._error_stream:
            return self._unsent
        self._unsent, self._data = b"", (0, 0, 0)
        if self._is_said:
            return encode_data(self._error_stream, b"", is_last=True)
        self._is_said = True
        text = failure(why) if self._has_status else why.encode()
        return encode_data(self._error_stream, text, is_last=True)

    def _end_of_errors(self) -> bytes:
        """Return what has to come before the end of the error stream."""
        is_missing = self._has_status and not self._is_said
        self._is_said = True
        return encode_data(self._error_stream, failure(NO_STATUS)) if is_missing else b""


class WebSocketEnding:
    """The error channel of a command over WebSocket."""

    def __init__(self) -> None:
        self._is_said = False
        self._is_closed = False
        self._is_blind = False
        self._unsent = b""
        self._left = 0
        """How much of a frame is to come."""

    @property
    def is_complete(self) -> bool:
        """Whether the close has passed: a client knows that everything was said before it."""
        return self._is_closed

    def note_sent(self, content: bytes) -> None:
        """See nothing: channels are not announced."""

    def pass_on(self, content: bytes) -> bytes:
        """Return frames; before a close that no status precedes comes one of ours."""
        if self._is_blind or self._is_closed:
            return content
        content = self._unsent + content if self._unsent else content
        passed: list[bytes | memoryview] = []
        view, at = memoryview(content), 0
        while at < len(content):
            if self._left:
                part = view[at : at + self._left]
                self._left -= len(part)
                passed.append(part)
                at += len(part)
                continue
            frame = _read_frame_head(view[at:])
            if frame is None:
                break
            head, opcode, size, channel = frame
            if head == 0:
                # Masked or compressed: not what a server of Kubernetes sends, and not ours to read.
                self._is_blind = True
                passed.append(view[at:])
                return b"".join(passed)
            if opcode in (_TEXT, _BINARY) and channel == _ERROR_CHANNEL and size > 1:
                self._is_said = True
            if opcode == _CLOSE:
                if not self._is_said:
                    passed.append(_status_frame(NO_STATUS))
                self._is_closed = True
                passed.append(view[at:])
                return b"".join(passed)
            self._left = head + size
        self._unsent = bytes(view[at:])
        return b"".join(passed)

    def last_words(self, why: str) -> bytes:
        """Return what was held back: without a close the client knows that this was no end."""
        del why
        return self._unsent


def _read_frame_head(view: memoryview) -> tuple[int, int, int, int] | None:
    """Return length, opcode, size of the payload and its first byte; None when too little came.

    The length is 0 for a frame that cannot be read.
    """
    if len(view) < 2:
        return None
    opcode, size, head = view[0] & 0x0F, view[1] & 0x7F, 2
    if view[0] & 0x70 or view[1] & 0x80:
        return 0, opcode, size, 0
    if size >= 126:
        head = 4 if size == 126 else 10
        if len(view) < head:
            return None
        size = int.from_bytes(view[2:head])
    if size and len(view) == head:
        return None
    return head, opcode, size, view[head] if size else 0


def _status_frame(why: str) -> bytes:
    payload = bytes((_ERROR_CHANNEL,)) + failure(why)
    length = bytes((len(payload),)) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2)
    return bytes((0x80 | _BINARY,)) + length + payload
