"""What a join leaves on both sides is what Karmada leaves there; differences are written down."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.corpus import load_scenario

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.controller import CORDON
from clusterspace.kube.objects import Object, annotations_of, find_at, labels_of, name_of
from clusterspace.testing.hubs import KUBERNETES, OURS, SEVERAL
from clusterspace.testing.stage import Fleet, Side, running_fleet
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "member1"


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        OURS,
        pytest.param(KUBERNETES, marks=pytest.mark.slow),
        pytest.param(SEVERAL, marks=pytest.mark.slow),
    ],
)
async def joined(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[tuple[Fleet, Side]]:
    """Run the fleet that most tests of this file look at, and change nothing in."""
    async with joined_fleet(tmp_path_factory.mktemp("fleet"), request.param) as found:
        yield found


@asynccontextmanager
async def joined_fleet(directory: Path, hub_kind: str = OURS) -> AsyncGenerator[tuple[Fleet, Side]]:
    async with running_fleet(directory, hub_kind=hub_kind) as fleet, fleet.controllers():
        member = await fleet.add_member(NAME)
        await fleet.join(NAME, member)

        async def is_ready() -> bool:
            is_well = await fleet.ready(NAME) == ("True", "ClusterReady")
            return is_well and not await fleet.taints(NAME)

        await until(is_ready)
        yield fleet, member


def recorded(see: str) -> list[Object]:
    """Return the objects Karmada left, of the first cluster only."""
    steps = load_scenario("karmada", "push_join")["steps"]
    found = next(step["objects"] for step in steps if str(step.get("see", "")).startswith(see))
    return [each for each in found["items"] if "member2" not in name_of(each)]


def by_name(objects: list[Object], kind: str) -> dict[str, Object]:
    return {name_of(each): each for each in objects if each.get("kind") == kind}


async def test_the_hub_holds_the_same_secrets(joined: tuple[Fleet, Side]) -> None:
    fleet, _ = joined
    for name, theirs in by_name(recorded("hub: secrets"), "Secret").items():
        ours = await fleet.hub.client.get(manifests.secret_path(name))
        assert ours["type"] == theirs["type"]
        assert labels_of(ours) == labels_of(theirs)
        assert set(ours["data"]) == set(theirs["data"])
        assert _owners(ours) == _owners(theirs)


async def test_the_hub_holds_the_same_execution_namespace(joined: tuple[Fleet, Side]) -> None:
    fleet, _ = joined
    theirs = by_name(recorded("hub: ns"), "Namespace")[f"karmada-es-{NAME}"]

    ours = await fleet.hub.client.get(manifests.namespace_path(name_of(theirs)))

    assert labels_of(ours) == labels_of(theirs)
    assert ours["spec"] == theirs["spec"]


async def test_the_hub_holds_the_same_cluster(joined: tuple[Fleet, Side]) -> None:
    fleet, _ = joined
    theirs = by_name(recorded("hub: clusters"), "Cluster")[NAME]

    ours = await fleet.cluster(NAME)

    assert ours["metadata"]["finalizers"] == theirs["metadata"]["finalizers"]
    for field in ("secretRef", "impersonatorSecretRef", "syncMode", "resourceModels"):
        assert ours["spec"][field] == theirs["spec"][field]
    # Ours was verified by its authority, theirs was recorded with a server that had none.
    assert set(ours["spec"]) == set(theirs["spec"]) - {"insecureSkipTLSVerification"}
    assert _told(ours) == _told(theirs)
    assert set(theirs["status"]) <= set(ours["status"]) | {"nodeSummary"}


async def test_the_member_holds_the_same_accounts_and_token_secrets(
    joined: tuple[Fleet, Side],
) -> None:
    _, member = joined
    # `default` is the member's own, as in every namespace.
    theirs = [each for each in recorded("member1: sa,secrets") if name_of(each) != "default"]
    for name, account in by_name(theirs, "ServiceAccount").items():
        ours = await member.client.get(manifests.account_path(name))
        assert labels_of(ours) == labels_of(account)
    for name, secret in by_name(theirs, "Secret").items():
        ours = await member.client.get(manifests.secret_path(name))
        assert ours["type"] == secret["type"]
        assert set(ours["data"]) == set(secret["data"])
        assert set(annotations_of(ours)) == set(annotations_of(secret))


async def test_the_member_gives_the_same_rights(joined: tuple[Fleet, Side]) -> None:
    _, member = joined
    theirs = recorded("member1: clusterroles,clusterrolebindings")
    role, binding = manifests.role_name(NAME), manifests.role_name(NAME)

    ours = await member.client.get(manifests.role_path(role))
    assert ours["rules"] == by_name(theirs, "ClusterRole")[role]["rules"]
    assert labels_of(ours) == labels_of(by_name(theirs, "ClusterRole")[role])

    for name in (binding, manifests.IMPERSONATOR):
        ours = await member.client.get(manifests.role_binding_path(name))
        expected = by_name(theirs, "ClusterRoleBinding")[name]
        assert ours["roleRef"] == expected["roleRef"]
        assert ours["subjects"] == expected["subjects"]


async def test_leaving_takes_the_same_from_the_hub(tmp_path: Path) -> None:
    steps = load_scenario("karmada", "unjoin")["steps"]
    after = [step["objects"]["items"] for step in steps if step.get("see") == "hub: ns"][-1]
    theirs = {name_of(each) for each in after}
    assert "karmada-cluster" in theirs
    assert "karmada-es-member2" not in theirs

    async with joined_fleet(tmp_path) as (fleet, _):
        await fleet.unjoin(NAME)

        ours = await fleet.hub.names_of(ResourcePath(manifests.NAMESPACES))
        assert {each for each in ours if each.startswith("karmada-")} == {"karmada-cluster"}
        assert await fleet.hub.names_of(manifests.cluster_path("")) == set()
        assert await fleet.hub.names_of(ResourcePath(manifests.SECRETS, "karmada-cluster")) == set()


async def test_a_cordon_leaves_the_same_taint() -> None:
    steps = load_scenario("karmada", "taints_and_cordon")["steps"]
    clusters = [step["objects"] for step in steps if _is_cluster(step.get("objects"))]

    assert find_at(clusters[0], "spec", "taints") == [CORDON.to_object()]


def _is_cluster(held: Any) -> bool:
    return isinstance(held, dict) and held.get("kind") == "Cluster"


def _owners(kube_object: Object) -> list[Object]:
    owners = kube_object["metadata"]["ownerReferences"]
    return [{key: value for key, value in each.items() if key != "uid"} for each in owners]


def _told(cluster: Object) -> list[tuple[str, ...]]:
    keys = ("type", "status", "reason", "message")
    return [tuple(each[key] for key in keys) for each in cluster["status"]["conditions"]]
