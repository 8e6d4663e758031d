"""An API in a dictionary, and a whole simulated cluster on it that lives by a hand-turned clock."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from clusterspace.errors import AlreadyExists, Conflict, NotFound
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.times import format_time
from clusterspace.sim.api import FOLLOWED, POD, Key, Kind, Listener, Mirror, key_of
from clusterspace.sim.containers import Containers, Programs
from clusterspace.sim.controllers import Controllers
from clusterspace.sim.lifecycle import Lifecycle
from clusterspace.sim.nodes import Heartbeats, NodeShape
from clusterspace.sim.pods import Pace, is_active, is_finished, is_ready
from clusterspace.sim.scheduling import PodsByNode
from clusterspace.testing.clocks import ManualClock


class PretendApi:
    """A SimApi that keeps the rules controllers rely on: versions, generations, graceful ends."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._listeners: list[Listener] = []
        self.objects: dict[Key, Object] = {}
        self.history: list[str] = []
        """What was done, as `verb Kind/name`."""

    async def create(self, kube_object: Object) -> Object:
        number = next(self._numbers)
        metadata = metadata_of(kube_object)
        name = metadata.get("name") or f"{metadata['generateName']}{number:05d}"
        new = with_metadata(
            kube_object,
            name=name,
            uid=f"uid-{number}",
            resourceVersion=str(number),
            generation=1,
            creationTimestamp=format_time(self._clock.now()),
        )
        if key_of(new) in self.objects:
            raise AlreadyExists(name)
        return self._put("create", new)

    async def update(self, kube_object: Object) -> Object:
        held = self._current(kube_object)
        changed = {**kube_object, "status": held.get("status")}
        generation: int = metadata_of(held)["generation"]
        if changed.get("spec") != held.get("spec"):
            generation += 1
        metadata = metadata_of(changed)
        is_marked = "deletionTimestamp" in metadata and not metadata["deletionGracePeriodSeconds"]
        if is_marked and not metadata.get("finalizers"):
            self._remove(held)
            return changed
        return self._put("update", self._next_version(changed, generation=generation))

    async def update_status(self, kube_object: Object) -> Object:
        held = self._current(kube_object)
        noted = with_metadata(held, annotations=metadata_of(kube_object).get("annotations"))
        changed = {**noted, "status": kube_object.get("status")}
        return self._put("status", self._next_version(changed))

    async def delete(self, kube_object: Object, *, grace_seconds: int | None = None) -> None:
        held = self.objects.get(key_of(kube_object))
        if held is None:
            return
        is_on_node = held["kind"] == POD.name and find_at(held, "spec", "nodeName")
        if is_on_node and grace_seconds != 0 and not is_finished(held):
            if metadata_of(held).get("deletionTimestamp"):
                return
            marked = with_metadata(
                held,
                deletionTimestamp=format_time(self._clock.now() + 30),
                deletionGracePeriodSeconds=30,
            )
            self._put("end", self._next_version(marked))
            return
        if metadata_of(held).get("finalizers"):
            marked = with_metadata(
                held,
                deletionTimestamp=format_time(self._clock.now()),
                deletionGracePeriodSeconds=0,
            )
            if marked != held:
                self._put("end", self._next_version(marked))
            return
        self._remove(held)

    def _remove(self, held: Object) -> None:
        del self.objects[key_of(held)]
        self.history.append(f"remove {held['kind']}/{name_of(held)}")
        for listener in self._listeners:
            listener.removed(held)

    async def bind(self, pod: Object, node: str) -> None:
        held = self.objects[key_of(pod)]
        self._put("bind", self._next_version(with_value(held, node, "spec", "nodeName")))

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> None:
        for kind in kinds:
            listener.replace(
                kind, [each for k, each in self.objects.items() if k.kind == kind.name]
            )
        self._listeners.append(listener)
        await asyncio.get_running_loop().create_future()

    def _current(self, kube_object: Object) -> Object:
        held = self.objects.get(key_of(kube_object))
        if held is None:
            raise NotFound(name_of(kube_object))
        if metadata_of(held)["resourceVersion"] != metadata_of(kube_object)["resourceVersion"]:
            raise Conflict(name_of(kube_object))
        return held

    def _next_version(self, kube_object: Object, **fields: Any) -> Object:
        return with_metadata(kube_object, resourceVersion=str(next(self._numbers)), **fields)

    def _put(self, verb: str, kube_object: Object) -> Object:
        self.objects[key_of(kube_object)] = kube_object
        self.history.append(f"{verb} {kube_object['kind']}/{name_of(kube_object)}")
        for listener in self._listeners:
            listener.changed(kube_object)
        return kube_object


class PretendCluster:
    """A simulated cluster whose time a test turns."""

    def __init__(self, api: PretendApi, clock: ManualClock) -> None:
        self.api = api
        self.clock = clock

    async def settle(self, seconds: float = 60.0) -> None:
        """Let so much time pass, and everything happen that happens in it."""
        await self.clock.advance(seconds)

    async def edit(self, kube_object: Object, value: Any, *path: str) -> Object:
        """Change one field of an object as it is now, as a user would."""
        held = self.api.objects[key_of(kube_object)]
        return await self.api.update(with_value(held, value, *path))

    def all(self, kind: str, namespace: str = "default") -> list[Object]:
        found = [each for key, each in self.api.objects.items() if key.kind == kind]
        return [each for each in found if namespace_of(each) in ("", namespace)]

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        return self.api.objects[Key(kind, namespace, name)]

    def pods(self) -> list[Object]:
        return [pod for pod in self.all("Pod") if is_active(pod)]

    def pod_names(self) -> set[str]:
        return {name_of(pod) for pod in self.pods()}

    def ready_count(self) -> int:
        return sum(is_ready(pod) for pod in self.pods())


@asynccontextmanager
async def pretend_cluster(
    *, nodes: int = 3, pace: Pace | None = None, shape: NodeShape | None = None
) -> AsyncGenerator[PretendCluster]:
    """Run the controllers of a simulated cluster for as long as the block lasts."""
    clock = ManualClock()
    api, mirror = PretendApi(clock), Mirror()
    pods_by_node = PodsByNode(mirror)
    programs = Programs(Containers(clock), clock)
    lifecycle = Lifecycle(api, api, mirror, pods_by_node, programs, clock, pace or Pace())
    heartbeats = Heartbeats(
        api, mirror, clock, cluster="east", count=nodes, shape=shape or NodeShape()
    )
    controllers = Controllers(api, mirror, clock)
    works = (programs.run(), api.follow(FOLLOWED, mirror), controllers.run())
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(each) for each in (*works, lifecycle.run(), heartbeats.run())]
        await clock.advance(1)
        yield PretendCluster(api, clock)
        for task in running:
            task.cancel()
