"""`kubectl get` shows of every built-in kind what it shows of a real cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.corpus import load_scenario

from clusterspace.builtins.printers.cells import Printer, age_of, shortened
from clusterspace.builtins.printers.registry import PLAIN, printer_for
from clusterspace.builtins.resources import all_resources

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "recorded" / "tables.json").read_text()
)
# A real server declares two columns for three cells; kubectl can only show what is declared.
HAS_ONE_COLUMN_MORE = {"IPAddress"}
ROWS = [
    pytest.param(kind, row, id=f"{kind['kind']}-{row['object']['metadata']['name']}")
    for kind in RECORDED
    for row in kind["rows"]
]


def printer_of(kind: dict[str, Any]) -> Printer:
    return printer_for(kind["group"], kind["kind"])


def facts_of(printer: Printer) -> list[list[Any]]:
    return [[held.name, held.type, held.format, held.priority] for held in printer.columns]


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: f"{kind['group']}-{kind['kind']}")
def test_columns_are_those_of_a_real_server(kind: dict[str, Any]) -> None:
    columns = facts_of(printer_of(kind))
    extra = 1 if kind["kind"] in HAS_ONE_COLUMN_MORE else 0

    assert columns[: len(columns) - extra] == kind["columns"]


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_cells_are_those_of_a_real_server(kind: dict[str, Any], row: dict[str, Any]) -> None:
    printer = printer_of(kind)

    assert printer.cells_of(row["object"], row["now"]) == row["cells"]
    assert list(printer.conditions(row["object"])) == row.get("conditions", [])


def test_the_recorded_tables_have_these_columns() -> None:
    tables = {
        step["request"]["path"].partition("?")[0]: step["response"]["body"]
        for step in load_scenario("apiserver", "tables")["steps"]
        if "request" in step and step["response"]["body"].get("kind") == "Table"
    }
    by_plural = {held.info.plural: held.info for held in all_resources()}

    assert len(tables) >= 9
    for path, body in tables.items():
        info = next(by_plural[part] for part in reversed(path.split("/")) if part in by_plural)
        recorded = [
            [held["name"], held["type"], held["format"], held["priority"]]
            for held in body["columnDefinitions"]
        ]
        assert facts_of(printer_for(info.group, info.kind)) == recorded, path


def test_every_printer_can_show_an_object_that_says_nothing() -> None:
    for resource in all_resources():
        printer = printer_for(resource.info.group, resource.info.kind)
        cells = printer.cells_of({"metadata": {"name": "bare"}}, now=0)

        assert "bare" in cells
        assert len(cells) == len(printer.columns)


def test_a_kind_without_a_printer_shows_its_name_and_when_it_was_made() -> None:
    created = "2024-01-02T03:04:05Z"
    role = {"metadata": {"name": "reader", "creationTimestamp": created}}

    assert printer_for("rbac.authorization.k8s.io", "Role") is PLAIN
    assert PLAIN.cells_of(role, now=0) == ["reader", created]


def test_a_selector_is_shown_the_way_it_is_typed() -> None:
    reference = {"selector": {"matchLabels": {"app": "web"}}}
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": reference}}
    printer = printer_for("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding")

    assert printer.cells_of(binding, now=0)[2] == "app=web"


def test_a_row_carries_the_metadata_unless_told_otherwise() -> None:
    row = PLAIN.row_of({"metadata": {"name": "a"}, "rules": []}, now=0)

    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"] == {"name": "a"}


@pytest.mark.parametrize("moment", [None, "", "yesterday", 5])
def test_a_time_that_cannot_be_read_is_unknown(moment: Any) -> None:
    assert age_of(moment, now=0) == "<unknown>"


def test_a_long_list_says_how_much_is_left_out() -> None:
    assert shortened(["a", "b", "c", "d", "e"], when_empty="*") == "a,b,c + 2 more..."
    assert shortened([], when_empty="*") == "*"
