"""A configuration that does not fit is refused in Kubernetes' words."""

from typing import Any

import pytest
from hypothesis import given
from tests.unit.kube.managed_fields.gadgets import SCHEMA, gadget, json_values, specs

from clusterspace.errors import ApiError
from clusterspace.kube.managed_fields.apply import check_fits
from clusterspace.kube.managed_fields.typed_values import object_schema, owned_fields
from clusterspace.kube.schemas.model import ANYTHING

WHOLE = object_schema(SCHEMA)


def refusal(spec: Any) -> str:
    with pytest.raises(ApiError) as refused:
        check_fits(gadget(spec), WHOLE, "patch")
    assert refused.value.code == 500
    opening = "failed to create typed patch object (/g; example.com/v1, Kind=Gadget): "
    assert refused.value.message.startswith(opening)
    return refused.value.message.removeprefix(opening)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"nope": 1}, ".spec.nope: field not declared in schema"),
        ({"replicas": "1"}, ".spec.replicas: expected numeric (int or float), got string"),
        (
            {"size": 1},
            ".spec.size: expected string, got &value.valueUnstructured{Value:1}",
        ),
        ({"inner": [1, "a"]}, ".spec.inner: expected map, got &{[1 a]}"),
        ({"tags": {"a": True}}, ".spec.tags: expected list, got &{map[a:true]}"),
        ({"tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
        (
            {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
            '.spec.ports: duplicate entries for key [port=1,protocol="TCP"]',
        ),
        (
            {"ports": [None]},
            ".spec.ports: element 0: associative list with keys may not have a null element",
        ),
        (
            {"ports": ["x"]},
            ".spec.ports: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"tags": [None]},
            ".spec.tags: element 0: associative list without keys has an element that's an"
            " explicit null",
        ),
        (
            {"command": ["a", 2]},
            ".spec.command[1]: expected string, got &value.valueUnstructured{Value:2}",
        ),
        (
            {"replicas": True, "nope": 1, "ports": [{"port": 1, "zero": 1}]},
            ".spec.nope: field not declared in schema",
        ),
        (
            {"replicas": True, "size": []},
            "errors:\n  .spec.replicas: expected numeric (int or float), got bool"
            "\n  .spec.size: expected string, got &value.valueUnstructured{Value:[]}",
        ),
    ],
)
def test_each_mistake_is_named_with_its_place(spec: Any, message: str) -> None:
    assert refusal(spec) == message


def test_an_element_without_any_key_is_refused() -> None:
    keyed = object_schema(
        SCHEMA.__class__(
            {
                "properties": {
                    "list": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                    }
                }
            }
        )
    )

    with pytest.raises(ApiError, match=r'omits all key fields \["name"\]'):
        check_fits({"list": [{}]}, keyed, "patch")


@given(specs)
def test_what_fits_passes(spec: Any) -> None:
    check_fits(gadget(spec), WHOLE, "patch")


@given(json_values)
def test_what_passes_has_fields(spec: Any) -> None:
    try:
        check_fits(gadget(spec), WHOLE, "patch")
    except ApiError:
        return
    owned_fields(gadget(spec), WHOLE)


@given(json_values)
def test_anything_fits_where_nothing_is_known(value: Any) -> None:
    check_fits({"spec": value}, object_schema(ANYTHING), "patch")
