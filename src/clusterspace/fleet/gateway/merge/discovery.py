"""What the fleet serves: the union of what its clusters serve.

A resource is there when any cluster has it, with every verb, short name and subresource it has
anywhere. Clusters may disagree about what a resource is; then most of them are right, and the
disagreement is told. The preferred version of a group is the best that every cluster with the group
has, so that a list by the preferred version misses nobody.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from clusterspace.builtins.resources import group_order
from clusterspace.fleet.gateway import routes
from clusterspace.fleet.gateway.routes import HUB
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
    """The resources that the fleet serves."""

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
    # Who has each resource; resources are in the order in which clusters list them.
    owners: dict[GroupVersionResource, dict[str, ResourceInfo]] = {}
    for cluster in routes.in_order(served):
        for info in served[cluster]:
            owners.setdefault(info.group_version_resource, {}).setdefault(cluster, info)

    by_group: dict[str, dict[str, list[ResourceInfo]]] = {}
    having: defaultdict[GroupVersion, set[str]] = defaultdict(set)
    disagreements: list[str] = []
    for own in owners.values():
        united = _unite(list(own.values()))
        by_group.setdefault(united.group, {}).setdefault(united.version, []).append(united)
        having[united.group_version].update(own)
        sides: dict[str, list[str]] = {}
        for cluster, info in own.items():
            scope = "namespaced" if info.namespaced else "cluster-wide"
            sides.setdefault(f"{info.kind}, {scope}", []).append(cluster)
        if len(sides) > 1:
            said = "; ".join(f"{what} in {', '.join(who)}" for what, who in sides.items())
            what = f"{united.plural} of {united.group_version}"
            disagreements.append(f"clusters disagree about {what}: {said}")

    groups: list[ServedGroup] = []
    for name in sorted(by_group, key=group_order):
        versions = by_group[name]
        # As clients are to try them: the most widely served, then by maturity. A version that every
        # cluster has is the most widely served there can be.
        by_maturity = sorted(versions, key=version_priority)
        counts = {each: len(having[GroupVersion(name, each)]) for each in versions}
        preferred = max(by_maturity, key=counts.__getitem__)
        ordered = [preferred, *(each for each in by_maturity if each != preferred)]
        groups.append(
            ServedGroup(name, tuple(ServedVersion(each, tuple(versions[each])) for each in ordered))
        )
    return FleetApi(tuple(groups), tuple(disagreements))


def _unite(own: Sequence[ResourceInfo]) -> ResourceInfo:
    """Return one description of a resource: the majority's, with all that anyone of it has.

    Clusters must agree on the kind, and on whether it is in namespaces. Of equally many, those who
    come first are right.
    """
    # Counter keeps the order of first sight, and max takes the first of equals.
    votes = Counter((info.kind, info.namespaced) for info in own)
    majority = max(votes, key=votes.__getitem__)
    infos = [info for info in own if (info.kind, info.namespaced) == majority]
    subresources: dict[str, Subresource] = {}
    for each in chain.from_iterable(info.subresources for info in infos):
        known = subresources.get(each.name, each)
        subresources[each.name] = replace(known, verbs=_union((known.verbs, each.verbs)))
    return replace(
        infos[0],
        singular=next((info.singular for info in infos if info.singular), ""),
        verbs=_union(info.verbs for info in infos),
        short_names=_union(info.short_names for info in infos),
        categories=_union(info.categories for info in infos),
        subresources=tuple(subresources.values()),
    )


def _union(texts: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(texts)))


# -- which release each cluster runs: the fleet claims the oldest, so that what clients of that
# release do, every member understands -------------------------------------------------------------

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
    """Return the fleet's answer at /version: that of the oldest member, else the hub's."""
    members = [
        (read_release(versions[cluster]), versions[cluster])
        for cluster in routes.in_order(versions)
        if cluster != HUB
    ]
    known = [each for each in members if each[0] != UNKNOWN]
    if known:
        return min(known, key=lambda each: each[0])[1]
    return versions.get(HUB)


# -- schemas: for each group version the document of one cluster, as it is. Kubernetes' own describe
# every field, which those of our API servers do not. Of these the one of the highest release knows
# fields that the others do not know yet. Documents are large: they pass unread --------------------

SCHEMAS: Final = "/openapi/v3"


def describes_fields(version: Object) -> bool:
    """Whether a server with this answer at /version says what fields are for: Kubernetes' own does.

    Ours says that it was built by no Go.
    """
    return bool(version.get("goVersion"))


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
    indexes: Mapping[str, Object],
    releases: Mapping[str, Release],
    described: Collection[str] = (),
) -> dict[str, Document]:
    """Return the document to be read for every path that any cluster's index lists, sorted.

    Those of `described` clusters come before others. Of clusters of the same release the first is
    taken, in the order answers have.
    """
    picked: dict[str, Document] = {}
    for document in _best_first(indexes, releases, described):
        picked.setdefault(document.path, document)
    return dict(sorted(picked.items()))


def schema_index(documents: Mapping[str, Document]) -> Object:
    """Return the index the fleet shows at /openapi/v3."""
    return {"paths": {path: {"serverRelativeURL": each.url} for path, each in documents.items()}}


def pick_schema(
    path: str,
    wanted_hash: str,
    indexes: Mapping[str, Object],
    releases: Mapping[str, Release],
    described: Collection[str] = (),
) -> Document | None:
    """Return the document a client asks for; None when no cluster has one of this path.

    The client may hold an index from before another cluster came to be the best. It gets the
    edition it asks for while any cluster has that one.
    """
    found = [each for each in _best_first(indexes, releases, described) if each.path == path]
    exact = [each for each in found if wanted_hash and each.hash == wanted_hash]
    return next(iter([*exact, *found]), None)


def _best_first(
    indexes: Mapping[str, Object], releases: Mapping[str, Release], described: Collection[str]
) -> Iterator[Document]:
    """Yield all documents; an entry that leads anywhere but to its own document is left out."""
    # Sorting keeps the order of equals, in reverse too.
    ordered = sorted(
        routes.in_order(indexes),
        key=lambda cluster: (cluster in described, releases.get(cluster, UNKNOWN)),
        reverse=True,
    )
    for cluster in ordered:
        paths: Any = indexes[cluster].get("paths")
        if not isinstance(paths, dict):
            continue
        for path, entry in cast("dict[str, object]", paths).items():
            if isinstance(entry, dict):
                url = str(cast("Object", entry).get("serverRelativeURL") or "")
                if url.partition("?")[0] == f"{SCHEMAS}/{path}":
                    yield Document(path, cluster, url)
