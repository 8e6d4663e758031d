"""Channels to the members of an etcd cluster: one is used, the others are there when it fails.

Every call has a deadline and asks for a member that has a leader, so that one cut off from the
others refuses at once and does not answer from what it remembers. A failure says whether the
request may have reached etcd (`StoreUnavailable.was_sent`): a read is simply made again elsewhere,
what a write does about it is the store's affair.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Final, Protocol, cast
from urllib.parse import urlsplit

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.messages import StatusAnswer
from clusterspace.errors import (
    Compacted,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnreadable,
    Unstorable,
    UnusableConfiguration,
)
from clusterspace.telemetry import metrics

if TYPE_CHECKING:
    from grpc.aio import AioRpcError, Channel, Metadata

_log = structlog.get_logger(__name__)

ATTEMPT_SECONDS: Final = 0.6, 2.0
"""After how long another member is asked, at least and at most: four times what calls take usually.

A member that was cut off says nothing, and one whose leader has died waits for an answer that never
comes, so the first few attempts are short: a leader is elected in one to two seconds. When etcd is
slow they are longer, or each write would be sent three times over."""

_SHORT_ATTEMPTS: Final = 3

CALL_SECONDS: Final = 10.0
"""What a call may take in all, whoever is asked; clients of the hub wait for at most a minute."""

_PAUSE_SECONDS: Final = 0.05
_CONNECT_SECONDS: Final = 1.0
_LAST_TURNS: Final = 20

_OLDEST: Final = ((3, 4, 31), (3, 5, 13))
"""The first versions without the faults below, by the series they belong to."""

_FAULTS: Final = (
    "members of older versions may say that a watch is up to date when events are still on their"
    " way (etcd issue 15220), and lose what they acknowledged when they are killed (14370)"
)

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd hangs up on those who ask more often than every five seconds.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A member that comes back is found again soon: the default grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_NOT_SENT: Final = ("no leader", "too many requests", "failed to connect to all addresses")
_HAS_LEADER: Final = ("hasleader", "true")
"""Sent with every call: a member that was cut off from its leader says so, and does not wait."""


class _Call(Protocol):
    def __call__(
        self, request: bytes, *, timeout: float, metadata: "Metadata | None"
    ) -> Awaitable[bytes]: ...


class _Stream(Protocol):
    async def write(self, request: bytes) -> None: ...

    async def read(self) -> object: ...

    def cancel(self) -> bool: ...


class WatchStream:
    """An open stream of watches on one member: bytes of messages, both ways."""

    def __init__(self, stream: _Stream, place: int) -> None:
        self.place = place
        self.given_up = ""
        """Why this end has ended it."""
        self.is_catching_up = False
        """Whether etcd still reads what happened before: no progress request is answered then."""
        self._stream = stream

    async def write(self, request: bytes) -> None:
        """Send one message."""
        await self._stream.write(request)

    async def write_if_open(self, request: bytes) -> None:
        """Send one message, unless the stream is at its end: that is for the reader to notice."""
        from grpc.aio import AioRpcError

        try:
            await self._stream.write(request)
        except (AioRpcError, asyncio.InvalidStateError):
            pass
        except asyncio.CancelledError:
            # What a stream says that was ended from this side, and a task that is.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

    async def read(self) -> bytes | None:
        """Wait for one message; None when etcd has no more."""
        data = await self._stream.read()
        return data if isinstance(data, bytes) else None

    def give_up(self, why: str) -> None:
        """End it from this side; whoever reads is told StoreUnavailable."""
        self.given_up = why
        self._stream.cancel()


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Which etcd cluster, how to be let in, and where in it; kube-apiserver's flags."""

    servers: tuple[str, ...]
    prefix: str = "/registry"
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    allows_unsafe_version: bool = False
    """Whether a version is put up with that is known to lose events and data."""

    def check(self) -> None:
        """Raise UnusableConfiguration for what cannot work, naming the flag."""
        if not self.servers:
            raise UnusableConfiguration("--etcd-servers: name at least one, as https://HOST:2379")
        for each in self.servers:
            parts = urlsplit(each)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
                raise UnusableConfiguration(
                    f"--etcd-servers: {each!r} is no address such as https://HOST:2379"
                )
        if len({urlsplit(each).scheme for each in self.servers}) > 1:
            raise UnusableConfiguration("--etcd-servers: either all are https, or none is")
        if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", self.prefix):
            raise UnusableConfiguration(
                f"--etcd-prefix: {self.prefix!r} is no path such as /registry"
            )
        if (self.cert_file is None) != (self.key_file is None):
            raise UnusableConfiguration("--etcd-certfile and --etcd-keyfile belong together")


