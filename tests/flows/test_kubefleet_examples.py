"""What users of KubeFleet try first: each of its examples, by what its reader expects of it.

The manifests here have the kinds and fields of KubeFleet's own examples, with names of ours.
Where KUBEFLEET_TREE names a checkout of KubeFleet, its files themselves are applied, too.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio
import yaml
from tests.component.placement_site import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    PlacementSite,
    of_cluster,
    placement_site,
    running,
)
from tests.flows.test_placement_rollout import add_node
from tests.flows.test_staged_updates import Runs

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.fleet_placements import PLACEMENT_STATUSES
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS, member_namespace
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.controllers.controller import ControllerManager
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import Invalid
from clusterspace.fleet.membership.member_clusters.controller import MemberClusterController
from clusterspace.fleet.propagation.placements.evictions import EVICTIONS
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, namespace
from clusterspace.testing.steps import delete, stop, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVICES = GroupVersionResource("", "v1", "services")
JOBS = GroupVersionResource("batch", "v1", "jobs")
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
GUARDS = GroupVersionResource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"
)
KUEUE = "kueue.x-k8s.io"
COST = "kubernetes.azure.com/per-gb-memory-cost"

CANARY = "labelSelector: {matchExpressions: [{key: env, operator: In, values: [canary]}]}"
PROD = "labelSelector: {matchExpressions: [{key: env, operator: In, values: [prod]}]}"
SPREAD = (
    "topologySpreadConstraints:"
    " [{maxSkew: 1, topologyKey: color, whenUnsatisfiable: DoNotSchedule}]"
)
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

MEMBERS: dict[str, Object] = {
    "west-1": {"place": "westus", "env": "canary", "color": "blue", "environment": "staging"},
    "west-2": {
        "place": "westus",
        "env": "canary",
        "color": "red",
        "environment": "canary",
        "order": "0",
    },
    "europe-1": {"place": "westeurope", "env": "prod", "color": "blue", "order": "2"},
    "europe-2": {"place": "westeurope", "env": "prod", "color": "red", "order": "1"},
    "spare": {"place": "eastus", "taint": "yes", "environment": "spare"},
}
COSTS = {"west-1": "0.05", "west-2": "0.04", "europe-1": "0.01", "europe-2": "0.02"}
OPEN = ("europe-1", "europe-2", "west-1", "west-2")
"""The clusters that nobody has to tolerate anything for."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path_factory.mktemp("fleet")) as made:
        for name, labels in MEMBERS.items():
            cost = COSTS.get(name, "1")
            owner = await report(made.hub, name, {COST: cost, "example.com/spot": cost[-1]})
            standing = {"environment": "production", **labels}
            await made.join(name, labels=standing, owner=owner)
        await made.taint("spare", {"key": "reserved", "value": "us", "effect": "NoSchedule"})
        async with running(made):
            yield made


async def report(hub: ClusterClient, name: str, values: dict[str, str]) -> Object:
    """Tell properties of a cluster, as an agent with a provider of such does."""
    identity = {"kind": "ServiceAccount", "name": name, "namespace": "fleet-system"}
    made: Object = {
        "apiVersion": MEMBER_CLUSTERS.api_version,
        "kind": "MemberCluster",
        "metadata": {"name": name},
        "spec": {"identity": identity},
    }
    stored = await hub.create(ResourcePath(MEMBER_CLUSTERS), made)
    observed = {"observationTime": "2026-01-01T00:00:00Z"}
    told = {"properties": {key: {"value": each, **observed} for key, each in values.items()}}
    at = ResourcePath(MEMBER_CLUSTERS, "", name, subresource="status")
    return await hub.update(at, {**stored, "status": told})


def read(text: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(text) if each]


def collection_of(made: Object) -> ResourcePath:
    group, _, version = made["apiVersion"].rpartition("/")
    word = made["kind"].lower()
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return ResourcePath(
        GroupVersionResource(group, version, plural), made["metadata"].get("namespace", "")
    )


async def put(site: PlacementSite, text: str) -> list[Object]:
    """Create what a file of several manifests has, in its order."""
    return [await site.hub.create(collection_of(each), each) for each in read(text)]


async def space(site: PlacementSite, name: str, **labels: str) -> None:
    made = namespace(name)
    await site.put(NAMESPACES, {**made, "metadata": {"name": name, "labels": labels}})


async def until_there(member: ClusterClient, path: ResourcePath) -> Object:
    found: Object = await until(lambda: member.find(path))
    return found


