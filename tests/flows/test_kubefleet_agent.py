"""KubeFleet's own agent joins our hub: its protocol, replayed by a stand-in, or it itself."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.component.fleet_agent import APPLIED_WORKS, kubefleet_agent, real_kubefleet_agent
from tests.component.invited_members import Invited
from tests.component.placement_site import PlacementSite, of_cluster, placement

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.fleet_placements import PLACEMENTS
from clusterspace.apis.member_clusters import (
    FLEET_WORK_FINALIZER,
    FLEET_WORKS,
    FORCE_LEAVE,
    member_namespace,
)
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership.manifests import (
    CONFIG_MAPS,
    cluster_path,
    left_behind_path,
    namespace_path,
)
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    find_at,
    is_being_deleted,
    name_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import NAMESPACES, config_map, deployment, namespace
from clusterspace.testing.stage import Side, running_fleet
from clusterspace.testing.steps import delete, edit, until

STAND_IN = "stand-in"
ITSELF = "kubefleet"
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
AT_ONCE = {"maxUnavailable": "100%", "maxSurge": "100%", "unavailablePeriodSeconds": 0}
FIRST, SECOND = {"v": "1"}, {"v": "2"}
PATIENCE = 90.0
"""The agent itself does not watch what it applied, and looks again after five seconds and more."""


@dataclass
class Stage:
    """A hub, and a member that joined it by KubeFleet's agent."""

    invited: Invited
    site: PlacementSite
    member: Side

    @property
    def hub(self) -> Any:
        return self.invited.hub

    async def ready(self) -> str:
        cluster = await self.hub.find(cluster_path("west")) or {}
        ready = find_condition(find_at(cluster, "status", "conditions"), "Ready") or {}
        return str(ready.get("status", ""))

    async def until_ready(self, status: str) -> None:
        async def is_so() -> bool:
            return await self.ready() == status

        await until(is_so, PATIENCE)

    async def until_data(self, name: str, data: Object | None) -> None:
        async def is_so() -> bool:
            return await self.site.data("west", name) == data

        await until(is_so, PATIENCE)

    async def fleet_works(self) -> list[Object]:
        return await self.hub.list_objects(ResourcePath(FLEET_WORKS, member_namespace("west")))

    async def fleet_work_of(self, kind: str, name: str) -> Object:
        """Return the fleet Work that has one object."""
        for each in await self.fleet_works():
            if [(m["kind"], name_of(m)) for m in manifests_of(each)] == [(kind, name)]:
                return each
        raise AssertionError(f"there is none of {kind} {name}")

    async def told(self, name: str = "crp") -> Object:
        """Return what a placement tells of the member."""
        return of_cluster(await self.site.status(name), "west")

    async def until_told(self, is_so: Callable[[Object], Any], name: str = "crp") -> None:
        async def holds() -> Any:
            return is_so(await self.told(name))

        async def instead() -> Any:
            return await self.told(name)

        await until(holds, PATIENCE, explain=instead)


@asynccontextmanager
async def running_stage(directory: Path, agent: str) -> AsyncGenerator[Stage]:
    async with running_fleet(directory) as fleet, AsyncExitStack() as stack:
        invited = Invited(fleet)
        member = await fleet.add_sim("west", nodes=1)
        invited.members["west"] = member
        await invited.invite()
        site = PlacementSite(invited.hub, directory, stack, {"west": member.client})
        played = kubefleet_agent(invited, member)
        if agent == ITSELF:
            played = real_kubefleet_agent(invited, member, directory)
        async with invited.controllers(), played:
            await invited.until_condition("Joined", "True")
            running = Stage(invited, site, member)
            await running.until_ready("True")
            yield running


@pytest.fixture(params=[STAND_IN, pytest.param(ITSELF, marks=pytest.mark.slow)])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stage]:
    async with running_stage(tmp_path, request.param) as running:
        yield running


def has(kind: str, status: str) -> Callable[[Object], bool]:
    def is_so(told: Object) -> bool:
        return (find_condition(told.get("conditions"), kind) or {}).get("status") == status

    return is_so


