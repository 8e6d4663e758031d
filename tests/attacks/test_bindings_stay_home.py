"""A binding carries objects of its own namespace; the hub's own and its credentials never leave.

The attacker may write bindings, policies and workloads in one namespace. With a ResourceBinding
written by hand whose `spec.resource` named a Secret of `karmada-cluster`, or of another tenant,
that Secret once arrived on a member.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from tests.attacks.tenant_fleet import (
    MEMBER,
    TENANT,
    VICTIM,
    TenantFleet,
    binding_of,
    make_namespace,
    place_of_binding,
    policy_for,
    rule,
    secret,
    tenant_fleet,
)
from tests.flows.stages import edit

from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, execution_namespace
from clusterspace.apis.fleet_placements import MANIFEST_HASHES, PARENT, PLACEMENTS
from clusterspace.apis.policies import CLUSTER_PROPAGATION_POLICIES, PROPAGATION_POLICIES
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.errors import AlreadyExists, Forbidden, Invalid
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    SECRETS,
    config_map,
    deployment,
)
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORBIDDEN = "PropagationForbidden"
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
BOOTSTRAP_TOKEN = "bootstrap.kubernetes.io/token"
OWN_NAMESPACES = (
    "karmada-cluster",
    "karmada-system",
    execution_namespace(MEMBER),
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "fleet-system",
    "fleet-member-west",
)
BINDINGS = ResourcePath(RESOURCE_BINDINGS, TENANT)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TenantFleet]:
    rights = (
        rule("", ["configmaps"]),
        rule("apps", ["deployments"]),
        rule("policy.karmada.io", ["propagationpolicies", "overridepolicies"]),
        rule("work.karmada.io", ["resourcebindings"]),
    )
    async with tenant_fleet(tmp_path_factory.mktemp("fleet"), *rights) as running:
        yield running


async def on_hub(site: TenantFleet, made: Object) -> Object:
    """Have the administrator, or whoever owns the namespace, make an object."""
    resources = {
        "ConfigMap": CONFIG_MAPS,
        "Deployment": DEPLOYMENTS,
        "Namespace": NAMESPACES,
        "Secret": SECRETS,
    }
    place = ResourcePath(resources[made["kind"]], namespace_of(made), name_of(made))
    return await site.hub.find(place) or await site.hub.create(place.collection, made)


async def stored(site: TenantFleet, binding: Object) -> ResourcePath:
    """Put a binding on the hub past admission: an old one, or another API server's."""
    place = place_of_binding(binding)
    label = stamps.BINDING_ID if place.namespace else stamps.CLUSTER_BINDING_ID
    await site.store(place.resource, with_metadata(binding, labels={label: name_of(binding)}))
    return place


async def arrives(site: TenantFleet, template: Object) -> bool:
    """Whether an object of the hub is on the member, by its name or its content."""
    found = await site.member.list_objects(ResourcePath(SECRETS))
    return any(
        name_of(each) == name_of(template) or each.get("data") == template.get("data")
        for each in found
        if each.get("type") != ACCOUNT_TOKEN or labels_of(each).get(stamps.MANAGED)
    )


# The attacker's script


@pytest.mark.parametrize("owner", ["karmada-cluster", VICTIM])
async def test_a_tenant_cannot_bind_somebody_elses_secret(site: TenantFleet, owner: str) -> None:
    coveted = await on_hub(site, secret(f"of-{owner}", owner))

    with pytest.raises(Forbidden, match="may not get that"):
        await site.tenant.create(BINDINGS, binding_of(coveted, inside=TENANT))
    # Nor can anybody else, whatever they may read.
    with pytest.raises(Invalid, match=rf"carries objects of {TENANT}"):
        await site.hub.create(BINDINGS, binding_of(coveted, inside=TENANT))
    assert not await arrives(site, coveted)


