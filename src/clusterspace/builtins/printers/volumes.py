"""Volumes and claims, the classes they come from, and the drivers behind them."""

from collections.abc import Callable
from typing import Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    UNSET,
    PrintedColumn,
    flag,
    items_at,
    joined,
    pair,
    printer,
    shown,
    size,
    text,
    texts_at,
    wide,
)
from clusterspace.kube.objects import Object, annotations_of, find_at, metadata_of, name_of
from clusterspace.kube.tables import Column

_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_MARKS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def _access_modes(modes: list[str]) -> str:
    """Return each mode once, abbreviated, in Kubernetes' order."""
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in modes)


def _phase(kube_object: Object) -> str:
    if metadata_of(kube_object).get("deletionTimestamp"):
        return "Terminating"
    return str(find_at(kube_object, "status", "phase") or "")


_CLASS: Final = shown(
    "StorageClass",
    lambda volume: str(
        annotations_of(volume).get(_OLD_CLASS) or find_at(volume, "spec", "storageClassName") or ""
    ),
)
_ATTRIBUTES_CLASS: Final = text(
    "VolumeAttributesClass", "spec", "volumeAttributesClassName", when_absent=UNSET
)
_VOLUME_MODE: Final = wide("VolumeMode", lambda item: find_at(item, "spec", "volumeMode") or UNSET)

PERSISTENT_VOLUMES: Final = printer(
    NAME,
    text("Capacity", "spec", "capacity", "storage"),
    shown("Access Modes", lambda item: _access_modes(texts_at(item, "spec", "accessModes"))),
    text("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
    shown("Status", _phase),
    pair("Claim", ("spec", "claimRef"), ("namespace", "name"), when_absent=""),
    _CLASS,
    _ATTRIBUTES_CLASS,
    text("Reason", "status", "reason"),
    AGE,
    _VOLUME_MODE,
)


def _when_bound(read: Callable[[Object], str]) -> Callable[[Object], str]:
    return lambda claim: read(claim) if find_at(claim, "spec", "volumeName") else ""


PERSISTENT_VOLUME_CLAIMS: Final = printer(
    NAME,
    shown("Status", _phase),
    text("Volume", "spec", "volumeName"),
    shown(
        "Capacity",
        _when_bound(lambda claim: str(find_at(claim, "status", "capacity", "storage") or "0")),
    ),
    shown(
        "Access Modes",
        _when_bound(lambda item: _access_modes(texts_at(item, "status", "accessModes"))),
    ),
    _CLASS,
    _ATTRIBUTES_CLASS,
    AGE,
    _VOLUME_MODE,
)


def _marked_name(storage_class: Object, _: float) -> str:
    annotations = annotations_of(storage_class)
    is_default = any(annotations.get(mark) == "true" for mark in _DEFAULT_MARKS)
    return f"{name_of(storage_class)} (default)" if is_default else name_of(storage_class)


STORAGE_CLASSES: Final = printer(
    PrintedColumn(Column("Name", format="name"), _marked_name),
    text("Provisioner", "provisioner"),
    text("ReclaimPolicy", "reclaimPolicy"),
    text("VolumeBindingMode", "volumeBindingMode"),
    shown("AllowVolumeExpansion", lambda item: bool(item.get("allowVolumeExpansion"))),
    AGE,
)

VOLUME_ATTRIBUTES_CLASSES: Final = printer(NAME, text("DriverName", "driverName"), AGE)

VOLUME_ATTACHMENTS: Final = printer(
    NAME,
    PrintedColumn(
        Column("Attacher", format="name"), lambda item, _: find_at(item, "spec", "attacher") or ""
    ),
    text("PV", "spec", "source", "persistentVolumeName"),
    text("Node", "spec", "nodeName"),
    flag("Attached", "status", "attached"),
    AGE,
)


CSI_DRIVERS: Final = printer(
    NAME,
    shown(
        "AttachRequired",
        lambda driver: find_at(driver, "spec", "attachRequired") in (None, True),
        "boolean",
    ),
    flag("PodInfoOnMount", "spec", "podInfoOnMount"),
    flag("StorageCapacity", "spec", "storageCapacity"),
    shown(
        "TokenRequests",
        lambda driver: joined(
            [str(each.get("audience") or "") for each in items_at(driver, "spec", "tokenRequests")],
            UNSET,
        ),
    ),
    flag("RequiresRepublish", "spec", "requiresRepublish"),
    shown("Modes", lambda item: joined(texts_at(item, "spec", "volumeLifecycleModes"), UNSET)),
    AGE,
)

CSI_NODES: Final = printer(NAME, size("Drivers", "spec", "drivers"), AGE)
