"""A stand-in for KubeFleet's member agent: the requests it makes, and no more of what it is.

Verbs, subresources, the finalizer, marks and conditions are those of the agent of KubeFleet 0.3: it
lists and watches in its namespace alone, writes a Work whole for its finalizer, statuses whole by
their subresource, and on the member creates, merges and deletes with a manager of its own.
"""

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from tests.component.invited_members import Invited, running

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.crds import definitions
from clusterspace.apis.differences import differences_between
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.member_clusters import (
    FLEET_WORK_FINALIZER,
    FLEET_WORKS,
    INTERNAL_MEMBER_CLUSTERS,
    member_namespace,
)
from clusterspace.apis.works import identifier_of
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import (
    ClusterClient,
    DeleteOptions,
    PatchType,
    Propagation,
    WriteOptions,
)
from clusterspace.controllers.controller import (
    ControllerManager,
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import ApiError, NotFound
from clusterspace.fleet.membership.manifests import NODES
from clusterspace.fleet.membership.member_clusters.agent import resource_usage
from clusterspace.kube.conditions import FALSE, TRUE, Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    finalizers_of,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_finalizer,
    with_metadata,
    without_finalizer,
)
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource
from clusterspace.kube.times import format_time
from clusterspace.roots.clients import read_pem
from clusterspace.roots.kubeconfigs import kubeconfig_of
from clusterspace.testing.hubs import client_for_test, free_port
from clusterspace.testing.stage import Side

APPLIED_WORKS = GroupVersionResource("placement.kubernetes-fleet.io", "v1beta1", "appliedworks")
DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
LAST_APPLIED = "kubernetes-fleet.io/last-applied-configuration"
MANAGER = WriteOptions(field_manager="work-api-agent")
LOOK_SECONDS = 0.3
"""How often it looks at its objects, which it does not watch; the agent itself takes longer."""


async def install(member: ClusterClient) -> None:
    """Give a member the one kind that the agent needs there, as its chart does."""
    name = f"{APPLIED_WORKS.resource}.{APPLIED_WORKS.group}"
    if await member.find(ResourcePath(DEFINITIONS, name=name)) is None:
        definition = next(each for each in definitions() if name_of(each) == name)
        await member.create(ResourcePath(DEFINITIONS), definition)


@asynccontextmanager
async def kubefleet_agent(
    invited: Invited, member: Side, name: str = "west"
) -> AsyncGenerator[ClusterClient]:
    """Run the stand-in for a member; yields its client of the hub, by its own credentials."""
    await install(member.client)
    async with client_for_test(await invited.identity_settings(name)) as hub:
        caches, clock = HubCaches(hub), SystemClock()
        applier = _WorkApplier(hub, caches, member.client, name)
        parts = (_Membership(hub, caches, member.client, name, applier), applier)
        events = EventRecorder(hub, component="member-agent", clock=clock)
        manager = ControllerManager(caches, events, parts, clock=clock, random=Random(1))
        async with running(manager.tasks()):
            yield hub


