"""Quotas, rebalancers and remedies of Karmada, by controllers with the rights of their role."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.quotas import FEDERATED_RESOURCE_QUOTAS
from clusterspace.apis.works import RESOURCE_BINDINGS, clusters_of
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import Invalid, QuotaExceeded
from clusterspace.fleet.membership.remedies import REMEDIES
from clusterspace.fleet.propagation.rebalancer import WORKLOAD_REBALANCERS
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import delete, edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACES = GroupVersionResource("", "v1", "namespaces")
NODES = GroupVersionResource("", "v1", "nodes")
MEMBER_QUOTAS = GroupVersionResource("", "v1", "resourcequotas")
PODS = GroupVersionResource("", "v1", "pods")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
POLICIES = GroupVersionResource("policy.karmada.io", "v1alpha1", "propagationpolicies")


class Team:
    """A namespace of the fleet, with what is limited and placed in it."""

    def __init__(self, fleet: Fleet, members: dict[str, Side], namespace: str) -> None:
        self.hub, self.members, self.namespace = fleet.hub.client, members, namespace

    def at(self, resource: GroupVersionResource, name: str = "") -> ResourcePath:
        return ResourcePath(resource, self.namespace, name)

    async def limit(self, overall: Object, **assigned: Object) -> None:
        listed = [{"clusterName": name, "hard": hard} for name, hard in assigned.items()]
        quota = {
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "FederatedResourceQuota",
            "metadata": {"name": "team"},
            "spec": {"overall": overall, "staticAssignments": listed},
        }
        await self.hub.create(self.at(FEDERATED_RESOURCE_QUOTAS), quota)

    async def deploy(self, name: str, cpu: str, *, replicas: int = 1) -> None:
        container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
        labels = {"app": name}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        await self.hub.create(self.at(DEPLOYMENTS), deployment)
        selector = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        policy = {
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "PropagationPolicy",
            "metadata": {"name": name},
            "spec": {
                "resourceSelectors": [selector],
                "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
            },
        }
        await self.hub.create(self.at(POLICIES), policy)

    async def scale(self, name: str, replicas: int) -> None:
        place = self.at(DEPLOYMENTS, name)
        await edit(self.hub, place, lambda each: with_value(each, replicas, "spec", "replicas"))

    async def status(self) -> Object:
        quota = await self.hub.get(self.at(FEDERATED_RESOURCE_QUOTAS, "team"))
        return quota.get("status") or {}

    async def used(self) -> Any:
        return (await self.status()).get("overallUsed")

    async def placed(self, name: str) -> dict[str, int]:
        binding = await self.hub.find(self.at(RESOURCE_BINDINGS, f"{name}-deployment"))
        return {each.name: each.replicas for each in clusters_of(binding or {})}

    async def told(self, name: str) -> tuple[str, str]:
        binding = await self.hub.find(self.at(RESOURCE_BINDINGS, f"{name}-deployment"))
        conditions = find_at(binding, "status", "conditions")
        found = find_condition(conditions, "Scheduled") or {}
        return str(found.get("reason", "")), str(found.get("message", ""))

    async def events(self, reason: str) -> set[str]:
        listed = await self.hub.list_objects(self.at(EVENTS))
        return {str(each["message"]) for each in listed if each["reason"] == reason}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Fleet, dict[str, Side]]]:
    async with (
        running_fleet(tmp_path_factory.mktemp("quotas")) as fleet,
        fleet.controllers(unschedulable_seconds=1.0),
    ):
        members = {name: await fleet.add_sim(name, nodes=1) for name in ("west", "east")}
        for name, member in members.items():
            await fleet.join(name, member)
            await until_ready(fleet, name)
        yield fleet, members


@pytest_asyncio.fixture(loop_scope="module")
async def team(
    fleet: tuple[Fleet, dict[str, Side]], request: pytest.FixtureRequest
) -> AsyncIterator[Team]:
    namespace = f"team-{abs(hash(request.node.name)) % 10**6}"
    team = Team(*fleet, namespace)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await team.hub.create(ResourcePath(NAMESPACES), body)
    yield team
    await delete(team.hub, ResourcePath(NAMESPACES, name=namespace))


async def test_each_cluster_gets_its_part_and_loses_it_with_the_assignment(team: Team) -> None:
    part = {"cpu": "1", "memory": "1Gi"}
    await team.limit({"cpu": "4", "memory": "4Gi"}, west=part, east={"cpu": "2"})

    async def hard(cluster: str) -> Any:
        found = await team.members[cluster].client.find(team.at(MEMBER_QUOTAS, "team"))
        return find_at(found or {}, "spec", "hard")

    await until_equal(lambda: hard("west"), part)
    await until_equal(lambda: hard("east"), {"cpu": "2"})

    async def collected() -> Any:
        return (await team.status()).get("aggregatedStatus")

    zero = dict.fromkeys(part, "0")
    east = {"clusterName": "east", "hard": {"cpu": "2"}, "used": {"cpu": "0"}}
    west = {"clusterName": "west", "hard": part, "used": zero}
    await until_equal(collected, [east, west])
    # Events are written behind what they tell of.
    await until(lambda: team.events("SyncWorkSucceed"))
    await until(lambda: team.events("AggregateStatusSucceed"))
    await until(lambda: team.events("CollectOverallStatusSucceed"))

    quota = team.at(FEDERATED_RESOURCE_QUOTAS, "team")
    left = [{"clusterName": "west", "hard": {"cpu": "3"}}]
    await edit(team.hub, quota, lambda each: with_value(each, left, "spec", "staticAssignments"))
    await until_equal(lambda: hard("west"), {"cpu": "3"})
    await until_equal(lambda: hard("east"), None)

    await delete(team.hub, quota)
    await until_equal(lambda: hard("west"), None)


async def test_what_finds_no_room_waits_and_is_placed_when_there_is_some(team: Team) -> None:
    await team.limit({"cpu": "30m", "memory": "1Gi"})
    await team.deploy("first", "20m")
    await until_equal(team.used, {"cpu": "20m"})
    await team.deploy("second", "20m")

    await until_equal(lambda: _reason(team, "second"), "QuotaExceeded")
    _, message = await team.told("second")
    assert message == (
        'admission webhook "resourcebinding.karmada.io" denied the request: '
        f"FederatedResourceQuota({team.namespace}/team) exceeded for resource cpu: "
        "requested sum 40m, limit 30m."
    )
    assert await team.placed("second") == {}
    assert message in await until(lambda: team.events("ScheduleBindingFailed"))
    assert await team.used() == {"cpu": "20m"}

    # Room that is given back is used, without anybody asking.
    await delete(team.hub, team.at(DEPLOYMENTS, "first"))
    await until_equal(lambda: team.placed("second"), {"west": 1})
    await until_equal(team.used, {"cpu": "20m"})


async def test_scaling_beyond_the_quota_changes_nothing_on_the_members(team: Team) -> None:
    await team.limit({"cpu": "30m"})
    await team.deploy("web", "10m", replicas=2)
    await until_equal(lambda: team.placed("web"), {"west": 2})

    await team.scale("web", 4)
    await until_equal(lambda: _reason(team, "web"), "QuotaExceeded")

    assert await team.placed("web") == {"west": 2}
    copy = await until(lambda: team.members["west"].client.find(team.at(DEPLOYMENTS, "web")))
    assert find_at(copy, "spec", "replicas") == 2

    await team.scale("web", 3)
    await until_equal(lambda: team.placed("web"), {"west": 3})
    assert await team.used() == {"cpu": "30m"}


async def test_a_template_that_asks_for_more_than_is_left_is_told_so(team: Team) -> None:
    await team.limit({"cpu": "10m"})
    await team.deploy("web", "10m")
    await until_equal(team.used, {"cpu": "10m"})

    def greedy(deployment: Object) -> Object:
        containers = find_at(deployment, "spec", "template", "spec", "containers")
        asked = [{**containers[0], "resources": {"requests": {"cpu": "20m"}}}]
        return with_value(deployment, asked, "spec", "template", "spec", "containers")

    await edit(team.hub, team.at(DEPLOYMENTS, "web"), greedy)

    failed = await until(lambda: team.events("ApplyPolicyFailed"))
    assert any("requested sum 20m, limit 10m" in message for message in failed)
    binding = await team.hub.get(team.at(RESOURCE_BINDINGS, "web-deployment"))
    needs = find_at(binding, "spec", "replicaRequirements", "resourceRequest")
    assert needs == {"cpu": "10m"}


async def test_many_writers_at_once_never_take_more_than_there_is(team: Team) -> None:
    await team.limit({"pods": "7"})

    def binding(number: int) -> Object:
        return {
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {"name": f"w{number}-deployment"},
            "spec": {
                "replicas": 1,
                "clusters": [{"name": "west", "replicas": 1}],
                "resource": {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "namespace": team.namespace,
                    "name": f"w{number}",
                },
            },
        }

    async def write(number: int) -> bool:
        try:
            await team.hub.create(team.at(RESOURCE_BINDINGS), binding(number))
        except QuotaExceeded:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        written = [group.create_task(write(number)) for number in range(20)]

    assert sum(each.result() for each in written) == 7
    assert len(await team.hub.list_objects(team.at(RESOURCE_BINDINGS))) == 7


async def test_a_quota_that_contradicts_itself_is_refused(team: Team) -> None:
    with pytest.raises(Invalid, match="overall is less than assignments"):
        await team.limit({"cpu": "1"}, west={"cpu": "2"})


async def test_a_rebalancer_tells_what_it_did_and_goes_when_its_time_is_over(team: Team) -> None:
    await team.deploy("web", "10m")
    await until_equal(lambda: team.placed("web"), {"west": 1})
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    body = {
        "apiVersion": "apps.karmada.io/v1alpha1",
        "kind": "WorkloadRebalancer",
        "metadata": {"name": "anew"},
        "spec": {"workloads": [{**web, "namespace": team.namespace}]},
    }
    await team.hub.create(ResourcePath(WORKLOAD_REBALANCERS), body)
    place = ResourcePath(WORKLOAD_REBALANCERS, name="anew")

    async def results() -> list[str]:
        observed = find_at(await team.hub.get(place), "status", "observedWorkloads") or ()
        return [each["result"] for each in observed]

    await until_equal(results, ["Successful"])
    await edit(team.hub, place, lambda each: with_value(each, 0, "spec", "ttlSecondsAfterFinished"))
    await until_equal(lambda: team.hub.find(place), None)


async def test_a_remedy_shows_on_the_cluster_for_as_long_as_it_is_called_for(team: Team) -> None:
    asked = {"conditionType": "DNSReady", "operator": "Equal", "conditionStatus": "False"}
    body = {
        "apiVersion": "remedy.karmada.io/v1alpha1",
        "kind": "Remedy",
        "metadata": {"name": "dns"},
        "spec": {
            "clusterAffinity": {"clusterNames": ["west"]},
            "decisionMatches": [{"clusterConditionMatch": asked}],
            "actions": ["TrafficControl"],
        },
    }
    await team.hub.create(ResourcePath(REMEDIES), body)
    west = ResourcePath(CLUSTERS, name="west")

    async def actions(name: str = "west") -> Any:
        return find_at(await team.hub.get(west.named(name)), "status", "remedyActions")

    async def report(status: str) -> None:
        def with_report(cluster: Object) -> Object:
            others = find_at(cluster, "status", "conditions") or []
            kept = [each for each in others if each["type"] != "DNSReady"]
            times = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "", "reason": "x"}
            told = {"type": "DNSReady", "status": status, **times}
            return with_value(cluster, [*kept, told], "status", "conditions")

        await edit(team.hub, west.with_subresource("status"), with_report)

    await report("True")
    await report("False")
    await until_equal(actions, ["TrafficControl"])
    assert await actions("east") is None
    await report("True")
    await until_equal(actions, None)
    await report("False")
    await until_equal(actions, ["TrafficControl"])
    await delete(team.hub, ResourcePath(REMEDIES, name="dns"))
    await until_equal(actions, None)


async def test_replicas_that_find_no_node_move_to_where_there_is_one(team: Team) -> None:
    async def label(member: str, disk: str) -> None:
        client = team.members[member].client
        (node,) = await client.list_objects(ResourcePath(NODES))
        place = ResourcePath(NODES, name=name_of(node))
        labelled = {**labels_of(node), "disk": disk}
        await edit(client, place, lambda each: with_metadata(each, labels=labelled))

    async def is_reported(member: str) -> bool:
        cluster = await team.hub.get(ResourcePath(CLUSTERS, name=member))
        return "ssd" in str(find_at(cluster, "status", "estimate"))

    for member in ("east", "west"):
        await label(member, "ssd")
        await until(partial(is_reported, member))
    labels = {"app": "picky"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "c", "image": "nginx"}],
        },
    }
    picky = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "picky"},
        "spec": {"replicas": 4, "selector": {"matchLabels": labels}, "template": template},
    }
    await team.hub.create(team.at(DEPLOYMENTS), picky)
    dynamic = {"dynamicWeight": "AvailableReplicas"}
    policy = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "picky"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "picky"}],
            "placement": {
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                    "weightPreference": dynamic,
                }
            },
        },
    }
    await team.hub.create(team.at(POLICIES), policy)
    await until_equal(lambda: team.placed("picky"), {"east": 2, "west": 2})

    # What is placed is not divided anew because room changed. But the pods of west are made again
    # where no node has the label any more, and in time the member says so.
    west = team.members["west"].client

    async def both() -> list[Object]:
        pods = await west.list_objects(team.at(PODS))
        return pods if len(pods) == 2 else []

    pods = await until(both)
    await label("west", "hdd")
    for pod in pods:
        await delete(west, team.at(PODS, name_of(pod)))
    await until_equal(lambda: team.placed("picky"), {"east": 4})
    binding = await team.hub.get(team.at(RESOURCE_BINDINGS, "picky-deployment"))
    assert "west" in annotations_of(binding)["clusterspace.io/found-no-node"]


async def _reason(team: Team, name: str) -> str:
    return (await team.told(name))[0]
