"""A cluster registers itself; its agent is heard, lost, heard again, and taken down."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo as Credentials
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import (
    CannotJoin,
    CannotLeave,
    ClusterspaceError,
    Forbidden,
    NotFound,
    Unauthorized,
)
from clusterspace.fleet.membership import leave, manifests
from clusterspace.fleet.membership.connections import require_own, settings_of
from clusterspace.fleet.membership.pull_join import CREDENTIALS, RegisterRequest
from clusterspace.fleet.membership.registration import (
    REGISTRATION_PLACE,
    AgentCredentials,
    RegistrationRenewal,
    read_registration,
)
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of, with_value
from clusterspace.roots.membership import register_cluster
from clusterspace.roots.tokens import create_token, delete_token, list_tokens
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.faults import Drop, Fault, Freeze, fault_proxy
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.stage import (
    SOON_UNKNOWN,
    Fleet,
    Side,
    as_agent,
    register,
    request_for,
    running_agent,
    running_fleet,
    unregister,
    until_ready,
)
from clusterspace.testing.steps import PATIENCE, until, until_equal

IMAGE = "clusterspace:test"
KUBECONFIG = manifests.REGISTRATION


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with running_fleet(tmp_path) as running:
        yield running


async def test_a_cluster_registers_from_nothing_and_is_ready_with_its_lease(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member)

    async with fleet.controllers(), running_agent(member):
        await until_ready(fleet, "west")

        async def is_taken_in() -> bool:
            finalizers = find_at(await fleet.cluster("west"), "metadata", "finalizers")
            return bool(finalizers) and await fleet.taints("west") == set()

        await until(is_taken_in)

    cluster = await fleet.cluster("west")
    kube_system = await member.client.get(manifests.namespace_path("kube-system"))
    lease = await fleet.hub.client.get(manifests.lease_path("west"))
    assert find_at(cluster, "spec", "syncMode") == "Pull"
    assert find_at(cluster, "spec", "id") == kube_system["metadata"]["uid"]
    assert find_at(cluster, "status", "kubernetesVersion")
    assert find_at(cluster, "metadata", "finalizers") == ["karmada.io/cluster-controller"]
    assert find_at(lease, "spec", "holderIdentity") == "west"
    assert lease["metadata"]["ownerReferences"][0]["uid"] == cluster["metadata"]["uid"]


async def test_the_agents_manifests_are_on_the_member_and_not_with_local(fleet: Fleet) -> None:
    inside, outside = await fleet.add_member("inside"), await fleet.add_member("outside")
    await register(fleet, "inside", inside, image=IMAGE)
    await register(fleet, "outside", outside)

    deployment = await inside.client.get(manifests.AGENT_DEPLOYMENT_PLACE)
    pod = find_at(deployment, "spec", "template", "spec")
    assert pod["containers"][0]["image"] == IMAGE
    assert pod["serviceAccountName"] == "karmada-agent-sa"
    assert await inside.client.find(manifests.AGENT_ROLE_BINDING_PLACE) is not None
    assert await outside.client.find(manifests.AGENT_DEPLOYMENT_PLACE) is None
    assert await outside.client.find(manifests.AGENT_ROLE_PLACE) is None


async def test_a_registration_reports_credentials_only_where_it_is_told_to(fleet: Fleet) -> None:
    """As Karmada's agents report them, for programs that look for them on the hub."""
    quiet, open_ = await fleet.add_member("quiet"), await fleet.add_member("open")
    await register(fleet, "quiet", quiet)
    token = await create_token("open", fleet.hub.settings)
    request = replace(request_for(token), reported=frozenset({CREDENTIALS}))
    await register_cluster(request, open_.settings, fleet.messages.append)

    spec = (await fleet.cluster("quiet"))["spec"]
    assert not {"apiEndpoint", "secretRef", "impersonatorSecretRef"} & spec.keys()
    assert await fleet.hub.client.find(manifests.secret_path("quiet")) is None
    assert await quiet.everything_of_ours() == {"namespaces/karmada-system"}

    cluster = await fleet.cluster("open")
    assert cluster["spec"]["syncMode"] == "Pull"
    assert cluster["spec"]["secretRef"] == {"namespace": "karmada-cluster", "name": "open"}
    assert "impersonatorSecretRef" not in cluster["spec"]
    impersonator = manifests.secret_path(manifests.impersonator_secret_name("open"))
    assert await fleet.hub.client.find(impersonator) is None
    secret = await fleet.hub.client.get(manifests.secret_path("open"))
    require_own(cluster, secret)
    async with client_for_test(settings_of(cluster, secret)) as as_hub:
        assert await as_hub.list_objects(manifests.namespace_path("").collection)

    # It stays a Pull cluster, whose agent does the work; and what was made goes with it.
    async with fleet.controllers():
        async with running_agent(open_):
            await until_ready(fleet, "open")
        await unregister(fleet, "open", open_)
    assert await fleet.hub.client.find(manifests.secret_path("open")) is None

    async def is_clean() -> bool:
        return await open_.everything_of_ours() == set()

    await until(is_clean)


