"""One pooled, limited, TLS-verified HTTP connection set per cluster."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final

from yarl import URL

from clusterspace.aio import backoff
from clusterspace.aio.clocks import Clock
from clusterspace.client.addresses import Resolve, look_up
from clusterspace.client.answers import FOREIGN, AnswerStream
from clusterspace.client.credentials import Credentials, CredentialSource
from clusterspace.client.pools import ConnectionLimits, Pool
from clusterspace.client.requests import Answer, ApiRequest
from clusterspace.client.retries import MOST_ATTEMPTS, retry_wait
from clusterspace.client.settings import ConnectionSettings
from clusterspace.client.translation import failure_of, transport_error
from clusterspace.errors import (
    ClusterError,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
)

_UNCHANGED: Final = 304


class Connection:
    """Everything one cluster is asked goes through here.

    Short requests and streams have a bound of their own each, so that many watches do not keep
    a get waiting. Every request has a deadline; reads are repeated where `retries` allows it.
    """

    def __init__(  # noqa: PLR0913 - where, who, and what the process gives us, all of it named
        self,
        settings: ConnectionSettings,
        *,
        clock: Clock,
        random: Random,
        credentials: CredentialSource | None = None,
        limits: ConnectionLimits | None = None,
        resolve: Resolve = look_up,
    ) -> None:
        self.settings = settings
        self.resolve = resolve
        self.credentials = credentials or Credentials(settings, clock)
        self.clock = clock
        self.random = random
        self._limits = limits or ConnectionLimits()
        self._requests = asyncio.Semaphore(self._limits.requests_at_once)
        self._streams = asyncio.Semaphore(self._limits.streams_at_once)
        self._pool: Pool | None = None
        self._is_closed = False

    @property
    def cluster(self) -> str:
        """What we call the cluster."""
        return self.settings.cluster

    async def ask(self, ask: ApiRequest) -> Answer:
        """Return the answer, whole and successful; anything else is raised."""
        answer = await self.exchange(ask)
        failure = failure_of(self.cluster, answer)
        if failure is not None and answer.status != _UNCHANGED:
            raise failure
        return answer

    async def exchange(self, ask: ApiRequest) -> Answer:
        """Return the answer, whole, whatever its status: for those who pass it on."""
        try:
            async with asyncio.timeout(ask.seconds):
                return await self._with_retries(ask)
        except TimeoutError as error:
            raise ClusterTimeout(self.cluster, _late(ask)) from error

    @asynccontextmanager
    async def stream(self, ask: ApiRequest) -> AsyncGenerator[AnswerStream]:
        """Open an answer to be read bit by bit, whatever its status; leaving the block ends it.

        Opening is not repeated: whoever reads a stream knows where to go on.
        """
        async with AsyncExitStack() as stack:
            # Only what is raised while opening is the cluster's fault: the block's own errors,
            # after the yield, are none of our business.
            try:
                async with asyncio.timeout(ask.seconds):
                    await stack.enter_async_context(self._streams)
                    pool = await stack.enter_async_context(self._users_pool())
                    opening = pool.request(ask, self._target(ask))
                    response = await stack.enter_async_context(opening)
            except TimeoutError as error:
                raise ClusterTimeout(self.cluster, _late(ask)) from error
            except FOREIGN as error:
                raise transport_error(self.cluster, error) from error
            yield AnswerStream(self.cluster, response)

    async def close(self) -> None:
        """Close every connection; what is under way fails."""
        self._is_closed = True
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _with_retries(self, ask: ApiRequest) -> Answer:
        delays = backoff.jittered(0.1, 5.0, self.random)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            outcome = await self._attempt(ask)
            wait = retry_wait(ask, outcome, next(delays)) if attempt < MOST_ATTEMPTS else None
            if wait is not None:
                await self.clock.sleep(wait)
            elif isinstance(outcome, ClusterError):
                raise outcome
            else:
                return outcome
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, ask: ApiRequest) -> Answer | ClusterError:
        outcome = await self._exchange_once(ask)
        # A refusal for lack of credentials had no effect, so even a write may be repeated.
        if isinstance(outcome, Answer) and outcome.status == 401 and self.credentials.refused():
            return await self._exchange_once(ask)
        return outcome

    async def _exchange_once(self, ask: ApiRequest) -> Answer | ClusterError:
        async with self._requests, self._users_pool() as pool:
            try:
                async with pool.request(ask, self._target(ask)) as response:
                    return await AnswerStream(self.cluster, response).read(ask.most_bytes, ask.hold)
            except ClusterError as error:
                return error
            except FOREIGN as error:
                return transport_error(self.cluster, error)

    def _target(self, ask: ApiRequest) -> URL:
        # Encoded once, by us: a second encoding would change names that hold a percent sign.
        return URL(self.settings.server + ask.target, encoded=True)

    @asynccontextmanager
    async def _users_pool(self) -> AsyncGenerator[Pool]:
        """Lend the current pool; one that was replaced meanwhile is closed by its last user."""
        if self._is_closed:
            raise ClusterUnreachable(self.cluster, "the connection was closed", was_sent=False)
        pool = await self._current_pool()
        pool.users += 1
        try:
            yield pool
        finally:
            pool.users -= 1
            if pool is not self._pool and pool.users == 0:
                await pool.close()

    async def _current_pool(self) -> Pool:
        credential = await self.credentials.get()
        held = self._pool
        if held is not None and held.material == credential.material:
            held.credential = credential
            return held
        try:
            self._pool = Pool(self.settings, credential, self._limits, self.resolve)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = f"the certificates cannot be used: {error}"
            raise CredentialsUnusable(self.cluster, why) from error
        if held is not None and held.users == 0:
            await held.close()
        return self._pool


def _late(ask: ApiRequest) -> str:
    return f"gave no answer within {ask.seconds:g}s"
