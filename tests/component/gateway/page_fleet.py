"""A fleet for the page to show: clusters in every state, and objects placed well and badly."""

from typing import Any

from tests.component.gateway.fleet_site import Site

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.migrations import ITEMS, MIGRATIONS, NAME_LABEL
from clusterspace.apis.staged_updates import CLUSTER_RUNS, NAMESPACED_RUNS
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time
from clusterspace.testing.builders import deployment, namespace
from clusterspace.testing.steps import until

BINDINGS = GroupVersionResource("work.karmada.io", "v1alpha2", "resourcebindings")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
PODS = GroupVersionResource("", "v1", "pods")
EVENTS = GroupVersionResource("", "v1", "events")
RUN = ResourcePath(CLUSTER_RUNS.runs, name="rollout")
NAMESPACED_RUN = ResourcePath(NAMESPACED_RUNS.runs, "shop", "of-a-policy")
MIGRATION = ResourcePath(MIGRATIONS, name="west-1")
LONG_AGO = format_time(SystemClock().now() - 754)


def cluster_status(ready: str, message: str = "", *, used: int = 6) -> Object:
    """Return what a Cluster says of itself."""
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "ByTest",
        "message": message,
        "lastTransitionTime": LONG_AGO,
    }
    return {
        "conditions": [condition],
        "kubernetesVersion": "v1.35.0",
        "nodeSummary": {"readyNum": 3, "totalNum": 3},
        "resourceSummary": {
            "allocatable": {"cpu": "24", "memory": "96Gi", "pods": "330"},
            "allocated": {"cpu": str(used), "memory": f"{used * 3}Gi", "pods": str(used * 11)},
        },
    }


async def set_status(site: Site, place: ResourcePath, status: Object) -> None:
    """Write the status of an object of the hub."""
    where = ResourcePath(place.resource, place.namespace, place.name, "status")
    current = await site.hub.client.get(place)
    await site.hub.client.update(where, {**current, "status": status})


async def add_cluster(site: Site, name: str, status: Object, **spec: Any) -> None:
    """Write a Cluster that nobody is behind."""
    made = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"syncMode": "Pull", **spec},
    }
    await site.hub.client.create(ResourcePath(CLUSTERS), made)
    await set_status(site, manifests.cluster_path(name), status)


async def place(site: Site, name: str, clusters: dict[str, Object], **spec: Any) -> None:
    """Write a template, and a binding that says how it is in each cluster."""
    template = await site.hub.client.create(
        ResourcePath(DEPLOYMENTS, "shop"), deployment(name, replicas=2, namespace="shop")
    )
    binding = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {
            "name": f"{name}-deployment",
            "namespace": "shop",
            "annotations": {
                "propagationpolicy.karmada.io/name": name,
                "propagationpolicy.karmada.io/namespace": "shop",
            },
        },
        "spec": {
            "resource": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "namespace": "shop",
                "name": name,
                "uid": template["metadata"]["uid"],
            },
            "replicas": 2,
            "clusters": [{"name": each, "replicas": 2} for each in clusters],
            **spec,
        },
    }
    await site.hub.client.create(ResourcePath(BINDINGS, "shop"), binding)
    await report(site, name, clusters)


async def report(site: Site, name: str, clusters: dict[str, Object]) -> None:
    """Have clusters say how the object is there."""
    status = {
        "aggregatedStatus": [
            {"clusterName": each, "applied": True, "health": "Healthy", **how}
            for each, how in clusters.items()
        ],
        "conditions": [
            {
                "type": "Scheduled",
                "status": "True",
                "reason": "Success",
                "message": "",
                "lastTransitionTime": LONG_AGO,
            }
        ],
    }
    await set_status(site, ResourcePath(BINDINGS, "shop", f"{name}-deployment"), status)


def ready(count: int) -> Object:
    """Return what a cluster says of an object with two copies."""
    health = "Healthy" if count == 2 else "Unhealthy"
    return {"health": health, "status": {"replicas": 2, "readyReplicas": count}}