def definition(plural: str, kind: str, group: str = "test.example.com", **labels: str) -> str:
    """Return a definition as the examples place one: in the file it has no labels."""
    singular = kind.lower()
    scope = "Namespaced" if kind == "LocalQueue" else "Cluster"
    return f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.{group}
  labels: {labels}
spec:
  group: {group}
  scope: {scope}
  names: {{plural: {plural}, singular: {singular}, kind: {kind}, listKind: {kind}List}}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"""


def of_definition(name: str, plural: str, policy: str, version: str = "v1beta1") -> str:
    """Return a placement of one definition, as most of the examples are."""
    return f"""
apiVersion: placement.kubernetes-fleet.io/{version}
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors:
  - group: apiextensions.k8s.io
    version: v1
    kind: CustomResourceDefinition
    name: {plural}.test.example.com
  policy: {policy}
  strategy: {{type: RollingUpdate}}
"""


async def picked(site: PlacementSite, name: str, policy: str, *, version: str = "v1beta1") -> None:
    """Place a definition of its own by a policy, and wait until that is done."""
    plural = f"{name.replace('-', '')}s"
    await put(site, definition(plural, plural.capitalize()))
    await put(site, of_definition(name, plural, policy, version))
    await until(lambda: is_told(site, name), explain=lambda: site.status(name))
    for each in await site.clusters(name):
        path = ResourcePath(CRDS, "", f"{plural}.test.example.com")
        await until_there(site.members[each], path)


async def is_told(site: PlacementSite, name: str) -> bool:
    return (await site.condition("Scheduled", name))[0] in ("True", "False")


# Envelopes


async def test_a_cluster_wide_envelope_brings_a_webhook_and_a_role(site: PlacementSite) -> None:
    await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourceEnvelope
metadata: {name: guards}
data:
  webhook.yaml:
    apiVersion: admissionregistration.k8s.io/v1
    kind: ValidatingWebhookConfiguration
    metadata: {name: watchman}
    webhooks:
    - name: watchman.example.com
      rules:
      - {operations: [CREATE], apiGroups: [none.example.com], apiVersions: ["*"], resources: ["*"]}
      clientConfig: {service: {name: watchman, namespace: ops}}
      admissionReviewVersions: [v1]
      sideEffects: None
      timeoutSeconds: 10
  role.yaml:
    apiVersion: rbac.authorization.k8s.io/v1
    kind: ClusterRole
    metadata: {name: reads-pods}
    rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: guards}
spec:
  resourceSelectors:
  - group: placement.kubernetes-fleet.io
    version: v1beta1
    kind: ClusterResourceEnvelope
    name: guards
  policy: {placementType: PickFixed, clusterNames: [west-1]}
""",
    )
    west = site.members["west-1"]
    guard = await until_there(west, ResourcePath(GUARDS, "", "watchman"))
    role = await until_there(west, ResourcePath(CLUSTER_ROLES, "", "reads-pods"))
    assert guard["webhooks"][0]["timeoutSeconds"] == 10
    assert role["rules"][0]["verbs"] == ["get", "list", "watch"]
    assert await site.hub.find(ResourcePath(GUARDS, "", "watchman")) is None, "it would act here"
    assert await site.hub.find(ResourcePath(CLUSTER_ROLES, "", "reads-pods")) is None


async def test_an_envelope_of_a_namespace_brings_a_config_map_and_a_deployment(
    site: PlacementSite,
) -> None:
    await space(site, "enveloped")
    await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {name: kit, namespace: enveloped}
data:
  cm.yaml:
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: settings, namespace: enveloped}
    data: {v: "1"}
  deploy.yaml:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: front, namespace: enveloped}
    spec:
      replicas: 1
      selector: {matchLabels: {app: front}}
      template:
        metadata: {labels: {app: front}}
        spec: {containers: [{name: web, image: "web:1"}]}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: kit}
spec:
  resourceSelectors: [{group: "", version: v1, kind: Namespace, name: enveloped}]
  policy: {placementType: PickFixed, clusterNames: [west-1]}
