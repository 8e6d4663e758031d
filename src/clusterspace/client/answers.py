"""An answer to bytes, bit by bit or whole and within a limit; or to the error it tells of.

All errors name the cluster. An answer that is not Kubernetes' own is never taken for one: a proxy's
"404 Not Found" page is no NotFound, which somebody would read as "the object is gone".

Sentences here reach people who may not know where a cluster is: they name no address. What the
library said is kept as the cause.
"""

import asyncio
import errno
import os
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, cast

import aiohttp
import msgspec

from clusterspace.client.answer_memory import Hold, Reading
from clusterspace.client.endpoints import RefusedAddress
from clusterspace.client.requests import Answer
from clusterspace.errors import (
    AddressNotAllowed,
    AnswerOverrun,
    ApiError,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    NotFound,
    NotServed,
)
from clusterspace.kube import plain_text, statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object

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
        # One that came several times is one list (RFC 9110, section 5.3).
        headers: dict[str, str] = {}
        for name, value in response.headers.items():
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        self.headers: Mapping[str, str] = headers

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
        encoding = self.headers.get("content-encoding", "identity")
        try:
            if encoding not in ("identity", "gzip"):
                named = plain_text.line(encoding, 64)
                raise ClusterMisbehaved(self._cluster, f"answered in the encoding {named}, unasked")
            if encoding == "identity":
                async for chunk in self.chunks():
                    reading.write(chunk)
            else:
                unpacker = _Unpacker()
                async for chunk in self.chunks():
                    for part in unpacker.feed(chunk):
                        self._keep(part, reading, unpacker)
                        # One chunk may hold a thousand times its size: others take their turn.
                        await asyncio.sleep(0)
                for part in unpacker.end():
                    self._keep(part, reading, unpacker)
                    await asyncio.sleep(0)
        except (zlib.error, ValueError) as error:
            reading.forget()
            why = f"the compressed answer is damaged: {error}"
            raise ClusterMisbehaved(self._cluster, why, code=self.status) from error
        except BaseException:
            # Cancelled above all, when whoever asked has gone: what was read counts no more, even
            # though the hold it belongs to may go on with the answers of other clusters.
            reading.forget()
            raise
        return Answer(self.status, self.headers, reading.whole())

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


_MOST_TEXT: Final = 200
_UNKNOWN_PATH: Final = b"404 page not found"
"""What a kube-apiserver says of groups it does not have, as plain text and not as a Status."""

_NO_CONNECTION: Final = {
    errno.ECONNREFUSED: "refused the connection",
    errno.ECONNRESET: "broke the connection off",
    errno.EHOSTUNREACH: "no route leads to it",
    errno.ENETUNREACH: "no route leads to it",
    errno.ETIMEDOUT: "no connection in time",
}


def transport_error(cluster: str, error: Exception) -> ClusterError:
    """Return ours for what the HTTP library or the operating system raised."""
    refused = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(refused, RefusedAddress):
        return AddressNotAllowed(cluster, refused.advice, address=refused.address)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ClusterUnreachable(cluster, "no connection in time", was_sent=False)
    if isinstance(error, TimeoutError):
        return ClusterTimeout(cluster, "went silent")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        why = f"the proxy on the way answered {error.status}"
        return ClusterUnreachable(cluster, why, was_sent=False)
    if isinstance(error, aiohttp.ClientResponseError):
        # Its text as a whole would tell the URL as well.
        return ClusterMisbehaved(cluster, f"did not speak HTTP: {_short(error.message)}")
    if isinstance(error, aiohttp.InvalidURL):
        return ClusterMisbehaved(cluster, "its address is none that a request can be made of")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientSSLError | ssl.SSLError):
        return ClusterUnreachable(cluster, _connect_problem(error), was_sent=False)
    if isinstance(error, aiohttp.ClientPayloadError):
        return ClusterUnreachable(cluster, "the answer broke off", was_sent=True)
    return ClusterUnreachable(cluster, "the connection broke", was_sent=True)


def failure_of(cluster: str, answer: Answer) -> ApiError | ClusterError | None:
    """Return the error an answer tells of; None when it is a success."""
    if 200 <= answer.status < 300:
        return None
    if unfit := unfit_status(cluster, answer.status):
        return unfit
    try:
        decoded: Any = msgspec.json.decode(answer.body)
    except UNREADABLE:
        decoded = None
    if isinstance(decoded, dict) and cast("Object", decoded).get("kind") == "Status":
        return api_error(cluster, cast("Object", decoded), answer.status)
    if answer.status == 404 and answer.body.strip() == _UNKNOWN_PATH:
        return _of_cluster(NotServed(statuses.unknown_path().message), cluster)
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
    shown = plain_text.line(media_type, 64) or "no content type"
    why = f"answered {answer.status} with {shown}, not with a Kubernetes Status"
    return ClusterMisbehaved(cluster, why, code=answer.status)


def unfit_status(cluster: str, code: int) -> ClusterMisbehaved | None:
    """Return the failure of an answer whose status no API server answers with; None if it may be.

    "Unchanged" is a success to whoever asked about a tag, and a redirect to everybody else.
    """
    if 200 <= code < 300 or 400 <= code < 600:
        return None
    if 300 <= code < 400:
        why = f"answered {code}, a redirect, and those are neither followed nor passed on"
    else:
        why = f"answered {code}, which is no status of an API server"
    return ClusterMisbehaved(cluster, why, code=code)


def api_error(cluster: str, status: Object, http_code: int) -> ApiError:
    """Return the error a v1 Status tells of."""
    error = statuses.error_from(status, http_code)
    if isinstance(error, NotFound) and not (error.details and error.details.name):
        error = NotServed(error.message, error.details)
    return _of_cluster(error, cluster)


def unreadable(cluster: str, what: str, error: Exception | None = None) -> ClusterMisbehaved:
    """Return the error for an answer that says 200 and is not what was asked for."""
    detail = f": {_short(str(error))}" if error is not None else ""
    return ClusterMisbehaved(cluster, f"{what}{detail}", code=200)


def _of_cluster(error: ApiError, cluster: str) -> ApiError:
    error.cluster = cluster
    return error


def _connect_problem(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted{_tls_reason(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"no TLS connection{_tls_reason(cast('OSError', error.os_error))}"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return f"no TLS connection{_tls_reason(error)}"
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        return "no connection can be made"
    return _NO_CONNECTION.get(number, f"no connection can be made: {os.strerror(number)}")


def _tls_reason(error: Exception) -> str:
    """Return OpenSSL's reason, without the place in its sources; empty if it gives none."""
    if isinstance(error, ssl.SSLCertVerificationError):
        # What follows the comma says which address is not in the certificate.
        return f": {error.verify_message.partition(',')[0]}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return f": {reason.replace('_', ' ').lower()}" if reason else ""


def _short(text: str) -> str:
    line = plain_text.line(" ".join(text.split()))
    return line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}..."
