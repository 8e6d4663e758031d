import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus import corpus_dir

from clusterspace import errors
from clusterspace.errors import ApiError, Cause, Details
from clusterspace.kube import statuses
from clusterspace.kube.resources import GroupKind, GroupResource

CONFIG_MAPS = GroupResource("", "configmaps")
CONFIG_MAP = GroupKind("", "ConfigMap")
HELD_UID = "<uid:2>"


def recorded_statuses() -> Iterator[dict[str, Any]]:
    """Every Status body a real API server was recorded to answer with."""
    for path in sorted((corpus_dir() / "apiserver").glob("*.json")):
        for step in json.loads(path.read_text())["steps"]:
            body = step.get("response", {}).get("body")
            if isinstance(body, dict) and body.get("kind") == "Status":
                yield body


def recorded(message: str) -> dict[str, Any]:
    found = [body for body in recorded_statuses() if body.get("message") == message]
    assert found, f"no recorded Status says {message!r}"
    return found[0]


@pytest.mark.parametrize(
    "error",
    [
        statuses.not_found(CONFIG_MAPS, "missing"),
        statuses.unknown_path(),
        statuses.already_exists(CONFIG_MAPS, "a"),
        statuses.conflict(CONFIG_MAPS, "a"),
        statuses.uid_conflict(
            CONFIG_MAP, "a", wanted="11111111-1111-1111-1111-111111111111", actual=HELD_UID
        ),
        statuses.version_conflict(CONFIG_MAP, "a", wanted="1", actual="202"),
        statuses.invalid(
            GroupKind("example.com", "Widget"),
            "b",
            [Cause("FieldValueDuplicate", 'Duplicate value: "x"', "spec.tags[1]")],
        ),
        statuses.invalid(
            GroupKind("apps", "Deployment"),
            "bad",
            [
                Cause(
                    "FieldValueInvalid",
                    "Invalid value: -1: must be greater than or equal to 0",
                    "spec.replicas",
                ),
                Cause(
                    "FieldValueInvalid",
                    'Invalid value: {"app":"other"}: `selector` does not match template `labels`',
                    "spec.template.metadata.labels",
                ),
                Cause("FieldValueRequired", "Required value", "spec.template.spec.containers"),
            ],
        ),
        statuses.invalid(
            GroupKind("meta.k8s.io", "PatchOptions"),
            "",
            [
                Cause(
                    "FieldValueRequired",
                    "Required value: is required for apply patch",
                    "fieldManager",
                )
            ],
        ),
        statuses.invalid(
            CONFIG_MAP,
            "a",
            [
                Cause(
                    "FieldValueInvalid",
                    'Invalid value: "11111111-1111-1111-1111-111111111111": field is immutable',
                    "metadata.uid",
                )
            ]
            * 2,
        ),
        statuses.forbidden(
            GroupResource("", "nodes"),
            "",
            'User "viewer" cannot list resource "nodes" in API group "" at the cluster scope',
        ),
        statuses.forbidden(
            GroupResource("", "users"),
            "admin",
            'User "viewer" cannot impersonate resource "users" in API group "" '
            "at the cluster scope",
        ),
        statuses.forbidden(
            CONFIG_MAPS,
            "y",
            "unable to create new content in namespace life because it is being terminated",
            [
                Cause(
                    "NamespaceTerminating",
                    "namespace life is being terminated",
                    "metadata.namespace",
                )
            ],
        ),
        statuses.forbidden_path('User "viewer" cannot get path "/metrics"'),
        statuses.unauthorized(),
        statuses.method_not_allowed(),
        statuses.not_acceptable(
            ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]
        ),
        statuses.unsupported_media_type(
            [
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]
        ),
        statuses.unknown_media_type(),
        statuses.version_too_large(99999999, 213),
        errors.BadRequest("the name of the object (other) does not match the name on the URL (a)"),
        errors.Malformed("metadata.managedFields must be nil", place="metadata.managedFields"),
        ApiError("map: map[image:noname] does not contain declared merge key: name"),
    ],
    ids=lambda error: error.message[:60],
)
def test_a_refusal_reads_as_a_real_server_writes_it(error: ApiError):
    status = statuses.status_of(error)

    assert status == recorded(error.message)
    assert list(status) == list(recorded(error.message))


