"""The rules of containers: names, images, ports, mounts, and what init containers may not have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.builtins.validation.formats import (
    backstep_problems,
    port_name_problems,
    port_problems,
    relative_path_problems,
)
from clusterspace.builtins.validation.pods.environment import ENVIRONMENT
from clusterspace.builtins.validation.pods.probes import probes
from clusterspace.builtins.validation.pods.resources import check_requirements
from clusterspace.builtins.validation.pods.security import CONTAINER_SECURITY
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    check_all,
    chosen,
    named,
    not_found,
    problems_at,
    required,
    struct_in,
    structs_in,
    supported,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import Object

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_ONLY_SIDECARS: Final = "may not be set for init containers without restartPolicy=Always"
_BLOCK_SOURCES: Final = ("persistentVolumeClaim", "ephemeral")


@dataclass(frozen=True, slots=True)
class PodContext:
    """What the rules of a container need to know of its pod."""

    volumes: Mapping[str, Object]
    grace_seconds: int
    is_template: bool


def _ports(container: Object, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(structs_in(container, "ports")):
        place, name = f"{path}.ports[{index}]", port.get("name", "")
        problems = port_name_problems(name) if name else ()
        yield from problems_at(f"{place}.name", name, problems)
        if name and not problems and name in seen:
            yield causes.duplicate(f"{place}.name", name)
        seen.add(name)
        yield from _port_numbers(port, place)


def _port_numbers(port: Object, path: str) -> Iterator[Cause]:
    number, on_host = port.get("containerPort", 0), port.get("hostPort", 0)
    if not number:
        yield causes.required(at(path, "containerPort"))
    else:
        yield from problems_at(at(path, "containerPort"), number, port_problems(number))
    if on_host:
        yield from problems_at(at(path, "hostPort"), on_host, port_problems(on_host))
    if port.get("protocol") not in _PROTOCOLS:
        yield causes.not_supported(at(path, "protocol"), port.get("protocol"), _PROTOCOLS)


def check_host_ports(containers: list[Object], path: str) -> Iterator[Cause]:
    """Check that no two containers want the same port of the node."""
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(structs_in(container, "ports")):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if key in seen:
                yield causes.duplicate(f"{path}[{index}].ports[{number}].hostPort", key)
            seen.add(key)


def _mounts(context: PodContext) -> Check:
    def check(container: Object, path: str) -> Iterator[Cause]:
        devices = {each.get("name"): each for each in structs_in(container, "volumeDevices")}
        seen: set[str] = set()
        for index, mount in enumerate(structs_in(container, "volumeMounts")):
            place, where = f"{path}.volumeMounts[{index}]", mount.get("mountPath", "")
            yield from _mounted_volume(mount, place, context.volumes)
            if not where:
                yield causes.required(at(place, "mountPath"))
            if where in seen:
                yield causes.invalid(at(place, "mountPath"), where, "must be unique")
            seen.add(where)
            if mount.get("name") in devices:
                why = "must not already exist in volumeDevices"
                yield causes.invalid(at(place, "name"), mount["name"], why)
            yield from _mount_options(mount, container, f"{path}.volumeMounts")

    return check


def _mounted_volume(mount: Object, path: str, volumes: Mapping[str, Object]) -> Iterator[Cause]:
    name = mount.get("name", "")
    if not name:
        yield causes.required(at(path, "name"))
    if name not in volumes:
        yield not_found(at(path, "name"), name)


def _mount_options(mount: Object, container: Object, path: str) -> Iterator[Cause]:
    """Check how a volume is mounted; the server reports these without the mount's index."""
    for field in ("subPath", "subPathExpr"):
        if mount.get(field):
            problems = relative_path_problems(mount[field])
            yield from problems_at(at(path, field), mount[field], problems)
    yield from _PROPAGATION(mount, path)
    is_privileged = struct_in(container, "securityContext").get("privileged")
    if mount.get("mountPropagation") == "Bidirectional" and not is_privileged:
        why = "Bidirectional mount propagation is available only to privileged containers"
        yield causes.forbidden(at(path, "mountPropagation"), why)
    yield from _RECURSIVE(mount, path)
    is_recursive = mount.get("recursiveReadOnly") in ("Enabled", "IfPossible")
    if is_recursive and not mount.get("readOnly"):
        why = "may only be specified when readOnly is true"
        yield causes.forbidden(at(path, "recursiveReadOnly"), why)


