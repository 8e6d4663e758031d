"""Which objects of the hub a placement selects, and what is placed of each.

Objects are selected by kind, name and labels, and by whole namespaces.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from clusterspace.apis.confinement import is_reserved_namespace
from clusterspace.apis.fleet_placements import (
    NAMESPACE_WITH_RESOURCES,
    NAMESPACE_WITH_SELECTORS,
    ResourceIdentifier,
    identity_of,
)
from clusterspace.apis.interpreter.manifests import pruned
from clusterspace.apis.policies import ResourceSelector
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.bindings import without_claim
from clusterspace.fleet.propagation.templates import TemplateRequest, is_template
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupVersionKind, ResourceInfo
from clusterspace.kube.selectors import LabelSelector, label_selector_of

NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
_SERVICE: Final = GroupVersionKind("", "v1", "Service")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SLICE_MANAGER: Final = "endpointslice.kubernetes.io/managed-by"
_NEVER: Final = frozenset({("", "Pod"), ("", "Node"), ("metrics.k8s.io", "PodMetrics")})
_DERIVED: Final = frozenset({"ReplicaSet", "ControllerRevision"})
_RESERVED_PREFIX: Final = "fleet-"
_DEFAULT: Final = "default"


def is_kept_home(namespace: str) -> bool:
    """Whether a namespace is never placed, with all that is in it."""
    own = namespace == _DEFAULT or namespace.startswith(_RESERVED_PREFIX)
    return own or is_reserved_namespace(namespace)


def may_be_placed(template: Object) -> bool:
    """Whether an object may be placed at all; what a cluster makes by itself may not."""
    identity = identity_of(template)
    if (identity.group, identity.kind) in _NEVER or is_being_deleted(template):
        return False
    is_made_by_others = False
    if identity.kind in _DERIVED:
        is_made_by_others = bool(metadata_of(template).get("ownerReferences"))
    elif identity.kind == "EndpointSlice":
        is_made_by_others = _SLICE_MANAGER in labels_of(template)
    return is_template(template) and not is_made_by_others


def manifest_of(template: Object) -> Object:
    """Return the manifest to place for an object: its author's part, and nothing of the hub's."""
    bare = pruned(without_claim(template))
    annotations = {key: v for key, v in annotations_of(bare).items() if key != _LAST_APPLIED}
    plain = with_metadata(bare, annotations=annotations or None)
    if plain.get("kind") != "Service":
        return plain
    # The ports that the hub gave a Service are the hub's: each cluster gives its own.
    plain = without_value(plain, "spec", "healthCheckNodePort")
    ports: list[Object] = find_at(plain, "spec", "ports") or []
    if not any("nodePort" in each for each in ports):
        return plain
    own = [{key: value for key, value in each.items() if key != "nodePort"} for each in ports]
    return with_value(plain, own, "spec", "ports")


class PlaceableTemplates(Protocol):
    """Everything on the hub that may be placed."""

    def find_info(self, kind: GroupVersionKind) -> ResourceInfo | None:
        """Return the resource that serves a kind, or None when the hub does not serve it."""
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

    def identities(self) -> frozenset[ResourceIdentifier]:
        """Return which objects are selected."""
        return frozenset(map(identity_of, self.templates))


def read_selectors(placement: Object) -> tuple[Selector, ...]:
    """Read the selectors of a placement; MalformedSelector names the place."""
    written: list[Object] = find_at(placement, "spec", "resourceSelectors") or []
    selectors: list[Selector] = []
    for index, each in enumerate(written):
        place = f"spec.resourceSelectors[{index}].labelSelector"
        labels = each.get("labelSelector")
        try:
            read = None if labels is None else label_selector_of(labels)
        except MalformedSelector as error:
            raise MalformedSelector(f"{place}: {error.message}", place=place) from error
        group, version = str(each.get("group") or ""), str(each.get("version") or "")
        selectors.append(
            Selector(
                kind=GroupVersionKind(group, version, str(each.get("kind") or "")),
                name=str(each.get("name") or ""),
                labels=read,
                scope=str(each.get("selectionScope") or NAMESPACE_WITH_RESOURCES),
            )
        )
    return tuple(selectors)


def select(selectors: Iterable[Selector], templates: PlaceableTemplates) -> Selection:
    """Find everything that is selected, or say why that cannot be told."""
    selectors = tuple(selectors)
    # The namespace of which only some is selected, if there is one.
    inside = next(
        (
            each.name
            for each in selectors
            if each.is_for_namespaces and each.scope == NAMESPACE_WITH_SELECTORS
        ),
        "",
    )
    found: dict[ResourceIdentifier, Object] = {}
    namespaces: set[str] = set()
    problems: list[str] = []
    for selector in selectors:
        kind, info = selector.kind, templates.find_info(selector.kind)
        if info is None:
            problems.append(f"the hub serves no {kind.kind} of {kind.api_version}")
            continue
        if info.namespaced and not inside:
            problems.append(f"{kind.kind} is namespaced: select its namespace instead")
            continue
        if selector.is_for_namespaces and selector.name and is_kept_home(selector.name):
            problems.append(f"namespace {selector.name} belongs to the hub and is never placed")
            continue
        namespace = inside if info.namespaced else ""
        about = ResourceSelector(kind.api_version, kind.kind, namespace, selector.name)
        for request in sorted(templates.selected_by(about)):
            template = templates.find_at(request.place)
            if template is None or not selector.means(template) or not may_be_placed(template):
                continue
            if selector.is_for_namespaces and is_kept_home(name_of(template)):
                continue
            identity = identity_of(template)
            if identity in found:
                problems.append(f"{identity} is selected more than once")
            found[identity] = template
            if selector.is_for_namespaces and selector.scope == NAMESPACE_WITH_RESOURCES:
                namespaces.add(name_of(template))
                found.update(_content_of(name_of(template), templates))
    ordered = sorted(found, key=lambda each: (each.kind != NAMESPACE.kind, each))
    return Selection(
        tuple(found[each] for each in ordered),
        frozenset(namespaces),
        tuple(dict.fromkeys(problems)),
    )


def _content_of(namespace: str, templates: PlaceableTemplates) -> dict[ResourceIdentifier, Object]:
    """Return the objects in a namespace, except those that clusters make there by themselves."""
    found: dict[ResourceIdentifier, Object] = {}
    for request in templates.within(namespace):
        template = templates.find_at(request.place)
        if template is None or not may_be_placed(template):
            continue
        identity = identity_of(template)
        # A Service brings its Endpoints about, on every cluster its own.
        is_shadow = (
            identity.kind == "Endpoints"
            and templates.find(_SERVICE, identity.namespace, identity.name) is not None
        )
        if not is_shadow:
            found[identity] = template
    return found


def still_means(selectors: Iterable[Selector], template: Object, selection: Selection) -> bool:
    """Tell whether an object that was not found is meant all the same, now that it was."""
    identity = identity_of(template)
    if not may_be_placed(template):
        return False
    if identity.namespace in selection.namespaces:
        return True
    kind = identity.group_version_kind
    return any(each.kind == kind and each.means(template) for each in selectors)