""",
    )
    await site.until_data("west-1", "settings", {"v": "1"}, "enveloped")
    front = ResourcePath(DEPLOYMENTS, "enveloped", "front")
    assert (await until_there(site.members["west-1"], front))["spec"]["replicas"] == 1
    assert await site.hub.find(front) is None


async def test_an_override_reaches_what_is_inside_an_envelope(site: PlacementSite) -> None:
    """It selects the Deployment, and not the envelope that it comes in."""
    await space(site, "wrapped")
    await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {name: entrance, namespace: wrapped}
data:
  entrance.yaml:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: entrance, namespace: wrapped}
    spec:
      replicas: 1
      selector: {matchLabels: {app: entrance}}
      template:
        metadata: {labels: {app: entrance}}
        spec: {containers: [{name: web, image: "web:1"}]}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceOverride
metadata: {name: more-on-canaries, namespace: wrapped}
spec:
  placement: {name: entrance, scope: Namespaced}
  resourceSelectors: [{group: apps, version: v1, kind: Deployment, name: entrance}]
  policy:
    overrideRules:
    - clusterSelector: {clusterSelectorTerms: [{labelSelector: {matchLabels: {env: canary}}}]}
      jsonPatchOverrides: [{op: replace, path: /spec/replicas, value: 3}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: entrance, namespace: wrapped}
spec:
  resourceSelectors:
  - {group: placement.kubernetes-fleet.io, version: v1beta1, kind: ResourceEnvelope, name: entrance}
  policy: {placementType: PickAll}
""",
    )
    path = ResourcePath(DEPLOYMENTS, "wrapped", "entrance")
    for each in OPEN:
        found = await until_there(site.members[each], path)
        assert found["spec"]["replicas"] == (3 if each.startswith("west") else 1), each


# Evictions


async def verdict(site: PlacementSite, name: str) -> dict[str, str]:
    held = await site.hub.get(ResourcePath(EVICTIONS, "", name))
    conditions: list[Object] = find_at(held, "status", "conditions") or []
    return {each["type"]: each["status"] for each in conditions}


async def test_an_eviction_within_its_budget_is_carried_out_once(site: PlacementSite) -> None:
    preferred = f"""
    placementType: PickN
    numberOfClusters: 2
    affinity:
      clusterAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 20
          preference: {{{CANARY}}}
        - weight: 80
          preference: {{propertySorter: {{name: {COST}, sortOrder: Descending}}}}
    {SPREAD}
"""
    await picked(site, "leaving", preferred, version="v1")
    assert await site.clusters("leaving") == ["west-1", "west-2"], "canaries, and the dearest"
    await site.until_settled("leaving")
    await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacementDisruptionBudget
metadata: {name: leaving}
spec: {minAvailable: 1}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacementEviction
metadata: {name: first}
spec: {placementName: leaving, clusterName: west-1}
""",
    )
    await until_equal(lambda: verdict(site, "first"), {"Valid": "True", "Executed": "True"})
    # Nothing keeps it away: it is picked again, as KubeFleet does, and the eviction is over.
    await site.until_clusters("west-1", "west-2", name="leaving")
    assert await verdict(site, "first") == {"Valid": "True", "Executed": "True"}


async def test_the_oldest_version_of_evictions_says_what_it_cannot_find(
    site: PlacementSite,
) -> None:
    await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1alpha1
kind: ClusterResourcePlacementDisruptionBudget
metadata: {name: of-nothing}
spec: {maxUnavailable: 1}
---
apiVersion: placement.kubernetes-fleet.io/v1alpha1
kind: ClusterResourcePlacementEviction
metadata: {name: of-nothing}
spec: {placementName: nowhere, clusterName: west-1}
""",
    )
    await until_equal(lambda: verdict(site, "of-nothing"), {"Valid": "False"})


# Members


async def test_a_member_cluster_is_ready_to_be_joined(tmp_path: Path) -> None:
    async with placement_site(tmp_path) as site:
        clock = SystemClock()
        events = EventRecorder(site.hub, component="test", clock=clock)
        caches = HubCaches(site.hub)
        members = MemberClusterController(site.hub, caches, events, clock)
        manager = ControllerManager(caches, events, (members,), clock=clock, random=Random(1))
        task = asyncio.create_task(manager.run())
        await put(
            site,
            """
apiVersion: cluster.kubernetes-fleet.io/v1beta1
kind: MemberCluster
metadata: {name: newcomer}
spec:
  identity: {name: agent-of-newcomer, kind: ServiceAccount, namespace: fleet-system, apiGroup: ""}
""",
        )

        async def is_ready() -> bool:
            held = await site.hub.get(ResourcePath(MEMBER_CLUSTERS, "", "newcomer"))
            told = find_condition(find_at(held, "status", "conditions"), "ReadyToJoin") or {}
            return told.get("status") == "True"

        await until(is_ready)
        place = ResourcePath(NAMESPACES, "", member_namespace("newcomer"))
        assert await site.hub.find(place) is not None
        await stop(task)


