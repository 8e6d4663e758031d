"""Schemas of the fleet: for each group version, the document of one cluster, as it is.

The cluster of the highest release is taken, because its document knows the fields that the others
do not know yet. Documents are large, so they pass unread, under the URL they have in that cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from clusterspace.fleet.gateway import names
from clusterspace.fleet.gateway.merge.releases import UNKNOWN, Release
from clusterspace.kube.objects import Object

ROOT: Final = "/openapi/v3"


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


def merge(indexes: Mapping[str, Object], releases: Mapping[str, Release]) -> dict[str, Document]:
    """Return the document to be read for every path that any cluster's index lists, sorted.

    Of clusters of the same release the first is taken, in the order answers have.
    """
    picked: dict[str, Document] = {}
    for document in _best_first(indexes, releases):
        picked.setdefault(document.path, document)
    return dict(sorted(picked.items()))


def index(documents: Mapping[str, Document]) -> Object:
    """Return the index the fleet shows at /openapi/v3."""
    return {"paths": {path: {"serverRelativeURL": each.url} for path, each in documents.items()}}


def pick(
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
        if url.partition("?")[0] == f"{ROOT}/{path}"
    ]