async def test_a_killed_agent_is_unknown_and_a_new_one_is_ready_again(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member)
    async with fleet.controllers(monitor=SOON_UNKNOWN):
        async with running_agent(member):
            await until_ready(fleet, "west")
        await until_ready(fleet, "west", "Unknown")
        assert await fleet.ready("west") == ("Unknown", "ClusterStatusUnknown")
        async with running_agent(member):
            await until_ready(fleet, "west")


@pytest.mark.parametrize("fault", [Drop(), Freeze()], ids=["refused", "swallowed"])
async def test_a_cut_network_leaves_the_member_untouched_and_heals_quickly(
    fleet: Fleet, fault: Fault
) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member)
    async with (
        fleet.controllers(monitor=SOON_UNKNOWN),
        as_agent(member) as upstream,
        fault_proxy(upstream.connection) as proxy,
    ):
        await _lead_through(member, upstream.connection.settings, proxy.settings)
        before = await _everything(member)
        async with running_agent(member) as agent:
            await until_ready(fleet, "west")

            proxy.inject(fault, times=None)
            await until_ready(fleet, "west", "Unknown")
            assert not agent.done()
            assert await _everything(member) == before

            proxy.heal()
            await until_ready(fleet, "west")
            assert await _everything(member) == before


async def _lead_through(member: Side, hub: ConnectionSettings, proxy: ConnectionSettings) -> None:
    secret = await member.client.get(REGISTRATION_PLACE)
    config = b64decode(secret["data"][KUBECONFIG]).decode()
    ours, theirs = (b64encode(each.trust.authority.data).decode() for each in (hub, proxy))
    led_config = config.replace(hub.server, proxy.server).replace(ours, theirs)
    led = b64encode(led_config.encode()).decode()
    await commit(
        member.client, REGISTRATION_PLACE, secret, with_value(secret, led, "data", KUBECONFIG)
    )


async def _everything(member: Side) -> list[Object]:
    resources = (
        manifests.NAMESPACES,
        manifests.SECRETS,
        manifests.CONFIG_MAPS,
        manifests.CLUSTER_ROLES,
    )
    return [
        each for kind in resources for each in await member.client.list_objects(ResourcePath(kind))
    ]


async def test_a_token_is_for_one_cluster_and_works_once(fleet: Fleet) -> None:
    west, east = await fleet.add_member("west"), await fleet.add_member("east")
    token = await create_token("west", fleet.hub.settings)

    with pytest.raises(CannotJoin, match="the common name is not system:karmada:agent:west"):
        await register_cluster(
            request_for(token, name="east"), east.settings, fleet.messages.append
        )
    await register_cluster(request_for(token), west.settings, fleet.messages.append)
    with pytest.raises(CannotJoin, match="works once"):
        await register_cluster(request_for(token), west.settings, fleet.messages.append)


