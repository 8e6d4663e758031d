"""What is served, described: /openapi/v3 document by document, /openapi/v2 all of it at once.

The index of version 3 names every document with the hash of what it is made from. kubectl keeps a
document as long as the index names the same hash, so a document with the right hash may be kept for
good, and one with a wrong hash leads to the right one. Version 2 is one document of everything,
joined from parts that are kept with the pages they are made from.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import msgspec

from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.http.context import RequestContext, headers_for
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import JSON, read_accept
from clusterspace.apiserver.openapi_documents.documents import (
    digest_of_resources,
    digest_of_root,
    group_version_document,
    root_document,
    roots_above,
)
from clusterspace.apiserver.openapi_documents.swagger import (
    Swagger,
    SwaggerPart,
    join_parts,
    part_of,
)
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion

_INDEX: Final = "/openapi/v3"
_JSON_RANGES: Final = frozenset({JSON, "application/*", "*/*"})
_FOR_GOOD: Final = "public, immutable, max-age=31536000"
"""A year: as long as caches are asked to keep anything."""

_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PROTOBUF_RANGES: Final = frozenset(
    {_PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
)
"""The second is how everybody asks for it: the name it had before it was noticed to be none."""


class _Page:
    """One document, made when somebody first reads it."""

    def __init__(
        self, path: str, digest: str, make: Callable[[], Object], resources: Sequence[Served] = ()
    ) -> None:
        self.path = path
        self.digest = digest
        self.url = f"{_INDEX}/{path}?hash={digest}"
        self._make = make
        self._resources = resources

    @cached_property
    def body(self) -> bytes:
        """The document as JSON."""
        return msgspec.json.encode(self._make())

    @cached_property
    def swagger(self) -> SwaggerPart:
        """What the document says, as its part of /openapi/v2."""
        return part_of(self._make(), self._resources)


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
        self._swagger: tuple[_Edition, Swagger] | None = None
        self._joining = asyncio.Lock()

    async def answer_v2(self, context: RequestContext) -> Response:
        """Answer a GET of /openapi/v2, in JSON or in protobuf."""
        for media_range in read_accept(context.header("accept") or "*/*"):
            if media_range.type in _JSON_RANGES or media_range.type in _PROTOBUF_RANGES:
                is_protobuf = media_range.type in _PROTOBUF_RANGES
                break
        else:
            return Response(406)
        # One at a time: after a change many clients come at once, and it is made for all of them.
        async with self._joining:
            edition = self._current()
            if self._swagger is None or self._swagger[0] is not edition:
                context.is_heavy = True
                pages = tuple(edition.pages.values())
                joined = await context.run(lambda: join_parts(page.swagger for page in pages))
                self._swagger = (edition, joined)
            swagger = self._swagger[1]
        headers = [
            *headers_for(context, _PROTOBUF if is_protobuf else JSON),
            ("ETag", swagger.etag),
            ("Vary", "Accept"),
        ]
        if _is_known(context, swagger.etag.strip('"')):
            return Response(304, headers)
        return Response(200, headers, swagger.protobuf if is_protobuf else swagger.json)

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
        if page is None:
            return None
        accepted = read_accept(context.header("accept") or "*/*")
        if not any(media_range.type in _JSON_RANGES for media_range in accepted):
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

    def _current(self) -> _Edition:
        if self._edition.revision == self._catalog.revision:
            return self._edition
        # In an order that does not depend on time: a hash is the same after a restart.
        by_version = defaultdict[GroupVersion, list[Served]](list)
        for served in sorted(self._catalog.all(), key=lambda each: each.info.plural):
            by_version[served.info.group_version].append(served)
        made = [
            _Page(
                version.path.strip("/"),
                digest_of_resources(together),
                partial(group_version_document, version, together),
                together,
            )
            for version, together in by_version.items()
        ]
        made += [
            _Page(root.path.strip("/"), digest_of_root(root), partial(root_document, root))
            for root in roots_above(by_version)
        ]
        pages: dict[str, _Page] = {}
        for page in made:
            last = self._edition.pages.get(page.path)
            pages[page.path] = last if last is not None and last.digest == page.digest else page
        listed = {path: {"serverRelativeURL": pages[path].url} for path in sorted(pages)}
        index = msgspec.json.encode({"paths": listed})
        digest = hashlib.sha256(index).hexdigest().upper()
        self._edition = _Edition(self._catalog.revision, pages, index, digest)
        return self._edition


def _is_known(context: RequestContext, digest: str) -> bool:
    """Whether the client has this already."""
    known = [tag.strip().removeprefix("W/") for tag in context.header("if-none-match").split(",")]
    return f'"{digest}"' in known
