"""Templates that are protected from deletion stay, whoever asks and however."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.errors import Forbidden
from clusterspace.kube.objects import is_being_deleted, uid_of, with_metadata
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    config_map,
    deployment,
    namespace,
)
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.stage import running_sim_member
from clusterspace.testing.steps import edit, until

PROTECTED = {"resourcetemplate.karmada.io/deletion-protected": "Always"}
SAYS = "This resource is protected, please make sure to remove the label"
SHOP = ResourcePath(NAMESPACES, name="shop")
WEB = ResourcePath(DEPLOYMENTS, "shop", "web")


@pytest_asyncio.fixture
async def hub(tmp_path: Path) -> AsyncIterator[ClusterClient]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as client:
        await client.create(ResourcePath(NAMESPACES), namespace("shop"))
        await client.create(WEB.collection, deployment("web", namespace="shop"))
        yield client


async def delete(client: ClusterClient, place: ResourcePath) -> None:
    await client.delete(place, DeleteOptions(uid_of(await client.get(place))))


async def label(client: ClusterClient, place: ResourcePath, *, is_protected: bool) -> None:
    labels = PROTECTED if is_protected else {}
    await edit(client, place, lambda stored: with_metadata(stored, labels=labels))


async def is_gone(client: ClusterClient, place: ResourcePath) -> bool:
    return await client.find(place) is None


@pytest.mark.parametrize("place", [WEB, SHOP], ids=["deployment", "namespace"])
async def test_delete_the_protected_deployment_or_namespace(
    hub: ClusterClient, place: ResourcePath
) -> None:
    await label(hub, place, is_protected=True)
    with pytest.raises(Forbidden, match=SAYS):
        await delete(hub, place)
    assert not is_being_deleted(await hub.get(place))

    await label(hub, place, is_protected=False)
    await delete(hub, place)
    await until(lambda: is_gone(hub, place))


async def test_delete_the_no_protected_namespace_the_deployment_is_protected(
    hub: ClusterClient,
) -> None:
    await hub.create(ResourcePath(CONFIG_MAPS, "shop"), config_map("other", namespace="shop"))
    await label(hub, WEB, is_protected=True)
    await delete(hub, SHOP)
    await until(lambda: is_gone(hub, ResourcePath(CONFIG_MAPS, "shop", "other")))
    assert is_being_deleted(await hub.get(SHOP))
    assert not is_being_deleted(await hub.get(WEB))

    await label(hub, WEB, is_protected=False)
    await until(lambda: is_gone(hub, SHOP))


async def test_a_copy_on_a_member_goes_when_the_hub_says_so(tmp_path: Path) -> None:
    async with running_sim_member("west", tmp_path / "west") as west:
        place = ResourcePath(CONFIG_MAPS, "default", "web")
        copy = with_metadata(config_map("web"), labels=PROTECTED)
        await west.client.create(place.collection, copy)
        await delete(west.client, place)

        assert await is_gone(west.client, place)
