"""Two people with rights in different clusters: a thousand requests, and nobody else's bytes."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from itertools import islice
from random import Random

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    MASTERS_TRAVEL,
    PULL,
    PUSH,
    Site,
    fleet_site,
    pulled,
)
from tests.flows.fleet_intruders import (
    CLUSTERS,
    MEMBERS,
    SHARED,
    SPACES,
    TOKENS,
    Loot,
    answer_to,
    attempts,
    foreign_in,
    furnish,
    is_theirs,
    shown_by,
    steal,
)
from tests.flows.members import KUBERNETES, running_member

from clusterspace.apiserver.http.guards import Decision
from clusterspace.apiserver.http.users import User, act_at_hub
from clusterspace.fleet.gateway.callers import HubReviews
from clusterspace.fleet.gateway.clusters import Link
from clusterspace.fleet.gateway.fanout import FleetContext

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTS = 1_000
AT_ONCE = 4
ENOUGH = 300
"""Requests within which a planted leak must show."""
REAL = "pull-kubernetes"
WAYS = (PUSH, PULL, pytest.param(REAL, marks=pytest.mark.slow))
"""How members are reached; in the last, the one that both people reach is a kube-apiserver."""
FOUND_OUT = pytest.mark.parametrize(
    "site",
    [PUSH, *(pytest.param(each, marks=pytest.mark.slow) for each in (PULL, REAL))],
    indirect=True,
)
"""What is looked at is the same on either way to a member, so one of them shows that it is."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=WAYS)
async def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Site]:
    directory = tmp_path_factory.mktemp("fleet")
    is_real = request.param == REAL
    others = tuple(each for each in MEMBERS if each != SHARED) if is_real else MEMBERS
    mode = PULL if is_real else request.param
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(fleet_site(directory, members=others, mode=mode))
        if is_real:
            (directory / SHARED).mkdir()
            member = await stack.enter_async_context(running_member(KUBERNETES, directory / SHARED))
            await stack.enter_async_context(pulled(running, SHARED, member))
            running.members[SHARED] = member
        await furnish(running)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loot(site: Site) -> Loot:
    return await steal(site)


async def run(site: Site, loot: Loot, *, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Make so many requests, some at once; return the codes, and what was leaked to whom.

    An answer that nobody meant to give counts as a leak: it says what nobody has looked at.
    """
    rest = islice(attempts(Random(seed), loot), count)
    codes: Counter[str] = Counter()
    leaks: list[str] = []

    async def make_requests() -> None:
        for attempt in rest:
            shown = await answer_to(site, attempt)
            foreign = foreign_in(attempt.user, shown_by(shown))
            codes[f"{attempt.user} {shown.status}"] += 1
            leaks.extend(f"{attempt} was shown {each}" for each in foreign)
            # A watch from a version that is none has this answer from Kubernetes, too.
            if shown.status == 500 and b"strconv.ParseUint" not in shown.body:
                leaks.append(f"{attempt} was answered {shown}: {shown.body!r}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(make_requests())
    return codes, leaks


async def test_a_thousand_random_requests_show_nobody_else_s_bytes(site: Site, loot: Loot):
    codes, leaks = await run(site, loot, seed=7, count=REQUESTS)

    assert leaks == []
    assert sum(codes.values()) == REQUESTS
    for user in TOKENS:
        # Both were shown a good deal, and both were refused a good deal.
        assert codes[f"{user} 200"] > REQUESTS / 20, codes
        assert codes[f"{user} 403"] > REQUESTS / 20, codes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
async def test_ten_thousand_more_show_none_either(site: Site, loot: Loot, seed: int):
    _, leaks = await run(site, loot, seed=seed, count=REQUESTS)

    assert leaks == []


async def test_everybody_is_shown_all_that_is_theirs(site: Site):
    for user, token in TOKENS.items():
        for space in SPACES:
            listed = await site.ask("GET", f"/api/v1/namespaces/{space}/configmaps", token=token)
            theirs = [each for each in CLUSTERS if is_theirs(user, each, space)]
            shown = {each["data"]["k"].split("-")[1] for each in listed.body.get("items", [])
                     if "k" in (each.get("data") or {})}  # fmt: skip
            assert shown == set(theirs)


ADMINISTRATOR = User("root", ("system:masters",))


def as_administrator(_: FleetContext, link: Link) -> object:
    if link.is_hub:
        return act_at_hub(ADMINISTRATOR)
    return MASTERS_TRAVEL.headers(ADMINISTRATOR, link.cluster)


async def let_everybody_through(*_: object) -> Decision:
    return Decision(allowed=True)


@FOUND_OUT
async def test_a_gateway_that_asks_members_as_itself_is_found_out(
    site: Site, loot: Loot, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(FleetContext, "identity_for", as_administrator)

    _, leaks = await run(site, loot, seed=7, count=ENOUGH)

    assert any(leak.startswith("jane") for leak in leaks)
    assert any(leak.startswith("carl") for leak in leaks)


@FOUND_OUT
async def test_a_gateway_that_does_not_ask_the_hub_who_may_reach_what_is_found_out(
    site: Site, loot: Loot, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(HubReviews, "decide", let_everybody_through)

    _, leaks = await run(site, loot, seed=7, count=ENOUGH)

    assert any("jane" in leak and "was shown west/" in leak for leak in leaks)
    assert any("carl" in leak and "was shown east/" in leak for leak in leaks)


async def test_a_canary_of_somebody_else_is_seen_wherever_it_is() -> None:
    assert foreign_in("jane", b'{"a": "canary-west-red-one"}') == {"west/red"}
    assert foreign_in("jane", b'{"a": "canary-east-red-one"}') == set()
