"""Query parameters and DeleteOptions: what is understood, and Kubernetes' words for the rest."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.corpus import load_scenario

from clusterspace.apiserver.http.request_info import Query
from clusterspace.apiserver.options import (
    DeleteOptions,
    manager_from,
    read_delete_options,
    read_list_options,
    read_write_options,
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
