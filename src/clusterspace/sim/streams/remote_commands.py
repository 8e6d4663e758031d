"""One exec or attach from its upgrade to its end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.errors import StreamBroken
from clusterspace.sim.streams.byte_pipes import RawPipe
from clusterspace.sim.streams.handshakes import COMMAND_PROTOCOLS, V4, Transport, Upgrade, upgrade
from clusterspace.sim.streams.spdy import SpdySession
from clusterspace.sim.streams.terminals import (
    ChannelTerminal,
    StreamTerminal,
    Terminal,
    Wanted,
    exit_status,
)
from clusterspace.sim.streams.websockets import WebSocket

Program: TypeAlias = Callable[[Terminal, Wanted], Awaitable[int]]
"""What runs at the near end; returns its exit code."""

_IGNORED: Final = frozenset({"resize"})
"""How large a window is makes no difference to what is written here."""

_HANG_UP_SECONDS: Final = 3.0
"""How long a client has to close its end after the last word."""


async def serve_command(context: RequestContext, program: Program) -> None:
    """Upgrade the connection and run a program on it until one of the two ends."""
    wanted = Wanted.read(context.info.query)
    granted = upgrade(context, websocket=COMMAND_PROTOCOLS, spdy=(V4,))
    terminal = _terminal(granted, wanted)
    async with asyncio.TaskGroup() as group:
        carrying = group.create_task(_carry(terminal), name="what is typed")
        running = group.create_task(_run(terminal, wanted, program), name="command")
        await asyncio.wait((carrying, running), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await asyncio.wait((carrying,), timeout=_HANG_UP_SECONDS)
        carrying.cancel()
        running.cancel()


def _terminal(granted: Upgrade, wanted: Wanted) -> Terminal:
    pipe = RawPipe(granted.connection)
    if granted.transport is Transport.WEBSOCKET:
        return ChannelTerminal(WebSocket(pipe), granted.protocol, wanted)
    return StreamTerminal(SpdySession(pipe, ignored=_IGNORED), wanted)


async def _carry(terminal: Terminal) -> None:
    """Carry what is typed; a client that breaks the protocol or leaves ends the command."""
    try:
        await terminal.run()
    except (StreamBroken, ConnectionError):
        return


async def _run(terminal: Terminal, wanted: Wanted, program: Program) -> None:
    try:
        await terminal.open()
        code = await program(terminal, wanted)
        await terminal.finish(exit_status(code))
    except ConnectionError:
        return  # the client has gone: there is nobody to tell
