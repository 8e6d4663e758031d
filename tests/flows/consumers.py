"""A fleet of two simulated members with a program that is to be told of them."""

import base64
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.consumers import CLUSTER_CONSUMERS, CLUSTER_PROFILES
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.fleet.membership.manifests import SERVICE_ACCOUNTS
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, uid_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.fleet import running_fleet as fleet_api_server
from clusterspace.roots.settings import FleetSettings
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, SECRETS, config_map, namespace
from clusterspace.testing.hubs import OURS, client_for_test, part_of_hub
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import edit, until

RBAC = "rbac.authorization.k8s.io"
ROLES, BINDINGS, CLUSTER_ROLES, CLUSTER_BINDINGS = (
    GroupVersionResource(RBAC, "v1", each)
    for each in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
)
CONTROLLERS = (
    {"kind": "User", "apiGroup": RBAC, "name": "system:clusterspace-controllers"},
    # Who they are at a kube-apiserver.
    {
        "kind": "ServiceAccount",
        "name": "clusterspace-controllers",
        "namespace": "clusterspace-system",
    },
)


def consumer(
    name: str, *, space: str = "", outputs: tuple[str, ...] = (), **affinity: Any
) -> Object:
    account = {"namespace": space or name, "name": "reader"}
    return {
        "apiVersion": CLUSTER_CONSUMERS.api_version,
        "kind": "ClusterConsumer",
        "metadata": {"name": name},
        "spec": {
            "serviceAccount": account,
            "clusterAffinity": affinity,
            "outputs": list(outputs or ("ClusterProfile", "TokenSecret", "ArgoCDSecret")),
        },
    }


@dataclass
class ConsumerSite:
    """What a test sees and does."""

    fleet: Fleet
    members: dict[str, Side]
    trust: Trust
    """Of where consumers reach clusters."""

    @property
    def hub(self) -> ClusterClient:
        return self.fleet.hub.client

    async def prepare(self, space: str, *clusters: str, allows: bool = True) -> None:
        """Make a namespace with an account, which may reach clusters and read ConfigMaps there."""
        await self.hub.create(ResourcePath(NAMESPACES), namespace(space))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
        await self.hub.create(ResourcePath(SERVICE_ACCOUNTS, space), account)
        if allows:
            await self.allow(space)
        rule = {
            "apiGroups": [CLUSTERS.group],
            "resources": ["clusters/proxy"],
            "resourceNames": list(clusters),
            "verbs": ["*"],
        }
        subject = {"kind": "ServiceAccount", "namespace": space, "name": "reader"}
        name = f"{space}-reaches"
        await grant(self.hub, name, rule, subject)
        for each in clusters:
            reads = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
            user = f"clusterspace:serviceaccount:{space}:reader"
            there = {"kind": "User", "apiGroup": RBAC, "name": user}
            await grant(self.members[each].client, name, reads, there)

    async def allow(self, space: str) -> None:
        """Let the controllers give tokens of the account, as the guide says."""
        rules = [
            {
                "apiGroups": [""],
                "resources": ["serviceaccounts/token"],
                "resourceNames": ["reader"],
                "verbs": ["create"],
            },
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete"]},
        ]
        head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "gives-credentials"}}
        await self.hub.create(ResourcePath(ROLES, space), {**head, "kind": "Role", "rules": rules})
        ref = {"apiGroup": RBAC, "kind": "Role", "name": "gives-credentials"}
        binding = {**head, "kind": "RoleBinding", "roleRef": ref, "subjects": list(CONTROLLERS)}
        await self.hub.create(ResourcePath(BINDINGS, space), binding)

    async def introduce(self, made: Object) -> Object:
        return await self.hub.create(ResourcePath(CLUSTER_CONSUMERS), made)

    async def condition(self, name: str) -> tuple[str, str]:
        held = await self.hub.get(ResourcePath(CLUSTER_CONSUMERS, "", name))
        found = find_condition(find_at(held, "status", "conditions"), "Published") or {}
        return str(found.get("status", "")), str(found.get("reason", ""))

    async def secret(self, space: str, cluster: str) -> dict[str, str] | None:
        """Return what a Secret has, once it has something."""
        held = await self.hub.find(ResourcePath(SECRETS, space, cluster))
        if held is None or not held.get("data"):
            return None
        return {key: base64.b64decode(each).decode() for key, each in held["data"].items()}

    async def credentials(self, space: str, cluster: str) -> dict[str, str]:
        found: dict[str, str] = await until(
            lambda: self.secret(space, cluster), explain=lambda: self.troubles()
        )
        return found

    async def troubles(self) -> Any:
        return [
            e.get("status") for e in await self.hub.list_objects(ResourcePath(CLUSTER_CONSUMERS))
        ]

    async def profiles(self, space: str) -> dict[str, Object]:
        listed = await self.hub.list_objects(ResourcePath(CLUSTER_PROFILES, space))
        return {each["metadata"]["name"]: each for each in listed}

    async def label(self, cluster: str, **labels: str) -> None:
        path = ResourcePath(CLUSTERS, "", cluster)
        await edit(self.hub, path, lambda held: with_metadata(held, labels=labels))

    async def delete(self, path: ResourcePath) -> None:
        held = await self.hub.get(path)
        await self.hub.delete(path, DeleteOptions(uid_of(held)))

    @asynccontextmanager
    async def reached(self, server: str, token: str) -> AsyncGenerator[ClusterClient]:
        """Reach a server with a token, as a program does that has nothing else."""
        settings = ConnectionSettings("any", server, self.trust, AuthInfo(token=token))
        async with client_for_test(settings) as client:
            yield client


async def grant(where: ClusterClient, name: str, rule: Object, subject: Object) -> None:
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
    role = {**head, "kind": "ClusterRole", "rules": [rule]}
    await where.create(ResourcePath(CLUSTER_ROLES), role)
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    binding = {**head, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": [subject]}
    await where.create(ResourcePath(CLUSTER_BINDINGS), binding)


@asynccontextmanager
async def consumer_site(
    directory: Path, *, hub_kind: str = OURS, at_fleet: bool = False
) -> AsyncGenerator[ConsumerSite]:
    """Run a hub with two members, and consumers turned on: at the hub, or at the fleet address."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(running_fleet(directory, hub_kind=hub_kind))
        site = ConsumerSite(fleet, {}, fleet.hub.settings.trust)
        settled: dict[str, Any] = {"consumers_server": fleet.hub.settings.server}
        if at_fleet:
            settings = FleetSettings(
                hub=part_of_hub(directory / "hub", "fleet"),
                data_dir=directory / "fleet",
                port=0,
                member_cidrs=LOOPBACK,
            )
            running = await stack.enter_async_context(fleet_api_server(settings))
            authority = directory / "fleet" / "pki" / "ca.crt"
            site.trust = Trust(Pem(file=authority))
            settled["consumers_server"] = f"{running.url}/clusterspaces/{{cluster}}"
            settled["consumers_authority"] = authority
        await stack.enter_async_context(fleet.controllers(**settled))
        for name in ("east", "west"):
            site.members[name] = await fleet.add_sim(name, nodes=1)
            made = config_map("lamp", {"in": name})
            await site.members[name].client.create(ResourcePath(CONFIG_MAPS, "default"), made)
            await fleet.join(name, site.members[name])
            await until_ready(fleet, name)
        yield site
