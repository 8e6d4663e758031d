from typing import Any

import pytest
from tests.component.audit_lines import flat

from clusterspace.apiserver.http.audit_events import failed_login_events
from clusterspace.apiserver.http.audit_policy import default_policy
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.guards import (
    FAILURES_A_SECOND,
    LOG_EVERY_SECONDS,
    MOST_ADDRESSES,
    MOST_FAILURES,
    Authenticate,
    FailedLogins,
)
from clusterspace.apiserver.http.messages import Headers, Request
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import User
from clusterspace.errors import TooManyRequests
from clusterspace.testing.clocks import ManualClock


class FakeRequest(Request):
    """A request that has only what is looked at."""

    def __init__(self, address: str, token: str, memory: dict[str, Any]) -> None:
        self.headers = Headers((("authorization", f"Bearer {token}"),))
        self.target = b"/api/v1/pods"
        self._address = address
        self._memory = memory

    @property
    def peer_address(self) -> str:
        return self._address

    @property
    def peer_certificate(self) -> bytes | None:
        return None

    @property
    def connection_memory(self) -> dict[str, Any]:
        return self._memory

    def trust_connection(self) -> None:
        """Have no connection that anybody could trust."""


class Somebody:
    """Takes whoever asks for a user."""

    async def authenticate(self, request: Request) -> User:
        del request
        return User("jane")


async def answer_nothing(_context: RequestContext) -> None:
    """End the chain."""


def call_from(address: str, token: str = "secret-token") -> RequestContext:
    request = FakeRequest(address, token, {})
    return RequestContext(request, read_request("GET", "/api/v1/pods", ""), "id-1")


class Log:
    def __init__(self, clock: ManualClock) -> None:
        self.raw: list[dict[str, Any]] = []
        self.failures = FailedLogins(
            clock, self.raw.append, failed_login_events(default_policy(), clock)
        )

    @property
    def counts(self) -> list[tuple[str, int]]:
        return [(line["sourceIP"], line["count"]) for line in map(flat, self.raw)]


async def test_the_first_failure_is_told_at_once_and_the_rest_as_a_count() -> None:
    clock = ManualClock()
    log = Log(clock)
    for _ in range(50):
        log.failures.note(call_from("192.0.2.7"))
    assert log.counts == [("192.0.2.7", 1)]

    await clock.advance(LOG_EVERY_SECONDS)
    assert log.counts == [("192.0.2.7", 1), ("192.0.2.7", 49)]

    await clock.advance(3 * LOG_EVERY_SECONDS)
    log.failures.note(call_from("192.0.2.7"))
    assert log.counts[2:] == [("192.0.2.7", 1)]
    await clock.advance(3 * LOG_EVERY_SECONDS)


async def test_what_was_not_told_yet_is_told_at_the_end() -> None:
    log = Log(ManualClock())
    for _ in range(50):
        log.failures.note(call_from("192.0.2.7"))

    log.failures.close()

    assert log.counts == [("192.0.2.7", 1), ("192.0.2.7", 49)]


async def test_a_thousand_addresses_share_lines() -> None:
    clock = ManualClock()
    log = Log(clock)
    for number in range(1000):
        log.failures.note(call_from(f"10.0.{number // 250}.{number % 250}"))
    await clock.advance(LOG_EVERY_SECONDS)

    assert len(log.raw) <= MOST_ADDRESSES + 2
    assert sum(count for _, count in log.counts) == 1000
    await clock.advance(3 * LOG_EVERY_SECONDS)


async def test_an_address_that_keeps_failing_waits_and_others_do_not() -> None:
    clock = ManualClock()
    failures = Log(clock).failures
    for _ in range(int(MOST_FAILURES)):
        failures.require_patience(call_from("192.0.2.7"))
        failures.note(call_from("192.0.2.7"))

    with pytest.raises(TooManyRequests):
        failures.require_patience(call_from("192.0.2.7"))
    failures.require_patience(call_from("192.0.2.8"))
    known = call_from("192.0.2.7")
    await Authenticate(Somebody())(known, answer_nothing)
    failures.require_patience(known)

    await clock.advance(2 / FAILURES_A_SECOND)
    failures.require_patience(call_from("192.0.2.7"))
    await clock.advance(3 * LOG_EVERY_SECONDS)


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        ("a.b.c", "service-account-token"),
        ("abcdef.0123456789abcdef", "bootstrap-token"),
        ("hunter2", "token"),
    ],
)
async def test_a_line_names_the_kind_of_credential_and_not_the_credential(
    token: str, kind: str
) -> None:
    clock = ManualClock()
    log = Log(clock)
    log.failures.note(call_from("192.0.2.7", token))

    assert flat(log.raw[0])["credential"] == kind
    assert token not in str(log.raw[0])
    await clock.advance(3 * LOG_EVERY_SECONDS)
