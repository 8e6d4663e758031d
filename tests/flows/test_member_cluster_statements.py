"""What KubeFleet's page about MemberClusters says, sentence by sentence: a test for each.

One fleet for all of them. Four clusters joined it: west and east stay, and are told to do things;
north, with our agent, and south, with KubeFleet's, leave while the tests about leaving look on.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import generate_latest
from tests.component.doorways import doorway_for_test
from tests.component.fleet_agent import APPLIED_WORKS, kubefleet_agent
from tests.component.hub_wire import TABLE
from tests.component.invited_members import Invited, member_cluster, running, work_for
from tests.component.placement_site import (
    CONFIG_MAPS,
    PlacementSite,
    namespace_selector,
    pick_fixed,
    pick_n,
    placement,
)
from tests.flows.consumers import ConsumerSite, consumer
from tests.flows.test_member_cluster_rights import rights_in
from tests.flows.test_member_cluster_services import export_and_import

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.member_clusters import (
    FLEET_WORK_FINALIZER,
    FLEET_WORKS,
    INTERNAL_MEMBER_CLUSTERS,
    MEMBER_CLUSTERS,
    member_namespace,
)
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import Forbidden, Invalid
from clusterspace.fleet.membership.manifests import cluster_path, namespace_path
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.fleet.membership.member_clusters.controller import MemberClusterSettings
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    uid_of,
    with_finalizer,
    with_metadata,
    with_value,
    without_finalizer,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.telemetry.metrics import REGISTRY
from clusterspace.testing.builders import NAMESPACES, SECRETS, config_map, namespace
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.stage import Side, running_fleet
from clusterspace.testing.steps import delete, edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
AT_ONCE: Final = {"maxUnavailable": "100%", "maxSurge": "100%", "unavailablePeriodSeconds": 0}
STAYING: Final = ("west", "east")
HELD: Final = "tests.example/held"
TAINT: Final = {"key": "repair", "value": "today", "effect": "NoSchedule"}
FIRST: Final = {"v": "1"}


@dataclass
class Page:
    """A fleet as the page describes it."""

    invited: Invited
    site: PlacementSite
    consumers: ConsumerSite
    agents: dict[str, AsyncExitStack]
    """The running agents of those that leave."""

    @property
    def hub(self) -> ClusterClient:
        return self.invited.hub

    def member(self, name: str) -> Side:
        return self.invited.members[name]

    async def conditions(self, name: str) -> list[Object]:
        """Return what the agent of a member says of itself, as its MemberCluster passes it on."""
        agents: list[Object] = find_at(await self.invited.get(name), "status", "agentStatus") or []
        return next((each["conditions"] for each in agents if each["type"] == "MemberAgent"), [])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    directory = tmp_path_factory.mktemp("fleet")
    async with running_fleet(directory) as fleet, AsyncExitStack() as stack:
        invited = Invited(fleet)
        site = PlacementSite(invited.hub, directory, stack)
        agents: dict[str, AsyncExitStack] = {}
        await stack.enter_async_context(
            fleet.controllers(
                member_clusters=MemberClusterSettings(requeue_seconds=0.1),
                consumers_server=fleet.hub.settings.server,
            )
        )
        for name in (*STAYING, "north", "south"):
            member = await fleet.add_sim(name, nodes=1)
            invited.members[name] = member
            site.members[name] = member.client
            await invited.invite(name, labels={"place": name, "kept": str(name in STAYING)})
            agents[name] = await stack.enter_async_context(AsyncExitStack())
            theirs = name == "south"
            played = (kubefleet_agent if theirs else Invited.agent)(invited, member, name)
            await agents[name].enter_async_context(played)
        for name in (*STAYING, "north"):
            await invited.until_joined(name)
        await invited.until_condition("Joined", "True", "south")
        consumers = ConsumerSite(fleet, invited.members, fleet.hub.settings.trust)
        yield Page(invited, site, consumers, agents)


async def placed_somewhere(page: Page, name: str, policy: Object, **strategy: Any) -> None:
    """Make a namespace with one ConfigMap, and a placement of both with one name."""
    await page.site.app("thing", name=name)
    strategy = {"rollingUpdate": AT_ONCE, **strategy}
    await page.site.place(placement(name, namespace_selector(name), policy=policy, **strategy))


def by_label(**labels: str) -> Object:
    terms = [{"labelSelector": {"matchLabels": labels}}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": terms}}
    return {"placementType": "PickAll", "affinity": {"clusterAffinity": required}}


# -- overview --------------------------------------------------------------------------------------


async def test_a_fleet_is_a_collective_of_clusters_managed_by_a_centralized_authority(
    page: Page,
) -> None:
    await placed_somewhere(page, "collective", by_label(kept="True"))

    for name in STAYING:
        await page.site.until_data(name, "thing", FIRST, "collective")
    assert set(await page.site.clusters("collective")) == set(STAYING)


async def test_a_high_level_of_mutual_trust_is_typical_and_is_not_relied_on(page: Page) -> None:
    """What follows from trust is left to people: members get no rights over each other."""
    async with client_for_test(await page.invited.identity_settings("west")) as west:
        for resource in (INTERNAL_MEMBER_CLUSTERS, FLEET_WORKS):
            with pytest.raises(Forbidden):
                await west.list_objects(ResourcePath(resource, member_namespace("east")))


async def test_a_namespace_has_uniform_permissions_and_characteristics_across_all_clusters(
    page: Page,
) -> None:
    made = namespace("same")
    labelled = with_metadata(made, labels={"team": "lamps"})
    await page.hub.create(ResourcePath(NAMESPACES), labelled)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader", "namespace": "same"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    }
    await page.hub.create(ResourcePath(ROLES, "same"), role)
    everywhere = by_label(kept="True")
    await page.site.place(
        placement("same", namespace_selector("same"), policy=everywhere, rollingUpdate=AT_ONCE)
    )
    path = ResourcePath(ROLES, "same", "reader")

    for name in STAYING:
        client = page.member(name).client
        there = await until(lambda client=client: client.find(path))
        assert there["rules"] == role["rules"]
        assert labels_of(await client.get(namespace_path("same")))["team"] == "lamps"


async def test_namespaces_are_not_mandatory_and_consistent_where_they_are_present(
    page: Page,
) -> None:
    apart = with_metadata(
        namespace("apart"), labels={"namespace.karmada.io/skip-auto-propagation": "true"}
    )
    await page.hub.create(ResourcePath(NAMESPACES), apart)
    await page.site.put(CONFIG_MAPS, config_map("thing", FIRST, namespace="apart"))
    await page.site.place(
        placement("apart", namespace_selector("apart"), policy=by_label(place="west"))
    )

    await page.site.until_data("west", "thing", FIRST, "apart")
    # A namespace of everybody's that was made later is there.
    await page.hub.create(ResourcePath(NAMESPACES), namespace("later"))
    await until(lambda: page.member("east").client.find(namespace_path("later")))
    assert await page.member("east").client.find(namespace_path("apart")) is None
    there = await page.member("west").client.get(namespace_path("apart"))
    assert labels_of(apart).items() <= labels_of(there).items()


async def test_member_cluster_is_a_cluster_scoped_api_of_the_hub_for_a_cluster_in_the_fleet(
    page: Page,
) -> None:
    served = (await Discovery(page.hub.connection).served()).find_resource(MEMBER_CLUSTERS)

    assert served is not None
    assert not served.namespaced
    represented = await page.hub.get(cluster_path("west"))
    owners = represented["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owners] == [uid_of(await page.invited.get("west"))]


async def test_applications_identify_registered_clusters_and_query_a_list_of_them(
    page: Page,
) -> None:
    listed = await page.hub.list_objects(ResourcePath(MEMBER_CLUSTERS))
    chosen = await page.hub.list_objects(
        ResourcePath(MEMBER_CLUSTERS), ListOptions(label_selector="place=west")
    )

    assert {name_of(each) for each in listed} >= set(STAYING)
    assert [name_of(each) for each in chosen] == ["west"]


async def test_applications_observe_cluster_statuses_for_subsequent_actions(page: Page) -> None:
    """They watch: a heartbeat is seen without asking for it."""
    caches = HubCaches(page.hub)
    followed = caches.informer(MEMBER_CLUSTERS)

    def heartbeat() -> str:
        held = followed.cache.find("west") or {}
        agents: list[Object] = find_at(held, "status", "agentStatus") or [{}]
        return str(agents[0].get("lastReceivedHeartbeat", ""))

    async with running(caches.tasks()):

        async def is_seen() -> bool:
            return bool(heartbeat())

        await until(is_seen)
        before = heartbeat()

        async def is_newer() -> bool:
            return heartbeat() > before

        await until(is_newer)


async def test_the_scheduler_uses_statuses_and_properties_of_member_clusters(page: Page) -> None:
    nodes = {"name": "kubernetes-fleet.io/node-count", "operator": "Ge", "values": ["1"]}
    terms = [
        {
            "labelSelector": {"matchLabels": {"place": "east"}},
            "propertySelector": {"matchExpressions": [nodes]},
        }
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": terms}}
    by_both = {"placementType": "PickAll", "affinity": {"clusterAffinity": required}}
    await placed_somewhere(page, "properties", by_both)

    await page.site.until_clusters("east", name="properties")


async def test_automation_tools_register_and_deregister_clusters_by_this_api(page: Page) -> None:
    """They apply what is in a repository, and delete what is there no more."""
    place = manifests.member_cluster_path("declared")
    await page.hub.apply(place, member_cluster("declared"))
    await page.hub.apply(place, member_cluster("declared"))
    await page.invited.until_condition("ReadyToJoin", "True", "declared")

    await delete(page.hub, place)
    await page.invited.until_gone("declared")


async def test_argo_cd_is_told_of_clusters_as_member_clusters_come(page: Page) -> None:
    await page.consumers.prepare("argocd", *STAYING)
    chosen = {"matchLabels": {"kept": "True"}}
    await page.consumers.introduce(
        consumer("argocd", outputs=("ArgoCDSecret",), labelSelector=chosen)
    )

    for name in STAYING:
        assert (await page.consumers.credentials("argocd", name))["name"] == name
        held = await page.hub.get(ResourcePath(SECRETS, "argocd", name))
        assert labels_of(held)["argocd.argoproj.io/secret-type"] == "cluster"


async def test_service_imports_of_the_multi_cluster_services_api_follow_member_clusters(
    page: Page,
) -> None:
    await export_and_import(page.hub, page.member("west"), page.member("east"))


async def test_human_operators_monitor_the_managed_clusters(page: Page) -> None:
    asked = ApiRequest("GET", ResourcePath(MEMBER_CLUSTERS).path, headers=(("Accept", TABLE),))
    answer = msgspec.json.decode((await page.hub.connection.exchange(asked)).body)

    columns = [each["name"] for each in answer["columnDefinitions"]]
    rows = {
        each["cells"][0]: dict(zip(columns, each["cells"], strict=True)) for each in answer["rows"]
    }
    assert columns[:5] == ["Name", "Joined", "Age", "Member-Agent-Last-Seen", "Node-Count"]
    assert (rows["west"]["Joined"], rows["west"]["Node-Count"]) == ("True", "1")


# -- joining ---------------------------------------------------------------------------------------


async def test_creating_a_member_cluster_generates_a_corresponding_namespace_on_the_hub(
    page: Page,
) -> None:
    held = await page.hub.get(manifests.member_namespace_path("west"))

    assert name_of(held) == "fleet-member-west"
    assert held["metadata"]["ownerReferences"][0]["uid"] == uid_of(await page.invited.get("west"))


@pytest.mark.parametrize("name", ["south", "invited"])
async def test_the_identity_in_the_spec_is_authorized_solely_to_that_namespace(
    page: Page, name: str
) -> None:
    """As long as it has not said that it is our own agent, whose further rights a page lists."""
    if name == "invited":
        await page.invited.invite(name)
        await page.invited.until_condition("ReadyToJoin", "True", name)
    async with (
        client_for_test(await page.invited.identity_settings(name)) as agent,
        client_for_test(await page.invited.identity_settings("nobody")) as stranger,
    ):
        inside = member_namespace(name)
        assert await rights_in(agent, inside) - await rights_in(stranger, inside)
        for elsewhere in ("default", "karmada-cluster", "fleet-member-west", "karmada-es-west"):
            assert await rights_in(agent, elsewhere) == await rights_in(stranger, elsewhere)
        own = execution_namespace(name)
        assert await rights_in(agent, own) == await rights_in(stranger, own)
    if name == "invited":
        await page.invited.let_go(name)
        await page.invited.until_gone(name)


async def test_another_internal_cr_named_internal_member_cluster_is_within_that_namespace(
    page: Page,
) -> None:
    internal = await page.invited.internal("west")

    assert internal["kind"] == "InternalMemberCluster"
    assert internal["metadata"]["namespace"] == "fleet-member-west"
    assert internal["spec"] == {"state": "Join", "heartbeatPeriodSeconds": 1}


@pytest.mark.parametrize("name", ["west", "south"])
async def test_the_member_agent_gathers_statistics_on_cluster_usage_such_as_capacity(
    page: Page, name: str
) -> None:
    usage = find_at(await page.invited.internal(name), "status", "resourceUsage")

    for kind in ("capacity", "allocatable", "available"):
        assert usage[kind]["cpu"] != "0"


@pytest.mark.parametrize("name", ["west", "south"])
async def test_it_reports_based_on_the_heartbeat_period_specified_in_the_cr(
    page: Page, name: str
) -> None:
    async def beat() -> str:
        agents: list[Object] = find_at(await page.invited.internal(name), "status", "agentStatus")
        return str(agents[0]["lastReceivedHeartbeat"])

    before = await beat()

    async def is_newer() -> bool:
        return await beat() > before

    await until(is_newer)


@pytest.mark.parametrize("name", ["west", "south"])
async def test_agent_statuses_are_consolidated_and_the_cluster_is_marked_as_joined(
    page: Page, name: str
) -> None:
    assert await page.invited.condition("Joined", name) == ("True", "MemberClusterJoined")
    said = {each["type"]: each["status"] for each in await page.conditions(name)}
    assert said == {"Joined": "True", "Healthy": "True"}


# -- taints ----------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tainted(page: Page) -> AsyncIterator[Page]:
    """Let east have something placed, and then a taint."""
    await placed_somewhere(page, "before", by_label(place="east"))
    await page.site.until_data("east", "thing", FIRST, "before")
    await page.invited.change(lambda held: with_value(held, [TAINT], "spec", "taints"), "east")

    async def is_mirrored() -> bool:
        found = find_at(await page.hub.get(cluster_path("east")), "spec", "taints") or []
        return any(each["key"] == TAINT["key"] for each in found)

    await until(is_mirrored)
    yield page
    await page.invited.change(lambda held: with_value(held, [], "spec", "taints"), "east")


async def test_a_member_cluster_has_a_list_of_taints_with_key_value_and_effect(
    tainted: Page,
) -> None:
    assert find_at(await tainted.invited.get("east"), "spec", "taints") == [TAINT]


async def test_the_effect_of_a_taint_can_be_no_schedule_for_now(page: Page) -> None:
    wrong = [{**TAINT, "effect": "NoExecute"}]
    with pytest.raises(Invalid, match="effect"):
        await page.invited.change(lambda held: with_value(held, wrong, "spec", "taints"), "west")


@pytest.mark.parametrize(
    ("name", "policy"),
    [("pick-all", by_label(kept="True")), ("pick-n", {**by_label(kept="True"), **pick_n(2)})],
)
async def test_a_tainted_member_cluster_does_not_receive_resources_by_pick_all_and_pick_n(
    tainted: Page, name: str, policy: Object
) -> None:
    await placed_somewhere(tainted, name, policy)

    await tainted.site.until_data("west", "thing", FIRST, name)

    async def is_decided() -> bool:
        return bool((await tainted.site.condition("Scheduled", name))[0])

    await until(is_decided)
    assert await tainted.site.clusters(name) == ["west"]
    assert await tainted.site.data("east", "thing", name) is None


async def test_pick_fixed_ignores_taints_because_the_user_has_specified_the_clusters(
    tainted: Page,
) -> None:
    await placed_somewhere(tainted, "fixed", pick_fixed("east"))

    await tainted.site.until_data("east", "thing", FIRST, "fixed")


async def test_what_is_selected_already_continues_to_receive_resources_with_a_new_taint(
    tainted: Page,
) -> None:
    await tainted.site.set_data("thing", {"v": "2"}, "before")
    await tainted.site.put(CONFIG_MAPS, config_map("more", FIRST, namespace="before"))

    await tainted.site.until_data("east", "thing", {"v": "2"}, "before")
    await tainted.site.until_data("east", "more", FIRST, "before")


# -- leaving ---------------------------------------------------------------------------------------


@dataclass
class Leave:
    """What could be seen of a leave, step by step."""

    page: Page
    name: str
    asked: Object
    """The InternalMemberCluster when the agent was asked to leave, which was away then."""
    held: list[Object]
    """The Works in the member's namespaces at that moment."""
    applied_works: list[Object]
    """Those on the member at that moment."""
    left: list[Object]
    """What the agent said at last."""
    rights: list[str]
    """What was left of the rights when the namespace was going away."""
    counted: float
    """By how much the metric of leaves grew."""


