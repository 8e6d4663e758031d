"""A cluster is one member, under one name: whoever it says it is, and however it comes."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from clusterspace.client.requests import ResourcePath
from clusterspace.errors import CannotJoin
from clusterspace.fleet.membership import manifests, member_access
from clusterspace.fleet.membership.member_access import Creation
from clusterspace.kube.objects import find_at
from clusterspace.testing.stage import Fleet, Side, register, running_fleet

SAID = "cluster-of-west"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with running_fleet(tmp_path) as running:
        yield running


async def say_who(member: Side, cluster_id: str = SAID) -> None:
    """Let a cluster say who it is, by its property."""
    await member.client.create(
        ResourcePath(member_access.PROPERTIES), member_access.property_object(cluster_id)
    )


@pytest.mark.parametrize("creation", Creation)
async def test_a_cluster_that_says_who_it_is_joins_as_that_whatever_the_flag(
    fleet: Fleet, creation: Creation
) -> None:
    west = await fleet.add_member("west")
    await say_who(west)

    await fleet.join("west", west, creation=creation)

    assert find_at(await fleet.cluster("west"), "spec", "id") == SAID
    assert (await member_access.read_identity(west.client)).properties == {"id.k8s.io": SAID}


@pytest.mark.parametrize(
    ("creation", "is_given_a_property"), [(Creation.UNSET, False), (Creation.CREATE, True)]
)
async def test_a_cluster_that_does_not_say_who_it_is_joins_by_its_kube_system(
    fleet: Fleet, creation: Creation, is_given_a_property: bool
) -> None:
    west = await fleet.add_member("west")

    await fleet.join("west", west, creation=creation)

    found = await member_access.read_identity(west.client)
    assert find_at(await fleet.cluster("west"), "spec", "id") == found.kube_system_uid
    expected = {"id.k8s.io": found.kube_system_uid} if is_given_a_property else {}
    assert found.properties == expected


async def test_a_cluster_that_has_to_say_who_it_is_and_does_not_is_refused(fleet: Fleet) -> None:
    west = await fleet.add_member("west")

    with pytest.raises(CannotJoin, match="create one, or join with --create-clusterproperty"):
        await fleet.join("west", west, creation=Creation.REFUSE)

    assert await west.everything_of_ours() == set()
    assert await fleet.hub.everything_of_ours() == set()


@pytest.mark.parametrize("creation", Creation)
async def test_a_clone_is_refused_and_told_what_to_do(fleet: Fleet, creation: Creation) -> None:
    west, clone = await fleet.add_member("west"), await fleet.add_member("clone")
    await say_who(west)
    await say_who(clone)
    await fleet.join("west", west)

    with pytest.raises(CannotJoin, match=r"has joined as west: .* a clone .* of its own"):
        await fleet.join("clone", clone, creation=creation)

    assert await clone.everything_of_ours() == set()


async def test_a_clone_does_not_register_either(fleet: Fleet) -> None:
    west, clone = await fleet.add_member("west"), await fleet.add_member("clone")
    await say_who(west)
    await say_who(clone)
    await register(fleet, "west", west)

    with pytest.raises(CannotJoin, match="cluster west has this ID: it is the same cluster or a"):
        await register(fleet, "clone", clone)

    assert await clone.client.find(manifests.REGISTRATION_PLACE) is None


async def test_the_hub_does_not_register_with_itself(fleet: Fleet) -> None:
    with pytest.raises(CannotJoin, match="it is the hub itself"):
        await register(fleet, "self", fleet.hub)

    assert await fleet.hub.client.find(manifests.REGISTRATION_PLACE) is None
    assert await fleet.hub.everything_of_ours() <= {
        "namespaces/karmada-cluster",
        # It is going away: the hub ends namespaces in its own time.
        "namespaces/karmada-system",
    }