async def test_another_hub_than_the_pinned_one_gets_no_token(fleet: Fleet) -> None:
    member, impostor = await fleet.add_member("west"), await fleet.add_member("impostor")
    token = await create_token("west", fleet.hub.settings)
    request = RegisterRequest("west", impostor.settings.server, token.pin, token.token)

    with pytest.raises(CannotJoin, match="is it the right hub"):
        await register_cluster(request, member.settings, fleet.messages.append)

    assert await member.client.find(manifests.AGENT_NAMESPACE_PLACE) is None


async def test_a_cluster_that_is_a_member_already_is_refused_and_nothing_stays(
    fleet: Fleet,
) -> None:
    member = await fleet.add_member("west")
    await fleet.join("west", member)

    with pytest.raises(CannotJoin, match="same cluster"):
        await register(fleet, "again", member, image=IMAGE)

    assert await member.client.find(REGISTRATION_PLACE) is None
    assert await member.client.find(manifests.AGENT_ROLE_PLACE) is None


async def test_a_cluster_the_hub_reaches_by_itself_is_not_turned_into_a_pull_cluster(
    fleet: Fleet,
) -> None:
    member = await fleet.add_member("west")
    await fleet.join("west", member)

    with pytest.raises(CannotJoin, match="has joined already"):
        await register(fleet, "west", member)

    assert find_at(await fleet.cluster("west"), "spec", "syncMode") == "Push"


async def test_registering_again_with_a_new_token_replaces_the_certificate(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member)
    first = read_registration(await member.client.get(REGISTRATION_PLACE))
    await register(fleet, "west", member)
    second = read_registration(await member.client.get(REGISTRATION_PLACE))

    assert first.keyed.certificate != second.keyed.certificate
    with pytest.raises(CannotJoin, match="registered as west already"):
        await register(fleet, "other", member)


async def test_a_certificate_is_renewed_when_half_of_its_life_is_over(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member)
    first = read_registration(await member.client.get(REGISTRATION_PLACE))
    credentials = AgentCredentials(first.authority, first.keyed)
    clock = ManualClock(SystemClock().now())
    connection = Connection(first.hub, clock=clock, random=Random(1), credentials=credentials)
    keeper = RegistrationRenewal(member.client, ClusterClient(connection), credentials)
    try:
        assert await keeper.look()
        assert credentials.current == first.keyed

        await clock.advance(13 * 3600)
        renewing = asyncio.create_task(keeper.look())
        while not renewing.done():
            await asyncio.sleep(0.01)
            await clock.advance(0.2)
        assert await renewing
    finally:
        await connection.close()
    stored = read_registration(await member.client.get(REGISTRATION_PLACE))
    assert credentials.current == stored.keyed != first.keyed


async def test_unregister_cleans_both_sides_and_ends_the_agent(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member, image=IMAGE)
    async with fleet.controllers(), running_agent(member) as agent, as_agent(member) as former:
        await until_ready(fleet, "west")
        await unregister(fleet, "west", member)
        await asyncio.wait_for(agent, PATIENCE)

        async def is_refused() -> bool:
            try:
                await former.find(manifests.cluster_path("west"))
            except (Unauthorized, Forbidden):
                return True
            return False

        await until(is_refused)

    hub = fleet.hub.client
    assert await hub.find(manifests.cluster_path("west")) is None
    assert await hub.find(manifests.lease_path("west")) is None
    await until_equal(lambda: hub.find(manifests.namespace_path("karmada-es-west")), None)

    async def is_clean() -> bool:
        return not any([await member.client.find(place) for place in _agent_places()])

    await until(is_clean)
    assert fleet.messages[-1] == "cluster west is unregistered"


def _agent_places() -> list[ResourcePath]:
    return [
        manifests.AGENT_DEPLOYMENT_PLACE,
        manifests.AGENT_ROLE_BINDING_PLACE,
        manifests.AGENT_ROLE_PLACE,
        manifests.AGENT_ACCOUNT_PLACE,
        REGISTRATION_PLACE,
        manifests.AGENT_NAMESPACE_PLACE,
    ]


