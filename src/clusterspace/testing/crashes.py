"""Killing a controller before or after any of its writes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import (
    EVERYTHING,
    Client,
    ClusterClient,
    DeleteOptions,
    ListOptions,
    PatchType,
    WriteOptions,
)
from clusterspace.kube.objects import Object

_PLAIN_WRITE = WriteOptions()


class Killed(BaseException):
    """The process ends here; nobody catches this, as nobody can catch a SIGKILL."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Before or after which write, counted from 1."""

    write: int
    is_after: bool


class Fuse:
    """Ends a process of many clients at one write, whichever of them it is; or only counts."""

    def __init__(self, point: CrashPoint | None = None) -> None:
        self._point = point
        self.writes = 0
        self.is_blown = False

    async def around(self, write: Callable[[], Awaitable[Object]]) -> Object:
        """Let a write happen, unless this is where the process ends."""
        if self.is_blown:
            raise Killed("the dead do not write")
        self.writes += 1
        number = self.writes
        self._blow_at(CrashPoint(number, is_after=False))
        answer = await write()
        self._blow_at(CrashPoint(number, is_after=True))
        return answer

    def _blow_at(self, point: CrashPoint) -> None:
        if self._point == point:
            self._end(point)

    def _end(self, point: CrashPoint) -> None:
        self.is_blown = True
        raise Killed(f"{'after' if point.is_after else 'before'} write {point.write}")


class Snare(Fuse):
    """Ends another process at a write of this one, which lives on."""

    def __init__(self, point: CrashPoint, end_other: Callable[[], None]) -> None:
        super().__init__(point)
        self._end_other = end_other

    def _end(self, point: CrashPoint) -> None:
        del point
        self._end_other()


class CrashingClient:
    """A client that ends the process at one point; without one it only counts writes."""

    def __init__(
        self, inner: Client, point: CrashPoint | None = None, *, fuse: Fuse | None = None
    ) -> None:
        self._inner = inner
        self._fuse = fuse or Fuse(point)

    @property
    def writes(self) -> int:
        """How many writes were asked for."""
        return self._fuse.writes

    async def get(self, place: ResourcePath) -> Object:
        return await self._inner.get(place)

    async def find(self, place: ResourcePath) -> Object | None:
        return await self._inner.find(place)

    async def list_objects(
        self, place: ResourcePath, options: ListOptions = EVERYTHING
    ) -> list[Object]:
        return await self._inner.list_objects(place, options)

    async def create(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        return await self._fuse.around(partial(self._inner.create, place, kube_object, options))

    async def update(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        return await self._fuse.around(partial(self._inner.update, place, kube_object, options))

    async def patch(
        self,
        place: ResourcePath,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions = _PLAIN_WRITE,
    ) -> Object:
        return await self._fuse.around(
            partial(self._inner.patch, place, patch_type, patch, options)
        )

    async def apply(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        return await self._fuse.around(partial(self._inner.apply, place, kube_object, options))

    async def delete(self, place: ResourcePath, options: DeleteOptions) -> Object:
        return await self._fuse.around(partial(self._inner.delete, place, options))


class MortalClient(ClusterClient):
    """A client of a process that ends when the fuse blows; it can be followed with, too."""

    def __init__(self, connection: Connection, fuse: Fuse) -> None:
        super().__init__(connection)
        self._fuse = fuse

    async def create(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        return await self._fuse.around(partial(super().create, place, kube_object, options))

    async def update(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        return await self._fuse.around(partial(super().update, place, kube_object, options))

    async def patch(
        self,
        place: ResourcePath,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions = _PLAIN_WRITE,
    ) -> Object:
        return await self._fuse.around(partial(super().patch, place, patch_type, patch, options))

    async def delete(self, place: ResourcePath, options: DeleteOptions) -> Object:
        return await self._fuse.around(partial(super().delete, place, options))
