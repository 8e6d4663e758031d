"""ServiceImport: the Service `derived-NAME` on the hub, which goes where the import goes.

The Service is the import's: it owns it, and the garbage collector takes it along. A Service of that
name that somebody else made is left alone, and said so.
"""

from collections.abc import Iterable
from typing import Any, Final, cast

from clusterspace.apis.services import (
    DERIVED_PREFIX,
    ENDPOINT_SLICES,
    SERVICE_IMPORT,
    SERVICE_IMPORTS,
    SERVICES,
    derived_service_name,
)
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import ApiError
from clusterspace.fleet.propagation.services.exports import (
    BEHIND_SECONDS,
    BY_SERVICE,
    IMPORTED,
    SETTLE_SECONDS,
    SLICE_INDEXES,
    export_of_slice,
    source_of,
)
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)

SYNCED: Final = "SyncDerivedServiceSucceed"
NOT_SYNCED: Final = "SyncDerivedServiceFailed"

_HEADLESS: Final = "Headless"
_NO_ADDRESS: Final = "None"
_NO_AFFINITY: Final = "None"


class ServiceImports(Reconciler):
    """Keeps the derived Services of ServiceImports, and says which clusters export to them."""

    name = "service-imports"

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder) -> None:
        self._hub = hub
        self._events = events
        self._imports = caches.informer(SERVICE_IMPORTS)
        self._services = caches.informer(SERVICES)
        self._slices = caches.informer(ENDPOINT_SLICES, selection=IMPORTED, indexes=SLICE_INDEXES)

    def watches(self) -> Iterable[Watch]:
        """Return imports, their Services, and the slices that clusters export to them."""
        yield Watch(self._imports, when=more_than_status_changed)
        yield Watch(self._services, to=import_of_service, when=more_than_status_changed)
        yield Watch(self._slices, to=export_of_slice, settle_seconds=SETTLE_SECONDS)

    async def reconcile(self, request: Request) -> Result:
        """Bring the Service of one import to what the import says."""
        found = self._imports.cache.find(request.key)
        if found is None or is_being_deleted(found):
            return Done()  # its Service goes after it: it owns it
        desired = derived_service(found)
        path = resource_path_of(SERVICES, desired)
        existing = self._services.cache.find(path.key)
        try:
            if existing is None:
                await self._hub.create(path.collection, desired)
                is_written = True
            elif not is_owned_by(existing, found):
                why = f"Service {name_of(existing)} is there already, and not of this import"
                self._events.record(found, NOT_SYNCED, why, is_warning=True)
                return Done()  # woken when it goes
            elif _is_headless(existing) != _is_headless(desired):
                # An address cannot be given or taken away. Killed here, the next attempt creates.
                await self._hub.delete(path, DeleteOptions(uid=uid_of(existing)))
                return RequeueAfter(BEHIND_SECONDS)
            else:
                updated = {**existing, "spec": {**existing["spec"], **desired["spec"]}}
                is_written = await commit(self._hub, path, existing, updated) is not updated
        except ApiError as error:
            self._events.record(found, NOT_SYNCED, error.message, is_warning=True)
            raise
        if is_written:
            message = f"Service {name_of(desired)} is as the import says."
            self._events.record(found, SYNCED, message, is_routine=True)
        await self._write_clusters(request, found)
        return Done()

    async def _write_clusters(self, request: Request, found: Object) -> None:
        key = key_of(request.namespace, derived_service_name(request.name))
        slices = self._slices.cache.objects_at(BY_SERVICE, key)
        names = sorted({cluster for each in slices if (cluster := source_of(each))})
        status = cast("Object", found.get("status") or {})
        status = {**status, "clusters": [{"cluster": each} for each in names]}
        if not names and not find_at(found, "status", "clusters"):
            return
        path = ResourcePath(SERVICE_IMPORTS, request.namespace, request.name)
        await commit(self._hub, path, found, {**found, "status": status})


def derived_service(service_import: Object) -> Object:
    """Return the Service of an import; as the hub completes it, so that it compares equal."""
    spec = cast("Object", service_import.get("spec") or {})
    ports: list[Object] = []
    for each in cast("list[Object]", spec.get("ports") or []):
        port: Object = {key: each[key] for key in ("name", "appProtocol") if each.get(key)}
        port |= {"port": each["port"], "protocol": each.get("protocol") or "TCP"}
        ports.append({**port, "targetPort": each["port"]})
    desired: dict[str, Any] = {
        "type": "ClusterIP",
        "ports": ports,
        "sessionAffinity": spec.get("sessionAffinity") or _NO_AFFINITY,
    }
    if config := spec.get("sessionAffinityConfig"):
        desired["sessionAffinityConfig"] = config
    if spec.get("type") == _HEADLESS:
        desired["clusterIP"] = _NO_ADDRESS
    owner = {
        "apiVersion": service_import.get("apiVersion"),
        "kind": SERVICE_IMPORT,
        "name": name_of(service_import),
        "uid": uid_of(service_import),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "name": derived_service_name(name_of(service_import)),
        "namespace": namespace_of(service_import),
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": desired}


def is_owned_by(service: Object, service_import: Object) -> bool:
    """Whether a Service was derived from this import."""
    owners = cast("list[Object]", metadata_of(service).get("ownerReferences") or [])
    return any(each.get("uid") == uid_of(service_import) for each in owners)


def _is_headless(service: Object) -> bool:
    return find_at(service, "spec", "clusterIP") == _NO_ADDRESS


def import_of_service(update: Update) -> Iterable[Request]:
    """Map a derived Service to its import."""
    namespace, _, name = update.key.rpartition("/")
    if not name.startswith(DERIVED_PREFIX):
        return ()
    return (Request(name.removeprefix(DERIVED_PREFIX), namespace),)
