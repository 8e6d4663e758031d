"""Reading an answer: bit by bit, or whole and within a limit."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final

import aiohttp

from clusterspace.client.answer_memory import Hold, Reading
from clusterspace.client.requests import Answer
from clusterspace.client.translation import transport_error
from clusterspace.errors import AnswerOverrun, ClusterMisbehaved, ClusterUnreachable
from clusterspace.kube import plain_text

FOREIGN: Final = (aiohttp.ClientError, OSError)
"""What may come out of the HTTP library; TimeoutError is an OSError."""

_STEP_BYTES: Final = 1024 * 1024
"""What is unpacked in one go: about two milliseconds of work."""
_SURELY_FINE: Final = 16 * 1024 * 1024
_MOST_GROWTH: Final = 200
"""Lists of objects that are much alike unpack to fifty times their size; bombs to a thousand."""


class AnswerStream:
    """An answer whose body comes bit by bit."""

    def __init__(self, cluster: str, response: aiohttp.ClientResponse) -> None:
        self._cluster = cluster
        self._response = response
        self.status = response.status
        self.headers = _headers_of(response)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; ends when the server ends it."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except FOREIGN as error:
            raise transport_error(self._cluster, error) from error
        except RuntimeError as error:
            # The library's word for a connection that we closed ourselves since the last bit.
            why = "the connection was closed"
            raise ClusterUnreachable(self._cluster, why, was_sent=True) from error

    async def read(self, most_bytes: int, hold: Hold | None = None) -> Answer:
        """Return the whole answer; a body over the limit is an error, and is not read on.

        With a `hold` its bytes count among those of all answers, until the hold is closed.
        """
        if hold is not None:
            reading = hold.read(self._cluster, most_bytes)
        else:
            reading = Reading(self._cluster, most_bytes)
        try:
            await self._read_into(reading)
        except BaseException:
            reading.forget()
            raise
        return Answer(self.status, self.headers, reading.whole())

    async def _read_into(self, reading: Reading) -> None:
        encoding = self.headers.get("content-encoding", "identity")
        if encoding not in ("identity", "gzip"):
            named = plain_text.line(encoding, 64)
            raise ClusterMisbehaved(self._cluster, f"answered in the encoding {named}, unasked")
        if encoding == "gzip":
            await self._unpack_into(reading)
        else:
            async for chunk in self.chunks():
                reading.write(chunk)

    async def _unpack_into(self, reading: Reading) -> None:
        unpacker = _Unpacker()
        try:
            async for chunk in self.chunks():
                for part in unpacker.feed(chunk):
                    self._keep(part, reading, unpacker)
                    # One chunk may hold a thousand times its size: others take their turn.
                    await asyncio.sleep(0)
            for part in unpacker.end():
                self._keep(part, reading, unpacker)
                await asyncio.sleep(0)
        except (zlib.error, ValueError) as error:
            why = f"the compressed answer is damaged: {error}"
            raise ClusterMisbehaved(self._cluster, why, code=self.status) from error

    def _keep(self, part: bytes, reading: Reading, unpacker: "_Unpacker") -> None:
        reading.write(part)
        if reading.size > max(_SURELY_FINE, unpacker.packed * _MOST_GROWTH):
            why = f"packed its answer to less than one part in {_MOST_GROWTH}"
            raise AnswerOverrun(self._cluster, why, code=self.status)


class _Unpacker:
    """Unpacks in small steps: a bomb is neither unpacked to be measured nor all at once."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self.packed = 0
        """How many bytes have come."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what a chunk unpacks to; nothing may come behind the end."""
        if self._inflate.eof:
            raise ValueError("something comes behind its end")
        self.packed += len(chunk)
        while chunk and not self._inflate.eof:
            yield self._inflate.decompress(chunk, _STEP_BYTES)
            chunk = self._inflate.unconsumed_tail

    def end(self) -> Iterator[bytes]:
        """Yield what the last bytes still stand for; a ValueError when the end is missing."""
        while not self._inflate.eof:
            part = self._inflate.decompress(b"", _STEP_BYTES)
            if not part:
                raise ValueError("it broke off")
            yield part


def _headers_of(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    """Return the headers; those that came several times as one list (RFC 9110, section 5.3)."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        held = headers.get(name.lower())
        headers[name.lower()] = value if held is None else f"{held}, {value}"
    return headers