async def furnish(site: Site) -> None:
    """Fill the fleet of a site whose one member is the simulated `east`."""
    hub = site.hub.client
    await hub.create(ResourcePath(manifests.NAMESPACES), namespace("shop"))
    east = site.members["east"].client
    await east.create(ResourcePath(manifests.NAMESPACES), namespace("shop"))
    await east.create(
        ResourcePath(DEPLOYMENTS, "shop"), deployment("web", replicas=2, namespace="shop")
    )
    await set_status(site, manifests.cluster_path("east"), cluster_status("True"))
    await add_cluster(site, "north", cluster_status("False", "its API server refuses", used=23))
    taint = {"key": "maintenance", "value": "today", "effect": "NoSchedule"}
    await add_cluster(site, "south", cluster_status("Unknown", "no heartbeat"), taints=[taint])
    await place(site, "web", {"east": ready(2), "south": ready(2)})
    web = ResourcePath(DEPLOYMENTS, "shop", "web")
    await set_status(site, web, {"replicas": 2, "readyReplicas": 2})
    await place(site, "cart", {"east": ready(1)})
    conflict = "resource(kind=Deployment, shop/pay) already exists in the cluster east"
    await place(site, "pay", {"east": {"applied": False, "appliedMessage": conflict}})

    async def runs() -> bool:
        pods = await east.list_objects(ResourcePath(PODS, "shop"))
        return len(pods) == 2 and all(each["status"].get("phase") == "Running" for each in pods)

    await until(runs)


def _condition(kind: str, status: str = "True") -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": "ByTest",
        "message": "",
        "lastTransitionTime": LONG_AGO,
    }


def migration_status(taken: int, message: str) -> Object:
    """Return how far a migration of five objects is."""
    counts = {"taken": taken, "refused": 1, "pending": 4 - taken, "skipped": 0, "undone": 0}
    return {"phase": "Applying", "message": message, **counts, "taking": 0, "updatedAt": LONG_AGO}


def _run_status() -> Object:
    approval = {"type": "Approval", "approvalRequestName": "rollout-before-canary"}
    waiting = {**approval, "conditions": [_condition("ApprovalRequestCreated")]}
    clusters = [
        {"clusterName": "east", "conditions": [_condition("Succeeded")]},
        {"clusterName": "south"},
    ]
    stage = {
        "stageName": "canary",
        "clusters": clusters,
        "conditions": [_condition("Progressing")],
        "beforeStageTaskStatus": [waiting],
    }
    return {"stagesStatus": [stage], "conditions": [_condition("Progressing")]}


async def furnish_moves(site: Site, said: str) -> None:
    """Have a migration, an eviction, a drain and a staged run; `said` is what they say of it."""
    hub = site.hub.client
    taint = {"key": "clusterspace.io/drain", "effect": "NoExecute", "timeAdded": LONG_AGO}
    await add_cluster(site, "old", cluster_status("True"), taints=[taint])
    task = {"fromCluster": "old", "producer": "test", "reason": "TaintUntolerated"}
    leaving = {"gracefulEvictionTasks": [{**task, "creationTimestamp": LONG_AGO}]}
    await place(site, "leaver", {"east": ready(1)}, **leaving)
    await place(site, "stayer", {"old": ready(2)})
    head = {"apiVersion": "migration.clusterspace.io/v1alpha1"}
    cluster = {"name": "west", "uid": "u"}
    spec = {"cluster": cluster, "hubUID": "h", "planDigest": "d", "items": 5, "chunks": 1}
    labels = {NAME_LABEL: "west-1"}
    metadata = {"name": "west-1", "labels": labels}
    await hub.create(
        MIGRATION.collection, {**head, "kind": "Migration", "metadata": metadata, "spec": spec}
    )
    await set_status(site, MIGRATION, migration_status(2, said))
    items = ResourcePath(ITEMS, name="west-1-00000")
    entries = [{"kind": "Deployment", "namespace": "shop", "name": name} for name in ("web", "db")]
    stored = {"metadata": {"name": "west-1-00000", "labels": labels}}
    states = [{"state": "Taken"}, {"state": "Refused", "reason": said}]
    content = {"spec": {"items": entries}, "status": {"items": states}}
    await hub.create(items.collection, {**head, "kind": "MigrationItems", **stored, **content})
    strategy = {"placementName": "web", "stagedRolloutStrategyName": "slow", "state": "Run"}
    made = {"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "spec": strategy}
    await hub.create(
        RUN.collection,
        {**made, "kind": "ClusterStagedUpdateRun", "metadata": {"name": "rollout"}},
    )
    await set_status(site, RUN, _run_status())
    named = {"name": "of-a-policy", "namespace": "shop"}
    await hub.create(
        NAMESPACED_RUN.collection, {**made, "kind": "StagedUpdateRun", "metadata": named}
    )
    await set_status(site, NAMESPACED_RUN, _run_status())