def leaves_counted() -> float:
    name = "clusterspace_member_clusters_left_total"
    return REGISTRY.get_sample_value(name, {"result": "left"}) or 0.0


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["north", "south"])
async def leave(request: pytest.FixtureRequest, page: Page) -> Leave:
    """Let a member leave, held at each of the steps that the page names."""
    name: str = request.param
    hub, invited, member = page.hub, page.invited, page.member(request.param)
    await placed_somewhere(page, f"on-{name}", by_label(place=name))
    await page.site.until_data(name, "thing", FIRST, f"on-{name}")
    await page.site.until_settled(f"on-{name}")
    is_ours, before = name == "north", leaves_counted()
    inside = manifests.member_namespace_path(name)
    # What would be over in a moment is held: the MemberCluster with what its agent said at last,
    # and the namespace with a ConfigMap that somebody holds.
    await invited.change(lambda held: with_finalizer(held, HELD), name)
    holding = with_finalizer(config_map("held", {}, namespace=inside.name), HELD)
    await hub.create(ResourcePath(CONFIG_MAPS, inside.name), holding)
    if is_ours:
        await page.agents[name].aclose()
    applied_works = [] if is_ours else await member.client.list_objects(ResourcePath(APPLIED_WORKS))
    works = ResourcePath(WORKS, execution_namespace(name))
    fleet_works = ResourcePath(FLEET_WORKS, inside.name)
    held = await hub.list_objects(works if is_ours else fleet_works)
    await invited.let_go(name)

    async def asked() -> Object | None:
        internal = await hub.find(manifests.internal_path(name)) or {}
        return internal if find_at(internal, "spec", "state") == "Leave" else None

    internal = await until(asked)
    if is_ours:
        assert await page.site.data(name, "thing", f"on-{name}") == FIRST
        await page.agents[name].enter_async_context(invited.agent(member, name))

    async def is_ending() -> bool:
        return is_being_deleted(await hub.find(inside) or {})

    await until(is_ending)
    said = await page.conditions(name)
    rights = [str(each) for each in manifests.shared_rights(name) if await hub.find(each)]
    path = ResourcePath(CONFIG_MAPS, inside.name, "held")
    assert await invited.find(name), "the MemberCluster goes after its namespace"
    await edit(hub, path, lambda each: without_finalizer(each, HELD))

    async def namespace_is_gone() -> bool:
        return await hub.find(inside) is None

    await until(namespace_is_gone)
    counted = leaves_counted() - before
    await invited.change(lambda each: without_finalizer(each, HELD), name)
    await invited.until_gone(name)
    return Leave(page, name, internal, held, applied_works, said, rights, counted)