# Kueue


async def test_teams_have_their_queues_and_jobs_on_the_clusters_named_for_them(
    site: PlacementSite,
) -> None:
    queues = ("clusterqueues", "ClusterQueue"), ("resourceflavors", "ResourceFlavor")
    for plural, kind in (*queues, ("localqueues", "LocalQueue")):
        for where in (site.hub, site.members["west-1"], site.members["west-2"]):
            (made,) = read(definition(plural, kind, KUEUE))
            await where.create(ResourcePath(CRDS), made)
    for team in ("team-a", "team-b"):
        await space(site, team)
    await put(
        site,
        """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: everybodys}
spec:
  namespaceSelector: {}
  queueingStrategy: BestEffortFIFO
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: plain
      resources: [{name: cpu, nominalQuota: 10}, {name: memory, nominalQuota: 10Gi}]
""",
    )
    for team, cluster in (("team-a", "west-1"), ("team-b", "west-2")):
        await put(
            site,
            f"""
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {{name: of-{team}, namespace: {team}}}
spec: {{clusterQueue: everybodys}}
---
apiVersion: batch/v1
kind: Job
metadata:
  namespace: {team}
  generateName: sample-
  annotations: {{kueue.x-k8s.io/queue-name: of-{team}}}
spec:
  ttlSecondsAfterFinished: 60
  parallelism: 3
  completions: 3
  suspend: true
  template:
    spec:
      containers:
      - name: nap
        image: nap:1
        args: [10s]
        resources: {{requests: {{cpu: 500m}}, limits: {{cpu: 500m}}}}
      restartPolicy: Never
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {team}}}
spec:
  resourceSelectors:
  - {{group: kueue.x-k8s.io, version: v1beta1, kind: ResourceFlavor, name: plain}}
  - {{group: kueue.x-k8s.io, version: v1beta1, kind: ClusterQueue, name: everybodys}}
  - {{group: "", version: v1, kind: Namespace, name: {team}}}
  policy: {{placementType: PickFixed, clusterNames: [{cluster}]}}
  strategy:
    type: RollingUpdate
    rollingUpdate: {{maxUnavailable: 100%, maxSurge: 25%, unavailablePeriodSeconds: 60}}
  revisionHistoryLimit: 15
""",
        )
        # One after the other: whose the shared queue is must be the same each time.
        await until(lambda team=team: is_told(site, team))
        member = site.members[cluster]
        queues_of_team = GroupVersionResource(KUEUE, "v1beta1", "localqueues")
        await until_there(member, ResourcePath(queues_of_team, team, f"of-{team}"))

        async def jobs(member: ClusterClient = member, team: str = team) -> list[Object]:
            return await member.list_objects(ResourcePath(JOBS, team))

        (job,) = await until(jobs)
        assert job["spec"]["suspend"] is True

    everybodys = ResourcePath(
        GroupVersionResource(KUEUE, "v1beta1", "clusterqueues"), "", "everybodys"
    )
    await until_there(site.members["west-1"], everybodys)
    assert not await site.members["west-1"].list_objects(ResourcePath(JOBS, "team-b"))

    # An object has one owner in the fleet: the second placement says whose it is.
    async def refused() -> set[str]:
        told = of_cluster(await site.status("team-b"), "west-2").get("failedPlacements") or ()
        return {each["name"] for each in told if "team-a places it" in each["condition"]["message"]}

    await until_equal(refused, {"plain", "everybodys"})


# Moving


