"""ServiceExport: what clusters report of an exported Service becomes EndpointSlices on the hub.

    Works with a ServiceExport ──status──> `imported-CLUSTER-NAME`, labelled for `derived-SERVICE`

A slice goes when its cluster says that it is gone, or when the order to export is withdrawn; never
because a cluster is silent: what it reported last stays in its Work.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.services import (
    DERIVED_PREFIX,
    ENDPOINT_SLICE,
    ENDPOINT_SLICES,
    IMPORTED_PREFIX,
    IMPORTER,
    MANAGED_BY,
    SERVICE_NAME,
    SLICE_API_VERSION,
    Endpoints,
    derived_service_name,
    find_report,
    imported_slice_names,
)
from clusterspace.apis.works import (
    BY_EXPORT,
    SERVICE_EXPORT,
    by_export,
    cluster_of,
    export_word,
)
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import Client, DeleteOptions, ListOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, IndexKeys, Update
from clusterspace.errors import AlreadyExists, ApiError, NotFound
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)

SETTLE_SECONDS: Final = 0.2
"""A rollout changes the slices of a Service many times in a moment."""

BEHIND_SECONDS: Final = 1.0
"""How long to wait for a cache that the hub has just shown to be behind."""

TAKEN_SECONDS: Final = 30.0
"""After how long to look whether a name is free by now."""

NAME_TAKEN: Final = "SyncEndpointSliceFailed"

IMPORTED: Final = ListOptions(label_selector=f"{MANAGED_BY}={IMPORTER}")
BY_SERVICE: Final = "service"

FindSlice: TypeAlias = Callable[[str, str], Object | None]
"""Returns an imported slice that is there, by namespace and name."""


def by_service(endpoint_slice: Object) -> Iterable[str]:
    """Index slices by their Service."""
    name = labels_of(endpoint_slice).get(SERVICE_NAME)
    return (key_of(namespace_of(endpoint_slice), name),) if name else ()


SLICE_INDEXES: Final[dict[str, IndexKeys]] = {BY_SERVICE: by_service}


class ServiceExports(Reconciler):
    """Keeps the EndpointSlices that clusters export; a request is for a ServiceExport's name."""

    name = "service-exports"

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder) -> None:
        self._hub = hub
        self._events = events
        self._works = caches.informer(WORKS, indexes={BY_EXPORT: by_export})
        self._slices = caches.informer(ENDPOINT_SLICES, selection=IMPORTED, indexes=SLICE_INDEXES)

    def watches(self) -> Iterable[Watch]:
        """Return Works that export something, and the slices, which nobody else should change."""
        yield Watch(self._works, to=exports_in, settle_seconds=SETTLE_SECONDS)
        yield Watch(self._slices, to=export_of_slice, settle_seconds=SETTLE_SECONDS)

    async def reconcile(self, request: Request) -> Result:
        """Bring the slices of one exported Service to what its clusters report."""
        word = export_word(SERVICE_EXPORT, request.key)
        works = {
            cluster_of(work): work
            for work in self._works.cache.objects_at(BY_EXPORT, word)
            if not is_being_deleted(work)
        }
        reports = {cluster: find_report(work) for cluster, work in works.items()}
        desired = plan_slices(request, works, reports, self._find)
        for taken in desired.refused:
            # Not in the log alone: whoever misses an endpoint looks at the Work that exports it.
            message = f"EndpointSlice {taken.name} is not imported: its name is another slice's"
            self._events.record(works[taken.cluster], NAME_TAKEN, message, is_warning=True)
        problems: list[ApiError] = []
        is_taken = False
        for slice_ in desired.slices.values():
            # What one cluster reports is no reason to keep the endpoints of another from anybody.
            try:
                is_written = await self._write(slice_)
            except ApiError as error:
                problems.append(error)
                continue
            if not is_written:
                is_taken = True
                message = f"EndpointSlice {name_of(slice_)} is not imported: its name is taken"
                self._events.record(works[source_of(slice_)], NAME_TAKEN, message, is_warning=True)
        key = key_of(request.namespace, derived_service_name(request.name))
        is_behind = False
        for slice_ in self._slices.cache.objects_at(BY_SERVICE, key):
            cluster = source_of(slice_)
            if name_of(slice_) in desired.slices or not cluster:
                continue
            if cluster in reports and reports[cluster] is None:
                continue  # silent since it was asked: what was known of it stays
            # Taking a slice away breaks connections of others. So the hub itself has to say that
            # the order to export is gone, or that the cluster's own report lacks the slice.
            if await self._is_reported(request, slice_):
                is_behind = True
                continue
            path = resource_path_of(ENDPOINT_SLICES, slice_)
            try:
                await self._hub.delete(path, DeleteOptions(uid=uid_of(slice_)))
            except NotFound:
                continue
        if problems:
            raise problems[0]
        if is_behind:
            return RequeueAfter(BEHIND_SECONDS)
        # Slices of others are not followed: nobody tells when one is gone that has our name.
        return RequeueAfter(TAKEN_SECONDS) if is_taken else Done()

    def _find(self, namespace: str, name: str) -> Object | None:
        return self._slices.cache.find(key_of(namespace, name))

    async def _write(self, desired: Object) -> bool:
        """Write a slice; False when somebody's own has its name, which is left alone."""
        path = resource_path_of(ENDPOINT_SLICES, desired)
        existing = self._slices.cache.find(path.key)
        if existing is None:
            try:
                await self._hub.create(path.collection, desired)
            except AlreadyExists:
                existing = await self._hub.get(path)
                if not is_alike(existing, desired):
                    return False
        if existing is None:
            return True
        if existing.get("addressType") != desired["addressType"]:
            # It cannot be changed. Killed in between, the next attempt finds none and creates it.
            await self._hub.delete(path, DeleteOptions(uid=uid_of(existing)))
            await self._hub.create(path.collection, desired)
            return True
        labels = {**labels_of(existing), **labels_of(desired)}
        annotations = {**annotations_of(existing), **annotations_of(desired)}
        marked = with_metadata(existing, labels=labels, annotations=annotations)
        content = {key: desired[key] for key in ("endpoints", "ports")}
        await commit(self._hub, path, existing, {**marked, **content})
        return True

    async def _is_reported(self, request: Request, slice_: Object) -> bool:
        """Whether, by the hub's own word, a slice still stands for what a cluster exports."""
        annotations = annotations_of(slice_)
        place = ResourcePath(
            WORKS, annotations[stamps.WORK_NAMESPACE], annotations[stamps.WORK_NAME]
        )
        work = await self._hub.find(place)
        if work is None or is_being_deleted(work):
            return False
        if export_word(SERVICE_EXPORT, request.key) not in by_export(work):
            return False
        report, cluster = find_report(work), source_of(slice_)
        if report is None:
            return True
        names = (imported_slice_names(cluster, str(each["name"])) for each in report.slices)
        return any(name_of(slice_) in both for both in names)


