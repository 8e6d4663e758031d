"""Which objects of the hub a placement selects: by kind, name and labels, and whole namespaces."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from clusterspace.apis.fleet_placements import (
    NAMESPACE_WITH_RESOURCES,
    NAMESPACE_WITH_SELECTORS,
    Identity,
    identity_of,
)
from clusterspace.apis.policies import ResourceSelector
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.placements.manifests import is_kept_home, may_be_placed
from clusterspace.fleet.propagation.templates import TemplateRequest
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.kube.resources import GroupVersion, GroupVersionKind, ResourceInfo
from clusterspace.kube.selectors import LabelSelector, label_selector_of

NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
_SERVICE: Final = GroupVersionKind("", "v1", "Service")


class TemplateBook(Protocol):
    """Everything on the hub that may be placed."""

    def find_info(self, kind: GroupVersionKind) -> ResourceInfo | None:
        """Return what is known of a kind, or None when the hub does not serve it."""
        ...

    def find_at(self, place: ResourcePath) -> Object | None:
        """Return an object from the cache, or None."""
        ...

    def find(self, kind: GroupVersionKind, namespace: str, name: str) -> Object | None:
        """Return an object from the cache, or None."""
        ...

    def selected_by(self, selector: ResourceSelector, namespace: str = "") -> list[TemplateRequest]:
        """Return the objects a selector may mean, labels not looked at."""
        ...

    def within(self, namespace: str) -> list[TemplateRequest]:
        """Return everything in a namespace."""
        ...


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of a placement."""

    kind: GroupVersionKind
    name: str = ""
    labels: LabelSelector | None = None
    scope: str = NAMESPACE_WITH_RESOURCES

    @property
    def is_for_namespaces(self) -> bool:
        """Whether it selects namespaces."""
        return self.kind == NAMESPACE

    def means(self, kube_object: Object) -> bool:
        """Tell whether an object of its kind is meant."""
        if self.name:
            return self.name == name_of(kube_object)
        return self.labels is None or self.labels.matches(labels_of(kube_object))


@dataclass(frozen=True, slots=True)
class Selection:
    """What a placement selects, or why that cannot be told."""

    templates: tuple[Object, ...] = ()
    namespaces: frozenset[str] = frozenset()
    """Namespaces whose content goes along: what appears there is selected, too."""
    problems: tuple[str, ...] = ()

    def identities(self) -> frozenset[Identity]:
        """Return which objects are selected."""
        return frozenset(map(identity_of, self.templates))


def read_selectors(placement: Object) -> tuple[Selector, ...]:
    """Read the selectors of a placement; MalformedSelector names the place."""
    written: list[Object] = find_at(placement, "spec", "resourceSelectors") or []
    return tuple(_read(each, index) for index, each in enumerate(written))


def select(selectors: Iterable[Selector], book: TemplateBook) -> Selection:
    """Find everything that is selected."""
    found: dict[Identity, Object] = {}
    namespaces: set[str] = set()
    problems: list[str] = []
    held = tuple(selectors)
    inside = _partial_namespace(held)
    for selector in held:
        problem = _problem(selector, book, inside)
        if problem is not None:
            problems.append(problem)
            continue
        for template in _meant_by(selector, book, inside):
            identity = identity_of(template)
            if identity in found:
                problems.append(f"{identity} is selected more than once")
            found[identity] = template
            if selector.is_for_namespaces and selector.scope == NAMESPACE_WITH_RESOURCES:
                namespaces.add(name_of(template))
                found.update(_content(name_of(template), book))
    ordered = sorted(found, key=lambda each: (each.kind != NAMESPACE.kind, each))
    templates = tuple(found[each] for each in ordered)
    return Selection(templates, frozenset(namespaces), tuple(dict.fromkeys(problems)))


def still_means(selectors: Iterable[Selector], template: Object, selection: Selection) -> bool:
    """Tell whether an object that was not found is meant all the same, now that it was."""
    identity = identity_of(template)
    if not may_be_placed(template):
        return False
    if identity.namespace in selection.namespaces:
        return True
    return any(each.kind == identity.group_version_kind and each.means(template)
               for each in selectors)  # fmt: skip


def _read(written: Object, index: int) -> Selector:
    place = f"spec.resourceSelectors[{index}].labelSelector"
    labels = written.get("labelSelector")
    try:
        read = None if labels is None else label_selector_of(labels)
    except MalformedSelector as error:
        raise MalformedSelector(f"{place}: {error.message}", place=place) from error
    version = GroupVersion(str(written.get("group") or ""), str(written.get("version") or ""))
    return Selector(
        kind=GroupVersionKind(version.group, version.version, str(written.get("kind") or "")),
        name=str(written.get("name") or ""),
        labels=read,
        scope=str(written.get("selectionScope") or NAMESPACE_WITH_RESOURCES),
    )


def _partial_namespace(selectors: Iterable[Selector]) -> str:
    """Return the namespace of which only some is selected, or an empty text."""
    partial = (
        each.name
        for each in selectors
        if each.is_for_namespaces and each.scope == NAMESPACE_WITH_SELECTORS
    )
    return next(partial, "")


def _problem(selector: Selector, book: TemplateBook, inside: str) -> str | None:
    info = book.find_info(selector.kind)
    if info is None:
        return f"the hub serves no {selector.kind.kind} of {selector.kind.api_version}"
    if info.namespaced and not inside:
        return f"{selector.kind.kind} is namespaced: select its namespace instead"
    if selector.is_for_namespaces and selector.name and is_kept_home(selector.name):
        return f"namespace {selector.name} belongs to the hub and is never placed"
    return None


def _meant_by(selector: Selector, book: TemplateBook, inside: str) -> Iterator[Object]:
    kind = selector.kind
    info = book.find_info(kind)
    namespace = inside if info is not None and info.namespaced else ""
    wanted = ResourceSelector(kind.api_version, kind.kind, namespace, selector.name)
    for request in sorted(book.selected_by(wanted)):
        template = book.find_at(request.place)
        if template is None or not selector.means(template) or not may_be_placed(template):
            continue
        if not (selector.is_for_namespaces and is_kept_home(name_of(template))):
            yield template


def _content(namespace: str, book: TemplateBook) -> dict[Identity, Object]:
    """Return what is in a namespace, but for what clusters make there by themselves."""
    found: dict[Identity, Object] = {}
    for request in book.within(namespace):
        template = book.find_at(request.place)
        if template is None or not may_be_placed(template) or _is_shadow(template, book):
            continue
        found[identity_of(template)] = template
    return found


def _is_shadow(template: Object, book: TemplateBook) -> bool:
    """Whether an object is the Endpoints that a Service brings about."""
    if template.get("kind") != "Endpoints":
        return False
    identity = identity_of(template)
    return book.find(_SERVICE, identity.namespace, identity.name) is not None
