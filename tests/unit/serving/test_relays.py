"""What goes along when a call is passed on, and what stays."""

import pytest

from clusterspace.errors import Forbidden
from clusterspace.serving.relays import act_as, headers_to_pass
from clusterspace.serving.users import ANONYMOUS, User

JANE = User("jane", ("dev", "system:authenticated"), "u1", {"scopes/x": ("read", "write")})


def test_a_member_hears_user_and_groups():
    assert act_as(JANE, in_full=False) == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
    )


def test_the_hub_hears_everything_in_headers_that_are_headers():
    assert act_as(JANE, in_full=True) == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Extra-scopes%2Fx", "read"),
        ("Impersonate-Extra-scopes%2Fx", "write"),
    )


def test_nobody_in_particular_stays_nobody():
    assert act_as(ANONYMOUS, in_full=False) == (("Impersonate-User", "system:anonymous"),)


@pytest.mark.parametrize(
    "user",
    [
        User(""),
        User(" root"),
        User("root\t"),
        User("jane", (" system:masters",)),
        User("jane", ("dev\r\nImpersonate-Group: system:masters",)),
        User("jane", (), " u1"),
    ],
)
@pytest.mark.parametrize("in_full", [True, False])
def test_a_user_who_would_arrive_as_somebody_else_is_not_passed_on(user: User, in_full: bool):
    with pytest.raises(Forbidden):
        act_as(user, in_full=in_full)


def test_credentials_and_claims_stay_here():
    pairs = [
        ("accept", "application/json"),
        ("authorization", "Bearer secret"),
        ("impersonate-user", "root"),
        ("x-remote-user", "root"),
        ("cookie", "a=b"),
        ("host", "fleet"),
        ("connection", "close"),
        ("content-length", "3"),
        ("kubectl-session", "1"),
    ]

    assert headers_to_pass(pairs) == (("accept", "application/json"), ("kubectl-session", "1"))


def test_a_token_that_browsers_hide_in_a_protocol_stays_here():
    hidden = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    pairs = [
        ("sec-websocket-protocol", f"v5.channel.k8s.io, {hidden}"),
        ("sec-websocket-protocol", hidden),
    ]

    assert headers_to_pass(pairs) == (("sec-websocket-protocol", "v5.channel.k8s.io"),)
