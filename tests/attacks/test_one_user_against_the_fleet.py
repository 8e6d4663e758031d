"""What answers one user may be theirs: it says nothing about a cluster to anybody else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, grant, reaching, using

from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.merge.versions import Continue
from clusterspace.testing.hostile import (
    KINDS,
    Asked,
    Behaviour,
    HostileMember,
    answering,
    listing,
    refusing,
)
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

JANE = "jane-token"
MAPS = "/api/v1/namespaces/shop/configmaps"
PODS = "/api/v1/namespaces/shop/pods"
POD = f"{PODS}/web.clusterspace.{HOSTILE}/proxy/"
PLAIN = listing({"metadata": {"name": "here", "namespace": "shop", "resourceVersion": "1"}})
LARGE_FAILURE = answering(500, b"x" * 5_000_000, content_type="text/plain")


async def silence(_asked: Asked, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


def healthy_but(troubled: Behaviour) -> Behaviour:
    """Return a cluster that answers everybody in good form, but jane and what runs in it."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.path == "/livez":
            return await answering(200, b"ok", content_type="text/plain")(asked, writer)
        is_troubled = "/proxy" in asked.path or "jane" in asked.header("impersonate-user")
        return await (troubled if is_troubled else PLAIN)(asked, writer)

    return answer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    limits = FleetLimits(list_seconds=1.0, request_seconds=1.0, grace_seconds=0.5)
    async with fleet_site(
        tmp_path_factory.mktemp("fleet"), members=("east",), limits=limits
    ) as running:
        await grant(running.hub, "jane", reaching(), "jane-reaches")
        for name, side in (("hub", running.hub), *running.members.items()):
            await grant(side, "jane", using("configmaps", "pods"), f"jane-uses-{name}")
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def member(site: Site) -> AsyncGenerator[HostileMember]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(hostile_in(site, PLAIN))


async def is_whole_for_others(site: Site) -> None:
    """Assert that both a person and an informer are shown the member, with nothing missing."""
    for query in ("", "?resourceVersion=0"):
        answer = await site.ask("GET", f"{MAPS}{query}", token=ROOT)
        if answer.code == 503 and answer.body["message"].startswith("3 of 3 clusters"):
            # All at once, the well ones too: it is this process that was held up.
            answer = await site.ask("GET", f"{MAPS}{query}", token=ROOT)
        assert answer.code == 200, answer.body["message"]
        assert answer.warning == ""
        assert f"here.clusterspace.{HOSTILE}" in answer.names


@pytest.mark.parametrize("troubled", [LARGE_FAILURE, KINDS["truncated"], KINDS["hang-up"]])
async def test_what_a_pod_answers_says_nothing_about_its_cluster(
    site: Site, member: HostileMember, troubled: Behaviour
):
    member.behave = healthy_but(troubled)

    answer = await site.ask("GET", POD, token=ROOT)

    assert answer.code >= 500
    await is_whole_for_others(site)


async def test_a_write_that_gets_no_answer_is_no_reason_to_leave_the_cluster_out(
    site: Site, member: HostileMember
):
    member.behave = healthy_but(silence)

    answer = await site.ask("DELETE", f"{MAPS}/here.clusterspace.{HOSTILE}", token=JANE)

    assert answer.code == 504
    await is_whole_for_others(site)


@pytest.mark.parametrize("kind", ["endless", "slow-bytes", "truncated", "hang-up"])
async def test_a_list_that_costs_too_much_is_the_trouble_of_who_asks_for_it(
    site: Site, member: HostileMember, kind: str
):
    member.behave = healthy_but(KINDS[kind])

    for path in (MAPS, f"{MAPS}/sought.clusterspace.{HOSTILE}"):
        answer = await site.ask("GET", path, token=JANE)

        assert HOSTILE in answer.warning + str(answer.body)
        await is_whole_for_others(site)


async def test_a_page_that_nobody_lets_one_see_is_refused_in_their_words(
    site: Site, member: HostileMember
) -> None:
    """A place to go on from may be made up; what no cluster answers has no kind and no items."""
    member.behave = healthy_but(refusing(403, "Forbidden"))
    vector = versions.encode({HOSTILE: "1"})
    place = versions.encode_continue(Continue(HOSTILE, "", vector))

    kubectl = (("Kubectl-Command", "kubectl get"),)
    path = f"{MAPS}?limit=5&continue={place}"
    answer = await site.ask("GET", path, token=JANE, headers=kubectl)

    assert answer.code == 403


async def test_a_cluster_that_does_not_answer_us_either_is_set_aside_for_all(
    site: Site, member: HostileMember
):
    member.behave = silence
    troubles = site.running.fleet.directory.troubles
    await site.ask("DELETE", f"{MAPS}/here.clusterspace.{HOSTILE}", token=JANE)

    async def is_known_to_all() -> bool:
        return troubles.find(HOSTILE, "root") is not None

    await until(is_known_to_all)

    member.behave = PLAIN

    async def is_over() -> bool:
        return troubles.find(HOSTILE, "root") is None

    await until(is_over)


async def test_for_how_long_a_cluster_has_failed_is_counted_for_each_user(
    site: Site, member: HostileMember
):
    failing = refusing(500, "InternalError")
    member.behave = healthy_but(failing)

    async def jane_is_served_without_it() -> bool:
        return (await site.ask("GET", f"{PODS}?resourceVersion=0", token=JANE)).code == 200

    assert not await jane_is_served_without_it()
    await until(jane_is_served_without_it)
    member.behave = failing
    answer = await site.ask("GET", f"{PODS}?resourceVersion=0", token=ROOT)

    assert answer.code == 503, "an informer would take the gap for a deletion"
    assert HOSTILE in answer.message