class EtcdClient:
    """Calls to whichever member answers. Make one with `open`."""

    def __init__(self, settings: EtcdSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._channels: list[Channel] = []
        self._calls: dict[tuple[int, str], _Call] = {}
        """Made once: gRPC looks a while for whatever it might have to do around a call."""
        self._metadata: Metadata | None = None
        """In gRPC's own form, which it would make of anything else at every call."""
        self._answered = -1
        """Which member answered last, if it has not failed since."""
        self._silent: set[int] = set()
        """Members that have let a call run out of time, and have not answered anything since."""
        self._usual_seconds = 0.0
        """What a call takes that is answered, on average of the last twenty or so."""
        self._current = SystemRandom().randrange(len(settings.servers))
        """Hubs that start together do not all lean on the first member."""
        self.is_etcd = False
        """Whether it is etcd; kine knows fewer options, and one key in a transaction."""

    @classmethod
    async def open(cls, settings: EtcdSettings, *, clock: Clock | None = None) -> "EtcdClient":
        """Connect; StoreUnreadable for a version that is not trusted, StoreUnavailable for none."""
        settings.check()
        client = cls(settings, clock or SystemClock())
        try:
            await client._connect()
            await client._check_versions()
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def servers(self) -> tuple[str, ...]:
        """The members, as they were named."""
        return self._settings.servers

    async def close(self) -> None:
        """Let go of every connection."""
        for channel in self._channels:
            await channel.close()
        # gRPC has a task of its own for the end of each stream, and hands it to nobody. Loops that
        # end with tasks in them complain, so it gets a moment: more, where others have streams.
        for _ in range(_LAST_TURNS):
            names = {getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()}
            if "_handle_status_once_received" not in names:
                return
            await self._clock.sleep(0.005)

    async def read(self, method: str, request: bytes) -> bytes:
        """Make a call that changes nothing, on one member after the other until one answers."""
        deadline = self._clock.monotonic() + CALL_SECONDS
        for attempt in count():
            try:
                return await self.call(method, request, attempt=attempt)
            except StoreUnavailable:
                if self._clock.monotonic() + _PAUSE_SECONDS >= deadline:
                    raise
                await self._clock.sleep(_PAUSE_SECONDS)
        raise AssertionError("attempts never end")

    async def call(
        self,
        method: str,
        request: bytes,
        *,
        attempt: int = 0,
        least: float = 0.0,
        seconds: float = 0.0,
    ) -> bytes:
        """Make a call once, on the member in use; when it fails, the next one is used from now on.

        It may take as long as an attempt does that comes after so many others, and not less than
        `least`; or just `seconds`.
        StoreUnavailable says whether the request may have been carried out.
        """
        # Whoever answered last is asked without a look at his connection, which takes longer than
        # the rest of this: a call on one that is gone fails at once, and was not sent.
        place = self._current
        if place != self._answered:
            place = await self._connected()
        if not seconds:
            shortest, longest = ATTEMPT_SECONDS
            seconds = min(max(shortest, least, 4 * self._usual_seconds), longest)
            if attempt >= _SHORT_ATTEMPTS and place not in self._silent:
                seconds = longest
        return await self._call_at(place, method, request, seconds)

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator[WatchStream]:
        """Open a stream of watches on a member; StoreUnavailable from the block when it breaks."""
        from grpc.aio import AioRpcError

        place = await self._connected()
        opened = cast(
            "_Stream", self._channels[place].stream_stream(messages.WATCH)(metadata=self._metadata)
        )
        stream = WatchStream(opened, place)
        try:
            yield stream
        except AioRpcError as error:
            raise self._failure(place, error) from None
        except asyncio.CancelledError:
            # gRPC says the same when a stream was ended from this side as when a task is.
            task = asyncio.current_task()
            if not stream.given_up or (task is not None and task.cancelling()):
                raise
            self._move_on(place)
            why = f"{self.servers[place]}: {stream.given_up}"
            raise StoreUnavailable(why, was_sent=False) from None
        finally:
            opened.cancel()

    async def statuses(self) -> dict[str, StatusAnswer | StoreError]:
        """Ask every member how it is."""

        async def ask(place: int) -> StatusAnswer | StoreError:
            try:
                answer = await self._call_at(place, messages.STATUS, b"", ATTEMPT_SECONDS[1])
                return messages.read_status(answer)
            except StoreError as error:
                return error

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(place)) for place in range(len(self.servers))]
        return {server: task.result() for server, task in zip(self.servers, asked, strict=True)}

    async def _connect(self) -> None:
        # Else what arrives goes from a thread of gRPC's own to the one that waits for us, and only
        # then to the loop: a tenth of a millisecond of every call, and a quarter of its work.
        os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client")
        from grpc import ssl_channel_credentials
        from grpc.aio import Metadata, insecure_channel, secure_channel

        self._metadata = Metadata(_HAS_LEADER)
        settings = self._settings
        credentials = None
        if settings.servers[0].startswith("https:"):
            ca, certificate, key = [
                None if file is None else await asyncio.to_thread(file.read_bytes)
                for file in (settings.ca_file, settings.cert_file, settings.key_file)
            ]
            credentials = ssl_channel_credentials(ca, key, certificate)
        for each in settings.servers:
            parts = urlsplit(each)
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            target = f"{host}:{parts.port or 2379}"
            if credentials is None:
                self._channels.append(insecure_channel(target, options=_OPTIONS))
            else:
                self._channels.append(secure_channel(target, credentials, options=_OPTIONS))

    async def _check_versions(self) -> None:
        deadline = self._clock.monotonic() + CALL_SECONDS
        while True:
            found = await self.statuses()
            named = {each: it for each, it in found.items() if isinstance(it, StatusAnswer)}
            if named:
                break
            if self._clock.monotonic() >= deadline:
                why = "; ".join(f"{each}: {error}" for each, error in found.items())
                raise StoreUnavailable(f"no member of etcd answers: {why}", was_sent=False)
            await self._clock.sleep(_PAUSE_SECONDS)
        for server, status in named.items():
            trouble = version_trouble(status.version)
            if trouble and not self._settings.allows_unsafe_version:
                raise StoreUnreadable(
                    f"{server}: {trouble}; upgrade it, or start with --etcd-unsafe-version if"
                    " what is in it may be lost"
                )
            if trouble:
                _log.warning("etcd is of a version that may lose data", server=server, why=trouble)
        self.is_etcd = any(status.cluster for status in named.values())

    async def _connected(self) -> int:
        """Return a member there is a connection to, the one in use if possible."""
        from grpc import ChannelConnectivity

        deadline = self._clock.monotonic() + _CONNECT_SECONDS
        while True:
            # A member whose machine has lost its power is connected for a quarter of a minute yet:
            # those who have answered since they last failed to come first.
            members = len(self._channels)
            ways = [(self._current + step) % members for step in range(members)]
            for place in sorted(ways, key=lambda way: way in self._silent):
                if self._channels[place].get_state(True) is ChannelConnectivity.READY:
                    self._current = place
                    return place
            if self._clock.monotonic() >= deadline:
                servers = ", ".join(self.servers)
                raise StoreUnavailable(f"no member of etcd answers ({servers})", was_sent=False)
            await self._clock.sleep(0.01)

    async def _call_at(self, place: int, method: str, request: bytes, seconds: float) -> bytes:
        from grpc.aio import AioRpcError

        call = self._calls.get((place, method))
        if call is None:
            call = cast("_Call", self._channels[place].unary_unary(method))
            self._calls[place, method] = call
        started = self._clock.monotonic()
        try:
            answer = await call(request, timeout=seconds, metadata=self._metadata)
        except AioRpcError as error:
            failure = self._failure(place, error)
            metrics.etcd_call_failed(method)
            raise failure from None
        self._answered = place
        self._silent.discard(place)
        took = self._clock.monotonic() - started
        self._usual_seconds += (took - self._usual_seconds) * 0.05
        metrics.etcd_call_finished(method, took)
        return answer

    def _failure(self, place: int, error: "AioRpcError") -> StoreError:
        """Translate an error of gRPC, and use another member if it is this one's."""
        code, why = error.code().name, error.details() or error.code().name
        if code == "DEADLINE_EXCEEDED":
            self._silent.add(place)
        elif why.startswith("etcdserver:"):
            self._silent.discard(place)
        if "database space exceeded" in why:
            return StoreFull(f"etcd has no room left ({why}): compact, defragment, then disarm")
        if "request is too large" in why or "message larger than max" in why:
            return Unstorable(
                f"etcd takes no object that large ({why}): raise its --max-request-bytes"
            )
        if "has been compacted" in why:
            return Compacted(0, 0)
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            return StoreUnreadable(f"{self.servers[place]} does not let us in: {why}")
        self._move_on(place)
        was_sent = not any(each in why for each in _NOT_SENT)
        return StoreUnavailable(f"{self.servers[place]}: {why}", was_sent=was_sent)

    def _move_on(self, place: int) -> None:
        self._answered = -1
        # Only if nobody else has: of fifty calls that fail together one changes the member.
        if place == self._current:
            self._current = (place + 1) % len(self._channels)


def version_trouble(version: str) -> str:
    """Say what is wrong with a version of etcd; nothing for one that is trusted, or for kine."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None:
        return ""
    found = tuple(int(each) for each in numbers.groups())
    # A fix in 3.4 or 3.5 says nothing about the series between or before; all later ones have it.
    good = next((each for each in _OLDEST if each[:2] == found[:2]), _OLDEST[-1])
    if found >= good:
        return ""
    return f"etcd {version} is older than {'.'.join(map(str, good))}: {_FAULTS}"
