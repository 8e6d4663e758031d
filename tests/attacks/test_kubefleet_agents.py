"""KubeFleet's agent, hostile or stolen: it reaches its namespace solely, and lies about itself."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.component.fleet_agent import kubefleet_agent
from tests.component.invited_members import Invited
from tests.component.placement_site import PlacementSite, of_cluster, placement
from tests.flows.test_member_cluster_rights import rights_in

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.fleet_placements import API_VERSION
from clusterspace.apis.member_clusters import (
    FLEET_WORKS,
    INTERNAL_MEMBER_CLUSTERS,
    MEMBER_CLUSTERS,
    member_namespace,
)
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.errors import ApiError, Forbidden
from clusterspace.fleet.membership.manifests import (
    CONFIG_MAPS,
    NAMESPACES,
    SECRETS,
    cluster_path,
    lease_path,
)
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, name_of, uid_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import running_fleet
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN = member_namespace("evil")
ENVELOPES = GroupVersionResource("placement.kubernetes-fleet.io", "v1beta1", "resourceenvelopes")
AT_ONCE = {"maxUnavailable": "100%", "maxSurge": "100%", "unavailablePeriodSeconds": 0}
FIRST = {"v": "1"}


@dataclass
class Attack:
    """Two members whose agents are KubeFleet's; `evil` has no agent but us."""

    invited: Invited
    site: PlacementSite
    evil: ClusterClient
    """The hub, by the credentials of evil's agent."""

    @property
    def hub(self) -> ClusterClient:
        return self.invited.hub

    async def own_work(self) -> Object:
        """Wait for the fleet Work of `settings` on evil, and return it."""

        async def find() -> Object | None:
            listed = await self.evil.list_objects(ResourcePath(FLEET_WORKS, OWN))
            named = [e for e in listed if name_of(manifests_of(e)[0]) == "settings"]
            return named[0] if named else None

        return await until(find)

    async def report(self, work: Object, status: Object) -> None:
        path = ResourcePath(FLEET_WORKS, OWN, name_of(work)).with_subresource("status")
        live = await self.evil.get(ResourcePath(FLEET_WORKS, OWN, name_of(work)))
        await self.evil.update(path, {**live, "status": status})

    async def ours(self, cluster: str) -> Object:
        """Return the engine's Work of `settings` for a cluster."""
        listed = await self.hub.list_objects(ResourcePath(WORKS, execution_namespace(cluster)))
        return next(e for e in listed if name_of(manifests_of(e)[0]) == "settings")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attack(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Attack]:
    directory = tmp_path_factory.mktemp("kubefleet")
    async with running_fleet(directory) as fleet, AsyncExitStack() as stack:
        invited = Invited(fleet)
        members = {name: await fleet.add_sim(name) for name in ("good", "evil")}
        for name in members:
            await invited.invite(name, period=600)
        clients = {name: each.client for name, each in members.items()}
        site = PlacementSite(invited.hub, directory, stack, clients)
        async with invited.controllers(), kubefleet_agent(invited, members["good"], "good"):
            async with kubefleet_agent(invited, members["evil"], "evil"):
                for name in members:
                    await invited.until_condition("Joined", "True", name)
            # From here on nobody works for evil but the tests.
            async with client_for_test(await invited.identity_settings("evil")) as evil:
                await site.app("settings")
                await site.place(placement(rollingUpdate=AT_ONCE))
                await site.until_data("good", "settings", FIRST)
                yield Attack(invited, site, evil)


async def test_it_has_no_right_outside_its_namespace(attack: Attack) -> None:
    elsewhere = (
        "default", "kube-system", "karmada-cluster", "fleet-system", "app",
        execution_namespace("evil"), member_namespace("good"), execution_namespace("good"),
    )  # fmt: skip
    stranger_settings = await attack.invited.identity_settings("nobody")
    async with client_for_test(stranger_settings) as stranger:
        for namespace in elsewhere:
            common = await rights_in(stranger, namespace)
            assert await rights_in(attack.evil, namespace) == common, namespace
        assert await rights_in(attack.evil, OWN) - await rights_in(stranger, OWN)


@pytest.mark.parametrize(
    "place",
    [
        ResourcePath(INTERNAL_MEMBER_CLUSTERS, member_namespace("good")),
        ResourcePath(FLEET_WORKS, member_namespace("good")),
        ResourcePath(FLEET_WORKS),
        ResourcePath(WORKS, execution_namespace("evil")),
        ResourcePath(WORKS, execution_namespace("good")),
        ResourcePath(MEMBER_CLUSTERS),
        ResourcePath(SECRETS, OWN),
        ResourcePath(SECRETS, "karmada-cluster"),
        ResourcePath(CONFIG_MAPS, "app"),
        ResourcePath(NAMESPACES),
        cluster_path("evil").collection,
    ],
    ids=str,
)
async def test_it_lists_nothing_of_others(attack: Attack, place: ResourcePath) -> None:
    with pytest.raises(Forbidden):
        await attack.evil.list_objects(place)


async def test_it_writes_nothing_of_others(attack: Attack) -> None:
    for place in (
        cluster_path("evil"), cluster_path("good"), lease_path("evil"),
        manifests.internal_path("good"), manifests.member_cluster_path("evil"),
    ):  # fmt: skip
        with pytest.raises(Forbidden):
            await attack.evil.delete(place, DeleteOptions("some-uid"))
    with pytest.raises(Forbidden):
        await attack.evil.create(ResourcePath(CONFIG_MAPS, OWN), _config_map("theirs"))


