import pytest

from clusterspace.client.connection import retry_wait
from clusterspace.client.requests import Answer, ApiRequest
from clusterspace.errors import (
    AddressNotAllowed,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
)

READ = ApiRequest("GET", "/")
WRITES = [ApiRequest(method, "/") for method in ("POST", "PUT", "PATCH", "DELETE")]
NEVER_SENT = ClusterUnreachable("west", "refused", was_sent=False)
BROKE = ClusterUnreachable("west", "broke", was_sent=True)


def answer(status: int, retry_after: str = "") -> Answer:
    headers = {"retry-after": retry_after} if retry_after else {}
    return Answer(status, headers, b"")


@pytest.mark.parametrize("ask", [READ, *WRITES])
def test_what_was_never_sent_or_refused_unread_is_sent_again(ask: ApiRequest):
    assert retry_wait(ask, NEVER_SENT, 0.5) == 0.5
    assert retry_wait(ask, answer(429, "2"), 0.5) == 2.5


@pytest.mark.parametrize("ask", [READ, *WRITES])
def test_an_address_that_is_not_allowed_is_not_tried_again(ask: ApiRequest):
    refused = AddressNotAllowed("west", "it is loopback", address="127.0.0.1")

    assert retry_wait(ask, refused, 0.5) is None


@pytest.mark.parametrize("ask", WRITES)
def test_a_write_that_may_have_happened_is_never_repeated(ask: ApiRequest):
    assert retry_wait(ask, BROKE, 0.5) is None
    assert retry_wait(ask, answer(503, "1"), 0.5) is None


def test_a_read_is_repeated_after_a_break_and_when_the_server_says_when():
    assert retry_wait(READ, BROKE, 0.5) == 0.5
    assert retry_wait(READ, answer(503, "1"), 0.5) == 1.5


@pytest.mark.parametrize(
    "outcome",
    [
        answer(200),
        answer(404, "1"),
        answer(429),
        answer(500),
        answer(503, "soon"),
        answer(503, "3600"),
        ClusterTimeout("west", "late"),
        ClusterMisbehaved("west", "HTML"),
    ],
)
def test_everything_else_is_left_at_that(outcome: Answer):
    assert retry_wait(READ, outcome, 0.5) is None
