from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus import load_scenario

from clusterspace.errors import MalformedSelector
from clusterspace.kube.selectors import (
    ALWAYS_SELECTABLE,
    EVERYTHING,
    NOTHING,
    FieldRequirement,
    FieldSelector,
    LabelSelector,
    Operator,
    Requirement,
    label_selector_of,
    parse_field_selector,
    parse_label_selector,
    refuse_unknown_fields,
    require,
)

WORDS = st.sampled_from(["a", "b", "in", "notin", "x.io/app", "A_1", "7"])
VALUES = st.sampled_from(["", "a", "b", "in", "exists", "7", "12"])

SET_REQUIREMENTS = st.builds(
    require,
    WORDS,
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.sets(VALUES, min_size=1, max_size=4),
)
EXACT_REQUIREMENTS = st.builds(
    require,
    WORDS,
    st.sampled_from([Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.NOT_EQUALS]),
    VALUES.map(lambda value: [value]),
)
ORDER_REQUIREMENTS = st.builds(
    require,
    WORDS,
    st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]),
    st.integers(0, 20).map(lambda number: [str(number)]),
)
BARE_REQUIREMENTS = st.builds(
    require, WORDS, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST]), st.just([])
)
REQUIREMENTS = SET_REQUIREMENTS | EXACT_REQUIREMENTS | ORDER_REQUIREMENTS | BARE_REQUIREMENTS
SELECTORS = st.lists(REQUIREMENTS, max_size=4).map(
    lambda held: LabelSelector(tuple(sorted(held, key=lambda each: each.key)))
)
LABELS = st.dictionaries(WORDS, VALUES, max_size=4)


@given(SELECTORS)
def test_a_printed_selector_reads_back_as_itself(selector: LabelSelector):
    assert parse_label_selector(str(selector)) == selector


def naive_match(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Say the same with if and else, from Kubernetes' documentation."""
    is_set = requirement.key in labels
    value = labels.get(requirement.key, "")
    if requirement.operator is Operator.EXISTS:
        return is_set
    if requirement.operator is Operator.DOES_NOT_EXIST:
        return not is_set
    if requirement.operator in (Operator.NOT_IN, Operator.NOT_EQUALS):
        return not is_set or value not in requirement.values
    if requirement.operator in (Operator.IN, Operator.EQUALS, Operator.DOUBLE_EQUALS):
        return is_set and value in requirement.values
    if not is_set or not value.isdigit():
        return False
    (bound,) = requirement.values
    is_greater = requirement.operator is Operator.GREATER_THAN
    return int(value) > int(bound) if is_greater else int(value) < int(bound)


@given(SELECTORS, LABELS)
def test_a_selector_matches_when_each_requirement_does(
    selector: LabelSelector, labels: dict[str, str]
):
    expected = all(naive_match(each, labels) for each in selector.requirements)

    assert selector.matches(labels) is expected


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("  ", ""),
        ("b=1,a=2", "a=2,b=1"),
        ("a == b", "a==b"),
        ("x in (b, a,b)", "x in (a,b)"),
        ("x in ()", "x in ()"),
        ("x in (,a)", "x in (,a)"),
        ("x in (a,,b)", "x in (,a,b)"),
        ("x notin (a)", "x notin (a)"),
        ("! x , y", "!x,y"),
        ("x=", "x="),
        ("x=,y", "x=,y"),
        ("x!=a", "x!=a"),
        ("x>1,y<2", "x>1,y<2"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("a\t=\nb", "a=b"),
    ],
)
def test_a_selector_prints_as_kubernetes_prints_it(text: str, canonical: str):
    assert str(parse_label_selector(text)) == canonical


UNREADABLE = "unable to parse requirement: "


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (
            "tier of x",
            UNREADABLE + "found 'of', expected: in, notin, =, ==, !=, gt, lt",
            "character 6",
        ),
        ("=a", "found '=', expected: !, identifier, or 'end of string'", "character 1"),
        ("a,", "found '', expected: identifier after ','", "character 3"),
        ("a,,b", "found ',', expected: identifier after ','", "character 3"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'", "character 5"),
        ("!a in (b)", "found 'in', expected: ',' or 'end of string'", "character 4"),
        ("!", UNREADABLE + "found '', expected: identifier", "character 2"),
        ("a=(", UNREADABLE + "found '(', expected: identifier", "character 3"),
        ("a in b", UNREADABLE + "found 'b' expected: '('", "character 6"),
        ("a in (", UNREADABLE + "found '', expected: ',', ')' or identifier", "character 7"),
        ("a in (=", UNREADABLE + "found '=', expected: ',', ')' or identifier", "character 7"),
        ("a in (b", UNREADABLE + "found '', expected: ',' or ')'", "character 8"),
        ("a in (b c)", UNREADABLE + "found 'c', expected: ',' or ')'", "character 9"),
        ("a in (b,=)", UNREADABLE + "found '=', expected: ',', or identifier", "character 9"),
        (
            "a>b",
            UNREADABLE + 'values[0]: Invalid value: "b": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
            "character 1",
        ),
        (
            "app=" + "x" * 64,
            UNREADABLE + f'values[0][app]: Invalid value: "{"x" * 64}": '
            "must be no more than 63 characters",
            "character 1",
        ),
    ],
)
def test_an_unreadable_selector_is_refused_at_its_place(text: str, message: str, place: str):
    with pytest.raises(MalformedSelector) as refusal:
        parse_label_selector(text)

    assert refusal.value.message == message
    assert refusal.value.place == place


