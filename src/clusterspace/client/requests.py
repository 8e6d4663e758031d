"""One request to a cluster and its answer: read within bounds, or turned into the error it tells.

    ResourcePath ──> ApiRequest ──Connection──> AnswerStream ──read──> Answer ──failure_of──> error

An answer has a bound of its own and all answers of a process have one together. Many requests at
once, each of which reaches the same cluster, would multiply the first. So what is read is counted
in an AnswerMemory, and when there is no more room the largest answer that is still being read is
given up: one without an end is always that one, and the answers of other clusters go on. An answer
counts until the client has it, and a client may take its time. So the answers of one user count by
themselves too, and have half of the room: who asks for much and reads slowly runs into their own
bound, not into that of the others.

All errors name the cluster. An answer that is not Kubernetes' own is never taken for one: a proxy's
"404 Not Found" page is no NotFound, which somebody would read as "the object is gone". Sentences
here reach people who may not know where a cluster is: they name no address. What the library said
is kept as the cause.
"""

import asyncio
import errno
import os
import ssl
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from clusterspace.client.endpoints import RefusedAddress
from clusterspace.errors import (
    AddressNotAllowed,
    AnswerOverrun,
    ApiError,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    MalformedObject,
    NotFound,
    NotServed,
)
from clusterspace.kube import plain_text, statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.protobuf import bodies as protobuf
from clusterspace.kube.protobuf.wire import MEDIA_TYPE
from clusterspace.kube.resources import GroupVersionResource

Headers: TypeAlias = tuple[tuple[str, str], ...]
Query: TypeAlias = tuple[tuple[str, str], ...]

DEADLINE_SECONDS: Final = 30.0
MOST_BYTES: Final = 256 * 1024 * 1024
"""A list of a hundred thousand large objects fits; an answer without end does not."""

_SAFE: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One HTTP request to a cluster, and how much time and memory its answer may take.

    `path` starts at the cluster's root and is percent-encoded already; a prefix the server's URL
    has comes before it.
    """

    method: str
    path: str
    query: Query = ()
    headers: Headers = ()
    body: bytes | None = field(default=None, repr=False)
    seconds: float = DEADLINE_SECONDS
    """For the whole answer; of a stream, for its head."""
    most_bytes: int = MOST_BYTES
    hold: "Hold | None" = field(default=None, repr=False, compare=False)
    """What the answer is counted in, when all answers together have a bound."""
    quiet_seconds: float | None = None
    """Of a stream: how long it may say nothing before it counts as broken."""
    is_repeated: bool = True
    """Whether what was never sent is tried again; not where somebody waits for a plain no."""

    @property
    def is_safe(self) -> bool:
        """Whether asking twice is the same as asking once."""
        return self.method in _SAFE

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def retry_after(self) -> float | None:
        """The seconds after which the server asks us to try again, if it does."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() else None


def path_of(*segments: str) -> str:
    """Join segments to a path, each encoded as a whole: a slash in a name stays in the name.

    Dots cannot be encoded away: a server, or a proxy before it, would walk up the path.
    """
    for segment in segments:
        if segment in ("", ".", ".."):
            raise MalformedObject(f"{segment!r} is no part of a path", place="path")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


@dataclass(frozen=True, slots=True, order=True)
class ResourcePath:
    """A collection, an object in it, or a subresource of that object.

    ResourcePath(PODS)                                           pods of all namespaces
    ResourcePath(PODS, "default")                                pods of one namespace
    ResourcePath(PODS, "default", "web")                         one pod
    ResourcePath(PODS, "default", "web").with_subresource("log")
    """

    resource: GroupVersionResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """The path of the URL, encoded."""
        inside = ("namespaces", self.namespace) if self.namespace else ()
        behind = tuple(each for each in (self.name, self.subresource) if each)
        return self.resource.group_version.path + path_of(*inside, self.resource.resource, *behind)

    @property
    def collection(self) -> "ResourcePath":
        """The collection the object is in."""
        return replace(self, name="", subresource="")

    @property
    def key(self) -> str:
        """The object's name, with its namespace before it if it has one."""
        return key_of(self.namespace, self.name)

    def named(self, name: str) -> "ResourcePath":
        """Return an object of this collection."""
        return replace(self, name=name)

    def with_subresource(self, subresource: str) -> "ResourcePath":
        """Return a subresource of this object."""
        return replace(self, subresource=subresource)

    def at(self, key: str) -> "ResourcePath":
        """Return the object with this key."""
        namespace, _, name = key.rpartition("/")
        return replace(self, namespace=namespace, name=name)

    def __str__(self) -> str:
        subresource = f"/{self.subresource}" if self.subresource else ""
        subject = f" {self.key}" if self.name or self.namespace else ""
        return f"{self.resource.group_resource}{subresource}{subject}"


