"""The rules of containers: environment, probes, security, ports, mounts.

Init containers have most of them too, and some fields they may not have.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.builtins.validation.formats import (
    backstep_problems,
    config_key_problems,
    environment_name_problems,
    http_header_problems,
    port_name_problems,
    port_or_name_problems,
    port_problems,
    relative_path_problems,
    user_id_problems,
)
from clusterspace.builtins.validation.resources import check_requirements
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    check_all,
    chosen,
    each,
    inside,
    invalid_struct,
    named,
    not_found,
    not_negative,
    of_form,
    one_of,
    positive,
    problems_at,
    required,
    satisfies,
    struct_in,
    structs_in,
    supported,
    well_formed,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1123_label_problems,
    dns1123_subdomain_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object

_CONVERTIBLE: Final = frozenset(
    {
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "spec.hostNetwork",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    }
)
_IN_ENVIRONMENT: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
IN_FILES: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
"""The fields of a pod that can be projected into files."""

_CONTAINER_AMOUNTS: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)


def pod_field(supported: tuple[str, ...]) -> Check:
    """Check a reference to a field of the pod."""

    def check(reference: Object, path: str) -> Iterator[Cause]:
        field = str(reference.get("fieldPath") or "")
        if not field:
            yield causes.required(at(path, "fieldPath"))
        name, bracket, rest = field.partition("['")
        if name not in _CONVERTIBLE:
            why = f"error converting fieldPath: field label not supported: {field}"
            yield causes.invalid(at(path, "fieldPath"), field, why)
        elif bracket:
            key = rest.removesuffix("']")
            if name == "metadata.annotations":
                yield from problems_at(path, key.lower(), qualified_name_problems(key.lower()))
            elif name == "metadata.labels":
                yield from problems_at(path, key, qualified_name_problems(key))
            else:
                yield causes.invalid(path, name, "does not support subscript")
        elif field not in supported:
            yield causes.not_supported(at(path, "fieldPath"), field, supported)

    return check


def container_amount(reference: Object, path: str) -> Iterator[Cause]:
    """Check a reference to what a container asks for or may use."""
    resource = str(reference.get("resource") or "")
    if not resource:
        yield causes.required(at(path, "resource"))
    elif resource not in _CONTAINER_AMOUNTS and not resource.startswith(_HUGE_PAGES):
        yield causes.not_supported(at(path, "resource"), resource, _CONTAINER_AMOUNTS)


_HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")

_KEY_REFERENCE: Final = (
    of_form("name", dns1123_subdomain_problems),
    named("key", config_key_problems),
)

_SOURCES: Final[dict[str, tuple[Check, ...]]] = {
    "fieldRef": (pod_field(_IN_ENVIRONMENT),),
    "resourceFieldRef": (container_amount,),
    "configMapKeyRef": _KEY_REFERENCE,
    "secretKeyRef": _KEY_REFERENCE,
    "fileKeyRef": (
        named("key", environment_name_problems),
        required("volumeName"),
        required("path"),
    ),
}


def _value_source(variable: Object, path: str) -> Iterator[Cause]:
    source, place = variable.get("valueFrom"), at(path, "valueFrom")
    if source is None:
        return
    given = [field for field in _SOURCES if source.get(field) is not None]
    for field in given:
        yield from check_all(source[field], at(place, field), _SOURCES[field])
    if not given:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield causes.invalid(place, "", f"must specify one of: {listed}")
    elif variable.get("value"):
        yield causes.invalid(place, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield causes.invalid(place, "", "may not have more than one field specified at a time")


def _one_bulk_source(source: Object, path: str) -> Iterator[Cause]:
    given = [each for each in ("configMapRef", "secretRef") if source.get(each) is not None]
    place = path.rpartition("[")[0]
    if not given:
        yield causes.invalid(place, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(given) > 1:
        yield causes.invalid(place, "", "may not have more than one field specified at a time")


ENVIRONMENT: Final = (
    each("env", named("name", environment_name_problems), _value_source),
    each(
        "envFrom",
        well_formed("prefix", environment_name_problems),
        inside("configMapRef", named("name", dns1123_subdomain_problems)),
        inside("secretRef", named("name", dns1123_subdomain_problems)),
        _one_bulk_source,
    ),
)
"""The checks of a container's `env` and `envFrom`."""


_TOO_MANY: Final = "may not specify more than 1 handler type"


def port_or_name(struct: Object, path: str) -> Iterator[Cause]:
    """Check a port that is a number or a name."""
    port = struct.get("port") or struct.get("port", 0)
    return problems_at(at(path, "port"), port, port_or_name_problems(port))