async def test_a_changed_affinity_moves_an_application_and_an_override_sizes_it_there(
    site: PlacementSite,
) -> None:
    await space(site, "moving", stage="prod")
    await put(
        site,
        """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: moving}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: web, image: "web:1"}]}
---
apiVersion: placement.kubernetes-fleet.io/v1alpha1
kind: ResourceOverride
metadata: {name: larger, namespace: moving}
spec:
  policy:
    overrideRules:
    - clusterSelector: {clusterSelectorTerms: [{labelSelector: {matchLabels: {place: westeurope}}}]}
      jsonPatchOverrides: [{op: replace, path: /spec/replicas, value: 4}]
  resourceSelectors: [{group: apps, kind: Deployment, name: shop, version: v1}]
---
apiVersion: placement.kubernetes-fleet.io/v1
kind: ClusterResourcePlacement
metadata: {name: moving}
spec:
  resourceSelectors:
  - {group: "", version: v1, kind: Namespace, labelSelector: {matchLabels: {stage: prod}}}
  policy:
    placementType: PickN
    numberOfClusters: 2
    affinity:
      clusterAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          clusterSelectorTerms: [{labelSelector: {matchLabels: {place: westus}}}]
        preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 20
          preference:
            propertySorter: {name: kubernetes-fleet.io/node-count, sortOrder: Descending}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 50%}}
""",
    )
    shop = ResourcePath(DEPLOYMENTS, "moving", "shop")
    for each in ("west-1", "west-2"):
        found = await until_there(site.members[each], shop)
        assert found["spec"]["replicas"] == 2
        await add_node(site, each)
    await site.until_settled("moving")

    cheap = {"name": COST, "operator": "Lt", "values": ["0.025"]}
    term = {
        "propertySelector": {"matchExpressions": [cheap]},
        "labelSelector": {"matchLabels": {"place": "westeurope"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": [term]}}
    await site.edit_placement("moving", {"clusterAffinity": required}, "policy", "affinity")

    for each in ("europe-1", "europe-2"):
        found = await until_there(site.members[each], shop)
        assert found["spec"]["replicas"] == 4, "the override reaches it from the beginning"
        await add_node(site, each)
    for each in ("west-1", "west-2"):

        async def is_gone(each: str = each) -> bool:
            return await site.members[each].find(shop) is None

        await until(is_gone)
    await site.until_clusters("europe-1", "europe-2", name="moving")


# An application with everything


async def test_an_application_is_everywhere_and_serves_another_page_in_one_place(
    site: PlacementSite,
) -> None:
    await put(
        site,
        """
apiVersion: v1
kind: Namespace
metadata: {name: website, labels: {app: website}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: pages, namespace: website}
data: {v1.html: "<p>one</p>", v2.html: "<p>two</p>"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: website}
spec:
  replicas: 2
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      containers:
      - name: web
        image: web:1
        ports: [{containerPort: 80}]
        volumeMounts: [{mountPath: /html/index.html, name: pages, subPath: v1.html}]
      volumes: [{name: pages, configMap: {name: pages}}]
---
apiVersion: v1
kind: Service
metadata: {name: front, namespace: website, annotations: {example.com/internal: "true"}}
spec: {type: LoadBalancer, ports: [{port: 80}], selector: {app: server}}
---
apiVersion: placement.kubernetes-fleet.io/v1alpha1
kind: ResourceOverride
metadata: {name: second-page, namespace: website}
spec:
  resourceSelectors: [{group: apps, kind: Deployment, version: v1, name: server}]
  policy:
    overrideRules:
    - clusterSelector: {clusterSelectorTerms: [{labelSelector: {matchLabels: {place: westeurope}}}]}
      jsonPatchOverrides:
      - {op: replace, path: /spec/template/spec/containers/0/volumeMounts/0/subPath, value: v2.html}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: website}
spec:
  resourceSelectors: [{group: "", version: v1, kind: Namespace, name: website}]
  policy: {placementType: PickAll}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 2, maxSurge: 25%, unavailablePeriodSeconds: 60}
""",
    )
    for each in OPEN:
        member = site.members[each]
        found = await until_there(member, ResourcePath(DEPLOYMENTS, "website", "server"))
        (container,) = found["spec"]["template"]["spec"]["containers"]
        page = "v2.html" if each.startswith("europe") else "v1.html"
        assert container["volumeMounts"][0]["subPath"] == page, each
        service = await until_there(member, ResourcePath(SERVICES, "website", "front"))
        assert service["spec"]["type"] == "LoadBalancer"
        await site.until_data(
            each, "pages", {"v1.html": "<p>one</p>", "v2.html": "<p>two</p>"}, "website"
        )
    assert await site.clusters("website") == sorted(OPEN)


# Placements of namespaces, and in them


async def test_a_namespace_alone_and_parts_of_it_by_placements_of_its_own(
    site: PlacementSite,
) -> None:
    await space(site, "shared")
    await put(
        site,
        """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shared}
data: {v: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: not-placed, namespace: shared}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: shared}
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec: {containers: [{name: web, image: "web:1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: shared}
spec: {ports: [{port: 80}], selector: {app: server}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: namespace-alone}
spec:
  resourceSelectors:
  - {group: "", version: v1, kind: Namespace, name: shared, selectionScope: NamespaceOnly}
  policy: {placementType: PickAll}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: settings, namespace: shared}
spec:
  resourceSelectors: [{group: "", version: v1, kind: ConfigMap, name: settings}]
  policy: {placementType: PickAll}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: server, namespace: shared}
spec:
  resourceSelectors:
  - {group: apps, version: v1, kind: Deployment, name: server}
  - {group: "", version: v1, kind: Service, name: server}
  policy: {placementType: PickN, numberOfClusters: 2}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}
""",
    )
    await site.until_settled("namespace-alone")
    await site.until_settled("shared/settings")
    for each in OPEN:
        assert await site.data(each, "settings", "shared") == {"v": "1"}
        assert await site.data(each, "not-placed", "shared") is None
    await site.until_clusters("west-1", "west-2", name="shared/server")
    for each in ("west-1", "west-2"):
        for resource in (DEPLOYMENTS, SERVICES):
            await until_there(site.members[each], ResourcePath(resource, "shared", "server"))
    for each in ("europe-1", "europe-2"):
        assert await site.members[each].find(ResourcePath(SERVICES, "shared", "server")) is None


async def test_users_of_a_namespace_may_read_how_far_its_placement_is(
    site: PlacementSite,
) -> None:
    await space(site, "readable")
    await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: readable}
spec:
  resourceSelectors: [{group: "", version: v1, kind: Namespace, name: readable}]
  policy: {placementType: PickAll}
  strategy: {type: RollingUpdate}
  statusReportingScope: NamespaceAccessible
""",
    )
    copy = ResourcePath(PLACEMENT_STATUSES, "readable", "readable")

    async def is_copied() -> bool:
        held = await site.hub.find(copy)
        return held is not None and held["sourceStatus"] == await site.status("readable")

    await site.until_settled("readable")
    await until(is_copied)


# Staged updates


async def test_a_run_goes_stage_by_stage_with_waits_and_approvals(site: PlacementSite) -> None:
    await space(site, "staged")
    await put(
        site,
        """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: staged}
data: {v: "1"}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: staged}
spec:
  resourceSelectors: [{group: "", version: v1, kind: Namespace, name: staged}]
  policy: {placementType: PickAll, tolerations: [{key: reserved-for-others, operator: Exists}]}
  strategy: {type: External}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateStrategy
