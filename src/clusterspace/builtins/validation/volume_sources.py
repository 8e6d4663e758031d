"""The rules of volume sources, which pods and PersistentVolumes share.

Each source is a table of checks. Which order they are tried in matters: of several sources given,
the first is checked and each of the others is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from clusterspace.builtins.validation.formats import backstep_problems
from clusterspace.builtins.validation.rules import (
    Check,
    Checks,
    at,
    between,
    check_all,
    inside,
    required,
    supported,
    well_formed,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import Problems, dns1123_subdomain_problems
from clusterspace.kube.objects import Object

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


def _absolute_path(struct: Object, path: str) -> Iterator[Cause]:
    where = str(struct.get("path") or "")
    if not where.startswith("/"):
        yield causes.invalid(at(path, "path"), where, "must be an absolute path")


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


def _iqn(struct: Object, path: str) -> Iterator[Cause]:
    name = str(struct.get("iqn") or "")
    if not name:
        yield causes.required(at(path, "iqn"))
    elif not name.startswith(("iqn", "eui", "naa")):
        why = "must be valid format starting with iqn, eui, or naa"
        yield causes.invalid(at(path, "iqn"), name, why)


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
NFS: Final = (required("server"), required("path"), _absolute_path)

NETWORK_SOURCES: Final[Mapping[str, Checks]] = {
    "gcePersistentDisk": (required("pdName"),),
    "awsElasticBlockStore": (required("volumeID"),),
    "iscsi": (required("targetPortal"), _iqn, between("lun", 0, 255)),
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