async def test_a_tenant_binds_no_secret_as_a_dependency(site: TenantFleet) -> None:
    """Whoever may write workloads may name any Secret in them, and need not be able to read it."""
    coveted = await on_hub(site, secret("coveted-need", TENANT, data={"g": "Zw=="}))
    template = with_value(
        deployment("covets", namespace=TENANT),
        [{"name": "s", "secret": {"secretName": name_of(coveted)}}],
        "spec", "template", "spec", "volumes",
    )  # fmt: skip
    held = await site.tenant.create(ResourcePath(DEPLOYMENTS, TENANT), template)
    place = place_of_binding(binding_of(held))

    with pytest.raises(Forbidden, match="would place any"):
        await site.tenant.create(BINDINGS, binding_of(held, propagateDeps=True))
    await site.tenant.create(BINDINGS, binding_of(held))
    with pytest.raises(Forbidden, match="would place any"):
        await edit(site.tenant, place, lambda old: with_value(old, True, "spec", "propagateDeps"))

    await site.until_on_member(resource_path_of(DEPLOYMENTS, held))
    assert not await arrives(site, coveted)


async def test_stored_bindings_of_somebody_elses_secrets_are_refused_and_say_so(
    site: TenantFleet,
) -> None:
    owners = (VICTIM, *OWN_NAMESPACES)
    coveted = [await on_hub(site, secret(f"stored-{owner}", owner)) for owner in owners]
    places = [await stored(site, binding_of(each, inside=TENANT)) for each in coveted]

    for held, place in zip(coveted, places, strict=True):
        told = await site.until_refused(place)

        assert told["reason"] == FORBIDDEN
        why = f"{MEMBER}: a ResourceBinding of {TENANT} carries objects of {TENANT}"
        assert why in told["message"]
        assert await site.until_event(FORBIDDEN, place.name)
        assert not await arrives(site, held)


@pytest.mark.parametrize("owner", OWN_NAMESPACES)
async def test_the_hubs_own_namespaces_never_travel_whoever_asks(
    site: TenantFleet, owner: str
) -> None:
    own = await on_hub(site, secret(f"own-{owner}", owner))
    binding = binding_of(own)

    with pytest.raises(Invalid, match="belongs to the control plane"):
        await site.hub.create(ResourcePath(RESOURCE_BINDINGS, owner), binding)
    told = await site.until_refused(await stored(site, binding))

    assert told["reason"] == FORBIDDEN
    assert not await arrives(site, own)


async def test_a_cluster_wide_binding_carries_nothing_out_of_a_namespace(
    site: TenantFleet,
) -> None:
    coveted = await on_hub(site, secret("cluster-wide", VICTIM))
    named = binding_of(coveted, inside="")
    bare = with_value(named, "", "spec", "resource", "namespace")

    for each in (named, bare):
        with pytest.raises(Invalid, match="without a namespace"):
            await site.hub.create(ResourcePath(CLUSTER_RESOURCE_BINDINGS), each)
    told = await site.until_refused(await stored(site, named))

    assert told["reason"] == FORBIDDEN
    assert not await arrives(site, coveted)


async def test_a_namespaced_binding_carries_nothing_without_a_namespace(
    site: TenantFleet,
) -> None:
    victim = await site.hub.get(ResourcePath(NAMESPACES, name=VICTIM))
    reference = {"apiVersion": "v1", "kind": "Namespace", "name": VICTIM, "uid": uid_of(victim)}
    for inside in ("", TENANT):
        binding = binding_of(victim, inside=TENANT)
        wanted = with_value(binding, {**reference, "namespace": inside}, "spec", "resource")
        with pytest.raises(Forbidden):
            await site.tenant.create(BINDINGS, wanted)
        with pytest.raises(Invalid, match=rf"carries objects of {TENANT}"):
            await site.hub.create(BINDINGS, wanted)

        told = await site.until_refused(await stored(site, wanted))

        assert told["reason"] == FORBIDDEN


