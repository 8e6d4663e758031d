"""Logins that strangers begin, and the issuer that is asked about them."""

import asyncio
from typing import Any

import pytest

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Headers, Request
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.client.issuers import Issuer, IssuerUnusable
from clusterspace.fleet.page.sign_on import SignOn, SignOnSettings
from clusterspace.testing.clocks import ManualClock

ISSUER = "https://sso.example.com"
AUTHORIZE = f"{ISSUER}/authorize"
PAGE = "/ui/#sign-on=failed"


class FakeRequest(Request):
    """A browser's, on no connection."""

    def __init__(self) -> None:
        self.method, self.path, self.query = "GET", "/ui/sign-on", ""
        self.headers = Headers([("host", "fleet.example.com")])


class Front:
    """A page whose issuer is down, or not, and counts how often it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.asked = 0
        self.is_up = False
        self._sign_on = SignOn(SignOnSettings(ISSUER, "page"), self.clock)

        async def discover(_: Issuer) -> dict[str, Any]:
            self.asked += 1
            await asyncio.sleep(0)
            if not self.is_up:
                raise IssuerUnusable("it is down")
            return {"authorization_endpoint": AUTHORIZE}

        monkeypatch.setattr(Issuer, "discover", discover)

    async def begin(self) -> str:
        """Begin a login as anybody can; return where the browser is sent."""
        request = FakeRequest()
        info = read_request(request.method, request.path, request.query)

        async def take(_: str) -> str:
            raise AssertionError("nobody came back")

        answer = await self._sign_on.answer(RequestContext(request, info, "id-1"), take)
        return dict(answer.headers)["Location"].partition("?")[0]


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Front:
    return Front(monkeypatch)


async def test_strangers_who_begin_logins_have_an_issuer_that_is_down_asked_once(
    front: Front,
) -> None:
    sent = await asyncio.gather(*(front.begin() for _ in range(50)))

    assert set(sent) == {PAGE}
    assert front.asked == 1
    await front.clock.advance(11)
    front.is_up = True
    assert await front.begin() == AUTHORIZE


async def test_logins_go_on_with_what_an_issuer_said_that_does_not_answer_now(front: Front) -> None:
    front.is_up = True
    assert await front.begin() == AUTHORIZE
    front.is_up = False
    await front.clock.advance(301)

    sent = await asyncio.gather(*(front.begin() for _ in range(50)))

    assert set(sent) == {AUTHORIZE}
    assert front.asked == 2