def resource_path_of(
    resource: GroupVersionResource, kube_object: Mapping[str, Any]
) -> ResourcePath:
    """Return where an object is."""
    return ResourcePath(resource, namespace_of(kube_object), name_of(kube_object))


def key_of(namespace: str, name: str) -> str:
    """Return `namespace/name`, or the name alone for what has no namespace."""
    return f"{namespace}/{name}" if namespace else name


# -- how much memory answers take ------------------------------------------------------------------

_OWNERS_SHARE: Final = 2
"""One user has at most half of the room."""


class Reading:
    """One answer while it is read; the bytes count until they are forgotten.

    All of it happens on the event loop, and no step here waits: between two steps the counts of
    the memory are exact.
    """

    def __init__(
        self,
        cluster: str,
        most_bytes: int,
        memory: "AnswerMemory | None" = None,
        owner: str = "",
    ) -> None:
        self.cluster = cluster
        self.owner = owner
        self.size = 0
        self._most = most_bytes
        self._memory = memory
        # Grows in place and is handed out without a copy: joining parts would hold all of it twice.
        self._content = BytesIO()
        self._given_up: ClusterError | None = None
        if memory is not None:
            memory.begin(self)

    def write(self, part: bytes) -> None:
        """Take some more; raise ClusterError when there is no room, and keep nothing then."""
        if self._given_up is None and len(part) > self._most - self.size:
            why = f"answered with more than {self._most} bytes"
            self.give_up(AnswerOverrun(self.cluster, why, code=200))
        if self._given_up is None:
            self._resize(self.size + len(part))
        # Asked once more: to make room for these bytes, this very answer may have been given up.
        if self._given_up is not None:
            raise self._given_up
        self._content.write(part)

    def resize(self, size: int) -> None:
        """Count so many bytes that somebody else holds; raise ClusterError when there is no room.

        For what is read without an end, and held only until it has one.
        """
        self._resize(size)
        if self._given_up is not None:
            raise self._given_up

    def give_up(self, failure: ClusterError) -> None:
        """Let go of all of it at once; whoever reads it is told with the next part."""
        self._given_up = failure
        self.forget()

    def whole(self) -> bytes:
        """Return all of it, and count it until it is forgotten."""
        if self._memory is not None:
            self._memory.end(self)
        return self._content.getvalue()

    def forget(self) -> None:
        """Count it no more."""
        self._content = BytesIO()
        self._resize(0)
        if self._memory is not None:
            self._memory.end(self)

    def _resize(self, size: int) -> None:
        # The size comes first: making room compares sizes, and may give up this very answer.
        grown, self.size = size - self.size, size
        if self._memory is not None:
            self._memory.grow(grown, self.owner)


class Hold:
    """The answers of one request."""

    def __init__(self, memory: "AnswerMemory", owner: str = "") -> None:
        self._memory = memory
        self._owner = owner
        self._readings: list[Reading] = []

    def read(self, cluster: str, most_bytes: int) -> Reading:
        """Begin to read a cluster's answer of at most so many bytes."""
        reading = Reading(cluster, most_bytes, self._memory, self._owner)
        self._readings.append(reading)
        return reading

    def close(self) -> None:
        """Stop counting: nobody works on these answers any more."""
        for reading in self._readings:
            reading.forget()
        self._readings.clear()


