"""Every override, written down in numbered snapshots that never change.

    override ──changed──> new snapshot, the latest ──> (placements roll it out)
    override ──deleted──> no latest snapshot ──no binding names them──> snapshots gone

A snapshot stays for as long as a placement's binding names it, or an update run that is not over,
also when its override is gone: it is what the cluster's objects were made with, until the rollout
gets to that cluster.
"""

import base64
from collections.abc import Iterable
from typing import Final

from clusterspace.apis.fleet_overrides import (
    CLUSTER_KIND,
    CLUSTER_OVERRIDES,
    CLUSTER_SNAPSHOTS,
    NAMESPACED_KIND,
    OVERRIDE_INDEX,
    OVERRIDE_PARENT,
    RESOURCE_OVERRIDES,
    RESOURCE_SNAPSHOTS,
)
from clusterspace.apis.fleet_placements import (
    API_VERSION,
    IS_LATEST,
    SCOPES,
    digest_of,
    index_of,
    is_latest,
)
from clusterspace.apis.staged_updates import STAGED_SCOPES, is_over
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    Result,
    Watch,
    more_than_status_changed,
    nothing,
    request_for,
)
from clusterspace.controllers.informers import HubCaches, IndexKeys, OwnWrites, Update
from clusterspace.errors import AlreadyExists, Conflict, NotFound
from clusterspace.fleet.propagation.placements.overrides import (
    BY_OVERRIDE,
    OVERRIDE_INDEXES,
    overrides_of,
    parent_key_of,
)
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource

MOST_SNAPSHOTS: Final = 10
"""How many of an override are kept that no cluster has any more, the latest included."""

_BY_SNAPSHOT: Final = "override-snapshot"


def by_snapshot(binding: Object) -> Iterable[str]:
    """Index a placement's bindings by the override snapshots they name."""
    return overrides_of(binding).keys


def by_snapshot_of_run(run: Object) -> Iterable[str]:
    """Index update runs by the override snapshots they have yet to bring."""
    if is_over(run):
        return ()
    stages: list[Object] = find_at(run, "status", "stagesStatus") or []
    entries = (each for stage in stages for each in stage.get("clusters") or ())
    return {key for each in entries for key in overrides_of({"spec": each}).keys}


_RUN_INDEXES: Final[dict[str, IndexKeys]] = {_BY_SNAPSHOT: by_snapshot_of_run}
_BINDING_INDEXES: Final[dict[str, IndexKeys]] = {_BY_SNAPSHOT: by_snapshot}


