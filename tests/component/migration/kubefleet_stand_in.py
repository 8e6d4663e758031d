"""A stand-in for KubeFleet's programs: as much of its hub agent and its member agents as is met.

It is written from the shapes that KubeFleet documents, for its own programs are not run here:
placements lead to bindings and Works in `fleet-member-NAME`; an agent applies the manifests of a
Work, owns what it applied by an AppliedWork of that name, deletes it with the Work, and only
looks while the strategy is ReportDiff. What is selected are whole namespaces, names and envelopes.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from clusterspace.apis.crds import definition
from clusterspace.apis.envelopes import contents_of, is_envelope
from clusterspace.apis.fleet_overrides import (
    CLUSTER_OVERRIDES,
    RESOURCE_OVERRIDES,
    apply_rules,
    means,
    rules_for,
)
from clusterspace.apis.fleet_placements import (
    API_VERSION,
    PARENT,
    PARENT_NAMESPACE,
    SCOPES,
    generation_of,
    identity_of,
    key_of_placement,
    parent_labels,
)
from clusterspace.apis.interpreter.templates import pruned
from clusterspace.apis.member_clusters import FLEET_WORK_FINALIZER, FLEET_WORKS
from clusterspace.apis.works import manifests_of
from clusterspace.client.discovery import Discovery, ServedResources
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import (
    Client,
    ClusterClient,
    DeleteOptions,
    Propagation,
    WriteOptions,
)
from clusterspace.controllers.commit import commit
from clusterspace.errors import AlreadyExists, ApiError, ClusterError, NotFound, NotServed
from clusterspace.fleet.migration.kubefleet import APPLIED_WORKS, with_owner
from clusterspace.fleet.propagation.placements.selection import manifest_of, may_be_placed
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_finalizer,
    with_metadata,
    without_finalizer,
)
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.steps import until

AGENT = WriteOptions(field_manager="work-api-agent")
SPEC_HASH = "kubernetes-fleet.io/spec-hash"
LAST_APPLIED = "kubernetes-fleet.io/last-applied-configuration"
DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
ENVELOPE = "kubernetes-fleet.io/envelope-"
"""How labels of Works begin that say of which envelope they are."""


class KubeFleetStandIn:
    """A hub agent, and an agent for each member."""

    def __init__(self, hub: ClusterClient, members: Mapping[str, Client]) -> None:
        self.hub = hub
        self.members = members
        self.silent: set[str] = set()
        """Members whose agents do not run."""
        self.serves: ServedResources | None = None

    async def prepare(self) -> None:
        """Have the namespaces of members on the hub, and AppliedWorks on members."""
        self.serves = await Discovery(self.hub.connection).served()
        applied_works = definition(APPLIED_WORKS.resource, APPLIED_WORKS.group)
        for cluster, member in self.members.items():
            await self.hub.create(ResourcePath(NAMESPACES), namespace(f"fleet-member-{cluster}"))
            with suppress(AlreadyExists):
                await member.create(ResourcePath(DEFINITIONS), applied_works)

            async def served(member: Client = member) -> bool:
                with suppress(NotServed, NotFound):
                    await member.list_objects(ResourcePath(APPLIED_WORKS))
                    return True
                return False

            await until(served)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async def run() -> None:
            while True:
                with suppress(ApiError, ClusterError):  # somebody was faster: at the next look
                    await self.step()
                await asyncio.sleep(0.1)

        task = asyncio.create_task(run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def step(self) -> None:
        for scope in SCOPES:
            for placement in await self.hub.list_objects(ResourcePath(scope.placements)):
                if not is_being_deleted(placement):
                    await self.place(placement)
        works = await self.hub.list_objects(ResourcePath(FLEET_WORKS))
        known = {
            key_of_placement(each)
            for scope in SCOPES
            for each in await self.hub.list_objects(ResourcePath(scope.placements))
        }
        for work in works:
            cluster = namespace_of(work).removeprefix("fleet-member-")
            labels = metadata_of(work).get("labels") or {}
            space = labels.get(PARENT_NAMESPACE)
            key = f"{space}/{labels[PARENT]}" if space else labels[PARENT]
            if key not in known and not is_being_deleted(work):
                await self.hub.delete(_path(work), DeleteOptions(uid_of(work)))
            elif cluster not in self.silent:
                await self.apply(self.members[cluster], work)

    # -- the hub agent ----------------------------------------------------------------------------

    async def place(self, placement: Object) -> None:
        key, scope = key_of_placement(placement), SCOPES[bool(namespace_of(placement))]
        policy: Object = find_at(placement, "spec", "policy") or {}
        count = policy.get("numberOfClusters", len(self.members))
        clusters = policy.get("clusterNames") or sorted(self.members)[:count]
        strategy = find_at(placement, "spec", "strategy", "applyStrategy") or {}
        selected = await self.selected(placement)
        for cluster in clusters:
            suffix = hashlib.sha256(f"{key}{cluster}".encode()).hexdigest()[:8]
            place = ResourcePath(
                scope.bindings, namespace_of(placement), f"{name_of(placement)}-{cluster}-{suffix}"
            )
            spec = {
                "state": "Bound",
                "targetCluster": cluster,
                "resourceSnapshotName": f"{name_of(placement)}-0-snapshot",
                "schedulingPolicySnapshotName": f"{name_of(placement)}-0",
                "clusterDecision": {"clusterName": cluster, "selected": True, "reason": "picked"},
                "applyStrategy": strategy,
            }
            await self.write(place, scope.binding, parent_labels(key), spec)
            stem = f"{namespace_of(placement)}.{name_of(placement)}".lstrip(".")
            plain = [each for each in selected if not is_envelope(each)]
            await self.write_work(f"{stem}-work", cluster, key, plain, strategy, {})
            for each in selected:
                if is_envelope(each):
                    about = {
                        f"{ENVELOPE}work": str(each["kind"]),
                        f"{ENVELOPE}name": name_of(each),
                        f"{ENVELOPE}namespace": namespace_of(each),
                    }
                    inner = list(contents_of(each))
                    name = f"{stem}-envelope-{name_of(each)}"
                    await self.write_work(name, cluster, key, inner, strategy, about)

    async def selected(self, placement: Object) -> list[Object]:
        found: list[Object] = []
        assert self.serves is not None
        for selector in find_at(placement, "spec", "resourceSelectors") or ():
            own = namespace_of(placement)
            kind = GroupVersionKind(selector["group"], selector["version"], selector["kind"])
            info = self.serves.find_kind(kind)
            assert info is not None
            path = ResourcePath(info.group_version_resource, own, selector["name"])
            template = await self.hub.find(path)
            found += [] if template is None else [template]
            if selector["kind"] != "Namespace" or selector.get("selectionScope") == "NamespaceOnly":
                continue
            for each in self.serves.resources:
                skipped = each.plural in ("events", "leases", "pods", "resourceplacements")
                if not each.namespaced or "list" not in each.verbs or skipped:
                    continue
                inside = ResourcePath(each.group_version_resource, selector["name"])
                listed = await self.hub.list_objects(inside)
                ours = (one for one in listed if identity_of(one).version == each.version)
                found += [one for one in ours if may_be_placed(one)]
        kept = [each for each in found if "override" not in str(each["kind"]).lower()]
        return list({identity_of(each): each for each in kept}.values())

    async def write_work(
        self,
        name: str,
        cluster: str,
        key: str,
        templates: list[Object],
        strategy: Object,
        labels: Mapping[str, str],
    ) -> None:
        overrides = [
            each
            for kind in (CLUSTER_OVERRIDES, RESOURCE_OVERRIDES)
            for each in await self.hub.list_objects(ResourcePath(kind))
        ]
        manifests: list[Object] = []
        for template in templates:
            manifest = pruned(manifest_of(template))
            for each in overrides:
                if means(each["spec"], namespace_of(each), identity_of(manifest)):
                    where = {"kubernetes-fleet.io/member-name": cluster, "region": cluster}
                    rules = rules_for(each["spec"], where)
                    manifest = apply_rules(manifest, rules, cluster, where)
            manifests.append(manifest)
        place = ResourcePath(FLEET_WORKS, f"fleet-member-{cluster}", name)
        spec = {"workload": {"manifests": manifests}, "applyStrategy": strategy}
        marks = {**parent_labels(key), **{k: v for k, v in labels.items() if v}}
        await self.write(place, "Work", marks, spec)

    async def write(
        self, place: ResourcePath, kind: str, labels: Mapping[str, str], spec: Object
    ) -> None:
        existing = await self.hub.find(place)
        if existing is None:
            metadata = {"name": place.name, "namespace": place.namespace, "labels": dict(labels)}
            head = {"apiVersion": API_VERSION, "kind": kind}
            await self.hub.create(place.collection, {**head, "metadata": metadata, "spec": spec})
        elif not is_being_deleted(existing) and existing["spec"] != spec:
            await self.hub.update(place, {**existing, "spec": spec})

    # -- the agent of a member --------------------------------------------------------------------

    async def apply(self, member: Client, work: Object) -> None:
        owner_path = ResourcePath(APPLIED_WORKS, name=name_of(work))
        owner = await member.find(owner_path)
        if is_being_deleted(work):
            if owner is not None:
                foreground = DeleteOptions(uid_of(owner), propagation=Propagation.FOREGROUND)
                await member.delete(owner_path, foreground)
            else:
                await self.hub.update(_path(work), without_finalizer(work, FLEET_WORK_FINALIZER))
            return
        if with_finalizer(work, FLEET_WORK_FINALIZER) != work:
            work = await self.hub.update(_path(work), with_finalizer(work, FLEET_WORK_FINALIZER))
        if owner is None:
            spec = {"workName": name_of(work), "workNamespace": namespace_of(work)}
            head: Object = {"apiVersion": API_VERSION, "kind": "AppliedWork"}
            made = {**head, "metadata": {"name": name_of(work)}, "spec": spec}
            owner = await member.create(owner_path.collection, made)
        strategy: Object = find_at(work, "spec", "applyStrategy") or {}
        looks = strategy.get("type") == "ReportDiff"
        for manifest in manifests_of(work):
            assert self.serves is not None
            info = self.serves.find_kind(identity_of(manifest).group_version_kind)
            assert info is not None
            path = ResourcePath(
                info.group_version_resource, namespace_of(manifest), name_of(manifest)
            )
            live = await member.find(path)
            is_ours = live is not None and with_owner(live, owner) is live
            if live is not None and not is_ours and strategy.get("whenToTakeOver") != "Never":
                live = await member.update(path, with_owner(live, owner), AGENT)
                is_ours = True
            if looks or (live is not None and not is_ours):
                continue
            text = msgspec.json.encode(manifest).decode()
            digest = hashlib.sha256(text.encode()).hexdigest()
            marks = {**annotations_of(manifest), SPEC_HASH: digest, LAST_APPLIED: text}
            if live is None:
                desired = with_owner(with_metadata(manifest, annotations=marks), owner)
                await member.create(path.collection, desired, AGENT)
            elif live.get("data") != manifest.get("data") or any(
                annotations_of(live).get(key) != value for key, value in marks.items()
            ):
                content = {k: v for k, v in manifest.items() if k != "metadata"}
                desired = with_metadata(
                    {**live, **content}, annotations={**annotations_of(live), **marks}
                )
                await member.update(path, desired, AGENT)
        kind = "DiffReported" if looks else "Applied"
        told = next(iter(find_at(work, "status", "conditions") or ()), {})
        if (told.get("type"), told.get("observedGeneration")) != (kind, generation_of(work)):
            condition: dict[str, Any] = {
                "type": kind,
                "status": "True",
                "reason": kind,
                "message": "",
                "observedGeneration": generation_of(work),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            status = {"conditions": [condition], "manifestConditions": []}
            await commit(self.hub, _path(work), work, {**work, "status": status})


def _path(work: Object) -> ResourcePath:
    return ResourcePath(FLEET_WORKS, namespace_of(work), name_of(work))