def test_a_bad_key_is_refused_before_what_follows_it():
    with pytest.raises(MalformedSelector) as refusal:
        parse_label_selector("_a of b")

    opening = 'unable to parse requirement: <nil>: Invalid value: "_a": name part must consist of'
    assert refusal.value.message.startswith(opening)


def test_several_faults_of_one_requirement_are_told_together():
    with pytest.raises(MalformedSelector) as refusal:
        require("a", Operator.GREATER_THAN, ["x", "_"])

    assert refusal.value.message.startswith(
        '[values: Invalid value: ["_","x"]: '
        "for 'Gt', 'Lt' operators, exactly one value is required, values[0]: "
    )


@pytest.mark.parametrize(
    ("operator", "values", "rule"),
    [
        (Operator.IN, [], "for 'in', 'notin' operators, values set can't be empty"),
        (Operator.EXISTS, ["a"], "values set must be empty for exists and does not exist"),
        (Operator.EQUALS, [], "exact-match compatibility requires one single value"),
    ],
)
def test_an_operator_takes_the_number_of_values_it_needs(
    operator: Operator, values: list[str], rule: str
):
    with pytest.raises(MalformedSelector) as refusal:
        require("a", operator, values)

    assert refusal.value.message.endswith(rule)


def test_numbers_compare_as_numbers_and_other_labels_never_match():
    above_nine = parse_label_selector("n>9")

    assert above_nine.matches({"n": "10"})
    assert above_nine.matches({"n": "0010"})
    assert not above_nine.matches({"n": "9"})
    assert not above_nine.matches({"n": "many"})
    assert not above_nine.matches({"n": str(2**63)})
    assert not above_nine.matches({"n": "9" * 5000})
    assert not above_nine.matches({})


def test_an_absent_selector_matches_nothing_and_an_empty_one_everything():
    assert label_selector_of(None) is NOTHING
    assert not NOTHING.matches({})
    assert not NOTHING.is_everything
    assert label_selector_of({}) == EVERYTHING == parse_label_selector("")
    assert EVERYTHING.matches({})
    assert EVERYTHING.is_everything


def test_a_selector_object_reads_as_its_text():
    selector = label_selector_of(
        {
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "NotIn", "values": ["y", "x"]},
                {"key": "a", "operator": "In", "values": ["z"]},
                {"key": "d", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist", "values": []},
            ],
        }
    )

    assert str(selector) == "a in (z),b=1,c notin (x,y),d,!e"


@pytest.mark.parametrize(
    ("selector", "place"),
    [
        ({"matchLabels": ["a"]}, "matchLabels"),
        ({"matchLabels": {"a": 1}}, "matchLabels[a]"),
        ({"matchLabels": {"a": None}}, "matchLabels[a]"),
        ({"matchExpressions": {"a": "b"}}, "matchExpressions"),
        ({"matchExpressions": ["a"]}, "matchExpressions[0]"),
        ({"matchExpressions": [{"key": "a", "operator": "Gt"}]}, "matchExpressions[0].operator"),
        ({"matchExpressions": [{"key": 1, "operator": "In"}]}, "matchExpressions[0].key"),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]},
            "matchExpressions[0].values",
        ),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "matchExpressions[0]"),
    ],
)
def test_a_malformed_selector_object_names_the_field(selector: dict[str, Any], place: str):
    with pytest.raises(MalformedSelector) as refusal:
        label_selector_of(selector)

    assert refusal.value.place == place


SELECTOR_TEXT = st.text() | st.text(alphabet="abx =!(),<>inot/\\", max_size=20)


@given(SELECTOR_TEXT)
def test_any_text_is_a_label_selector_or_is_refused_as_one(text: str):
    try:
        selector = parse_label_selector(text)
    except MalformedSelector:
        return
    assert parse_label_selector(str(selector)) == selector


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["matchLabels", "matchExpressions", "key", "operator", "values"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["matchLabels", "matchExpressions"]), JSON))
def test_any_object_is_a_label_selector_or_is_refused_as_one(selector: dict[str, Any]):
    try:
        read = label_selector_of(selector)
    except MalformedSelector:
        return
    assert parse_label_selector(str(read)) == read


