"""Which overrides the objects of a placement have on a cluster, as snapshots of them say.

    latest snapshots ──placement, selectors, labels──> a cluster's overrides, on its binding
    binding ──> object: state and overrides ──> (the engine's binding ──> Works)

A binding names snapshots, so a changed override is a new state that clusters get one after another,
as the placement's strategy says. A rule of the type Delete keeps its object from the cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.affinities import Traits
from clusterspace.apis.fleet_overrides import (
    CLUSTER_SNAPSHOTS,
    NAMESPACE,
    OVERRIDE_INDEX,
    OVERRIDE_PARENT,
    RESOURCE_SNAPSHOTS,
    apply_rules,
    is_for_placement,
    means,
    roles_granted_by,
    rules_for,
    selected_by,
    takes_away,
)
from clusterspace.apis.fleet_placements import (
    ResourceIdentifier,
    identity_of,
    index_of,
    is_latest,
    read_state,
    state_text,
)
from clusterspace.client.requests import key_of
from clusterspace.controllers.informers import HubCaches, IndexKeys
from clusterspace.errors import Conflict, OverrideFailed
from clusterspace.fleet.propagation.templates import Contents
from clusterspace.kube.objects import Object, find_at, labels_of, name_of, namespace_of

BY_OVERRIDE: Final = "override"
_LATEST: Final = "latest"


def parent_key_of(snapshot: Object) -> str:
    """Return the key of the override a snapshot is of, or an empty text."""
    parent = labels_of(snapshot).get(OVERRIDE_PARENT, "")
    return key_of(namespace_of(snapshot), parent) if parent else ""


def by_override(snapshot: Object) -> Iterable[str]:
    """Index snapshots by the override they are of."""
    parent = parent_key_of(snapshot)
    return (parent,) if parent else ()


def by_latest(snapshot: Object) -> Iterable[str]:
    """Index the snapshots that say that no other came after them."""
    return (_LATEST,) if is_latest(snapshot) else ()


OVERRIDE_INDEXES: Final[dict[str, IndexKeys]] = {BY_OVERRIDE: by_override, _LATEST: by_latest}


@dataclass(frozen=True, slots=True)
class ClusterOverrides:
    """The override snapshots that a cluster is to have, in the order in which they apply."""

    cluster_wide: tuple[str, ...] = ()
    namespaced: tuple[tuple[str, str], ...] = ()
    """Namespace and name."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Where the snapshots are: those with a namespace come last, and win."""
        return (*self.cluster_wide, *(f"{space}/{name}" for space, name in self.namespaced))

    @property
    def resource_references(self) -> list[Object]:
        """The namespaced ones, as bindings and statuses name them."""
        return [{"name": name, "namespace": space} for space, name in self.namespaced]


NO_OVERRIDES: Final = ClusterOverrides()


def overrides_of(binding: Object) -> ClusterOverrides:
    """Return the overrides that a placement's binding to a cluster names."""
    wide: list[str] = find_at(binding, "spec", "clusterResourceOverrideSnapshots") or []
    own: list[Object] = find_at(binding, "spec", "resourceOverrideSnapshots") or []
    named = tuple((str(each.get("namespace")), str(each.get("name"))) for each in own)
    return ClusterOverrides(tuple(wide), named)


def relevant_overrides(
    placement: str, selected: Iterable[ResourceIdentifier], snapshots: Sequence[Object]
) -> tuple[Object, ...]:
    """Return the snapshots that are for a placement, and about something it selects."""
    wide: set[tuple[str, ...]] = set()
    own: set[tuple[str, ...]] = set()
    for each in selected if snapshots else ():
        named = (each.group, each.version, each.kind, each.name)
        wide.add((*NAMESPACE, each.namespace) if each.namespace else named)
        own.add((each.namespace, *named))
    found: list[Object] = []
    for snapshot in snapshots:
        spec, namespace = spec_of(snapshot), namespace_of(snapshot)
        names = selected_by(spec)
        is_about = any((namespace, *n) in own for n in names) if namespace else wide & {*names}
        if is_about and is_for_placement(spec, namespace, placement):
            found.append(snapshot)
    return tuple(found)


