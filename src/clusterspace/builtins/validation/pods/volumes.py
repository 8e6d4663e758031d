"""The rules of a pod's volumes: names, and exactly one source for each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.builtins.validation.claims import CLAIM_SPEC
from clusterspace.builtins.validation.formats import FILE_MODE, file_name_problems, is_file_mode
from clusterspace.builtins.validation.pods.environment import IN_FILES, container_amount, pod_field
from clusterspace.builtins.validation.rules import (
    Check,
    Checks,
    at,
    check_all,
    chosen,
    each,
    inside,
    named,
    present,
    required,
    satisfies,
    structs_in,
    well_formed,
)
from clusterspace.builtins.validation.volume_sources import (
    HOST_PATH,
    NETWORK_SOURCES,
    NFS,
    driver,
    one_source,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

_LEAST_TOKEN_SECONDS: Final = 600
_MOST_TOKEN_SECONDS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class VolumeFindings:
    """The volumes that may be mounted, and what is wrong with the others."""

    volumes: Mapping[str, Object]
    causes: tuple[Cause, ...]


def _mode(field: str) -> Check:
    return satisfies(field, is_file_mode, FILE_MODE)


_FILE_PATH: Final = (required("path"), well_formed("path", file_name_problems))
_ITEM: Final = (required("key"), *_FILE_PATH, _mode("mode"))


def _pod_file(file: Object, path: str) -> Iterator[Cause]:
    """Check a file made from the pod itself."""
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


def _pod_files(source: Object, path: str) -> Iterator[Cause]:
    """Check files made from the pod; the server reports them without their index."""
    for file in structs_in(source, "items"):
        yield from _pod_file(file, path)


def _token_lifetime(token: Object, path: str) -> Iterator[Cause]:
    seconds, place = token.get("expirationSeconds", 0), at(path, "expirationSeconds")
    if seconds < _LEAST_TOKEN_SECONDS:
        why = "may not specify a duration less than 10 minutes"
        yield causes.invalid(place, seconds, why)
    if seconds > _MOST_TOKEN_SECONDS:
        yield causes.invalid(place, seconds, "may not specify a duration larger than 2^32 seconds")


_PROJECTIONS: Final[Mapping[str, Checks]] = {
    "secret": (required("name"), each("items", *_ITEM)),
    "configMap": (required("name"), each("items", *_ITEM)),
    "downwardAPI": (_pod_files,),
    "serviceAccountToken": (_token_lifetime, required("path")),
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
