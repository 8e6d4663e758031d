"""A live cluster as one finds it: thousands of objects of many tools, made up from a seed.

    live = live_cluster(300)
    async with sidecar_injector() as injector:
        await live.load(member.client, injector)
        await live.until_running(member.client)

A namespace is a team, and an application in it has what applications have: accounts, settings,
Secrets, workloads, Services, autoscalers, budgets, Ingresses, policies, roles. One tool made all
of an application, with the marks and the field managers that this tool leaves. Sixty definitions
have objects, and operators own applications through them. Pods are made by the controllers of the
member, simulated or real, and differ from their templates where a webhook adds a sidecar.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

import msgspec

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, PatchType, WriteOptions
from clusterspace.errors import AlreadyExists, ApiError, ClusterTimeout, Conflict, NotServed
from clusterspace.fleet.migration.ownership import OwnerKind
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.live_pods import INJECTED, Injector, run_pods, sidecar
from clusterspace.testing.steps import until

DEFINITIONS: Final = 60
_AT_ONCE: Final = 24
_PATIENCE: Final = 600.0
"""Thousands of pods take their time on a busy machine."""
_MESHED: Final = "mesh.example.com/join"
_APPLICATION: Final = "app.kubernetes.io/name"
_PODS: Final = GroupVersionResource("", "v1", "pods")
_ENDPOINT_SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
_RESOURCES: Final = {
    "Namespace": GroupVersionResource("", "v1", "namespaces"),
    "CustomResourceDefinition": GroupVersionResource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions"
    ),
    "ResourceQuota": GroupVersionResource("", "v1", "resourcequotas"),
    "ServiceAccount": GroupVersionResource("", "v1", "serviceaccounts"),
    "ConfigMap": GroupVersionResource("", "v1", "configmaps"),
    "Secret": GroupVersionResource("", "v1", "secrets"),
    "Role": GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles"),
    "RoleBinding": GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings"),
    "NetworkPolicy": GroupVersionResource("networking.k8s.io", "v1", "networkpolicies"),
    "PodDisruptionBudget": GroupVersionResource("policy", "v1", "poddisruptionbudgets"),
    "Service": GroupVersionResource("", "v1", "services"),
    "Ingress": GroupVersionResource("networking.k8s.io", "v1", "ingresses"),
    "Deployment": GroupVersionResource("apps", "v1", "deployments"),
    "StatefulSet": GroupVersionResource("apps", "v1", "statefulsets"),
    "DaemonSet": GroupVersionResource("apps", "v1", "daemonsets"),
    "CronJob": GroupVersionResource("batch", "v1", "cronjobs"),
    "Job": GroupVersionResource("batch", "v1", "jobs"),
    "HorizontalPodAutoscaler": GroupVersionResource(
        "autoscaling", "v2", "horizontalpodautoscalers"
    ),
}
_WEBHOOKS: Final = GroupVersionResource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"
)
_STAGES: Final = (
    ("Namespace", "CustomResourceDefinition"),
    (),
    ("ResourceQuota", "ServiceAccount"),
    ("ConfigMap", "Secret", "Role", "RoleBinding", "NetworkPolicy", "PodDisruptionBudget"),
    ("Service", "Ingress", "Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job"),
    ("HorizontalPodAutoscaler",),
)
"""What is loaded after what; all that is named nowhere comes in the empty one: custom objects."""
_TOOLS: Final = (
    (OwnerKind.HELM, 30),
    (OwnerKind.ARGO_CD, 14),
    (OwnerKind.FLUX, 10),
    (OwnerKind.OPERATOR, 10),
    (OwnerKind.KUBECTL_APPLY, 14),
    (OwnerKind.KUSTOMIZE, 6),
    (OwnerKind.SERVER_SIDE_APPLY, 6),
    (OwnerKind.UNMANAGED, 10),
)
"""Who made how many of a hundred applications."""
_MANAGERS: Final = {
    OwnerKind.HELM: "helm",
    OwnerKind.ARGO_CD: "argocd-controller",
    OwnerKind.FLUX: "kustomize-controller",
    OwnerKind.OPERATOR: "manager",
    OwnerKind.KUBECTL_APPLY: "kubectl-client-side-apply",
    OwnerKind.KUSTOMIZE: "kubectl-client-side-apply",
    OwnerKind.SERVER_SIDE_APPLY: "platform-team",
    OwnerKind.UNMANAGED: "kubectl-create",
}
_APPLYING: Final = (OwnerKind.ARGO_CD, OwnerKind.FLUX, OwnerKind.SERVER_SIDE_APPLY)


@dataclass(frozen=True, slots=True)
class LiveObject:
    """An object, where it goes, and whose it is."""

    resource: GroupVersionResource
    body: Object
    tool: OwnerKind = OwnerKind.UNMANAGED

    @property
    def path(self) -> ResourcePath:
        """Where it is on the member."""
        return ResourcePath(self.resource, namespace_of(self.body), name_of(self.body))


@dataclass(frozen=True)
class LiveCluster:
    """What is in a cluster before anybody takes it over."""

    objects: tuple[LiveObject, ...]
    _uids: dict[tuple[str, str, str], str] = field(default_factory=dict[tuple[str, str, str], str])

    def of_kind(self, kind: str) -> list[LiveObject]:
        """Return the objects of a kind."""
        return [each for each in self.objects if each.body["kind"] == kind]

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces of the teams."""
        return tuple(name_of(each.body) for each in self.of_kind("Namespace"))

    @property
    def pods(self) -> int:
        """How many pods its workloads ask for, before autoscalers do; DaemonSets count once."""
        return sum(
            int(find_at(each.body, "spec", "replicas") or 1)
            for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job")
            for each in self.of_kind(kind)
        )

    async def load(
        self, member: ClusterClient, injector: "Injector | None" = None, *, runs: bool = True
    ) -> None:
        """Put everything on a member, each object by the hand that made it, in an order that works.

        With an injector, pods of some namespaces get a sidecar that their templates do not have.
        Where pods run, autoscalers come when there is something to measure: they look again only
        after a quarter of a minute.
        """
        if injector is not None:
            await member.create(ResourcePath(_WEBHOOKS), injector.configuration())
        known = {each for stage in _STAGES for each in stage}
        for stage in _STAGES:
            if runs and "HorizontalPodAutoscaler" in stage:
                await self.until_running(member, _PATIENCE, is_over=False)
            chosen = [
                each
                for each in self.objects
                if (each.body["kind"] in stage if stage else each.body["kind"] not in known)
            ]
            await _each(chosen, lambda each: self._put(member, each))
            if "CustomResourceDefinition" in stage:
                await until(lambda: self._is_served(member))
            if "Deployment" in stage:
                # Some platforms change templates and not pods: the sidecar is in the Deployment,
                # and not in the files of whoever made it.
                made = self.of_kind("Deployment")
                meshed = [each for each in made if _MESHED in labels_of(each.body)]
                await _each(meshed, lambda each: _mesh(member, each.path))

    async def _is_served(self, member: ClusterClient) -> bool:
        found = await member.list_objects(ResourcePath(_RESOURCES["CustomResourceDefinition"]))
        return all(is_true(find_at(each, "status", "conditions"), "Established") for each in found)

    async def _put(self, member: ClusterClient, live: LiveObject) -> None:
        body, place = self._with_uids(live.body), live.path
        options = WriteOptions(field_manager=_MANAGERS[live.tool])
        if live.tool in _APPLYING:
            forced = WriteOptions(field_manager=options.field_manager, force=True)
            made = await _patiently(lambda: member.apply(place, body, forced))
        else:
            made = await _patiently(lambda: member.create(place.collection, body, options))
        self._uids[body["kind"], place.namespace, place.name] = uid_of(made)

    def _with_uids(self, body: Object) -> Object:
        """Return the object with the UIDs of its owners, which only the member knows."""
        owners: list[Object] = find_at(body, "metadata", "ownerReferences") or []
        if not owners:
            return body
        space = namespace_of(body)
        named = [{**each, "uid": self._uids[each["kind"], space, each["name"]]} for each in owners]
        return with_metadata(body, ownerReferences=named)

    async def until_running(
        self, member: ClusterClient, seconds: float = 120.0, *, is_over: bool = True
    ) -> None:
        """Wait until every workload has all its pods, and what follows pods has followed.

        `is_over` waits for autoscalers and Jobs as well: from then on nothing happens by itself.
        On a real API server nobody runs the pods but `run`; nothing measures them there, and no Job
        ends.
        """

        async def is_running() -> bool:
            return not await self._lacking(member, is_over=is_over)

        await until(is_running, seconds, explain=lambda: self._lacking(member, is_over=is_over))

    async def run(self, member: ClusterClient, seconds: float = 120.0) -> None:
        """Run the pods of a member on the Node of `add_node`, until nothing more comes of it."""

        async def is_running() -> bool:
            await run_pods(member)
            return not await self._lacking(member, is_over=False)

        await until(is_running, seconds, explain=lambda: self._lacking(member, is_over=False))

    async def _lacking(self, member: ClusterClient, *, is_over: bool) -> list[str]:
        """Return what still waits for something: workloads first, then what follows their pods."""
        lacking: list[str] = []
        try:
            for kind, has_pods in _READINESS.items():
                is_waited_for = is_over or kind != "HorizontalPodAutoscaler"
                for each in await self._mine(member, kind) if is_waited_for else ():
                    is_ended = kind != "Job" or not is_over or _is_complete(each)
                    if not has_pods(each) or not is_ended:
                        lacking.append(f"{kind} {namespace_of(each)}/{name_of(each)}")
            return lacking or await self._behind(member)
        except ClusterTimeout as error:
            return [str(error)]  # busy with what is waited for

    async def _mine(self, member: ClusterClient, kind: str) -> list[Object]:
        """Return the objects of a kind on the member, of those that were put there."""
        mine = {each.path.key for each in self.of_kind(kind)}
        found = await member.list_objects(ResourcePath(_RESOURCES[kind])) if mine else []
        return [each for each in found if f"{namespace_of(each)}/{name_of(each)}" in mine]

    async def _behind(self, member: ClusterClient) -> list[str]:
        """Return what does not know all pods yet, or knows some that are not there any more.

        The controllers of budgets and of endpoints come after those of workloads, and may be
        seconds behind them on a busy machine.
        """
        pods: dict[tuple[str, str], set[str]] = {}
        for pod in await member.list_objects(ResourcePath(_PODS)):
            if is_being_deleted(pod):
                return [f"Pod {namespace_of(pod)}/{name_of(pod)}, which is being deleted"]
            application = namespace_of(pod), labels_of(pod).get(_APPLICATION, "")
            pods.setdefault(application, set()).add(uid_of(pod))
        endpoints: dict[tuple[str, str], set[str]] = {}
        for part in await member.list_objects(ResourcePath(_ENDPOINT_SLICES)):
            service = namespace_of(part), labels_of(part).get("kubernetes.io/service-name", "")
            for each in part.get("endpoints") or ():
                uid = str(find_at(each, "targetRef", "uid"))
                if find_at(each, "conditions", "ready"):
                    endpoints.setdefault(service, set()).add(uid)
        behind: list[str] = []
        for each in await self._mine(member, "Service"):
            application = namespace_of(each), name_of(each)
            if endpoints.get(application, set()) != pods.get(application, set()):
                behind.append(f"Service {'/'.join(application)}")
        for each in await self._mine(member, "PodDisruptionBudget"):
            application = namespace_of(each), name_of(each)
            status: Object = find_at(each, "status") or {}
            counted = {int(status.get(key) or 0) for key in ("currentHealthy", "expectedPods")}
            is_seen = status.get("observedGeneration") == each["metadata"].get("generation")
            if not is_seen or counted != {len(pods.get(application, ()))}:
                behind.append(f"PodDisruptionBudget {'/'.join(application)}")
        return behind

    async def contents(self, member: ClusterClient) -> dict[str, Object]:
        """Return all its objects as they are on a member, but for versions and field managers."""
        found: dict[str, Object] = {}
        resources = dict.fromkeys(each.resource for each in self.objects)
        mine = {(each.resource, each.path.key) for each in self.objects}
        for resource in resources:
            async for page in member.pages(ResourcePath(resource)):
                for item in page.items:
                    if (resource, item.key) in mine:
                        live = with_metadata(
                            item.decode(), resourceVersion=None, managedFields=None
                        )
                        found[f"{resource} {item.key}"] = live
        return found


