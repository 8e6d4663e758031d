"""The rules of what extends a cluster: further API servers, webhooks."""

from collections.abc import Iterator
from typing import Final, cast
from urllib.parse import urlsplit

from clusterspace.builtins.validation.rules import (
    check_all,
    problems_at,
    required,
    struct_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1035_label_problems
from clusterspace.kube.objects import Object, metadata_of


def check_api_service(service: Object) -> Iterator[Cause]:
    """Check an APIService."""
    spec = struct_in(service, "spec")
    group, version = spec.get("group", ""), spec.get("version", "")
    name, wanted = metadata_of(service).get("name", ""), f"{version}.{group}"
    if name and name != wanted:
        why = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        yield causes.invalid("metadata.name", name, why)
    if not group and version != "v1":
        why = "only v1 may have an empty group and it better be legacy kube"
        yield causes.required("spec.group", why)
    yield from problems_at("spec.version", version, dns1035_label_problems(version))
    yield from _check_priority(spec, "groupPriorityMinimum", 20000)
    yield from _check_priority(spec, "versionPriority", 1000)
    backend = spec.get("service")
    if backend is None:
        return
    yield from check_all(
        backend, "spec.service", (required("namespace"), required("name"), check_service_port)
    )
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        why = "may not be true if caBundle is present"
        yield causes.invalid("spec.insecureSkipTLSVerify", True, why)


def _check_priority(spec: Object, field: str, most: int) -> Iterator[Cause]:
    number = spec.get(field, 0)
    if not 0 < number <= most:
        why = f"must be positive and less than {most}"
        yield causes.invalid(f"spec.{field}", number, why)


_URL_FORM: Final = "; desired format: https://host[/path]"
_HIGHEST_PORT: Final = 65535


def check_client_config(config: Object, path: str) -> Iterator[Cause]:
    """Check the client configuration of a webhook."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield causes.required(path, "exactly one of url or service is required")
    elif url is not None:
        address = urlsplit(str(url))
        if address.scheme != "https":
            why = f"'https' is the only allowed URL scheme{_URL_FORM}"
            yield causes.invalid(f"{path}.url", address.scheme, why)
        if not address.netloc:
            why = f"host must be specified{_URL_FORM}"
            yield causes.invalid(f"{path}.url", address.netloc, why)
    elif service is not None:
        yield from _check_service(cast("Object", service), f"{path}.service")


def _check_service(service: Object, path: str) -> Iterator[Cause]:
    # A kube-apiserver calls a missing name a missing namespace and the other way round, and so do
    # we: people look for what it says.
    for field, shown in (("namespace", "name"), ("name", "namespace")):
        if not service.get(field):
            yield causes.required(f"{path}.{shown}")
    yield from check_service_port(service, path)


def check_service_port(service: Object, path: str) -> Iterator[Cause]:
    """Check the port of a service that the server itself calls."""
    port = service.get("port", 443)
    if not isinstance(port, int) or not 1 <= port <= _HIGHEST_PORT:
        why = f"port is not valid: must be between 1 and {_HIGHEST_PORT}, inclusive"
        yield causes.invalid(f"{path}.port", port, why)
