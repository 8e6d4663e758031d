"""Claims and volumes: the class a claim gets, whether it may grow, and protection while in use."""

from typing import Final, cast

from clusterspace.apiserver.admission.pods import refused
from clusterspace.apiserver.identity.following import find_object, list_objects
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.builtins.strategies.creation import with_protection
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    with_value,
)
from clusterspace.kube.quantities import Quantity, parse_quantity

_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_ANNOTATIONS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def newest(classes: list[Object]) -> Object | None:
    """Return the default among several that say they are: the newest, by name when as old."""
    ordered = sorted(classes, key=name_of)
    return max(
        ordered, key=lambda each: str(metadata_of(each).get("creationTimestamp")), default=None
    )


class DefaultStorageClass(Plugin):
    """Gives new claims that name no class the one that is marked as the default."""

    name = "DefaultStorageClass"

    def __init__(self, *, is_hub: bool = False) -> None:
        self._is_hub = is_hub

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Fill in the class; a claim that names the empty one has chosen."""
        claim = admission.new
        if self._is_hub or not admission.is_create or not _is_claim(admission):
            return claim
        if _CLASS_ANNOTATION in annotations_of(claim):
            return claim
        if find_at(claim, "spec", "storageClassName") is not None:
            return claim
        classes = await list_objects(hub, "storage.k8s.io", "storageclasses")
        default = newest([each for each in classes if _is_default(each)])
        if default is None:
            return claim
        return with_value(claim, name_of(default), "spec", "storageClassName")


class StorageObjectInUseProtection(Plugin):
    """Gives new volumes, claims and classes of volumes the finalizer that keeps them in use."""

    name = "StorageObjectInUseProtection"

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Add the finalizer; `apiserver.protection` takes it away."""
        if not admission.is_create or admission.subresource:
            return admission.new
        return with_protection(admission.served.info.group_kind, admission.new)


class PersistentVolumeClaimResize(Plugin):
    """Lets a claim grow only where its class says that its volumes can."""

    name = "PersistentVolumeClaimResize"

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Refuse to let a claim grow that is not bound, or whose class does not allow it."""
        new, old = admission.new, admission.old
        if old is None or not _is_claim(admission) or _size(new) <= _size(old):
            return
        if find_at(old, "status", "phase") != "Bound":
            raise refused(admission, "Only bound persistent volume claims can be expanded")
        name = _class_of(new)
        if name and name == _class_of(old):
            found = await find_object(hub, "storage.k8s.io", "storageclasses", "", name)
            if found is not None and found.get("allowVolumeExpansion"):
                return
        raise refused(
            admission,
            "only dynamically provisioned pvc can be resized and the storageclass that provisions "
            "the pvc must support resize",
        )


def _is_claim(admission: Admission) -> bool:
    return admission.is_of("", "PersistentVolumeClaim") and not admission.subresource


def _is_default(storage_class: Object) -> bool:
    annotations = annotations_of(storage_class)
    return any(annotations.get(each) == "true" for each in _DEFAULT_ANNOTATIONS)


def _class_of(claim: Object) -> str:
    annotated = annotations_of(claim).get(_CLASS_ANNOTATION)
    return str(annotated or find_at(claim, "spec", "storageClassName") or "")


def _size(claim: Object) -> Quantity:
    text = cast("str | None", find_at(claim, "spec", "resources", "requests", "storage"))
    return parse_quantity(str(text or "0"))
