"""Objects in a dictionary, versioned, for runtime parts that need few verbs and no sockets."""

from typing import Any

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import (
    EVERYTHING,
    DeleteOptions,
    ListOptions,
    PatchType,
    WriteOptions,
)
from clusterspace.errors import AlreadyExists, Conflict, NotFound
from clusterspace.kube.json_patches import apply_merge_patch
from clusterspace.kube.objects import Object, metadata_of, name_of, resource_version_of, uid_of
from clusterspace.kube.objects import with_metadata as changed_metadata

PLAIN = WriteOptions()


class HubInMemory:
    """Behaves as an API server does where versions are concerned."""

    def __init__(self) -> None:
        self.objects: dict[ResourcePath, Object] = {}
        self.failure: Exception | None = None
        self._version = 0

    async def get(self, place: ResourcePath) -> Object:
        self._maybe_fail()
        if place not in self.objects:
            raise NotFound(f"{place} not found")
        return self.objects[place]

    async def find(self, place: ResourcePath) -> Object | None:
        self._maybe_fail()
        return self.objects.get(place)

    async def list_objects(
        self, place: ResourcePath, options: ListOptions = EVERYTHING
    ) -> list[Object]:
        self._maybe_fail()
        return [held for at, held in self.objects.items() if at.collection == place]

    async def create(self, place: ResourcePath, kube_object: Object, options: WriteOptions = PLAIN):
        self._maybe_fail()
        at = place.named(name_of(kube_object))
        if at in self.objects:
            raise AlreadyExists(f"{at} already exists")
        return self._store(at, changed_metadata(kube_object, uid=f"uid-{self._version}"))

    async def update(self, place: ResourcePath, kube_object: Object, options: WriteOptions = PLAIN):
        self._maybe_fail()
        self._compare(place, resource_version_of(kube_object))
        return self._store(place, kube_object)

    async def patch(
        self, place: ResourcePath, patch_type: PatchType, patch: Any, options: WriteOptions = PLAIN
    ):
        self._maybe_fail()
        assert patch_type is PatchType.MERGE
        target = place.with_subresource("")
        self._compare(target, metadata_of(patch).get("resourceVersion", ""))
        return self._store(target, apply_merge_patch(self.objects[target], patch))

    async def apply(self, place: ResourcePath, kube_object: Object, options: WriteOptions = PLAIN):
        raise NotImplementedError

    async def delete(self, place: ResourcePath, options: DeleteOptions) -> Object:
        self._maybe_fail()
        held = await self.get(place)
        if uid_of(held) != options.uid:
            raise Conflict(f"{place} is another")
        return self.objects.pop(place)

    def _compare(self, place: ResourcePath, version: str) -> None:
        if place not in self.objects:
            raise NotFound(f"{place} not found")
        if resource_version_of(self.objects[place]) != version:
            raise Conflict(f"{place} was changed")

    def _store(self, place: ResourcePath, kube_object: Object) -> Object:
        self._version += 1
        self.objects[place] = changed_metadata(kube_object, resourceVersion=str(self._version))
        return self.objects[place]

    def _maybe_fail(self) -> None:
        if self.failure is not None:
            raise self.failure
