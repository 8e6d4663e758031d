"""The rules of probes and lifecycle hooks: exactly one way to ask, and sane timing."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import (
    http_header_problems,
    port_or_name_problems,
    port_problems,
)
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    check_all,
    inside,
    not_negative,
    one_of,
    positive,
    problems_at,
    required,
    satisfies,
    structs_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.objects import Object

_TOO_MANY: Final = "may not specify more than 1 handler type"


def port_or_name(struct: Object, path: str) -> Iterator[Cause]:
    """Check a port that is a number or a name."""
    port = struct.get("port") or struct.get("port", 0)
    return problems_at(at(path, "port"), port, port_or_name_problems(port))


def _port_number(struct: Object, path: str) -> Iterator[Cause]:
    port = struct.get("port", 0)
    return problems_at(at(path, "port"), port, port_problems(port))


def _headers(struct: Object, path: str) -> Iterator[Cause]:
    for header in structs_in(struct, "httpHeaders"):
        name = header.get("name", "")
        yield from problems_at(at(path, "httpHeaders"), name, http_header_problems(name))


_HANDLERS: Final[dict[str, tuple[Check, ...]]] = {
    "exec": (required("command"),),
    "httpGet": (required("path"), port_or_name, one_of("scheme", "HTTP", "HTTPS"), _headers),
    "tcpSocket": (port_or_name,),
    "grpc": (_port_number,),
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
