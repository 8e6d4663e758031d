"""An override changes what an object says, never which object it is, whose it is or what it grants.

The attacker may write ConfigMaps, PropagationPolicies and OverridePolicies in one namespace. With
an override of `/kind`, `/apiVersion` and `/roleRef` a ConfigMap once became a ClusterRoleBinding to
cluster-admin on the member.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.attacks.tenant_fleet import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MALLORY,
    MEMBER,
    RBAC,
    ROLES,
    TENANT,
    TenantFleet,
    overrides_of,
    place_of_binding,
    policy_for,
    rule,
    tenant_fleet,
)
from tests.attacks.tenant_fleet import binding_of as hand_written
from tests.flows.stages import edit

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.errors import Forbidden, Invalid
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    with_value,
)
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
ATTACK = [
    {"path": "/kind", "operator": "replace", "value": "ClusterRoleBinding"},
    {"path": "/apiVersion", "operator": "replace", "value": f"{RBAC}/v1"},
    {"path": "/roleRef", "operator": "add", "value": ROOT},
    {"path": "/subjects", "operator": "add", "value": [{"kind": "User", "name": MALLORY}]},
    {"path": "/data", "operator": "remove"},
    {"path": "/metadata/namespace", "operator": "remove"},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TenantFleet]:
    rights = (
        rule("", ["configmaps"]),
        rule("policy.karmada.io", ["propagationpolicies", "overridepolicies"]),
    )
    async with tenant_fleet(tmp_path_factory.mktemp("fleet"), *rights) as running:
        yield running


async def place(site: TenantFleet, template: Object) -> Object:
    """Have the tenant place a ConfigMap of their own; return it as the hub has it."""
    held = await site.tenant.create(ResourcePath(CONFIG_MAPS, TENANT), template)
    await site.tenant.create(ResourcePath(PROPAGATION_POLICIES, TENANT), policy_for(held))
    return held


async def is_on_member(site: TenantFleet, name: str) -> bool:
    found = (
        await site.member.find(ResourcePath(CLUSTER_ROLE_BINDINGS, name=name)),
        await site.member.find(ResourcePath(CONFIG_MAPS, TENANT, name)),
    )
    return any(each is not None for each in found)


async def test_a_tenant_cannot_write_an_override_that_makes_another_object(
    site: TenantFleet,
) -> None:
    template = config_map("written", namespace=TENANT)
    wanted = overrides_of(template, plaintext=ATTACK)

    with pytest.raises(Invalid) as refused:
        await site.tenant.create(ResourcePath(OVERRIDE_POLICIES, TENANT), wanted)

    place = "spec.overrideRules[0].overriders.plaintext"
    assert refused.value.details is not None
    assert {each.field for each in refused.value.details.causes} == {
        f"{place}[{index}].path" for index in (0, 1, 5)
    }


async def test_an_override_that_was_stored_before_places_nothing_and_the_binding_says_so(
    site: TenantFleet,
) -> None:
    template = config_map("stored", namespace=TENANT)
    await site.store(OVERRIDE_POLICIES, overrides_of(template, plaintext=ATTACK))
    held = await place(site, template)

    told = await site.until_refused(place_of_binding(hand_written(held)))

    assert told["reason"] == "ApplyOverridePolicyFailed"
    assert f"{MEMBER}: override policy stored: plaintext[0]: " in told["message"]
    assert "'ClusterRoleBinding' of /kind" in told["message"]
    for about in ("stored", "stored-configmap"):
        assert await site.until_event("ApplyOverridePolicyFailed", about)
    assert not await is_on_member(site, "stored")


async def test_what_is_placed_stays_as_it_was_when_an_override_is_refused(
    site: TenantFleet,
) -> None:
    held = await place(site, config_map("kept", {"a": "b"}, namespace=TENANT))
    on_member = ResourcePath(CONFIG_MAPS, TENANT, "kept")
    before = await site.until_on_member(on_member)

    await site.store(OVERRIDE_POLICIES, overrides_of(held, plaintext=ATTACK))
    await site.until_refused(place_of_binding(hand_written(held)))

    assert await site.member.get(on_member) == before
    assert await site.member.find(ResourcePath(CLUSTER_ROLE_BINDINGS, name="kept")) is None


async def test_an_override_that_keeps_to_its_object_is_made(site: TenantFleet) -> None:
    template = config_map("honest", {"a": "b"}, namespace=TENANT)
    change = [
        {"path": "/data/a", "operator": "replace", "value": "c"},
        {"path": "/metadata/annotations", "operator": "add", "value": {"where": "here"}},
    ]
    wanted = overrides_of(template, plaintext=change)
    await site.tenant.create(ResourcePath(OVERRIDE_POLICIES, TENANT), wanted)
    await place(site, template)

    placed = await site.until_on_member(ResourcePath(CONFIG_MAPS, TENANT, "honest"))

    assert (placed["data"], annotations_of(placed)["where"]) == ({"a": "c"}, "here")


async def test_no_override_decides_what_becomes_of_an_object_in_the_way(
    site: TenantFleet,
) -> None:
    """The template says abort, the policy overwrite; an override takes the annotations away."""
    in_the_way = config_map("in-the-way", {"whose": "the member's"}, namespace=TENANT)
    where = ResourcePath(CONFIG_MAPS, TENANT, "in-the-way")

    async def has_namespace() -> Object | None:
        return await site.member.find(ResourcePath(NAMESPACES, name=TENANT))

    await until(has_namespace)
    await site.member.create(where.collection, in_the_way)
    asks = {stamps.CONFLICT_RESOLUTION: "abort"}
    template = config_map("in-the-way", {"whose": "ours"}, namespace=TENANT, annotations=asks)
    away = [{"path": "/metadata/annotations", "operator": "remove"}]
    await site.tenant.create(
        ResourcePath(OVERRIDE_POLICIES, TENANT), overrides_of(template, plaintext=away)
    )
    held = await site.tenant.create(where.collection, template)
    policy = with_value(policy_for(held), "Overwrite", "spec", "conflictResolution")
    await site.tenant.create(ResourcePath(PROPAGATION_POLICIES, TENANT), policy)

    async def judged() -> Object | None:
        return await site.condition(place_of_binding(hand_written(held)), "FullyApplied")

    told = await until(judged)

    assert told["status"] == "False"
    assert (await site.member.get(where))["data"] == {"whose": "the member's"}


# Works, which are orders to a member


def cluster_role_binding(name: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": ROOT,
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": MALLORY}],
    }


SPACE = execution_namespace(MEMBER)


def work_with(*manifests: Object, name: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": name, "namespace": SPACE, **metadata},
        "spec": {"workload": {"manifests": list(manifests)}},
    }


async def test_who_writes_works_grants_no_more_on_a_member_than_they_hold(
    site: TenantFleet,
) -> None:
    works = ResourcePath(WORKS, SPACE)
    await site.grant(rule("work.karmada.io", ["works"]), namespace=SPACE)
    harmless = config_map("from-work", namespace=TENANT)

    await site.tenant.create(works, work_with(harmless, name="harmless"))
    with pytest.raises(Forbidden, match="grants rights"):
        await site.tenant.create(works, work_with(cluster_role_binding("root"), name="root"))

    def smuggle(held: Object) -> Object:
        smuggled = [*manifests_of(held), cluster_role_binding("root")]
        return with_value(held, smuggled, "spec", "workload", "manifests")

    with pytest.raises(Forbidden, match="grants rights"):
        await edit(site.tenant, works.named("harmless"), smuggle)

    unknown = {**cluster_role_binding("odd"), "roleRef": {**ROOT, "name": "only-on-the-member"}}
    with pytest.raises(Forbidden, match="grants rights"):
        await site.tenant.create(works, work_with(unknown, name="odd"))
    assert await site.member.find(ResourcePath(CLUSTER_ROLE_BINDINGS, name="root")) is None


async def test_a_role_within_ones_own_rights_may_be_in_a_work(site: TenantFleet) -> None:
    await site.grant(rule("work.karmada.io", ["works"]), namespace=SPACE)
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": "own", "namespace": TENANT},
        "rules": [rule("", ["configmaps"], ["get"])],
    }

    await site.tenant.create(ResourcePath(WORKS, SPACE), work_with(role, name="own-role"))

    assert await site.until_on_member(ResourcePath(ROLES, TENANT, "own"))


@pytest.mark.parametrize(
    ("manifest", "resource"),
    [
        (cluster_role_binding("smuggled"), CLUSTER_ROLE_BINDINGS),
        (config_map("smuggled", namespace="default"), CONFIG_MAPS),
    ],
    ids=["without a namespace", "in another namespace"],
)
async def test_a_work_of_a_namespaced_binding_stays_in_that_namespace(
    site: TenantFleet, manifest: Object, resource: Any
) -> None:
    name = f"of-binding-{manifest['kind'].lower()}"
    source = {stamps.BINDING_NAMESPACE: TENANT, stamps.BINDING_NAME: "web-configmap"}
    work = work_with(manifest, name=name, annotations=source)
    where = ResourcePath(WORKS, SPACE, name)
    await site.hub.create(where.collection, work)

    async def applied() -> Object | None:
        held = find_at(await site.hub.get(where), "status", "conditions")
        return find_condition(held, "Applied")

    async def said() -> Object | None:
        return await applied() or await site.member.find(resource_path_of(resource, manifest))

    await until(said)

    told = await applied()
    assert told is not None
    assert told["status"] == "False"
    assert f"its binding is of namespace {TENANT}" in told["message"]
    assert await site.member.find(resource_path_of(resource, manifest)) is None


async def test_the_hubs_own_roles_still_reach_the_members(site: TenantFleet) -> None:
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "fleet-reader"},
        "rules": [rule("", ["pods"], ["get"])],
    }
    await site.hub.create(ResourcePath(CLUSTER_ROLES), role)
    policy = with_value(
        {**policy_for(role), "kind": "ClusterPropagationPolicy", "metadata": {"name": "roles"}},
        [{"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "name": "fleet-reader"}],
        "spec",
        "resourceSelectors",
    )
    await site.hub.create(ResourcePath(CLUSTER_PROPAGATION_POLICIES), policy)

    placed = await site.until_on_member(ResourcePath(CLUSTER_ROLES, name="fleet-reader"))

    assert name_of(placed) == "fleet-reader"