def _headers(struct: Object, path: str) -> Iterator[Cause]:
    for header in structs_in(struct, "httpHeaders"):
        name = header.get("name", "")
        yield from problems_at(at(path, "httpHeaders"), name, http_header_problems(name))


_HANDLERS: Final[dict[str, tuple[Check, ...]]] = {
    "exec": (required("command"),),
    "httpGet": (required("path"), port_or_name, one_of("scheme", "HTTP", "HTTPS"), _headers),
    "tcpSocket": (port_or_name,),
    "grpc": (port_or_name,),
    "sleep": (),
}


def handler(grace_seconds: int) -> Check:
    """Check that one handler is given; sleeping must end before the pod is killed."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        given = [name for name in _HANDLERS if struct.get(name) is not None]
        for name in given[:1]:
            yield from check_all(struct[name], at(path, name), _HANDLERS[name])
        for name in given[1:]:
            yield causes.forbidden(at(path, name), _TOO_MANY)
        if not given:
            yield causes.required(path, "must specify a handler type")
        if given[:1] == ["sleep"] and not 0 <= struct["sleep"].get("seconds", 0) <= grace_seconds:
            why = (
                "must be non-negative and less than terminationGracePeriodSeconds "
                f"({grace_seconds})"
            )
            yield causes.invalid(at(path, "sleep"), struct["sleep"].get("seconds", 0), why)

    return check


_TIMING: Final = (
    not_negative("initialDelaySeconds"),
    not_negative("timeoutSeconds"),
    not_negative("periodSeconds"),
    not_negative("successThreshold"),
    not_negative("failureThreshold"),
    positive("terminationGracePeriodSeconds"),
)
_SUCCEEDS_ONCE: Final = satisfies("successThreshold", lambda value: value == 1, "must be 1")
_NO_GRACE: Final = satisfies(
    "terminationGracePeriodSeconds", lambda _: False, "must not be set for readinessProbes"
)


def probes(grace_seconds: int) -> tuple[Check, ...]:
    """Return the checks of a container's lifecycle hooks and probes, in their order."""
    one_handler = handler(grace_seconds)
    return (
        inside("lifecycle", inside("postStart", one_handler), inside("preStop", one_handler)),
        inside("livenessProbe", one_handler, *_TIMING, _SUCCEEDS_ONCE),
        inside("readinessProbe", one_handler, *_TIMING, _NO_GRACE),
        inside("startupProbe", one_handler, *_TIMING, _SUCCEEDS_ONCE),
    )


_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_LENGTH: Final = 253


def identity(field: str) -> Check:
    """Check a numeric user or group."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        number = struct.get(field)
        if number is not None:
            yield from problems_at(at(path, field), number, user_id_problems(number))

    return check


def _profile(field: str, noun: str) -> Check:
    """Check a seccomp or AppArmor profile: a known type, and a file only when it is local."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        profile, place = struct.get(field), at(path, field)
        if profile is None:
            return
        kind, local = profile.get("type"), profile.get("localhostProfile")
        if kind == "Localhost" and not local:
            why = f"must be set when {noun} type is Localhost"
            yield causes.required(at(place, "localhostProfile"), why)
        elif kind not in ("Localhost", None, "") and local is not None:
            why = f"can only be set when {noun} type is Localhost"
            yield causes.invalid(at(place, "localhostProfile"), local, why)
        if not kind:
            yield causes.required(at(place, "type"), f"type is required when {field} is set")
        elif kind not in _PROFILE_TYPES:
            yield causes.not_supported(at(place, "type"), kind, _PROFILE_TYPES)

    return check


_PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")


def _no_escalation(context: Object, path: str) -> Iterator[Cause]:
    if context.get("allowPrivilegeEscalation") is not False:
        return
    shown = internal_form(context)
    if context.get("privileged"):
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield invalid_struct(path, shown, why)
    if "CAP_SYS_ADMIN" in ((struct_in(context, "capabilities")).get("add") or []):
        why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        yield invalid_struct(path, shown, why)


def internal_form(context: Object) -> dict[str, Any]:
    """Return a container's context as the server's messages show it: every field, by its name."""
    capabilities = context.get("capabilities")
    seccomp, apparmor = context.get("seccompProfile"), context.get("appArmorProfile")
    return {
        "Capabilities": capabilities
        and {"Add": capabilities.get("add"), "Drop": capabilities.get("drop")},
        "Privileged": context.get("privileged"),
        "SELinuxOptions": context.get("seLinuxOptions"),
        "WindowsOptions": context.get("windowsOptions"),
        "RunAsUser": context.get("runAsUser"),
        "RunAsGroup": context.get("runAsGroup"),
        "RunAsNonRoot": context.get("runAsNonRoot"),
        "ReadOnlyRootFilesystem": context.get("readOnlyRootFilesystem"),
        "AllowPrivilegeEscalation": context.get("allowPrivilegeEscalation"),
        "ProcMount": context.get("procMount"),
        "SeccompProfile": seccomp and _profile_form(seccomp),
        "AppArmorProfile": apparmor and _profile_form(apparmor),
    }


