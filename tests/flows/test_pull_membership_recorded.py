"""What a Pull cluster leaves on both sides is what Karmada's leaves; differences are written down.

The recorded agent ran beside its member and was killed at the end. The page on compatibility with
Karmada gives the reason for each difference named here.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.corpus import load_scenario

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.testing.hubs import KUBERNETES, OURS, SEVERAL
from clusterspace.testing.stage import (
    SOON_UNKNOWN,
    Fleet,
    Side,
    register,
    running_agent,
    running_fleet,
    until_ready,
)
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "member3"
ONLY_THEIRS_IN_SPEC = {"secretRef", "impersonatorSecretRef", "insecureSkipTLSVerification"}
"""The hub holds no way into a Pull cluster; theirs was recorded without an authority to check."""


@dataclass
class Registered:
    """A Pull cluster as it was while its agent ran, and as it is now that the agent is dead."""

    fleet: Fleet
    member: Side
    while_ready: Object


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        OURS,
        pytest.param(KUBERNETES, marks=pytest.mark.slow),
        pytest.param(SEVERAL, marks=pytest.mark.slow),
    ],
)
async def registered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Registered]:
    """Run the fleet that all tests of this file look at; none of them changes anything."""
    directory = tmp_path_factory.mktemp("fleet")
    hub = running_fleet(directory, hub_kind=request.param)
    async with hub as fleet, fleet.controllers(monitor=SOON_UNKNOWN):
        member = await fleet.add_member(NAME)
        await register(fleet, NAME, member)

        async def is_settled() -> bool:
            is_ready = await fleet.ready(NAME) == ("True", "ClusterReady")
            return is_ready and not await fleet.taints(NAME)

        async with running_agent(member):
            await until(is_settled)
            while_ready = await fleet.cluster(NAME)
        await until_ready(fleet, NAME, "Unknown")
        yield Registered(fleet, member, while_ready)


def seen(what: str, *, last: bool = False) -> Any:
    """Return what was seen on one side, the first or the last time."""
    steps = load_scenario("karmada", "pull_join")["steps"]
    found = [step["objects"] for step in steps if step.get("see") == what]
    return found[-1 if last else 0]


def items(what: str) -> dict[str, Object]:
    """Return what was seen of this cluster, and what all clusters have, by name."""
    return {name_of(each): each for each in seen(what)["items"]}


async def test_a_pull_cluster_is_the_same_while_its_agent_runs(registered: Registered) -> None:
    theirs, ours = seen(f"hub: clusters {NAME}"), registered.while_ready

    assert ours["metadata"]["finalizers"] == theirs["metadata"]["finalizers"]
    assert labels_of(ours) == labels_of(theirs)
    assert set(ours["spec"]) == set(theirs["spec"]) - ONLY_THEIRS_IN_SPEC
    for field in ("syncMode", "resourceModels"):
        assert ours["spec"][field] == theirs["spec"][field]
    assert _told(ours) == _told(theirs)


async def test_a_pull_cluster_is_the_same_after_its_agent_was_killed(
    registered: Registered,
) -> None:
    theirs = seen(f"hub: clusters {NAME}", last=True)

    async def is_tainted() -> bool:
        return bool(await registered.fleet.taints(NAME))

    await until(is_tainted)
    ours = await registered.fleet.cluster(NAME)

    assert _told(ours) == _told(theirs)
    assert _taints(ours) == _taints(theirs)
    # What was known of the member stays known.
    assert find_at(ours, "status", "kubernetesVersion")
    assert find_at(theirs, "status", "kubernetesVersion")


async def test_the_lease_is_the_same(registered: Registered) -> None:
    theirs = items("hub: leases -A")[NAME]

    ours = await registered.fleet.hub.client.get(manifests.lease_path(NAME))

    assert _without(ours["spec"], "renewTime") == _without(theirs["spec"], "renewTime")
    assert _owners(ours) == _owners(theirs)
    assert labels_of(ours) == labels_of(theirs)


async def test_the_hub_holds_no_credentials_of_a_pull_cluster(registered: Registered) -> None:
    theirs = {name for name in items("hub: secrets -A") if name.startswith(NAME)}

    ours = await registered.fleet.hub.names_of(ResourcePath(manifests.SECRETS, "karmada-cluster"))

    assert theirs == {NAME, f"{NAME}-impersonator"}
    assert ours == set()


async def test_the_hub_has_no_account_on_a_pull_cluster(registered: Registered) -> None:
    theirs = items(f"{NAME}: sa,secrets -n karmada-cluster").keys() - {"default"}
    namespaces = items(f"{NAME}: ns")

    assert theirs == {f"karmada-{NAME}", manifests.IMPERSONATOR}
    found = await registered.member.names_of(ResourcePath(manifests.NAMESPACES))
    assert namespaces.keys() - found == {"karmada-cluster"}
    assert found - namespaces.keys() == set()


async def test_the_agents_namespace_says_who_made_it(registered: Registered) -> None:
    theirs = labels_of(items(f"{NAME}: ns")[manifests.AGENT_NAMESPACE])

    ours = await registered.member.client.get(manifests.AGENT_NAMESPACE_PLACE)

    # Karmada's register makes it without the label by which its other namespaces are known.
    assert labels_of(ours).items() - theirs.items() == {("karmada.io/system", "true")}


async def test_the_hub_places_nothing_by_itself(registered: Registered) -> None:
    theirs = items(f"hub: works -n karmada-es-{NAME}")

    assert any(name.startswith(manifests.IMPERSONATOR) for name in theirs)
    assert await registered.fleet.hub.names_of(manifests.works_path(NAME)) == set()


def _told(cluster: Object) -> list[tuple[str, ...]]:
    keys = ("type", "status", "reason", "message")
    return [tuple(each[key] for key in keys) for each in cluster["status"]["conditions"]]


def _taints(cluster: Object) -> list[tuple[str, str, bool]]:
    taints = find_at(cluster, "spec", "taints") or []
    return [(each["key"], each["effect"], "timeAdded" in each) for each in taints]


def _owners(kube_object: Object) -> list[Object]:
    return [_without(each, "uid") for each in kube_object["metadata"]["ownerReferences"]]


def _without(held: Object, key: str) -> Object:
    return {each: value for each, value in held.items() if each != key}
