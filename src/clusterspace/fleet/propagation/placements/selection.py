"""Which objects of the hub a placement selects, what is placed of each, and the snapshots of it.

Objects are selected by kind, name and labels, and by whole namespaces.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from clusterspace.apis.envelopes import contents_of, envelope_causes, is_envelope, opened
from clusterspace.apis.fleet_placements import (
    API_VERSION,
    GENERATION,
    IS_LATEST,
    NAMESPACE_WITH_RESOURCES,
    NAMESPACE_WITH_SELECTORS,
    NUMBER_OF_CLUSTERS,
    NUMBER_OF_ENVELOPES,
    NUMBER_OF_SNAPSHOTS,
    PICK_N,
    POLICY_INDEX,
    RESOURCE_HASH,
    RESOURCE_INDEX,
    SUBINDEX,
    ResourceIdentifier,
    digest_of,
    generation_of,
    identity_of,
    index_of,
    is_latest,
    key_of_placement,
    owner_reference,
    parent_labels,
    placement_type_of,
    scope_of,
)
from clusterspace.apis.interpreter.templates import pruned
from clusterspace.apis.policies import ResourceSelector
from clusterspace.apis.works import is_reserved_namespace
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
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource, ResourceInfo
from clusterspace.kube.selectors import LabelSelector, label_selector_of

NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
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
    is_fit = is_envelope(template) or is_template(template)
    return is_fit and not is_made_by_others


def manifest_of(template: Object) -> Object:
    """Return the manifest to place for an object: its author's part, and nothing of the hub's."""
    bare = pruned(without_claim(template))
    if is_envelope(bare):
        # Nothing but what is in it goes anywhere: other labels on it are no new state.
        metadata = {"name": name_of(bare), "namespace": namespace_of(bare)}
        metadata = {key: each for key, each in metadata.items() if each}
        return {**bare, "metadata": metadata}
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

    def find_at(self, path: ResourcePath) -> Object | None:
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
        """Return which objects are placed; of an envelope what is in it."""
        return frozenset(self.placed())

    def envelopes(self) -> dict[ResourceIdentifier, ResourceIdentifier]:
        """Return which envelope objects are in, that are in one."""
        return {
            identity_of(each): identity_of(template)
            for template in self.templates
            if is_envelope(template)
            for each in contents_of(template)
        }

    def placed(self) -> dict[ResourceIdentifier, Object]:
        """Return the objects that are placed; what is in an envelope is known by its UID."""
        return {
            identity_of(each): each
            if each is template
            else with_metadata(each, uid=uid_of(template))
            for template in self.templates
            for each in opened(template)
        }


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


def select(
    selectors: Iterable[Selector], templates: PlaceableTemplates, own_namespace: str = ""
) -> Selection:
    """Find everything that is selected, or say why that cannot be told.

    A placement that has a namespace selects in it, and nothing else.
    """
    selectors = tuple(selectors)
    # The namespace of which only some is selected, if there is one.
    inside = own_namespace or next(
        (
            each.name
            for each in selectors
            if each.is_for_namespaces and each.scope == NAMESPACE_WITH_SELECTORS
        ),
        "",
    )
    if own_namespace and is_kept_home(own_namespace):
        why = f"namespace {own_namespace} belongs to the hub and nothing of it is placed"
        return Selection(problems=(why,))
    found: dict[ResourceIdentifier, Object] = {}
    namespaces: set[str] = set()
    problems: list[str] = []
    for selector in selectors:
        kind, info = selector.kind, templates.find_info(selector.kind)
        if info is None:
            problems.append(f"the hub serves no {kind.kind} of {kind.api_version}")
            continue
        if own_namespace and not info.namespaced:
            why = "has no namespace: a ClusterResourcePlacement places it"
            problems.append(f"{kind.kind} {why}")
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
            template = templates.find_at(request.path)
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
    problems += _envelope_problems(found)
    ordered = sorted(found, key=lambda each: (each.kind != NAMESPACE.kind, each))
    return Selection(
        tuple(found[each] for each in ordered),
        frozenset(namespaces),
        tuple(dict.fromkeys(problems)),
    )


def _envelope_problems(found: Mapping[ResourceIdentifier, Object]) -> Iterator[str]:
    """Yield what is wrong with the envelopes among selected objects, and what is there twice."""
    known: dict[ResourceIdentifier, str] = dict.fromkeys(found, "")
    for identity, envelope in found.items():
        if not is_envelope(envelope):
            continue
        for cause in envelope_causes(envelope):
            yield f"{identity}: {cause.field}: {cause.message}"
        for inner in map(identity_of, contents_of(envelope)):
            if inner in known:
                yield f"{inner} of {identity} is selected more than once"
            known[inner] = str(identity)


def _content_of(namespace: str, templates: PlaceableTemplates) -> dict[ResourceIdentifier, Object]:
    """Return the objects in a namespace, except those that clusters make there by themselves."""
    found: dict[ResourceIdentifier, Object] = {}
    for request in templates.within(namespace):
        template = templates.find_at(request.path)
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


# -- policy and selection, written down: numbered, and never changed ---------------------------

# The newest one counts, whatever labels say: a crash between writing it and relabelling the one
# before it changes nothing. Of a selection that takes several snapshots the master is written last,
# so a master stands for all of them.


MOST_BYTES: Final = 800 * 1024
"""How much one snapshot holds; an object that is larger by itself has one of its own."""

DEFAULT_HISTORY: Final = 10
_NUMBER: Final = "numberOfClusters"


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The snapshot that counts, what has to be written for it, and what may go."""

    latest: Object
    index: int
    new: tuple[Object, ...] = ()
    """To be created in this order."""
    changed: tuple[tuple[Object, Object], ...] = ()
    """To be changed, from what it is into what it is to be."""