def _is_complete(job: Object) -> bool:
    return bool(find_at(job, "status", "completionTime"))


def is_rolled_out(workload: Object) -> bool:
    """Whether a Deployment or StatefulSet has all its pods, each of its template as it is now.

    In the middle of a roll-out as many pods as are asked for may be ready, some of them old.
    """
    status: Object = find_at(workload, "status") or {}
    is_seen = status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 1)
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return is_seen and {status.get(each, 0) for each in counts} == {workload["spec"]["replicas"]}


_READINESS: Final[dict[str, Callable[[Object], bool]]] = {
    "Deployment": is_rolled_out,
    "StatefulSet": is_rolled_out,
    "DaemonSet": lambda it: (
        find_at(it, "status", "observedGeneration") is not None
        and find_at(it, "status", "desiredNumberScheduled")
        == (find_at(it, "status", "numberReady") or 0)
    ),
    "Job": lambda it: _is_complete(it) or find_at(it, "status", "ready") == 1,
    "HorizontalPodAutoscaler": lambda it: (
        find_at(it, "status", "desiredReplicas") == find_at(it, "spec", "maxReplicas")
    ),
}


async def _each(chosen: Iterable[LiveObject], do: Callable[[LiveObject], Awaitable[None]]) -> None:
    """Do something about all of these, a few at once."""
    waiting = iter(chosen)

    async def work() -> None:
        for each in waiting:
            await do(each)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())


