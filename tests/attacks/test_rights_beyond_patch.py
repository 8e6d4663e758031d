"""Who may patch an object wants what a patch does not give: a member's rights, or its end."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.tenant_fleet import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, RBAC
from tests.component.invited_members import member_cluster
from tests.flows.stages import edit

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.fleet_overrides import (
    CLUSTER_OVERRIDES,
    CLUSTER_SNAPSHOTS,
    apply_rules,
    roles_granted_by,
)
from clusterspace.apis.fleet_placements import API_VERSION, GROUP, RESOURCE_SNAPSHOTS
from clusterspace.apis.member_clusters import AGENT, KUBEFLEET, MEMBER_CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import Forbidden, Invalid, OverrideFailed
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map
from clusterspace.testing.hubs import client_for_test, hub_for_test

MALLORY = "mallory"
ITSELF = {"kind": "User", "name": MALLORY, "apiGroup": RBAC}
EDITS = ("get", "list", "create", "update", "patch")
WEST = ResourcePath(MEMBER_CLUSTERS, name="west")
NOBODY = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "no-such-owner"}
CLUSTER: Object = {
    "apiVersion": CLUSTERS.api_version,
    "kind": "Cluster",
    "metadata": {"name": "east", "finalizers": ["attacks.test/kept"]},
    "spec": {"syncMode": "Pull", "id": "east"},
}


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
        await self.admin.create(ResourcePath(CLUSTER_ROLES), role)
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": MALLORY}
        binding = {**made, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": [ITSELF]}
        await self.admin.create(ResourcePath(CLUSTER_ROLE_BINDINGS), binding)
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


# Who carries out the Works of a cluster


@pytest.mark.parametrize("was", [None, KUBEFLEET], ids=["ours", "KubeFleet's"])
async def test_who_may_patch_clusters_does_not_say_whose_agent_works_there(
    hub: Hub, was: str | None
) -> None:
    """Our agent would stop, and what is placed would lie where nobody takes it from."""
    place = ResourcePath(CLUSTERS, name="east")
    annotations = {AGENT: was} if was else None
    await hub.admin.create(place.collection, with_metadata(CLUSTER, annotations=annotations))
    other = None if was else {AGENT: KUBEFLEET}
    async with hub.seen_by(rule(CLUSTERS.group, "clusters")) as attacker:
        with pytest.raises(Forbidden, match='cannot update resource "clusters/credentials"'):
            await edit(attacker, place, lambda held: with_metadata(held, annotations=other))
        await edit(attacker, place, lambda held: with_metadata(held, labels={"a": "b"}))

    assert annotations_of(await hub.admin.get(place)).get(AGENT) == was


# The end of an object, by an owner that is not there


@pytest.mark.parametrize(
    ("resource", "made"),
    [(CLUSTERS, CLUSTER), (CONFIG_MAPS, config_map("kept", finalizers=["attacks.test/kept"]))],
    ids=["Cluster", "ConfigMap"],
)
async def test_who_may_not_delete_an_object_gives_it_no_owner(
    hub: Hub, resource: GroupVersionResource, made: Object
) -> None:
    place = ResourcePath(resource, namespace_of(made), name_of(made))
    await hub.admin.create(place.collection, made)
    async with hub.seen_by(rule(resource.group, resource.resource)) as attacker:
        with pytest.raises(Forbidden, match=f'cannot delete resource "{resource.resource}"'):
            await edit(attacker, place, owned)
        await edit(attacker, place, lambda held: with_metadata(held, labels={"a": "b"}))

    assert find_at(await hub.admin.get(place), "metadata", "deletionTimestamp") is None


async def test_who_may_not_delete_an_object_takes_no_owner_from_it(hub: Hub) -> None:
    """What its owner would take along must not stay because somebody who may patch says so."""
    namespace = await hub.admin.get(ResourcePath(NAMESPACES, name="default"))
    owner = {**NOBODY, "name": "default", "uid": uid_of(namespace)}
    place = ResourcePath(CONFIG_MAPS, "default", "owned")
    await hub.admin.create(place.collection, config_map("owned", ownerReferences=[owner]))
    async with hub.seen_by(rule("", "configmaps")) as attacker:
        with pytest.raises(Forbidden, match="ownerReferences says when"):
            await edit(attacker, place, lambda held: with_metadata(held, ownerReferences=None))
        await edit(attacker, place, lambda held: {**held, "data": {"still": "editable"}})


async def test_who_may_delete_an_object_gives_it_owners(hub: Hub) -> None:
    place = ResourcePath(CONFIG_MAPS, "default", "own")
    await hub.admin.create(place.collection, config_map("own"))
    async with hub.seen_by(rule("", "configmaps", verbs=(*EDITS, "delete"))) as author:
        held = await edit(author, place, owned)

    assert held["metadata"]["ownerReferences"] == [NOBODY]


def owned(held: Object) -> Object:
    return with_metadata(held, ownerReferences=[NOBODY])


@pytest.mark.parametrize("is_in_snapshot", [False, True])
async def test_an_envelope_grants_nothing_on_members_that_its_author_does_not_hold(
    hub: Hub, is_in_snapshot: bool
) -> None:
    role: Object = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "everything"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    }
    envelopes = GroupVersionResource(GROUP, "v1beta1", "clusterresourceenvelopes")
    made: Object = {
        "apiVersion": API_VERSION,
        "kind": "ClusterResourceEnvelope",
        "metadata": {"name": "sealed"},
        "data": {"role.yaml": role},
    }
    resource = envelopes
    if is_in_snapshot:
        resource = RESOURCE_SNAPSHOTS
        kind, spec = "ClusterResourceSnapshot", {"selectedResources": [made]}
        made = {**made, "kind": kind, "spec": spec}
        del made["data"]
    rights = rule(GROUP, resource.resource, "clusterresourcesnapshots/contents")
    async with hub.seen_by(rights) as mallory:
        with pytest.raises(Forbidden, match="grants rights"):
            await mallory.create(ResourcePath(resource), made)


EVERY: Object = {"clusterSelectorTerms": []}


def override_of_rules(kind: str = "ClusterResourceOverride", **spec: Any) -> Object:
    selected: Object = {"group": RBAC, "version": "v1", "kind": "ClusterRole", "name": "reader"}
    patch: Object = {"op": "add", "path": "/rules/0/verbs/-", "value": "watch"}
    changes: Object = {
        "clusterResourceSelectors": [selected],
        "policy": {"overrideRules": [{"clusterSelector": EVERY, "jsonPatchOverrides": [patch]}]},
        **spec,
    }
    is_snapshot = kind.endswith("Snapshot")
    hashed: Object = {"overrideSpec": changes, "overrideHash": "AA=="}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": "more-verbs"},
        "spec": hashed if is_snapshot else changes,
    }


OVERRIDES = {
    "ClusterResourceOverride": CLUSTER_OVERRIDES,
    "ClusterResourceOverrideSnapshot": CLUSTER_SNAPSHOTS,
}


@pytest.mark.parametrize("kind", OVERRIDES)
async def test_who_overrides_what_a_role_grants_may_escalate_that_role(hub: Hub, kind: str) -> None:
    resource = OVERRIDES[kind]
    made = override_of_rules(kind)
    place = ResourcePath(resource, "", "more-verbs")
    writes = rule(GROUP, resource.resource, verbs=(*EDITS, "create", "delete"))
    roles = rule(RBAC, "clusterroles", verbs=(*EDITS, "create"))
    other = {**rule(RBAC, "clusterroles", verbs=("escalate",)), "resourceNames": ["other"]}
    async with hub.seen_by(writes, roles, other) as mallory:
        with pytest.raises(Forbidden, match='cannot escalate resource "clusterroles"'):
            await mallory.create(place.collection, made)
        label: Object = {"op": "add", "path": "/metadata/labels", "value": {"team": "web"}}
        rules = [{"clusterSelector": EVERY, "jsonPatchOverrides": [label]}]
        harmless = with_value(made, rules, *PATHS[kind], "policy", "overrideRules")
        await mallory.create(place.collection, harmless)
        with pytest.raises(Forbidden, match="would change what ClusterRole reader grants"):
            await edit(mallory, place, lambda held: {**held, "spec": made["spec"]})


@pytest.mark.parametrize("kind", OVERRIDES)
async def test_who_may_escalate_a_role_overrides_what_it_grants(hub: Hub, kind: str) -> None:
    own = {**rule(RBAC, "clusterroles", verbs=("escalate",)), "resourceNames": ["reader"]}
    async with hub.seen_by(rule(GROUP, OVERRIDES[kind].resource), own) as author:
        await author.create(ResourcePath(OVERRIDES[kind]), override_of_rules(kind))


PATHS = {
    "ClusterResourceOverride": ("spec",),
    "ClusterResourceOverrideSnapshot": ("spec", "overrideSpec"),
}


@pytest.mark.parametrize("path", ["/roleRef/name", "/subjects", "/aggregationRule", "/RULES"])
async def test_nobody_overrides_whom_a_role_is_for(hub: Hub, path: str) -> None:
    """Not even who may do everything: what only rights on the object itself can say."""
    patch: Object = {"op": "replace", "path": path, "value": "root"}
    rules = [{"clusterSelector": EVERY, "jsonPatchOverrides": [patch]}]
    made = override_of_rules(policy={"overrideRules": rules})
    if path == "/RULES":
        role: Object = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "rules": []}
        with pytest.raises(OverrideFailed, match="what is granted"):
            apply_rules({**role, "RULES": 1}, rules, "west", {}, may_change_rules=True)
        return
    with pytest.raises(Invalid, match="says what an RBAC object grants"):
        await hub.admin.create(ResourcePath(CLUSTER_OVERRIDES), made)


def test_what_is_in_a_selected_namespace_keeps_what_it_grants() -> None:
    """Its roles are not named, so nobody was asked for the right to change them."""
    selected: Object = {"group": "", "version": "v1", "kind": "Namespace", "name": "app"}
    made = override_of_rules(clusterResourceSelectors=[selected])
    assert roles_granted_by(made["spec"]) == ()
    role: Object = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": "reader", "namespace": "app"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    rules = made["spec"]["policy"]["overrideRules"]
    with pytest.raises(OverrideFailed, match="what is granted"):
        apply_rules(role, rules, "west", {})