class AnswerMemory:
    """Counts the bytes of all answers of a process that are read, worked on or sent on."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used = 0
        self._by_owner: Counter[str] = Counter()
        self._being_read: set[Reading] = set()

    def open_hold(self, owner: str = "") -> Hold:
        """Return the Hold that counts the answers of one request for its owner, until it is closed.

        What belongs to nobody in particular counts for the process only.
        """
        return Hold(self, owner)

    @contextmanager
    def holding(self, owner: str = "") -> Generator[Hold]:
        """Count answers for as long as the block lasts."""
        hold = self.open_hold(owner)
        try:
            yield hold
        finally:
            hold.close()

    def begin(self, reading: Reading) -> None:
        """Know an answer from its first byte on."""
        self._being_read.add(reading)

    def grow(self, size: int, owner: str = "") -> None:
        """Count some bytes more or less, and give up the largest answer where there is no room.

        Whoever grows is among those being read. What is whole cannot be given up any more: it was
        let in before, and goes when its client has it.
        """
        self.used += size
        if owner:
            self._by_owner[owner] += size
            if not self._by_owner[owner]:
                del self._by_owner[owner]
        share = self.most_bytes // _OWNERS_SHARE
        while size > 0:
            candidates = self._being_read
            if owner and self._by_owner[owner] > share:
                candidates = {each for each in candidates if each.owner == owner}
            elif self.used <= self.most_bytes:
                return
            if not candidates:
                return
            largest = max(candidates, key=lambda reading: reading.size)
            why = f"there is no room for its answer now, of {largest.size} bytes so far"
            # It comes back here to count its bytes off, and is no longer among those being read.
            largest.give_up(ClusterError(largest.cluster, why))

    def end(self, reading: Reading) -> None:
        """Know that an answer is whole, or that nobody reads it on."""
        self._being_read.discard(reading)


# -- an answer as it comes -------------------------------------------------------------------------

FOREIGN: Final = (aiohttp.ClientError, OSError)
"""What may come out of the HTTP library; TimeoutError is an OSError."""

_STEP_BYTES: Final = 1024 * 1024
"""What is unpacked in one go: about two milliseconds of work."""
_SURELY_FINE: Final = 16 * 1024 * 1024
_MOST_GROWTH: Final = 200
"""Lists of objects that are much alike unpack to fifty times their size; bombs to a thousand."""


class AnswerStream:
    """An answer whose body comes bit by bit.

    One whose body would end with the connection is refused: nobody could tell its end from a break.
    """

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
        has_end = "content-length" in headers or "transfer-encoding" in headers
        if not has_end and response.method != "HEAD" and self.status not in (204, 304):
            why = "answered without saying where its answer ends"
            raise ClusterMisbehaved(cluster, why, code=self.status)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; ends when the server ends it, raises when it breaks off.

        All that came before the break is yielded.
        """
        content = self._response.content
        failure: ClusterError
        try:
            async for chunk in content.iter_any():
                yield chunk
        except FOREIGN as error:
            failure = transport_error(self._cluster, error)
            failure.__cause__ = error
        except RuntimeError as error:
            # The library's word for a connection that we closed ourselves since the last bit.
            why = "the connection was closed"
            raise ClusterUnreachable(self._cluster, why, was_sent=True) from error
        else:
            return
        # What the library had received before it saw the break, it would keep to itself.
        while content._buffer:  # pyright: ignore[reportPrivateUsage]
            yield content._read_nowait_chunk(-1)  # pyright: ignore[reportPrivateUsage]
        raise failure

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


# -- what went wrong -------------------------------------------------------------------------------

_MOST_TEXT: Final = 200
_UNKNOWN_PATH: Final = b"404 page not found"
"""What a kube-apiserver says of groups it does not have, as plain text and not as a Status."""
_NO_SERVICE: Final = (b"service unavailable", b"error trying to reach service: ")
"""How its plain text begins when the server of an APIService cannot be reached just now."""

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
        return ClusterMisbehaved(cluster, "its address cannot be used in a URL")
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
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
    try:
        # Who asks for protobuf is refused in it, too.
        read = protobuf.decode if media_type == MEDIA_TYPE else msgspec.json.decode
        decoded: Any = read(answer.body)
    except (ApiError, *UNREADABLE):
        decoded = None
    if isinstance(decoded, dict) and cast("Object", decoded).get("kind") == "Status":
        return api_error(cluster, cast("Object", decoded), answer.status)
    if answer.status == 404 and answer.body.strip() == _UNKNOWN_PATH:
        return _of_cluster(NotServed(statuses.unknown_path().message), cluster)
    if answer.status == 503 and media_type == "text/plain" and answer.body.startswith(_NO_SERVICE):
        why = "the server behind this API is not available at the moment"
        return _of_cluster(statuses.unavailable(why), cluster)
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
