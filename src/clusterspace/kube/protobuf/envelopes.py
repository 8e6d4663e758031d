"""The envelope around every body: four magic bytes, then the type and the bytes of the object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.errors import MalformedObject, UnsupportedMediaType
from clusterspace.kube.protobuf.scalars import bytes_of, read_known, text_of
from clusterspace.kube.protobuf.wire import WireType, write_bytes_field

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_TYPE, _OBJECT, _ENCODING, _CONTENT_TYPE = 1, 2, 3, 4
_API_VERSION, _KIND = 1, 2
_ENVELOPE_FIELDS: Final[Mapping[int, WireType]] = dict.fromkeys(
    (_TYPE, _OBJECT, _ENCODING, _CONTENT_TYPE), WireType.BYTES
)
_TYPE_FIELDS: Final[Mapping[int, WireType]] = dict.fromkeys((_API_VERSION, _KIND), WireType.BYTES)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an object says it is, and its bytes."""

    api_version: str
    kind: str
    raw: bytes


def read_envelope(body: bytes) -> Envelope:
    """Take a body apart; refuse one that is compressed or wraps something other than protobuf."""
    if not body.startswith(_MAGIC):
        raise MalformedObject("the body does not start as Kubernetes protobuf does", place="body")
    fields = read_known(body[len(_MAGIC) :], _ENVELOPE_FIELDS, "body")
    encoding = text_of(fields.get(_ENCODING, b""), "body contentEncoding")
    content_type = text_of(fields.get(_CONTENT_TYPE, b""), "body contentType")
    if encoding or content_type not in ("", MEDIA_TYPE):
        raise UnsupportedMediaType(
            f"a protobuf body wraps content of type {content_type!r}, encoding {encoding!r}, "
            "which is not read here"
        )
    typed = read_known(bytes_of(fields, _TYPE), _TYPE_FIELDS, "body typeMeta")
    return Envelope(
        api_version=text_of(typed.get(_API_VERSION, b""), "body typeMeta.apiVersion"),
        kind=text_of(typed.get(_KIND, b""), "body typeMeta.kind"),
        raw=bytes_of(fields, _OBJECT),
    )


def write_envelope(envelope: Envelope) -> bytes:
    """Put a body together, byte for byte as Go clients do."""
    typed = write_bytes_field(_API_VERSION, envelope.api_version.encode()) + write_bytes_field(
        _KIND, envelope.kind.encode()
    )
    return b"".join(
        (
            _MAGIC,
            write_bytes_field(_TYPE, typed),
            write_bytes_field(_OBJECT, envelope.raw),
            write_bytes_field(_ENCODING, b""),
            write_bytes_field(_CONTENT_TYPE, b""),
        )
    )