def plan_policy_snapshot(placement: Object, existing: Sequence[Object]) -> SnapshotPlan:
    """Return the snapshot of a placement's policy; only the number of clusters may change in it."""
    policy: Object | None = find_at(placement, "spec", "policy")
    asked = {key: value for key, value in (policy or {}).items() if key != _NUMBER}
    # The hash of a policy but for its number, as the API has it: bytes, so base64.
    policy_hash = base64.b64encode(digest_of(asked).encode()).decode()
    annotations = {GENERATION: str(generation_of(placement))}
    if placement_type_of(policy) == PICK_N:
        annotations[NUMBER_OF_CLUSTERS] = str((policy or {}).get(_NUMBER) or 0)

    newest = max(existing, key=lambda each: index_of(each, POLICY_INDEX), default=None)
    if newest is not None and find_at(newest, "spec", "policyHash") == policy_hash:
        latest = with_metadata(
            newest,
            labels={**labels_of(newest), IS_LATEST: "true"},
            annotations={**annotations_of(newest), **annotations},
        )
        changed = _relabelled({name_of(newest): latest}, existing)
        return SnapshotPlan(latest, index_of(latest, POLICY_INDEX), changed=changed)
    index = 0 if newest is None else index_of(newest, POLICY_INDEX) + 1
    latest = _snapshot(
        scope_of(placement).policy_snapshot,
        placement,
        f"{name_of(placement)}-{index}",
        labels={POLICY_INDEX: str(index), IS_LATEST: "true"},
        annotations=annotations,
        spec={"policyHash": policy_hash, **({} if policy is None else {"policy": asked})},
    )
    return SnapshotPlan(latest, index, (latest,), _relabelled({}, existing))