metadata: {name: careful}
spec:
  stages:
  - name: staging
    labelSelector: {matchLabels: {environment: staging}}
    afterStageTasks: [{type: TimedWait, waitTime: 1s}]
  - name: canary
    labelSelector: {matchLabels: {environment: canary}}
    sortingLabelKey: order
    afterStageTasks: [{type: Approval}]
  - name: production
    labelSelector: {matchLabels: {environment: production}}
    sortingLabelKey: order
    afterStageTasks: [{type: Approval}, {type: TimedWait, waitTime: 1s}]
""",
    )
    await site.until_clusters(*OPEN, name="staged")
    (made, _) = await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateRun
metadata: {name: first-run}
spec:
  placementName: staged
  resourceSnapshotIndex: "0"
  stagedRolloutStrategyName: careful
  state: Run
status:
  conditions: [{type: Initialized, status: "True"}, {type: Succeeded, status: "True"}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterApprovalRequest
metadata:
  name: first-run-canary
  labels:
    kubernetes-fleet.io/targetupdaterun: first-run
    kubernetes-fleet.io/targetUpdatingStage: canary
    kubernetes-fleet.io/isLatestUpdateRunApproval: "true"
spec: {parentStageRollout: first-run, targetStage: canary}
status: {conditions: [{type: Approved, status: "True"}]}
""",
    )
    assert "status" not in made, "what somebody says of a run's state is not its state"
    await site.until_data("west-2", "settings", {"v": "1"}, "staged")
    assert await site.data("europe-1", "settings", "staged") is None
    runs = Runs(site)
    for stage in ("canary", "production"):
        await runs.approve(f"first-run-after-{stage}")
    await runs.until("first-run", "Succeeded", "True", "UpdateRunSucceeded")
    for each in OPEN:
        assert await site.data(each, "settings", "staged") == {"v": "1"}


# Overrides


async def test_an_override_adds_a_label_where_it_is_meant_to(site: PlacementSite) -> None:
    await put(site, definition("labelleds", "Labelled", here="yes"))
    await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1alpha1
kind: ClusterResourceOverride
metadata: {name: adds-a-label}
spec:
  placement: {name: labelled}
  clusterResourceSelectors:
  - group: apiextensions.k8s.io
    version: v1
    kind: CustomResourceDefinition
    name: labelleds.test.example.com
  policy:
    overrideRules:
    - clusterSelector: {clusterSelectorTerms: [{labelSelector: {matchLabels: {env: canary}}}]}
      jsonPatchOverrides: [{op: add, path: /metadata/labels/new-label, value: new-value}]
