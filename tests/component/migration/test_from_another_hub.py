"""What another hub places is handed over to this one and back, and no member notices."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.component.migration.living import SHOP, WEST, differences, state_of

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, WORKS, execution_namespace
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.works import RESOURCE_BINDINGS, suspends_dispatching
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.errors import CannotMigrate
from clusterspace.fleet.membership.manifests import CLUSTER_NAMESPACE, HUB_MARK
from clusterspace.fleet.migration.apply import ApplyOptions, is_of
from clusterspace.fleet.migration.hub_planning import plan_hub
from clusterspace.fleet.migration.karmada_handover import KarmadaHandover
from clusterspace.fleet.migration.plan import MigrationPlan, Verdict, read_plan, write_plan
from clusterspace.fleet.migration.planning import PlanRequest
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.kube.objects import (
    annotations_of,
    find_at,
    labels_of,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
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
WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")
SETTINGS = ResourcePath(CONFIG_MAPS, SHOP, "settings")
POLICY = ResourcePath(PROPAGATION_POLICIES, SHOP, "shop")
BINDING = ResourcePath(RESOURCE_BINDINGS, SHOP, "web-deployment")


@dataclass
class Hubs:
    """Two hubs with the same members; the first has placed a shop on them."""

    theirs: Fleet
    ours: Fleet
    members: dict[str, Side]

    async def plan(self, name: str = "move") -> MigrationPlan:
        joined = await self.ours.hub.client.list_objects(ResourcePath(CLUSTERS))
        members = {name_of(each): self.members[name_of(each)].client for each in joined}
        return await plan_hub(
            self.ours.hub.client, self.theirs.hub.client, members, PlanRequest(name, ""), 0.0
        )

    def handover(self, plan: MigrationPlan, hub: Client | None = None) -> KarmadaHandover:
        return KarmadaHandover(
            MigrationStore(hub or self.ours.hub.client, plan.name),
            self.theirs.hub.client,
            {each: side.client for each, side in self.members.items()},
            ApplyOptions(patience=60.0),
            SystemClock(),
        )

    async def take(self, plan: MigrationPlan, hub: Client | None = None) -> Counter[State]:
        await MigrationStore(hub or self.ours.hub.client, plan.name).begin(plan)
        return await self.handover(plan, hub).take()

    async def member_states(self) -> dict[str, Any]:
        return {
            name: await state_of(side.client, is_whole=False) for name, side in self.members.items()
        }

    async def pods(self) -> dict[str, set[str]]:
        return {
            name: {uid_of(each) for each in await side.client.list_objects(ResourcePath(PODS))}
            for name, side in self.members.items()
        }


def policy() -> dict[str, Any]:
    kinds = (("apps/v1", "Deployment"), ("v1", "ConfigMap"))
    weights = [
        {"targetCluster": {"clusterNames": [name]}, "weight": weight}
        for name, weight in ((EAST, 2), (WEST, 1))
    ]
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "shop", "namespace": SHOP},
        "spec": {
            "resourceSelectors": [{"apiVersion": group, "kind": kind} for group, kind in kinds],
            "placement": {
                "clusterAffinity": {"clusterNames": [EAST, WEST]},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"staticWeightList": weights},
                },
            },
        },
    }


async def forget_who_joined(member: Client) -> None:
    """Have what a join made on a member be as Karmada's own makes it: it does not say for whom."""
    rbac = "rbac.authorization.k8s.io"
    for path in (
        ResourcePath(GroupVersionResource(rbac, "v1", "clusterroles")),
        ResourcePath(GroupVersionResource(rbac, "v1", "clusterrolebindings")),
        ResourcePath(GroupVersionResource("", "v1", "serviceaccounts"), CLUSTER_NAMESPACE),
        ResourcePath(SECRETS, CLUSTER_NAMESPACE),
    ):
        for each in await member.list_objects(path):
            kept = {k: v for k, v in annotations_of(each).items() if k != HUB_MARK}
            if kept != annotations_of(each):
                plain = with_metadata(each, annotations=kept or None)
                await member.update(path.named(name_of(each)), plain)


