"""Lists of metadata in both forms: the same states, whichever a cluster writes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import ApiError, ClusterMisbehaved
from clusterspace.fleet.gateway.merge.metadata_lists import (
    METADATA_LIST,
    Marked,
    NamedStates,
    marks_of,
    read_metadata_list,
)
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.protobuf.encoding import encode
from clusterspace.kube.protobuf.wire import Envelope, read_spans, write_bytes_field, write_envelope


def metadata(number: int, version: str = "7", time: str = "2026-01-02T03:04:05Z") -> dict[str, Any]:
    written = {"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": time}
    return {
        "name": f"pod-{number}",
        "namespace": "shop",
        "uid": f"uid-{number}",
        "resourceVersion": version,
        "generation": 300,
        "labels": {"app": "web" * 60},
        "managedFields": [{**written, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}],
    }


def listed(*items: dict[str, Any], **said: Any) -> dict[str, Any]:
    return {
        "kind": METADATA_LIST,
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "9", **said},
        "items": [{"metadata": each} for each in items],
    }


def in_protobuf(value: dict[str, Any]) -> NamedStates:
    read = read_metadata_list(encode(value), "west", is_protobuf=True)
    assert read is not None
    return read


def in_json(value: dict[str, Any]) -> NamedStates:
    read = read_metadata_list(json.dumps(value).encode(), "west", is_protobuf=False)
    assert read is not None
    return read


def test_both_forms_say_the_same():
    value = listed(*map(metadata, range(3)), **{"continue": "more", "remainingItemCount": 5})
    protobuf, plain = in_protobuf(value), in_json(value)

    assert protobuf.metadata == plain.metadata
    assert protobuf.metadata.continue_token == "more"
    assert protobuf.metadata.remaining == 5
    for at in range(3):
        assert protobuf.head(at) == plain.head(at)
        text = msgspec.Raw(json.dumps(metadata(at)).encode())
        assert protobuf.is_of(at, text)
        assert plain.is_of(at, text)


@pytest.mark.parametrize(
    "other",
    [
        metadata(0, version="8"),
        metadata(1),
        metadata(0, time="2026-01-02T03:04:06Z"),
        {**metadata(0), "managedFields": []},
    ],
    ids=["another version", "another object", "written at another time", "by nobody"],
)
def test_another_state_is_another_one(other: dict[str, Any]):
    text = msgspec.Raw(json.dumps(other).encode())
    assert not in_protobuf(listed(metadata(0))).is_of(0, text)
    assert not in_json(listed(metadata(0))).is_of(0, text)


def test_the_same_state_in_another_order_is_the_same():
    turned = dict(reversed(metadata(0).items()))
    assert in_json(listed(metadata(0))).is_of(0, msgspec.Raw(json.dumps(turned).encode()))


def test_objects_without_uid_or_version_are_like_no_other():
    bare = {"name": "x"}
    read = in_protobuf(listed(bare))

    assert read.head(0).name == "x"
    assert not read.is_of(0, msgspec.Raw(json.dumps(bare).encode()))
    with pytest.raises(UNREADABLE):
        marks_of(Marked())


def test_another_list_is_none_of_metadata():
    pods = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}
    assert read_metadata_list(json.dumps(pods).encode(), "west", is_protobuf=False) is None
    body = write_envelope(Envelope("v1", "PodList", b""))
    with pytest.raises(ClusterMisbehaved, match="it is a PodList"):
        read_metadata_list(body, "west", is_protobuf=True)


def test_what_is_unchanged_is_not_taken_apart():
    shown: list[bytes] = []

    def are_unchanged(items: memoryview) -> bool:
        shown.append(bytes(items))
        return len(shown) > 1

    first, second = (
        read_metadata_list(
            encode(listed(metadata(0), resourceVersion=version)),
            "west",
            is_protobuf=True,
            are_unchanged=are_unchanged,
        )
        for version in ("9", "12")
    )

    assert first is not None
    assert second is not None
    assert (len(first.states), len(second.states)) == (1, 0)
    assert second.are_unchanged
    assert second.metadata.resource_version == "12"
    assert shown[0] == shown[1], "whatever the list says of itself"


@pytest.mark.parametrize(
    "raw",
    [
        write_bytes_field(2, b""),
        write_bytes_field(2, write_bytes_field(3, b"x")),
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x12\x7f",
        b"\x15\x01\x01\x01\x01",
        write_bytes_field(2, write_bytes_field(1, b"")) * 1000,
        write_bytes_field(1, write_bytes_field(2, b"not a version!")),
        write_bytes_field(1, write_bytes_field(3, b"more")),
    ],
    ids=[
        "empty", "no metadata", "endless", "short", "a number", "many of nothing", "odd version",
        "nothing, and goes on",
    ],
)  # fmt: skip
def test_nonsense_is_the_clusters_fault(raw: bytes):
    body = write_envelope(Envelope("meta.k8s.io/v1", METADATA_LIST, raw))
    with pytest.raises(ClusterMisbehaved, match="not a list"):
        read_metadata_list(body, "west", is_protobuf=True)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes):
    try:
        spans = list(read_spans(data, 0, len(data), "x"))
    except ApiError:
        spans = []
    assert all(0 <= start <= end <= len(data) for _, start, end in spans)
    named = NamedStates(in_json(listed()).metadata, [memoryview(data)], is_protobuf=True)
    for read in (named.marks, named.head):
        try:
            read(0)
        except UNREADABLE:
            continue