""",
    )
    await put(site, of_definition("labelled", "labelleds", "{placementType: PickAll}"))
    path = ResourcePath(CRDS, "", "labelleds.test.example.com")
    for each in OPEN:
        found = await until_there(site.members[each], path)
        wanted = "new-value" if each.startswith("west") else None
        assert labels_of(found).get("new-label") == wanted, each


async def test_an_override_in_a_namespace_reaches_its_config_map(site: PlacementSite) -> None:
    await space(site, "patched")
    await put(
        site,
        """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: patched, labels: {here: "yes"}}
---
apiVersion: placement.kubernetes-fleet.io/v1alpha1
kind: ResourceOverride
metadata: {name: adds-a-label, namespace: patched}
spec:
  placement: {name: patched}
  resourceSelectors:
  - {group: "", version: v1, kind: ConfigMap, name: settings}
  policy:
    overrideRules:
    - clusterSelector: {clusterSelectorTerms: [{labelSelector: {matchLabels: {env: prod}}}]}
      jsonPatchOverrides: [{op: add, path: /metadata/labels/new-label, value: new-value}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: patched}
spec:
  resourceSelectors: [{group: "", version: v1, kind: Namespace, name: patched}]
  policy: {placementType: PickAll}
""",
    )
    for each in OPEN:
        found = await until_there(
            site.members[each], ResourcePath(CONFIG_MAPS, "patched", "settings")
        )
        wanted = "new-value" if each.startswith("europe") else None
        assert labels_of(found).get("new-label") == wanted, each


# Which clusters


async def test_pick_n_without_a_number_is_refused_and_says_what_is_missing(
    site: PlacementSite,
) -> None:
    await put(site, definition("countlesses", "Countless"))
    with pytest.raises(Invalid, match=r"spec\.policy\.numberOfClusters: Required value"):
        await put(site, of_definition("countless", "countlesses", "{placementType: PickN}"))


POLICIES: dict[str, tuple[str, list[str]]] = {
    # Two of each colour: the third makes one colour have one more. Ties go to the larger name.
    "spread-over-colours": (
        f"{{placementType: PickN, numberOfClusters: 3, {SPREAD}}}",
        ["europe-2", "west-1", "west-2"],
    ),
    "spread-and-preferred": (
        f"{{placementType: PickN, numberOfClusters: 3, {SPREAD}, affinity: {{clusterAffinity: "
        f"{{{PREFERRED}: [{{weight: 20, preference: {{{CANARY}}}}}, "
        f"{{weight: 30, preference: {{{PROD}}}}}]}}}}}}",
        ["europe-1", "europe-2", "west-2"],
    ),
    "by-cost": (
        "{placementType: PickN, numberOfClusters: 2, affinity: {clusterAffinity: "
        f"{{{PREFERRED}: ["
        f"{{weight: 20, preference: {{propertySorter: {{name: {COST}, sortOrder: Descending}}}}}}, "
        "{weight: 20, preference: {propertySorter: "
        "{name: example.com/spot, sortOrder: Descending}}}]}}}",
        ["west-1", "west-2"],
    ),
    "rather-not-production": (
        "{placementType: PickN, numberOfClusters: 2, affinity: {clusterAffinity: "
        f"{{{PREFERRED}: [{{weight: 20, preference: {{labelSelector: "
        "{matchExpressions: [{key: system, operator: DoesNotExist}]}}}, "
        f"{{weight: 20, preference: {{{CANARY}}}}}, "
        f"{{weight: -20, preference: {{{PROD}}}}}]}}}}}}",
        ["west-1", "west-2"],
    ),
    "any-of-two-terms": (
        "{placementType: PickAll, affinity: {clusterAffinity: "
        f"{{{REQUIRED}: {{clusterSelectorTerms: ["
        "{labelSelector: {matchLabels: {color: blue}}}, "
        "{labelSelector: {matchLabels: {order: '1'}}}]}}}}",
        ["europe-1", "europe-2", "west-1"],
    ),
    "only-where-labelled": (
        "{placementType: PickAll, affinity: {clusterAffinity: "
        f"{{{REQUIRED}: {{clusterSelectorTerms: "
        "[{labelSelector: {matchLabels: {order: '1'}}}]}}}}",
        ["europe-2"],
    ),
    "tolerated": (
        "{placementType: PickN, numberOfClusters: 3, "
        "tolerations: [{key: reserved, operator: Exists}], affinity: {clusterAffinity: "
        f"{{{REQUIRED}: {{clusterSelectorTerms: [{{labelSelector: "
        "{matchExpressions: [{key: taint, operator: Exists}]}}]}}}}",
        ["spare"],
    ),
}


@pytest.mark.parametrize("name", POLICIES)
async def test_policies_pick_the_clusters_that_their_readers_expect(
    site: PlacementSite, name: str
) -> None:
    policy, wanted = POLICIES[name]
    await picked(site, name, policy)
    assert await site.clusters(name) == wanted
    is_full = name != "tolerated"  # three are asked for, and there is one
    assert await site.condition("Scheduled", name) == (
        ("True", "SchedulingPolicyFulfilled")
        if is_full
        else ("False", "SchedulingPolicyUnfulfilled")
    )


async def test_an_override_reaches_into_an_envelope_and_changes_what_a_role_grants(
    site: PlacementSite,
) -> None:
    """By somebody who may escalate it: an administrator, here."""
    await put(
        site,
        """
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourceEnvelope
metadata: {name: sealed-role}
data:
  role.yaml:
    apiVersion: rbac.authorization.k8s.io/v1
    kind: ClusterRole
    metadata: {name: looks-at-pods}
    rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourceOverride
