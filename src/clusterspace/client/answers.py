"""Reading an answer: bit by bit, or whole and within a limit."""

import zlib
from collections.abc import AsyncIterator, Mapping
from io import BytesIO
from typing import Final

import aiohttp

from clusterspace.client.requests import Answer
from clusterspace.client.translation import transport_error
from clusterspace.errors import ClusterMisbehaved, ClusterUnreachable

FOREIGN: Final = (aiohttp.ClientError, OSError)
"""What may come out of the HTTP library; TimeoutError is an OSError."""


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

    async def read(self, most_bytes: int) -> Answer:
        """Return the whole answer; a body over the limit is an error, and is not read on."""
        body = await _read_body(self._cluster, self._response, self.chunks(), most_bytes)
        return Answer(self.status, self.headers, body)


async def _read_body(
    cluster: str,
    response: aiohttp.ClientResponse,
    chunks: AsyncIterator[bytes],
    most_bytes: int,
) -> bytes:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding not in ("identity", "gzip"):
        raise ClusterMisbehaved(cluster, f"answered in the encoding {encoding}, unasked")
    inflate = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    # Grows in place and is handed out without a copy: joining parts would hold all of them twice.
    held = BytesIO()
    async for chunk in chunks:
        # One byte more than allowed is enough to know: a bomb is not unpacked to be measured.
        try:
            part = chunk if inflate is None else inflate.decompress(chunk, most_bytes + 1)
        except zlib.error as error:
            raise ClusterMisbehaved(cluster, "the compressed answer is damaged") from error
        held.write(part)
        if held.tell() > most_bytes:
            why = f"answered with more than {most_bytes} bytes"
            raise ClusterMisbehaved(cluster, why, code=response.status)
    if inflate is not None and not inflate.eof:
        raise ClusterMisbehaved(cluster, "the compressed answer broke off", code=response.status)
    return held.getvalue()


def _headers_of(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    """Return the headers; those that came several times as one list (RFC 9110, section 5.3)."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        held = headers.get(name.lower())
        headers[name.lower()] = value if held is None else f"{held}, {value}"
    return headers