async def test_deleting_the_member_cluster_is_detected_and_sets_the_state_to_leave(
    leave: Leave,
) -> None:
    assert find_at(leave.asked, "spec", "state") == "Leave"


async def test_the_agent_removes_all_resources_that_were_propagated_via_the_fleet(
    leave: Leave,
) -> None:
    assert await leave.page.site.data(leave.name, "thing", f"on-{leave.name}") is None


async def test_finalizers_of_work_objects_are_removed_so_that_they_are_garbage_collected(
    leave: Leave,
) -> None:
    assert leave.held
    assert all(finalizers_of(each) for each in leave.held)
    if leave.name == "south":
        assert all(FLEET_WORK_FINALIZER in finalizers_of(each) for each in leave.held)
    for resource, space in (
        (WORKS, execution_namespace(leave.name)),
        (FLEET_WORKS, member_namespace(leave.name)),
    ):
        assert await leave.page.hub.list_objects(ResourcePath(resource, space)) == []


async def test_applied_resources_are_removed_through_the_deletion_of_applied_work_objects(
    leave: Leave,
) -> None:
    """By KubeFleet's agent; ours has the marks on each object instead, and no AppliedWorks."""
    member = leave.page.member(leave.name).client
    if leave.name == "north":
        assert await Discovery(member.connection).served()
        return
    names = {find_at(each, "spec", "workName") for each in leave.applied_works}
    assert names == {name_of(each) for each in leave.held}
    left = await member.list_objects(ResourcePath(APPLIED_WORKS))
    owned = [each for one in left for each in find_at(one, "status", "appliedResources") or ()]
    assert {each["kind"] for each in owned} <= {"Namespace"}, "what else is in one is not known"