def _config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": OWN}}


async def test_nothing_in_its_namespace_travels_to_other_clusters(attack: Attack) -> None:
    """It may write every kind of the group there, placements and envelopes among them."""
    envelope = {
        "apiVersion": API_VERSION,
        "kind": "ResourceEnvelope",
        "metadata": {"name": "trojan", "namespace": OWN},
        "data": {"map": _config_map("trojan")},
    }
    selectors = [
        {"group": ENVELOPES.group, "version": "v1beta1", "kind": "ResourceEnvelope"},
        {"group": FLEET_WORKS.group, "version": "v1beta1", "kind": "Work"},
    ]
    written: list[str] = []
    for resource, body in [
        (ENVELOPES, envelope),
        *(
            (
                GroupVersionResource(ENVELOPES.group, "v1beta1", "resourceplacements"),
                {
                    "apiVersion": API_VERSION,
                    "kind": "ResourcePlacement",
                    "metadata": {"name": f"spread-{number}", "namespace": OWN},
                    "spec": {"resourceSelectors": [each]},
                },
            )
            for number, each in enumerate(selectors)
        ),
    ]:
        try:
            await attack.evil.create(ResourcePath(resource, OWN), body)
        except ApiError:
            continue
        written.append(name_of(body))
    await settled()
    good = attack.site.members["good"]
    namespaces = [name_of(each) for each in await good.list_objects(ResourcePath(NAMESPACES))]
    assert OWN not in namespaces, written
    works = await attack.hub.list_objects(ResourcePath(WORKS, execution_namespace("good")))
    placed = [name_of(each) for work in works for each in manifests_of(work)]
    assert "trojan" not in placed, written


def _told(generation: int, *entries: Object) -> Object:
    applied = {"type": "Applied", "status": "True", "reason": "AllManifestsApplied"}
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}
    condition = {**applied, **times, "observedGeneration": generation}
    return {"conditions": [condition], "manifestConditions": list(entries)}


def _entry(identifier: Object, **more: Any) -> Object:
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}
    applied = {"type": "Applied", "status": "True", "reason": "Applied", "observedGeneration": 1}
    return {"identifier": identifier, "conditions": [{**applied, **times}], **more}


SETTINGS = {
    "ordinal": 0, "version": "v1", "kind": "ConfigMap", "resource": "configmaps",
    "namespace": "app", "name": "settings",
}  # fmt: skip


async def test_lies_about_other_objects_and_ordinals_are_not_believed(attack: Attack) -> None:
    work = await attack.own_work()
    generation = work["metadata"]["generation"]
    lies = [
        _entry({**SETTINGS, "name": "somebody-elses"}),
        _entry({**SETTINGS, "ordinal": 7}),
        _entry({**SETTINGS, "ordinal": -1}),
        _entry({**SETTINGS, "ordinal": 1, "namespace": "kube-system", "kind": "Secret"}),
    ]
    before = await attack.ours("good")
    await attack.report(work, _told(generation, *lies))

    async def is_refused() -> bool:
        applied = find_condition(
            find_at(await attack.ours("evil"), "status", "conditions"), "Applied"
        )
        return (applied or {}).get("status") == "False"

    await until(is_refused)
    told = await attack.ours("evil")
    assert not find_at(told, "status", "manifestStatuses")
    assert (await attack.ours("good"))["status"] == before["status"]


async def test_what_it_reports_at_great_length_is_cut_short(attack: Attack) -> None:
    work = await attack.own_work()
    generation, long = work["metadata"]["generation"], "x" * 100_000
    seen = {"observationTime": "2026-01-01T00:00:00Z"}
    drifts = [{"path": f"/data/{number}", "valueInMember": long} for number in range(8)]
    details = {
        **seen,
        "firstDriftedObservedTime": "2026-01-01T00:00:00Z",
        "observedInMemberClusterGeneration": 1,
        "observedDrifts": drifts,
    }
    observed = {"apiVersion": "v1", "kind": "ConfigMap", "status": {"long": long}}
    entry = _entry(
        SETTINGS, driftDetails=details, backReportedStatus={"observedStatus": observed, **seen}
    )
    await attack.report(work, _told(generation, entry))

    async def is_told() -> bool:
        entries = of_cluster(await attack.site.status("crp"), "evil").get("driftedPlacements")
        return bool(entries)

    await until(is_told)
    told = await attack.ours("evil")
    assert long[:1000] not in str(told["status"])
    assert "status" not in told["status"]["manifestStatuses"][0]
    drifted = of_cluster(await attack.site.status("crp"), "evil")["driftedPlacements"][0]
    assert all(len(each["valueInMember"]) < 300 for each in drifted["observedDrifts"])


async def test_a_work_that_it_deletes_or_rewrites_is_put_back(attack: Attack) -> None:
    work = await attack.own_work()
    path = ResourcePath(FLEET_WORKS, OWN, name_of(work))
    live = await attack.evil.get(path)
    spec = {"workload": {"manifests": [_config_map("mine")]}}
    await attack.evil.update(path, {**live, "spec": spec})

    async def is_back() -> bool:
        found = await attack.hub.find(path)
        return found is not None and manifests_of(found) == manifests_of(work)

    await until(is_back)
    await attack.hub.delete(path, DeleteOptions(uid_of(work)))
    live = await attack.evil.find(path)
    if live is not None:  # it held it by the finalizer
        await attack.evil.update(path, {**live, "metadata": {**live["metadata"], "finalizers": []}})
    await until(is_back)
