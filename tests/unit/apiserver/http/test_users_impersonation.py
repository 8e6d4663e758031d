import pytest

from clusterspace.apiserver.http.messages import Headers
from clusterspace.apiserver.http.users import Impersonation, read_account, read_impersonation
from clusterspace.errors import BadRequest


def impersonation(*pairs: tuple[str, str]) -> Impersonation | None:
    return read_impersonation(Headers(pairs))


def test_most_requests_want_to_be_nobody_else() -> None:
    assert impersonation(("host", "hub"), ("connection", "keep-alive")) is None


def test_every_value_is_a_check_of_its_own() -> None:
    wanted = impersonation(
        ("impersonate-user", "jane"),
        ("impersonate-group", "devs"),
        ("impersonate-group", "ops"),
        ("impersonate-uid", "7"),
        ("impersonate-extra-example.com%2fscope", "a"),
        ("impersonate-extra-example.com%2fscope", "b"),
    )

    assert wanted is not None
    checks = [(each.group, each.resource, each.subresource, each.name) for each in wanted.checks()]
    assert checks == [
        ("", "users", "", "jane"),
        ("", "groups", "", "devs"),
        ("", "groups", "", "ops"),
        ("authentication.k8s.io", "userextras", "example.com/scope", "a"),
        ("authentication.k8s.io", "userextras", "example.com/scope", "b"),
        ("authentication.k8s.io", "uids", "", "7"),
    ]
    assert {each.verb for each in wanted.checks()} == {"impersonate"}


def test_a_service_account_is_checked_in_its_namespace_and_brings_its_groups() -> None:
    wanted = Impersonation("system:serviceaccount:ci:bot")

    (check,) = wanted.checks()

    assert (check.resource, check.namespace, check.name) == ("serviceaccounts", "ci", "bot")
    assert wanted.become().groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:ci",
        "system:authenticated",
    )


@pytest.mark.parametrize(
    "name",
    [
        "system:serviceaccount:ci",
        "system:serviceaccount:CI:bot",
        "bot",
        "system:serviceaccount:a:b:c",
    ],
)
def test_what_only_looks_like_a_service_account_is_a_user(name: str) -> None:
    assert read_account(name) is None


@pytest.mark.parametrize(
    ("user", "groups", "expected"),
    [
        ("jane", (), ("system:authenticated",)),
        ("jane", ("devs",), ("devs", "system:authenticated")),
        ("jane", ("system:unauthenticated",), ("system:unauthenticated",)),
        ("system:anonymous", (), ("system:unauthenticated",)),
        ("system:anonymous", ("g",), ("g", "system:unauthenticated")),
    ],
)
def test_being_somebody_brings_a_group(
    user: str, groups: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert Impersonation(user, groups).become().groups == expected


@pytest.mark.parametrize(
    "pairs",
    [
        [("impersonate-group", "system:masters")],
        [("impersonate-user", "")],
        [("impersonate-user", "a"), ("impersonate-user", "b")],
        [("impersonate-user", "a"), ("impersonate-uid", "1"), ("impersonate-uid", "2")],
        [("impersonate_user", "a")],
        [("impersonate-user", "a"), ("impersonate_group", "system:masters")],
        [("impersonate-user", "a"), ("impersonate-groups", "system:masters")],
        [("impersonate-user", "a"), ("impersonate-extra-", "x")],
        [("impersonate-user", "a"), ("impersonate-extra-%ff", "x")],
        [("impersonate-user", "a"), ("connection", "close, Impersonate-User")],
        [("connection", "impersonate-user")],
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(BadRequest):
        impersonation(*pairs)
