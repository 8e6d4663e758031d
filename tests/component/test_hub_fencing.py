"""Writes of a leader that was deposed while it was frozen, as they reach the hub and members."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio
from tests.component.hub_wire import CONFIG_MAPS, HubClient, config_map, hub_here

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.identities import CHECKED_HEADER, LEADER_HEADER
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.controllers.leases import LEASES, Candidacy, LeaderElection, LeaseTimings
from clusterspace.errors import Conflict, NotLeading
from clusterspace.kube.objects import uid_of
from clusterspace.testing import builders
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import edit, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
PLACE = ResourcePath(LEASES, "kube-system", "controllers")
MAPS = ResourcePath(builders.CONFIG_MAPS, "default")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HubClient]:
    async with hub_here(tmp_path_factory.mktemp("hub")) as client:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "controllers"},
            "spec": {"holderIdentity": "a", "leaseTransitions": 7},
        }
        await client.do("POST", LEASE_PATH, lease)
        yield client


LEADING = f"{LEADER_HEADER}: kube-system/controllers 7 a"
DEPOSED = f"{LEADER_HEADER}: kube-system/controllers 6 a"


async def test_every_write_of_a_deposed_leader_is_refused_and_changes_nothing(
    hub: HubClient,
) -> None:
    await hub.do("POST", CONFIG_MAPS, config_map("there", data={"a": "b"}))
    path = f"{CONFIG_MAPS}/there"
    before = (await hub.ask("GET", path)).body
    patch = {"data": {"a": "c"}}
    merge = "application/merge-patch+json"
    writes = (
        ("POST", CONFIG_MAPS, config_map("new"), {}),
        ("PUT", path, config_map("there", data={"a": "c"}), {}),
        ("PATCH", path, patch, {"content_type": merge}),
        ("DELETE", path, None, {}),
        ("DELETE", CONFIG_MAPS, None, {}),
    )
    for token in (
        DEPOSED,
        f"{LEADER_HEADER}: kube-system/controllers 7 b",
        f"{LEADER_HEADER}: kube-system/nobodys 7 a",
    ):
        for method, where, body, how in writes:
            answer = await hub.ask(method, where, body, headers=(token,), **how)
            assert answer.status == 409, (method, token, answer.body)
            assert "leads no longer" in answer.status_message()
    assert (await hub.ask("GET", path)).body == before
    assert (await hub.ask("GET", f"{CONFIG_MAPS}/new")).status == 404


async def test_the_hub_says_that_it_has_compared_a_write_with_the_lease(hub: HubClient) -> None:
    answer = await hub.ask("POST", CONFIG_MAPS, config_map("by-leader"), headers=(LEADING,))

    assert answer.status == 201
    assert answer.headers[CHECKED_HEADER.lower()] == "7"
    plain = await hub.ask("POST", CONFIG_MAPS, config_map("by-anybody"))
    assert (plain.status, CHECKED_HEADER.lower() in plain.headers) == (201, False)


@pytest.mark.parametrize("token", ["", "x", "a/b", "a/b x y", "a/b 1", "a/b/c 1 y", "a/b ¹ y"])
async def test_a_leader_header_that_says_nothing_is_refused(hub: HubClient, token: str) -> None:
    answer = await hub.ask(
        "POST", CONFIG_MAPS, config_map("odd"), headers=(f"{LEADER_HEADER}: {token}",)
    )

    assert answer.status == (201 if not token else 400)


@pytest_asyncio.fixture(loop_scope="module")
async def member(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Side]:
    async with (
        hub_for_test(tmp_path_factory.mktemp("member"), name="west") as settings,
        client_for_test(settings) as client,
    ):
        yield Side(settings, client)


async def test_a_leader_frozen_before_its_write_sends_nothing_when_it_goes_on(member: Side) -> None:
    clock = ManualClock()
    timings = LeaseTimings()
    election = LeaderElection(
        member.client, Candidacy(PLACE, "a", timings), clock=clock, random=Random(1)
    )
    is_working = asyncio.Event()

    async def work(_epoch: int) -> None:
        is_working.set()
        await asyncio.Event().wait()

    leading = asyncio.create_task(election.lead(work))
    await is_working.wait()
    fence = election.fence("west")
    connection = Connection(member.settings, clock=SystemClock(), random=Random(1), guard=fence)
    fenced = ClusterClient(connection)
    first = await fenced.create(MAPS, builders.config_map("in-time"))

    # Time passes while a write waits for its connection: all of them are taken by others.
    real = fence.check
    checks = 0

    def freeze_at_the_last_moment() -> None:
        nonlocal checks
        checks += 1
        if checks == 2:  # the first is before the look, the second when it is connected
            clock.freeze(30)
        real()

    fence.check = freeze_at_the_last_moment
    with pytest.raises(NotLeading):
        await fenced.create(MAPS, builders.config_map("too-late"))
    with pytest.raises(NotLeading):
        await fenced.delete(MAPS.named("in-time"), DeleteOptions(uid_of(first)))

    assert await member.names_of(MAPS) >= {"in-time"}
    assert "too-late" not in await member.names_of(MAPS)
    assert await fenced.find(MAPS.named("in-time")) is not None  # reads go on
    await stop(leading)
    await connection.close()


async def test_a_standby_takes_over_and_the_hub_refuses_what_the_first_sends_then(
    member: Side,
) -> None:
    clock = ManualClock()
    election = LeaderElection(
        member.client, Candidacy(PLACE.named("two"), "a"), clock=clock, random=Random(1)
    )
    is_working = asyncio.Event()

    async def work(_epoch: int) -> None:
        is_working.set()
        await asyncio.Event().wait()

    leading = asyncio.create_task(election.lead(work))
    await is_working.wait()
    fence = election.fence("west", is_leases=True)
    connection = Connection(member.settings, clock=SystemClock(), random=Random(1), guard=fence)
    fenced = ClusterClient(connection)
    await fenced.create(MAPS, builders.config_map("of-the-first"))

    # By the clock of the first no time has passed: its machine was suspended.
    await edit(
        member.client,
        PLACE.named("two"),
        lambda lease: {
            **lease,
            "spec": {**lease["spec"], "holderIdentity": "b", "leaseTransitions": 2},
        },
    )
    with pytest.raises(Conflict, match="leads no longer"):
        await fenced.create(MAPS, builders.config_map("of-the-past"))

    assert "of-the-past" not in await member.names_of(MAPS)
    await stop(leading)
    await connection.close()
