"""A hub for the unit tests of heartbeats."""

from typing import Any

from clusterspace.client.requests import ResourcePath
from clusterspace.errors import ClusterUnreachable
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, annotations_of, with_metadata


class LeaseHub:
    """A hub that holds one Cluster and its lease, and can be out of reach."""

    def __init__(self, held_cluster: Object) -> None:
        self.cluster = held_cluster
        self.lease: Object | None = None
        self.writes = 0
        self.is_reachable = True

    async def get(self, place: ResourcePath) -> Object:
        assert place == manifests.cluster_path("west")
        return self.cluster

    async def find(self, place: ResourcePath) -> Object | None:
        self._reach()
        return self.lease

    async def create(self, place: ResourcePath, kube_object: Object, options: Any = None) -> Object:
        return self._hold(kube_object)

    async def patch(
        self, place: ResourcePath, patch_type: Any, patch: Any, options: Any = None
    ) -> Object:
        self._reach()
        assert self.lease is not None
        marks = {**annotations_of(self.lease), **patch.get("metadata", {}).get("annotations", {})}
        renewed = {**self.lease, "spec": {**self.lease["spec"], **patch["spec"]}}
        return self._hold(with_metadata(renewed, annotations=marks or None))

    async def list_objects(self, place: ResourcePath, options: Any = None) -> list[Object]:
        raise NotImplementedError

    async def update(self, place: ResourcePath, kube_object: Object, options: Any = None) -> Object:
        raise NotImplementedError

    async def apply(self, place: ResourcePath, kube_object: Object, options: Any = None) -> Object:
        raise NotImplementedError

    async def delete(self, place: ResourcePath, options: Any) -> Object:
        raise NotImplementedError

    def _hold(self, lease: Object) -> Object:
        self._reach()
        self.writes += 1
        self.lease = with_metadata(lease, resourceVersion=str(self.writes))
        return self.lease

    def _reach(self) -> None:
        if not self.is_reachable:
            raise ClusterUnreachable("hub", "no route", was_sent=False)
