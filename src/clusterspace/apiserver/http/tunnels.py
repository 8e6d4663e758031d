"""Exec, attach, port-forward passed on: a byte stream from a client to another API server."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.middleware.authorize import refusal
from clusterspace.apiserver.http.relays import UNKNOWN_THERE, Passage, headers_to_pass
from clusterspace.apiserver.http.request_info import STREAMS, RequestInfo
from clusterspace.apiserver.http.response_writer import Hijacked
from clusterspace.client.answers import unreadable
from clusterspace.client.connection import Connection
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


class _Verdict(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Verdict | None = None


async def tunnel(context: RequestContext, passage: Passage, inner: RequestInfo) -> None:
    """Have the target switch protocols, then carry bytes both ways until one end is done.

    `inner` is the request as the target will read it.
    """
    protocol = _protocol_of(context)
    await _require_create(context, passage, inner)
    headers = (*headers_to_pass(context.request.headers), *passage.identity)
    ask = ApiRequest(context.info.method, passage.target, headers=headers, seconds=_SWITCH_SECONDS)
    async with AsyncExitStack() as stack:
        far = await _switched(stack, passage.connection, ask, protocol)
        head = _switching(passage.cluster, far.headers)
        near = context.request.hijack()
        near.write(head)
        await _carry(context, near, far)


async def _switched(
    stack: AsyncExitStack, connection: Connection, ask: ApiRequest, protocol: str
) -> Tunnel:
    try:
        return await stack.enter_async_context(open_tunnel(connection, ask, protocol))
    except Unauthorized as error:
        # It is us that the cluster does not know, not the client.
        raise CredentialsUnusable(connection.cluster, UNKNOWN_THERE) from error


async def _require_create(context: RequestContext, passage: Passage, inner: RequestInfo) -> None:
    """Refuse a shell to whoever may only read.

    WebSockets begin with a GET, so to API servers before 1.35 the right to get `pods/exec` is all
    it takes. Later ones ask for the right to create it; here that holds for all of them.
    """
    if inner.resource != "pods" or inner.subresource not in STREAMS or inner.method == "POST":
        return
    body = msgspec.json.encode(_review_of(inner))
    headers = (("Content-Type", "application/json"), *passage.identity)
    answer = await passage.connection.ask(
        ApiRequest("POST", _REVIEWS, headers=headers, body=body, most_bytes=_REVIEW_BYTES)
    )
    try:
        verdict = msgspec.json.decode(answer.body, type=_Review).status
    except UNREADABLE as error:
        raise unreadable(passage.connection.cluster, "its review is none", error) from error
    if verdict is None or not verdict.allowed:
        raise refusal(context.user, inner)


def _review_of(inner: RequestInfo) -> dict[str, object]:
    attributes = {
        "verb": inner.verb,
        "group": inner.group,
        "version": inner.version,
        "resource": inner.resource,
        "subresource": inner.subresource,
        "namespace": inner.namespace,
        "name": inner.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def _protocol_of(context: RequestContext) -> str:
    asked = context.header("upgrade").lower()
    for protocol in PROTOCOLS:
        if protocol.lower() == asked:
            return protocol
    spoken = " and ".join(PROTOCOLS)
    raise BadRequest(f"unable to upgrade: {asked[:64]!r} is not passed on, {spoken} are")


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
    """Carry bytes until the cluster is done, or the client is gone and its last words are said."""
    async with asyncio.TaskGroup() as group:
        up = group.create_task(_carry_up(near, far), name="client to cluster")
        down = group.create_task(_carry_down(near, far), name="cluster to client")
        gone = group.create_task(context.request.wait_disconnected(), name="client leaves")
        await asyncio.wait((up, down, gone), return_when=asyncio.FIRST_COMPLETED)
        # A client that has said all it will may still listen.
        await asyncio.wait((down, gone), return_when=asyncio.FIRST_COMPLETED)
        if not down.done():
            await asyncio.wait((up,), timeout=_LAST_WORDS_SECONDS)
        for each in (up, down, gone):
            each.cancel()


async def _carry_up(near: Hijacked, far: Tunnel) -> None:
    try:
        while content := await near.reader.read(_READ_SIZE):
            await far.write(content)
        far.end()
    except OSError:
        return  # one end is gone, and with it the reason to go on


async def _carry_down(near: Hijacked, far: Tunnel) -> None:
    try:
        while content := await far.read(_READ_SIZE):
            near.write(content)
            await near.drain()
        near.half_close()
    except OSError:
        return  # one end is gone, and with it the reason to go on
