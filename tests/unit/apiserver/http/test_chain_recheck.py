import asyncio
import base64
import json
from typing import Any

import pytest

from clusterspace.apiserver.http.chain import RECHECK_SECONDS, UNHEARD_SECONDS, Recheck, chain
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Headers, Request, Response
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import CertificateLogin, User
from clusterspace.errors import (
    ApiError,
    AuthorityDropped,
    Forbidden,
    ServiceUnavailable,
    Unauthorized,
)
from clusterspace.testing.clocks import ManualClock

WATCH = "watch=1"


class FakeRequest(Request):
    """A request that can be cut."""

    def __init__(self) -> None:
        self.headers = Headers((("authorization", "Bearer x"),))
        self.is_upgrade = False
        self.cuts: list[bool] = []
        self.memory: dict[Any, Any] = {}

    @property
    def connection_memory(self) -> dict[Any, Any]:
        return self.memory

    def cut(self) -> None:
        self.cuts.append(True)


class Guards:
    """Lets everybody in, until told otherwise."""

    def __init__(self) -> None:
        self.user = User("jane")
        self.refusal: ApiError | None = None
        self.header = "Bearer x"
        self.asked = 0

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        assert context.request.headers.get("authorization") == self.header
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal
        context.user = self.user
        return await rest(context)


class Stage:
    """One call that stays open, and who is asked about it."""

    def __init__(self, query: str = WATCH) -> None:
        self.clock = ManualClock()
        self.guards = Guards()
        self.recheck = Recheck((self.guards,), self.clock)
        self.request = FakeRequest()
        info = read_request("GET", "/api/v1/pods", query)
        self.call = RequestContext(self.request, info, "id-1")
        self.ended: list[ApiError] = []
        self.quiet_ends = 0
        self.call.on_end = self._end

    def _end(self, error: ApiError | None) -> None:
        if error is None:
            self.quiet_ends += 1
        else:
            self.ended.append(error)

    async def open(self, group: asyncio.TaskGroup) -> None:
        async def strip_then_stay(context: RequestContext) -> None:
            context.request.headers = Headers(())
            await asyncio.get_running_loop().create_future()

        answer = chain((self.guards, self.recheck), strip_then_stay)
        self.answering = group.create_task(self._until_cancelled(answer))
        self.running = group.create_task(self.recheck.run())
        await asyncio.sleep(0)

    async def _until_cancelled(self, answer: RequestHandler) -> None:
        await answer(self.call)

    def close(self) -> None:
        self.answering.cancel()
        self.running.cancel()


@pytest.mark.parametrize("refusal", [Forbidden("no"), Unauthorized("who?")])
async def test_a_call_that_is_refused_now_is_ended_with_the_reason(refusal: ApiError) -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        await stage.clock.advance(RECHECK_SECONDS)
        assert stage.ended == []

        stage.guards.refusal = refusal
        await stage.clock.advance(RECHECK_SECONDS)
        stage.close()

    assert stage.ended[0] is refusal


async def test_who_cannot_be_asked_ends_nothing() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.guards.refusal = ServiceUnavailable("the hub is starting")
        await stage.clock.advance(3 * RECHECK_SECONDS)
        stage.close()

    assert stage.ended == []


async def test_a_credential_that_became_somebody_elses_ends_what_it_opened() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.guards.user = User("jane", ("admins",))
        await stage.clock.advance(RECHECK_SECONDS)
        stage.close()

    assert [each.code for each in stage.ended] == [401]


async def test_what_the_answer_itself_requires_is_asked_again() -> None:
    stage = Stage()

    async def is_reachable() -> None:
        raise Forbidden("the cluster is out of reach")

    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.call.guards.append(is_reachable)
        stage.call.on_end = None
        await stage.clock.advance(RECHECK_SECONDS)
        stage.close()

    assert stage.request.cuts


async def test_short_calls_are_not_asked_about() -> None:
    stage = Stage(query="")
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.guards.refusal = Forbidden("no")
        await stage.clock.advance(3 * RECHECK_SECONDS)
        stage.close()

    assert stage.ended == []


async def test_what_changed_is_asked_about_at_once_and_in_one_round() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.guards.refusal = Forbidden("no")
        await stage.clock.advance(4)
        assert stage.ended == []

        for _ in range(100):
            stage.recheck.changed()
        await stage.clock.advance(1)
        stage.close()

    assert [each.code for each in stage.ended] == [403]


async def test_rights_that_change_all_day_are_asked_about_every_few_seconds() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.guards.asked = 0
        for _ in range(120):
            stage.recheck.changed()
            await stage.clock.advance(0.5)
        stage.close()

    assert 15 <= stage.guards.asked <= 25


async def test_changes_of_tokens_concern_those_who_came_with_one() -> None:
    stage = Stage()
    stage.request.memory["certificate login"] = CertificateLogin(User("jane"), 0, float("inf"))
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.guards.refusal = Unauthorized("who?")
        stage.recheck.changed(tokens_only=True)
        await stage.clock.advance(4)
        stage.close()

    assert stage.ended == []


@pytest.mark.parametrize("refusal", [Unauthorized("expired"), ServiceUnavailable("no hub")])
async def test_what_a_credential_had_opened_ends_with_it(refusal: ApiError) -> None:
    """Also when nobody can be asked: that it ends was known when it was let in."""
    stage = Stage()
    claims = json.dumps({"exp": stage.clock.now() + 7}).encode()
    token = f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"
    stage.guards.header = f"Bearer {token}"
    headers = Headers((("authorization", stage.guards.header),))
    stage.request.headers = stage.call.received = headers
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.guards.refusal = refusal
        await stage.clock.advance(6)
        assert stage.ended == []

        await stage.clock.advance(2)
        stage.close()

    assert [each.code for each in stage.ended] == [401]


async def test_who_came_by_a_dropped_authority_comes_again_without_an_error() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.guards.refusal = AuthorityDropped()
        stage.recheck.changed()
        await stage.clock.advance(1)
        stage.close()

    assert (stage.ended, stage.quiet_ends) == ([], 1)


async def test_who_hears_of_no_changes_looks_more_often() -> None:
    stage = Stage()
    async with asyncio.TaskGroup() as group:
        await stage.open(group)
        stage.recheck.look_every(UNHEARD_SECONDS)
        stage.guards.refusal = Forbidden("no")
        await stage.clock.advance(UNHEARD_SECONDS + 1)
        stage.close()

    assert [each.code for each in stage.ended] == [403]
