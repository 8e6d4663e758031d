"""Answers spliced from stored bytes say what decoding and encoding would have said."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.apiserver.hub_subjects import CONFIG_MAPS, config_map, entry_of, served

from clusterspace.apiserver import forms
from clusterspace.apiserver.forms import Form, table_of
from clusterspace.apiserver.options import read_include
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.errors import BadRequest, StoreCorrupt
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import IncludeObject

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=4,
)
members = st.dictionaries(st.text(max_size=6), values, max_size=3)
CUSTOM = Form.of(kind="Widget", api_version="x.io/v2", stored_version="x.io/v1", bare_items=False)


def decode(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


@st.composite
def objects(draw: st.DrawFn) -> Object:
    rest = draw(members)
    metadata = {**draw(members), "name": "web"}
    return {**rest, "kind": "Widget", "apiVersion": "x.io/v2", "metadata": metadata}


@given(objects())
def test_a_spliced_object_is_the_decoded_one_encoded(widget: Object) -> None:
    stored = forms.encode_stored(widget, CUSTOM)
    entry = KeyValue("/registry/x.io/widgets/web", stored, Revision(3), Revision(41))

    spliced = decode(forms.object_bytes(entry, CUSTOM))

    assert spliced == forms.decode_stored(entry, CUSTOM)
    assert spliced["metadata"]["resourceVersion"] == "41"
    given_metadata = {**widget["metadata"], "resourceVersion": "41"}
    assert spliced == {**widget, "metadata": given_metadata}


@given(st.lists(objects(), max_size=3))
@settings(max_examples=20)
def test_the_items_of_a_list_are_the_objects_in_order(widgets: list[Object]) -> None:
    entries = [
        KeyValue(
            f"/k/{number}", forms.encode_stored(each, CUSTOM), Revision(1), Revision(number + 2)
        )
        for number, each in enumerate(widgets)
    ]

    items = decode(b"[" + b"".join(forms.item_pieces(entries, CUSTOM)) + b"]")

    assert items == [forms.decode_stored(entry, CUSTOM) for entry in entries]


def test_the_stored_bytes_have_no_version_and_begin_with_the_kind() -> None:
    entry = entry_of(config_map(resourceVersion="5"))

    assert b"resourceVersion" not in entry.value
    assert entry.value.startswith(b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name"')


def test_built_in_items_carry_no_kind() -> None:
    entries = [entry_of(config_map("a"), revision=3), entry_of(config_map("b"), revision=9)]

    items = decode(b"[" + b"".join(forms.item_pieces(entries, CONFIG_MAPS.form)) + b"]")

    assert [sorted(each) for each in items] == [["data", "metadata"]] * 2
    assert [each["metadata"]["resourceVersion"] for each in items] == ["3", "9"]


def test_another_version_of_a_kind_is_served_from_the_same_bytes() -> None:
    first = Form.of(
        kind="Widget", api_version="x.io/v1", stored_version="x.io/v1", bare_items=False
    )
    widget = {"kind": "Widget", "apiVersion": "x.io/v1", "metadata": {"name": "w"}, "spec": 1}
    entry = KeyValue("/k", forms.encode_stored(widget, first), Revision(1), Revision(2))

    assert decode(forms.object_bytes(entry, CUSTOM))["apiVersion"] == "x.io/v2"
    assert decode(forms.object_bytes(entry, first))["apiVersion"] == "x.io/v1"


def test_a_kind_with_two_shapes_is_converted_both_ways() -> None:
    new = served("events.k8s.io", "v1", "events")
    event: Object = {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": "e", "namespace": "default"},
        "note": "seen",
        "regarding": {"kind": "Pod", "name": "p"},
    }
    entry = entry_of(event, new)
    old = served("", "v1", "events")

    assert decode(entry.value)["message"] == "seen"
    assert decode(forms.object_bytes(entry, new.form))["note"] == "seen"
    assert decode(forms.object_bytes(entry, old.form))["involvedObject"]["name"] == "p"


def test_bytes_of_another_kind_are_never_served() -> None:
    entry = entry_of(config_map())
    secret = served("", "v1", "secrets")

    with pytest.raises(StoreCorrupt, match="/configmaps/default/web"):
        forms.object_bytes(entry, secret.form)


@pytest.mark.parametrize("labels", [{"a": "b"}, {}, None])
def test_labels_are_read_without_the_rest(labels: dict[str, str] | None) -> None:
    held = config_map() if labels is None else config_map(labels=labels)

    assert forms.labels_in(entry_of(held)) == (labels or {})


NOW = 1_700_000_000.0


def shown(include: IncludeObject) -> Object:
    made = config_map("web", creationTimestamp="2023-11-14T22:12:20Z", data={"a": "1", "b": "2"})
    return table_of(
        [made],
        CONFIG_MAPS.printer,
        list_metadata={"resourceVersion": "9", "selfLink": "x"},
        include=include,
        now=NOW,
    )


def test_a_row_has_the_kinds_cells_and_the_lists_version() -> None:
    table = shown(IncludeObject.NONE)

    assert table["metadata"] == {"resourceVersion": "9"}
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"] == ["web", 2, "60s"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("", "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"), ("Object", "ConfigMap")],
)
def test_a_row_carries_as_much_of_its_object_as_was_asked_for(text: str, kind: str) -> None:
    row = shown(read_include(text))["rows"][0]

    assert row["object"]["kind"] == kind
    assert ("data" in row["object"]) == (kind == "ConfigMap")


def test_a_row_may_carry_nothing() -> None:
    assert shown(read_include("None"))["rows"][0].get("object") is None


def test_another_amount_is_refused() -> None:
    with pytest.raises(BadRequest, match="Metadata, Object, None"):
        read_include("Everything")