def override() -> dict[str, Any]:
    """Return a policy that makes a Deployment another one in the west."""
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {"name": "west", "namespace": SHOP},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "overrideRules": [
                {
                    "targetCluster": {"clusterNames": [WEST]},
                    "overriders": {
                        "annotationsOverrider": [{"operator": "add", "value": {"in": "the-west"}}]
                    },
                }
            ],
        },
    }


def cluster_policy() -> dict[str, Any]:
    selector = {"apiVersion": "v1", "kind": "Secret", "namespace": SHOP, "name": "db"}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": {"name": "secrets"},
        "spec": {
            "resourceSelectors": [selector],
            "placement": {"clusterAffinity": {"clusterNames": [WEST]}},
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hubs]:
    directory = tmp_path_factory.mktemp("hubs")
    for name in ("theirs", "ours"):
        (directory / name).mkdir()
    async with (
        running_fleet(directory / "theirs") as theirs,
        running_fleet(directory / "ours") as ours,
        theirs.controllers(),
        ours.controllers(),
    ):
        members = {name: await theirs.add_sim(name, nodes=1) for name in (EAST, WEST)}
        for name, member in members.items():
            await theirs.join(name, member)
            await until_ready(theirs, name)
        hub = theirs.hub.client
        await hub.create(ResourcePath(NAMESPACES), namespace(SHOP))
        settings = config_map("settings", {"a": "1"}, namespace=SHOP)
        await hub.create(SETTINGS.collection, settings)
        await hub.create(WEB.collection, deployment("web", replicas=3, namespace=SHOP))
        secrets = ResourcePath(SECRETS, SHOP)
        await hub.create(secrets, secret("db", {"password": "hunter2"}, namespace=SHOP))
        await hub.create(ResourcePath(OVERRIDE_POLICIES, SHOP), override())
        await hub.create(ResourcePath(CLUSTER_PROPAGATION_POLICIES), cluster_policy())
        await hub.create(POLICY.collection, policy())
        hubs = Hubs(theirs, ours, members)

        async def runs() -> bool:
            counts = {name: len(pods) for name, pods in (await hubs.pods()).items()}
            has_secret = await members[WEST].client.find(secrets.named("db")) is not None
            return counts == {EAST: 2, WEST: 1} and has_secret

        await until(runs)
        yield hubs


async def test_a_hub_whose_members_are_not_ours_is_refused_object_by_object(hubs: Hubs) -> None:
    plan = await hubs.plan()

    assert plan.takes == 0
    assert {each.verdict for each in plan.spec.items} == {Verdict.REFUSED}
    assert all("clusterspace join" in each.reason for each in plan.spec.items)


