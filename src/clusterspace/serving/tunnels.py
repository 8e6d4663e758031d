"""Exec, attach, port-forward passed on: a byte stream from a client to another API server."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from clusterspace.client.requests import Ask
from clusterspace.client.upgrades import PROTOCOLS, Tunnel, open_tunnel
from clusterspace.errors import BadRequest
from clusterspace.serving.calls import Call
from clusterspace.serving.middleware.authorize import refusal
from clusterspace.serving.relays import Passage, headers_to_pass
from clusterspace.serving.request_info import RequestInfo
from clusterspace.serving.streams import Hijacked

_GRANTED: Final = (
    "upgrade",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "x-stream-protocol-version",
)
_DOORS: Final = frozenset({"attach", "exec", "portforward"})
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SWITCH_SECONDS: Final = 30.0
_READ_SIZE: Final = 64 * 1024


class _Verdict(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Verdict | None = None


async def tunnel(call: Call, passage: Passage, inner: RequestInfo) -> None:
    """Have the target switch protocols, then carry bytes both ways until one end is done.

    `inner` is the request as the target will read it.
    """
    protocol = _protocol_of(call)
    await _require_create(call, passage, inner)
    headers = (*headers_to_pass(call.request.headers), *passage.identity)
    ask = Ask(call.info.method, passage.target, headers=headers, seconds=_SWITCH_SECONDS)
    async with open_tunnel(passage.connection, ask, protocol) as far:
        near = call.request.hijack()
        near.write(_switching(far.headers))
        await _carry(near, far)


async def _require_create(call: Call, passage: Passage, inner: RequestInfo) -> None:
    """Refuse a shell to whoever may only read.

    WebSockets begin with a GET, so to API servers before 1.35 the right to get `pods/exec` is all
    it takes. Later ones ask for the right to create it; here that holds for all of them.
    """
    is_door = inner.resource == "pods" and inner.subresource in _DOORS
    if inner.method != "GET" or not is_door:
        return
    wanted = replace(inner, verb="create")
    body = msgspec.json.encode(_review_of(wanted))
    headers = (("Content-Type", "application/json"), *passage.identity)
    answer = await passage.connection.ask(Ask("POST", _REVIEWS, headers=headers, body=body))
    verdict = msgspec.json.decode(answer.body, type=_Review).status
    if verdict is None or not verdict.allowed:
        raise refusal(call.user, wanted)


def _review_of(wanted: RequestInfo) -> dict[str, object]:
    attributes = {
        "verb": wanted.verb,
        "group": wanted.group,
        "version": wanted.version,
        "resource": wanted.resource,
        "subresource": wanted.subresource,
        "namespace": wanted.namespace,
        "name": wanted.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def _protocol_of(call: Call) -> str:
    asked = call.header("upgrade").lower()
    for protocol in PROTOCOLS:
        if protocol.lower() == asked:
            return protocol
    spoken = " and ".join(PROTOCOLS)
    raise BadRequest(f"unable to upgrade: {asked[:64]!r} is not passed on, {spoken} are")


def _switching(granted: Mapping[str, str]) -> bytes:
    lines = [f"{name}: {granted[name]}" for name in _GRANTED if name in granted]
    head = ("HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", *lines, "", "")
    return "\r\n".join(head).encode("latin-1")


async def _carry(near: Hijacked, far: Tunnel) -> None:
    async with asyncio.TaskGroup() as group:
        up = group.create_task(_carry_up(near, far), name="client to cluster")
        down = group.create_task(_carry_down(near, far), name="cluster to client")
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        if near.is_connected and not down.done():
            # The client has said all it will, and still listens.
            await asyncio.wait((down,))
        up.cancel()
        down.cancel()


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
