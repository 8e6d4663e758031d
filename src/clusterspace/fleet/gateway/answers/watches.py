"""One cluster's events as they come, with the names the client used."""

from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Final

import msgspec

from clusterspace.apiserver.http.foreign_answers import clean_event, headers_to_return, require_fit
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.relays import is_short, open_answer, refuse_stranger
from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import ClusterError, ClusterMisbehaved
from clusterspace.fleet.gateway import respond
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.flow import Naming, Reply, Subject
from clusterspace.fleet.gateway.renaming import outbound
from clusterspace.fleet.gateway.watching import lines_of
from clusterspace.kube.json_errors import UNREADABLE

_SHORT_BYTES: Final = 1024 * 1024
"""For the refusal of a watch, or a watch that is over at once."""


class _Event(msgspec.Struct):
    """One line of a watch; the object is not decoded here."""

    type: str
    object: msgspec.Raw


_events = msgspec.json.Decoder(_Event)


async def relay_events(asking: Asking, link: Link, naming: Naming, query: Query) -> Response | None:
    """Pass a watch on, renaming what its events are about."""
    call, subject = asking.context, Subject.of(asking.route.info)
    ask = asking.ask(link, query, seconds=asking.fleet.limits.request_seconds)
    ask = replace(ask, headers=(*ask.headers, ("accept-encoding", "identity")))
    has_rows = asking.representation.is_table

    def shown(line: bytes) -> bytes:
        if not line.strip():
            return b""
        fit = line if link.is_hub else clean_event(link.cluster, line, has_rows=has_rows)
        return renamed_event(fit, naming, subject)

    async with AsyncExitStack() as stack:
        answer = await open_answer(stack, link.connection, ask)
        require_fit(call, link.cluster, answer.status)
        if is_short(answer):
            whole = await answer.read(_SHORT_BYTES, ask.hold)
            refuse_stranger(link.cluster, whole)
            reply = Reply(link.cluster, whole.status, dict(whole.headers), whole.body)
            body = outbound.rewrite(whole.body, naming, subject) if whole.status >= 400 else b""
            if whole.status < 400:
                body = b"".join(map(shown, whole.body.split(b"\n")))
            return respond.send_one(call, reply, body, link.speaker)
        headers = headers_to_return(call, answer.headers, link.speaker)
        stream = call.request.start_stream(200, headers)
        try:
            reading = lines_of(link.cluster, answer, asking.fleet.memory)
            async with aclosing(reading) as batches:
                async for lines in batches:
                    stream.write(b"".join(map(shown, lines)))
                    await stream.drain()
        except ClusterError:
            # Cut, not ended: a client that saw an end would believe it had seen everything.
            stream.abort()
            return None
        stream.end()
        return None


def renamed_event(line: bytes, naming: Naming, subject: Subject) -> bytes:
    """Return one event with its object renamed."""
    try:
        event = _events.decode(line)
    except UNREADABLE as error:
        raise ClusterMisbehaved(naming.cluster, f"its event cannot be read: {error}") from error
    renamed = outbound.rewrite(bytes(event.object), naming, subject)
    return b'{"type":%b,"object":%b}\n' % (msgspec.json.encode(event.type), renamed.rstrip())