_PROPAGATION: Final = supported("mountPropagation", "Bidirectional", "HostToContainer", "None")
_RECURSIVE: Final = supported("recursiveReadOnly", "Disabled", "Enabled", "IfPossible")


def _devices(context: PodContext) -> Check:
    def check(container: Object, path: str) -> Iterator[Cause]:
        names: set[str] = set()
        paths: set[str] = set()
        for index, device in enumerate(structs_in(container, "volumeDevices")):
            place = f"{path}.volumeDevices[{index}]"
            name, where = device.get("name", ""), device.get("devicePath", "")
            yield from _device_volume(name, at(place, "name"), names, context.volumes)
            if not where:
                yield causes.required(at(place, "devicePath"))
            if where in paths:
                yield causes.invalid(at(place, "devicePath"), where, "must be unique")
            if backstep_problems(where):
                why = "can not contain backsteps ('..')"
                yield causes.invalid(at(place, "devicePath"), where, why)
            names.add(name)
            paths.add(where)

    return check


def _device_volume(
    name: str, path: str, names: set[str], volumes: Mapping[str, Object]
) -> Iterator[Cause]:
    if not name:
        yield causes.required(path)
    if name in names:
        yield causes.invalid(path, name, "must be unique")
    volume = volumes.get(name)
    if volume is None:
        yield not_found(path, name)
    elif not any(source in volume for source in _BLOCK_SOURCES):
        why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        yield causes.invalid(path, name, why)


def _image_spelling(container: Object, path: str) -> Iterator[Cause]:
    image = str(container.get("image") or "")
    if image != image.strip():
        why = "must not have leading or trailing whitespace"
        yield causes.invalid(at(path, "image"), image, why)


def _resources(container: Object, path: str) -> Iterator[Cause]:
    return check_requirements(struct_in(container, "resources"), at(path, "resources"))


def container_checks(context: PodContext) -> tuple[Check, ...]:
    """Return the checks every kind of container has, in their order."""
    return (
        named("name", dns1123_label_problems),
        required("image"),
        chosen("terminationMessagePolicy", "File", "FallbackToLogsOnError"),
        _ports,
        *ENVIRONMENT,
        _mounts(context),
        _devices(context),
        chosen("imagePullPolicy", "Always", "IfNotPresent", "Never"),
        _resources,
        CONTAINER_SECURITY,
    )


_RESTART: Final = supported("restartPolicy", "Always", "Never", "OnFailure")


def check_containers(pod_spec: Object, path: str, context: PodContext) -> Iterator[Cause]:
    """Check the containers that make up the pod."""
    containers, place = structs_in(pod_spec, "containers"), at(path, "containers")
    if not containers:
        yield causes.required(place)
        return
    checks = container_checks(context)
    names: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{place}[{index}]"
        yield from check_all(container, here, checks)
        if container.get("name") in names:
            yield causes.duplicate(at(here, "name"), container["name"])
        names.add(str(container.get("name")))
        yield from check_all(container, here, (*probes(context.grace_seconds), _RESTART))
    yield from check_host_ports(containers, place)


def check_init_containers(pod_spec: Object, path: str, context: PodContext) -> Iterator[Cause]:
    """Check the containers that run before the rest, or, restarted for ever, beside them."""
    names = {each.get("name") for each in structs_in(pod_spec, "containers")}
    checks = container_checks(context)
    for index, container in enumerate(structs_in(pod_spec, "initContainers")):
        here = f"{path}.initContainers[{index}]"
        yield from check_all(container, here, (*checks, _RESTART))
        if container.get("name") in names:
            yield causes.duplicate(at(here, "name"), container["name"])
        elif container.get("name"):
            names.add(container["name"])
        yield from check_host_ports([container], f"{path}.initContainers")
        if container.get("restartPolicy") == "Always":
            yield from check_all(container, here, probes(context.grace_seconds))
        else:
            yield from _only_for_sidecars(container, here)


def _only_for_sidecars(container: Object, path: str) -> Iterator[Cause]:
    for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(field) is not None:
            yield causes.forbidden(at(path, field), _ONLY_SIDECARS)


def check_image_spelling(pod_spec: Object, path: str) -> Iterator[Cause]:
    """Check what is checked of images in pods, but not in templates."""
    for field in ("containers", "initContainers"):
        for index, container in enumerate(structs_in(pod_spec, field)):
            yield from _image_spelling(container, f"{path}.{field}[{index}]")
