"""Workloads that are to be together, or apart: where the others of a group are.

    template's label ──policy's groupByLabelKey──> binding's workloadAffinityGroups ──> its peers

Groups are of one namespace. A cache lags behind what was decided a moment ago: two workloads that
are to be apart and come at the same time would both find the same cluster empty. So what is decided
is noted in the same step, and counts until the cache has it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.apis.works import RESOURCE_BINDINGS, clusters_of
from clusterspace.controllers.controller import Request, request_for
from clusterspace.controllers.informers import HubCaches, IndexKeys
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of

_TOGETHER: Final = "affinityGroup"
_APART: Final = "antiAffinityGroup"


@dataclass(frozen=True, slots=True)
class Peers:
    """Where a workload may be for the sake of others."""

    beside: frozenset[str] | None = None
    """The clusters that all have who are to be together; None when there is nobody yet."""
    apart: frozenset[str] = frozenset()
    """The clusters of those from whom it is to be apart."""


NO_PEERS: Final = Peers()


def peers_of(together: Iterable[frozenset[str]], apart: Iterable[frozenset[str]]) -> Peers:
    """Return what follows from where others are; those that are nowhere say nothing."""
    beside: frozenset[str] | None = None
    for clusters in filter(None, together):
        beside = clusters if beside is None else beside & clusters
    return Peers(beside, frozenset[str]().union(*apart))


def peers_among(binding: Object, bindings: Iterable[Object]) -> Peers:
    """Return where the others of a binding's groups are, among all bindings of its namespace."""
    others = [each for each in bindings if name_of(each) != name_of(binding)]

    def clusters(kind: str) -> list[frozenset[str]]:
        group = group_of(binding, kind)
        members = [each for each in others if group and group_of(each, kind) == group]
        return [frozenset(target.name for target in clusters_of(each)) for each in members]

    return peers_of(clusters(_TOGETHER), clusters(_APART))


def is_in_a_group(binding: Object) -> bool:
    """Whether it matters to a binding where others are."""
    return bool(group_of(binding, _TOGETHER) or group_of(binding, _APART))


def group_of(binding: Object, kind: str) -> str:
    """Return a group of a binding with its namespace, or an empty text."""
    group = find_at(binding, "spec", "workloadAffinityGroups", kind)
    return f"{namespace_of(binding)}/{group}" if group else ""


def _by(kind: str) -> IndexKeys:
    def words(binding: Object) -> Iterable[str]:
        group = group_of(binding, kind)
        return (group,) if group else ()

    return words


GROUP_INDEXES: Final[dict[str, IndexKeys]] = {kind: _by(kind) for kind in (_TOGETHER, _APART)}


class WorkloadGroups:
    """Where the workloads of each group are, what was just decided included."""

    # No method awaits: to look where the others are, and to note the decision, are one step of the
    # event loop for whoever does both without an await between them.

    def __init__(self, caches: HubCaches) -> None:
        self._cache = caches.informer(RESOURCE_BINDINGS, indexes=GROUP_INDEXES).cache
        self._decided: dict[Request, tuple[frozenset[str], int | None]] = {}
        """Targets, and the version of the binding that has them once it is written."""

    def peers_of(self, request: Request, binding: Object) -> Peers:
        """Return where the others of a binding's groups are."""
        if not is_in_a_group(binding):
            return NO_PEERS
        together, apart = (
            self._clusters_of_others(kind, group_of(binding, kind), request)
            for kind in (_TOGETHER, _APART)
        )
        return peers_of(together, apart)

    def note(self, request: Request, binding: Object, targets: Mapping[str, int]) -> None:
        """Note what was decided for a binding and is not written yet."""
        if is_in_a_group(binding):
            self._decided[request] = frozenset(targets), None

    def written(self, request: Request, version: str) -> None:
        """Note at which version the hub has what was decided."""
        if request in self._decided:
            self._decided[request] = self._decided[request][0], int(version)

    def forget(self, request: Request) -> None:
        """Forget a decision that came to nothing."""
        self._decided.pop(request, None)

    def _clusters_of_others(self, kind: str, group: str, request: Request) -> list[frozenset[str]]:
        keys = self._cache.keys_at(kind, group) if group else ()
        others = ((request_for(key), key) for key in sorted(keys))
        return [self._clusters_at(other, key) for other, key in others if other != request]

    def _clusters_at(self, other: Request, key: str) -> frozenset[str]:
        decided = self._decided.get(other)
        known = self._cache.find_version(key)
        if decided is not None:
            targets, version = decided
            if version is None or known is None or int(known.resource_version) < version:
                return targets
            del self._decided[other]
        return frozenset(each.name for each in clusters_of(self._cache.find(key) or {}))