async def test_unregister_leaves_what_others_keep_beside_the_agent(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member, image=IMAGE)
    place = ResourcePath(manifests.CONFIG_MAPS, manifests.AGENT_NAMESPACE, "karmada-agent-notes")
    notes = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": place.name}}
    await member.client.create(place.collection, notes)
    role = await member.client.get(manifests.AGENT_ROLE_PLACE)
    foreign = with_value(role, "another", "metadata", "annotations", manifests.HUB_MARK)
    await commit(member.client, manifests.AGENT_ROLE_PLACE, role, foreign)

    async with fleet.controllers():
        await unregister(fleet, "west", member)

    assert await member.client.find(place) is not None
    assert await member.client.find(manifests.AGENT_ROLE_PLACE) is not None
    assert await member.client.find(REGISTRATION_PLACE) is None
    assert any("karmada-agent" in each for each in fleet.messages if each.startswith("kept on"))


async def test_a_push_cluster_is_not_unregistered(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await fleet.join("west", member)

    with pytest.raises(CannotLeave, match="use unjoin"):
        await unregister(fleet, "west", member)


async def test_unregister_refuses_the_wrong_member_before_it_touches_anything(
    fleet: Fleet,
) -> None:
    west, east = await fleet.add_member("west"), await fleet.add_member("east")
    await register(fleet, "west", west)
    await register(fleet, "east", east)

    with pytest.raises(CannotLeave, match="registered as east"):
        await unregister(fleet, "west", east)

    assert await fleet.hub.client.find(manifests.cluster_path("west")) is not None
    assert await east.client.find(REGISTRATION_PLACE) is not None


async def test_a_registration_that_cannot_work_is_refused_and_leaves_nothing(
    fleet: Fleet,
) -> None:
    member = await fleet.add_member("west")
    token = await create_token("west", fleet.hub.settings)
    asked, settings = request_for(token), member.settings
    nobody = replace(settings, identity=Credentials(token=await _token_of_nobody(member)))
    dead = "https://127.0.0.1:9"
    impossible = (
        ("refused the connection", asked, replace(settings, server=dead)),
        ("have they expired", asked, replace(settings, identity=Credentials(token="old"))),
        ("is no administrator there", asked, nobody),
        ("refused the connection", replace(asked, hub_address=dead), settings),
        ("is it the right hub", replace(asked, pin=f"sha256:{'0' * 64}"), settings),
        ("does not accept the token", replace(asked, token=f"aaaaaa.{'0' * 26}"), settings),
        (r"metadata\.name", replace(asked, name="a.b"), settings),
        ("room for a name of 43 characters", replace(asked, name="x" * 44), settings),
    )
    for sentence, request, reached in impossible:
        with pytest.raises(ClusterspaceError, match=sentence):
            await register_cluster(request, reached, fleet.messages.append)

    for place in leave.agent_paths():
        assert await member.client.find(place) is None
    assert await fleet.hub.client.list_objects(manifests.cluster_path("").collection) == []
    # None of them used the token up.
    await register_cluster(asked, settings, fleet.messages.append)


async def _token_of_nobody(member: Side) -> str:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    place = ResourcePath(manifests.SERVICE_ACCOUNTS, "default")
    await member.client.create(place, account)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    issued = await member.client.create(place.named("nobody").with_subresource("token"), asked)
    return str(find_at(issued, "status", "token"))


@pytest.mark.parametrize("has_kubeconfig", [True, False])
async def test_a_dead_member_is_unregistered_by_force_within_ten_seconds(
    fleet: Fleet, has_kubeconfig: bool
) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member, image=IMAGE)
    await _place_something(fleet)
    async with fleet.controllers(), fault_proxy(member.client.connection) as proxy:
        proxy.inject(Freeze(), times=None)
        dead = Side(proxy.settings, member.client) if has_kubeconfig else None

        started = asyncio.get_running_loop().time()
        await unregister(fleet, "west", dead, is_forced=True)
        assert asyncio.get_running_loop().time() - started < 10

    assert await fleet.hub.client.find(manifests.cluster_path("west")) is None
    written = await fleet.hub.client.get(manifests.left_behind_path("west"))
    left = written["data"]["left-behind"]
    assert "placed: ConfigMap default/settings" in left
    assert "the member could not be cleaned" in left
    for place in leave.agent_paths():
        assert f"on the member: {place}" in left
    assert await member.client.find(manifests.AGENT_DEPLOYMENT_PLACE) is not None


