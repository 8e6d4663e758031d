"""What a KubeFleet places is handed over to this hub and back, and no member notices.

The other side is a stand-in of KubeFleet's programs, see kubefleet_stand_in.py.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.component.migration.kubefleet_stand_in import KubeFleetStandIn
from tests.component.migration.living import SHOP, WEST, differences, service, state_of

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.fleet_overrides import RESOURCE_OVERRIDES
from clusterspace.apis.fleet_placements import (
    API_VERSION,
    CARRIED_BINDINGS,
    CLUSTER_WIDE,
    NAMESPACED,
    PLACEMENTS,
)
from clusterspace.apis.member_clusters import FLEET_WORKS, MEMBER_CLUSTERS
from clusterspace.client.discovery import Discovery
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.errors import CannotMigrate
from clusterspace.fleet.execution.takeover import template_uid_of
from clusterspace.fleet.migration.apply import ApplyOptions
from clusterspace.fleet.migration.kubefleet import (
    APPLIED_WORKS,
    owners_of,
    stands_still,
    with_owner,
)
from clusterspace.fleet.migration.kubefleet_handover import KubeFleetHandover
from clusterspace.fleet.migration.kubefleet_planning import KUBEFLEET, plan_fleet
from clusterspace.fleet.migration.plan import MigrationPlan, Verdict, read_plan, write_plan
from clusterspace.fleet.migration.planning import PlanRequest
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.kube.objects import annotations_of, find_at, name_of, uid_of, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots import cluster_migration as root
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    config_map,
    deployment,
    namespace,
    secret,
)
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Killed
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

EAST = "east"
BANK = "bank"
WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")
SETTINGS = ResourcePath(CONFIG_MAPS, SHOP, "settings")
RATES = ResourcePath(CONFIG_MAPS, BANK, "rates")
VAULT = ResourcePath(CONFIG_MAPS, BANK, "vault")
SHOPS = ResourcePath(PLACEMENTS, name="shop")
ORDERS = ResourcePath(NAMESPACED.placements, BANK, "orders")
ENVELOPES = GroupVersionResource(PLACEMENTS.group, "v1beta1", "resourceenvelopes")
STRATEGY = ("spec", "strategy", "applyStrategy")


@dataclass
class Hubs:
    """A KubeFleet and our hub with the same members; the first has placed a shop and a bank."""

    theirs: Fleet
    ours: Fleet
    members: dict[str, Side]
    stand_in: KubeFleetStandIn

    async def plan(self, name: str = "move") -> MigrationPlan:
        joined = await self.ours.hub.client.list_objects(ResourcePath(CLUSTERS))
        members = {name_of(each): self.members[name_of(each)].client for each in joined}
        return await plan_fleet(
            self.ours.hub.client, self.theirs.hub.client, members, PlanRequest(name, ""), 0.0
        )

    async def handover(
        self, plan: MigrationPlan, hub: Client | None = None, patience: float = 60.0
    ) -> KubeFleetHandover:
        return KubeFleetHandover(
            MigrationStore(hub or self.ours.hub.client, plan.name),
            self.theirs.hub.client,
            {each: side.client for each, side in self.members.items()},
            await Discovery(self.theirs.hub.client.connection).served(),
            ApplyOptions(patience=patience),
            SystemClock(),
        )

    async def take(self, plan: MigrationPlan, hub: Client | None = None) -> Counter[State]:
        await MigrationStore(hub or self.ours.hub.client, plan.name).begin(plan)
        return await (await self.handover(plan, hub)).take()

    async def give_back(self, plan: MigrationPlan, hub: Client | None = None) -> Counter[State]:
        return await (await self.handover(plan, hub)).give_back()

    async def member_states(self) -> dict[str, Any]:
        return {
            name: await state_of(side.client, is_whole=False) for name, side in self.members.items()
        }

    async def pods(self) -> dict[str, set[str]]:
        return {
            name: {uid_of(each) for each in await side.client.list_objects(ResourcePath(PODS))}
            for name, side in self.members.items()
        }

    async def settings_of(self, path: ResourcePath) -> dict[str, Any]:
        found = {name: await side.client.find(path) for name, side in self.members.items()}
        return {name: each["data"] for name, each in found.items() if each is not None}


def selects(kind: str, name: str, group: str = "", version: str = "v1", **more: str) -> Any:
    return {"group": group, "version": version, "kind": kind, "name": name, **more}


def placement(name: str, *selectors: Any, space: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": (NAMESPACED if space else CLUSTER_WIDE).kind,
        "metadata": {"name": name, **({"namespace": space} if space else {})},
        "spec": {"resourceSelectors": list(selectors), **spec},
    }


def member_cluster(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "cluster.kubernetes-fleet.io/v1beta1",
        "kind": "MemberCluster",
        "metadata": {"name": name, "labels": {"region": name}},
        "spec": {"identity": {"kind": "User", "name": f"agent-of-{name}"}},
    }


def override() -> dict[str, Any]:
    """Return an override by which every cluster has its own name in the settings."""
    value = "${MEMBER-CLUSTER-NAME}"
    patch = {"op": "add", "path": "/data/where", "value": value}
    rule = {"clusterSelector": {"clusterSelectorTerms": []}, "jsonPatchOverrides": [patch]}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceOverride",
        "metadata": {"name": "where", "namespace": SHOP},
        "spec": {
            "resourceSelectors": [selects("ConfigMap", "settings")],
            "policy": {"overrideRules": [rule]},
        },
    }


def envelope() -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceEnvelope",
        "metadata": {"name": "sealed", "namespace": BANK},
        "data": {"vault.yaml": config_map("vault", {"gold": "9"}, namespace=BANK)},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hubs]:
    directory = tmp_path_factory.mktemp("hubs")
    for name in ("theirs", "ours"):
        (directory / name).mkdir()
    async with (
        running_fleet(directory / "theirs") as theirs,
        running_fleet(directory / "ours") as ours,
        ours.controllers(),
    ):
        members = {name: await ours.add_sim(name, nodes=1) for name in (EAST, WEST)}
        hub = theirs.hub.client
        stand_in = KubeFleetStandIn(hub, {name: side.client for name, side in members.items()})
        await stand_in.prepare()
        hubs = Hubs(theirs, ours, members, stand_in)
        for name in members:
            await hub.create(ResourcePath(MEMBER_CLUSTERS), member_cluster(name))
        for name in (SHOP, BANK):
            await hub.create(ResourcePath(NAMESPACES), namespace(name))
        settings = config_map("settings", {"a": "1"}, namespace=SHOP)
        await hub.create(SETTINGS.collection, settings)
        await hub.create(WEB.collection, deployment("web", replicas=2, namespace=SHOP))
        db = secret("db", {"password": "hunter2"}, namespace=SHOP)
        await hub.create(ResourcePath(SECRETS, SHOP), db)
        services = GroupVersionResource("", "v1", "services")
        await hub.create(ResourcePath(services, SHOP), service("web"))
        await hub.create(ResourcePath(RESOURCE_OVERRIDES, SHOP), override())
        await hub.create(RATES.collection, config_map("rates", {"low": "2"}, namespace=BANK))
        await hub.create(ResourcePath(ENVELOPES, BANK), envelope())
        # Of two that fit, the one that our own rules would not pick.
        one = {"placementType": "PickN", "numberOfClusters": 1}
        await hub.create(
            SHOPS.collection, placement("shop", selects("Namespace", SHOP), policy=one)
        )
        alone = selects("Namespace", BANK, selectionScope="NamespaceOnly")
        await hub.create(SHOPS.collection, placement("bank", alone))
        sealed = selects("ResourceEnvelope", "sealed", PLACEMENTS.group, "v1beta1")
        rates = selects("ConfigMap", "rates")
        never = {"applyStrategy": {"whenToTakeOver": "Never"}}
        await hub.create(
            ORDERS.collection, placement("orders", rates, sealed, space=BANK, strategy=never)
        )
        async with stand_in.running():

            async def runs() -> bool:
                pods = await hubs.pods()
                vaults = await hubs.settings_of(VAULT)
                return len(pods[EAST]) == 2 and vaults.keys() == members.keys()

            await until(runs)
            yield hubs


async def test_a_fleet_whose_members_are_not_ours_is_refused_placement_by_placement(
    hubs: Hubs,
) -> None:
    plan = await hubs.plan()

    assert plan.takes == 0
    placements = [each for each in plan.spec.items if each.kind.endswith("Placement")]
    assert all("clusterspace join" in each.reason for each in placements)
    assert len(placements) == 3


async def test_over_and_back_without_a_change_on_any_member(hubs: Hubs) -> None:
    theirs, ours = hubs.theirs.hub.client, hubs.ours.hub.client
    for name, member in hubs.members.items():
        await hubs.ours.join(name, member)
        await until_ready(hubs.ours, name)
    before, pods = await hubs.member_states(), await hubs.pods()

    plan = await hubs.plan()
    assert read_plan("".join(write_plan(plan)).encode(), "plan.yaml") == plan
    assert [each.title for each in plan.taken] == [
        "Namespace bank",
        "Namespace shop",
        "ResourceOverride shop/where",
        "ClusterResourcePlacement bank",
        "ClusterResourcePlacement shop",
        "ResourcePlacement bank/orders",
        "ConfigMap bank/rates",
        "ConfigMap shop/settings",
        "Secret shop/db",
        "Service shop/web",
        "Deployment shop/web",
        "ResourceEnvelope bank/sealed",
    ]
    assert {each.verdict for each in plan.spec.items} == {Verdict.SAME}

    assert await hubs.take(plan) == Counter({State.TAKEN: 12})

    assert await hubs.pods() == pods
    # Where it was there, and under the names that bindings had there.
    place = ResourcePath(CLUSTER_WIDE.bindings)
    for hub in (theirs, ours):
        bound = [each for each in await hub.list_objects(place) if name_of(each) != "bank"]
        names = {name_of(each) for each in bound}
        assert names == {name_of(each) for each in await theirs.list_objects(place)}
    shop = await ours.get(SHOPS)
    assert CARRIED_BINDINGS not in annotations_of(shop)
    assert find_at(await ours.get(ORDERS), *STRATEGY, "whenToTakeOver") == "Never"
    live = await hubs.members[EAST].client.get(WEB)
    assert template_uid_of(live) == uid_of(await ours.get(WEB))
    assert await hubs.members[WEST].client.find(WEB) is None

    # What is changed here gets there, and what is changed there does not.
    await edit(theirs, SETTINGS, lambda found: with_value(found, {"a": "theirs"}, "data"))
    await edit(ours, SETTINGS, lambda found: with_value(found, {"a": "ours"}, "data"))

    async def is_ours() -> bool:
        return await hubs.settings_of(SETTINGS) == {EAST: {"a": "ours", "where": EAST}}

    await until(is_ours)
    for hub in (ours, theirs):
        await edit(hub, SETTINGS, lambda found: with_value(found, {"a": "1"}, "data"))

    assert await hubs.give_back(plan) == Counter({State.UNDONE: 12})

    for path in (WEB, SHOPS, ORDERS):
        assert await ours.find(path) is None
    assert find_at(await theirs.get(SHOPS), *STRATEGY, "type") == "ClientSideApply"
    assert find_at(await theirs.get(ORDERS), *STRATEGY, "whenToTakeOver") == "Never"
    # The other hub has them again: it owns them, and writes to them.
    await edit(theirs, RATES, lambda found: with_value(found, {"low": "3"}, "data"))

    async def is_theirs() -> bool:
        rates = await hubs.settings_of(RATES)
        return rates == {name: {"low": "3"} for name in hubs.members}

    await until(is_theirs)
    await edit(theirs, RATES, lambda found: with_value(found, {"low": "2"}, "data"))

    async def is_as_before() -> bool:
        return await changed_since(hubs, before) == []

    await until(is_as_before, explain=lambda: changed_since(hubs, before))
    assert await hubs.pods() == pods
    await MigrationStore(ours, plan.name).forget()


async def changed_since(hubs: Hubs, before: dict[str, Any]) -> list[str]:
    """Return what is different on members; namespaces of a hub are on every cluster of ours."""
    found = differences(before, await hubs.member_states())
    return [each for each in found if ": None -> " not in each]


async def test_the_command_finds_the_members_that_both_hubs_have(hubs: Hubs) -> None:
    settings = (hubs.ours.hub.settings, hubs.theirs.hub.settings)

    plan = await root.plan_hub(PlanRequest("seen", ""), KUBEFLEET, *settings, LOOPBACK)

    assert plan.spec.source == KUBEFLEET
    assert plan.takes == 12


@pytest.mark.slow
async def test_killed_at_any_write_it_is_finished_by_the_next(hubs: Hubs) -> None:
    ours, pods = hubs.ours.hub.client, await hubs.pods()
    plan = await hubs.plan("killed")
    assert plan.takes == 12
    for number in range(2, 60):
        with suppress(Killed):
            await hubs.take(plan, CrashingClient(ours, CrashPoint(number, is_after=True)))
            break
    assert await hubs.take(plan) == Counter({State.TAKEN: 12})

    for number in range(2, 12, 3):
        dying = CrashingClient(ours, CrashPoint(number, is_after=False))
        with suppress(Killed):
            await hubs.give_back(plan, dying)
    assert await hubs.give_back(plan) == Counter({State.UNDONE: 12})

    assert await ours.find(WEB) is None
    assert find_at(await hubs.theirs.hub.client.get(SHOPS), *STRATEGY, "type") == "ClientSideApply"
    assert await hubs.pods() == pods


async def test_nothing_is_taken_while_an_agent_has_not_said_that_it_only_looks(hubs: Hubs) -> None:
    ours, east = hubs.ours.hub.client, hubs.members[EAST].client
    plan = await hubs.plan("silent")
    before = await east.get(WEB)
    hubs.stand_in.silent.add(EAST)
    try:
        await MigrationStore(ours, plan.name).begin(plan)
        with pytest.raises(CannotMigrate, match="do KubeFleet's programs run"):
            await (await hubs.handover(plan, patience=1.0)).take()
    finally:
        hubs.stand_in.silent.clear()

    assert await ours.find(WEB) is None
    assert owners_of(await east.get(WEB)) == owners_of(before)
    assert (await hubs.give_back(plan))[State.UNDONE] == 12


async def test_what_cannot_be_carried_is_named(hubs: Hubs) -> None:
    theirs = hubs.theirs.hub.client
    for name in ("runs", "reports", "labels"):
        await theirs.create(ResourcePath(NAMESPACES), namespace(name))
    term = {"labelSelector": {"matchLabels": {"region": EAST}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": [term]}}
    affinity = {"affinity": {"clusterAffinity": required}}
    made: dict[str, Any] = {
        "runs": {"strategy": {"type": "External"}},
        "reports": {"strategy": {"applyStrategy": {"type": "ReportDiff"}}},
        "labels": {"policy": {"placementType": "PickN", "numberOfClusters": 1, **affinity}},
    }
    for name, spec in made.items():
        body = placement(name, selects("Namespace", name), **spec)
        await theirs.create(SHOPS.collection, body)
    # Somebody else owns it, too.
    east = hubs.members[EAST].client
    web = await east.get(WEB)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}
    owner["uid"] = uid_of(await east.get(SETTINGS))
    shared = [*owners_of(web), owner]
    await edit(east, WEB, lambda found: with_value(found, shared, "metadata", "ownerReferences"))

    async def placed() -> bool:
        works = await theirs.list_objects(ResourcePath(FLEET_WORKS, f"fleet-member-{EAST}"))
        return {f"{name}-work" for name in made} <= {name_of(each) for each in works}

    await until(placed)
    plan = await hubs.plan("named")
    reasons = {each.title: each.reason for each in plan.spec.items}
    assert "External" in reasons["ClusterResourcePlacement runs"]
    assert "only reports" in reasons["ClusterResourcePlacement reports"]
    lacks = "kubectl label clusters east region=east"
    assert lacks in reasons["ClusterResourcePlacement labels"]
    assert reasons["Deployment shop/web"] == "on east: ConfigMap settings owns it as well"
    assert "Deployment shop/web is not" in reasons["ClusterResourcePlacement shop"]
    titles = [each.title for each in plan.taken]
    assert "ClusterResourcePlacement shop" not in titles
    assert "ClusterResourcePlacement bank" in titles

    await edit(
        east, WEB, lambda found: with_value(found, owners_of(web), "metadata", "ownerReferences")
    )
    for name in made:
        path = ResourcePath(PLACEMENTS, name=name)
        await theirs.delete(path, DeleteOptions(uid_of(await theirs.get(path))))


async def test_a_placement_deleted_over_there_takes_nothing_from_members(hubs: Hubs) -> None:
    theirs, pods = hubs.theirs.hub.client, await hubs.pods()
    plan = await hubs.plan("kept")
    await hubs.take(plan)
    assert all(map(stands_still, await theirs.list_objects(ResourcePath(FLEET_WORKS))))
    # What the AppliedWork owns goes with it, as this shows.
    east = hubs.members[EAST].client
    owner = await east.get(ResourcePath(APPLIED_WORKS, name="shop-work"))
    canary = ResourcePath(CONFIG_MAPS, SHOP, "canary")
    body = config_map("canary", {}, namespace=SHOP)
    await east.create(canary.collection, with_owner(body, owner))

    await theirs.delete(SHOPS, DeleteOptions(uid_of(await theirs.get(SHOPS))))

    async def is_gone() -> bool:
        return await east.find(canary) is None

    await until(is_gone)
    assert await hubs.pods() == pods
    assert await hubs.settings_of(SETTINGS) == {EAST: {"a": "1", "where": EAST}}
    assert (await east.get(ResourcePath(NAMESPACES, name=SHOP)))["status"]["phase"] == "Active"
    # And what is left over there can still be given back.
    assert (await hubs.give_back(plan))[State.UNDONE] == 12
    assert await hubs.pods() == pods