async def _patiently(write: Callable[[], Awaitable[Object]]) -> Object:
    """Write; wait where a definition is not served yet, or a quota is counted by somebody else."""
    for pause in range(1, 60):
        try:
            return await write()
        except AlreadyExists:
            raise
        except (NotServed, Conflict):
            await asyncio.sleep(0.02 * pause)
        except ApiError as error:
            if error.code not in (403, 404, 429, 500) or pause > 20:
                raise
            await asyncio.sleep(0.02 * pause)
    return await write()


async def _mesh(member: ClusterClient, place: ResourcePath) -> None:
    """Add a sidecar to a template, by a hand that owns nothing else of it."""
    while True:
        live = await member.get(place)
        containers = cast("list[Object]", find_at(live, "spec", "template", "spec", "containers"))
        patch = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version_of(live)},
            {
                "op": "add",
                "path": f"/spec/template/spec/containers/{len(containers)}",
                "value": sidecar("mesh-proxy"),
            },
        ]
        try:
            await member.patch(
                place, PatchType.JSON, patch, WriteOptions(field_manager="mesh-injector")
            )
        except (Conflict, ApiError) as error:
            if error.code not in (409, 422):
                raise
        else:
            return


# -- what is in it ---------------------------------------------------------------------------------


def live_cluster(count: int, seed: int = 1) -> LiveCluster:
    """Return so many objects, the same for the same seed; at least two hundred."""
    if count < 200:
        raise ValueError("a cluster of fewer than 200 objects has not one of everything")
    random = Random(seed)  # noqa: S311 - a choice of objects, not a secret
    definitions = [_definition(number) for number in range(DEFINITIONS)]
    made = [LiveObject(_RESOURCES["CustomResourceDefinition"], each) for each in definitions]
    teams = max(3, count // 90)
    for number in range(teams):
        # Every pod of these costs a call of the webhook.
        made += _team(f"team-{number:03}", random, is_injected=number in (0, 3, 6))
    custom = max(DEFINITIONS, count // 8)
    for number in range(custom):
        definition = definitions[number % DEFINITIONS]
        made.append(_custom_object(definition, f"team-{number % teams:03}", number, random))
    tools = [tool for tool, share in _TOOLS for _ in range(share)]
    number = 0
    while len(made) < count:
        # The first eight applications are of all tools, and so are the first six shapes.
        tool = _TOOLS[number][0] if number < len(_TOOLS) else random.choice(tools)
        shape = _SHAPES[number % len(_SHAPES)]
        if shape == "agent" and number > 30:
            shape = "web"  # each has a pod on every node, and nobody has a hundred of them
        team = f"team-{(number + number // teams) % teams:03}"
        application = _application(team, number, tool, shape, random)
        made += list(application)[: count - len(made)]
        number += 1
    return LiveCluster(tuple(made))


def _definition(number: int) -> Object:
    kind, group = f"Gadget{number:02}", f"g{number % 10}.example.com"
    spec = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "default": 3, "minimum": 1},
            "mode": {"type": "string", "default": "Standard"},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version: Object = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **({"subresources": {"status": {}}} if number % 2 else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadget{number:02}s.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster" if number % 6 == 5 else "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": kind.lower() + "s",
                "singular": kind.lower(),
            },
            "versions": [version],
        },
    }


