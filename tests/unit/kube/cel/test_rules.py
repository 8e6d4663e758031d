import pytest
from tests.unit.kube.cel.recordings import recorded, schema_with

from clusterspace.kube.cel.rules import check_rule_definitions

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
    items = {"type": "string", "x-kubernetes-validations": rule}
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": items}}}
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