def _profile_form(profile: Object) -> Object:
    return {"Type": profile.get("type"), "LocalhostProfile": profile.get("localhostProfile")}


CONTAINER_SECURITY: Final = inside(
    "securityContext",
    identity("runAsUser"),
    identity("runAsGroup"),
    supported("procMount", "Default", "Unmasked"),
    _profile("seccompProfile", "seccomp"),
    _no_escalation,
    _profile("appArmorProfile", "AppArmor"),
)
"""The check of a container's security context."""


def _groups_and_sysctls(context: Object, path: str) -> Iterator[Cause]:
    groups = cast("list[int]", context.get("supplementalGroups") or [])
    for index, number in enumerate(groups):
        place = f"{path}.supplementalGroups[{index}]"
        yield from problems_at(place, number, user_id_problems(number))
    seen: set[str] = set()
    for index, sysctl in enumerate(structs_in(context, "sysctls")):
        place, name = f"{path}.sysctls[{index}].name", sysctl.get("name", "")
        if not name:
            yield causes.required(place)
        elif len(name) > _SYSCTL_LENGTH or not re.fullmatch(_SYSCTL, name):
            why = f"must have at most {_SYSCTL_LENGTH} characters and match regex ^{_SYSCTL}$"
            yield causes.invalid(place, name, why)
        elif name in seen:
            yield causes.duplicate(place, name)
        seen.add(name)


POD_SECURITY: Final = inside(
    "securityContext",
    identity("fsGroup"),
    identity("runAsUser"),
    identity("runAsGroup"),
    _groups_and_sysctls,
    supported("fsGroupChangePolicy", "Always", "OnRootMismatch"),
    _profile("seccompProfile", "seccomp"),
    _profile("appArmorProfile", "AppArmor"),
    supported("supplementalGroupsPolicy", "Merge", "Strict"),
    supported("seLinuxChangePolicy", "Recursive"),
)
"""The check of a pod's security context."""


_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_ONLY_SIDECARS: Final = "may not be set for init containers without restartPolicy=Always"
_BLOCK_SOURCES: Final = ("persistentVolumeClaim", "ephemeral")


@dataclass(frozen=True, slots=True)
class PodContext:
    """What the rules of a container need to know of its pod."""

    volumes: Mapping[str, Object]
    grace_seconds: int
    is_template: bool


def _check_container(container: Object, path: str, context: PodContext) -> Iterator[Cause]:
    """Check what every kind of container has, in the order the server does."""
    yield from named("name", dns1123_label_problems)(container, path)
    yield from required("image")(container, path)
    yield from chosen("terminationMessagePolicy", "File", "FallbackToLogsOnError")(container, path)
    seen: set[str] = set()
    for index, port in enumerate(structs_in(container, "ports")):
        place, name = f"{path}.ports[{index}]", port.get("name", "")
        problems = port_name_problems(name) if name else ()
        yield from problems_at(f"{place}.name", name, problems)
        if name and not problems and name in seen:
            yield causes.duplicate(f"{place}.name", name)
        seen.add(name)
        number, on_host = port.get("containerPort", 0), port.get("hostPort", 0)
        if not number:
            yield causes.required(at(place, "containerPort"))
        else:
            yield from problems_at(at(place, "containerPort"), number, port_problems(number))
        if on_host:
            yield from problems_at(at(place, "hostPort"), on_host, port_problems(on_host))
        if port.get("protocol") not in _PROTOCOLS:
            yield causes.not_supported(at(place, "protocol"), port.get("protocol"), _PROTOCOLS)
    yield from check_all(container, path, ENVIRONMENT)
    yield from _check_mounts(container, path, context.volumes)
    yield from _check_devices(container, path, context.volumes)
    yield from chosen("imagePullPolicy", "Always", "IfNotPresent", "Never")(container, path)
    yield from check_requirements(struct_in(container, "resources"), at(path, "resources"))
    yield from CONTAINER_SECURITY(container, path)


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


