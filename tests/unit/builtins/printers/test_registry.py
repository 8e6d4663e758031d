import pytest

from clusterspace.builtins.printers.registry import printer_of

NOW = 1_700_000_000.0
OBJECT = {
    "metadata": {"name": "x", "creationTimestamp": "2023-11-14T22:11:20Z"},
    "spec": {"text": "v", "n": 3, "flag": True, "list": [{"x": "a"}, {"x": "b"}]},
}


@pytest.mark.parametrize(
    ("column_type", "path", "cell"),
    [
        ("string", ".spec.text", "v"),
        ("string", ".spec.n", "3"),
        ("string", ".spec.flag", "true"),
        ("string", ".spec.list", '[{"x":"a"},{"x":"b"}]'),
        ("string", ".spec.list[*].x", "a"),
        ("string", ".spec.nothing", None),
        ("string", ".spec.list[", None),
        ("integer", ".spec.n", 3),
        ("integer", ".spec.text", None),
        ("number", ".spec.n", 3),
        ("boolean", ".spec.flag", True),
        ("boolean", ".spec.n", None),
        ("date", ".metadata.creationTimestamp", "2m"),
        ("date", ".spec.text", "<invalid>"),
        ("date", ".spec.n", None),
    ],
)
def test_cells_are_what_kubectl_shows(column_type, path, cell):
    printer = printer_of([{"name": "C", "type": column_type, "jsonPath": path}])
    assert printer.cells_of(OBJECT, NOW) == ["x", cell]


def test_without_columns_of_its_own_a_resource_shows_its_age():
    printer = printer_of([])
    assert [column.name for column in printer.columns] == ["Name", "Age"]
    assert printer.cells_of(OBJECT, NOW) == ["x", "2m"]
