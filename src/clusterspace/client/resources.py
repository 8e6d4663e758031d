"""Get, list, create, update, patch, apply, delete for any resource; blind writes are refused.

A write that names no version overwrites whatever somebody else wrote since we looked. So a PUT
or PATCH names the version it was made from or the owner of the fields it sets, and a DELETE names
the UID of the object it is meant for.

What is read stays bytes until somebody needs more than the few words of its head. What is not a
list is never read as an empty one: a missing kind, version or `items` is an error.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol, cast

import msgspec

from clusterspace.client.connection import Connection
from clusterspace.client.requests import (
    AnswerStream,
    ApiRequest,
    Headers,
    Query,
    ResourcePath,
    failure_of,
    key_of,
    unreadable,
)
from clusterspace.errors import AnswerOverrun, BlindWrite, Expired, NotFound
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object, find_at, resource_version_of

# -- objects and lists that nobody has decoded yet -------------------------------------------------


class _Metadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the names of the wire


class _Head(msgspec.Struct, gc=False):
    kind: str = ""
    apiVersion: str = ""  # noqa: N815
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_head_decoder: Final = msgspec.json.Decoder(_Head)
_decoder: Final = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Version:
    """Which object this was, and in which state."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class RawObject:
    """An object as bytes of JSON; `raw` is empty when only its name is known any more."""

    key: str
    version: Version
    raw: bytes = field(repr=False)

    def decode(self) -> Object:
        """Return the object, a new one each time: nobody else sees what is done to it."""
        return decode_object(self.raw)


def read_raw_object(raw: bytes, *, kind: str = "", api_version: str = "") -> RawObject:
    """Read the head of an object; a DecodeError or ValueError says what is wrong with it.

    Items of a list may leave out their kind, which is the list's without its ending; it is put
    in, so that an object looks the same whether it was listed or watched.
    """
    head = _head_decoder.decode(raw)
    metadata = head.metadata
    if not metadata.name or not metadata.resourceVersion:
        raise ValueError("an object without a name or resourceVersion")
    if not head.kind and kind:
        opening = msgspec.json.encode({"kind": kind, "apiVersion": api_version})[:-1]
        raw = opening + b"," + raw.lstrip()[1:]
    version = Version(metadata.uid, metadata.resourceVersion)
    return RawObject(key_of(metadata.namespace, metadata.name), version, raw)


def version_in(raw: bytes) -> Version:
    """Return the version of an object that was read before."""
    metadata = _head_decoder.decode(raw).metadata
    return Version(metadata.uid, metadata.resourceVersion)


def decode_object(raw: bytes) -> Object:
    """Return the object in these bytes."""
    decoded: Any = _decoder.decode(raw)
    return decoded


class _ListMetadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - the names of the wire
    continue_: str = msgspec.field(default="", name="continue")
    remainingItemCount: int | None = None  # noqa: N815


class _ListHead(msgspec.Struct):
    kind: str
    apiVersion: str  # noqa: N815
    metadata: _ListMetadata


class _List(_ListHead):
    items: list[msgspec.Raw] | None


_page_head_decoder: Final = msgspec.json.Decoder(_ListHead)
_list_decoder: Final = msgspec.json.Decoder(_List)


@dataclass(frozen=True, slots=True)
class PageHead:
    """The metadata of a page of a list."""

    resource_version: str
    continue_token: str
    remaining: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    head: PageHead
    items: tuple[RawObject, ...]


def read_page_head(cluster: str, body: bytes) -> PageHead:
    """Read what a page says of itself, and none of its items."""
    try:
        return _checked_head(_page_head_decoder.decode(body))
    except (*UNREADABLE, ValueError) as error:
        raise unreadable(cluster, "the answer is no list", error) from error


