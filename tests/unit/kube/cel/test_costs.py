"""What rules may cost at most; the figures are those a kube-apiserver refuses definitions with."""

from typing import Any

import pytest

from clusterspace.kube.cel.rules import check_rule_definitions

PATH = "spec.validation.openAPIV3Schema"
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def listed(items: Any, most: int | None = None) -> dict[str, Any]:
    bound = {} if most is None else {"maxItems": most}
    return {"type": "array", "items": items, **bound}


def faults(rule: str, **properties: Any) -> list[str]:
    schema = {
        "type": "object",
        "properties": properties,
        "x-kubernetes-validations": [{"rule": rule}],
    }
    found = check_rule_definitions(schema, path=PATH)
    return [each.message for each in found if each.field.endswith("rule")]


@pytest.mark.parametrize(
    ("rule", "properties", "factor"),
    [
        ("self.a.all(x, self.a.exists(y, x == y))", {"a": listed(NUMBER, 1000)}, None),
        ("self.a.all(x, self.a.exists(y, x == y))", {"a": listed(NUMBER)}, "more than 100x"),
        (
            "self.a.all(y, self.a.exists(z, z == y))",
            {"a": listed({**TEXT, "maxLength": 63}, 3000)},
            "28.8x",
        ),
        ("self.a.split(',').all(x, x.size() > 1)", {"a": TEXT}, "2.0x"),
        ("self.a.split(',').all(x, x.size() > 1)", {"a": {**TEXT, "maxLength": 1000}}, None),
        ("self.a.matches('^[a-z]+$')", {"a": TEXT}, None),
        ("self.a.contains(self.b)", {"a": TEXT, "b": TEXT}, "more than 100x"),
        ("self.a == self.b", {"a": TEXT, "b": TEXT}, None),
        ("self.a.isSorted()", {"a": listed(NUMBER)}, None),
    ],
)
def test_a_rule_costs_what_the_largest_object_could_make_it_cost(
    rule: str, properties: Any, factor: str | None
) -> None:
    found = [each for each in faults(rule, **properties) if "budget" in each]

    if factor is None:
        assert found == []
    else:
        assert [each.split(" (try")[0] for each in found] == [
            f"Forbidden: estimated rule cost exceeds budget by factor of {factor}"
        ]


def test_a_rule_about_elements_costs_as_often_as_there_can_be_one() -> None:
    """Forty bytes and more for each element of 3 MB, with no bound on the list."""
    rule = [{"rule": "self.contains('abc')"}]
    element = {**TEXT, "maxLength": 1_000, "x-kubernetes-validations": rule}

    def found(most: int | None) -> tuple[Any, ...]:
        schema = {"type": "object", "properties": {"a": listed(element, most)}}
        return check_rule_definitions(schema, path=PATH)

    assert found(10) == ()
    assert found(None) != ()


def test_rules_that_are_affordable_one_by_one_may_be_too_dear_together() -> None:
    dear = {
        **listed({**TEXT, "maxLength": 63}, 500),
        "x-kubernetes-validations": [{"rule": "self.all(y, self.exists(z, z == y))"}],
    }
    names = [f"f{number}" for number in range(16)]
    schema = {"type": "object", "properties": dict.fromkeys(names, dear)}

    found = check_rule_definitions(schema, path=PATH)

    assert found[-1].field == PATH
    assert found[-1].message.startswith(
        "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema "
        "exceeds budget by factor of 1."
    )
    assert len(found) == 5, "the four dearest are named"
