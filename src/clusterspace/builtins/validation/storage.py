"""The rules of volumes, storage classes and CSI."""

from collections.abc import Iterator, Mapping
from typing import Final

from clusterspace.builtins.validation import volumes
from clusterspace.builtins.validation.metadata import NODE_SELECTOR, selector
from clusterspace.builtins.validation.rules import (
    IMMUTABLE,
    NOT_NEGATIVE,
    Checks,
    at,
    check_all,
    each,
    immutable,
    inside,
    named,
    of_form,
    present,
    problems_at,
    required,
    satisfies,
    struct_in,
    structs_in,
    supported,
    texts_in,
    well_formed,
)
from clusterspace.builtins.validation.volumes import (
    HOST_PATH,
    NETWORK_SOURCES,
    NFS,
    driver,
    one_source,
    secret_reference,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_subdomain_problems, qualified_name_problems
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

_RECLAIM: Final = ("Delete", "Recycle", "Retain")
_BINDING: Final = ("Immediate", "WaitForFirstConsumer")
_ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
_LIFECYCLES: Final = ("Persistent", "Ephemeral")
_LEAST_TOKEN_SECONDS: Final = 600

_SOURCES: Final[Mapping[str, Checks]] = {
    "hostPath": HOST_PATH,
    "gcePersistentDisk": NETWORK_SOURCES["gcePersistentDisk"],
    "awsElasticBlockStore": NETWORK_SOURCES["awsElasticBlockStore"],
    "glusterfs": NETWORK_SOURCES["glusterfs"],
    "flocker": NETWORK_SOURCES["flocker"],
    "nfs": NFS,
    **{
        name: NETWORK_SOURCES[name]
        for name in (
            "rbd",
            "quobyte",
            "cephfs",
            "iscsi",
            "cinder",
            "fc",
            "flexVolume",
            "azureFile",
            "vsphereVolume",
            "photonPersistentDisk",
            "portworxVolume",
            "azureDisk",
            "scaleIO",
        )
    },
    "local": (required("path"),),
    "storageos": (required("volumeName"),),
    "csi": (
        driver,
        required("volumeHandle"),
        secret_reference("controllerPublishSecretRef"),
        secret_reference("controllerExpandSecretRef"),
        secret_reference("nodePublishSecretRef"),
        secret_reference("nodeExpandSecretRef"),
    ),
}
_VOLUME_SOURCE: Final = one_source(_SOURCES)


def _capacity(spec: Object, path: str) -> Iterator[Cause]:
    place, capacity = at(path, "capacity"), spec.get("capacity")
    if not capacity:
        yield causes.required(place)
    if set(capacity or {}) != {"storage"}:
        yield causes.not_supported(place, capacity, ("storage",))
    for name, text in struct_in(spec, "capacity").items():
        if parse_quantity(text).nanos <= 0:
            yield causes.invalid(f"{place}[{name}]", text, "must be greater than zero")


_VOLUME_SPEC: Final = (
    required("accessModes"),
    volumes.access_modes,
    _capacity,
    inside(
        "nodeAffinity",
        present("required", "must specify required node constraints"),
        inside("required", *NODE_SELECTOR),
    ),
    supported("persistentVolumeReclaimPolicy", *_RECLAIM),
    _VOLUME_SOURCE,
    well_formed("storageClassName", dns1123_subdomain_problems),
    supported("volumeMode", *volumes.VOLUME_MODES),
)


def check_volume(volume: Object) -> Iterator[Cause]:
    """Check a PersistentVolume."""
    spec = struct_in(volume, "spec")
    yield from check_all(spec, "spec", _VOLUME_SPEC)
    name = spec.get("volumeAttributesClassName")
    if name is not None:
        place = "spec.volumeAttributesClassName"
        if not name:
            yield causes.required(place, "an empty string is disallowed")
        if spec.get("csi") is None:
            why = "has to be specified when using volumeAttributesClassName"
            yield causes.required("spec.csi", why)


def check_volume_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a volume goes on being the same piece of storage."""
    spec, existing = struct_in(new, "spec"), struct_in(old, "spec")
    if any(spec.get(source) != existing.get(source) for source in _SOURCES):
        why = "spec.persistentvolumesource is immutable after creation"
        yield causes.forbidden("spec.persistentvolumesource", why)
    yield from immutable(spec.get("volumeMode"), existing.get("volumeMode"), "volumeMode")


def check_claim(claim: Object) -> Iterator[Cause]:
    """Check a PersistentVolumeClaim."""
    return check_all(struct_in(claim, "spec"), "spec", volumes.CLAIM_SPEC)


check_claim_update = volumes.check_claim_update


def check_class(storage_class: Object) -> Iterator[Cause]:
    """Check a StorageClass."""
    provisioner = str(storage_class.get("provisioner") or "")
    if not provisioner:
        yield causes.required("provisioner")
    else:
        lowered = provisioner.lower()
        yield from problems_at("provisioner", lowered, qualified_name_problems(lowered))
    if any(not key for key in struct_in(storage_class, "parameters")):
        yield causes.invalid("parameters", "", "field can not be empty.")
    yield from supported("reclaimPolicy", "Delete", "Retain")(storage_class, "")
    if storage_class.get("volumeBindingMode") is None:
        yield causes.required("volumeBindingMode")
    yield from supported("volumeBindingMode", *_BINDING)(storage_class, "")


def check_class_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a StorageClass goes on making the same volumes."""
    for field in ("parameters", "provisioner", "reclaimPolicy"):
        if (new.get(field) or None) != (old.get(field) or None):
            yield causes.forbidden(field, f"updates to {field} are forbidden.")
    modes = new.get("volumeBindingMode"), old.get("volumeBindingMode")
    yield from immutable(*modes, "volumeBindingMode")


_TOKEN_LIFETIME: Final = satisfies(
    "expirationSeconds",
    lambda seconds: seconds >= _LEAST_TOKEN_SECONDS,
    "may not specify a duration less than 10 minutes",
)
_DRIVER_SPEC: Final = (
    present("attachRequired"),
    present("podInfoOnMount"),
    present("storageCapacity"),
    supported("fsGroupPolicy", "File", "None", "ReadWriteOnceWithFSType"),
    each("tokenRequests", _TOKEN_LIFETIME),
    satisfies(
        "nodeAllocatableUpdatePeriodSeconds",
        lambda seconds: seconds >= 10,
        "must be greater than or equal to 10 seconds",
    ),
)


def check_driver(csi_driver: Object) -> Iterator[Cause]:
    """Check a CSIDriver."""
    spec = struct_in(csi_driver, "spec")
    yield from check_all(spec, "spec", _DRIVER_SPEC)
    for mode in texts_in(spec, "volumeLifecycleModes"):
        if mode not in _LIFECYCLES:
            yield causes.not_supported("spec.volumeLifecycleModes", mode, _LIFECYCLES)
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        yield causes.invalid("spec.serviceAccountTokenInSecrets", in_secrets, why)


def check_driver_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a driver keeps what its volumes rely on."""
    spec, existing = struct_in(new, "spec"), struct_in(old, "spec")
    # The server's own spelling of the path.
    for field, shown in (
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ):
        if spec.get(field) != existing.get(field):
            yield causes.invalid(f"spec.{shown}", spec.get(field), IMMUTABLE)


def check_node_drivers(csi_node: Object) -> Iterator[Cause]:
    """Check a CSINode."""
    seen: set[str] = set()
    for index, driver_entry in enumerate(structs_in(struct_in(csi_node, "spec"), "drivers")):
        path, name = f"spec.drivers[{index}]", driver_entry.get("name", "")
        yield from required("name")(driver_entry, path)
        yield from required("nodeID")(driver_entry, path)
        if name in seen:
            yield causes.duplicate(at(path, "name"), name)
        seen.add(name)


def check_capacity(capacity: Object) -> Iterator[Cause]:
    """Check a CSIStorageCapacity."""
    yield from of_form("storageClassName", dns1123_subdomain_problems)(capacity, "")
    yield from selector("nodeTopology")(capacity, "")
    size = capacity.get("capacity")
    if size is not None and parse_quantity(size).nanos < 0:
        yield causes.invalid("capacity", size, NOT_NEGATIVE)


def check_attachment(attachment: Object) -> Iterator[Cause]:
    """Check a VolumeAttachment."""
    spec = struct_in(attachment, "spec")
    yield from named("attacher", dns1123_subdomain_problems)(spec, "spec")
    source = struct_in(spec, "source")
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and name is None:
        yield causes.required("spec.source", _ONE_SOURCE)
    elif inline is not None and name is not None:
        yield causes.forbidden("spec.source", _ONE_SOURCE)
    elif name is not None:
        place = "spec.source.persistentVolumeName"
        if not name:
            yield causes.required(place, "must specify non empty persistentVolumeName")
        yield from problems_at(place, name, dns1123_subdomain_problems(name))
    yield from of_form("nodeName", dns1123_subdomain_problems)(spec, "spec")


def check_attachment_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that an attachment stays the one that was asked for."""
    return immutable(struct_in(new, "spec"), struct_in(old, "spec"), "spec")


def check_attributes_class(attributes_class: Object) -> Iterator[Cause]:
    """Check a VolumeAttributesClass."""
    driver_name = str(attributes_class.get("driverName") or "").lower()
    yield from required("driverName")(attributes_class, "")
    if driver_name:
        yield from problems_at("driverName", driver_name, qualified_name_problems(driver_name))
    if not attributes_class.get("parameters"):
        why = "must contain at least one key/value pair"
        yield causes.required("parameters", why)


def check_attributes_class_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a VolumeAttributesClass stays what it is."""
    for field in ("driverName", "parameters"):
        if new.get(field) != old.get(field):
            yield causes.forbidden(field, f"updates to {field} are forbidden.")
