"""Whatever hub and members say about what they hold, nothing is deleted because of it.

The controllers are lied to while they run, and when they start anew. What is placed stays placed;
when the lies end, work goes on.
"""

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from _pytest.mark.structures import ParameterSet
from tests.flows.faulty_stages import (
    LIES,
    STALE,
    FaultyStage,
    Listed,
    faulty_stage,
    lists_of,
    tell_lies,
    until_members_are_ready,
)
from tests.flows.stages import MEMBERS, edit, kubectl_apply

from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.controller import Request
from clusterspace.fleet.execution.prune import Pruner
from clusterspace.fleet.propagation.works.controller import BindingWorks
from clusterspace.kube.objects import Object, name_of, uid_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    config_map,
    namespace,
)
from clusterspace.testing.faults import Rule
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMES = ("one", "two", "three")
SPACE = "shop"
ON_HUB = (
    CLUSTERS,
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_PROPAGATION_POLICIES,
    CLUSTER_RESOURCE_BINDINGS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
    RESOURCE_BINDINGS,
    WORKS,
)
ON_MEMBERS = (CONFIG_MAPS, NAMESPACES)
HUB = ("hub",)
POLICY = ResourcePath(PROPAGATION_POLICIES, SPACE, "all")


def policy(*clusters: str) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "all", "namespace": SPACE},
        "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "placement": {"clusterAffinity": {"clusterNames": list(clusters)}},
        },
    }


@dataclass
class Deployed:
    """Three objects on both members, and what everybody said before they were there."""

    stage: FaultyStage
    controllers: AsyncExitStack
    earlier: dict[str, Listed]
    placed: dict[str, dict[str, str]]

    async def start_anew(self) -> None:
        """Stop the controllers and start others, which know nothing yet."""
        await self.controllers.aclose()
        await self.controllers.enter_async_context(self.stage.controllers())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployed]:
    async with faulty_stage(tmp_path_factory.mktemp("stage")) as stage:
        earlier = {
            side: await lists_of(stage.client_of(side), ON_HUB if side == "hub" else ON_MEMBERS)
            for side in ("hub", *MEMBERS)
        }
        async with AsyncExitStack() as controllers:
            await controllers.enter_async_context(stage.controllers())
            await until_members_are_ready(stage)
            placed = await deploy(stage)
            yield Deployed(stage, controllers, earlier, placed)


async def held_by(stage: FaultyStage, member: str) -> dict[str, str]:
    """Return the UIDs of what a member holds of ours."""
    listed = await stage.client_of(member).list_objects(ResourcePath(CONFIG_MAPS, SPACE))
    return {name_of(each): uid_of(each) for each in listed if name_of(each) in NAMES}


async def deploy(stage: FaultyStage, *members: str) -> dict[str, dict[str, str]]:
    """Put three objects on members, on both unless told; return their UIDs."""
    await stage.hub.create(ResourcePath(NAMESPACES), namespace(SPACE))
    for name in NAMES:
        await kubectl_apply(stage.hub, config_map(name, {"a": "1"}, namespace=SPACE))
    await kubectl_apply(stage.hub, policy(*(members or MEMBERS)))
    await until_placed(stage, *(members or MEMBERS))
    return {member: await held_by(stage, member) for member in MEMBERS}


async def until_placed(stage: FaultyStage, *members: str) -> None:
    for member in members:

        async def names(member: str = member) -> set[str]:
            return set(await held_by(stage, member))

        await until_equal(names, set(NAMES))
    await until_equal(lambda: are_told_of(stage), True)


async def are_told_of(stage: FaultyStage) -> bool:
    bindings = await stage.hub.list_objects(ResourcePath(RESOURCE_BINDINGS, SPACE))
    told = [each.get("status", {}).get("conditions", []) for each in bindings]
    return len(told) == len(NAMES) and all(len(each) > 1 for each in told)


async def change(stage: FaultyStage, name: str) -> None:
    """Change a template, and wait until both members have it."""
    place = ResourcePath(CONFIG_MAPS, SPACE, name)
    said = {"a": str(uuid.uuid4())}
    await edit(stage.hub, place, lambda held: {**held, "data": said})
    for member in MEMBERS:

        async def data(member: str = member) -> Object:
            return (await stage.client_of(member).get(place))["data"]

        await until_equal(data, said)


async def read_from_memory(_self: BindingWorks, _request: Request, binding: Object) -> Object:
    """Stand in for the live read of a binding: what is remembered has to do."""
    return binding


