"""The rules of where volumes come from: sources, claims, and the volumes of a pod.

Each source is a table of checks. Which order they are tried in matters: of several sources given,
the first is checked and each of the others is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.builtins.validation.containers import IN_FILES, container_amount, pod_field
from clusterspace.builtins.validation.formats import (
    FILE_MODE,
    backstep_problems,
    file_name_problems,
    is_file_mode,
)
from clusterspace.builtins.validation.metadata import selector
from clusterspace.builtins.validation.rules import (
    Check,
    Checks,
    at,
    between,
    check_all,
    chosen,
    each,
    inside,
    named,
    of_form,
    present,
    required,
    satisfies,
    struct_in,
    structs_in,
    supported,
    texts_in,
    well_formed,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import Problems, dns1123_label_problems, dns1123_subdomain_problems
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

_DRIVER_LENGTH: Final = 63
_AZURE_URI: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def driver_name_problems(name: str) -> Problems:
    """Check the name of a CSI driver."""
    return dns1123_subdomain_problems(name.lower())


def driver(struct: Object, path: str) -> Iterator[Cause]:
    """Require the name of a CSI driver."""
    name = str(struct.get("driver") or "")
    if not name:
        yield causes.required(at(path, "driver"))
        return
    if len(name) > _DRIVER_LENGTH:
        yield causes.too_long(at(path, "driver"), _DRIVER_LENGTH)
    for problem in driver_name_problems(name):
        yield causes.invalid(at(path, "driver"), name, problem)


def _azure_uri(struct: Object, path: str) -> Iterator[Cause]:
    uri = str(struct.get("diskURI") or "")
    is_managed = struct.get("kind") == "Managed"
    if not is_managed and not uri.startswith("https://"):
        yield causes.not_supported(at(path, "diskURI"), uri, (_AZURE_URI,))
    if is_managed and not uri.startswith("/subscriptions"):
        managed = (
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/"
            "disks/{disk-id}"
        )
        yield causes.not_supported(at(path, "diskURI"), uri, (managed,))


def _flocker(struct: Object, path: str) -> Iterator[Cause]:
    if not struct.get("datasetName") and not struct.get("datasetUUID"):
        yield causes.required(path, "one of datasetName and datasetUUID is required")


def _fibre_channel(struct: Object, path: str) -> Iterator[Cause]:
    names, ids = struct.get("targetWWNs"), struct.get("wwids")
    if not names and not ids:
        why = "must specify either targetWWNs or wwids, but not both"
        yield causes.required(at(path, "targetWWNs"), why)
    if names and struct.get("lun") is None:
        yield causes.required(at(path, "lun"), "lun is required if targetWWNs is specified")


def iqn_problems(name: str) -> Problems:
    """Check the name of an iSCSI target."""
    is_good = name.startswith(("iqn", "eui", "naa"))
    return () if is_good else ("must be valid format starting with iqn, eui, or naa",)


HOST_PATH: Final = (
    required("path"),
    well_formed("path", backstep_problems),
    supported(
        "type",
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ),
)
NFS: Final = (
    required("server"),
    required("path"),
    of_form("path", lambda path: () if path.startswith("/") else ("must be an absolute path",)),
)

NETWORK_SOURCES: Final[Mapping[str, Checks]] = {
    "gcePersistentDisk": (required("pdName"),),
    "awsElasticBlockStore": (required("volumeID"),),
    "iscsi": (required("targetPortal"), named("iqn", iqn_problems), between("lun", 0, 255)),
    "glusterfs": (required("endpoints"), required("path")),
    "flocker": (_flocker,),
    "rbd": (required("monitors"), required("image")),
    "cinder": (required("volumeID"),),
    "cephfs": (required("monitors"),),
    "quobyte": (
        required("registry", "must be a host:port pair or multiple pairs separated by commas"),
        required("volume"),
    ),
    "fc": (_fibre_channel,),
    "flexVolume": (required("driver"),),
    "azureFile": (required("secretName"), required("shareName")),
    "vsphereVolume": (required("volumePath"),),
    "photonPersistentDisk": (required("pdID"),),
    "portworxVolume": (required("volumeID"),),
    "azureDisk": (
        required("diskName"),
        required("diskURI"),
        supported("cachingMode", "None", "ReadOnly", "ReadWrite"),
        supported("kind", "Dedicated", "Managed", "Shared"),
        _azure_uri,
    ),
    "scaleIO": (required("gateway"), required("system"), required("volumeName")),
}

# Where the server's path differs from the field's name.
_SHOWN_AS: Final = {"gcePersistentDisk": "persistentDisk"}
_SHOWN_WHEN_SECOND: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}

_TOO_MANY: Final = "may not specify more than 1 volume type"


def one_source(sources: Mapping[str, Checks]) -> Check:
    """Check that exactly one source is given, and that it is right."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        given = [name for name in sources if struct.get(name) is not None]
        for name in given[:1]:
            place = at(path, _SHOWN_AS.get(name, name))
            yield from check_all(struct[name], place, sources[name])
        for name in given[1:]:
            yield causes.forbidden(at(path, _SHOWN_WHEN_SECOND.get(name, name)), _TOO_MANY)
        if not given:
            yield causes.required(path, "must specify a volume type")

    return check