async def test_what_a_binding_is_about_cannot_be_changed(site: TenantFleet) -> None:
    own = await on_hub(site, config_map("stays", namespace=TENANT))
    coveted = await on_hub(site, config_map("coveted", {"secret": "s"}, namespace=VICTIM))
    held = await site.tenant.create(BINDINGS, binding_of(own))
    place = place_of_binding(held)
    await site.until_on_member(resource_path_of(CONFIG_MAPS, own))

    changes = {
        "namespace": VICTIM,
        "name": "coveted",
        "kind": "Secret",
        "apiVersion": "apps/v1",
    }
    for field, value in changes.items():
        for author in (site.tenant, site.hub):

            def change(present: Object, field: str = field, value: str = value) -> Object:
                return with_value(present, value, "spec", "resource", field)

            with pytest.raises((Invalid, Forbidden), match=r"is immutable|may not get that"):
                await edit(author, place, change)

    def know_again(present: Object) -> Object:
        resource = {**present["spec"]["resource"], "resourceVersion": "1", "uid": "another"}
        return with_value(present, resource, "spec", "resource")

    await edit(site.tenant, place, know_again)
    assert await site.member.find(resource_path_of(CONFIG_MAPS, coveted)) is None


async def test_who_may_not_read_an_object_cannot_have_it_sent_away(site: TenantFleet) -> None:
    unreadable = await on_hub(site, secret("unreadable", TENANT))

    with pytest.raises(Forbidden, match="may not get that"):
        await site.tenant.create(BINDINGS, binding_of(unreadable))
    # Nor one that a policy placed elsewhere, to where they can read it.
    await site.hub.create(BINDINGS, {**binding_of(unreadable, clusters=[])})
    place = place_of_binding(binding_of(unreadable))

    def send_to_member(held: Object) -> Object:
        return with_value(held, [{"name": MEMBER}], "spec", "clusters")

    def send_another_state(held: Object) -> Object:
        return with_metadata(held, annotations={**annotations_of(held), MANIFEST_HASHES: "{}"})

    def send_for_a_placement(held: Object) -> Object:
        return with_metadata(held, labels={**labels_of(held), PARENT: "foreign"})

    for change in (send_to_member, send_another_state, send_for_a_placement):
        with pytest.raises(Forbidden, match="may not get that"):
            await edit(site.tenant, place, change)
    assert not await arrives(site, unreadable)


async def test_an_object_of_ones_own_is_carried(site: TenantFleet) -> None:
    own = await on_hub(site, config_map("own", {"a": "b"}, namespace=TENANT))

    await site.tenant.create(BINDINGS, binding_of(own))

    assert (await site.until_on_member(resource_path_of(CONFIG_MAPS, own)))["data"] == {"a": "b"}


async def test_what_was_placed_before_stays_when_its_binding_is_refused(
    site: TenantFleet,
) -> None:
    """A Secret that became a cluster's credentials is not taken away from where it is."""
    placed = await on_hub(site, secret("became-credentials", TENANT, data={"token": "b2xk"}))
    await site.hub.create(BINDINGS, binding_of(placed))
    where = resource_path_of(SECRETS, placed)
    before = await site.until_on_member(where)

    await name_as_credentials(site, "decoy", placed)
    changed = {**await site.hub.get(where), "data": {"token": "bmV3"}}
    await site.hub.update(where, changed)
    binding = place_of_binding(binding_of(placed))
    await label(site, binding, "look")

    told = await site.until_refused(binding)
    assert "a cluster's credentials" in told["message"]
    assert await site.member.get(where) == before


async def label(site: TenantFleet, place: ResourcePath, word: str) -> None:
    def labelled(held: Object) -> Object:
        return with_metadata(held, labels={**labels_of(held), word: "again"})

    await edit(site.hub, place, labelled)


async def name_as_credentials(site: TenantFleet, name: str, held: Object) -> None:
    """Make a Cluster that says its credentials are in this Secret, as one from before may say."""
    reference = {"namespace": namespace_of(held), "name": name_of(held)}
    cluster = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"syncMode": "Pull", "id": name, "secretRef": reference},
    }
    await site.store(CLUSTERS, cluster)


