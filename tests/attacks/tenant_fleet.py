"""A whole fleet in this event loop, and a tenant on its hub who may write in one namespace only."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clusterspace.apis.works import name_for, reference_to, resource_for
from clusterspace.apiserver.forms import encode_stored
from clusterspace.apiserver.state import HubState
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import AlreadyExists
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.stage import Fleet, Side
from clusterspace.testing.steps import until

MEMBER = "member1"
TENANT, VICTIM = "tenant-r", "victim"
MALLORY = "mallory"
PATIENCE = 30.0

RBAC = "rbac.authorization.k8s.io"
ROLES = GroupVersionResource(RBAC, "v1", "roles")
ROLE_BINDINGS = GroupVersionResource(RBAC, "v1", "rolebindings")
CLUSTER_ROLES = GroupVersionResource(RBAC, "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS = GroupVersionResource(RBAC, "v1", "clusterrolebindings")


@dataclass
class TenantFleet:
    """A hub and one member seen by their administrators, and the hub seen by the tenant."""

    hub: ClusterClient
    member: ClusterClient
    tenant: ClusterClient
    state: HubState
    fleet: Fleet

    async def grant(self, *rules: Object, namespace: str = TENANT) -> None:
        """Give the tenant more rights in a namespace."""
        role = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": {"generateName": "r-", "namespace": namespace},
            "rules": list(rules),
        }
        made = await self.hub.create(ResourcePath(ROLES, namespace), role)
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name_of(made), "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name_of(made)},
            "subjects": [{"kind": "User", "apiGroup": RBAC, "name": MALLORY}],
        }
        await self.hub.create(ResourcePath(ROLE_BINDINGS, namespace), binding)

    async def store(self, resource: GroupVersionResource, made: Object) -> Object:
        """Put an object where admission never saw it: stored before, or by another API server."""
        served = self.state.catalog.find(resource.group, resource.version, resource.resource)
        assert served is not None
        born = with_metadata(
            made,
            uid=self.state.new_uid(),
            creationTimestamp=self.state.timestamp(),
            generation=1,
        )
        key = served.key(namespace_of(born), name_of(born))
        await self.state.store.put(key, encode_stored(born, served.form))
        return await self.hub.get(ResourcePath(resource, namespace_of(born), name_of(born)))

    async def condition(self, place: ResourcePath, kind: str = "WorksWritten") -> Object | None:
        held = await self.hub.find(place)
        return find_condition(find_at(held or {}, "status", "conditions"), kind)

    async def until_refused(self, place: ResourcePath) -> Object:
        """Wait until a binding says that nothing comes of it; return that condition."""

        async def refused() -> Object | None:
            held = await self.condition(place)
            return held if held is not None and held["status"] == "False" else None

        return await until(refused, explain=lambda: self._binding(place))

    async def until_on_member(self, place: ResourcePath) -> Object:
        return await until(lambda: self.member.find(place), explain=lambda: self.condition(place))

    async def until_event(self, reason: str, about: str) -> Object:
        async def told() -> Object | None:
            events = await self.hub.list_objects(ResourcePath(EVENTS))
            fitting = (
                each
                for each in events
                if (each["reason"], each["involvedObject"]["name"]) == (reason, about)
            )
            return next(fitting, None)

        return await until(told)

    async def _binding(self, place: ResourcePath) -> Any:
        return await self.hub.find(place)


def binding_of(template: Object, *, inside: str | None = None, **spec: Any) -> Object:
    """Return a binding as somebody writes it by hand, to have an object sent to the member."""
    where = namespace_of(template) if inside is None else inside
    metadata = {"name": name_for(template), "namespace": where}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding" if where else "ClusterResourceBinding",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"resource": reference_to(template), "clusters": [{"name": MEMBER}], **spec},
    }


def place_of_binding(binding: Object) -> ResourcePath:
    where = namespace_of(binding)
    return ResourcePath(resource_for(where), where, name_of(binding))


def policy_for(template: Object) -> Object:
    """Return a policy that sends one object to the member."""
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name_of(template), "namespace": namespace_of(template)},
        "spec": {
            "resourceSelectors": [selector_of(template)],
            "placement": {"clusterAffinity": {"clusterNames": [MEMBER]}},
        },
    }


def overrides_of(template: Object, **overriders: Any) -> Object:
    """Return an override policy for one object."""
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "OverridePolicy",
        "metadata": {"name": name_of(template), "namespace": namespace_of(template)},
        "spec": {
            "resourceSelectors": [selector_of(template)],
            "overrideRules": [{"overriders": overriders}],
        },
    }


def selector_of(template: Object) -> Object:
    return {
        "apiVersion": template["apiVersion"],
        "kind": template["kind"],
        "name": name_of(template),
        "namespace": namespace_of(template),
    }


def secret(name: str, inside: str, **fields: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": inside},
        "data": {"password": "aHVudGVyMg=="},
        **fields,
    }


def rule(groups: str, resources: Sequence[str], verbs: Sequence[str] = ("*",)) -> Object:
    return {"apiGroups": [groups], "resources": list(resources), "verbs": list(verbs)}


@asynccontextmanager
async def tenant_fleet(directory: Path, *rules: Object) -> AsyncGenerator[TenantFleet]:
    """Run a hub, its controllers and a member; the tenant holds the rules in one namespace."""
    home, tokens = directory / "hub", directory / "tokens.csv"
    home.mkdir()
    tokens.write_text(f'tenant-token,{MALLORY},1,"tenants"\n')
    settings = HubSettings(
        data_dir=home,
        port=0,
        store="memory",
        token_auth_file=tokens,
        member_cidrs=LOOPBACK,
    )
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_hub(settings))
        reached = read_kubeconfig([home / "kubeconfig"]).settings(cluster="hub")
        hub = await stack.enter_async_context(client_for_test(reached))
        as_tenant = replace(reached, identity=AuthInfo(token="tenant-token"))
        tenant = await stack.enter_async_context(client_for_test(as_tenant))
        fleet = Fleet(Side(reached, hub), directory, stack)
        member = await fleet.add_member(MEMBER)
        await stack.enter_async_context(fleet.controllers())
        await fleet.join(MEMBER, member)
        for name in (TENANT, VICTIM, "karmada-system", "fleet-system", "fleet-member-west"):
            await make_namespace(hub, name)
        site = TenantFleet(hub, member.client, tenant, running.state, fleet)
        await site.grant(*rules)
        yield site


async def make_namespace(cluster: ClusterClient, name: str) -> None:
    try:
        await cluster.create(ResourcePath(NAMESPACES), namespace(name))
    except AlreadyExists:
        return