def read_page(cluster: str, body: bytes) -> Page:
    """Read a page; its items stay bytes."""
    try:
        decoded = _list_decoder.decode(body)
        head = _checked_head(decoded)
        kind = decoded.kind.removesuffix("List")
        items = tuple(
            read_raw_object(bytes(raw), kind=kind, api_version=decoded.apiVersion)
            for raw in decoded.items or ()
        )
    except (*UNREADABLE, ValueError) as error:
        raise unreadable(cluster, "the answer is no list", error) from error
    return Page(head, items)


def _checked_head(decoded: _ListHead) -> PageHead:
    metadata = decoded.metadata
    if not decoded.kind.endswith("List"):
        raise ValueError(f"its kind is {decoded.kind!r}")
    if not metadata.resourceVersion:
        raise ValueError("it has no resourceVersion")
    return PageHead(metadata.resourceVersion, metadata.continue_, metadata.remainingItemCount)


# -- writes that say what they were made from ------------------------------------------------------

_VERSION_POINTER: Final = "/metadata/resourceVersion"
_VERSION_OPERATIONS: Final = frozenset({"add", "replace", "test"})


class PatchType(Enum):
    """The four kinds of patch, by media type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(Enum):
    """What becomes of the objects a deleted one owns."""

    DEFAULT = ""
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a write is to be carried out; the field manager is the client's unless told."""

    field_manager: str = ""
    is_dry_run: bool = False
    field_validation: str = ""
    force: bool = False
    """Of an apply: take fields over from other managers."""

    def query(self, field_manager: str) -> Query:
        """Return the query, with the manager to use when none was told."""
        pairs = {
            "fieldManager": self.field_manager or field_manager,
            "dryRun": "All" if self.is_dry_run else "",
            "fieldValidation": self.field_validation,
            "force": "true" if self.force else "",
        }
        return tuple((key, value) for key, value in pairs.items() if value)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Which object to delete, and how."""

    uid: str
    resource_version: str = ""
    propagation: Propagation = Propagation.DEFAULT
    grace_seconds: int | None = None
    is_dry_run: bool = False

    def body(self, place: ResourcePath) -> Object:
        """Return the DeleteOptions body."""
        if not self.uid:
            raise BlindWrite(f"deleting {place} needs the UID of the object that is meant")
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        options: Object = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        if self.propagation is not Propagation.DEFAULT:
            options["propagationPolicy"] = self.propagation.value
        if self.grace_seconds is not None:
            options["gracePeriodSeconds"] = self.grace_seconds
        if self.is_dry_run:
            options["dryRun"] = ["All"]
        return options


def refuse_blind_update(place: ResourcePath, kube_object: Object) -> None:
    """Raise BlindWrite unless the object says which version it was made from."""
    if not resource_version_of(kube_object):
        raise BlindWrite(f"updating {place} needs a resourceVersion")


def refuse_blind_patch(place: ResourcePath, patch_type: PatchType, patch: Any) -> None:
    """Raise BlindWrite unless the patch says which version it was made from.

    An apply needs none: the server knows which fields are whose.
    """
    if patch_type is PatchType.APPLY:
        return
    if patch_type is PatchType.JSON:
        operations = cast("list[object]", patch) if isinstance(patch, list) else []
        is_named = any(
            find_at(operation, "path") == _VERSION_POINTER
            and find_at(operation, "op") in _VERSION_OPERATIONS
            and bool(find_at(operation, "value"))
            for operation in operations
        )
    else:
        is_named = bool(find_at(patch, "metadata", "resourceVersion"))
    if not is_named:
        raise BlindWrite(f"patching {place} needs a resourceVersion in the patch")


FIELD_MANAGER: Final = "clusterspace"
PAGE_LIMIT: Final = 500
_LIST_SECONDS: Final = 60.0
_LISTS_SECONDS: Final = 600.0
"""For all pages of a list together: a million objects over a slow line."""
_MOST_PAGES: Final = 20_000
_MOST_BYTES: Final = 4 * 1024 * 1024 * 1024
"""More than any cluster stores: etcd is full at 8 GiB, of everything."""
_MOST_ERROR_BYTES: Final = 1024 * 1024
_JSON: Final = "application/json"
_PLAIN_WRITE: Final = WriteOptions()


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Which objects, as of when, and how many at a time; a limit of 0 is all at once."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = PAGE_LIMIT
    resource_version: str = ""
    resource_version_match: str = ""

    def query(self, continue_token: str = "") -> Query:
        """Return the query for the first page, or for the one a token stands for."""
        pairs = {
            "labelSelector": self.label_selector,
            "fieldSelector": self.field_selector,
            "limit": str(self.limit) if self.limit else "",
            "resourceVersion": "" if continue_token else self.resource_version,
            "resourceVersionMatch": "" if continue_token else self.resource_version_match,
            "continue": continue_token,
        }
        return tuple((key, value) for key, value in pairs.items() if value)


EVERYTHING: Final = ListOptions()


class Reader(Protocol):
    """The right to look."""

    async def get(self, place: ResourcePath) -> Object:
        """Return the object; NotFound when it is not there."""
        ...

    async def find(self, place: ResourcePath) -> Object | None:
        """Return the object, or None when it is certainly not there."""
        ...

    async def list_objects(
        self, place: ResourcePath, options: ListOptions = EVERYTHING
    ) -> list[Object]:
        """Return the objects of a collection."""
        ...


class Writer(Protocol):
    """The right to change."""

    async def create(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        """Create an object in a collection, or send one to a subresource."""
        ...

    async def update(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        """Replace an object."""
        ...

    async def patch(
        self,
        place: ResourcePath,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions = _PLAIN_WRITE,
    ) -> Object:
        """Change an object."""
        ...

    async def apply(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        """Say which fields of an object are to be ours, and what is in them."""
        ...

    async def delete(self, place: ResourcePath, options: DeleteOptions) -> Object:
        """Delete exactly the object that is meant."""
        ...


class Client(Reader, Writer, Protocol):
    """The right to look and to change."""


class ClusterClient:
    """One cluster's objects, as plain dictionaries or as the bytes they came in.

    Errors are those of `clusterspace.errors` and carry the cluster's name: ApiError for what the
    cluster refused, ClusterError for what could not be asked.
    """

    def __init__(self, connection: Connection, *, field_manager: str = FIELD_MANAGER) -> None:
        self.connection = connection
        self.field_manager = field_manager

    @property
    def cluster(self) -> str:
        """What we call the cluster."""
        return self.connection.cluster

    async def get(self, place: ResourcePath) -> Object:
        """Return the object as it is now; NotFound when it is not there."""
        return self._object_in(await self.get_raw(place))

    async def get_raw(self, place: ResourcePath) -> bytes:
        """Return the bytes of the object as it is now."""
        return (await self.connection.ask(ApiRequest("GET", place.path))).body

    async def find(self, place: ResourcePath) -> Object | None:
        """Return the object, or None when it is certainly not there.

        A resource that is not served, a proxy's error page, a refusal: all are raised.
        """
        try:
            return await self.get(place)
        except NotFound:
            return None

    async def list_raw(
        self, place: ResourcePath, options: ListOptions = EVERYTHING, headers: Headers = ()
    ) -> AsyncGenerator[bytes]:
        """Yield the pages of a list as the bytes they came in; Expired when they ran too old.

        A list that has no end is given up with AnswerOverrun: each page has a deadline and a bound
        of its own, and all of them together have, too.
        """
        token, clock = "", self.connection.clock
        seconds, size = 0.0, 0
        for _ in range(_MOST_PAGES):
            query = options.query(token)
            request = ApiRequest("GET", place.path, query, headers=headers, seconds=_LIST_SECONDS)
            started = clock.monotonic()
            body = (await self.connection.ask(request)).body
            # Not counted is what the reader takes: that is not the cluster's doing.
            seconds += clock.monotonic() - started
            size += len(body)
            former, token = token, read_page_head(self.cluster, body).continue_token
            if token and (token == former or seconds > _LISTS_SECONDS or size > _MOST_BYTES):
                break
            yield body
            if not token:
                return
        raise AnswerOverrun(self.cluster, f"its list of {place.path} does not end", code=200)

    async def pages(
        self, place: ResourcePath, options: ListOptions = EVERYTHING, headers: Headers = ()
    ) -> AsyncGenerator[Page]:
        """Yield the pages of a list, their items not decoded yet; it comes to an end, or fails."""
        async for body in self.list_raw(place, options, headers):
            yield read_page(self.cluster, body)

    async def list_objects(
        self, place: ResourcePath, options: ListOptions = EVERYTHING
    ) -> list[Object]:
        """Return the objects of a collection, all as of one moment."""
        try:
            pages = [page async for page in self.pages(place, options)]
        except Expired:
            # The cluster forgot the moment of the first page while we read: all at once, then.
            whole = replace(options, limit=0)
            pages = [page async for page in self.pages(place, whole)]
        return [item.decode() for page in pages for item in page.items]

    async def create(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        """Create an object in a collection, or send one to a subresource; return what is stored."""
        return await self._write("POST", place, _JSON, kube_object, options)

    async def update(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        """Replace an object; Conflict when it is no longer at the version ours was made from."""
        refuse_blind_update(place, kube_object)
        return await self._write("PUT", place, _JSON, kube_object, options)

    async def patch(
        self,
        place: ResourcePath,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions = _PLAIN_WRITE,
    ) -> Object:
        """Change an object; the patch names the version it was made from, or is an apply."""
        refuse_blind_patch(place, patch_type, patch)
        return await self._write("PATCH", place, patch_type.value, patch, options)

    async def apply(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = _PLAIN_WRITE
    ) -> Object:
        """Say which fields are to be ours and what is in them; Conflict when others own them."""
        return await self.patch(place, PatchType.APPLY, kube_object, options)

    async def delete(self, place: ResourcePath, options: DeleteOptions) -> Object:
        """Delete exactly the object that is meant.

        Returns a Status when it is gone, or the object when it waits for its finalizers.
        NotFound when nothing is there; Conflict when something else is.
        """
        body = msgspec.json.encode(options.body(place))
        headers: Headers = (("Content-Type", _JSON),)
        answer = await self.connection.ask(
            ApiRequest("DELETE", place.path, headers=headers, body=body)
        )
        return self._object_in(answer.body)

    @asynccontextmanager
    async def stream(
        self, place: ResourcePath, query: Query = (), *, quiet_seconds: float | None = None
    ) -> AsyncGenerator[AnswerStream]:
        """Open a GET whose answer comes bit by bit, such as a log; a refusal is raised."""
        plain = (("Accept-Encoding", "identity"),)  # nobody unpacks what comes bit by bit
        request = ApiRequest("GET", place.path, query, headers=plain, quiet_seconds=quiet_seconds)
        async with self.connection.stream(request) as stream:
            await raise_refusal(self.cluster, stream)
            yield stream

    async def _write(
        self, method: str, place: ResourcePath, media_type: str, body: Any, options: WriteOptions
    ) -> Object:
        request = ApiRequest(
            method,
            place.path,
            query=options.query(self.field_manager),
            headers=(("Content-Type", media_type), ("Accept", _JSON)),
            body=msgspec.json.encode(body),
        )
        return self._object_in((await self.connection.ask(request)).body)

    def _object_in(self, body: bytes) -> Object:
        try:
            decoded: Any = msgspec.json.decode(body)
        except UNREADABLE as error:
            raise unreadable(self.cluster, "the answer is not JSON", error) from error
        if not isinstance(decoded, dict) or "kind" not in decoded:
            raise unreadable(self.cluster, "the answer is no Kubernetes object")
        return cast("Object", decoded)


async def raise_refusal(cluster: str, stream: AnswerStream) -> None:
    """Raise what a stream that is no success tells of."""
    if 200 <= stream.status < 300:
        return
    failure = failure_of(cluster, await stream.read(_MOST_ERROR_BYTES))
    if failure is not None:
        raise failure