# Credentials, by every way there is


@pytest.mark.parametrize("kind", [ACCOUNT_TOKEN, BOOTSTRAP_TOKEN])
async def test_credentials_of_the_hub_never_travel_by_a_binding(
    site: TenantFleet, kind: str
) -> None:
    token = await token_of(site, kind, TENANT)
    await site.hub.create(BINDINGS, binding_of(token))

    told = await site.until_refused(place_of_binding(binding_of(token)))

    assert (told["reason"], "is a credential of the hub" in told["message"]) == (FORBIDDEN, True)
    assert not await arrives(site, token)


async def token_of(site: TenantFleet, kind: str, inside: str) -> Object:
    """Have the hub issue a credential, or hold one, in somebody's namespace."""
    name = f"token-{kind.partition('.')[0]}"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    with suppress(AlreadyExists):
        await site.hub.create(ResourcePath(ACCOUNTS, inside), account)
    wanted = with_metadata(
        secret(name, inside, type=kind, data={}), annotations={ACCOUNT_NAME: "robot"}
    )
    place = ResourcePath(SECRETS, inside, name)
    if kind == BOOTSTRAP_TOKEN:
        return await site.store(SECRETS, {**wanted, "data": {"token-id": "YWJjZGVm"}})
    await site.hub.create(place.collection, wanted)

    async def issued() -> Object | None:
        held = await site.hub.get(place)
        return held if find_at(held, "data", "token") else None

    return await until(issued)


async def test_no_policy_claims_credentials_of_the_hub(site: TenantFleet) -> None:
    inside = "claims"
    await make_namespace(site.hub, inside)
    tokens = [await token_of(site, kind, inside) for kind in (ACCOUNT_TOKEN, BOOTSTRAP_TOKEN)]
    after = await on_hub(site, secret("z-after", inside))
    selector = {"apiVersion": "v1", "kind": "Secret", "namespace": inside}
    policy = with_value(policy_for(after), [selector], "spec", "resourceSelectors")
    await site.hub.create(ResourcePath(PROPAGATION_POLICIES, inside), policy)
    clusterwide = {**policy, "kind": "ClusterPropagationPolicy", "metadata": {"name": "claims"}}
    await site.hub.create(ResourcePath(CLUSTER_PROPAGATION_POLICIES), clusterwide)

    await site.until_on_member(resource_path_of(SECRETS, after))

    # All were seen by the same policies, in the order of their names.
    for token in tokens:
        assert await site.hub.find(place_of_binding(binding_of(token))) is None
        assert not await arrives(site, token)


async def test_credentials_of_the_hub_never_travel_as_a_dependency(site: TenantFleet) -> None:
    await make_namespace(site.hub, "needing")
    token = await token_of(site, ACCOUNT_TOKEN, "needing")
    template = with_value(
        deployment("needs", namespace="needing"),
        [{"name": "token", "secret": {"secretName": name_of(token)}}],
        "spec", "template", "spec", "volumes",
    )  # fmt: skip
    held = await on_hub(site, template)
    policy = with_value(policy_for(held), True, "spec", "propagateDeps")
    await site.hub.create(ResourcePath(PROPAGATION_POLICIES, "needing"), policy)

    told = await site.until_refused(place_of_binding(binding_of(token)))

    assert told["reason"] == FORBIDDEN
    assert await site.until_on_member(resource_path_of(DEPLOYMENTS, held))
    assert not await arrives(site, token)


