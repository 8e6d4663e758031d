"""The merged answer to HTTP: pieces onto the wire as they are made, with one Warning."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.foreign_answers import (
    clean_failure,
    headers_to_return,
    warnings_in,
)
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.negotiation import JSON, YAML, Representation
from clusterspace.apiserver.http.responses import as_yaml, headers_for, warning_headers
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.names import HUB

_AT_ONCE: Final = 64 * 1024
_MOST_NAMED: Final = 10


async def send_merged(
    context: RequestContext,
    pieces: Iterable[bytes],
    replies: Iterable[Reply],
    representation: Representation,
) -> Response | None:
    """Answer with a merged document; a long one goes out while it is still being made."""
    headers = [*headers_for(context, JSON), *warning_headers(_warnings_of(replies))]
    if representation.media_type == YAML:
        return await as_yaml(context, Response(200, headers, list(pieces)))
    if context.info.query.is_true("pretty"):
        body = b"".join(pieces)
        context.weigh(body)
        formatted = await context.run(lambda: msgspec.json.format(body, indent=2))
        return Response(200, headers, formatted)
    rest = batches(pieces)
    first = next(rest, b"")
    second = next(rest, None)
    if second is None:
        return Response(200, headers, first)
    stream = context.request.start_stream(200, headers)
    stream.write(first)
    stream.write(second)
    await stream.drain()
    for batch in rest:
        stream.write(batch)
        await stream.drain()
    stream.end()
    return None


def send_one(context: RequestContext, reply: Reply, body: bytes, speaker: str) -> Response:
    """Answer with what one cluster answered, its body rewritten."""
    if reply.status >= 400:
        body = clean_failure(body, reply.headers.get("content-type", ""))
    headers = headers_to_return(context, reply.headers, speaker, is_unpacked=True)
    return Response(reply.status, headers, body)


def batches(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces, so that each batch is worth a write of its own.

    >>> list(batches([b"a", b"b", b"c" * 65536, b"d"])) == [b"ab" + b"c" * 65536, b"d"]
    True
    """
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _AT_ONCE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _warnings_of(replies: Iterable[Reply]) -> list[str]:
    """Return the warnings of clusters that are shown: each text once, with those that gave it.

    The hub's own words come first and by themselves: they are said in the fleet's name.
    """
    own: list[str] = []
    said: dict[str, list[str]] = {}
    for reply in (each for each in replies if each.failure is None):
        texts = warnings_in(reply.headers, "")
        if reply.cluster == HUB:
            own += texts
        for text in texts if reply.cluster != HUB else ():
            said.setdefault(text, []).append(reply.cluster)
    for text, clusters in said.items():
        more = len(clusters) - _MOST_NAMED
        listed = ", ".join(clusters[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        own.append(f"cluster{'s' if len(clusters) > 1 else ''} {listed}: {text}")
    return list(dict.fromkeys(own))
