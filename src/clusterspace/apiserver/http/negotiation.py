"""Which representation a client gets: JSON, YAML or protobuf, as Table or metadata only."""

from dataclasses import dataclass
from enum import Enum
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

    @property
    def weight(self) -> float:
        """How much the client wants it, from 0 to 1; what cannot be read is 1."""
        try:
            return float(self.parameter("q") or 1)
        except ValueError:
            return 1.0


class Protobuf(Enum):
    """How much of a resource can be answered in protobuf."""

    NOTHING = "nothing"
    """Where answers are merged and renamed as JSON."""
    METADATA = "metadata"
    """Kinds without a protobuf form: what all kinds have in common, and refusals."""
    OBJECTS = "objects"


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
    """Parse an Accept header into the client's order of preference."""
    ranges: list[MediaRange] = []
    for text in header.split(",", _MOST_RANGES)[:_MOST_RANGES]:
        if not text.strip():
            continue
        media_type, *parameters = (piece.strip() for piece in text.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        read = tuple((key.strip().lower(), value.strip(' "')) for key, _, value in pairs)
        ranges.append(MediaRange(media_type.lower(), read))
    # The order of entries decides between equals, and what is said by name is meant more than a
    # star: `*/*, application/yaml` asks for YAML.
    return tuple(sorted(ranges, key=lambda each: (-each.weight, each.type.count("*"))))


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
def negotiate(accept: str, protobuf: Protobuf = Protobuf.NOTHING) -> Representation:
    """Choose the first entry we can serve; raise NotAcceptable when there is none."""
    for media_range in read_accept(accept or "*/*"):
        if media_range.type in (JSON, "*/*", "application/*"):
            media_type = JSON
        elif media_range.type == YAML:
            media_type = YAML
        elif media_range.type == PROTOBUF and protobuf is not Protobuf.NOTHING:
            media_type = PROTOBUF
        else:
            continue
        transform = media_range.parameter("as")
        if not transform:
            if media_type == PROTOBUF and protobuf is not Protobuf.OBJECTS:
                continue
            return Representation(media_type)
        if media_range.parameter("g") != "meta.k8s.io" or media_range.parameter("v") != "v1":
            continue
        if transform == _TABLE and media_type != PROTOBUF:
            return Representation(media_type, _TABLE)
        if transform in _PARTIAL:
            return Representation(media_type, _PARTIAL[0])
    if protobuf is Protobuf.NOTHING:
        raise statuses.not_acceptable((JSON, YAML))
    # Two sentences, as kube-apiserver has them: for a built-in resource its router is asked first,
    # which knows of types and nothing else. Custom resources list protobuf, since they have it for
    # their metadata.
    offered = (JSON, YAML, PROTOBUF)
    is_known = any(media_range.type in offered for media_range in read_accept(accept))
    if is_known or protobuf is Protobuf.METADATA:
        raise statuses.only_accepted(offered)
    raise statuses.not_acceptable(offered)


def negotiate_stream(accept: str, protobuf: Protobuf) -> Representation:
    """Choose how the events of a watch look: there is no YAML of which one would know the end."""
    representation = negotiate(accept, protobuf)
    if representation.media_type == YAML:
        raise statuses.only_accepted(f"{each};stream=watch" for each in (JSON, PROTOBUF))
    return representation


def text_accepted(accept: str) -> str:
    """Return an Accept header without protobuf; refuse one in which nothing else is said."""
    entries = (accept or "*/*").split(",", _MOST_RANGES)[:_MOST_RANGES]
    kept = [each for each in entries if not each.strip().lower().startswith(PROTOBUF)]
    if not kept:
        raise statuses.only_accepted((f"{JSON};stream=watch",))
    return ",".join(kept)


@lru_cache(maxsize=512)
def negotiate_status(accept: str) -> str:
    """Return the media type of a refusal: JSON where the client accepts nothing we have.

    A client that wants a Table gets no Table of a refusal, so such entries do not count.
    """
    for media_range in read_accept(accept or "*/*"):
        if media_range.parameter("as"):
            continue
        if media_range.type in (JSON, "*/*", "application/*"):
            return JSON
        if media_range.type in (YAML, PROTOBUF):
            return media_range.type
    return JSON
