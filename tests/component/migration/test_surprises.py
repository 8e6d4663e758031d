"""What happens between plan and end: the member changes, somebody else comes, something refuses."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.component.migration.living import (
    KUBECTL,
    SHOP,
    WEST,
    Site,
    apply_plan,
    living_cluster,
    plan_of,
    token_of_looker,
    undo_plan,
)

from clusterspace.apis import stamps
from clusterspace.apis.migrations import MIGRATIONS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.client.settings import AuthInfo
from clusterspace.errors import CannotMigrate, ClusterUnreachable
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.migration.plan import Allow, MigrationPlan, PlanItem, Verdict
from clusterspace.fleet.migration.planning import PlanRequest, plan_cluster
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
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
    namespace,
)
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import delete, edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

RBAC = "rbac.authorization.k8s.io"
ROLE_BINDINGS = GroupVersionResource(RBAC, "v1", "rolebindings")
WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")
SETTINGS = ResourcePath(CONFIG_MAPS, SHOP, "settings")
EXTRAS = (
    ResourcePath(CONFIG_MAPS, SHOP, "synced"),
    ResourcePath(CONFIG_MAPS, SHOP, "private"),
    ResourcePath(ROLE_BINDINGS, SHOP, "admins"),
)

ADMINS: Object = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "admins", "namespace": SHOP},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "admin"},
    "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "eve"}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def living(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with living_cluster(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(living: Site) -> AsyncIterator[Site]:
    """Lend the site, and have it again as it was before."""
    yield living
    store = MigrationStore(living.hub, "west-1")
    if await living.hub.find(store.path) is not None:
        await undo_plan(living, "west-1")
        await store.forget()
    await delete(living.hub, ResourcePath(NAMESPACES, name=SHOP))
    await until(lambda: _is_gone(living))
    for path in EXTRAS:
        await delete(living.member, path)
    await edit(living.member, SETTINGS, lambda found: with_value(found, {"a": "1"}, "data"))


async def _is_gone(site: Site) -> bool:
    return await site.hub.find(ResourcePath(NAMESPACES, name=SHOP)) is None


def entry(plan: MigrationPlan, title: str) -> PlanItem:
    return next(each for each in plan.spec.items if each.title == title)


def with_entry(plan: MigrationPlan, title: str, **fields: Any) -> MigrationPlan:
    items = tuple(
        msgspec.structs.replace(each, **fields) if each.title == title else each
        for each in plan.spec.items
    )
    return msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, items=items))


async def states(site: Site) -> dict[str, tuple[State, str]]:
    chunk = await MigrationStore(site.hub, "west-1").chunk(0)
    return {each.plan.title: (each.state, each.reason) for each in chunk.items}


async def test_what_others_reconcile_or_the_hub_would_obey_is_not_taken_unasked(
    site: Site,
) -> None:
    tracked = with_metadata(
        config_map("synced", {"a": "1"}, namespace=SHOP),
        annotations={"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:shop/synced"},
    )
    await site.member.create(ResourcePath(CONFIG_MAPS, SHOP), tracked, KUBECTL)
    await site.member.create(ResourcePath(ROLE_BINDINGS, SHOP), ADMINS, KUBECTL)
    opted_out = config_map(
        "private", namespace=SHOP, annotations={stamps.CONFLICT_RESOLUTION: "abort"}
    )
    await site.member.create(ResourcePath(CONFIG_MAPS, SHOP), opted_out, KUBECTL)

    plan = await plan_of(site)

    synced, admins = (
        entry(plan, f"ConfigMap {SHOP}/synced"),
        entry(plan, f"RoleBinding {SHOP}/admins"),
    )
    assert synced.owner is not None
    assert (synced.owner.kind, synced.take) == ("ArgoCD", False)
    assert "allow: [Owner]" in synced.reason
    assert not admins.take
    assert admins.reason.startswith("on the hub it gives the same rights")
    private = entry(plan, f"ConfigMap {SHOP}/private")
    assert (private.verdict, private.take) == (Verdict.REFUSED, False)

    allowed = with_entry(plan, synced.title, take=True, allow=(Allow.OWNER,))
    await apply_plan(site, allowed)

    assert is_managed(await site.member.get(ResourcePath(CONFIG_MAPS, SHOP, "synced")))
    assert await site.hub.find(ResourcePath(ROLE_BINDINGS, SHOP, "admins")) is None
    assert not is_managed(await site.member.get(ResourcePath(CONFIG_MAPS, SHOP, "private")))


async def test_an_object_that_changed_harmlessly_is_judged_again_and_taken(site: Site) -> None:
    plan = await plan_of(site)
    await edit(site.member, SETTINGS, lambda found: with_value(found, "2", "data", "a"))

    await apply_plan(site, plan)

    assert (await site.hub.get(SETTINGS))["data"] == {"a": "2"}
    assert (await site.member.get(SETTINGS))["data"] == {"a": "2"}


async def test_what_somebody_came_to_look_after_since_the_plan_is_not_taken_unasked(
    site: Site,
) -> None:
    plan = await plan_of(site)
    tracked = {"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:shop/settings"}
    await edit(site.member, SETTINGS, lambda found: with_metadata(found, annotations=tracked))

    with pytest.raises(CannotMigrate, match="ArgoCD shop looks after it and would change it back"):
        await apply_plan(site, plan)

    assert not is_managed(await site.member.get(SETTINGS))
    assert await site.hub.find(SETTINGS) is None
    await edit(site.member, SETTINGS, lambda found: with_metadata(found, annotations={}))


async def test_what_is_edited_out_of_an_entry_is_asked_of_what_is_there(site: Site) -> None:
    tracked = with_metadata(
        config_map("synced", {"a": "1"}, namespace=SHOP),
        annotations={"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:shop/synced"},
    )
    await site.member.create(ResourcePath(CONFIG_MAPS, SHOP), tracked, KUBECTL)
    await site.member.create(ResourcePath(ROLE_BINDINGS, SHOP), ADMINS, KUBECTL)
    plan = await plan_of(site)
    # Without its checksum an entry can be read: what was answered then does not count.
    nothing = {"take": True, "reason": "", "checksum": ""}
    edited = with_entry(plan, f"ConfigMap {SHOP}/synced", owner=None, **nothing)
    edited = with_entry(edited, f"RoleBinding {SHOP}/admins", hub_effect="", **nothing)

    await apply_plan(site, edited, goes_on=True)

    found = await states(site)
    assert "`allow: [Owner]`" in found[f"ConfigMap {SHOP}/synced"][1]
    assert "`allow: [HubEffect]`" in found[f"RoleBinding {SHOP}/admins"][1]
    assert not is_managed(await site.member.get(ResourcePath(CONFIG_MAPS, SHOP, "synced")))
    assert await site.hub.find(ResourcePath(ROLE_BINDINGS, SHOP, "admins")) is None


async def test_a_verdict_without_its_checksum_is_asked_for_again(site: Site) -> None:
    opted_out = config_map(
        "private", namespace=SHOP, annotations={stamps.CONFLICT_RESOLUTION: "abort"}
    )
    await site.member.create(ResourcePath(CONFIG_MAPS, SHOP), opted_out, KUBECTL)
    plan = await plan_of(site)
    said = {"take": True, "verdict": Verdict.SAME, "reason": "", "checksum": ""}

    await apply_plan(site, with_entry(plan, f"ConfigMap {SHOP}/private", **said), goes_on=True)

    state, reason = (await states(site))[f"ConfigMap {SHOP}/private"]
    assert (state, "its annotation" in reason) == (State.REFUSED, True)
    assert not is_managed(await site.member.get(ResourcePath(CONFIG_MAPS, SHOP, "private")))


async def test_an_object_that_was_made_anew_since_the_plan_stops_it(site: Site) -> None:
    plan = await plan_of(site)
    await delete(site.member, SETTINGS)
    await site.member.create(
        SETTINGS.collection, config_map("settings", {"a": "9"}, namespace=SHOP), KUBECTL
    )

    with pytest.raises(CannotMigrate, match="stopped at ConfigMap shop/settings") as stopped:
        await apply_plan(site, plan)

    assert "another object of this name is there since the plan was made" in str(stopped.value)
    assert not is_managed(await site.member.get(SETTINGS))
    migration = await site.hub.get(ResourcePath(MIGRATIONS, name="west-1"))
    assert find_at(migration, "status", "phase") == "Stopped"

    counts = await apply_plan(site, plan)

    assert counts == Counter({State.TAKEN: 7, State.REFUSED: 1})
    policy = await site.hub.get(ResourcePath(PROPAGATION_POLICIES, SHOP, "migration-west-1"))
    named = {each["name"] for each in policy["spec"]["resourceSelectors"]}
    assert "settings" not in named
    assert not is_managed(await site.member.get(SETTINGS))


async def test_a_template_of_somebody_else_is_neither_touched_nor_placed(site: Site) -> None:
    plan = await plan_of(site)
    await site.hub.create(ResourcePath(NAMESPACES), namespace(SHOP))
    theirs = await site.hub.create(
        SETTINGS.collection, config_map("settings", {"a": "theirs"}, namespace=SHOP)
    )

    counts = await apply_plan(site, plan, goes_on=True)

    assert counts[State.REFUSED] == 1
    assert (await states(site))["ConfigMap shop/settings"] == (
        State.REFUSED,
        "the hub has an object of this name, which is not touched",
    )
    await settled()
    assert uid_of(await site.hub.get(SETTINGS)) == uid_of(theirs)
    assert (await site.member.get(SETTINGS))["data"] == {"a": "1"}

    await undo_plan(site, "west-1")

    assert (await site.hub.get(SETTINGS))["data"] == {"a": "theirs"}
    assert await site.hub.find(ResourcePath(NAMESPACES, name=SHOP)) is not None


async def test_two_who_apply_one_plan_take_each_object_once(site: Site) -> None:
    plan = await plan_of(site)
    told = await asyncio.gather(
        apply_plan(site, plan, at_once=1), apply_plan(site, plan), return_exceptions=True
    )
    # The commands take turns by a lease; even without one, whoever is second is told of a conflict.
    assert any(isinstance(each, Counter) for each in told), told

    counts = await apply_plan(site, plan)

    assert counts == Counter({State.TAKEN: plan.takes})
    chunk = await MigrationStore(site.hub, "west-1").chunk(0)
    for item in chunk.items:
        assert uid_of(await site.hub.get(item.plan.path)) == item.template_uid


async def test_a_policy_of_the_hub_that_would_claim_an_object_has_it_refused(site: Site) -> None:
    await site.hub.create(ResourcePath(NAMESPACES), namespace(SHOP))
    policy = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "everything", "namespace": SHOP},
        "spec": {
            "priority": 7,
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "placement": {},
        },
    }
    await site.hub.create(ResourcePath(PROPAGATION_POLICIES, SHOP), policy)

    plan = await plan_of(site)

    refused = entry(plan, "ConfigMap shop/settings")
    assert refused.verdict is Verdict.REFUSED
    assert "everything" in refused.reason


async def test_a_scaled_workload_goes_on_being_scaled_and_loses_our_label_in_the_end(
    site: Site,
) -> None:
    plan = await plan_of(site)
    await apply_plan(site, plan)
    assert labels_of(await site.member.get(WEB))[stamps.RETAIN_REPLICAS] == "true"

    scale = WEB.with_subresource("scale")
    autoscaler = WriteOptions(field_manager="autoscaler-of-ours")
    await edit(
        site.member, scale, lambda found: with_value(found, 3, "spec", "replicas"), autoscaler
    )
    await settled()
    assert (await site.member.get(WEB))["spec"]["replicas"] == 3

    await undo_plan(site, "west-1")

    given_back = await site.member.get(WEB)
    assert given_back["spec"]["replicas"] == 3
    assert stamps.RETAIN_REPLICAS not in labels_of(given_back)


async def test_undo_can_restore_what_was_changed_through_the_hub(site: Site) -> None:
    plan = await plan_of(site)
    await apply_plan(site, plan)
    await edit(site.hub, SETTINGS, lambda found: with_value(found, "2", "data", "a"))
    await until(lambda: _has_data(site, {"a": "2"}))

    await undo_plan(site, "west-1", restores=True)

    restored = await site.member.get(SETTINGS)
    assert restored["data"] == {"a": "1"}
    assert stamps.MIGRATION not in annotations_of(restored)


async def _has_data(site: Site, data: dict[str, str]) -> bool:
    return (await site.member.get(SETTINGS)).get("data") == data


async def test_undo_deletes_nothing_when_a_policy_would_have_the_member_lose_it(
    site: Site,
) -> None:
    plan = await plan_of(site)
    await apply_plan(site, plan)
    path = ResourcePath(PROPAGATION_POLICIES, SHOP, "migration-west-1")
    await edit(
        site.hub, path, lambda p: with_value(p, False, "spec", "preserveResourcesOnDeletion")
    )
    await settled()

    with pytest.raises(CannotMigrate, match="set preserveResourcesOnDeletion in its policy first"):
        await undo_plan(site, "west-1")

    assert await site.hub.find(WEB) is not None
    assert is_managed(await site.member.get(WEB))

    await edit(site.hub, path, lambda p: with_value(p, True, "spec", "preserveResourcesOnDeletion"))
    await settled()
    counts = await undo_plan(site, "west-1")

    assert counts == Counter({State.UNDONE: plan.takes})


async def test_a_paused_migration_takes_nothing_further(site: Site) -> None:
    plan = await plan_of(site)
    store = MigrationStore(site.hub, plan.name)
    await store.begin(plan)
    await edit(site.hub, store.path, lambda found: with_value(found, True, "spec", "paused"))

    with pytest.raises(CannotMigrate, match="is paused: `clusterspace migrate apply west-1`"):
        await apply_plan(site, plan)

    assert await site.hub.find(WEB) is None


async def test_another_plan_under_the_same_name_is_refused(site: Site) -> None:
    plan = await plan_of(site)
    await MigrationStore(site.hub, plan.name).begin(plan)

    other = with_entry(plan, "Deployment shop/web", take=False)
    with pytest.raises(CannotMigrate, match="was begun with another plan"):
        await MigrationStore(site.hub, plan.name).begin(other)


async def test_what_this_hub_keeps_already_is_no_part_of_a_second_plan(site: Site) -> None:
    plan = await plan_of(site)
    await apply_plan(site, plan)

    second = await plan_of(site)

    titles = {each.title for each in second.spec.items}
    assert titles <= {f"Namespace {SHOP}"}
    assert "this hub keeps it already" in {each.reason for each in second.spec.left}


class MortalMember(ClusterClient):
    """A member that does not answer any more after some requests."""

    def __init__(self, inner: ClusterClient, requests: int) -> None:
        super().__init__(inner.connection)
        self.left = requests

    async def find(self, place: ResourcePath) -> Object | None:
        self.left -= 1
        if self.left < 0:
            raise ClusterUnreachable(WEST, "connection refused", was_sent=False)
        return await super().find(place)


async def test_a_member_that_dies_in_the_middle_loses_nothing(site: Site) -> None:
    plan = await plan_of(site)

    with pytest.raises(
        CannotMigrate, match="are taken, and nothing is lost: `clusterspace"
    ) as told:
        await apply_plan(site, plan, member=MortalMember(site.member, 6), at_once=1)

    assert "connection refused" in str(told.value)
    assert (await apply_plan(site, plan)) == Counter({State.TAKEN: plan.takes})

    with pytest.raises(
        CannotMigrate, match="are given back, and nothing is lost: `clusterspace migrate undo"
    ):
        await undo_plan(site, plan.name, member=MortalMember(site.member, 3), at_once=1)

    assert (await undo_plan(site, plan.name)) == Counter({State.UNDONE: plan.takes})


async def test_rights_that_went_since_the_plan_are_said_object_by_object(site: Site) -> None:
    plan = await plan_of(site)
    # Of the member's kinds they may read and write some; of the hub all.
    identity = AuthInfo(token=await token_of_looker(site))
    async with client_for_test(replace(site.west.settings, identity=identity)) as looker:
        counts = await apply_plan(site, plan, member=looker, goes_on=True)

    found = await states(site)
    assert found["ConfigMap shop/settings"] == (State.TAKEN, "")
    assert found["Deployment shop/web"] == (State.TAKEN, "")
    for refused in ("Secret shop/db", "Service shop/web", "Widget shop/gear"):
        state, reason = found[refused]
        assert (state, "it may not be read: " in reason) == (State.REFUSED, True)
    assert counts[State.REFUSED] == sum(state is State.REFUSED for state, _ in found.values())
    assert not is_managed(await site.member.get(ResourcePath(SECRETS, SHOP, "db")))
    # With rights again, what was refused is planned anew, and what was taken is no part of that.
    second = {each.title for each in (await plan_of(site)).taken}
    assert "Secret shop/db" in second
    assert "ConfigMap shop/settings" not in second


async def test_rights_that_are_missing_are_said_for_each_kind_and_object(site: Site) -> None:
    identity = AuthInfo(token=await token_of_looker(site))
    async with client_for_test(replace(site.west.settings, identity=identity)) as looker:
        asked = PlanRequest("west-1", WEST, namespaces=frozenset({SHOP}))
        plan = await plan_cluster(site.hub, looker, asked, 0.0)

    unread = {each.resource: each.reason for each in plan.spec.unread}
    assert "forbidden" in unread["secrets"]
    assert entry(plan, "ConfigMap shop/settings").take
    web = entry(plan, "Deployment shop/web")
    assert (web.verdict, web.take) == (Verdict.REFUSED, False)
    assert web.retains_replicas  # they may not look at autoscalers: one may be there
    assert "the member refuses it: " in web.reason
    assert "forbidden" in web.reason
