"""Objects and lists that nobody has decoded yet: bytes, and the few words everybody needs.

What is not a list is never read as an empty one: a missing kind, version or `items` is an error.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from clusterspace.client.answers import unreadable
from clusterspace.client.requests import key_of
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object


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