def plan_resource_snapshot(
    placement: Object,
    manifests: Sequence[Object],
    existing: Sequence[Object],
    altered: frozenset[int] = frozenset(),
) -> SnapshotPlan:
    """Return the snapshot of what a placement selects; new ones when it is something else.

    `altered` are the numbers whose snapshots do not say any more what was written in them.
    """
    masters = [each for each in existing if RESOURCE_HASH in annotations_of(each)]
    newest = max(masters, key=lambda each: index_of(each, RESOURCE_INDEX), default=None)
    digest = digest_of(list(manifests))
    is_same = newest is not None and annotations_of(newest).get(RESOURCE_HASH) == digest
    if newest is not None and is_same and index_of(newest, RESOURCE_INDEX) not in altered:
        latest = with_metadata(newest, labels={**labels_of(newest), IS_LATEST: "true"})
        changed = _relabelled({name_of(newest): latest}, existing)
        return SnapshotPlan(latest, index_of(latest, RESOURCE_INDEX), changed=changed)

    # Beyond those of a process that was killed between two of them: such leftovers are no use.
    index = max((index_of(each, RESOURCE_INDEX) for each in existing), default=-1) + 1
    pages: list[list[Object]] = [[]]
    size = 0
    for manifest in manifests:
        length = len(msgspec.json.encode(manifest))
        if pages[-1] and size + length > MOST_BYTES:
            pages.append([])
            size = 0
        pages[-1].append(manifest)
        size += length
    overflow = [
        _snapshot(
            scope_of(placement).resource_snapshot,
            placement,
            f"{name_of(placement)}-{index}-{number}",
            labels={RESOURCE_INDEX: str(index)},
            annotations={SUBINDEX: str(number)},
            spec={"selectedResources": page},
        )
        for number, page in enumerate(pages[1:])
    ]
    master = _snapshot(
        scope_of(placement).resource_snapshot,
        placement,
        snapshot_name(name_of(placement), index),
        labels={RESOURCE_INDEX: str(index), IS_LATEST: "true"},
        annotations={
            RESOURCE_HASH: digest,
            NUMBER_OF_SNAPSHOTS: str(len(pages)),
            NUMBER_OF_ENVELOPES: str(sum(map(is_envelope, manifests))),
        },
        spec={"selectedResources": pages[0]},
    )
    return SnapshotPlan(master, index, (*overflow, master), _relabelled({}, existing))


def outdated(
    existing: Iterable[Object], label: str, limit: int, kept: frozenset[int]
) -> list[Object]:
    """Return the snapshots beyond the history a placement keeps, but for those still in use."""
    snapshots = list(existing)
    indexes = sorted({index_of(each, label) for each in snapshots}, reverse=True)
    gone = frozenset(indexes[limit:]) - kept
    return [each for each in snapshots if index_of(each, label) in gone]


def history_limit(placement: Object) -> int:
    """Return how many snapshots of each kind a placement keeps."""
    return int(find_at(placement, "spec", "revisionHistoryLimit") or DEFAULT_HISTORY)


def snapshot_name(placement_name: str, index: int) -> str:
    """Return the name of the master of a resource snapshot."""
    return f"{placement_name}-{index}-snapshot"


def index_in(name: str) -> int | None:
    """Return the number in the name of a master snapshot; None when there is none."""
    _, _, rest = name.removesuffix("-snapshot").rpartition("-")
    return int(rest) if name.endswith("-snapshot") and rest.isdigit() else None


def _relabelled(
    latest: Mapping[str, Object], existing: Iterable[Object]
) -> tuple[tuple[Object, Object], ...]:
    """Return the snapshots to change, before and after, so that only the latest is so labelled."""
    changed: list[tuple[Object, Object]] = []
    for each in existing:
        after = latest.get(name_of(each))
        if after is None and is_latest(each):
            after = with_metadata(each, labels={**labels_of(each), IS_LATEST: "false"})
        if after is not None and after != each:
            changed.append((each, after))
    return tuple(changed)


def _snapshot(
    kind: str,
    placement: Object,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: Mapping[str, Any],
) -> Object:
    metadata = {
        "name": name,
        **({"namespace": namespace} if (namespace := namespace_of(placement)) else {}),
        "labels": {**parent_labels(key_of_placement(placement)), **labels},
        "annotations": dict(annotations),
        "ownerReferences": [owner_reference(placement)],
    }
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": dict(spec)}