def secret_reference(field: str) -> Check:
    """Check a reference to a secret that is there: both parts of its name."""
    return inside(field, required("name"), required("namespace"))


ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")

_SPEC_IS_IMMUTABLE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims"
)


def access_modes(spec: Object, path: str) -> Iterator[Cause]:
    """Check the ways a volume may be mounted."""
    modes = texts_in(spec, "accessModes")
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield causes.not_supported(at(path, "accessModes"), mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        yield causes.forbidden(at(path, "accessModes"), why)


def _storage_request(spec: Object, path: str) -> Iterator[Cause]:
    requests = struct_in(struct_in(spec, "resources"), "requests")
    if "storage" not in requests:
        yield causes.required(f"{path}.resources[storage]")
    elif parse_quantity(requests["storage"]).nanos <= 0:
        why = "must be greater than zero"
        yield causes.invalid(f"{path}.resources[storage]", requests["storage"], why)


def _data_source(field: str) -> Check:
    def check(spec: Object, path: str) -> Iterator[Cause]:
        source, place = spec.get(field), at(path, field)
        if source is None:
            return
        yield from required("name")(source, place)
        yield from required("kind")(source, place)
        if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
            why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            yield causes.invalid(place, source.get("kind", ""), why)

    return check


CLAIM_SPEC: Final = (
    required("accessModes", "at least 1 access mode is required"),
    selector("selector"),
    access_modes,
    _storage_request,
    well_formed("storageClassName", dns1123_subdomain_problems),
    supported("volumeMode", *VOLUME_MODES),
    well_formed("volumeAttributesClassName", dns1123_subdomain_problems),
    _data_source("dataSource"),
    _data_source("dataSourceRef"),
)
"""The checks of a claim's spec."""


def check_claim_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a claim: only what it asks for may grow, once it is bound."""
    spec, existing = struct_in(new, "spec"), struct_in(old, "spec")
    asked, had = _storage(spec), _storage(existing)
    changeable = {"volumeAttributesClassName", "resources"}
    if not existing.get("volumeName"):
        changeable |= {"volumeName"}
    fixed = {key: value for key, value in spec.items() if key not in changeable}
    fixed_before = {key: value for key, value in existing.items() if key not in changeable}
    is_bound = struct_in(old, "status").get("phase") == "Bound"
    if fixed != fixed_before or (asked != had and not is_bound):
        yield causes.forbidden("spec", _SPEC_IS_IMMUTABLE)
    elif asked < had:
        why = "field can not be less than status.capacity"
        yield causes.forbidden("spec.resources.requests.storage", why)


def _storage(spec: Object) -> int:
    requests = struct_in(struct_in(spec, "resources"), "requests")
    return parse_quantity(requests.get("storage", "0")).nanos


@dataclass(frozen=True, slots=True)
class VolumeFindings:
    """The volumes that may be mounted, and what is wrong with the others."""

    volumes: Mapping[str, Object]
    causes: tuple[Cause, ...]


def _mode(field: str) -> Check:
    return satisfies(field, is_file_mode, FILE_MODE)


_FILE_PATH: Final = (required("path"), well_formed("path", file_name_problems))
_ITEM: Final = (required("key"), *_FILE_PATH, _mode("mode"))


def _pod_files(source: Object, path: str) -> Iterator[Cause]:
    """Check files made from the pod; the server reports them without their index."""
    for file in structs_in(source, "items"):
        yield from check_all(file, path, _FILE_PATH)
        field, amount = file.get("fieldRef"), file.get("resourceFieldRef")
        if field is not None:
            yield from pod_field(IN_FILES)(field, at(path, "fieldRef"))
            if amount is not None:
                why = "fieldRef and resourceFieldRef can not be specified simultaneously"
                yield causes.invalid(path, "resource", why)
        elif amount is None:
            yield causes.required(path, "one of fieldRef and resourceFieldRef is required")
        elif not amount.get("containerName"):
            yield causes.required(f"{path}.resourceFieldRef.containerName")
        else:
            yield from container_amount(amount, at(path, "resourceFieldRef"))
        yield from _mode("mode")(file, path)


_TOKEN: Final = (
    satisfies(
        "expirationSeconds",
        lambda seconds: seconds >= 600,
        "may not specify a duration less than 10 minutes",
    ),
    satisfies(
        "expirationSeconds",
        lambda seconds: seconds <= 1 << 32,
        "may not specify a duration larger than 2^32 seconds",
    ),
    required("path"),
)
_PROJECTIONS: Final[Mapping[str, Checks]] = {
    "secret": (required("name"), each("items", *_ITEM)),
    "configMap": (required("name"), each("items", *_ITEM)),
    "downwardAPI": (_pod_files,),
    "serviceAccountToken": _TOKEN,
    "clusterTrustBundle": (*_FILE_PATH,),
}


def _projection(source: Object, path: str) -> Iterator[Cause]:
    given = [name for name in _PROJECTIONS if source.get(name) is not None]
    for name in given:
        yield from check_all(source[name], at(path, name), _PROJECTIONS[name])
    if len(given) > 1:
        yield causes.forbidden(path, "may not specify more than 1 volume type per source")


def _size_limit(source: Object, path: str) -> Iterator[Cause]:
    limit = source.get("sizeLimit")
    if limit is not None and parse_quantity(limit).nanos < 0:
        why = "SizeLimit field must be a valid resource quantity"
        yield causes.forbidden(at(path, "sizeLimit"), why)


_NETWORK_BEFORE_CLAIM: Final = ("iscsi", "glusterfs", "flocker")
_NETWORK_BEFORE_FILES: Final = ("rbd", "cinder", "cephfs", "quobyte")
_NETWORK_AFTER_FILES: Final = ("fc", "flexVolume")
_CLOUD: Final = ("azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume")


def _network(*names: str) -> dict[str, Checks]:
    return {name: NETWORK_SOURCES[name] for name in names}


def _sources(*, is_template: bool) -> Mapping[str, Checks]:
    """Return the sources in the order the server tries them."""
    image = () if is_template else (required("reference"),)
    return {
        "emptyDir": (_size_limit,),
        "hostPath": HOST_PATH,
        "gitRepo": (required("repository"),),
        **_network("gcePersistentDisk", "awsElasticBlockStore"),
        "secret": (required("secretName"), _mode("defaultMode"), each("items", *_ITEM)),
        "nfs": NFS,
        **_network(*_NETWORK_BEFORE_CLAIM),
        "persistentVolumeClaim": (required("claimName"),),
        **_network(*_NETWORK_BEFORE_FILES),
        "downwardAPI": (_mode("defaultMode"), _pod_files),
        **_network(*_NETWORK_AFTER_FILES),
        "configMap": (required("name"), _mode("defaultMode"), each("items", *_ITEM)),
        **_network(*_CLOUD, "azureDisk"),
        "storageos": (required("volumeName"),),
        "projected": (_mode("defaultMode"), each("sources", _projection)),
        **_network("scaleIO"),
        "csi": (driver, inside("nodePublishSecretRef", required("name"))),
        "ephemeral": (
            present("volumeClaimTemplate"),
            inside("volumeClaimTemplate", inside("spec", *CLAIM_SPEC)),
        ),
        "image": (*image, chosen("pullPolicy", "Always", "IfNotPresent", "Never")),
    }


_NAME: Final = named("name", dns1123_label_problems)
_POD_SOURCE: Final = one_source(_sources(is_template=False))
_TEMPLATE_SOURCE: Final = one_source(_sources(is_template=True))


def find_volumes(pod_spec: Object, path: str, *, is_template: bool) -> VolumeFindings:
    """Check a pod's volumes; one that is wrong cannot be mounted."""
    source = _TEMPLATE_SOURCE if is_template else _POD_SOURCE
    good: dict[str, Object] = {}
    wrong: list[Cause] = []
    for index, volume in enumerate(structs_in(pod_spec, "volumes")):
        place = f"{path}.volumes[{index}]"
        found = [*source(volume, place), *_NAME(volume, place)]
        if volume.get("name") in good:
            found.append(causes.duplicate(at(place, "name"), volume["name"]))
        if found:
            wrong += found
        else:
            good[volume["name"]] = volume
    return VolumeFindings(good, tuple(wrong))
