"""What the fleet serves: the union of what its clusters serve.

A resource is there when any cluster has it, with every verb, short name and subresource it has
anywhere. Clusters may disagree about what a resource is; then most of them are right, and the
disagreement is told. The preferred version of a group is the best that every cluster with the group
has, so that a list by the preferred version misses nobody.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from clusterspace.fleet.gateway import names
from clusterspace.kube.discovery_documents import ServedGroup, ServedVersion
from clusterspace.kube.resources import (
    GroupVersion,
    GroupVersionResource,
    ResourceInfo,
    Subresource,
    version_priority,
)


@dataclass(frozen=True, slots=True)
class FleetApi:
    """What the fleet serves."""

    groups: tuple[ServedGroup, ...]
    disagreements: tuple[str, ...] = ()
    """One sentence for each resource that is not the same thing in every cluster."""

    def find_group(self, name: str) -> ServedGroup | None:
        """Return a group by its name, the core group by an empty one, or None."""
        return next((group for group in self.groups if group.name == name), None)

    def find_version(self, served: GroupVersion) -> ServedVersion | None:
        """Return one version of a group, or None."""
        group = self.find_group(served.group)
        versions = group.versions if group else ()
        return next((each for each in versions if each.version == served.version), None)


def merge(served: Mapping[str, Iterable[ResourceInfo]]) -> FleetApi:
    """Return the union of what each cluster serves, in an order that depends on nothing else."""
    held = _by_resource(served)
    united = [_unite(each) for each in held.values()]
    disagreements = [text for each in held.values() if (text := _disagreement(each))]
    return FleetApi(tuple(_groups(united, held)), tuple(disagreements))


@dataclass(frozen=True, slots=True)
class _Held:
    """A resource as one cluster has it."""

    cluster: str
    info: ResourceInfo

    @property
    def identity(self) -> tuple[str, bool]:
        """What clusters must agree on: the kind, and whether it is in namespaces."""
        return self.info.kind, self.info.namespaced

    @property
    def described(self) -> str:
        return f"{self.info.kind}, {'namespaced' if self.info.namespaced else 'cluster-wide'}"


def _by_resource(
    served: Mapping[str, Iterable[ResourceInfo]],
) -> dict[GroupVersionResource, list[_Held]]:
    """Return who has each resource; resources are in the order in which clusters list them."""
    held: dict[GroupVersionResource, list[_Held]] = {}
    for cluster in names.in_order(served):
        for info in served[cluster]:
            held.setdefault(info.group_version_resource, []).append(_Held(cluster, info))
    return held


def _unite(held: Sequence[_Held]) -> ResourceInfo:
    """Return one description of a resource: the majority's, with all that anyone of it has."""
    identity = _majority(held)
    infos = [each.info for each in held if each.identity == identity]
    return replace(
        infos[0],
        singular=next((info.singular for info in infos if info.singular), ""),
        verbs=_union(info.verbs for info in infos),
        short_names=_union(info.short_names for info in infos),
        categories=_union(info.categories for info in infos),
        subresources=_unite_subresources(infos),
    )


def _majority(held: Sequence[_Held]) -> tuple[str, bool]:
    """Return what most clusters say; of equally many, those who come first."""
    # Counter keeps the order of first sight, and max takes the first of equals.
    votes = Counter(each.identity for each in held)
    return max(votes, key=lambda identity: votes[identity])


def _unite_subresources(infos: Iterable[ResourceInfo]) -> tuple[Subresource, ...]:
    parts: dict[str, Subresource] = {}
    for part in chain.from_iterable(info.subresources for info in infos):
        known = parts.get(part.name, part)
        parts[part.name] = replace(known, verbs=_union((known.verbs, part.verbs)))
    return tuple(parts.values())


def _disagreement(held: Sequence[_Held]) -> str:
    described: dict[str, list[str]] = {}
    for each in held:
        described.setdefault(each.described, []).append(each.cluster)
    if len(described) == 1:
        return ""
    sides = "; ".join(f"{what} in {', '.join(who)}" for what, who in described.items())
    info = held[0].info
    return f"clusters disagree about {info.plural} of {info.group_version}: {sides}"


def _groups(
    resources: Iterable[ResourceInfo], held: Mapping[GroupVersionResource, Sequence[_Held]]
) -> Iterator[ServedGroup]:
    by_group: dict[str, dict[str, list[ResourceInfo]]] = {}
    for info in resources:
        by_group.setdefault(info.group, {}).setdefault(info.version, []).append(info)
    for name, versions in by_group.items():
        having = {
            version: {each.cluster for info in infos for each in held[info.group_version_resource]}
            for version, infos in versions.items()
        }
        ordered = _preferred_first(having)
        yield ServedGroup(
            name, tuple(ServedVersion(version, tuple(versions[version])) for version in ordered)
        )


def _preferred_first(having: Mapping[str, set[str]]) -> list[str]:
    """Return versions as clients are to try them: the most widely served, then by maturity.

    A version that every cluster has is the most widely served there can be.
    """
    by_maturity = sorted(having, key=version_priority)
    preferred = max(by_maturity, key=lambda version: len(having[version]))
    return [preferred, *(version for version in by_maturity if version != preferred)]


def _union(texts: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(texts)))