async def test_credentials_of_the_hub_never_travel_by_a_placement(site: TenantFleet) -> None:
    await make_namespace(site.hub, "placed")
    for kind in (ACCOUNT_TOKEN, BOOTSTRAP_TOKEN):
        await token_of(site, kind, "placed")
    credentials = await on_hub(site, secret("of-a-cluster", "placed", data={"e": "ZQ=="}))
    await name_as_credentials(site, "placed-decoy", credentials)
    beside = await on_hub(site, config_map("beside", namespace="placed"))
    selector = {"group": "", "version": "v1", "kind": "Namespace", "name": "placed"}
    placement = {
        "apiVersion": PLACEMENTS.api_version,
        "kind": "ClusterResourcePlacement",
        "metadata": {"name": "placed"},
        "spec": {
            "resourceSelectors": [selector],
            "policy": {"placementType": "PickFixed", "clusterNames": [MEMBER]},
        },
    }
    await site.hub.create(ResourcePath(PLACEMENTS), placement)

    assert await site.until_on_member(resource_path_of(CONFIG_MAPS, beside))
    told = await site.until_refused(place_of_binding(binding_of(credentials)))

    assert told["reason"] == FORBIDDEN
    found = await site.member.list_objects(ResourcePath(SECRETS, "placed"))
    assert [name_of(each) for each in found if labels_of(each).get(stamps.MANAGED)] == []


# What else a binding makes controllers do


async def test_a_foreign_binding_brings_no_dependencies_and_writes_no_status(
    site: TenantFleet,
) -> None:
    """Controllers would bind what the victim's workload needs, and sum up its status."""
    needed = await on_hub(site, secret("victims-needs", VICTIM, data={"f": "Zg=="}))
    template = with_value(
        deployment("victims", namespace=VICTIM),
        [{"name": "s", "secret": {"secretName": name_of(needed)}}],
        "spec", "template", "spec", "volumes",
    )  # fmt: skip
    victims = await on_hub(site, template)
    place = await stored(site, binding_of(victims, inside=TENANT, propagateDeps=True))

    await site.until_refused(place)
    # An honest one after it: what the distributor does, it has done in order.
    own = await site.tenant.create(
        ResourcePath(DEPLOYMENTS, TENANT),
        with_value(
            deployment("honest", namespace=TENANT),
            [{"name": "c", "configMap": {"name": "honest-needs"}}],
            "spec", "template", "spec", "volumes",
        ),
    )  # fmt: skip
    honest_needs = await on_hub(site, config_map("honest-needs", namespace=TENANT))
    policy = with_value(policy_for(own), True, "spec", "propagateDeps")
    await site.tenant.create(ResourcePath(PROPAGATION_POLICIES, TENANT), policy)
    await site.until_on_member(resource_path_of(CONFIG_MAPS, honest_needs))

    assert await site.hub.find(place_of_binding(binding_of(needed))) is None
    assert not await arrives(site, needed)
    assert find_at(
        await site.hub.get(resource_path_of(DEPLOYMENTS, victims)), "status"
    ) == victims.get("status")


async def test_a_binding_under_anothers_name_is_left_alone_and_named(site: TenantFleet) -> None:
    """Who is first with a binding's name must not have it filled in for them, nor stop others."""
    bait = await on_hub(site, config_map("bait", namespace=TENANT))
    squatting = with_metadata(binding_of(bait), name="later-deployment")
    await site.tenant.create(BINDINGS, squatting)
    later = await on_hub(site, deployment("later", namespace=TENANT))
    await site.tenant.create(ResourcePath(PROPAGATION_POLICIES, TENANT), policy_for(later))

    told = await site.until_event("ApplyPolicyFailed", "later")

    assert "is another object's" in told["message"]
    held = await site.hub.get(BINDINGS.named("later-deployment"))
    assert find_at(held, "spec", "resource", "kind") == "ConfigMap"


async def test_other_tenants_policies_are_not_disturbed(site: TenantFleet) -> None:
    theirs: dict[str, Any] = await on_hub(site, config_map("theirs", {"v": "1"}, namespace=VICTIM))
    await site.hub.create(ResourcePath(PROPAGATION_POLICIES, VICTIM), policy_for(theirs))

    async def is_there() -> bool:
        return await site.member.find(resource_path_of(CONFIG_MAPS, theirs)) is not None

    await until(is_there)
