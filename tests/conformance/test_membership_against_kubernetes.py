"""A real kube-apiserver joins and leaves; one without controllers, which fills no token Secrets."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from clusterspace.client.requests import ResourcePath
from clusterspace.client.settings import Pem, Trust
from clusterspace.errors import CannotJoin
from clusterspace.fleet.membership import manifests, member_access
from clusterspace.fleet.membership.member_access import Creation, PropertyApi
from clusterspace.kube.objects import find_at
from clusterspace.roots.tokens import create_token, list_tokens
from clusterspace.testing.hubs import client_for_test, real_server_for_test
from clusterspace.testing.stage import Fleet, Side, running_fleet
from clusterspace.testing.steps import until


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with running_fleet(tmp_path) as running:
        yield running


@pytest.fixture
async def member(fleet: Fleet, tmp_path: Path) -> AsyncGenerator[Side]:
    directory = tmp_path / "real"
    directory.mkdir()
    async with (
        real_server_for_test(directory, name="west") as real,
        client_for_test(real.settings) as client,
    ):
        yield Side(real.settings, client)


async def test_a_real_cluster_joins_becomes_ready_and_leaves(fleet: Fleet, member: Side) -> None:
    assert (await member_access.read_identity(member.client)).api is PropertyApi.MISSING
    async with fleet.controllers():
        await fleet.join("west", member, creation=Creation.CREATE)
        assert any("fills no token Secrets; its token ends" in each for each in fleet.messages)

        async def is_ready() -> bool:
            return await fleet.ready("west") == ("True", "ClusterReady")

        await until(is_ready)
        cluster = await fleet.cluster("west")
        own = await member_access.read_identity(member.client)
        assert find_at(cluster, "spec", "id") == own.properties["id.k8s.io"] == own.kube_system_uid
        enabled = {each["groupVersion"] for each in find_at(cluster, "status", "apiEnablements")}
        assert {"v1", "apps/v1", "about.k8s.io/v1beta1"} <= enabled

        await fleet.unjoin("west", member=member.settings)

    # Nobody runs there who ends namespaces, so it stays, ending; all else is gone.
    assert (
        await member.names_of(ResourcePath(manifests.SERVICE_ACCOUNTS, "karmada-cluster")) == set()
    )
    roles = await member.names_of(ResourcePath(manifests.CLUSTER_ROLES))
    assert not [each for each in roles if each.startswith("karmada-")]
    assert (await member_access.read_identity(member.client)).declared == own.kube_system_uid


async def test_a_token_that_no_cluster_could_register_with_is_not_made(
    member: Side, tmp_path: Path
) -> None:
    # A kube-apiserver may be the hub once it was made one, and has the certificate it made itself.
    made = tmp_path / "real" / "certificates" / "apiserver.crt"
    as_hub = replace(member.settings, trust=Trust(Pem(made.read_bytes())))

    with pytest.raises(CannotJoin, match="is no hub yet: run `clusterspace init` first"):
        await create_token("east", as_hub)

    assert await list_tokens(as_hub) == []


async def test_a_cluster_with_an_older_property_api_is_asked_to_upgrade(
    fleet: Fleet, member: Side
) -> None:
    definition = member_access.property_definition()
    older = [
        {**each, "storage": True}
        for each in definition["spec"]["versions"]
        if each["name"] == "v1alpha1"
    ]
    body = {**definition, "spec": {**definition["spec"], "versions": older}}
    await member.client.create(member_access.definition_path().collection, body)

    async def is_older() -> bool:
        return (await member_access.read_identity(member.client)).api is PropertyApi.OLDER

    await until(is_older)

    with pytest.raises(CannotJoin, match="upgrade it to v1beta1"):
        await fleet.join("west", member, creation=Creation.CREATE)

    assert await member.everything_of_ours() == set()
    assert await fleet.hub.everything_of_ours() == set()
