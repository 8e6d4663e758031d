"""Path elements are the texts Kubernetes would have written."""

import pytest
from hypothesis import given
from tests.unit.kube.managed_fields.gadgets import json_values

from clusterspace.kube.managed_fields.field_sets import canonical, key_element, value_element


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("x", 'v:"x"'),
        ("a<b>&c", r'v:"a\u003cb\u003e\u0026c"'),
        ("é", 'v:"é"'),
        (1, "v:1"),
        (1.0, "v:1"),
        (1.5, "v:1.5"),
        (True, "v:true"),
    ],
)
def test_values_are_written_as_go_writes_them(value: object, written: str) -> None:
    assert value_element(value) == written


def test_keys_are_sorted() -> None:
    assert key_element({"protocol": "TCP", "port": 80}) == 'k:{"port":80,"protocol":"TCP"}'


def test_true_is_not_one() -> None:
    assert value_element(True) != value_element(1)


@given(json_values)
def test_what_is_written_is_canonical(value: object) -> None:
    assert canonical(value_element(value)) == value_element(value)
    assert canonical(key_element({"k": value})) == key_element({"k": value})
