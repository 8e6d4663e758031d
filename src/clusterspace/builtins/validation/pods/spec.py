"""The rules of a pod's spec as a whole, of pods and of pod templates."""

from collections.abc import Iterator
from typing import Any, Final

from clusterspace.builtins.validation.formats import address_problems
from clusterspace.builtins.validation.metadata import check_annotations, check_labels
from clusterspace.builtins.validation.pods.containers import (
    PodContext,
    check_containers,
    check_image_spelling,
    check_init_containers,
)
from clusterspace.builtins.validation.pods.placement import AFFINITY, SPREAD, TOLERATIONS
from clusterspace.builtins.validation.pods.resources import check_requirements
from clusterspace.builtins.validation.pods.security import POD_SECURITY
from clusterspace.builtins.validation.pods.volumes import find_volumes
from clusterspace.builtins.validation.rules import (
    at,
    between,
    check_all,
    chosen,
    each,
    if_set,
    of_form,
    problems_at,
    struct_in,
    structs_in,
    texts_in,
    well_formed,
)
from clusterspace.builtins.validation.selectors import labels
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1123_label_problems,
    dns1123_subdomain_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object, metadata_of

_LARGEST_INT32: Final = (1 << 31) - 1
_MOST_NAME_SERVERS: Final = 3
_MOST_SEARCHES: Final = 32
_DEFAULT_GRACE: Final = 30


def check_pod_spec(spec: Object, path: str, *, is_template: bool) -> Iterator[Cause]:
    """Check a pod's spec, in the order the server does."""
    found = find_volumes(spec, path, is_template=is_template)
    yield from found.causes
    grace: Any = spec.get("terminationGracePeriodSeconds")
    context = PodContext(found.volumes, _DEFAULT_GRACE if grace is None else grace, is_template)
    yield from check_containers(spec, path, context)
    yield from check_init_containers(spec, path, context)
    yield from _host_network_ports(spec, path, is_template=is_template)
    yield from check_all(spec, path, _SPEC)