async def test_what_is_placed_is_applied_followed_and_withdrawn(stage: Stage) -> None:
    await stage.site.app("settings")
    await stage.hub.create(
        ResourcePath(DEPLOYMENTS, "app"), deployment("web", replicas=2, namespace="app")
    )
    await stage.site.place(placement(rollingUpdate=AT_ONCE))
    await stage.until_told(has("Available", "True"))

    work = next(
        each
        for each in await stage.hub.list_objects(ResourcePath(WORKS, execution_namespace("west")))
        if manifests_of(each)[0]["kind"] == "Deployment"
    )
    fleet_work = await stage.fleet_work_of("Deployment", "web")
    assert manifests_of(fleet_work) == manifests_of(work)
    assert FLEET_WORK_FINALIZER in finalizers_of(fleet_work)
    assert fleet_work["metadata"]["labels"]["kubernetes-fleet.io/parent-CRP"] == "crp"
    applied_work = await stage.member.client.get(
        ResourcePath(APPLIED_WORKS, name=name_of(fleet_work))
    )
    assert applied_work["spec"]["workNamespace"] == "fleet-member-west"
    resources = applied_work["status"]["appliedResources"]
    assert [(each["kind"], each["name"]) for each in resources] == [("Deployment", "web")]
    there = await stage.member.client.get(ResourcePath(DEPLOYMENTS, "app", "web"))
    assert there["metadata"]["ownerReferences"][0]["kind"] == "AppliedWork"

    async def template_is_ready() -> bool:
        template = await stage.hub.get(ResourcePath(DEPLOYMENTS, "app", "web"))
        return find_at(template, "status", "readyReplicas") == 2

    await until(template_is_ready, PATIENCE)

    await stage.site.set_data("settings", SECOND)
    await stage.until_data("settings", SECOND)
    await stage.until_told(has("Available", "True"))

    await delete(stage.hub, ResourcePath(PLACEMENTS, name="crp"))
    await stage.until_data("settings", None)

    async def all_is_gone() -> bool:
        placed = await stage.member.client.list_objects(ResourcePath(APPLIED_WORKS))
        works = await stage.fleet_works()
        # The namespace is on the hub still, and comes along with every cluster.
        kinds = {manifests_of(each)[0]["kind"] for each in works}
        return kinds <= {"Namespace"} and len(placed) == len(works)

    await until(all_is_gone, PATIENCE)


async def test_a_policy_places_there_too_and_leaves_what_is_somebody_elses(stage: Stage) -> None:
    await stage.hub.create(ResourcePath(NAMESPACES), namespace("app"))
    await stage.member.client.create(ResourcePath(NAMESPACES), namespace("app"))
    path = ResourcePath(CONFIG_MAPS, "app")
    await stage.member.client.create(path, config_map("theirs", SECOND, namespace="app"))
    for name in ("ours", "theirs"):
        await stage.hub.create(path, config_map(name, FIRST, namespace="app"))
    await stage.hub.create(
        ResourcePath(PROPAGATION_POLICIES, "app"),
        {
            "apiVersion": PROPAGATION_POLICIES.api_version,
            "kind": "PropagationPolicy",
            "metadata": {"name": "pp", "namespace": "app"},
            "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]},
        },
    )
    await stage.until_data("ours", FIRST)

    async def conflict_is_told() -> bool:
        works = await stage.hub.list_objects(ResourcePath(WORKS, execution_namespace("west")))
        work = next(each for each in works if name_of(manifests_of(each)[0]) == "theirs")
        applied = find_condition(find_at(work, "status", "conditions"), "Applied") or {}
        return applied.get("status") == "False" and "already exists" in str(applied.get("message"))

    await until(conflict_is_told, PATIENCE)
    assert await stage.site.data("west", "theirs") == SECOND

    await delete(stage.hub, ResourcePath(PROPAGATION_POLICIES, "app", "pp"))
    for name in ("ours", "theirs"):
        await delete(stage.hub, path.named(name))
    await stage.until_data("ours", None)
    assert await stage.site.data("west", "theirs") == SECOND
    assert await stage.member.client.find(namespace_path("app"))


async def test_drift_is_told_field_by_field_and_not_repaired_if_the_placement_says_so(
    stage: Stage,
) -> None:
    await stage.site.app("settings")
    strategy = {"whenToApply": "IfNotDrifted"}
    await stage.site.place(placement(rollingUpdate=AT_ONCE, applyStrategy=strategy))
    await stage.until_told(has("Available", "True"))

    path = ResourcePath(CONFIG_MAPS, "app", "settings")
    await edit(stage.member.client, path, lambda held: {**held, "data": SECOND})

    def tells_of_drift(told: Object) -> bool:
        drifts = told.get("driftedPlacements") or []
        paths = [each["path"] for drift in drifts for each in drift["observedDrifts"]]
        return paths == ["/data/v"]

    await stage.until_told(tells_of_drift)
    assert await stage.site.data("west", "settings") == SECOND


