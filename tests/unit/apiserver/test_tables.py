"""Tables of stored objects, with as much of each object as was asked for."""

import pytest
from tests.unit.apiserver.hub_subjects import CONFIG_MAPS, config_map

from clusterspace.apiserver.forms import table_of
from clusterspace.apiserver.options import read_include
from clusterspace.errors import BadRequest
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import IncludeObject

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
