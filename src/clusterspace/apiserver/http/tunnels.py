"""Exec, attach, port-forward passed on: a byte stream from a client to another API server."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Final

import msgspec

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.middleware.authorize import refusal
from clusterspace.apiserver.http.relays import UNKNOWN_THERE, Passage, headers_to_pass
from clusterspace.apiserver.http.request_info import STREAMS, RequestInfo
from clusterspace.apiserver.http.response_writer import Hijacked
from clusterspace.client.answers import unreadable
from clusterspace.client.requests import ApiRequest
from clusterspace.client.upgrades import PROTOCOLS, Tunnel, open_tunnel
from clusterspace.errors import (
    BadRequest,
    ClusterMisbehaved,
    CredentialsUnusable,
    Unauthorized,
)
from clusterspace.kube.json_errors import UNREADABLE

_GRANTED: Final = (
    "upgrade",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "x-stream-protocol-version",
)
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_REVIEW_BYTES: Final = 64 * 1024
_SWITCH_SECONDS: Final = 30.0
_LAST_WORDS_SECONDS: Final = 10.0
"""What a client sent before it left is still delivered, but not to a program that never reads."""
_READ_SIZE: Final = 64 * 1024


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus | None = None


async def tunnel(context: RequestContext, passage: Passage, inner: RequestInfo) -> None:
    """Have the target switch protocols, then carry bytes both ways until one end is done.

    `inner` is the request as the target will read it.
    """
    asked = context.header("upgrade").lower()
    protocol = next((each for each in PROTOCOLS if each.lower() == asked), None)
    if protocol is None:
        spoken = " and ".join(PROTOCOLS)
        raise BadRequest(f"unable to upgrade: {asked[:64]!r} is not passed on, {spoken} are")
    await _require_create(context, passage, inner)
    request = ApiRequest(
        context.info.method,
        passage.target,
        headers=(*headers_to_pass(context.request.headers), *passage.identity),
        seconds=_SWITCH_SECONDS,
    )
    async with AsyncExitStack() as stack:
        try:
            opening = open_tunnel(passage.connection, request, protocol)
            far = await stack.enter_async_context(opening)
        except Unauthorized as error:
            # It is us that the cluster does not know, not the client.
            raise CredentialsUnusable(passage.cluster, UNKNOWN_THERE) from error
        head = _switching(passage.cluster, far.headers)
        # From here on there is no HTTP answer any more: whatever fails cuts the connection.
        near = context.request.hijack()
        near.write(head)
        await _carry(context, near, far)


async def _require_create(context: RequestContext, passage: Passage, inner: RequestInfo) -> None:
    """Refuse a shell to whoever may only read.

    WebSockets begin with a GET, so to API servers before 1.35 the right to get `pods/exec` is all
    it takes. Later ones ask for the right to create it; here that holds for all of them.
    """
    if inner.resource != "pods" or inner.subresource not in STREAMS or inner.method == "POST":
        return
    attributes = {
        "verb": inner.verb,
        "group": inner.group,
        "version": inner.version,
        "resource": inner.resource,
        "subresource": inner.subresource,
        "namespace": inner.namespace,
        "name": inner.name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await passage.connection.ask(
        ApiRequest(
            "POST",
            _REVIEWS,
            headers=(("Content-Type", "application/json"), *passage.identity),
            body=msgspec.json.encode(review),
            most_bytes=_REVIEW_BYTES,
        )
    )
    try:
        status = msgspec.json.decode(answer.body, type=_Review).status
    except UNREADABLE as error:
        raise unreadable(passage.cluster, "its review is none", error) from error
    if status is None or not status.allowed:
        raise refusal(context.user, inner)


def _switching(cluster: str, granted: Mapping[str, str]) -> bytes:
    """Return the head that tells the client of the switch, in words that cannot end a line."""
    for name in _GRANTED:
        value = granted.get(name, "")
        if not (value.isascii() and value.isprintable()):
            raise ClusterMisbehaved(cluster, f"switched protocols with a broken {name}", code=101)
    lines = [f"{name}: {granted[name]}" for name in _GRANTED if name in granted]
    head = ("HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", *lines, "", "")
    return "\r\n".join(head).encode("latin-1")


async def _carry(context: RequestContext, near: Hijacked, far: Tunnel) -> None:
    """Carry bytes until the cluster is done, or the client is gone and its last words are said.

        the cluster ends                        `down` ends; what the client still says is dropped
        the client ends its half (stdin)        `up` ends and ends the cluster's; `down` goes on
        the client goes                         `up` has ten seconds to deliver what it has read

    Over TLS a client that ends its half cannot be told from one that has gone: `gone` is first.
    """

    async def carry_up() -> None:
        with suppress(OSError):  # one end is gone, and with it the reason to go on
            while content := await near.reader.read(_READ_SIZE):
                await far.write(content)
            far.end()

    async def carry_down() -> None:
        with suppress(OSError):
            while content := await far.read(_READ_SIZE):
                near.write(content)
                await near.drain()
            near.half_close()

    async with asyncio.TaskGroup() as group:
        up = group.create_task(carry_up(), name="client to cluster")
        down = group.create_task(carry_down(), name="cluster to client")
        gone = group.create_task(context.request.wait_disconnected(), name="client leaves")
        await asyncio.wait((up, down, gone), return_when=asyncio.FIRST_COMPLETED)
        # A client that has said all it will may still listen.
        await asyncio.wait((down, gone), return_when=asyncio.FIRST_COMPLETED)
        if not down.done():
            await asyncio.wait((up,), timeout=_LAST_WORDS_SECONDS)
        for each in (up, down, gone):
            each.cancel()