async def test_one_that_is_only_compared_is_left_alone_and_told_of(stage: Stage) -> None:
    await stage.site.app("settings")
    await stage.member.client.create(ResourcePath(NAMESPACES), namespace("app"))
    path = ResourcePath(CONFIG_MAPS, "app")
    await stage.member.client.create(path, config_map("settings", SECOND, namespace="app"))
    strategy = {"type": "ReportDiff", "whenToTakeOver": "Never"}
    await stage.site.place(placement(rollingUpdate=AT_ONCE, applyStrategy=strategy))

    def tells_of_difference(told: Object) -> bool:
        found = [each for each in told.get("diffedPlacements") or [] if each["name"] == "settings"]
        paths = [each["path"] for diff in found for each in diff["observedDiffs"]]
        return "/data/v" in paths

    await stage.until_told(tells_of_difference)
    assert await stage.site.data("west", "settings") == SECOND


@pytest.mark.parametrize("keeps", [False, True])
async def test_it_leaves_and_what_was_placed_goes_or_stays(stage: Stage, keeps: bool) -> None:
    await stage.site.app("settings")
    await stage.site.place(placement(rollingUpdate=AT_ONCE))
    await stage.until_told(has("Available", "True"))
    if keeps:
        keep = {"clusterspace.io/keep-resources-on-leave": "true"}
        await stage.invited.change(lambda held: with_metadata(held, annotations=keep))

    await stage.invited.let_go()

    async def is_gone() -> bool:
        return await stage.invited.find() is None

    await until(is_gone, PATIENCE)
    assert await stage.site.data("west", "settings") == (FIRST if keeps else None)
    # What else is in a namespace cannot be seen from the hub, so it stays.
    assert await stage.member.client.find(namespace_path("app"))
    assert await stage.hub.find(manifests.member_namespace_path("west")) is None
    assert await stage.hub.find(cluster_path("west")) is None


@asynccontextmanager
async def stage_without_agent(directory: Path) -> AsyncGenerator[Stage]:
    """Run a hub that has invited a member, whose agent a test starts and ends by itself."""
    async with running_fleet(directory) as fleet, AsyncExitStack() as stack:
        invited = Invited(fleet)
        member = await fleet.add_sim("west")
        invited.members["west"] = member
        await invited.invite()
        site = PlacementSite(invited.hub, directory, stack, {"west": member.client})
        async with invited.controllers():
            yield Stage(invited, site, member)


async def test_an_agent_that_falls_silent_makes_its_cluster_unknown(tmp_path: Path) -> None:
    async with stage_without_agent(tmp_path) as running:
        invited, member = running.invited, running.member
        async with kubefleet_agent(invited, member):
            await running.until_ready("True")
        await running.until_ready("Unknown")
        assert await invited.condition("HeartbeatReceived") == ("False", "HeartbeatLost")
        assert (await invited.condition("Joined"))[0] == "True"
        async with kubefleet_agent(invited, member):
            await running.until_ready("True")


async def test_an_agent_that_is_dead_is_given_up_and_its_member_keeps_what_it_has(
    tmp_path: Path,
) -> None:
    async with stage_without_agent(tmp_path) as stage:
        async with kubefleet_agent(stage.invited, stage.member):
            await stage.site.app("settings")
            await stage.site.place(placement(rollingUpdate=AT_ONCE))
            await stage.until_told(has("Available", "True"))
        forced = {FORCE_LEAVE: "true"}
        await stage.invited.change(lambda held: with_metadata(held, annotations=forced))

        await stage.invited.let_go()
        await stage.invited.until_gone()

        assert await stage.site.data("west", "settings") == FIRST
        left = await stage.hub.get(left_behind_path("west"))
        assert "ConfigMap app/settings" in str(left["data"])
        assert await stage.hub.find(cluster_path("west")) is None
        for inside in (member_namespace("west"), execution_namespace("west")):

            async def is_gone(inside: str = inside) -> bool:
                return await stage.hub.find(namespace_path(inside)) is None

            await until(is_gone)


async def test_controllers_that_are_replaced_in_the_middle_of_a_leave_carry_it_through(
    tmp_path: Path,
) -> None:
    async with running_fleet(tmp_path) as fleet, AsyncExitStack() as stack:
        invited = Invited(fleet)
        member = await fleet.add_sim("west")
        await invited.invite()
        site = PlacementSite(invited.hub, tmp_path, stack, {"west": member.client})
        stage = Stage(invited, site, member)
        async with invited.controllers():
            async with kubefleet_agent(invited, member):
                await site.app("settings")
                await site.place(placement(rollingUpdate=AT_ONCE))
                await stage.until_told(has("Available", "True"))
            # Its agent is away, so that nothing is withdrawn before they are gone.
            await invited.let_go()
            await invited.until_condition("Leaving", "True")

            async def is_withdrawn() -> bool:
                work = await stage.fleet_work_of("ConfigMap", "settings")
                return is_being_deleted(work)

            await until(is_withdrawn)
        assert await site.data("west", "settings") == FIRST
        async with kubefleet_agent(invited, member), invited.controllers():
            await invited.until_gone()
        assert await site.data("west", "settings") is None
