"""Rules with faults are refused; objects obey those that stand, in Kubernetes words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kube.cel.recordings import recorded, schema_with

from clusterspace.kube.cel.rules import check_rule_definitions, check_rules
from clusterspace.kube.schemas.model import Schema

COMPILATIONS = recorded("compilations")
PATH = "spec.validation.openAPIV3Schema"
PLACE = f"{PATH}.properties[spec].x-kubernetes-validations[0]."


@pytest.mark.parametrize(("rule", "causes"), COMPILATIONS["refused"], ids=lambda held: str(held))
def test_a_rule_is_refused_in_the_words_of_kubernetes(rule, causes):
    found = check_rule_definitions(schema_with(COMPILATIONS["schema"], rule), path=PATH)
    shown = [[each.reason, each.field.removeprefix(PLACE), each.message] for each in found]
    assert shown == causes


@pytest.mark.parametrize("text", COMPILATIONS["accepted"])
def test_a_rule_that_kubernetes_takes_is_taken(text):
    raw = {"rule": text}
    if "oldSelf.hasValue" in text:
        raw["optionalOldSelf"] = True
    if ".o.x" in text and text == "true":
        raw["fieldPath"] = ".o.x"
    assert check_rule_definitions(schema_with(COMPILATIONS["schema"], raw), path=PATH) == ()


def test_what_an_element_was_cannot_be_asked_where_elements_cannot_be_told_apart():
    rule = [{"rule": "self == oldSelf"}]
    items = {"type": "string", "maxLength": 9, "x-kubernetes-validations": rule}
    listed = {"type": "array", "maxItems": 9, "items": items}
    schema = {"type": "object", "properties": {"l": listed}}
    (cause,) = check_rule_definitions(schema, path=PATH)
    assert cause.field == f"{PATH}.properties[l].items.x-kubernetes-validations[0].rule"
    assert cause.message == (
        'Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion '
        f"of the schema within {PATH}.properties[l]"
    )


@pytest.mark.parametrize(
    "rule",
    [
        "self.__namespace__ == self.a__dot__b && self.namespace == 'x'",
        "self.a__dash__b == self.a__underscores__b && self.a__slash__b == 'x'",
        "self.metadata.name == self.metadata.generateName && self.kind == self.apiVersion",
    ],
)
def test_fields_with_odd_names_and_the_metadata_can_be_asked_about(rule):
    names = ("namespace", "a.b", "a-b", "a__b", "a/b")
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "x-kubernetes-validations": [{"rule": rule}],
    }
    assert check_rule_definitions(schema, path=PATH) == ()


@pytest.mark.parametrize("field", ["labels", "namespace", "annotations"])
def test_other_metadata_cannot_be_asked_about(field):
    rule = {"rule": f"self.metadata.{field} == 'x'"}
    schema = {"type": "object", "x-kubernetes-validations": [rule]}
    (cause,) = check_rule_definitions(schema, path=PATH)
    assert f"undefined field '{field}'" in cause.message


@pytest.mark.parametrize("text", ["(" * 200 + "true" + ")" * 200, "!" * 300 + "true", "[" * 500])
def test_a_rule_that_nests_too_deeply_is_refused_and_breaks_nothing(text):
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": text}]}
    (cause,) = check_rule_definitions(schema, path=PATH)
    assert "compilation failed" in cause.message


def test_long_chains_are_not_deep():
    rule = " && ".join(f"self.metadata.name != 'n{number}'" for number in range(500))
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": rule}]}
    assert check_rule_definitions(schema, path=PATH) == ()


# Evaluation.

VERDICTS = recorded("verdicts")


@pytest.mark.parametrize(("rule", "message"), VERDICTS["verdicts"])
def test_a_rule_holds_or_not_as_in_kubernetes(rule, message):
    schema = Schema(schema_with(VERDICTS["schema"], {"rule": rule, "message": "#"}))
    found = check_rules({"spec": VERDICTS["object"]}, schema)
    assert [cause.message for cause in found] == ([message] if message else [])


def _held(rules, spec_schema, new, old=None):
    schema = Schema(schema_with({"type": "object", "properties": spec_schema}, *rules))
    before = {} if old is None else {"old": {"spec": old}}
    return check_rules({"spec": new}, schema, **before)


REPLICAS = {name: {"type": "integer"} for name in ("minReplicas", "replicas", "maxReplicas")}


@pytest.mark.parametrize(
    ("replicas", "holds"), [((1, 2, 3), True), ((1, 1, 1), True), ((2, 1, 3), False)]
)
def test_the_documented_rule_about_replicas(replicas, holds):
    rule = {"rule": "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas"}
    new = dict(zip(REPLICAS, replicas, strict=True))
    assert (_held([rule], REPLICAS, new) == ()) is holds


def test_a_rule_about_a_change_is_not_asked_of_something_new():
    rule = {"rule": "self.replicas >= oldSelf.replicas", "message": "never fewer"}
    assert _held([rule], REPLICAS, {"replicas": 1}) == ()
    assert _held([rule], REPLICAS, {"replicas": 3}, {"replicas": 2}) == ()
    (cause,) = _held([rule], REPLICAS, {"replicas": 1}, {"replicas": 2})
    assert (cause.field, cause.message) == ("spec", "Invalid value: never fewer")


def test_a_rule_may_ask_for_the_old_value_even_of_something_new():
    rule = {"rule": "oldSelf.hasValue() || self.replicas == 1", "optionalOldSelf": True}
    assert _held([rule], REPLICAS, {"replicas": 1}) == ()
    assert len(_held([rule], REPLICAS, {"replicas": 2})) == 1
    assert _held([rule], REPLICAS, {"replicas": 2}, {"replicas": 1}) == ()


def test_a_message_can_be_made_from_the_object():
    rule = {
        "rule": "self.replicas < 5",
        "message": "too many",
        "messageExpression": "'%d replicas are too many'.format([self.replicas])",
    }
    (cause,) = _held([rule], REPLICAS, {"replicas": 9})
    assert cause.message == "Invalid value: 9 replicas are too many"


def test_a_message_that_cannot_be_made_gives_way_to_the_written_one():
    rule = {"rule": "false", "message": "written", "messageExpression": "string(self.replicas)"}
    (cause,) = _held([rule], REPLICAS, {})
    assert cause.message == "Invalid value: written"


def test_a_rule_says_which_field_to_blame_and_why():
    rule = {"rule": "has(self.replicas)", "reason": "FieldValueRequired", "fieldPath": ".replicas"}
    (cause,) = _held([rule], REPLICAS, {})
    assert (cause.reason, cause.field) == ("FieldValueRequired", "spec.replicas")
    assert cause.message == "Required value: failed rule: has(self.replicas)"


NUMBERS = {"l": {"type": "array", "items": {"type": "integer"}}}


@pytest.mark.parametrize(
    "rule",
    [
        "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))",
        "self.l.map(a, self.l).size() > 0 && self.l.all(a, self.l == self.l)",
        "lists.range(100000000).size() > 0",
        "lists.range(2000).map(a, lists.range(2000)).flatten().size() > 0",
    ],
)
def test_a_rule_that_takes_too_long_is_ended(rule):
    (cause,) = _held([{"rule": rule}], NUMBERS, {"l": list(range(2000))})
    assert "actual cost limit exceeded" in cause.message
    assert "no further validation rules will be run" in cause.message


def test_a_rule_that_fails_pays_for_its_work_like_any_other():
    """One stood at every item of a list: each failure took a moment, and none was counted."""
    costly = "lists.range(250000).size() > 0 && [1][5] == 1"
    items = {"type": "integer", "x-kubernetes-validations": [{"rule": costly}]}

    numbers = {"numbers": {"type": "array", "items": items}}
    broken = _held([], numbers, {"numbers": list(range(200))})

    assert 1 < len(broken) < 20
    assert "exceeds limit" in broken[-1].message


def test_a_text_that_doubles_with_every_step_is_ended():
    grown = "['x']" + ".map(s, s + s)" * 60
    (cause,) = _held([{"rule": f"{grown}.size() == 1"}], NUMBERS, {"l": []})
    assert "actual cost limit exceeded" in cause.message


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_lists_answer_as_python_does(numbers):
    rules = [
        {"rule": f"self.l.isSorted() == {str(numbers == sorted(numbers)).lower()}"},
        {"rule": f"self.l.sort() == {sorted(numbers)}"},
        {"rule": f"self.l.distinct().size() == {len(set(numbers))}"},
        {"rule": f"self.l.filter(x, x > 0).size() == {sum(each > 0 for each in numbers)}"},
    ]
    assert _held(rules, NUMBERS, {"l": numbers}) == ()


@given(st.text(max_size=20), st.text(min_size=1, max_size=3))
def test_splitting_and_joining_are_each_others_inverse(text, separator):
    schema = {name: {"type": "string"} for name in ("text", "by")}
    rule = {"rule": "self.text.split(self.by).join(self.by) == self.text"}
    assert _held([rule], schema, {"text": text, "by": separator}) == ()


def test_a_long_list_is_compared_with_the_old_one_once():
    compared = 0

    class Element(dict[str, object]):
        __hash__ = None

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return dict.__eq__(self, other)

    items = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.size > 0"}],
    }
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    listed = {"type": "array", "items": items, **keyed}
    schema = Schema({"type": "object", "properties": {"list": listed}})

    def value(last):
        elements = [Element(name=f"e{index}", size=1) for index in range(500)]
        return {"list": [*elements, Element(name="last", size=last)]}

    (cause,) = check_rules(value(0), schema, old=value(1))
    assert cause.field == "list[500]"
    assert compared < 2_000