class OverrideSnapshots(Reconciler):
    """Keeps the snapshots of overrides; a request without a namespace is a cluster-wide one's."""

    name = "override-snapshots"

    def __init__(self, hub: Client, caches: HubCaches) -> None:
        self._hub = hub
        self._overrides = caches.informer(RESOURCE_OVERRIDES)
        self._cluster_overrides = caches.informer(CLUSTER_OVERRIDES)
        self._snapshots = caches.informer(RESOURCE_SNAPSHOTS, indexes=OVERRIDE_INDEXES)
        self._cluster_snapshots = caches.informer(CLUSTER_SNAPSHOTS, indexes=OVERRIDE_INDEXES)
        self._known = OwnWrites(self._snapshots)
        self._cluster_known = OwnWrites(self._cluster_snapshots)
        self._bindings = tuple(
            caches.informer(each.bindings, indexes=_BINDING_INDEXES) for each in SCOPES
        )
        self._runs = tuple(
            caches.informer(each.runs, indexes=_RUN_INDEXES) for each in STAGED_SCOPES
        )

    def watches(self) -> Iterable[Watch]:
        """Return overrides, their snapshots, and bindings that may have let go of one."""
        for overrides in (self._overrides, self._cluster_overrides):
            yield Watch(overrides, when=more_than_status_changed)
        for snapshots in (self._snapshots, self._cluster_snapshots):
            yield Watch(snapshots, to=overrides_of_snapshot)
        for bindings in self._bindings:
            yield Watch(bindings, to=self.overrides_let_go)
        for runs in self._runs:  # snapshots that a run needs are kept
            yield Watch(runs, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Bring the snapshots of one override to where they should be."""
        resource = RESOURCE_OVERRIDES if request.namespace else CLUSTER_OVERRIDES
        override = await self._hub.find(ResourcePath(resource, request.namespace, request.name))
        known = self._known if request.namespace else self._cluster_known
        existing = sorted(
            known.objects_at(BY_OVERRIDE, request.key),
            key=lambda each: index_of(each, OVERRIDE_INDEX),
        )
        latest: Object | None = None
        if override is not None and not is_being_deleted(override):
            spec: Object = override.get("spec") or {}
            # Bytes, as the API has it: base64 of the hash in hexadecimal.
            override_hash = base64.b64encode(digest_of(spec).encode()).decode()
            newest = existing[-1] if existing else None
            if newest is not None and find_at(newest, "spec", "overrideHash") == override_hash:
                latest = newest
            else:
                # First the new one, then the label of the old one: placements go by the higher
                # number, so there is no moment, and no crash, after which none holds.
                index = 0 if newest is None else index_of(newest, OVERRIDE_INDEX) + 1
                latest = await self._create(snapshot_of(override, index, override_hash))
        for each in existing:
            is_the_latest = latest is not None and uid_of(each) == uid_of(latest)
            if is_latest(each) == is_the_latest:
                continue
            labels = {**labels_of(each), IS_LATEST: "true" if is_the_latest else "false"}
            relabelled = with_metadata(each, labels=labels)
            path = resource_path_of(snapshot_resource(each), each)
            known.note(await commit(self._hub, path, each, relabelled))

        # The newest of an override that is there are kept; all others go with their last binding.
        kept = MOST_SNAPSHOTS - 1 if latest is not None else 0
        old = [each for each in existing if latest is None or uid_of(each) != uid_of(latest)]
        for each in old[: max(0, len(old) - kept)]:
            key = key_of(namespace_of(each), name_of(each))
            users = (*self._bindings, *self._runs)
            if not any(each.cache.keys_at(_BY_SNAPSHOT, key) for each in users):
                await self._remove(each)
        return Done()

    async def _create(self, snapshot: Object) -> Object:
        path = resource_path_of(snapshot_resource(snapshot), snapshot)
        try:
            stored = await self._hub.create(path.collection, snapshot)
        except AlreadyExists as error:
            raise Conflict(f"{path} is there already") from error
        (self._known if path.namespace else self._cluster_known).note(stored)
        return stored

    async def _remove(self, snapshot: Object) -> None:
        path = resource_path_of(snapshot_resource(snapshot), snapshot)
        try:
            await self._hub.delete(path, DeleteOptions(uid_of(snapshot)))
        except (NotFound, Conflict):
            return  # gone, or somebody else's by now
        (self._known if path.namespace else self._cluster_known).note_deleted(snapshot)

    def overrides_let_go(self, update: Update) -> Iterable[Request]:
        """Map a binding to the overrides whose snapshots it names no longer."""
        before, after = update.decode_before(), update.decode_after()
        named = set(overrides_of(before or {}).keys) - set(overrides_of(after or {}).keys)
        requests: set[Request] = set()
        for key in named:
            known = self._known if "/" in key else self._cluster_known
            snapshot = known.find(key)
            if snapshot is not None and (parent := parent_key_of(snapshot)):
                requests.add(request_for(parent))
        return requests


def overrides_of_snapshot(update: Update) -> Iterable[Request]:
    """Map a snapshot to the override it is of."""
    states = (update.decode_before(), update.decode_after())
    keys = {parent_key_of(each) for each in states if each is not None}
    return [request_for(key) for key in sorted(keys) if key]


def snapshot_resource(snapshot: Object) -> GroupVersionResource:
    """Return which snapshots a snapshot is one of."""
    return RESOURCE_SNAPSHOTS if namespace_of(snapshot) else CLUSTER_SNAPSHOTS


def snapshot_of(override: Object, index: int, override_hash: str) -> Object:
    """Return a snapshot of an override as it is.

    It has no owner: the hub would collect it with its override, while clusters still have it.
    """
    namespace = namespace_of(override)
    metadata: Object = {
        "name": f"{name_of(override)}-{index}",
        "labels": {
            OVERRIDE_PARENT: name_of(override),
            OVERRIDE_INDEX: str(index),
            IS_LATEST: "true",
        },
    }
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": API_VERSION,
        "kind": f"{NAMESPACED_KIND if namespace else CLUSTER_KIND}Snapshot",
        "metadata": metadata,
        "spec": {"overrideSpec": override.get("spec") or {}, "overrideHash": override_hash},
    }