def test_a_real_server_lists_what_our_selectors_match():
    steps = load_scenario("apiserver", "lists_selectors_pages")["steps"]
    objects = [step["setup"]["body"] for step in steps if "setup" in step]
    labels = {
        body["metadata"]["name"]: body["metadata"].get("labels", {})
        for body in objects
        if body["kind"] == "ConfigMap"
    }
    compared = 0
    for step in steps:
        query = parse_qs(urlsplit(step.get("request", {}).get("path", "")).query)
        if set(query) != {"labelSelector"}:
            continue
        body = step["response"]["body"]
        (text,) = query["labelSelector"]
        if body["kind"] == "Status":
            with pytest.raises(MalformedSelector) as refusal:
                parse_label_selector(text)
            assert refusal.value.message == body["message"]
        else:
            selector = parse_label_selector(text)
            listed = {item["metadata"]["name"] for item in body["items"]} & set(labels)
            assert {name for name, held in labels.items() if selector.matches(held)} == listed
        compared += 1
    assert compared >= 6


# --- Field selectors -------------------------------------------------------------------------

FIELD_NAMES = st.sampled_from(["metadata.name", "spec.nodeName", "status.phase"])
FIELD_SELECTORS = st.lists(
    st.builds(FieldRequirement, FIELD_NAMES, st.text(max_size=5), st.booleans()), max_size=3
).map(lambda held: FieldSelector(tuple(held)))


@given(FIELD_SELECTORS, st.dictionaries(FIELD_NAMES, st.text(max_size=5)))
def test_a_printed_field_selector_asks_the_same(selector: FieldSelector, fields: dict[str, str]):
    read_back = parse_field_selector(str(selector))

    assert set(read_back.requirements) == set(selector.requirements)
    assert read_back.matches(fields) is all(
        (fields.get(asked.field, "") == asked.value) is asked.is_equal
        for asked in selector.requirements
    )
    assert str(parse_field_selector(str(read_back))) == str(read_back)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (",,", ""),
        ("b==2,a=1", "a=1,b=2"),
        ("a!=1", "a!=1"),
        (r"a=x\,y\=\\z", r"a=x\,y\=\\z"),
        ("a=", "a="),
    ],
)
def test_a_field_selector_prints_as_kubernetes_prints_it(text: str, canonical: str):
    assert str(parse_field_selector(text)) == canonical


def test_escapes_stand_for_themselves():
    selector = parse_field_selector(r"a=x\,y\=\\z")

    assert selector.matches({"a": r"x,y=\z"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=\\", "invalid field selector: invalid escape sequence: \\"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=b=\x", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_an_unreadable_field_selector_is_refused(text: str, message: str):
    with pytest.raises(MalformedSelector) as refusal:
        parse_field_selector(text)

    assert refusal.value.message == message
    assert refusal.value.place


def test_an_exact_field_tells_its_value():
    selector = parse_field_selector("metadata.name=web,status.phase!=Failed")

    assert selector.requires_exact("metadata.name") == "web"
    assert selector.requires_exact("status.phase") is None
    assert selector.requires_exact("spec.nodeName") is None
    assert selector.fields == {"metadata.name", "status.phase"}


def test_a_field_that_is_absent_is_empty():
    assert parse_field_selector("spec.nodeName=").matches({})
    assert parse_field_selector("spec.nodeName!=a").matches({})


def test_an_unknown_field_is_refused_as_a_real_server_does():
    recorded = load_scenario("apiserver", "lists_selectors_pages")["steps"]
    messages = {step["response"]["body"].get("message") for step in recorded if "response" in step}

    with pytest.raises(MalformedSelector) as refusal:
        refuse_unknown_fields(parse_field_selector("data.x=1"), ALWAYS_SELECTABLE)

    assert refusal.value.message in messages


def test_a_kind_with_more_fields_refuses_others_in_its_own_words():
    known = (*ALWAYS_SELECTABLE, "spec.nodeName")
    refuse_unknown_fields(parse_field_selector("spec.nodeName=a"), known)

    with pytest.raises(MalformedSelector, match=r"^field label not supported: spec\.x$"):
        refuse_unknown_fields(parse_field_selector("spec.x=a"), known)


@given(st.text() | st.text(alphabet="ab=!,\\", max_size=12))
def test_any_text_is_a_field_selector_or_is_refused_as_one(text: str):
    try:
        selector = parse_field_selector(text)
    except MalformedSelector:
        return
    assert set(parse_field_selector(str(selector)).requirements) == set(selector.requirements)
