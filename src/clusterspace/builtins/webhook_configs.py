"""Where a webhook is said to be: a URL, or a Service; of admission and of conversion alike."""

from collections.abc import Iterator
from typing import Final, cast
from urllib.parse import urlsplit

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.objects import Object

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
