"""What the fleet serves: the union of what its clusters serve.

A resource is there when any cluster has it, with every verb, short name and subresource it has
anywhere. Clusters may disagree about what a resource is; then most of them are right, and the
disagreement is told. The preferred version of a group is the best that every cluster with the group
has, so that a list by the preferred version misses nobody.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from clusterspace.fleet.gateway import names
from clusterspace.fleet.gateway.names import HUB
from clusterspace.kube.discovery_documents import ServedGroup, ServedVersion
from clusterspace.kube.objects import Object
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


_GIT_VERSION: Final = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release by its numbers; what distributors add to them is left out."""

    major: int = 0
    minor: int = 0
    patch: int = 0


UNKNOWN: Final = Release()


def read_release(version: Object) -> Release:
    """Read what a cluster answers at /version; UNKNOWN, below all others, if it makes no sense."""
    found = _GIT_VERSION.match(str(version.get("gitVersion") or ""))
    if found is None:
        return UNKNOWN
    major, minor, patch = found.groups(default="0")
    return Release(int(major), int(minor), int(patch))


def merge_releases(versions: Mapping[str, Object]) -> Object | None:
    """Return what the fleet answers at /version: the oldest member's words, else the hub's."""
    members = [
        (read_release(versions[cluster]), versions[cluster])
        for cluster in names.in_order(versions)
        if cluster != HUB
    ]
    known = [each for each in members if each[0] != UNKNOWN]
    if known:
        return min(known, key=lambda each: each[0])[1]
    return versions.get(HUB)


SCHEMAS: Final = "/openapi/v3"


@dataclass(frozen=True, slots=True)
class Document:
    """Where a document is: in which cluster, and under which URL, there and here."""

    path: str
    """Which one: `api/v1`, `apis/apps/v1`."""
    cluster: str
    url: str

    @property
    def hash(self) -> str:
        """What tells this edition of the document from others; empty if the cluster has none."""
        return parse_qs(urlsplit(self.url).query).get("hash", [""])[0]


def merge_schemas(
    indexes: Mapping[str, Object], releases: Mapping[str, Release]
) -> dict[str, Document]:
    """Return the document to be read for every path that any cluster's index lists, sorted.

    Of clusters of the same release the first is taken, in the order answers have.
    """
    picked: dict[str, Document] = {}
    for document in _best_first(indexes, releases):
        picked.setdefault(document.path, document)
    return dict(sorted(picked.items()))


def schema_index(documents: Mapping[str, Document]) -> Object:
    """Return the index the fleet shows at /openapi/v3."""
    return {"paths": {path: {"serverRelativeURL": each.url} for path, each in documents.items()}}


def pick_schema(
    path: str, wanted_hash: str, indexes: Mapping[str, Object], releases: Mapping[str, Release]
) -> Document | None:
    """Return the document a client asks for; None when no cluster has one of this path.

    The client may hold an index from before another cluster came to be the best. It gets the
    edition it asks for while any cluster has that one.
    """
    held = [each for each in _best_first(indexes, releases) if each.path == path]
    exact = [each for each in held if wanted_hash and each.hash == wanted_hash]
    return next(iter([*exact, *held]), None)


def _best_first(
    indexes: Mapping[str, Object], releases: Mapping[str, Release]
) -> Iterator[Document]:
    # Sorting keeps the order of equals, in reverse too.
    ordered = sorted(
        names.in_order(indexes), key=lambda cluster: releases.get(cluster, UNKNOWN), reverse=True
    )
    for cluster in ordered:
        yield from _read_index(cluster, indexes[cluster])


def _read_index(cluster: str, held: Object) -> Sequence[Document]:
    """Read a cluster's index; an entry that leads anywhere but to its own document is left out."""
    paths: Any = held.get("paths")
    if not isinstance(paths, dict):
        return ()
    urls = {
        path: str(cast("Object", entry).get("serverRelativeURL") or "")
        for path, entry in cast("dict[str, object]", paths).items()
        if isinstance(entry, dict)
    }
    return [
        Document(path, cluster, url)
        for path, url in urls.items()
        if url.partition("?")[0] == f"{SCHEMAS}/{path}"
    ]