def _check_mounts(container: Object, path: str, volumes: Mapping[str, Object]) -> Iterator[Cause]:
    devices = {each.get("name"): each for each in structs_in(container, "volumeDevices")}
    seen: set[str] = set()
    for index, mount in enumerate(structs_in(container, "volumeMounts")):
        place, where = f"{path}.volumeMounts[{index}]", mount.get("mountPath", "")
        name = mount.get("name", "")
        if not name:
            yield causes.required(at(place, "name"))
        if name not in volumes:
            yield not_found(at(place, "name"), name)
        if not where:
            yield causes.required(at(place, "mountPath"))
        if where in seen:
            yield causes.invalid(at(place, "mountPath"), where, "must be unique")
        seen.add(where)
        if mount.get("name") in devices:
            why = "must not already exist in volumeDevices"
            yield causes.invalid(at(place, "name"), mount["name"], why)
        # The server reports how a volume is mounted without the mount's index.
        here = f"{path}.volumeMounts"
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                problems = relative_path_problems(mount[field])
                yield from problems_at(at(here, field), mount[field], problems)
        yield from _PROPAGATION(mount, here)
        is_privileged = struct_in(container, "securityContext").get("privileged")
        if mount.get("mountPropagation") == "Bidirectional" and not is_privileged:
            why = "Bidirectional mount propagation is available only to privileged containers"
            yield causes.forbidden(at(here, "mountPropagation"), why)
        yield from _RECURSIVE(mount, here)
        is_recursive = mount.get("recursiveReadOnly") in ("Enabled", "IfPossible")
        if is_recursive and not mount.get("readOnly"):
            why = "may only be specified when readOnly is true"
            yield causes.forbidden(at(here, "recursiveReadOnly"), why)


_PROPAGATION: Final = supported("mountPropagation", "Bidirectional", "HostToContainer", "None")
_RECURSIVE: Final = supported("recursiveReadOnly", "Disabled", "Enabled", "IfPossible")


def _check_devices(container: Object, path: str, volumes: Mapping[str, Object]) -> Iterator[Cause]:
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(structs_in(container, "volumeDevices")):
        place = f"{path}.volumeDevices[{index}]"
        name, where = device.get("name", ""), device.get("devicePath", "")
        here = at(place, "name")
        if not name:
            yield causes.required(here)
        if name in names:
            yield causes.invalid(here, name, "must be unique")
        volume = volumes.get(name)
        if volume is None:
            yield not_found(here, name)
        elif not any(source in volume for source in _BLOCK_SOURCES):
            why = (
                "can only use volume source type of PersistentVolumeClaim or Ephemeral "
                "for block mode"
            )
            yield causes.invalid(here, name, why)
        if not where:
            yield causes.required(at(place, "devicePath"))
        if where in paths:
            yield causes.invalid(at(place, "devicePath"), where, "must be unique")
        if backstep_problems(where):
            why = "can not contain backsteps ('..')"
            yield causes.invalid(at(place, "devicePath"), where, why)
        names.add(name)
        paths.add(where)


_RESTART: Final = supported("restartPolicy", "Always", "Never", "OnFailure")


def check_containers(pod_spec: Object, path: str, context: PodContext) -> Iterator[Cause]:
    """Check the containers that make up the pod."""
    containers, place = structs_in(pod_spec, "containers"), at(path, "containers")
    if not containers:
        yield causes.required(place)
        return
    names: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{place}[{index}]"
        yield from _check_container(container, here, context)
        if container.get("name") in names:
            yield causes.duplicate(at(here, "name"), container["name"])
        names.add(str(container.get("name")))
        yield from check_all(container, here, (*probes(context.grace_seconds), _RESTART))
    yield from check_host_ports(containers, place)


def check_init_containers(pod_spec: Object, path: str, context: PodContext) -> Iterator[Cause]:
    """Check the containers that run before the rest, or, restarted for ever, beside them."""
    names = {each.get("name") for each in structs_in(pod_spec, "containers")}
    for index, container in enumerate(structs_in(pod_spec, "initContainers")):
        here = f"{path}.initContainers[{index}]"
        yield from _check_container(container, here, context)
        yield from _RESTART(container, here)
        if container.get("name") in names:
            yield causes.duplicate(at(here, "name"), container["name"])
        elif container.get("name"):
            names.add(container["name"])
        yield from check_host_ports([container], f"{path}.initContainers")
        if container.get("restartPolicy") == "Always":
            yield from check_all(container, here, probes(context.grace_seconds))
        else:
            for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                if container.get(field) is not None:
                    yield causes.forbidden(at(here, field), _ONLY_SIDECARS)


def check_image_spelling(pod_spec: Object, path: str) -> Iterator[Cause]:
    """Check what is checked of images in pods, but not in templates."""
    for field in ("containers", "initContainers"):
        for index, container in enumerate(structs_in(pod_spec, field)):
            image = str(container.get("image") or "")
            if image != image.strip():
                why = "must not have leading or trailing whitespace"
                yield causes.invalid(at(f"{path}.{field}[{index}]", "image"), image, why)