def test_every_recorded_refusal_survives_becoming_an_error_and_back():
    failures = [body for body in recorded_statuses() if body["status"] == "Failure"]
    assert len(failures) > 40

    for body in failures:
        error = statuses.error_from(body, body["code"])
        assert statuses.status_of(error) == body
        assert error.code == body["code"]
        if "reason" in body:
            assert type(error).reason == body["reason"]


def test_a_deleted_object_is_answered_as_a_real_server_does():
    successes = [body for body in recorded_statuses() if body["status"] == "Success"]

    assert statuses.deleted(CONFIG_MAPS, "a", HELD_UID) in successes
    assert statuses.deleted(GroupResource("example.com", "widgets"), "a", "<uid:3>") in successes


@pytest.mark.parametrize(
    ("error", "code", "body"),
    [
        (
            statuses.too_large(10),
            413,
            {"message": "Request entity is too large: limit is 10"},
        ),
        (
            statuses.too_many_requests(3),
            429,
            {
                "message": "Too many requests, please try again later.",
                "details": {"retryAfterSeconds": 3},
            },
        ),
        (
            statuses.method_not_served("no pods here"),
            405,
            {"message": "no pods here", "details": {}},
        ),
        (statuses.unavailable("shutting down"), 503, {"message": "shutting down"}),
        (
            statuses.internal("disk on fire"),
            500,
            {
                "message": "Internal error occurred: disk on fire",
                "details": {"causes": [{"message": "disk on fire"}]},
            },
        ),
        (
            statuses.timed_out("no answer", retry_after_seconds=1),
            504,
            {"message": "Timeout: no answer", "details": {"retryAfterSeconds": 1}},
        ),
        (errors.Expired(statuses.WATCH_TOO_OLD), 410, {"message": statuses.WATCH_TOO_OLD}),
        (
            statuses.invalid(CONFIG_MAP, "a", []),
            422,
            {
                "message": 'ConfigMap "a" is invalid',
                "details": {"name": "a", "kind": "ConfigMap"},
            },
        ),
        (
            statuses.conflict(GroupResource("apps", "deployments"), "web", "gone fishing"),
            409,
            {
                "message": 'Operation cannot be fulfilled on deployments.apps "web": gone fishing',
                "details": {"name": "web", "group": "apps", "kind": "deployments"},
            },
        ),
    ],
)
def test_refusals_that_were_never_recorded_have_kubernetes_shape(
    error: ApiError, code: int, body: dict[str, Any]
):
    assert statuses.status_of(error) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": error.reason,
        "code": code,
        **body,
    }


@pytest.mark.parametrize(
    ("body", "http_code", "expected"),
    [
        ({"reason": "NotFound"}, 500, errors.NotFound),
        ({"reason": "Gone"}, 410, errors.Expired),
        ({"code": 409}, 500, errors.Conflict),
        ({}, 503, errors.ServiceUnavailable),
        ({"reason": "ServerTimeout", "code": 504}, 504, errors.DeadlineExceeded),
        ({}, 418, ApiError),
        ({}, 200, errors.InternalError),
        ({"code": 7}, 200, errors.InternalError),
    ],
)
def test_the_class_follows_the_reason_then_the_code(
    body: dict[str, Any], http_code: int, expected: type[ApiError]
):
    assert type(statuses.error_from(body, http_code)) is expected


def test_a_status_without_a_message_still_says_something():
    error = statuses.error_from({"code": 503}, 503)

    assert error.message == "the server answered with status 503"


def test_details_keep_what_can_be_read_of_them():
    error = statuses.error_from(
        {
            "reason": "Invalid",
            "details": {
                "name": 7,
                "kind": "Pod",
                "causes": [None, {"message": "m", "field": ["f"]}],
                "retryAfterSeconds": "soon",
            },
        },
        422,
    )

    assert error.details == Details(kind="Pod", causes=(Cause("", "m"),))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STATUS_LIKE = st.dictionaries(
    st.sampled_from(["message", "reason", "details", "code", "status"]), JSON
)


@given(STATUS_LIKE, st.integers(100, 599))
def test_any_body_becomes_an_error_that_can_be_passed_on(body: dict[str, Any], http_code: int):
    error = statuses.error_from(body, http_code)

    assert 400 <= error.code < 600
    assert statuses.status_of(error)["message"]


def test_names_are_quoted_so_that_they_cannot_break_out():
    error = statuses.not_found(CONFIG_MAPS, 'a" not found\n')

    assert error.message == 'configmaps "a\\" not found\\n" not found'
