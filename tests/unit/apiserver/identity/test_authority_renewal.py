"""Our own certificates, renewed in time."""

import asyncio

import pytest

from clusterspace.apiserver.identity.authority import (
    CERTIFICATE_LIFE,
    Authority,
    needs_renewal,
    renew_forever,
)
from clusterspace.testing.clocks import ManualClock

NOW = 1_700_000_000.0
LIFE = CERTIFICATE_LIFE.total_seconds()
AUTHORITY = Authority.create("test", NOW)


@pytest.mark.parametrize(
    ("share", "is_due"), [(0.0, False), (0.79, False), (0.81, True), (2.0, True)]
)
def test_a_certificate_is_due_when_a_fifth_of_its_life_is_left(share: float, is_due: bool):
    certificate = AUTHORITY.issue_server(("hub",), NOW).certificate

    assert needs_renewal(certificate, NOW + share * LIFE) is is_due


class Held:
    """A server certificate, and how often it was renewed."""

    def __init__(self, failures: int = 0) -> None:
        self.certificate = AUTHORITY.issue_server(("hub",), NOW).certificate
        self.renewals = 0
        self.failures = failures

    def held(self) -> tuple[bytes, ...]:
        return (self.certificate,)

    def renew(self, now: float) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        self.certificate = AUTHORITY.issue_server(("hub",), now).certificate
        self.renewals += 1


async def test_a_certificate_is_renewed_once_for_every_life():
    clock, subject = ManualClock(NOW), Held()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(renew_forever(clock, subject.held, subject.renew))
        await clock.advance(0.79 * LIFE)
        assert subject.renewals == 0
        await clock.advance(0.02 * LIFE)
        assert subject.renewals == 1
        await clock.advance(0.78 * LIFE)
        assert subject.renewals == 1
        running.cancel()


@pytest.mark.usefixtures("logged_errors")
async def test_a_renewal_that_fails_is_tried_again():
    clock, subject = ManualClock(NOW + 0.9 * LIFE), Held(failures=3)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(renew_forever(clock, subject.held, subject.renew))
        await clock.advance(179)
        assert subject.renewals == 0
        await clock.advance(2)
        assert subject.renewals == 1
        running.cancel()
