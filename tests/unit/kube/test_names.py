import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus import load_scenario

from clusterspace.kube import names
from clusterspace.kube.names import NameCheck

CHECKS: list[NameCheck] = [
    names.dns1123_label_problems,
    names.dns1123_subdomain_problems,
    names.dns1035_label_problems,
    names.qualified_name_problems,
    names.label_value_problems,
    names.path_segment_problems,
]


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (names.dns1123_label_problems, "a"),
        (names.dns1123_label_problems, "1-b"),
        (names.dns1123_label_problems, "a" * 63),
        (names.dns1123_subdomain_problems, "example.com"),
        (names.dns1123_subdomain_problems, "a" * 253),
        (names.dns1035_label_problems, "web-1"),
        (names.label_key_problems, "app.kubernetes.io/name"),
        (names.label_key_problems, "My_Name.1"),
        (names.label_value_problems, ""),
        (names.label_value_problems, "My_Value"),
        (names.path_segment_problems, "system:controller:x y"),
        (names.path_segment_problems, "..."),
    ],
)
def test_a_good_name_has_no_problems(check: NameCheck, good: str):
    assert check(good) == ()


@pytest.mark.parametrize(
    ("check", "bad", "problems"),
    [
        (names.dns1123_label_problems, "a.b", ("must not contain dots",)),
        (names.dns1123_label_problems, "a" * 64, ("must be no more than 63 characters",)),
        (
            names.dns1123_label_problems,
            "A",
            (
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters "
                "or '-', and must start and end with an alphanumeric character (e.g. 'my-name', "
                " or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ),
        ),
        (
            names.dns1035_label_problems,
            "1",
            (
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
                "start with an alphabetic character, and end with an alphanumeric character "
                "(e.g. 'my-name',  or 'abc-123', regex used for validation is "
                "'[a-z]([-a-z0-9]*[a-z0-9])?')",
            ),
        ),
        (names.dns1123_subdomain_problems, "é" * 127, None),
        (names.label_key_problems, "/name", ("prefix part must be non-empty",)),
        (names.path_segment_problems, ".", ("may not be '.'",)),
        (names.path_segment_problems, "..", ("may not be '..'",)),
        (names.path_segment_problems, "a/b%", ("may not contain '/'", "may not contain '%'")),
    ],
)
def test_a_bad_name_is_refused_in_kubernetes_words(
    check: NameCheck, bad: str, problems: tuple[str, ...] | None
):
    found = check(bad)

    assert found
    if problems is not None:
        assert found == problems


def test_a_key_without_a_name_says_it_is_empty_and_what_a_name_is():
    assert names.label_key_problems("example.com/") == (
        "name part must be non-empty",
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and "
        "end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex "
        "used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    )


def test_a_key_with_two_slashes_is_told_what_a_key_looks_like():
    (problem,) = names.label_key_problems("a/b/c")

    assert problem.startswith("a qualified name must consist of alphanumeric characters")
    assert problem.endswith(
        " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
    )


def test_a_key_with_a_bad_prefix_and_a_long_name_is_told_both():
    problems = names.label_key_problems("Bad_/" + "x" * 64)

    assert problems[0].startswith("prefix part a lowercase RFC 1123 subdomain must consist of")
    assert problems[1:] == ("name part must be no more than 63 characters",)


def test_a_bad_label_value_is_shown_what_a_value_looks_like():
    assert names.label_value_problems("no spaces") == (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' "
        "or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
        "'my_value',  or '12345', regex used for validation is "
        "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    )


def test_length_is_counted_in_bytes():
    assert "must be no more than 63 characters" in names.label_value_problems("é" * 32)


def test_a_trailing_newline_is_part_of_the_name():
    for check in CHECKS[:-1]:
        assert check("web\n")


def test_a_real_server_says_the_same_of_a_bad_name():
    told = {
        step["response"]["body"]["details"]["name"]: cause["message"]
        for step in load_scenario("apiserver", "configmap_crud")["steps"]
        for cause in _causes_of(step)
        if cause["reason"] == "FieldValueInvalid"
    }
    assert len(told) == 2

    for bad, message in told.items():
        assert message == f'Invalid value: "{bad}": {names.dns1123_subdomain_problems(bad)[0]}'


def test_a_real_server_says_the_same_of_a_bad_prefix():
    told = {
        cause["message"]
        for step in load_scenario("apiserver", "generate_name_and_dry_run")["steps"]
        for cause in _causes_of(step)
        if cause["field"] == "metadata.generateName"
    }
    (problem,) = names.prefix_problems(names.dns1123_subdomain_problems, "Bad_")

    assert told == {f'Invalid value: "Bad_": {problem}'}


def _causes_of(step):
    body = step.get("response", {}).get("body")
    return body.get("details", {}).get("causes", []) if isinstance(body, dict) else []


def test_a_prefix_may_end_in_a_dash():
    assert names.prefix_problems(names.dns1123_subdomain_problems, "web-") == ()
    assert names.prefix_problems(names.dns1123_subdomain_problems, "-")
    assert names.prefix_problems(names.path_segment_problems, "..") == ()


def test_a_generated_name_is_the_base_and_five_characters():
    assert re.fullmatch(
        "web-[bcdfghjklmnpqrstvwxz2456789]{5}", names.generate_name("web-", random.Random(1))
    )


def test_a_long_base_is_cut_so_the_name_stays_a_label():
    generated = names.generate_name("x" * 100, random.Random(1))

    assert len(generated) == 63
    assert names.dns1123_label_problems(generated) == ()


def test_the_same_random_source_gives_the_same_name():
    assert names.generate_name("a", random.Random(3)) == names.generate_name("a", random.Random(3))


@given(st.text(max_size=300))
def test_any_text_can_be_checked(text: str):
    for check in CHECKS:
        assert all(isinstance(problem, str) for problem in check(text))
    assert set(names.dns1035_label_problems(text)) or not names.dns1123_label_problems(text)


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", fullmatch=True))
def test_a_label_is_also_a_subdomain(label: str):
    if not names.dns1123_label_problems(label):
        assert names.dns1123_subdomain_problems(label) == ()