@dataclass(frozen=True, slots=True)
class Refused:
    """A slice whose names, both of them, are another slice's."""

    cluster: str
    name: str


@dataclass(frozen=True, slots=True)
class DesiredSlices:
    """The slices there should be, by name, and those that cannot be."""

    slices: Mapping[str, Object]
    refused: tuple[Refused, ...] = ()


def plan_slices(
    request: Request,
    works: Mapping[str, Object],
    reports: Mapping[str, Endpoints | None],
    find: FindSlice,
) -> DesiredSlices:
    """Return the EndpointSlices that the reports about one Service call for.

    A name may be of two clusters: whoever has it keeps it, and the other gets one of its own.
    """
    slices: dict[str, Object] = {}
    refused: list[Refused] = []
    for cluster in sorted(works):
        report = reports[cluster]
        for reported in report.slices if report is not None else ():
            made = [
                imported_slice(name, reported, request, works[cluster])
                for name in imported_slice_names(cluster, str(reported["name"]))
            ]
            free = (
                each
                for each in made
                if name_of(each) not in slices
                and is_alike(find(request.namespace, name_of(each)) or each, each)
            )
            if (chosen := next(free, None)) is not None:
                slices[name_of(chosen)] = chosen
            else:
                refused.append(Refused(cluster, str(reported["name"])))
    return DesiredSlices(slices, tuple(refused))


def imported_slice(name: str, reported: Object, request: Request, work: Object) -> Object:
    """Return the EndpointSlice on the hub for a slice that a cluster reported.

    Nothing but addresses and ports is of the report: the namespace, the Service and the cluster are
    those of the Work that asked.
    """
    metadata = {
        "name": name,
        "namespace": request.namespace,
        "labels": {
            SERVICE_NAME: derived_service_name(request.name),
            MANAGED_BY: IMPORTER,
            stamps.WORK_ID: labels_of(work).get(stamps.WORK_ID, ""),
        },
        "annotations": {
            stamps.WORK_NAMESPACE: namespace_of(work),
            stamps.WORK_NAME: name_of(work),
        },
    }
    content = {key: reported[key] for key in ("addressType", "endpoints", "ports")}
    header = {"apiVersion": SLICE_API_VERSION, "kind": ENDPOINT_SLICE, "metadata": metadata}
    return {**header, **content}


def is_alike(existing: Object, desired: Object) -> bool:
    """Whether a slice that is there stands for the same Service of the same cluster."""
    labels, wanted = labels_of(existing), labels_of(desired)
    is_same = all(labels.get(key) == wanted[key] for key in (SERVICE_NAME, MANAGED_BY))
    return is_same and source_of(existing) == source_of(desired)


def source_of(endpoint_slice: Object) -> str:
    """Return the cluster that an imported slice is from; empty for one that is not ours."""
    annotations = annotations_of(endpoint_slice)
    has_marks = {stamps.WORK_NAMESPACE, stamps.WORK_NAME} <= annotations.keys()
    if not has_marks or not name_of(endpoint_slice).startswith(IMPORTED_PREFIX):
        return ""
    return cluster_of({"metadata": {"namespace": annotations[stamps.WORK_NAMESPACE]}})


def exports_in(update: Update) -> Iterable[Request]:
    """Map a Work to the Service that it exports, or exported."""
    before, after = update.decode_before() or {}, update.decode_after() or {}
    words = {*by_export(before), *by_export(after)}
    if not words or (
        before.get("status") == after.get("status")
        and is_being_deleted(before) == is_being_deleted(after)
    ):
        return ()
    kinds = (word.split(" ", 1) for word in words)
    return [request_for(key) for kind, key in kinds if kind == SERVICE_EXPORT]


def export_of_slice(update: Update) -> Iterable[Request]:
    """Map an imported slice to the ServiceExport it is from."""
    slice_ = update.decode_after() or update.decode_before() or {}
    service = labels_of(slice_).get(SERVICE_NAME, "")
    if not service.startswith(DERIVED_PREFIX):
        return ()
    return (Request(service.removeprefix(DERIVED_PREFIX), namespace_of(slice_)),)
