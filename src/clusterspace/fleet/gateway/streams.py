"""Streams of events as they are on the wire: a client's, written and cut; a cluster's, read."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Final

import msgspec

from clusterspace.apiserver.http.messages import Stream
from clusterspace.client.requests import AnswerMemory, AnswerStream
from clusterspace.client.watch import LONGEST_LINE, LineSplitter
from clusterspace.errors import ApiError, ClusterMisbehaved, Expired
from clusterspace.kube import statuses
from clusterspace.telemetry import metrics

_UNREAD_BYTES: Final = 512 * 1024
"""With this much unread a client is waited for, by whoever would write more."""


class ClientStream:
    """The way to the client: whatever the merger returns goes out at once, or not at all."""

    def __init__(self, stream: Stream, *, slow_seconds: float) -> None:
        self._stream = stream
        self._slow_seconds = slow_seconds
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.turn = asyncio.Lock()
        """Held to write: what is much may fill the buffer, and nobody writes until it is read."""

    def write(self, lines: list[bytes]) -> None:
        """Write the little that the merger has just returned: a bookmark."""
        if lines and not self.ended.done():
            self._stream.write(b"".join(lines))

    async def send(self, lines: list[bytes]) -> None:
        """Write what the merger has just returned; with much unread, wait for the client.

        The caller has the turn, and keeps it for as long as the client takes: what anybody else
        wrote meanwhile would be read behind this all the same. A client that reads nothing is cut.
        """
        # Written before anything is awaited: the caller's merger has moved its vector already, and
        # an event of another cluster that went out in between would promise this one.
        self.write(lines)
        while self._stream.buffered > _UNREAD_BYTES and not self.ended.done():
            unread = self._stream.buffered
            try:
                async with asyncio.timeout(self._slow_seconds):
                    await self._stream.drain()
                    return
            except TimeoutError:
                # Slow is not stuck: as long as something was read, the client is waited for, and
                # with it every feed of this stream. They hold a line each, not what is behind it.
                if self._stream.buffered < unread:
                    continue
                metrics.watcher_evicted()
                self.end(Expired("the watch was too slow and has been closed; list again"))
            except ConnectionResetError:
                return  # not ours to report: whoever answers the client is being cancelled

    def end(self, error: ApiError | None = None) -> None:
        """End the stream, telling the client why if there is a reason."""
        if self.ended.done():
            return
        if error is not None:
            self._stream.write(error_line(error))
        self._stream.end()
        self.ended.set_result(None)


class ClientStreams:
    """Every client that watches more than one cluster, so that all can be told goodbye."""

    def __init__(self) -> None:
        self._open_streams: set[ClientStream] = set()

    def __len__(self) -> int:
        return len(self._open_streams)

    @contextmanager
    def holding(self, client_stream: ClientStream) -> Generator[None]:
        """Know a stream for as long as the block lasts."""
        self._open_streams.add(client_stream)
        try:
            yield
        finally:
            self._open_streams.discard(client_stream)

    def end_all(self) -> None:
        """End every stream in good order: clients go on from where they are, elsewhere."""
        for each in tuple(self._open_streams):
            each.end()


async def lines_of(
    cluster: str, answer: AnswerStream, memory: AnswerMemory
) -> AsyncGenerator[list[bytes]]:
    """Yield the lines of a watch, those that came together in one list.

    A line that does not end counts among the answers: a thousand streams of a cluster that sends
    nothing else would have a thousand times its longest line.
    """
    splitter = LineSplitter()
    with memory.holding() as hold:
        rest = hold.read(cluster, LONGEST_LINE)
        async for chunk in answer.chunks():
            try:
                lines = splitter.feed(chunk)
            except ValueError as error:
                raise ClusterMisbehaved(cluster, f"sent {error}") from error
            rest.resize(splitter.rest_bytes)
            yield lines
    if splitter.rest_bytes:
        raise ClusterMisbehaved(cluster, "the watch ended in the middle of an event")


def error_line(error: ApiError) -> bytes:
    """Return the event that ends a watch with a reason."""
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(statuses.status_of(error))
