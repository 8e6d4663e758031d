"""What was taken in goes to other clusters: added first, removed only when it is healthy there."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result
from tests.component.migration.living import (
    KUBECTL,
    SHOP,
    WEST,
    Site,
    apply_plan,
    living_cluster,
    plan_of,
    undo_plan,
)

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.cli.commands.migrate import migrate
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.errors import CannotMigrate
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.migration.groups import Group
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.fleet.migration.spreading import Spreading, SpreadRequest
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.kube.objects import find_at, is_being_deleted, name_of, uid_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, PODS, SECRETS, config_map
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Killed
from clusterspace.testing.stage import Side, until_ready
from clusterspace.testing.steps import until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

EAST = "east"
NAME = "west-1"
WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")
SETTINGS = ResourcePath(CONFIG_MAPS, SHOP, "settings")
CLAIM = ResourcePath(GroupVersionResource("", "v1", "persistentvolumeclaims"), SHOP, "data")
SETS = ResourcePath(GroupVersionResource("apps", "v1", "statefulsets"), SHOP, "db")


@dataclass
class Two:
    """A hub with two members; a shop was taken in from the first."""

    site: Site
    east: Side

    def spreading(self, *to: str, hub: Client | None = None, **request: Any) -> Spreading:
        clients = {WEST: self.site.member, EAST: self.east.client}
        return Spreading(
            MigrationStore(hub or self.site.hub, NAME),
            {name: clients[name] for name in to if name in clients},
            SpreadRequest(to, patience=60.0, **request),
            SystemClock(),
        )

    async def go(self, *to: str, hub: Client | None = None, **request: Any) -> Counter[Group]:
        spreading = self.spreading(*to, hub=hub, **request)
        return await spreading.run(await spreading.plan())

    async def typed(self, *words: str) -> Result:
        hub = ("--kubeconfig", str(self.site.fleet.directory / "hub" / "kubeconfig"))
        reach = ("--allow-member-cidrs", "127.0.0.0/8")
        return await asyncio.to_thread(CliRunner().invoke, migrate, [*words, *hub, *reach])


def stateful_set() -> dict[str, Any]:
    labels = {"app": "db"}
    container = {
        "name": "db",
        "image": "registry.example/db:1",
        "envFrom": [{"secretRef": {"name": "db"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": SHOP},
        "spec": {
            "replicas": 1,
            "serviceName": "web",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def claim() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": SHOP},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    directory = tmp_path_factory.mktemp("two")
    at_once = EvictionSettings(settle_seconds=0)
    async with living_cluster(directory, evictions=at_once) as site:
        await site.member.create(SETS.collection, stateful_set(), KUBECTL)
        await site.member.create(CLAIM.collection, claim(), KUBECTL)
        east = await site.fleet.add_sim(EAST, nodes=1)
        await site.fleet.join(EAST, east)
        await until_ready(site.fleet, EAST)
        await apply_plan(site, await plan_of(site))
        yield Two(site, east)


async def pods_of(member: Client, app: str = "web") -> set[str]:
    found = await member.list_objects(ResourcePath(PODS, SHOP))
    own = (each for each in found if name_of(each).startswith(f"{app}-"))
    return {uid_of(each) for each in own if not is_being_deleted(each)}


async def test_what_would_be_overwritten_is_named_and_nothing_is_done(two: Two) -> None:
    mine = config_map("settings", {"mine": "1"}, namespace=SHOP)
    made = await two.east.client.create(SETTINGS.collection, mine)
    try:
        with pytest.raises(CannotMigrate, match="ConfigMap shop/settings is on east already"):
            await two.go(EAST)
        assert await two.east.client.find(WEB) is None
    finally:
        await two.east.client.delete(SETTINGS, DeleteOptions(uid_of(made)))


async def test_a_cluster_that_is_no_member_is_refused_with_the_way_to_make_it_one(two: Two) -> None:
    with pytest.raises(CannotMigrate, match="clusterspace join south"):
        await two.go("south")


@pytest.mark.parametrize("verb", ["spread", "move"])
async def test_what_is_there_already_is_not_said_to_go_there(two: Two, verb: str) -> None:
    shown = await two.typed(verb, NAME, "--to", WEST, "--dry-run")

    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "on west already" in words
    assert "to west" not in words

    # Nothing goes anywhere, so nobody is asked.
    done = await two.typed(verb, NAME, "--to", WEST)
    assert done.exit_code == 0, done.output
    assert f"migration {NAME}: was on west already, all of it healthy there" in done.output


async def test_a_dry_run_says_what_will_not_move_and_writes_nothing(two: Two) -> None:
    shown = await two.typed("move", NAME, "--to", EAST, "--dry-run")

    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "PersistentVolumeClaim shop/data stays what is on its volume does not move" in words
    assert "StatefulSet shop/db stays its pods have their names and volumes there" in words
    assert "Secret shop/db also to east what stays in its namespace may need it" in words
    assert "Nothing was written." in words
    names = {
        name_of(each)
        for each in await two.site.hub.list_objects(ResourcePath(PROPAGATION_POLICIES))
    }
    assert names == {f"migration-{NAME}"}


async def test_spread_and_home_again_the_first_cluster_notices_nothing(two: Two) -> None:
    site, east = two.site, two.east.client
    pods = await pods_of(site.member)

    spread = await two.typed("spread", NAME, "--to", EAST)

    assert spread.exit_code == 0, spread.output
    assert "spread to east, all of it healthy there" in spread.output
    assert is_managed(await east.get(WEB))
    assert len(await pods_of(east)) == 2
    assert await east.find(CLAIM) is None
    assert await east.find(SETS) is None
    assert await pods_of(site.member) == pods
    with pytest.raises(CannotMigrate, match="migrate move west-1 --to west"):
        await undo_plan(site, NAME, only="Deployment shop/web")

    await two.go(WEST, is_move=True)

    assert await east.find(WEB) is None
    assert await pods_of(site.member) == pods


async def test_moved_it_leaves_when_it_is_healthy_there_and_data_stays(two: Two) -> None:
    site, east = two.site, two.east.client
    databases = await pods_of(site.member, "db")

    counts = await two.go(EAST, is_move=True)

    assert counts[Group.STAYS] == 2
    assert len(await pods_of(east)) == 2
    assert await site.member.find(WEB) is None
    for path in (CLAIM, SETS, ResourcePath(SECRETS, SHOP, "db"), SETTINGS):
        assert is_managed(await site.member.get(path)), path
    assert await pods_of(site.member, "db") == databases
    policy = await site.hub.get(ResourcePath(PROPAGATION_POLICIES, SHOP, f"migration-{NAME}"))
    assert find_at(policy, "spec", "preserveResourcesOnDeletion") is True

    await two.go(WEST, is_move=True)

    assert await east.find(WEB) is None
    assert len(await pods_of(site.member)) == 2


FURTHER = (1, 3, 4, 6, 7, 9, 10, 11, 12, 13)


@pytest.mark.parametrize(
    "number", [2, 5, 8, *(pytest.param(each, marks=pytest.mark.slow) for each in FURTHER)]
)
async def test_killed_in_the_middle_it_goes_on_or_back(two: Two, number: int) -> None:
    site, point = two.site, CrashPoint(number, is_after=True)
    with suppress(Killed):
        await two.go(EAST, is_move=True, hub=CrashingClient(site.hub, point))
    running = len(await pods_of(site.member)) + len(await pods_of(two.east.client))
    assert running >= 2

    if number % 2:
        await two.go(EAST, is_move=True)
        assert await site.member.find(WEB) is None
    await two.go(WEST, is_move=True)

    # Pods of a copy that went before go a moment after it.
    async def running_at_home() -> int:
        return len(await pods_of(site.member))

    await until_equal(running_at_home, 2)
    assert await two.east.client.find(WEB) is None


async def test_at_home_again_it_is_given_back(two: Two) -> None:
    site = two.site

    counts = await undo_plan(site, NAME)

    assert counts[State.UNDONE] == sum(counts.values())
    assert await site.hub.list_objects(ResourcePath(PROPAGATION_POLICIES)) == []
    for path in (WEB, CLAIM, SETS, SETTINGS):
        assert not is_managed(await site.member.get(path)), path
