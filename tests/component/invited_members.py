"""Members that MemberClusters invite, and their agents, as tests use them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.component.execution_site import SPACE, work_of

from clusterspace.aio.clocks import SystemClock
from clusterspace.aio.tasks import Supervisor
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.member_clusters import INTERNAL_MEMBER_CLUSTERS, MEMBER_CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import AlreadyExists, Conflict
from clusterspace.fleet.membership.manifests import (
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    cluster_path,
    namespace_path,
)
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.fleet.membership.member_clusters.controller import MemberClusterSettings
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, uid_of
from clusterspace.roots.settings import Invitation
from clusterspace.testing.stage import Fleet, Side, running_agent
from clusterspace.testing.steps import until

ACCOUNTS = "fleet-system"


def member_cluster(
    name: str = "west", *, identity: Object | None = None, period: int = 1, **metadata: Any
) -> Object:
    """Return a MemberCluster whose identity is a service account of its own."""
    account = {"kind": "ServiceAccount", "name": f"agent-{name}", "namespace": ACCOUNTS}
    return {
        "apiVersion": MEMBER_CLUSTERS.api_version,
        "kind": "MemberCluster",
        "metadata": {"name": name, **metadata},
        "spec": {"identity": identity or account, "heartbeatPeriodSeconds": period},
    }


@dataclass
class Invited:
    """A fleet that members join by MemberCluster."""

    fleet: Fleet
    members: dict[str, Side] = field(default_factory=dict[str, Side])
    """Those whose agent runs or ran, by name."""

    @property
    def hub(self) -> ClusterClient:
        return self.fleet.hub.client

    async def invite(self, name: str = "west", **options: Any) -> Object:
        return await self.hub.create(ResourcePath(MEMBER_CLUSTERS), member_cluster(name, **options))

    async def get(self, name: str = "west") -> Object:
        return await self.hub.get(manifests.member_cluster_path(name))

    async def find(self, name: str = "west") -> Object | None:
        return await self.hub.find(manifests.member_cluster_path(name))

    async def internal(self, name: str = "west") -> Object:
        return await self.hub.get(manifests.internal_path(name))

    async def condition(self, condition_type: str, name: str = "west") -> tuple[str, str]:
        """Return status and reason of a condition, both empty while it is not there."""
        found = await self.find(name) or {}
        held = find_condition(find_at(found, "status", "conditions"), condition_type) or {}
        return str(held.get("status", "")), str(held.get("reason", ""))

    async def until_condition(self, condition_type: str, status: str, name: str = "west") -> None:
        async def holds() -> bool:
            return (await self.condition(condition_type, name))[0] == status

        await until(holds)

    async def until_joined(self, name: str = "west") -> None:
        """Wait until a member is in and its Cluster can be used."""
        await self.until_condition("Joined", "True", name)

        async def is_usable() -> bool:
            cluster = await self.hub.find(cluster_path(name)) or {}
            ready = find_condition(find_at(cluster, "status", "conditions"), "Ready") or {}
            role = manifests.role_path(name, execution_namespace(name))
            return ready.get("status") == "True" and await self.hub.find(role) is not None

        await until(is_usable)

    async def change(self, edit: Callable[[Object], Object], name: str = "west") -> None:
        await edit_at(self.hub, manifests.member_cluster_path(name), edit)

    async def change_cluster(self, edit: Callable[[Object], Object], name: str = "west") -> None:
        await edit_at(self.hub, cluster_path(name), edit)

    async def let_go(self, name: str = "west") -> None:
        """Delete the MemberCluster."""
        present = await self.get(name)
        await self.hub.delete(manifests.member_cluster_path(name), DeleteOptions(uid_of(present)))

    async def until_gone(self, name: str = "west") -> None:
        async def is_gone() -> bool:
            return await self.find(name) is None

        await until(is_gone)

    async def order(self, work: Object, name: str = "west") -> None:
        await self.hub.create(ResourcePath(WORKS, execution_namespace(name)), work)

    async def until_placed(self, *config_maps: str, name: str = "west") -> None:
        async def are_there() -> bool:
            return set(config_maps) <= await placed(self, name)

        await until(are_there)

    async def internals(self) -> list[Object]:
        return await self.hub.list_objects(ResourcePath(INTERNAL_MEMBER_CLUSTERS))

    async def event_reasons(self, about: str = "MemberCluster") -> set[str]:
        listed = await self.hub.list_objects(ResourcePath(EVENTS, "default"))
        return {str(e["reason"]) for e in listed if e["involvedObject"]["kind"] == about}

    async def identity_settings(self, name: str = "west") -> ConnectionSettings:
        """Return how the agent of a member reaches the hub: by its service account's token."""
        await self._ensure(namespace_path(ACCOUNTS), "Namespace")
        account = ResourcePath(SERVICE_ACCOUNTS, ACCOUNTS, f"agent-{name}")
        await self._ensure(account, "ServiceAccount")
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await self.hub.create(account.with_subresource("token"), wanted)
        token = str(find_at(answer, "status", "token"))
        return replace(self.fleet.hub.settings, identity=AuthInfo(token=token))

    async def _ensure(self, place: ResourcePath, kind: str) -> None:
        metadata = {"name": place.name, "namespace": place.namespace}
        try:
            await self.hub.create(
                place.collection, {"apiVersion": "v1", "kind": kind, "metadata": metadata}
            )
        except AlreadyExists:
            return

    @asynccontextmanager
    async def controllers(self, **settings: Any) -> AsyncGenerator[None]:
        """Run the controllers of the hub, those of MemberClusters among them."""
        invited = MemberClusterSettings(**{"requeue_seconds": 0.1, **settings})
        async with self.fleet.controllers(member_clusters=invited):
            yield

    @asynccontextmanager
    async def agent(self, member: Side, name: str = "west") -> AsyncGenerator[asyncio.Task[None]]:
        """Run the agent of a member, faster than the product does."""
        self.members[name] = member
        invitation = Invitation(name, await self.identity_settings(name))
        async with running_agent(member, invitation) as task:
            yield task


async def edit_at(
    hub: ClusterClient, place: ResourcePath, edit: Callable[[Object], Object]
) -> None:
    """Edit an object that others write too, as people do who try again."""
    while True:
        before = await hub.get(place)
        try:
            await commit(hub, place, before, edit(before))
        except Conflict:
            continue
        return


async def placed(invited: Invited, name: str) -> set[str]:
    """Return the ConfigMaps in the default namespace of a member, without the one all have."""
    member = invited.members[name]
    return await member.names_of(ResourcePath(CONFIG_MAPS, "default")) - {"kube-root-ca.crt"}


def work_for(cluster: str, *config_maps: str) -> Object:
    """Return a Work that places ConfigMaps on a cluster."""
    manifests = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": each, "namespace": "default"},
        }
        for each in config_maps
    ]
    # The builder is for one cluster, whose name is nowhere in it but in the namespace.
    text = json.dumps(work_of(*manifests)).replace(SPACE, execution_namespace(cluster))
    return json.loads(text)


@asynccontextmanager
async def running(tasks: Mapping[str, Any]) -> AsyncGenerator[None]:
    """Run tasks for as long as the block lasts."""

    def report(failure: Exception) -> None:
        raise failure

    async with Supervisor(SystemClock(), report) as supervisor:
        for name, work in tasks.items():
            supervisor.keep(name, work)
        yield
