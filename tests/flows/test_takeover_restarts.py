"""Taking over what runs restarts nothing: pods, ReplicaSets and restart counts stay as they are.

The Deployment has led a life before: its server filled in defaults, an autoscaler chose the
replicas, somebody injected a sidecar, others left annotations. On a real kube-apiserver without
nodes pods are only wanted, and stay the same ones.
"""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.flows.stages import (
    KUBERNETES,
    MEMBERS,
    MIXED,
    SIM,
    Stage,
    edit,
    kubectl_apply,
    staged,
)

from clusterspace.apis import stamps
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, PatchType, WriteOptions
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    resource_version_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.workloads import PromoteRequest, look, promote
from clusterspace.testing.builders import DEPLOYMENTS, PODS, deployment, pod
from clusterspace.testing.hubs import OURS, SEVERAL
from clusterspace.testing.steps import delete, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = GroupVersionResource("", "v1", "nodes")
REPLICA_SETS = GroupVersionResource("apps", "v1", "replicasets")
WRITTEN, SCALED = 2, 4
SIDECAR = {"name": "proxy", "image": "proxy:1"}
NOTE = "example.com/backed-up-at"
RESTARTED = "kubectl.kubernetes.io/restartedAt"


STAGES = (
    (SIM, MIXED, OURS),
    (KUBERNETES, MIXED, OURS),
    pytest.param((SIM, MIXED, KUBERNETES), marks=pytest.mark.slow),
    pytest.param((SIM, MIXED, SEVERAL), marks=pytest.mark.slow),
)
"""What members are, how they belong to the hub, and what that is."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=STAGES, ids="-".join)
async def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    (kind, mode, hub_kind), directory = request.param, tmp_path_factory.mktemp("stage")
    async with staged(kind, mode, directory, nodes=2, hub_kind=hub_kind) as stage:
        yield stage


class Legacy:
    """A Deployment that has led a life on a member before anybody placed it there."""

    def __init__(self, member: ClusterClient, name: str) -> None:
        self.member = member
        self.place = ResourcePath(DEPLOYMENTS, "default", name)

    async def grow_old(self) -> None:
        await kubectl_apply(self.member, deployment(self.place.name, replicas=WRITTEN))
        await self.until_rolled_out(WRITTEN)
        await self._inject_sidecar()
        await self._scale()
        await edit(self.member, self.place, _annotated)
        await self.until_rolled_out(SCALED)
        while True:
            before = await self.running()
            await self._let_another_roll_out()
            await until(self.is_settled)
            if await self.running() == before:
                return

    async def _let_another_roll_out(self) -> None:
        """Have the member's controllers carry a Deployment from its making to its last pod.

        Between two steps of a rollout everything looks settled for a moment. Whoever had another
        step to take with ours has taken it when one that came later is through.
        """
        name = f"{self.place.name}-later-{uuid.uuid4().hex[:8]}"
        later = Legacy(self.member, name)
        await self.member.create(later.place.collection, deployment(name, replicas=1))
        await later.until_rolled_out(1)
        await delete(self.member, later.place)

    async def _inject_sidecar(self) -> None:
        held = await self.member.get(self.place)
        template = {
            "metadata": {"annotations": {RESTARTED: "2026-01-01T00:00:00Z"}},
            "spec": {"containers": [SIDECAR]},
        }
        patch = {
            "metadata": {"resourceVersion": resource_version_of(held)},
            "spec": {"template": template},
        }
        injector = WriteOptions(field_manager="injector")
        await self.member.patch(self.place, PatchType.STRATEGIC, patch, injector)

    async def _scale(self) -> None:
        await edit(
            self.member,
            self.place.with_subresource("scale"),
            lambda held: with_value(held, SCALED, "spec", "replicas"),
            WriteOptions(field_manager="kube-controller-manager"),
        )

    async def until_rolled_out(self, replicas: int) -> None:
        async def is_done() -> bool:
            status = (await self.member.get(self.place)).get("status") or {}
            counts = {status.get(f"{what}eplicas") for what in ("r", "updatedR", "readyR")}
            # Without nodes no pod gets ready, and a rollout stops half-way for good.
            is_rolled_out = counts == {replicas} or not await self.member.list_objects(
                ResourcePath(NODES)
            )
            return is_rolled_out and await self.is_settled()

        await until(is_done)

    async def is_settled(self) -> bool:
        """Whether every controller has seen the latest word and carried it out.

        Each writes the generation it has seen when it is done with it. Then, as long as no pod
        changes, nothing moves any more.
        """
        deployment = await self.member.get(self.place)
        replica_sets = await self._owned(REPLICA_SETS)
        wanted = sum(find_at(each, "spec", "replicas") or 0 for each in replica_sets)
        return (
            all(map(_is_seen, (deployment, *replica_sets)))
            and len(await self.pods()) == wanted
            and sum(find_at(each, "status", "replicas") or 0 for each in replica_sets) == wanted
        )

    async def pods(self) -> dict[str, int]:
        """Return restart counts by UID."""
        pods = await self._owned(PODS)
        return {uid_of(each): _restarts(each) for each in pods}

    async def running(self) -> tuple[dict[str, int], set[str], Object]:
        """Return pods with their restarts, ReplicaSets, and what the Deployment asks for."""
        replica_sets = {uid_of(each) for each in await self._owned(REPLICA_SETS)}
        return await self.pods(), replica_sets, (await self.member.get(self.place))["spec"]

    async def _owned(self, resource: GroupVersionResource) -> list[Object]:
        listed = await self.member.list_objects(ResourcePath(resource, "default"))
        return [each for each in listed if labels_of(each).get("app") == self.place.name]

    async def check_is_as_before(self, before: tuple[dict[str, int], set[str], Object]) -> None:
        async def is_managed() -> bool:
            return labels_of(await self.member.get(self.place)).get(stamps.MANAGED) == "true"

        await until(is_managed)
        await until(self.is_settled)
        assert await self.running() == before
        after = await self.member.get(self.place)
        assert annotations_of(after)[NOTE] == "yesterday"
        assert find_at(after, "spec", "replicas") == SCALED
        containers = find_at(after, "spec", "template", "spec", "containers") or []
        assert {name_of({"metadata": each}) for each in containers} == {"main", SIDECAR["name"]}


def _annotated(held: Object) -> Object:
    return with_metadata(held, annotations={**annotations_of(held), NOTE: "yesterday"})


def _is_seen(workload: Object) -> bool:
    return find_at(workload, "status", "observedGeneration") == workload["metadata"]["generation"]


def _restarts(pod: Object) -> int:
    statuses = find_at(pod, "status", "containerStatuses") or []
    return sum(each.get("restartCount", 0) for each in statuses)


def overwriting_policy(name: str, cluster: str) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
            "placement": {"clusterAffinity": {"clusterNames": [cluster]}},
            "conflictResolution": "Overwrite",
        },
    }


async def until_applied(stage: Stage, name: str) -> None:
    place = ResourcePath(RESOURCE_BINDINGS, "default", f"{name}-deployment")

    async def is_applied() -> bool:
        binding = await stage.hub.find(place) or {}
        return is_true(find_at(binding, "status", "conditions"), "FullyApplied")

    await until_equal(is_applied, True)


@pytest.mark.parametrize("member", MEMBERS, ids=["push", "pull"])
async def test_an_overwriting_policy_restarts_nothing(stage: Stage, member: str) -> None:
    name = f"policy-{member}"
    legacy = Legacy(stage.client_of(member), name)
    await legacy.grow_old()
    before = await legacy.running()

    await kubectl_apply(stage.hub, overwriting_policy(name, member))
    await kubectl_apply(stage.hub, deployment(name, replicas=WRITTEN))
    await until_applied(stage, name)

    await legacy.check_is_as_before(before)


@pytest.mark.parametrize("member", MEMBERS, ids=["push", "pull"])
async def test_a_promotion_restarts_nothing(stage: Stage, member: str) -> None:
    name = f"promote-{member}"
    legacy = Legacy(stage.client_of(member), name)
    await legacy.grow_old()
    before = await legacy.running()
    settings = stage.members[member].settings
    request = PromoteRequest("deployment", name, "default", member, settings)

    prospect = await look(request, stage.fleet.hub.settings)
    assert not prospect.effect.on_pods
    await promote(request, prospect, stage.fleet.hub.settings, stage.fleet.messages.append)
    await until_applied(stage, name)

    await legacy.check_is_as_before(before)


SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
PRIORITY_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")
POLICIES = GroupVersionResource("policy.karmada.io", "v1alpha1", "propagationpolicies")


def of_member(name: str) -> Object:
    """Return a pod whose account and class only a member has."""
    made = pod(name)
    spec = {**made["spec"], "serviceAccountName": "robot", "priorityClassName": "gold"}
    return {**made, "spec": spec}


async def prepare_account_and_class(member: ClusterClient) -> None:
    account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    gold: Object = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "gold"},
        "value": 1000,
    }
    for place, wanted in (
        (ResourcePath(SERVICE_ACCOUNTS, "default", "robot"), account),
        (ResourcePath(PRIORITY_CLASSES, "", "gold"), gold),
    ):
        if await member.find(place) is None:
            await member.create(place.collection, wanted)


async def until_managed(member: ClusterClient, place: ResourcePath) -> Object:
    async def managed() -> Object | None:
        found = await member.find(place)
        is_managed = found is not None and labels_of(found).get(stamps.MANAGED) == "true"
        return found if is_managed else None

    return await until(managed)


@pytest.mark.parametrize("member", MEMBERS, ids=["push", "pull"])
async def test_a_pod_whose_account_only_the_member_has_is_promoted_as_it_runs(
    stage: Stage, member: str
) -> None:
    name, client = f"lone-{member}", stage.client_of(member)
    await prepare_account_and_class(client)
    place = ResourcePath(PODS, "default", name)

    async def created() -> Object | None:
        # A real cluster's priorities are looked up in a cache that may not have the class yet.
        return await client.create(place.collection, of_member(name))

    await until(created)
    if await client.list_objects(ResourcePath(NODES)):

        async def is_running() -> bool:
            return find_at(await client.get(place), "status", "phase") == "Running"

        await until(is_running)
    before = await client.get(place)
    request = PromoteRequest("pod", name, "default", member, stage.members[member].settings)

    prospect = await look(request, stage.fleet.hub.settings)
    await promote(request, prospect, stage.fleet.hub.settings, stage.fleet.messages.append)
    after = await until_managed(client, place)

    assert uid_of(after) == uid_of(before)
    assert _restarts(after) == _restarts(before)
    assert {**after["spec"], "nodeName": ""} == {**before["spec"], "nodeName": ""}


@pytest.mark.parametrize("member", MEMBERS, ids=["push", "pull"])
async def test_a_pod_that_is_placed_has_the_token_and_the_priority_of_its_member(
    stage: Stage, member: str
) -> None:
    name, client = f"placed-{member}", stage.client_of(member)
    await prepare_account_and_class(client)
    policy = overwriting_policy(name, member)
    selector = {"apiVersion": "v1", "kind": "Pod", "name": name}
    policy = with_value(policy, [selector], "spec", "resourceSelectors")
    place = ResourcePath(PODS, "default", name)

    await kubectl_apply(stage.hub, policy)
    wanted = with_value(of_member(name), "default", "spec", "serviceAccountName")
    template = await stage.hub.create(place.collection, wanted)
    placed = await until_managed(client, place)

    mounted = [each["name"] for each in find_at(template, "spec", "volumes") or []]
    # A kube-apiserver that is the hub mounts none either: it runs without the plug-in.
    assert len(mounted) == (0 if stage.hub_kind == KUBERNETES else 1)
    assert all(each.startswith("kube-api-access-") for each in mounted)
    assert find_at(placed, "spec", "priority") == 1000
    names = {each["name"] for each in find_at(placed, "spec", "volumes") or []}
    # A real cluster here mounts none: it runs without the plug-in.
    assert len(names) <= 1
    assert not names & set(mounted)