def _custom_object(definition: Object, team: str, number: int, random: Random) -> LiveObject:
    spec, is_wide = definition["spec"], definition["spec"]["scope"] == "Cluster"
    metadata = {"name": f"gadget-{number}", **({} if is_wide else {"namespace": team})}
    # Half leave out what has a default.
    chosen = {"size": random.randint(1, 9)} if number % 2 else {}
    body: Object = {
        "apiVersion": f"{spec['group']}/v1",
        "kind": spec["names"]["kind"],
        "metadata": metadata,
        "spec": {"tags": {"team": team}, **chosen},
    }
    resource = GroupVersionResource(spec["group"], "v1", spec["names"]["plural"])
    return LiveObject(resource, body)


def _team(team: str, random: Random, *, is_injected: bool) -> Iterator[LiveObject]:
    labels = {"team": team, **({INJECTED: "enabled"} if is_injected else {})}
    space: Object = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": team, "labels": labels},
    }
    yield LiveObject(_RESOURCES["Namespace"], space)
    hard = {
        "count/deployments.apps": "500",
        "pods": "5000",
        "secrets": str(random.randint(5, 9) * 999),
    }
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": team},
        "spec": {"hard": hard},
    }
    yield LiveObject(_RESOURCES["ResourceQuota"], quota)


