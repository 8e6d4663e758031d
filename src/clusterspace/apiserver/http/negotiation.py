"""Which representation a client gets: JSON or YAML, and whether as Table or metadata only."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from clusterspace.kube import statuses
from clusterspace.kube.discovery_documents import (
    AGGREGATED_GROUP,
    AGGREGATED_KIND,
    AGGREGATED_VERSIONS,
)

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_MOST_RANGES: Final = 64
"""Entries of an Accept header that are looked at; clients send a handful."""

_TABLE: Final = "Table"
_PARTIAL: Final = ("PartialObjectMetadata", "PartialObjectMetadataList")


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One entry of an Accept header."""

    type: str
    parameters: tuple[tuple[str, str], ...] = ()

    def parameter(self, name: str) -> str:
        """Return one parameter, or an empty string."""
        return next((value for key, value in self.parameters if key == name), "")


@dataclass(frozen=True, slots=True)
class Representation:
    """What the answer looks like on the wire."""

    media_type: str = JSON
    transform: str = ""
    """`Table` or `PartialObjectMetadata`, or nothing for the object itself."""

    @property
    def is_table(self) -> bool:
        """Whether rows and columns are wanted."""
        return self.transform == _TABLE

    @property
    def is_metadata_only(self) -> bool:
        """Whether only metadata is wanted."""
        return self.transform == "PartialObjectMetadata"


@lru_cache(maxsize=512)
def read_accept(header: str) -> tuple[MediaRange, ...]:
    """Parse an Accept header; the order is the client's order of preference."""
    ranges: list[MediaRange] = []
    for text in header.split(",", _MOST_RANGES)[:_MOST_RANGES]:
        if not text.strip():
            continue
        media_type, *parameters = (piece.strip() for piece in text.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        read = tuple((key.strip().lower(), value.strip(' "')) for key, _, value in pairs)
        ranges.append(MediaRange(media_type.lower(), read))
    return tuple(ranges)


def aggregated_version(accept: str) -> str:
    """Return the version of aggregated discovery the client prefers; nothing for the legacy form.

    The two versions are two names for one format.
    """
    for media_range in read_accept(accept):
        is_aggregated = (
            media_range.type == JSON
            and media_range.parameter("as") == AGGREGATED_KIND
            and media_range.parameter("g") == AGGREGATED_GROUP
            and media_range.parameter("v") in AGGREGATED_VERSIONS
        )
        if is_aggregated:
            return media_range.parameter("v")
        if media_range.type in (JSON, "*/*") and not media_range.parameter("as"):
            return ""
    return ""


@lru_cache(maxsize=512)
def negotiate(accept: str) -> Representation:
    """Choose the first entry we can serve; raise NotAcceptable when there is none."""
    for media_range in read_accept(accept or "*/*"):
        if media_range.type in (JSON, "*/*", "application/*"):
            media_type = JSON
        elif media_range.type == YAML:
            media_type = YAML
        else:
            continue
        transform = media_range.parameter("as")
        if not transform:
            return Representation(media_type)
        if media_range.parameter("g") != "meta.k8s.io" or media_range.parameter("v") != "v1":
            continue
        if transform == _TABLE:
            return Representation(media_type, _TABLE)
        if transform in _PARTIAL:
            return Representation(media_type, _PARTIAL[0])
    raise statuses.not_acceptable((JSON, YAML, PROTOBUF))
