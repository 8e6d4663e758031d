"""The rules of resource requests and limits."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from clusterspace.builtins.validation.rules import NOT_NEGATIVE, problems_at, struct_in
from clusterspace.errors import Cause, MalformedQuantity
from clusterspace.kube import causes
from clusterspace.kube.names import qualified_name_problems
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

NameRule: TypeAlias = Callable[[str, str], Iterator[Cause]]
"""Checks the name of a resource found at a path."""

NOT_INTEGER: Final = "must be an integer"

_NANOS: Final = 10**9

_CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_OBJECT_COUNTS: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
_QUOTA_RESOURCES: Final = frozenset(
    {
        *(f"{part}.{name}" for part in ("requests", "limits") for name in _CONTAINER_RESOURCES),
        "requests.storage",
        "storage",
    }
)
_STANDARD: Final = _CONTAINER_RESOURCES | _OBJECT_COUNTS | _QUOTA_RESOURCES


def is_huge_page(name: str) -> bool:
    """Whether the resource is memory in large pages."""
    return name.startswith("hugepages-")


def is_native(name: str) -> bool:
    """Whether Kubernetes itself hands out the resource."""
    return "/" not in name or "kubernetes.io/" in name


def is_known_resource(name: str) -> bool:
    """Whether Kubernetes has the resource by itself."""
    return name in _STANDARD or is_huge_page(name) or name.startswith("requests.hugepages-")


def check_resource_name(name: str, path: str) -> Iterator[Cause]:
    """Check that a resource is one Kubernetes knows, or belongs to somebody."""
    problems = qualified_name_problems(name)
    yield from problems_at(path, name, problems)
    if not problems and "/" not in name and not is_known_resource(name):
        yield causes.invalid(path, name, "must be a standard resource type or fully qualified")


def check_container_resource_name(name: str, path: str) -> Iterator[Cause]:
    """Check that a resource is one a container can ask for."""
    yield from check_resource_name(name, path)
    if "/" not in name and name not in _CONTAINER_RESOURCES and not is_huge_page(name):
        yield causes.invalid(path, name, "must be a standard resource for containers")
    if not is_native(name) and name.startswith("requests."):
        yield causes.invalid(path, name, "doesn't follow extended resource name standard")


def check_quantity(name: str, text: str, path: str) -> Iterator[Cause]:
    """Check that an amount is not negative, and whole where parts make no sense."""
    nanos = parse_quantity(text).nanos
    if nanos < 0:
        yield causes.invalid(path, text, NOT_NEGATIVE)
    is_counted = name in _OBJECT_COUNTS or not is_native(name) or name.startswith("count/")
    if is_counted and nanos % _NANOS:
        yield causes.invalid(path, text, NOT_INTEGER)


def check_requirements(
    requirements: Object, path: str, name_rule: NameRule = check_container_resource_name
) -> Iterator[Cause]:
    """Check limits, requests, and that nobody asks for more than the limit."""
    limits, requests = struct_in(requirements, "limits"), struct_in(requirements, "requests")
    for name, text in limits.items():
        yield from _check_amount(name, text, f"{path}.limits[{name}]", name_rule)
    for name, text in requests.items():
        yield from _check_amount(name, text, f"{path}.requests[{name}]", name_rule)
        may_overcommit = is_native(name) and not is_huge_page(name)
        if name not in limits:
            if not may_overcommit:
                why = "Limit must be set for non overcommitable resources"
                yield causes.required(f"{path}.limits", why)
        else:
            asked, limit = parse_quantity(text).nanos, parse_quantity(limits[name]).nanos
            if asked != limit and not may_overcommit:
                why = f"must be equal to {name} limit of {limits[name]}"
                yield causes.invalid(f"{path}.requests", text, why)
            elif asked > limit:
                why = f"must be less than or equal to {name} limit of {limits[name]}"
                yield causes.invalid(f"{path}.requests", text, why)
    names = {*limits, *requests}
    if any(map(is_huge_page, names)) and not names & {"cpu", "memory"}:
        yield causes.forbidden(path, "HugePages require cpu or memory")


def _check_amount(name: str, text: str, path: str, name_rule: NameRule) -> Iterator[Cause]:
    yield from name_rule(name, path)
    yield from check_quantity(name, text, path)
    if is_huge_page(name) and not _is_whole_pages(name, text):
        yield causes.invalid(path, text, f"{text} is not positive integer multiple of {name}")


def _is_whole_pages(name: str, text: str) -> bool:
    try:
        page = parse_quantity(name.removeprefix("hugepages-")).nanos
    except MalformedQuantity:
        return False
    amount = parse_quantity(text).nanos
    return page > 0 and amount >= 0 and amount % page == 0
