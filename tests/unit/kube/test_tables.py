"""Tables carry what was asked for and nothing else."""

from typing import Any

import pytest

from clusterspace.kube.tables import (
    Column,
    IncludeObject,
    partial_metadata,
    partial_metadata_list,
    table,
    table_row,
)

WEB: dict[str, Any] = {
    "kind": "Deployment",
    "apiVersion": "apps/v1",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"replicas": 2},
}


def test_a_table_declares_its_columns_and_keeps_the_page_of_the_list() -> None:
    page = {"resourceVersion": "7", "continue": "next", "remainingItemCount": 3, "selfLink": "x"}
    made = table([Column("Name", format="name")], [table_row(["web"], WEB)], page)

    assert made["kind"] == "Table"
    assert made["apiVersion"] == "meta.k8s.io/v1"
    assert made["metadata"] == {"resourceVersion": "7", "continue": "next", "remainingItemCount": 3}
    assert made["columnDefinitions"] == [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
    ]
    assert [row["cells"] for row in made["rows"]] == [["web"]]


def test_the_table_of_one_object_has_only_its_version() -> None:
    made = table([], [], {"name": "web", "resourceVersion": "7", "labels": {}})

    assert made["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        (IncludeObject.NONE, None),
        (IncludeObject.OBJECT, WEB),
        (IncludeObject.METADATA, partial_metadata(WEB)),
    ],
)
def test_a_row_includes_as_much_of_the_object_as_asked(
    include: IncludeObject, expected: Any
) -> None:
    assert table_row(["web"], WEB, include) == {"cells": ["web"], "object": expected}


def test_conditions_of_a_row_are_left_out_when_there_are_none() -> None:
    over = {"type": "Completed", "status": "True", "reason": "Succeeded"}

    assert table_row([], WEB, IncludeObject.NONE, [over])["conditions"] == [over]
    assert "conditions" not in table_row([], WEB, IncludeObject.NONE)


def test_partial_metadata_says_nothing_of_the_rest() -> None:
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": WEB["metadata"],
    }

    assert partial_metadata(WEB) == partial
    assert partial_metadata_list([WEB], {"resourceVersion": "7"}) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "items": [partial],
    }