async def test_over_and_back_without_a_change_on_any_member(hubs: Hubs) -> None:
    theirs, ours = hubs.theirs.hub.client, hubs.ours.hub.client
    for name, member in hubs.members.items():
        await forget_who_joined(member.client)
        await hubs.ours.join(name, member)
        await until_ready(hubs.ours, name)
    before, pods = await hubs.member_states(), await hubs.pods()
    their_binding = await theirs.get(BINDING)

    plan = await hubs.plan()
    assert read_plan("".join(write_plan(plan)).encode(), "plan.yaml") == plan
    assert [each.title for each in plan.taken] == [
        "Namespace shop",
        "OverridePolicy shop/west",
        "ClusterPropagationPolicy secrets",
        "PropagationPolicy shop/shop",
        "ConfigMap shop/settings",
        "Secret shop/db",
        "Deployment shop/web",
    ]
    assert {each.verdict for each in plan.spec.items} == {Verdict.SAME}

    counts = await hubs.take(plan)
    assert counts == Counter({State.TAKEN: 7})
    again = await hubs.plan("again")
    reasons = {each.reason for each in again.spec.items if each.clusters}
    assert reasons == {"its policy is suspended there: let it go on first"}
    # Our hub goes on where theirs was, under the same IDs, and theirs stands still.
    binding = await ours.get(BINDING)
    assert labels_of(binding)[stamps.BINDING_ID] == labels_of(their_binding)[stamps.BINDING_ID]
    shares = {each["name"]: each["replicas"] for each in binding["spec"]["clusters"]}
    assert shares == {EAST: 2, WEST: 1}
    for name in hubs.members:
        for work in await theirs.list_objects(ResourcePath(WORKS, execution_namespace(name))):
            is_namespace = work["spec"]["workload"]["manifests"][0]["kind"] == "Namespace"
            assert is_namespace or suspends_dispatching(work)
    template = await ours.get(WEB)
    for side in hubs.members.values():
        live = await side.client.get(WEB)
        assert annotations_of(live)[stamps.TEMPLATE_UID] == uid_of(template)
        assert is_of(live, "move")
    assert await hubs.pods() == pods

    # What is changed here gets there, and what is changed there does not.
    await edit(theirs, SETTINGS, lambda found: with_value(found, {"a": "theirs"}, "data"))
    await edit(ours, SETTINGS, lambda found: with_value(found, {"a": "ours"}, "data"))

    async def is_ours() -> bool:
        found = [await side.client.get(SETTINGS) for side in hubs.members.values()]
        return all(each["data"] == {"a": "ours"} for each in found)

    await until(is_ours)
    await edit(ours, SETTINGS, lambda found: with_value(found, {"a": "1"}, "data"))
    await edit(theirs, SETTINGS, lambda found: with_value(found, {"a": "1"}, "data"))

    counts = await hubs.handover(plan).give_back()
    assert counts == Counter({State.UNDONE: 7})
    assert await ours.find(WEB) is None
    assert await ours.find(POLICY) is None
    assert find_at(await theirs.get(POLICY), "spec", "suspension") is None
    # The other hub has them again: it knows them by its marks, and writes to them.
    await edit(theirs, SETTINGS, lambda found: with_value(found, {"a": "2"}, "data"))

    async def is_theirs() -> bool:
        found = [await side.client.get(SETTINGS) for side in hubs.members.values()]
        return all(each["data"] == {"a": "2"} for each in found)

    await until(is_theirs)
    await edit(theirs, SETTINGS, lambda found: with_value(found, {"a": "1"}, "data"))

    async def is_as_before() -> bool:
        return differences(before, await hubs.member_states()) == []

    await until(is_as_before)
    assert await hubs.pods() == pods
    await MigrationStore(ours, plan.name).forget()


@pytest.mark.slow
async def test_killed_at_any_write_it_is_finished_by_the_next(hubs: Hubs) -> None:
    ours, pods = hubs.ours.hub.client, await hubs.pods()
    plan = await hubs.plan("killed")
    for number in range(2, 60):
        with suppress(Killed):
            await hubs.take(plan, CrashingClient(ours, CrashPoint(number, is_after=True)))
            break
    # The namespace is there since the first time: an undo leaves it.
    assert (await hubs.take(plan)) == Counter({State.TAKEN: 6, State.SKIPPED: 1})

    dying = CrashingClient(ours, CrashPoint(4, is_after=False))
    with pytest.raises(Killed):
        await hubs.handover(plan, dying).give_back()
    assert (await hubs.handover(plan).give_back()) == Counter({State.UNDONE: 7})

    assert await ours.find(WEB) is None
    assert find_at(await hubs.theirs.hub.client.get(POLICY), "spec", "suspension") is None
    assert await hubs.pods() == pods


async def test_a_hub_is_not_taken_over_from_itself(hubs: Hubs) -> None:
    ours = hubs.ours.hub.client
    with pytest.raises(CannotMigrate, match="leads to this hub itself"):
        await plan_hub(ours, ours, {}, PlanRequest("self", ""), 0.0)
