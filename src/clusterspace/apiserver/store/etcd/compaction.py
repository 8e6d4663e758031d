"""Who makes etcd forget, and when: every few minutes whoever of the hubs notes it first.

The protocol is kube-apiserver's, so that both can live on one etcd, and kine understands it:

    hub A   compact_rev_key at version 7: put 4100, the revision of now   done: version 8
    hub B   compact_rev_key at version 7: put 4102                        refused: version is 8
    ... five minutes later ...
    hub A   compact_rev_key at version 8: put 9000                        done: compacts to 4100
    hub B   compact_rev_key at version 8                                  refused: version is 9

What is forgotten is thereby at least one interval old, whoever does it; a hub that was paused finds
the version changed and does nothing. How much of the past each hub keeps in its own memory is its
own affair (`OwnPast`).
"""

from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdClient
from clusterspace.apiserver.store.etcd.store import EtcdStore, compact_etcd
from clusterspace.apiserver.store.interface import HistorySize, Revision
from clusterspace.errors import StoreUnavailable

INTERVAL_SECONDS: Final = 300.0
"""As kube-apiserver; its `--etcd-compaction-interval`."""


class OwnPast:
    """The past that one hub holds in memory, for `compact_forever`."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store

    @property
    def history(self) -> HistorySize:
        """How much of the past is in memory."""
        return self._store.history

    async def compact(self, revision: Revision) -> None:
        """Forget every older revision in memory."""
        await self._store.forget(revision)


class Compactor:
    """One hub's part in the protocol above."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._version = 0
        self._revision = 0

    async def step(self) -> int:
        """Take a turn; return the revision that was compacted to, 0 when it was not ours to do."""
        request = messages.compaction_mark_request(self._revision, self._version)
        # Sent once: a turn whose answer is lost is given up, and the next one finds the version.
        answer = messages.read_txn(await self._client.call(messages.TXN, request))
        oldest, self._revision = self._revision, answer.revision
        if not answer.succeeded:
            self._version = 0 if answer.current is None else answer.current.version
            return 0
        self._version += 1
        if oldest:
            await compact_etcd(self._client, oldest)
        return oldest

    async def run(self, clock: Clock) -> None:
        """Take turns for ever."""
        while True:
            await clock.sleep(INTERVAL_SECONDS)
            try:
                await self.step()
            except StoreUnavailable:
                self._revision = 0  # begin again: what was noted then may be anybody's by now
