import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.access.rbac import Rule, missing_atoms, read_rules
from clusterspace.apiserver.http.request_info import RequestInfo


def resource(verb: str, name: str, part: str = "", group: str = "") -> RequestInfo:
    return RequestInfo("", "", verb, is_resource=True, group=group, resource=name, subresource=part)


@pytest.mark.parametrize(
    ("resources", "asked", "part", "is_allowed"),
    [
        (("pods",), "pods", "", True),
        (("pods",), "pods", "log", False),
        (("pods/log",), "pods", "log", True),
        (("pods/log",), "pods", "", False),
        (("*/log",), "pods", "log", True),
        (("*/log",), "pods", "", False),
        (("*",), "pods", "log", True),
        (("pod",), "pods", "", False),
    ],
)
def test_a_resource_is_not_its_subresource(
    resources: tuple[str, ...], asked: str, part: str, is_allowed: bool
) -> None:
    rule = Rule(("get",), ("",), resources)

    assert rule.allows(resource("get", asked, part), "") is is_allowed


def test_names_limit_a_rule_to_those_objects() -> None:
    rule = Rule(("get",), ("",), ("pods",), ("web",))

    assert rule.allows(resource("get", "pods"), "web")
    assert not rule.allows(resource("get", "pods"), "other")
    assert not rule.allows(resource("get", "pods"), "")


@pytest.mark.parametrize(
    ("held", "path", "is_allowed"),
    [
        ("/api", "/api", True),
        ("/api", "/api/v1", False),
        ("/api/*", "/api/v1", True),
        ("/api/*", "/apis", False),
        ("*", "/anything", True),
    ],
)
def test_a_star_at_the_end_of_a_path_stands_for_any_rest(
    held: str, path: str, is_allowed: bool
) -> None:
    assert Rule(("get",), paths=(held,)).allows(RequestInfo("", path, "get"), "") is is_allowed


def test_a_rule_about_paths_says_nothing_about_resources() -> None:
    assert not Rule(("*",), paths=("*",)).allows(resource("get", "pods"), "")
    everything = Rule(("*",), ("*",), ("*",))
    assert not everything.allows(RequestInfo("", "/metrics", "get"), "")


def test_what_is_not_a_rule_grants_nothing() -> None:
    assert read_rules(None) == ()
    assert read_rules(["*", 7]) == ()
    assert read_rules([{"verbs": "*", "resources": [1], "apiGroups": None}]) == (Rule(()),)


def test_a_named_rule_does_not_cover_one_without_names() -> None:
    named = Rule(("get",), ("",), ("pods",), ("web",))
    free = Rule(("get",), ("",), ("pods",))

    assert list(missing_atoms([free], [named])) == [free]
    assert list(missing_atoms([named], [free])) == []


WORDS = st.sampled_from(("get", "list", "*"))
RESOURCES = st.sampled_from(("pods", "pods/log", "*/log", "*"))


def tuples(values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(values, min_size=1, max_size=3).map(tuple)


RULES = st.builds(
    Rule,
    verbs=tuples(WORDS),
    groups=tuples(st.sampled_from(("", "apps", "*"))),
    resources=tuples(RESOURCES),
    names=st.sampled_from(((), ("web",), ("web", "db"))),
)


@given(RULES, RULES, st.sampled_from(("get", "list")), st.sampled_from(("", "log")), st.data())
def test_whoever_covers_a_rule_is_allowed_all_it_allows(
    wanted: Rule, held: Rule, verb: str, part: str, data: st.DataObject
) -> None:
    info = resource(verb, "pods", part, data.draw(st.sampled_from(("", "apps", "batch"))))
    name = data.draw(st.sampled_from(("", "web", "db")))

    if not any(missing_atoms([wanted], [held])) and wanted.allows(info, name):
        assert held.allows(info, name)


@given(RULES)
def test_everybody_holds_what_they_hold(rule: Rule) -> None:
    assert list(missing_atoms([rule], [rule])) == []
