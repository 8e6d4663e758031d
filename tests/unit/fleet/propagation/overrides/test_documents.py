from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.errors import InapplicablePatch, OverrideFailed
from clusterspace.fleet.propagation.overrides.documents import (
    override_document,
    read_json,
    read_yaml,
    write_json,
    write_yaml,
)
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map

JSON = '{"db": {"host": "a", "ports": [1, 2]}, "z": 1}'
YAML = "db:\n  host: a\n  ports:\n  - 1\n  - 2\nz: 1\n"


def overridden(text: str, form: str, *operations: Object) -> str:
    manifest = config_map("web", {"config": text, "other": "stays"})
    overrider = {"fieldPath": "/data/config", form: list(operations)}
    changed = override_document(manifest, overrider)
    assert changed["data"]["other"] == "stays"
    return changed["data"]["config"]


def operation(path: str, operator: str, value: Any = None) -> Object:
    return {"subPath": path, "operator": operator, "value": value}


def test_a_json_file_is_changed_inside() -> None:
    changed = overridden(
        JSON,
        "json",
        operation("/db/host", "replace", "b"),
        operation("/db/ports/0", "remove"),
        operation("/a", "add", {"y": 1, "x": None}),
    )

    assert changed == '{"a":{"x":null,"y":1},"db":{"host":"b","ports":[2]},"z":1}'


def test_a_yaml_file_is_changed_inside_and_stays_readable() -> None:
    changed = overridden(
        YAML, "yaml", operation("/db/host", "replace", "b"), operation("/motd", "add", "hi\nyou\n")
    )

    assert changed == "db:\n  host: b\n  ports:\n  - 1\n  - 2\nmotd: |\n  hi\n  you\nz: 1\n"


def test_a_document_may_be_a_list_or_be_replaced_whole() -> None:
    assert overridden("[1, 2]", "json", operation("/0", "remove")) == "[2]"
    assert overridden("[1, 2]", "json", operation("", "replace", {"a": 1})) == '{"a":1}'


def test_texts_that_look_like_numbers_stay_texts() -> None:
    changed = overridden('port: "80"\n', "yaml", operation("/name", "add", "yes"))

    assert read_yaml(changed, "/data/config") == {"port": "80", "name": "yes"}


@pytest.mark.parametrize(("text", "form"), [("{", "json"), ("a: [", "yaml"), ("a: *b", "yaml")])
def test_a_file_that_cannot_be_read_is_named(text: str, form: str) -> None:
    with pytest.raises(OverrideFailed, match="/data/config is not"):
        overridden(text, form, operation("/a", "add", 1))


def test_an_absent_place_inside_is_refused() -> None:
    with pytest.raises(InapplicablePatch):
        overridden(JSON, "json", operation("/absent/deep", "replace", 1))


def test_an_overrider_without_operations_changes_nothing() -> None:
    manifest = config_map("web", {"config": JSON})

    assert override_document(manifest, {"fieldPath": "/data/config"}) is manifest


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc/~:#- ", min_size=1, max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_what_is_written_is_read_back(document: Any) -> None:
    assert read_json(write_json(document), "/x") == document
    assert read_yaml(write_yaml(document), "/x") == document
