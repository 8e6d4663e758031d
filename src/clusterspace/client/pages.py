"""The bytes of a list to items that nobody has decoded yet.

What is not a list is never read as an empty one: a missing kind, version or `items` is an error.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from clusterspace.client.raw_objects import RawObject, read_raw_object
from clusterspace.client.translation import unreadable
from clusterspace.kube.json_errors import UNREADABLE


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


_head_decoder: Final = msgspec.json.Decoder(_ListHead)
_list_decoder: Final = msgspec.json.Decoder(_List)


@dataclass(frozen=True, slots=True)
class PageHead:
    """What a page says of itself."""

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
        return _checked_head(_head_decoder.decode(body))
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
