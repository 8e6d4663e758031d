"""A small cluster that has led a life: what a plan, its application and its end are tried on."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient, WriteOptions
from clusterspace.errors import AlreadyExists
from clusterspace.fleet.migration.apply import Application, ApplyOptions
from clusterspace.fleet.migration.plan import MigrationPlan
from clusterspace.fleet.migration.planning import PlanRequest, make_judge, plan_cluster
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.fleet.migration.undo import Undoing, UndoOptions
from clusterspace.kube.objects import Object, metadata_of, name_of, without_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    config_map,
    deployment,
    namespace,
    secret,
)
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import until

WEST = "west"
RBAC = "rbac.authorization.k8s.io"
SHOP = "shop"
KUBECTL = WriteOptions(field_manager="kubectl-client-side-apply")
SERVICES = GroupVersionResource("", "v1", "services")
AUTOSCALERS = GroupVersionResource("autoscaling", "v2", "horizontalpodautoscalers")
DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
WIDGETS = GroupVersionResource("example.com", "v1", "widgets")
LOOKED_AT = (
    NAMESPACES,
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    DEPLOYMENTS,
    PODS,
    AUTOSCALERS,
    DEFINITIONS,
)


def service(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    }


def hpa(name: str) -> Object:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 3,
        },
    }


def widget_definition() -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "properties": {"size": {"type": "integer"}},
                                }
                            },
                        }
                    },
                }
            ],
        },
    }


def widget(name: str) -> Object:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"size": 3},
    }


@dataclass
class Site:
    """A hub, and a member that runs a shop."""

    fleet: Fleet
    west: Side

    @property
    def hub(self) -> ClusterClient:
        return self.fleet.hub.client

    @property
    def member(self) -> ClusterClient:
        return self.west.client

    async def member_state(self) -> dict[str, Any]:
        """Return every object of the member that a migration may touch, as it is."""
        return await state_of(self.member)

    async def hub_state(self) -> dict[str, Any]:
        return await state_of(self.hub)


async def state_of(client: ClusterClient, *, is_whole: bool = True) -> dict[str, Any]:
    """Return the objects of a cluster by kind and key; without what no undo can give back."""
    found: dict[str, Any] = {}
    for resource in LOOKED_AT:
        for each in await client.list_objects(ResourcePath(resource)):
            metadata = metadata_of(each)
            if str(metadata.get("namespace", "")).startswith(("kube-", "karmada-", "fleet-")):
                continue
            if not is_whole:
                # A Deployment counts changes of its annotations as well: it has two more, ours put
                # on and taken off.
                hidden = ("resourceVersion", "managedFields", "generation")
                kept = {key: value for key, value in metadata.items() if key not in hidden}
                each = {**each, "metadata": kept}
                if resource != PODS:
                    # Controllers of the member go on writing it, whoever looks after the object.
                    each = without_value(each, "status")
            found[f"{resource.resource} {metadata.get('namespace', '')}/{name_of(each)}"] = each
    return found


@asynccontextmanager
async def living_cluster(directory: Path, **settled: Any) -> AsyncGenerator[Site]:
    """Run a hub with its controllers, and a member that has been at work for a while."""
    async with running_fleet(directory) as fleet, fleet.controllers(**settled):
        west = await fleet.add_sim(WEST, nodes=1)
        member = west.client
        await member.create(ResourcePath(NAMESPACES), namespace(SHOP), KUBECTL)
        await member.create(ResourcePath(DEFINITIONS), widget_definition(), KUBECTL)
        inside = {"namespace": SHOP}
        await member.create(
            ResourcePath(CONFIG_MAPS, SHOP), config_map("settings", {"a": "1"}, **inside), KUBECTL
        )
        await member.create(
            ResourcePath(SECRETS, SHOP), secret("db", {"password": "hunter2"}, **inside), KUBECTL
        )
        await member.create(ResourcePath(SERVICES, SHOP), service("web"), KUBECTL)
        web = deployment("web", replicas=2, namespace=SHOP)
        web["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [
            {"configMapRef": {"name": "settings"}},
            {"secretRef": {"name": "db"}},
        ]
        await member.create(ResourcePath(DEPLOYMENTS, SHOP), web, KUBECTL)
        await member.create(ResourcePath(AUTOSCALERS, SHOP), hpa("web"), KUBECTL)
        await until(lambda: is_served(member))
        await member.create(ResourcePath(WIDGETS, SHOP), widget("gear"), KUBECTL)
        await until(lambda: _runs(member, 2))
        await fleet.join(WEST, west)
        await until_ready(fleet, WEST)
        yield Site(fleet, west)


async def is_served(member: ClusterClient) -> bool:
    try:
        await member.list_objects(ResourcePath(WIDGETS, SHOP))
    except Exception:  # noqa: BLE001 - not yet
        return False
    return True


async def _runs(member: ClusterClient, count: int) -> bool:
    pods = await member.list_objects(ResourcePath(PODS, SHOP))
    return [(each.get("status") or {}).get("phase") for each in pods] == ["Running"] * count


async def plan_of(site: Site, **request: Any) -> MigrationPlan:
    """Plan the whole member."""
    asked = PlanRequest("west-1", WEST, **request)
    return await plan_cluster(site.hub, site.member, asked, 0.0)


async def apply_plan(
    site: Site,
    plan: MigrationPlan,
    *,
    hub: Client | None = None,
    member: Client | None = None,
    **options: Any,
) -> Counter[State]:
    """Carry a plan out, as the command does; with another client of the hub, if one is given."""
    store = MigrationStore(hub or site.hub, plan.name)
    await store.begin(plan)
    cluster = await site.fleet.cluster(WEST)
    judge = await make_judge(site.hub, site.member, cluster, plan.name, 8)
    carried_out = ApplyOptions(patience=30.0, **options)
    application = Application(store, member or site.member, judge, carried_out, SystemClock())
    return await application.run()


async def undo_plan(
    site: Site,
    name: str,
    *,
    hub: Client | None = None,
    member: Client | None = None,
    **options: Any,
) -> Counter[State]:
    """Take a migration back, as the command does."""
    served = await Discovery(site.hub.connection).served()
    undoing = Undoing(
        MigrationStore(hub or site.hub, name),
        member or site.member,
        served,
        UndoOptions(patience=30.0, **options),
        SystemClock(),
    )
    return await undoing.run()


async def token_of_looker(site: Site) -> str:
    """Return a token for the member, of somebody who may read some kinds and write ConfigMaps."""
    rules = [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "update"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
    ]
    meta = {"name": "looker"}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "looker"},
        "subjects": [{"kind": "ServiceAccount", "name": "looker", "namespace": "default"}],
    }
    accounts = ResourcePath(GroupVersionResource("", "v1", "serviceaccounts"), "default")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    with suppress(AlreadyExists):  # of a test before
        await site.member.create(accounts, account)
        for kind, each in (("clusterroles", role), ("clusterrolebindings", binding)):
            await site.member.create(ResourcePath(GroupVersionResource(RBAC, "v1", kind)), each)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    given = await site.member.create(accounts.named("looker").with_subresource("token"), request)
    return str(given["status"]["token"])


def differences(before: Any, after: Any, place: str = "") -> list[str]:
    """Return where two states differ, field by field: an assertion that people can read."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            found
            for key in sorted({*before, *after}, key=str)
            for found in differences(before.get(key), after.get(key), f"{place}.{key}")
        ]
    return [] if before == after else [f"{place}: {before!r} -> {after!r}"]
