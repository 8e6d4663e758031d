"""Who may patch an object wants what a patch does not give: a member's rights."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.attacks.tenant_fleet import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, RBAC
from tests.flows.invited_members import member_cluster
from tests.flows.stages import edit

from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.client.places import Place
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import Forbidden
from clusterspace.kube.objects import Object, with_metadata, with_value
from clusterspace.testing.hubs import client_for_test, hub_for_test

MALLORY = "mallory"
ITSELF = {"kind": "User", "name": MALLORY, "apiGroup": RBAC}
EDITS = ("get", "list", "create", "update", "patch")
WEST = Place(MEMBER_CLUSTERS, name="west")


@dataclass
class Hub:
    """A hub seen by its administrator, and the way in for others."""

    admin: ClusterClient
    settings: ConnectionSettings

    @asynccontextmanager
    async def seen_by(self, *rules: Object) -> AsyncGenerator[ClusterClient]:
        """Reach it as the attacker, who has just these rights."""
        made: Object = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": MALLORY}}
        role = {**made, "kind": "ClusterRole", "rules": list(rules)}
        await self.admin.create(Place(CLUSTER_ROLES), role)
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": MALLORY}
        binding = {**made, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": [ITSELF]}
        await self.admin.create(Place(CLUSTER_ROLE_BINDINGS), binding)
        own = self.settings.identity
        identity = replace(own, impersonation=replace(own.impersonation, user=MALLORY))
        async with client_for_test(replace(self.settings, identity=identity)) as client:
            yield client


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncGenerator[Hub]:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as admin:
        yield Hub(admin, settings)


def rule(group: str, *resources: str, verbs: tuple[str, ...] = EDITS) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


# A member's rights, by its identity


async def test_who_may_write_member_clusters_does_not_become_their_agent(hub: Hub) -> None:
    await hub.admin.create(WEST.collection, member_cluster())
    async with hub.seen_by(rule(MEMBER_CLUSTERS.group, "memberclusters")) as attacker:
        with pytest.raises(Forbidden) as refused:
            await edit(attacker, WEST, lambda held: with_value(held, ITSELF, "spec", "identity"))
        with pytest.raises(Forbidden, match="memberclusters/credentials"):
            await attacker.create(WEST.collection, member_cluster("mine", identity=ITSELF))
        labelled = await edit(attacker, WEST, lambda held: with_metadata(held, labels={"a": "b"}))

    assert 'cannot update resource "memberclusters/credentials"' in refused.value.message
    assert "spec.identity says who is given the member's rights" in refused.value.message
    assert labelled["spec"]["identity"] == member_cluster()["spec"]["identity"]


async def test_the_right_to_say_who_the_agent_is_can_be_given(hub: Hub) -> None:
    rights = rule(MEMBER_CLUSTERS.group, "memberclusters", "memberclusters/credentials")
    async with hub.seen_by(rights) as operator:
        made = await operator.create(WEST.collection, member_cluster())
        changed = await edit(
            operator, WEST, lambda held: with_value(held, ITSELF, "spec", "identity")
        )

    assert made["spec"] != changed["spec"]