def check_pod_template(template: Object, path: str) -> Iterator[Cause]:
    """Check a template of pods."""
    metadata = metadata_of(template)
    yield from check_labels(struct_in(metadata, "labels"), at(path, "labels"))
    yield from check_annotations(struct_in(metadata, "annotations"), at(path, "annotations"))
    spec = struct_in(template, "spec")
    yield from check_pod_spec(spec, at(path, "spec"), is_template=True)
    if spec.get("ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        yield causes.forbidden(f"{path}.spec.ephemeralContainers", why)


def check_pod(pod: Object) -> Iterator[Cause]:
    """Check a pod beyond its metadata, new or changed."""
    spec = struct_in(pod, "spec")
    yield from check_pod_spec(spec, "spec", is_template=False)
    if not spec.get("serviceAccountName"):
        yield from _token_volumes(spec)
    yield from check_image_spelling(spec, "spec")


def check_new_pod(pod: Object) -> Iterator[Cause]:
    """Check what a pod may not have at first."""
    spec = struct_in(pod, "spec")
    if spec.get("ephemeralContainers"):
        yield causes.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        why = "cannot be set until all schedulingGates have been cleared"
        yield causes.forbidden("spec.nodeName", why)


def _token_volumes(spec: Object) -> Iterator[Cause]:
    for index, volume in enumerate(structs_in(spec, "volumes")):
        sources = structs_in(struct_in(volume, "projected"), "sources")
        for number, source in enumerate(sources):
            if source.get("serviceAccountToken") is not None:
                place = f"spec.volumes[{index}].projected.sources[{number}].serviceAccountToken"
                why = "must not be specified when serviceAccountName is not set"
                yield causes.forbidden(place, why)


def _host_network_ports(spec: Object, path: str, *, is_template: bool) -> Iterator[Cause]:
    if not spec.get("hostNetwork"):
        return
    for index, container in enumerate(structs_in(spec, "containers")):
        for number, port in enumerate(structs_in(container, "ports")):
            on_host = port.get("hostPort", 0)
            if (on_host or not is_template) and on_host != port.get("containerPort", 0):
                place = f"{path}.containers[{index}].ports[{number}].hostPort"
                why = "must match `containerPort` when `hostNetwork` is true"
                yield causes.invalid(place, on_host, why)


def _dns(spec: Object, path: str) -> Iterator[Cause]:
    config, place = spec.get("dnsConfig"), at(path, "dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield causes.required(place, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield causes.required(at(place, "nameservers"), why)
            return
    if config is not None:
        yield from _dns_config(config, place)


def _dns_config(config: Object, path: str) -> Iterator[Cause]:
    servers, searches = texts_in(config, "nameservers"), texts_in(config, "searches")
    if len(servers) > _MOST_NAME_SERVERS:
        why = f"must not have more than {_MOST_NAME_SERVERS} nameservers"
        yield causes.invalid(at(path, "nameservers"), servers, why)
    for index, address in enumerate(servers):
        yield from problems_at(f"{path}.nameservers[{index}]", address, address_problems(address))
    if len(searches) > _MOST_SEARCHES:
        why = f"must not have more than {_MOST_SEARCHES} search paths"
        yield causes.invalid(at(path, "searches"), searches, why)
    for index, option in enumerate(structs_in(config, "options")):
        if not option.get("name"):
            yield causes.required(f"{path}.options[{index}]", "must not be empty")


def _gates(spec: Object, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, gate in enumerate(structs_in(spec, "schedulingGates")):
        place, name = f"{path}.schedulingGates[{index}]", gate.get("name", "")
        yield from problems_at(place, name, qualified_name_problems(name))
        if name in seen:
            yield causes.duplicate(place, name)
        seen.add(name)


def _host_users(spec: Object, path: str) -> Iterator[Cause]:
    if spec.get("hostUsers") is not False:
        return
    for field, shown in _NEEDS_HOST_USERS:
        if spec.get(field):
            yield causes.forbidden(at(path, shown), "when `hostUsers` is false")


_NEEDS_HOST_USERS: Final = (
    ("hostNetwork", "hostNetwork"),
    ("hostPID", "HostPID"),
    ("hostIPC", "HostIPC"),
)


def _hostname_override(spec: Object, path: str) -> Iterator[Cause]:
    name, place = spec.get("hostnameOverride"), at(path, "hostnameOverride")
    if name is None:
        return
    for field in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(field):
            yield causes.forbidden(place, f"may not be specified when {field} is true")
    yield from problems_at(place, name, dns1123_subdomain_problems(name))


def _host_aliases(spec: Object, path: str) -> Iterator[Cause]:
    for index, alias in enumerate(structs_in(spec, "hostAliases")):
        place, address = f"{path}.hostAliases[{index}]", alias.get("ip", "")
        yield from problems_at(at(place, "ip"), address, address_problems(address))
        for number, name in enumerate(texts_in(alias, "hostnames")):
            problems = dns1123_subdomain_problems(name)
            yield from problems_at(f"{place}.hostnames[{number}]", name, problems)


def _operating_system(spec: Object, path: str) -> Iterator[Cause]:
    system = spec.get("os")
    if system is None:
        return
    if not system.get("name"):
        yield causes.required(f"{path}.os.name")
    elif system["name"] not in ("linux", "windows"):
        yield causes.not_supported(at(path, "os"), system["name"], ("linux", "windows"))


def _overhead(spec: Object, path: str) -> Iterator[Cause]:
    """Check what running the pod itself costs; the server checks it as limits, and says so."""
    limits = {"limits": struct_in(spec, "overhead")}
    return check_requirements(limits, at(path, "overhead"))


_SPEC: Final = (
    chosen("restartPolicy", "Always", "OnFailure", "Never"),
    chosen("dnsPolicy", "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    labels("nodeSelector"),
    POD_SECURITY,
    AFFINITY,
    _dns,
    each("readinessGates", of_form("conditionType", qualified_name_problems)),
    _gates,
    *SPREAD,
    _host_users,
    _hostname_override,
    well_formed("serviceAccountName", dns1123_subdomain_problems),
    well_formed("nodeName", dns1123_subdomain_problems),
    between("activeDeadlineSeconds", 1, _LARGEST_INT32),
    well_formed("hostname", dns1123_label_problems),
    well_formed("subdomain", dns1123_label_problems),
    TOLERATIONS,
    _host_aliases,
    well_formed("priorityClassName", dns1123_subdomain_problems),
    if_set("runtimeClassName", of_form("runtimeClassName", dns1123_subdomain_problems)),
    if_set("preemptionPolicy", chosen("preemptionPolicy", "PreemptLowerPriority", "Never")),
    _overhead,
    _operating_system,
)
