"""LimitRanges: what the containers of a namespace get when they ask for nothing, and may ask for.

New pods are completed from the defaults, and checked against every bound after the rules of their
kind; so are claims, which have no defaults.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias, cast

from clusterspace.apiserver.admission.pods import is_taken_over, refused
from clusterspace.apiserver.identity.following import list_objects
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.builtins.pods import ResourceList, effective
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    namespace_of,
    with_metadata,
)
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity

_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_POD_LEVEL: Final = ("cpu", "memory")
_LARGEST_PRECISE: Final = (2**63 - 1) // 1000
"""Amounts above it are compared in whole numbers: their thousandths have no room."""

Amounts: TypeAlias = Mapping[str, Quantity]


class LimitRanger(Plugin):
    """Completes new pods from the LimitRanges of their namespace, and enforces the bounds."""

    name = "LimitRanger"

    def __init__(self, *, is_hub: bool = False) -> None:
        self._is_hub = is_hub

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Fill in the defaults of the containers of a new pod."""
        pod = admission.new
        if not admission.is_of("", "Pod") or not _is_limited(admission):
            return pod
        # A pod that runs on a member is what it is: it could not be taken over if it were changed.
        if self._is_hub and is_taken_over(admission):
            return pod
        for limit_range in await _ranges_for(hub, admission):
            pod = with_defaults(pod, limit_range)
        return pod

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Refuse what is outside of the bounds, with every reason the first LimitRange gives."""
        if not _is_limited(admission):
            return
        new = admission.new
        for limit_range in await _ranges_for(hub, admission):
            broken = list(dict.fromkeys(bounds_broken_by(new, limit_range)))
            if broken:
                why = broken[0] if len(broken) == 1 else f"[{', '.join(broken)}]"
                raise refused(admission, why)


def _is_limited(admission: Admission) -> bool:
    """Whether LimitRanges have a say: containers of a pod change only when it is resized."""
    if admission.old is not None and is_being_deleted(admission.old):
        return False
    if admission.is_of("", "Pod"):
        return admission.subresource == ("" if admission.is_create else "resize")
    return admission.is_of("", "PersistentVolumeClaim") and not admission.subresource


async def _ranges_for(hub: HubState, admission: Admission) -> list[Object]:
    return await list_objects(hub, "", "limitranges", namespace_of(admission.new))


def with_defaults(pod: Object, limit_range: Object) -> Object:
    """Return the pod with the default requests and limits of a LimitRange where it has none."""
    defaults: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for item in _items(limit_range):
        if item.get("type") == "Container":
            defaults["limits"] |= item.get("default") or {}
            defaults["requests"] |= item.get("defaultRequest") or {}
    if not any(defaults.values()):
        return pod
    spec, notes = cast("Object", pod["spec"]), list[str]()
    for field, noun in (("containers", "container"), ("initContainers", "init container")):
        containers = cast("list[Object]", spec.get(field) or [])
        completed: list[Object] = []
        for container in containers:
            resources = cast("Object", container.get("resources") or {})
            for which, singular in (("requests", "request"), ("limits", "limit")):
                given: dict[str, str] = resources.get(which) or {}
                added = {k: v for k, v in defaults[which].items() if k not in given}
                if added:
                    resources = {**resources, which: {**given, **added}}
                    names = ", ".join(sorted(added))
                    notes.append(f"{names} {singular} for {noun} {container.get('name')}")
            completed.append({**container, "resources": resources} if resources else container)
        if containers:
            spec = {**spec, field: completed}
    if not notes:
        return pod
    note = f"LimitRanger plugin set: {'; '.join(notes)}"
    return with_metadata(
        {**pod, "spec": spec}, annotations={**annotations_of(pod), _ANNOTATION: note}
    )


def bounds_broken_by(new: Object, limit_range: Object) -> Iterator[str]:
    """Return why a pod or claim is not within a LimitRange."""
    if new.get("kind") == "PersistentVolumeClaim":
        asked = _amounts(find_at(new, "spec", "resources", "requests"))
        for item in _items(limit_range):
            if item.get("type") == "PersistentVolumeClaim":
                yield from _below(item, "PersistentVolumeClaim", asked, {})
                for name, bound in _bounds(item, "max"):
                    most = f"maximum {name} usage per PersistentVolumeClaim is {bound}"
                    if name not in asked:
                        yield f"{most}.  No request is specified"
                    elif _compared(asked[name], ZERO, bound)[0] > _compared(ZERO, ZERO, bound)[2]:
                        yield f"{most}, but request is {asked[name]}"
        return
    spec = cast("Object", new["spec"])
    for item in _items(limit_range):
        kind = str(item.get("type"))
        if kind == "Container":
            for field in ("containers", "initContainers"):
                for container in cast("list[Object]", spec.get(field) or []):
                    resources = cast("Object", container.get("resources") or {})
                    requests = _amounts(resources.get("requests"))
                    yield from _outside(item, kind, requests, _amounts(resources.get("limits")))
        elif kind == "Pod":
            asked, allowed = (_of_pod(spec, which) for which in ("requests", "limits"))
            yield from _outside(item, kind, asked, allowed)


def _of_pod(spec: Object, which: str) -> Amounts:
    """Return what a pod asks for altogether; what it says for itself wins over its containers."""
    own: ResourceList = find_at(spec, "resources", which) or {}
    stated = {name: text for name, text in own.items() if name in _POD_LEVEL}
    return _amounts({**effective(spec, which), **stated})


def _outside(item: Object, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _below(item, kind, requests, limits)
    for name, bound in _bounds(item, "max"):
        most = f"maximum {name} usage per {kind} is {bound}"
        request, limit = requests.get(name), limits.get(name)
        asked, allowed, enforced = _compared(request or ZERO, limit or ZERO, bound)
        if limit is None:
            yield f"{most}.  No limit is specified"
        elif allowed > enforced:
            yield f"{most}, but limit is {limit}"
        elif request is not None and asked > enforced:
            yield f"{most}, but request is {request}"
    for name, bound in _bounds(item, "maxLimitRequestRatio"):
        most = f"{name} max limit to request ratio per {kind} is {bound}"
        request, limit = requests.get(name, ZERO), limits.get(name, ZERO)
        asked, allowed, _ = _compared(request, limit, bound)
        if not asked:
            yield f"{most}, but no request is specified or request is 0"
        elif not allowed:
            yield f"{most}, but no limit is specified or limit is 0"
        elif allowed * 1000 > asked * bound.milli:
            yield f"{most}, but provided ratio is {allowed / asked:f}"


def _below(item: Object, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, bound in _bounds(item, "min"):
        least = f"minimum {name} usage per {kind} is {bound}"
        request, limit = requests.get(name), limits.get(name)
        asked, allowed, enforced = _compared(request or ZERO, limit or ZERO, bound)
        if request is None:
            yield f"{least}.  No request is specified"
        elif asked < enforced:
            yield f"{least}, but request is {request}"
        elif limit is not None and allowed < enforced:
            yield f"{least}, but limit is {limit}"


def _compared(*amounts: Quantity) -> tuple[int, ...]:
    """Return amounts as Kubernetes compares them: in thousandths, where those have room."""
    if all(each.whole <= _LARGEST_PRECISE for each in amounts):
        return tuple(each.milli for each in amounts)
    return tuple(each.whole for each in amounts)


def _items(limit_range: Object) -> Iterable[Object]:
    return cast("list[Object]", find_at(limit_range, "spec", "limits") or [])


def _bounds(item: Object, field: str) -> Iterator[tuple[str, Quantity]]:
    # Kubernetes walks a map in any order; ours is that of names, so that answers are alike.
    bounds = cast("dict[str, str]", item.get(field) or {})
    for name, text in sorted(bounds.items()):
        yield name, parse_quantity(str(text))


def _amounts(resources: ResourceList | None) -> dict[str, Quantity]:
    return {name: parse_quantity(str(text)) for name, text in (resources or {}).items()}