@asynccontextmanager
async def real_kubefleet_agent(
    invited: Invited, member: Side, directory: Path, name: str = "west"
) -> AsyncGenerator[None]:
    """Run KubeFleet's agent itself; skip, by name, where nobody has it.

    Whoever has it says where in KUBEFLEET_ASSETS, as `memberagent`; it is not part of this project.
    """
    program = Path(os.environ.get("KUBEFLEET_ASSETS", "")) / "memberagent"
    if "KUBEFLEET_ASSETS" not in os.environ or not program.exists():
        pytest.skip("no memberagent: set KUBEFLEET_ASSETS to where KubeFleet's agent is")
    await install(member.client)
    hub, own = await invited.identity_settings(name), member.settings
    token, authority = directory / f"{name}.token", directory / f"{name}.ca"
    token.write_text(hub.identity.token)
    authority.write_bytes(read_pem(hub.trust.authority))
    kubeconfig = directory / f"{name}.agent.kubeconfig"
    trusted = read_pem(own.trust.authority)
    content = kubeconfig_of({"member": own.server}, trusted, own.identity)
    if own.trust.skips_verification:
        content = content.replace(b"server:", b"insecure-skip-tls-verify: true\n    server:")
    kubeconfig.write_bytes(content)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "HUB_SERVER_URL": hub.server,
        "MEMBER_CLUSTER_NAME": name,
        "CONFIG_PATH": str(token),
        "CA_BUNDLE": str(authority),
        "KUBECONFIG": str(kubeconfig),
    }
    served = ("health-probe", "hub-health-probe", "metrics", "hub-metrics")
    ports = [f"--{each}-bind-address=127.0.0.1:{free_port()}" for each in served]
    flags = ("--leader-elect=false", "--v=2", *ports)
    with (directory / f"{name}.memberagent.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, *flags, env=environment, stdin=DEVNULL, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _now() -> float:
    return SystemClock().now()


def _has_new_generation(update: Update) -> bool:
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return True
    return metadata_of(before).get("generation") != metadata_of(after).get("generation")


class _Membership(Reconciler):
    """Joins, beats and leaves, as the InternalMemberCluster says."""

    name = "internalmembercluster-controller"

    def __init__(
        self,
        hub: ClusterClient,
        caches: HubCaches,
        member: ClusterClient,
        cluster_name: str,
        applier: "_WorkApplier",
    ) -> None:
        self._hub = hub
        self._member = member
        self._applier = applier
        namespace = member_namespace(cluster_name)
        self._internals = caches.informer(INTERNAL_MEMBER_CLUSTERS, namespace)

    def watches(self) -> Iterable[Watch]:
        yield Watch(self._internals, when=_has_new_generation)

    async def reconcile(self, request: Request) -> Result:
        internal = self._internals.cache.find(request.key)
        if internal is None:
            return Done()
        generation = int(metadata_of(internal)["generation"])
        path = ResourcePath(INTERNAL_MEMBER_CLUSTERS, request.namespace, request.name)
        status_path = path.with_subresource("status")
        status: Object = dict(internal.get("status") or {})
        entries: list[Object] = status.get("agentStatus") or []
        agent = next((each for each in entries if each["type"] == "MemberAgent"), None)
        agent = agent or {"type": "MemberAgent"}
        conditions: list[Object] = agent.get("conditions") or []
        if find_at(internal, "spec", "state") == "Leave":
            await self._applier.leave()
            left = Condition("Joined", FALSE, "InternalMemberClusterLeft", "", generation)
            conditions = set_condition(conditions, left, _now()).conditions
            status["agentStatus"] = [{**agent, "conditions": conditions}]
            await self._hub.update(status_path, {**internal, "status": status})
            return Done()
        self._applier.is_joined = True
        probe = await self._member.connection.exchange(ApiRequest("GET", "/readyz"))
        is_well = probe.status == 200
        healthy = Condition(
            "Healthy",
            TRUE if is_well else FALSE,
            "InternalMemberClusterHealthy" if is_well else "InternalMemberClusterUnhealthy",
            "",
            generation,
        )
        joined = Condition("Joined", TRUE, "InternalMemberClusterJoined", "", generation)
        for each in (healthy, joined):
            conditions = set_condition(conditions, each, _now()).conditions
        nodes = await self._member.list_objects(ResourcePath(NODES))
        status["resourceUsage"] = resource_usage(nodes, (), _now())
        count = {"value": str(len(nodes)), "observationTime": format_time(_now())}
        status["properties"] = {"kubernetes-fleet.io/node-count": count}
        beat = {"conditions": conditions, "lastReceivedHeartbeat": format_time(_now())}
        status["agentStatus"] = [{**agent, **beat}]
        await self._hub.update(status_path, {**internal, "status": status})
        return RequeueAfter(float(find_at(internal, "spec", "heartbeatPeriodSeconds")))


@dataclass
class _Outcome:
    identifier: Object
    live: Object | None = None
    reason: str = "Applied"
    message: str = ""
    drifts: Sequence[Object] = ()
    diffs: Sequence[Object] = ()

    @property
    def generation(self) -> int:
        return int(metadata_of(self.live or {}).get("generation") or 0)


class _WorkApplier(Reconciler):
    """Applies Works while it is joined, and looks at their objects again and again."""

    name = "work-applier"

    def __init__(
        self, hub: ClusterClient, caches: HubCaches, member: ClusterClient, cluster_name: str
    ) -> None:
        self._hub = hub
        self._member = member
        self._discovery = Discovery(member.connection)
        self._path = ResourcePath(FLEET_WORKS, member_namespace(cluster_name))
        self._works = caches.informer(FLEET_WORKS, self._path.namespace)
        self.is_joined = False

    def watches(self) -> Iterable[Watch]:
        yield Watch(self._works, when=_has_new_generation)

    async def leave(self) -> None:
        """Let go of all Works, and leave what they placed."""
        self.is_joined = False
        for work in await self._hub.list_objects(self._path):
            if FLEET_WORK_FINALIZER in finalizers_of(work):
                freed = without_finalizer(work, FLEET_WORK_FINALIZER)
                await self._hub.update(self._path.named(name_of(work)), freed)

    async def reconcile(self, request: Request) -> Result:
        if not self.is_joined:
            return RequeueAfter(LOOK_SECONDS)
        work = self._works.cache.find(request.key)
        if work is None:
            return Done()
        path, owner = self._path.named(request.name), ResourcePath(APPLIED_WORKS, name=request.name)
        applied_work = await self._member.find(owner)
        if is_being_deleted(work):
            if FLEET_WORK_FINALIZER not in finalizers_of(work):
                return Done()
            if applied_work is not None:
                foreground = DeleteOptions(uid_of(applied_work), propagation=Propagation.FOREGROUND)
                await self._member.delete(owner, foreground)
                return RequeueAfter(LOOK_SECONDS)
            await self._hub.update(path, without_finalizer(work, FLEET_WORK_FINALIZER))
            return Done()
        if FLEET_WORK_FINALIZER not in finalizers_of(work):
            work = await self._hub.update(path, with_finalizer(work, FLEET_WORK_FINALIZER))
        if applied_work is None:
            applied_work = await self._member.create(
                owner.collection,
                {
                    "apiVersion": APPLIED_WORKS.api_version,
                    "kind": "AppliedWork",
                    "metadata": {"name": request.name},
                    "spec": {"workName": request.name, "workNamespace": request.namespace},
                },
            )
        strategy: Object = find_at(work, "spec", "applyStrategy") or {}
        manifests: list[Object] = find_at(work, "spec", "workload", "manifests") or []
        outcomes = [
            await self._carry_out(each, ordinal, strategy, applied_work)
            for ordinal, each in enumerate(manifests)
        ]
        status = _work_status(work, outcomes)
        if status != work.get("status"):
            await self._hub.update(path.with_subresource("status"), {**work, "status": status})
        resources = [
            {**each.identifier, "uid": uid_of(each.live)}
            for each in outcomes
            if each.live is not None and each.reason == "Applied"
        ]
        if resources != find_at(applied_work, "status", "appliedResources"):
            await self._member.update(
                owner.with_subresource("status"),
                {**applied_work, "status": {"appliedResources": resources}},
            )
        return RequeueAfter(LOOK_SECONDS)

    async def _carry_out(
        self, manifest: Object, ordinal: int, strategy: Object, applied_work: Object
    ) -> _Outcome:
        kind = GroupVersionKind.of(str(manifest["apiVersion"]), str(manifest["kind"]))
        plural = (await self._discovery.get_resource(kind)).plural
        resource = GroupVersionResource(kind.group, kind.version, plural)
        identifier = {**identifier_of(manifest, ordinal), "resource": plural}
        path = ResourcePath(resource, namespace_of(manifest), name_of(manifest))
        outcome = _Outcome(identifier)
        owner = {
            "apiVersion": APPLIED_WORKS.api_version,
            "kind": "AppliedWork",
            "name": name_of(applied_work),
            "uid": uid_of(applied_work),
            "blockOwnerDeletion": True,
        }
        text = json.dumps(manifest, sort_keys=True)
        annotations = {**annotations_of(manifest), LAST_APPLIED: text}
        desired = with_metadata(manifest, annotations=annotations, ownerReferences=[owner])
        try:
            live = outcome.live = await self._member.find(path)
            if strategy.get("type") == "ReportDiff":
                outcome.diffs = _differences(live, manifest)
                outcome.reason = "FoundDiff" if outcome.diffs else "NoDiffFound"
                return outcome
            if live is None:
                outcome.live = await self._member.create(path.collection, desired, MANAGER)
                return outcome
            owners: list[Object] = metadata_of(live).get("ownerReferences") or []
            if not any(each["uid"] == owner["uid"] for each in owners):
                if strategy.get("whenToTakeOver") == "Never":
                    outcome.reason, outcome.message = "NotTakenOver", "it is not ours"
                    outcome.live = None
                    return outcome
                outcome.diffs = _differences(live, manifest)
                if strategy.get("whenToTakeOver") == "IfNoDiff" and outcome.diffs:
                    outcome.reason, outcome.message = "FailedToTakeOver", "it differs"
                    return outcome
                outcome.diffs = ()
                live = with_metadata(live, ownerReferences=[*owners, owner])
                live = await self._member.update(path, live, MANAGER)
            drifts = _differences(live, manifest)
            was_applied = annotations_of(live).get(LAST_APPLIED) == text
            if drifts and was_applied and strategy.get("whenToApply") == "IfNotDrifted":
                outcome.reason, outcome.drifts = "FoundDrifts", drifts
                return outcome
            if drifts or not was_applied:
                patch: Object = with_metadata(desired, resourceVersion=resource_version_of(live))
                live = await self._member.patch(path, PatchType.MERGE, patch, MANAGER)
            outcome.live = live
        except (ApiError, NotFound) as error:
            outcome.reason, outcome.message = "ManifestApplyFailed", str(error)
        return outcome


def _differences(live: Object | None, manifest: Object) -> tuple[Object, ...]:
    """Return how the fields of a manifest differ; those it does not have are others'."""
    if live is None:
        return differences_between(kind_of(manifest), None, manifest)
    kept = {key: live.get(key) for key in manifest if key not in ("metadata", "status")}
    bare = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    return differences_between(kind_of(manifest), kept, bare)


def _work_status(work: Object, outcomes: Sequence[_Outcome]) -> Object:
    generation, before = int(metadata_of(work)["generation"]), work.get("status") or {}
    is_compared = find_at(work, "spec", "applyStrategy", "type") == "ReportDiff"
    kind = "DiffReported" if is_compared else "Applied"
    known: list[Object] = before.get("manifestConditions") or []
    entries: list[Object] = []
    for each in outcomes:
        is_done = each.reason in ("Applied", "NoDiffFound", "FoundDiff")
        status = TRUE if is_done else FALSE
        told = [Condition(kind, status, each.reason, each.message, each.generation)]
        if is_done and not is_compared:
            told.append(_available(each))
        last = next((e for e in known if e["identifier"] == each.identifier), {})
        conditions: list[Object] = []
        for condition in told:
            stated = set_condition(last.get("conditions"), condition, _now()).conditions
            conditions += [c for c in stated if c["type"] == condition.type]
        entry: Object = {"identifier": each.identifier, "conditions": conditions}
        for holder, field, details in (
            ("driftDetails", "observedDrifts", each.drifts),
            ("diffDetails", "observedDiffs", each.diffs),
        ):
            if details:
                first = "firstDriftedObservedTime" if each.drifts else "firstDiffedObservedTime"
                seen = {"observationTime": format_time(_now()), first: format_time(_now())}
                generations = {"observedInMemberClusterGeneration": each.generation}
                entry[holder] = {**seen, **generations, field: list(details)}
        if find_at(work, "spec", "reportBackStrategy", "type") == "Mirror" and each.live:
            observed = {key: each.live[key] for key in ("apiVersion", "kind")}
            if each.live.get("status") and not is_compared:
                observed["status"] = each.live["status"]
                seen = {"observationTime": format_time(_now())}
                entry["backReportedStatus"] = {"observedStatus": observed, **seen}
        entries.append(entry)
    is_whole = all(e["conditions"][0]["status"] == TRUE for e in entries)
    summary = Condition(kind, TRUE if is_whole else FALSE, "AllManifestsApplied", "", generation)
    conditions = set_condition(before.get("conditions"), summary, _now()).conditions
    return {"conditions": conditions, "manifestConditions": entries}


def _available(outcome: _Outcome) -> Condition:
    live = outcome.live or {}
    is_there = True
    if live.get("kind") == "Deployment":
        wanted, ready = find_at(live, "spec", "replicas"), find_at(live, "status", "readyReplicas")
        is_there = (ready or 0) >= wanted
    reason = "Available" if is_there else "ManifestNotAvailableYet"
    return Condition("Available", TRUE if is_there else FALSE, reason, "", outcome.generation)