async def test_an_old_answer_moves_nothing_because_the_binding_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first of the file: the controllers of the fleet that the others share go on running, and
    # would be waited for here.
    async with faulty_stage(tmp_path) as stage:
        async with stage.controllers():
            await until_members_are_ready(stage)
            await deploy(stage, "member1")
            earlier = await lists_of(stage.hub, [RESOURCE_BINDINGS])
            await edit(stage.hub, POLICY, lambda held: {**held, "spec": policy(*MEMBERS)["spec"]})
            await until_placed(stage, *MEMBERS)
        tell_lies(stage.hub_proxy, STALE, earlier)
        async with stage.controllers():
            await until_asked(stage, RESOURCE_BINDINGS)

        assert stage.deletions == []

        monkeypatch.setattr(BindingWorks, "_read_live", read_from_memory)
        async with stage.controllers():
            await until_lost(stage, "member2")

        assert stage.deletions


def told_by(sides: tuple[str, ...], lie: str) -> ParameterSet:
    """Return a case; what components are tested with already is left to the slow suite here."""
    is_slow = sides == MEMBERS and lie not in ("empty", STALE)
    name = f"{'hub' if sides == HUB else 'members'}-{lie}"
    return pytest.param(sides, lie, id=name, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(
    ("sides", "lie"), [told_by(sides, lie) for sides in (HUB, MEMBERS) for lie in LIES]
)
async def test_lies_delete_nothing(deployed: Deployed, sides: tuple[str, ...], lie: str) -> None:
    stage = deployed.stage
    lies = [(stage.proxy_of(side), deployed.earlier[side]) for side in sides]
    if sides == MEMBERS:
        # Each lie of a member meets controllers that were not lied to before: a stale list was not
        # asked for within the time of this test by those that were.
        await deployed.start_anew()
    await change(stage, "one")
    told = [rule for proxy, lists in lies for rule in tell_lies(proxy, lie, lists)]
    await until_believed(told, sides)
    # Others are lied to from the beginning.
    await deployed.start_anew()
    await until_believed(told, sides)
    stage.heal()
    await change(stage, "two")

    assert stage.deletions == []
    assert {member: await held_by(stage, member) for member in MEMBERS} == deployed.placed


async def until_believed(lies: list[Rule], sides: tuple[str, ...]) -> None:
    """Wait until every lie was told, and for all that comes of it."""
    before = [rule.hits for rule in lies]

    async def are_told() -> bool:
        return all(rule.hits > hits for rule, hits in zip(lies, before, strict=True))

    await until(are_told)
    await settled(lied_to_by=sides)


async def work_from_memory(_self: Pruner, work: Object) -> Object:
    """Stand in for the live read of a Work."""
    return work


@pytest.mark.parametrize("looks", [True, False])
async def test_an_old_order_deletes_nothing(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, *, looks: bool
) -> None:
    """The hub tells of Works as they were once, on their way out; others took their place.

    Where nobody looks, the decision cannot be written down: it names a Work that is gone.
    """
    if not looks:
        monkeypatch.setattr(Pruner, "_read_live", work_from_memory)
    stage = deployed.stage
    tell_lies(stage.hub_proxy, STALE, {WORKS: on_their_way_out(await works_in(stage))})
    await deployed.start_anew()
    await until_asked(stage, WORKS, "GET" if looks else "PATCH")
    stage.heal()

    assert stage.deletions == []
    assert {member: await held_by(stage, member) for member in MEMBERS} == deployed.placed


async def until_asked(
    stage: FaultyStage, resource: GroupVersionResource, verb: str = "GET"
) -> None:
    """Wait until the controllers have asked about objects one by one, and what comes of it."""
    before = len(stage.hub_proxy.requests)

    async def is_asked() -> bool:
        asked = [each.split("?")[0] for each in stage.hub_proxy.requests[before:]]
        alone = {
            each for each in asked if each.startswith(verb) and f"/{resource.resource}/" in each
        }
        return len(alone) >= len(NAMES)

    await until(is_asked)
    await settled(lied_to_by=HUB)


async def until_lost(stage: FaultyStage, member: str) -> None:
    await until_equal(lambda: held_by(stage, member), {})


async def works_in(stage: FaultyStage) -> bytes:
    return (await lists_of(stage.hub, [WORKS]))[WORKS]


def on_their_way_out(listed: bytes) -> bytes:
    works = json.loads(listed)
    for each in works["items"]:
        each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        each["metadata"]["uid"] = str(uuid.uuid4())
    return json.dumps(works).encode()
