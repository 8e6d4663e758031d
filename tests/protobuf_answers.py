"""Lists and events in protobuf, read as client-go reads them, for tests that look at the wire."""

from typing import Any

from clusterspace.kube.protobuf.bodies import decode
from clusterspace.kube.protobuf.wire import Envelope, read_envelope, read_fields, write_envelope

PROTOBUF = "application/vnd.kubernetes.protobuf"
_LIST_META = {1: "selfLink", 2: "resourceVersion", 3: "continue"}


def read_list(body: bytes) -> dict[str, Any]:
    """Return a list as its JSON would be; the product's table of fields has no lists."""
    envelope = read_envelope(body)
    assert envelope.kind.endswith("List")
    kind = envelope.kind.removesuffix("List")
    metadata: dict[str, Any] = {}
    items: list[dict[str, Any]] = []
    for field in read_fields(envelope.raw, "list"):
        assert isinstance(field.value, bytes)
        if field.number == 1:
            metadata = {
                _LIST_META.get(each.number, str(each.number)): each.value.decode()
                if isinstance(each.value, bytes)
                else each.value
                for each in read_fields(field.value, "metadata")
            }
        else:
            items.append(decode(write_envelope(Envelope(envelope.api_version, kind, field.value))))
    return {
        "apiVersion": envelope.api_version,
        "kind": envelope.kind,
        "metadata": metadata,
        "items": items,
    }


def read_event(frame: bytes) -> dict[str, Any]:
    """Return the event in a frame of a watch, without the four bytes of its length."""
    kind, shown = (field.value for field in read_fields(frame, "event"))
    assert isinstance(kind, bytes)
    assert isinstance(shown, bytes)
    (raw,) = (field.value for field in read_fields(shown, "object"))
    assert isinstance(raw, bytes)
    return {"type": kind.decode(), "object": decode(raw)}