async def test_the_agent_marks_the_internal_member_cluster_as_left(leave: Leave) -> None:
    joined = find_condition(leave.left, "Joined") or {}

    assert (joined["status"], joined["reason"]) == ("False", "InternalMemberClusterLeft")


async def test_metrics_are_reported_to_indicate_that_the_member_cluster_has_left(
    leave: Leave,
) -> None:
    assert leave.counted == 1
    assert b"clusterspace_member_clusters_left_total" in generate_latest(REGISTRY)


async def test_the_controller_deletes_roles_role_bindings_and_other_resources_then(
    leave: Leave,
) -> None:
    assert leave.rights == []
    assert await leave.page.hub.find(cluster_path(leave.name)) is None


async def test_finally_the_reserved_namespace_is_removed_from_the_hub(leave: Leave) -> None:
    for inside in (member_namespace(leave.name), execution_namespace(leave.name)):

        async def is_gone(inside: str = inside) -> bool:
            return await leave.page.hub.find(namespace_path(inside)) is None

        await until(is_gone)


async def test_placements_that_target_the_cluster_are_no_longer_applied_there(
    leave: Leave,
) -> None:
    await placed_somewhere(leave.page, f"after-{leave.name}", pick_fixed(leave.name))
    await leave.page.site.set_data("thing", {"v": "2"}, f"on-{leave.name}")

    async def look() -> Any:
        return await leave.page.site.condition("Scheduled", f"after-{leave.name}")

    await until_equal(look, ("False", "SchedulingPolicyUnfulfilled"))
    for name in (f"after-{leave.name}", f"on-{leave.name}"):
        assert await leave.page.site.data(leave.name, "thing", name) is None


async def test_the_member_agent_can_be_uninstalled_then(leave: Leave) -> None:
    """It ends without having to ask anybody, and nothing waits for it."""
    await leave.page.agents[leave.name].aclose()

    assert await leave.page.invited.find(leave.name) is None


async def test_errors_during_the_leave_mark_the_internal_member_cluster_as_leave_failed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with doorway_for_test(tmp_path_factory.mktemp("doorway")) as doorway:
        await doorway.join()
        works = ResourcePath(WORKS, execution_namespace("west"))
        await doorway.hub.create(works, work_for("west", "stuck"))
        await doorway.let_go()
        await doorway.look()
        await doorway.report()
        doorway.clock.shift = 11
        await doorway.report()

        internal = await doorway.hub.get(manifests.internal_path("west"))
        said = find_condition(internal["status"]["agentStatus"][0]["conditions"], "Joined") or {}
        assert (said["status"], said["reason"]) == ("Unknown", "InternalMemberClusterFailedToLeave")
