"""Tables of clusters of many versions print under one header, with the cluster beside the name."""

import json
from typing import Any

import pytest
from tests.corpus import load_scenario

from clusterspace.errors import ClusterMisbehaved
from clusterspace.fleet.gateway.merge import lists
from clusterspace.fleet.gateway.merge.lists import ClusterList, ListMetadata, read_cluster_list
from clusterspace.fleet.gateway.routes import Naming, Subject
from clusterspace.kube.tables import Column

GATES = Subject("example.com", "v1", "gates")
PODS = Subject("", "v1", "pods")
NAME = Column("Name", format="name").definition


def table(
    cluster: str, columns: list[Any], *rows: dict[str, Any], plain: bool = False
) -> ClusterList:
    body = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "5"},
        "columnDefinitions": columns,
        "rows": list(rows),
    }
    return read_cluster_list(json.dumps(body).encode(), Naming(cluster, qualifies_names=not plain))


def row(*cells: Any, **beside: Any) -> dict[str, Any]:
    return {"cells": list(cells), **beside}


def merged(*parts: ClusterList, subject: Subject = GATES, columns: tuple[Any, ...] = ()) -> Any:
    pieces = lists.merge_tables(
        parts, subject=subject, metadata=ListMetadata("vector"), columns=columns
    )
    return json.loads(b"".join(pieces))


def header(answer: Any) -> list[str]:
    return [column["name"] for column in answer["columnDefinitions"]]


def cells(answer: Any) -> list[list[Any]]:
    return [each["cells"] for each in answer["rows"]]


def column(name: str) -> Any:
    return Column(name).definition


def test_the_cluster_stands_second_and_the_name_carries_it_too() -> None:
    columns = [NAME, column("Age")]

    answer = merged(
        table("karmada", columns, row("a", "1d"), plain=True),
        table("m1", columns, row("a", "5m")),
    )

    assert header(answer) == ["Name", "Cluster", "Age"]
    assert cells(answer) == [["a", "karmada", "1d"], ["a.clusterspace.m1", "m1", "5m"]]
    assert answer["metadata"] == {"resourceVersion": "vector"}


def test_a_name_that_is_only_called_so_carries_its_cluster_too() -> None:
    """The Table that kube-apiserver makes of a Scale does not say which column is the name."""
    columns = [column("Name"), column("Desired")]

    answer = merged(table("m1", columns, row("web", 2)), columns=tuple(columns))

    assert header(answer) == ["Name", "Cluster", "Desired"]
    assert cells(answer) == [["web.clusterspace.m1", "m1", 2]]


def test_cells_are_matched_by_the_name_of_their_column() -> None:
    answer = merged(
        table("m1", [NAME, column("Age")], row("a", "5m")),
        table("m2", [NAME, column("State"), column("Age")], row("b", "open", "1h")),
        table("m3", [NAME, column("Owner")], row("c", "me")),
    )

    assert header(answer) == ["Name", "Cluster", "State", "Age", "Owner"]
    assert cells(answer) == [
        ["a.clusterspace.m1", "m1", "<none>", "5m", "<none>"],
        ["b.clusterspace.m2", "m2", "open", "1h", "<none>"],
        ["c.clusterspace.m3", "m3", "<none>", "<none>", "me"],
    ]


def test_a_row_with_too_few_or_too_many_cells_does_no_harm() -> None:
    answer = merged(table("m1", [NAME, column("Age")], row("a"), row("b", "1h", "more"), row()))

    assert cells(answer) == [
        ["a.clusterspace.m1", "m1", "<none>"],
        ["b.clusterspace.m1", "m1", "1h"],
        ["<none>", "m1", "<none>"],
    ]


def test_the_columns_of_an_earlier_page_are_kept_and_kept_first() -> None:
    first = lists.agreed_columns([table("m1", [NAME, column("Age")])], GATES)
    second = [table("m2", [NAME, column("State")], row("b", "open"))]

    answer = merged(*second, columns=first)

    assert header(answer) == ["Name", "Cluster", "Age", "State"]
    assert cells(answer) == [["b.clusterspace.m2", "m2", "<none>", "open"]]


def test_a_built_in_kind_has_the_same_header_whatever_a_cluster_says() -> None:
    other_words = {**NAME, "description": "Name, in the words of an older version"}

    one = merged(table("m1", [other_words], row("a")), subject=PODS)
    two = merged(table("m2", [NAME, column("Age")], row("b", "1h")), subject=PODS)

    assert one["columnDefinitions"] == two["columnDefinitions"]
    assert header(one)[:4] == ["Name", "Cluster", "Ready", "Status"]


@pytest.mark.parametrize("kind", ["PartialObjectMetadata", "Pod"])
def test_the_object_beside_the_cells_is_renamed(kind: str) -> None:
    beside = {"kind": kind, "metadata": {"name": "a", "ownerReferences": [{"name": "rs"}]}}

    answer = merged(table("m1", [NAME], row("a", object=beside)))

    assert answer["rows"][0]["object"]["metadata"] == {
        "name": "a.clusterspace.m1",
        "ownerReferences": [{"name": "rs.clusterspace.m1"}],
    }


def test_rows_without_an_object_and_with_conditions_keep_what_they_have() -> None:
    conditions = [{"type": "Completed", "status": "True"}]

    answer = merged(table("m1", [NAME], row("a", object=None, conditions=conditions)))

    assert answer["rows"] == [
        {"cells": ["a.clusterspace.m1", "m1"], "conditions": conditions, "object": None}
    ]


def test_a_cluster_that_knows_no_tables_shows_its_names() -> None:
    body = {
        "kind": "GateList",
        "apiVersion": "example.com/v1",
        "items": [{"metadata": {"name": "b"}}],
    }
    listed = read_cluster_list(json.dumps(body).encode(), Naming("m2", qualifies_names=True))

    answer = merged(table("m1", [NAME, column("Age")], row("a", "1h")), listed)

    assert cells(answer)[1] == ["b.clusterspace.m2", "m2", "<none>"]
    assert answer["rows"][1]["object"] == {
        "kind": "Gate",
        "apiVersion": "example.com/v1",
        "metadata": {"name": "b.clusterspace.m2"},
    }


def test_rows_that_are_no_rows_are_told_before_anything_is_written() -> None:
    with pytest.raises(ClusterMisbehaved, match="cluster m1"):
        table("m1", [NAME], {"cells": "a"})


def test_tables_a_real_cluster_answered_keep_every_cell() -> None:
    answers = [
        step["response"]["body"]
        for step in load_scenario("apiserver", "tables")["steps"]
        if step.get("response", {}).get("body", {}).get("kind") == "Table"
    ]

    assert answers
    for recorded in answers:
        # Recordings have a placeholder where the version was.
        versioned = {**recorded, "metadata": {"resourceVersion": "7"}}
        part = read_cluster_list(json.dumps(versioned).encode(), Naming("m1"))
        own = merged(part, columns=tuple(recorded["columnDefinitions"]))
        assert [[first, *rest] for first, _, *rest in cells(own)] == cells(recorded)