_SHAPES: Final = ("web", "autoscaled", "database", "nightly", "agent", "migration")


def _application(
    team: str, number: int, tool: OwnerKind, shape: str, random: Random
) -> Iterator[LiveObject]:
    """Return an application with all that belongs to it, made by one tool."""
    name = f"{shape}-{number}"
    owner: LiveObject | None = None
    if tool is OwnerKind.OPERATOR:
        definition = _definition(number % 5)  # those five are in namespaces
        owner = _custom_object(definition, team, 100_000 + number, random)
        yield owner
    for body in _bodies(team, name, shape, random):
        resource = _RESOURCES[body["kind"]]
        yield LiveObject(resource, _marked(body, tool, name, owner, resource.group), tool)


def _bodies(team: str, name: str, shape: str, random: Random) -> Iterator[Object]:
    labels = {_APPLICATION: name}

    def of(api_version: str, kind: str, name: str = name, **parts: Any) -> Object:
        metadata = {"name": name, "namespace": team, "labels": dict(labels)}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}

    secret = base64.b64encode(f"password of {name}".encode()).decode()
    yield of("v1", "ServiceAccount")
    yield of("v1", "ConfigMap", data={"settings.yaml": f"name: {name}\nlevel: {random.random()}\n"})
    yield of("v1", "Secret", data={"password": secret})
    replicas = random.randint(1, 3)
    template = _pod_template(name, labels, shape)
    selector = {"matchLabels": labels}
    rolling: Object = {"replicas": replicas, "selector": selector, "template": template}
    match shape:
        case "database":
            claim: Object = {
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
            more = {"serviceName": name, "volumeClaimTemplates": [claim]}
            yield of("apps/v1", "StatefulSet", spec={**rolling, **more})
        case "agent":
            yield of("apps/v1", "DaemonSet", spec={"selector": selector, "template": template})
        case "nightly":
            job = {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}
            yearly = {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": job}}
            yield of("batch/v1", "CronJob", spec=yearly)
            return
        case "migration":
            once = {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}
            yield of("batch/v1", "Job", spec=once)
            return
        case "autoscaled":
            yield of("apps/v1", "Deployment", spec=rolling)
            yield of("autoscaling/v2", "HorizontalPodAutoscaler", spec=_autoscaling(name, replicas))
        case _:
            web_app = of("apps/v1", "Deployment", spec=rolling)
            if random.random() < 0.3:
                web_app["metadata"]["labels"][_MESHED] = "yes"
            yield web_app
    is_headless = {"clusterIP": "None"} if shape == "database" else {}
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    yield of("v1", "Service", spec={**is_headless, "selector": labels, "ports": ports})
    if random.random() < 0.4:
        yield of("policy/v1", "PodDisruptionBudget", spec={"minAvailable": 1, "selector": selector})
    if random.random() < 0.3:
        backend = {"service": {"name": name, "port": {"number": 80}}}
        path = {"path": "/", "pathType": "Prefix", "backend": backend}
        rule = {"host": f"{name}.{team}.example.com", "http": {"paths": [path]}}
        yield of("networking.k8s.io/v1", "Ingress", spec={"rules": [rule]})
    if random.random() < 0.3:
        policy: Object = {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [{}]}
        yield of("networking.k8s.io/v1", "NetworkPolicy", spec=policy)
    if random.random() < 0.3:
        rights = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
        group = "rbac.authorization.k8s.io"
        yield of(f"{group}/v1", "Role", rules=[rights])
        account = {"kind": "ServiceAccount", "name": name, "namespace": team}
        role = {"apiGroup": group, "kind": "Role", "name": name}
        yield of(f"{group}/v1", "RoleBinding", subjects=[account], roleRef=role)


def _pod_template(name: str, labels: Object, shape: str) -> Object:
    container: Object = {
        "name": "main",
        "image": f"registry.example/{shape}:1.0",
        "envFrom": [{"configMapRef": {"name": name}}],
        "env": [
            {
                "name": "PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": name, "key": "password"}},
            }
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    # A simulated member shows this load: an autoscaler goes up as far as it may, and stays there.
    loaded = {"sim.clusterspace.io/cpu-usage": "100%"} if shape == "autoscaled" else {}
    metadata = {"labels": dict(labels), **({"annotations": loaded} if loaded else {})}
    spec = {"serviceAccountName": name, "containers": [container]}
    return {"metadata": metadata, "spec": spec}


def _autoscaling(name: str, replicas: int) -> Object:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1,
        "maxReplicas": replicas + 1,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }


def _marked(
    body: Object, tool: OwnerKind, application: str, owner: LiveObject | None, group: str
) -> Object:
    """Return the object with the marks that a tool leaves on what it makes."""
    space, name, kind = namespace_of(body), name_of(body), body["kind"]
    labels: dict[str, str] = {**labels_of(body)}
    annotations = {"contact.example.com/on-call": f"{space}@example.com"}
    match tool:
        case OwnerKind.HELM:
            labels |= {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "app-1.2.3"}
            labels |= {"app.kubernetes.io/instance": application}
            annotations |= {"meta.helm.sh/release-name": application}
            annotations |= {"meta.helm.sh/release-namespace": space}
        case OwnerKind.ARGO_CD:
            tracking = f"{application}:{group}/{kind}:{space}/{name}"
            annotations |= {"argocd.argoproj.io/tracking-id": tracking}
        case OwnerKind.FLUX:
            labels |= {"kustomize.toolkit.fluxcd.io/name": application}
            labels |= {"kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
        case OwnerKind.KUSTOMIZE:
            labels |= {"app.kubernetes.io/managed-by": "kustomize-v5.4.0"}
        case _:
            pass
    marked = with_metadata(body, labels=labels, annotations=annotations)
    if tool in (OwnerKind.KUBECTL_APPLY, OwnerKind.KUSTOMIZE):
        text = msgspec.json.encode(marked).decode() + "\n"
        applied = {"kubectl.kubernetes.io/last-applied-configuration": text}
        marked = with_metadata(marked, annotations={**annotations, **applied})
    if owner is not None:
        reference = {
            "apiVersion": owner.body["apiVersion"],
            "kind": owner.body["kind"],
            "name": name_of(owner.body),
            "controller": True,
        }
        marked = with_metadata(marked, ownerReferences=[reference])
    return marked
