"""Stores on etcd with a bug each: whoever judges what clients saw has to find every one."""

import asyncio

from clusterspace.apiserver.store.etcd.messages import WatchAnswer
from clusterspace.apiserver.store.etcd.store import EtcdStore
from clusterspace.apiserver.store.interface import Guard, KeyValue, Revision
from clusterspace.errors import StoreError


class ReadsStale(EtcdStore):
    """Believes that what it has in memory is all there is, and hears of the rest a little late."""

    def _take(self, answer: WatchAnswer) -> None:
        asyncio.get_running_loop().call_later(0.05, super()._take, answer)

    async def sync(self) -> Revision:
        await asyncio.sleep(0)
        return self.current_revision


TESTED = "key-"
"""What the keys have in their names that clients of a test write to; a hub has others, too."""


class AnswersEarly(EtcdStore):
    """Answers before the quorum has it."""

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        if TESTED not in key:
            return await super().put(key, value, expected=expected, guard=guard)
        guessed = Revision(self.current_revision + 1)

        async def write() -> None:
            await asyncio.sleep(0.02)
            try:
                await super(AnswersEarly, self).put(key, value, expected=expected, guard=guard)
            except StoreError:
                return

        self._late = [*getattr(self, "_late", ()), asyncio.create_task(write())]
        return KeyValue(key, value, guessed, guessed)

    async def close(self) -> None:
        await asyncio.wait([*getattr(self, "_late", ()), asyncio.create_task(asyncio.sleep(0))])
        await super().close()


class ComparesNothing(EtcdStore):
    """Writes whatever is there, as a deposed leader without a fence does."""

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        at = None if TESTED in key else expected
        return await super().put(key, value, expected=at, guard=guard)


PLANTED: dict[str, type[EtcdStore]] = {
    "stale-read": ReadsStale,
    "early-answer": AnswersEarly,
    "no-comparison": ComparesNothing,
}
