"""/openapi/v3: the index of documents, and each document under an address that never changes.

The index names every document with the hash of what it is made from. kubectl keeps a document as
long as the index names the same hash, so a document with the right hash may be kept for good, and
one with a wrong hash leads to the right one.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import msgspec

from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.negotiation import JSON, read_accept
from clusterspace.apiserver.http.responses import headers_for
from clusterspace.apiserver.openapi_documents.digests import digest_of_resources, digest_of_root
from clusterspace.apiserver.openapi_documents.documents import (
    group_version_document,
    root_document,
    roots_above,
)
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion

_INDEX: Final = "/openapi/v3"
_JSON_RANGES: Final = frozenset({JSON, "application/*", "*/*"})
_FOR_GOOD: Final = "public, immutable, max-age=31536000"
"""A year: as long as caches are asked to keep anything."""


class _Page:
    """One document, made when somebody first reads it."""

    def __init__(self, path: str, digest: str, make: Callable[[], Object]) -> None:
        self.path = path
        self.digest = digest
        self.url = f"{_INDEX}/{path}?hash={digest}"
        self._make = make

    @cached_property
    def body(self) -> bytes:
        """The document as JSON."""
        return msgspec.json.encode(self._make())


@dataclass(frozen=True, slots=True)
class _Edition:
    """The documents of one revision of the catalog."""

    revision: int
    pages: Mapping[str, _Page]
    index: bytes
    digest: str


class OpenApi:
    """The OpenAPI documents of a catalog: a change makes anew only what it changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._edition = _Edition(revision=-1, pages={}, index=b"", digest="")

    def answer(self, context: RequestContext) -> Response | None:
        """Answer a GET below /openapi; None when there is no such document."""
        edition = self._current()
        path = context.info.path
        if path == _INDEX:
            headers = [*headers_for(context, JSON), ("ETag", f'"{edition.digest}"')]
            if _is_known(context, edition.digest):
                return Response(304, headers)
            return Response(200, headers, edition.index)
        page = edition.pages.get(path.removeprefix(f"{_INDEX}/"))
        return None if page is None else _answer_page(context, page)

    def _current(self) -> _Edition:
        if self._edition.revision != self._catalog.revision:
            self._edition = _next_edition(self._catalog, self._edition)
        return self._edition


def _next_edition(catalog: Catalog, last: _Edition) -> _Edition:
    pages: dict[str, _Page] = {}
    for page in _pages(catalog.all()):
        held = last.pages.get(page.path)
        pages[page.path] = held if held is not None and held.digest == page.digest else page
    listed = {path: {"serverRelativeURL": pages[path].url} for path in sorted(pages)}
    index = msgspec.json.encode({"paths": listed})
    return _Edition(catalog.revision, pages, index, hashlib.sha256(index).hexdigest().upper())


def _pages(resources: Sequence[Served]) -> Iterator[_Page]:
    held = _by_group_version(resources)
    for group_version, together in held.items():
        make = partial(group_version_document, group_version, together)
        yield _Page(group_version.path.strip("/"), digest_of_resources(together), make)
    for root in roots_above(held):
        yield _Page(root.path.strip("/"), digest_of_root(root), partial(root_document, root))


def _by_group_version(resources: Sequence[Served]) -> Mapping[GroupVersion, Sequence[Served]]:
    """Return what each group version serves, in an order that does not depend on time."""
    held: dict[GroupVersion, list[Served]] = {}
    for served in sorted(resources, key=lambda each: each.info.plural):
        held.setdefault(served.info.group_version, []).append(served)
    return held


def _answer_page(context: RequestContext, page: _Page) -> Response:
    if not _accepts_json(context.header("accept")):
        # A client that prefers the protobuf form asks again for this one.
        raise statuses.not_acceptable((JSON,))
    wanted = context.info.query.get("hash")
    headers = [*headers_for(context, JSON), ("ETag", f'"{page.digest}"'), ("Vary", "Accept")]
    if wanted == page.digest:
        headers = [pair for pair in headers if pair[0] != "Cache-Control"]
        headers.append(("Cache-Control", _FOR_GOOD))
    elif wanted:
        return Response(301, [*headers, ("Location", page.url)])
    if _is_known(context, page.digest):
        return Response(304, headers)
    return Response(200, headers, page.body)


def _is_known(context: RequestContext, digest: str) -> bool:
    """Whether the client has this already."""
    known = [tag.strip().removeprefix("W/") for tag in context.header("if-none-match").split(",")]
    return f'"{digest}"' in known


def _accepts_json(accept: str) -> bool:
    return any(media_range.type in _JSON_RANGES for media_range in read_accept(accept or "*/*"))
