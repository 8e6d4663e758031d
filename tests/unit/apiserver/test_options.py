"""Query parameters and DeleteOptions: what is understood, and Kubernetes' words for the rest."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus import load_scenario
from tests.unit.apiserver.hub_subjects import CONFIG_MAPS, PODS, config_map, entry_of

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.request_info import Query
from clusterspace.apiserver.options import (
    DeleteOptions,
    ListOptions,
    Selection,
    manager_from,
    read_delete_options,
    read_list_options,
    read_write_options,
    select,
)
from clusterspace.errors import ApiError, BadRequest, Invalid
from clusterspace.kube import statuses


def query(text: str) -> Query:
    return Query(tuple(parse_qsl(text, keep_blank_values=True)))


def test_writes_are_told_by_the_query() -> None:
    asked = query("dryRun=All&fieldValidation=Strict&fieldManager=me")

    options = read_write_options(asked, kind="CreateOptions", user_agent="kubectl/v1.35")

    assert (options.dry_run, options.field_validation) == (True, "Strict")
    assert (options.field_manager, options.force) == ("me", False)


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        ("kubectl/v1.35.0 (linux/amd64)", "kubectl"),
        ("Mozilla", "Mozilla"),
        ("", "unknown"),
        ("/x", "unknown"),
        ("m" * 300, "m" * 128),
    ],
)
def test_who_does_not_say_who_they_are_is_named_after_their_program(
    agent: str, manager: str
) -> None:
    assert manager_from(agent) == manager


def test_lists_are_told_by_the_query() -> None:
    options = read_list_options(
        query("limit=5&continue=abc&labelSelector=a%3Db&resourceVersion=7&allowWatchBookmarks=1"),
        is_watch=False,
    )

    assert (options.limit, options.continue_token, options.label_selector) == (5, "abc", "a=b")
    assert (options.resource_version, options.allow_bookmarks) == ("7", True)
    assert options.timeout_seconds is None
    assert options.send_initial_events is None


@pytest.mark.parametrize(
    ("asked", "is_watch", "field"),
    [
        ("resourceVersionMatch=Exact", False, "resourceVersionMatch"),
        ("resourceVersionMatch=Exact&resourceVersion=0", False, "resourceVersionMatch"),
        ("resourceVersionMatch=Sometimes&resourceVersion=1", False, "resourceVersionMatch"),
        (
            "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
            False,
            "resourceVersionMatch",
        ),
        ("sendInitialEvents=true", False, "sendInitialEvents"),
        ("sendInitialEvents=true", True, "resourceVersionMatch"),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", True, "resourceVersionMatch"),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=1", True, "resourceVersionMatch"),
    ],
)
def test_combinations_that_contradict_each_other_are_refused(
    asked: str, is_watch: bool, field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        read_list_options(query(asked), is_watch=is_watch)

    assert refused.value.details is not None
    assert field in {cause.field for cause in refused.value.details.causes}


@pytest.mark.parametrize(
    "asked", ["limit=x", "limit=1.5", "limit=%D9%A3", f"limit={'9' * 40}", "timeoutSeconds=soon"]
)
def test_a_number_that_is_none_is_refused(asked: str) -> None:
    with pytest.raises(BadRequest):
        read_list_options(query(asked), is_watch=False)


def test_the_body_of_a_delete_wins_over_its_query() -> None:
    body = {
        "kind": "DeleteOptions",
        "propagationPolicy": "Orphan",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
    }

    options = read_delete_options(query("propagationPolicy=Foreground&gracePeriodSeconds=9"), body)

    assert options == DeleteOptions(
        propagation="Orphan", grace_seconds=0, uid="u", resource_version="7"
    )


def test_the_old_word_for_orphans_is_understood() -> None:
    assert read_delete_options(query("orphanDependents=true"), None).propagation == "Orphan"
    assert read_delete_options(query(""), {"orphanDependents": True}).propagation == "Orphan"
    assert read_delete_options(query(""), {"orphanDependents": False}).propagation == ""


@pytest.mark.parametrize(
    "body",
    [
        {"preconditions": [1]},
        {"preconditions": {"uid": 5}},
        {"dryRun": "All"},
        {"gracePeriodSeconds": "now"},
        {"orphanDependents": "maybe"},
        {"propagationPolicy": {}},
        {"kind": "Pod"},
        [],
        5,
    ],
    ids=str,
)
def test_delete_options_that_cannot_be_read_are_refused(body: Any) -> None:
    with pytest.raises(BadRequest):
        read_delete_options(query(""), body)


def recorded(group: str, name: str, path: str) -> tuple[Query, dict[str, Any]]:
    """Return the query of a recorded request and the Status kube-apiserver answered with."""
    for step in load_scenario(group, name)["steps"]:
        asked = step.get("request")
        if asked is not None and asked["path"].endswith(path) and step["response"]["status"] == 422:
            return query(urlsplit(asked["path"]).query), step["response"]["body"]
    raise AssertionError(f"no refusal of {path} is recorded in {name}")


def refusal_of(read: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
    with pytest.raises(ApiError) as refused:
        read(*arguments, **options)
    return statuses.status_of(refused.value)


def test_refusals_of_options_are_worded_as_recorded() -> None:
    asked, said = recorded("apiserver", "lists_selectors_pages", "?resourceVersionMatch=Exact")
    assert refusal_of(read_list_options, asked, is_watch=False) == said

    asked, said = recorded("apiserver", "finalizers_and_deletion", "?propagationPolicy=Sideways")
    assert refusal_of(read_delete_options, asked, None) == said

    asked, said = recorded("apiserver", "generate_name_and_dry_run", "?dryRun=Some")
    words = {"kind": "CreateOptions", "user_agent": "test"}
    assert refusal_of(read_write_options, asked, **words) == said

    asked, said = recorded("apiserver", "server_side_apply", "/deployments/web")
    words = {"kind": "PatchOptions", "user_agent": "test"}
    assert refusal_of(read_write_options, asked, **words, is_apply=True) == said


def selection(labels: str = "", fields: str = "", resource: Served = CONFIG_MAPS) -> Selection:
    return select(resource, ListOptions(label_selector=labels, field_selector=fields))


def test_no_selector_selects_everything() -> None:
    assert selection().is_everything
    assert selection().matches_entry(entry_of(config_map()))


@pytest.mark.parametrize(
    ("labels", "fields", "is_selected"),
    [
        ("app=web", "", True),
        ("app=db", "", False),
        ("app", "", True),
        ("!app", "", False),
        ("app in (web,db),tier!=x", "", True),
        ("", "metadata.name=web", True),
        ("", "metadata.name!=web", False),
        ("", "metadata.name=db", False),
        ("", "metadata.namespace=default", True),
        ("", "metadata.namespace=other", False),
        ("app=web", "metadata.name=web", True),
        ("app=db", "metadata.name=web", False),
        ("app=web", "metadata.name=db", False),
        ("", "metadata.name=web,metadata.namespace=other", False),
    ],
)
def test_labels_and_fields_must_both_agree(labels: str, fields: str, is_selected: bool) -> None:
    entry = entry_of(config_map("web", labels={"app": "web"}))

    assert selection(labels, fields).matches_entry(entry) == is_selected


def test_a_pinned_name_is_known_before_anything_is_read() -> None:
    assert selection(fields="metadata.name=web").only_name == "web"
    assert selection(fields="metadata.name!=web").only_name is None


def test_fields_of_the_kind_are_read_from_the_object() -> None:
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running"},
    }
    entry = entry_of(pod, PODS)

    assert selection(fields="spec.nodeName=n1,status.phase=Running", resource=PODS).matches_entry(
        entry
    )
    assert not selection(fields="spec.nodeName=n2", resource=PODS).matches_entry(entry)


@pytest.mark.parametrize("fields", ["spec.replicas=1", "metadata.labels=x", "nothing=1"])
def test_a_field_the_kind_does_not_select_by_is_refused(fields: str) -> None:
    with pytest.raises(BadRequest, match="field"):
        selection(fields=fields)


@pytest.mark.parametrize(("labels", "fields"), [("a=b=c", ""), ("((", ""), ("", "a"), ("", "a=\\")])
def test_a_selector_that_cannot_be_read_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(ApiError) as refused:
        selection(labels, fields)
    assert refused.value.code == 400


label_maps = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]))
selectors = st.lists(
    st.sampled_from(["a=1", "a!=1", "b", "!b", "a in (1,2)", "b notin (2)"]), max_size=3
).map(",".join)


@given(label_maps, selectors, st.sampled_from(["", "metadata.name=web", "metadata.name!=x"]))
def test_the_quick_look_and_the_whole_object_agree(
    labels: dict[str, str], wanted: str, fields: str
) -> None:
    chosen = selection(wanted, fields)
    entry = entry_of(config_map("web", labels=labels))

    whole = forms.decode_stored(entry, CONFIG_MAPS.form)
    assert chosen.matches_entry(entry) == chosen.matches(whole)
