"""etcd's own log of a prefix, as it tells it to somebody who is no hub: what hubs are judged by."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdClient, EtcdSettings, WatchStream
from clusterspace.errors import StoreUnavailable
from clusterspace.kube.objects import Object
from clusterspace.testing.steps import until


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object."""

    key: str
    """Group, resource, namespace and name, as `core/configmaps/default/one`."""
    revision: int
    is_delete: bool
    is_create: bool
    stored: Object
    """Nothing for a delete."""


class EtcdLog:
    """Every change since it was begun, up to a revision that is known to be passed."""

    def __init__(self, settings: EtcdSettings, start: int) -> None:
        self._settings = settings
        self.start = start
        self.upto = start
        self.changes: list[Change] = []

    async def follow(self) -> None:
        """Note everything, until cancelled."""
        client = await EtcdClient.open(self._settings)
        prefix = f"{self._settings.prefix}/"
        end = f"{self._settings.prefix}0".encode()
        try:
            while True:
                with suppress(StoreUnavailable):
                    async with client.watch() as stream:
                        request = messages.watch_request(prefix.encode(), end, self.upto + 1)
                        await stream.write(request)
                        asking = asyncio.create_task(_keep_asking(stream))
                        try:
                            while (data := await _read_soon(stream)) is not None:
                                self._take(messages.read_watch(data), prefix)
                        except TimeoutError:
                            client._move_on(stream.place)
                        finally:
                            asking.cancel()
                await asyncio.sleep(0.05)
        finally:
            await client.close()

    def _take(self, answer: messages.WatchAnswer, prefix: str) -> None:
        if answer.compact_revision > self.upto:
            raise AssertionError(f"etcd forgot {self.upto} before the judge saw what followed")
        for change in answer.changes:
            stored = change.stored
            self.upto = max(self.upto, stored.mod_revision)
            self.changes.append(
                Change(
                    stored.key.decode().removeprefix(prefix),
                    stored.mod_revision,
                    change.is_delete,
                    stored.create_revision == stored.mod_revision,
                    {} if change.is_delete else _decoded(stored.value),
                )
            )
        if not answer.changes and not answer.created and not answer.canceled:
            self.upto = max(self.upto, answer.revision)

    async def reach(self, revision: int) -> None:
        """Wait until all up to a revision is noted."""
        await until(lambda: self.upto >= revision)


async def _read_soon(stream: WatchStream) -> bytes | None:
    async with asyncio.timeout(1.5):
        return await stream.read()


async def _keep_asking(stream: WatchStream) -> None:
    while True:
        await asyncio.sleep(0.2)
        await stream.write_if_open(messages.progress_request())


def _decoded(value: bytes) -> Object:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(value)
    return {}  # it is encrypted