async def test_a_member_that_lives_is_cleaned_even_by_force(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member, image=IMAGE)

    async with fleet.controllers():
        await unregister(fleet, "west", member, is_forced=True)

    assert await fleet.hub.client.find(manifests.left_behind_path("west")) is None
    for place in leave.agent_paths():
        found = await member.client.find(place)
        assert found is None or is_being_deleted(found)


async def test_force_does_not_unregister_the_wrong_member(fleet: Fleet) -> None:
    west, east = await fleet.add_member("west"), await fleet.add_member("east")
    await register(fleet, "west", west)
    await register(fleet, "east", east)

    with pytest.raises(CannotLeave, match="registered as east"):
        await unregister(fleet, "west", east, is_forced=True)

    assert not is_being_deleted(await fleet.cluster("west"))


@pytest.mark.parametrize("name", ["x" * 44, "rbac-generator", "a.b", "hub"])
async def test_a_name_no_agent_can_have_gets_no_token(fleet: Fleet, name: str) -> None:
    with pytest.raises(CannotJoin):
        await create_token(name, fleet.hub.settings)

    assert await fleet.hub.client.find(manifests.namespace_path("karmada-cluster")) is None


async def test_the_longest_name_an_agent_can_have_registers(fleet: Fleet) -> None:
    name = "x" * 43
    member = await fleet.add_member(name)
    await register(fleet, name, member)

    async with as_agent(member) as agent:
        assert name_of(await agent.get(manifests.cluster_path(name))) == name


async def test_a_deleted_token_registers_nobody(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    token = await create_token("west", fleet.hub.settings)
    used = await create_token("east", fleet.hub.settings)
    east = await fleet.add_member("east")
    await register_cluster(request_for(used), east.settings, fleet.messages.append)
    listed = {each.cluster_name: each for each in await list_tokens(fleet.hub.settings)}
    assert (listed["west"].state, listed["east"].state) == ("unused", "used")
    assert listed["west"].token_id == token.token[:6]

    await delete_token(token.token, fleet.hub.settings)

    with pytest.raises(CannotJoin, match="does not accept the token"):
        await register_cluster(request_for(token), member.settings, fleet.messages.append)
    assert [each.cluster_name for each in await list_tokens(fleet.hub.settings)] == ["east"]
    with pytest.raises(NotFound, match="there is no token"):
        await delete_token(token.token, fleet.hub.settings)


async def test_an_agent_tells_of_its_cluster_in_events(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await register(fleet, "west", member)
    async with fleet.controllers(), running_agent(member):

        async def is_told() -> bool:
            events = await fleet.hub.client.list_objects(ResourcePath(EVENTS, "default"))
            reasons = {(each["source"]["component"], each["reason"]) for each in events}
            return ("clusterspace-agent", "ClusterReady") in reasons

        await until(is_told)


async def _place_something(fleet: Fleet) -> None:
    async with fleet.controllers():
        place = manifests.namespace_path("karmada-es-west")

        async def is_there() -> bool:
            return await fleet.hub.client.find(place) is not None

        await until(is_there)
    settings = {"apiVersion": "v1", "kind": "ConfigMap"}
    manifest = {**settings, "metadata": {"name": "settings", "namespace": "default"}}
    work = {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": "settings", "finalizers": ["karmada.io/execution-controller"]},
        "spec": {"workload": {"manifests": [manifest]}},
    }
    await fleet.hub.client.create(manifests.works_path("west"), work)