metadata: {name: looks-longer}
spec:
  placement: {name: sealed-role}
  clusterResourceSelectors:
  - {group: rbac.authorization.k8s.io, version: v1, kind: ClusterRole, name: looks-at-pods}
  policy:
    overrideRules:
    - clusterSelector:
        clusterSelectorTerms: [{labelSelector: {matchLabels: {env: canary}}}]
      jsonPatchOverrides: [{op: add, path: /rules/0/verbs/-, value: watch}]
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: sealed-role}
spec:
  resourceSelectors:
  - group: placement.kubernetes-fleet.io
    version: v1beta1
    kind: ClusterResourceEnvelope
    name: sealed-role
  policy: {placementType: PickFixed, clusterNames: [west-1, europe-1]}
""",
    )
    place = ResourcePath(CLUSTER_ROLES, "", "looks-at-pods")
    roles = {each: await until_there(site.members[each], place) for each in ("west-1", "europe-1")}
    verbs = {name: each["rules"][0]["verbs"] for name, each in roles.items()}
    assert verbs == {"west-1": ["get", "list", "watch"], "europe-1": ["get", "list"]}


# Its own files

TREE = os.environ.get("KUBEFLEET_TREE", "")
REFUSED = {
    # KubeFleet's own admission refuses it, too.
    "test-crp1.yaml": "spec.policy.numberOfClusters: Required value: PickN needs a number",
}


@pytest.mark.skipif(not TREE, reason="KUBEFLEET_TREE names no checkout of KubeFleet")
async def test_every_file_of_its_examples_applies(tmp_path: Path) -> None:
    root = Path(TREE) / "examples"
    files = sorted(root.rglob("*.yaml"), key=lambda each: (each.name != "namespace.yaml", each))
    assert files
    refused: dict[str, str] = {}
    number = 0
    async with placement_site(tmp_path) as site:
        for each in ("app", "ops", "team-a", "team-b", "test-ns", "test-namespace"):
            await space(site, each)
        queues = ("clusterqueues", "ClusterQueue"), ("resourceflavors", "ResourceFlavor")
        for plural, kind in (*queues, ("localqueues", "LocalQueue")):
            await put(site, definition(plural, kind, KUEUE))
        # Each folder is a walk of its own, and so are the files beside them: names return.
        for folder in sorted({each.parent for each in files}):
            written: list[ResourcePath] = []
            for file in (each for each in files if each.parent == folder):
                for made in read(await asyncio.to_thread(file.read_text)):
                    number += 1
                    path = collection_of(made)
                    name = made["metadata"].get("name")
                    try:
                        if name is None:
                            stored = await site.hub.create(path, made)
                        else:
                            options = WriteOptions(field_manager="kubectl", force=True)
                            stored = await site.hub.apply(path.named(name), made, options)
                    except Invalid as error:
                        refused[str(file.relative_to(root))] = error.message
                        continue
                    written.append(path.named(name_of(stored)))
            for path in reversed(written):
                await delete(site.hub, path)
    assert number >= 43
    assert refused.keys() == REFUSED.keys()
    for file, why in REFUSED.items():
        assert why in refused[file]