def plan_overrides(snapshots: Sequence[Object], labels: Mapping[str, str]) -> ClusterOverrides:
    """Return the overrides of a placement that a cluster with these labels is to have."""
    holding = [each for each in snapshots if _may_hold(spec_of(each), labels)]
    wide = sorted(name_of(each) for each in holding if not namespace_of(each))
    own = sorted((namespace_of(e), name_of(e)) for e in holding if namespace_of(e))
    return ClusterOverrides(tuple(wide), tuple(own))


def overridden_contents(
    contents: Contents, snapshots: Sequence[Object], labels: Mapping[str, str]
) -> Contents:
    """Return what a cluster is to have: with overrides, and without what they keep from it."""
    if not snapshots:
        return contents
    kept: dict[ResourceIdentifier, str] = {}
    for identity, state in contents.items():
        about = [e for e in snapshots if means(spec_of(e), namespace_of(e), identity)]
        about = [each for each in about if _may_hold(spec_of(each), labels)]
        if any(_takes_away(spec_of(each), labels) for each in about):
            continue
        kept[identity] = state_text(state, [key_of(namespace_of(e), name_of(e)) for e in about])
    return kept


# Snapshots may be anybody's who may write some in one namespace. One that cannot be read concerns
# the objects it selects, which say so when it is to be applied, and takes nothing away.


def _may_hold(spec: Object, labels: Mapping[str, str]) -> bool:
    try:
        return bool(rules_for(spec, labels))
    except OverrideFailed:
        return True


def _takes_away(spec: Object, labels: Mapping[str, str]) -> bool:
    try:
        return takes_away(rules_for(spec, labels))
    except OverrideFailed:
        return False


def spec_of(snapshot: Object) -> Object:
    """Return the spec of the override as a snapshot has it."""
    return find_at(snapshot, "spec", "overrideSpec") or {}


class KnownOverrides:
    """The snapshots of overrides, as the caches have them."""

    def __init__(self, caches: HubCaches) -> None:
        self._wide = caches.informer(CLUSTER_SNAPSHOTS, indexes=OVERRIDE_INDEXES)
        self._own = caches.informer(RESOURCE_SNAPSHOTS, indexes=OVERRIDE_INDEXES)

    def latest(self) -> list[Object]:
        """Return the newest snapshot of each override that has one."""
        # Killed between writing a snapshot and relabelling the one before it, two say that they
        # are the latest: the one with the higher number is.
        newest: dict[str, Object] = {}
        for informer in (self._wide, self._own):
            for each in informer.cache.objects_at(_LATEST, _LATEST):
                rival = newest.get(parent_key_of(each))
                if rival is None or index_of(rival, OVERRIDE_INDEX) < index_of(
                    each, OVERRIDE_INDEX
                ):
                    newest[parent_key_of(each)] = each
        return [newest[key] for key in sorted(newest)]

    def find(self, key: str) -> Object | None:
        """Return a snapshot, or None when it is not known, or no longer."""
        informer = self._own if "/" in key else self._wide
        return informer.cache.find(key)

    def find_all(self, keys: Sequence[str]) -> list[Object] | None:
        """Return these snapshots, or None when one of them is not known."""
        found = [each for key in keys if (each := self.find(key)) is not None]
        return found if len(found) == len(keys) else None

    def override(self, manifest: Object, state: str, cluster: Traits) -> Object:
        """Return a manifest as the overrides that its state names change it for a cluster.

        Conflict when one of them is not in the cache yet, to be tried again; OverrideFailed when
        it cannot be applied.
        """
        keys = read_state(state).overrides
        snapshots = self.find_all(keys)
        if snapshots is None:
            raise Conflict(f"not all of the overrides {', '.join(keys)} are known yet")
        for snapshot in snapshots:
            # An override reaches what it selects, whatever a binding says that it is for.
            spec, namespace = spec_of(snapshot), namespace_of(snapshot)
            if not means(spec, namespace, identity_of(manifest)):
                continue
            try:
                rules = rules_for(spec, cluster.labels)
                role = str(manifest.get("kind")), name_of(manifest)
                is_asked_for = role in roles_granted_by(spec)
                manifest = apply_rules(
                    manifest, rules, cluster.name, cluster.labels, may_change_rules=is_asked_for
                )
            except OverrideFailed as error:
                kind = "ResourceOverride" if namespace else "ClusterResourceOverride"
                message = f"{kind}Snapshot {key_of(namespace, name_of(snapshot))}: {error}"
                raise OverrideFailed(message) from error
        return manifest
