"""What nobody owns any more leaves the object, and nothing else does."""

from typing import Any

import pytest
from tests.unit.kube.managed_fields.gadgets import SCHEMA

from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.merging import given_up, remove

SPEC = SCHEMA.properties["spec"]


@pytest.mark.parametrize(
    ("value", "gone", "kept"),
    [
        ({"size": "S", "replicas": 1}, [("f:size",)], {"replicas": 1}),
        ({"inner": {"a": "1", "b": "2"}}, [("f:inner", "f:a")], {"inner": {"b": "2"}}),
        ({"inner": {"a": "1"}}, [("f:inner", "f:a")], {"inner": {}}),
        ({"tags": ["a", "b"]}, [("f:tags", 'v:"a"')], {"tags": ["b"]}),
        ({"selector": {"a": "1"}}, [("f:selector", "f:a")], {"selector": {"a": "1"}}),
        (
            {"ports": [{"port": 1, "name": "x"}, {"port": 2}]},
            [("f:ports", 'k:{"port":1,"protocol":"TCP"}')],
            {"ports": [{"port": 2}]},
        ),
        (
            {"ports": [{"port": 1, "name": "x"}]},
            [("f:ports", 'k:{"port":1,"protocol":"TCP"}', "f:name")],
            {"ports": [{"port": 1}]},
        ),
        ({"size": "S"}, [("f:nowhere",)], {"size": "S"}),
    ],
)
def test_fields_are_taken_out(value: Any, gone: Any, kept: Any) -> None:
    assert remove(value, FieldSet.of(*gone), SPEC) == kept


def test_the_last_to_leave_takes_the_shell_along() -> None:
    mine = FieldSet.of(("f:inner", "f:a"))
    theirs = FieldSet.of(("f:inner", "f:b"))

    assert given_up(mine, FieldSet(), SPEC).owns("f:inner")
    assert not given_up(mine, theirs, SPEC).owns("f:inner")
    assert ("f:inner", "f:a") in given_up(mine, theirs, SPEC)
    assert not given_up(mine, mine | theirs, SPEC)
