"""A cluster joins, is watched over, and leaves: the story, against running servers."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.identity.authority import Authority, KeyPair
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, PatchType, WriteOptions
from clusterspace.client.settings import AuthInfo as Credentials
from clusterspace.client.settings import Pem, Trust
from clusterspace.controllers.commit import commit
from clusterspace.errors import (
    CannotJoin,
    CannotLeave,
    ClusterspaceError,
    ClusterUnreachable,
    NotFound,
)
from clusterspace.fleet.membership import manifests, member_access
from clusterspace.fleet.membership.leave import BeforeRemoval, Cleaner, Leave, keep_resources
from clusterspace.fleet.membership.manifests import Location
from clusterspace.fleet.membership.member_access import Creation, Journal, MemberAccess
from clusterspace.fleet.membership.push_join import JoinRequest, PushJoin
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.clients import open_client
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import Fleet, Side, running_fleet
from clusterspace.testing.steps import until

ON_THE_MEMBER = {
    "namespaces/karmada-cluster",
    "serviceaccounts/karmada-impersonator",
    "serviceaccounts/karmada-west",
    "secrets/karmada-impersonator",
    "secrets/karmada-west",
    "clusterroles/karmada-controller-manager:karmada-west",
    "clusterroles/karmada-impersonator",
    "clusterrolebindings/karmada-controller-manager:karmada-west",
    "clusterrolebindings/karmada-impersonator",
}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with running_fleet(tmp_path) as running:
        yield running


@pytest.fixture
async def west(fleet: Fleet) -> Side:
    return await fleet.add_member("west")


async def test_a_joined_cluster_becomes_ready_and_leaves_nothing_behind(
    fleet: Fleet, west: Side
) -> None:
    async with fleet.controllers():
        await fleet.join("west", west, location=Location("acme", "eu", ("a", "b")))
        assert await west.everything_of_ours() == ON_THE_MEMBER

        async def is_ready() -> bool:
            return await fleet.ready("west") == ("True", "ClusterReady")

        await until(is_ready)
        cluster = await fleet.cluster("west")
        assert find_at(cluster, "spec", "zones") == ["a", "b"]
        assert find_at(cluster, "status", "kubernetesVersion").startswith("v1.")

        async def has_no_taints() -> bool:
            return await fleet.taints("west") == set()

        await until(has_no_taints)

        await fleet.unjoin("west", member=west.settings)

    await until(lambda: _is_clean(west))
    # The hub keeps the namespace for the next member's credentials, and nothing in it.
    assert await fleet.hub.everything_of_ours() == {"namespaces/karmada-cluster"}
    with pytest.raises(NotFound):
        await fleet.cluster("west")


async def test_a_cluster_that_does_not_change_is_not_written(fleet: Fleet, west: Side) -> None:
    await fleet.join("west", west)
    async with fleet.controllers():

        async def is_settled() -> bool:
            return (await fleet.ready("west"))[0] == "True" and not await fleet.taints("west")

        await until(is_settled)
        before = await fleet.cluster("west")
        for _ in range(5):
            await settled()  # the next look at the cluster among others

        assert await fleet.cluster("west") == before


async def test_the_hub_cleans_a_member_with_its_own_rights(fleet: Fleet, west: Side) -> None:
    await fleet.join("west", west)

    await fleet.unjoin("west")

    await until(lambda: _is_clean(west))


async def test_joining_again_replaces_the_credentials(fleet: Fleet, west: Side) -> None:
    await fleet.join("west", west)
    before = await fleet.cluster("west")
    place = manifests.secret_path("west")
    secret = await fleet.hub.client.get(place)
    broken = {**secret, "data": {**secret["data"], "token": "bm8="}}
    await commit(fleet.hub.client, place, secret, broken)

    await fleet.join("west", west)

    assert (await fleet.hub.client.get(place))["data"] == secret["data"]
    assert uid_of(await fleet.cluster("west")) == uid_of(before)
    assert fleet.messages[-1] == "cluster west had joined before; its credentials are fresh"


async def test_the_same_cluster_does_not_join_under_another_name(fleet: Fleet, west: Side) -> None:
    await fleet.join("west", west)

    with pytest.raises(CannotJoin, match="has joined as west: unjoin west first"):
        await fleet.join("east", west)

    assert await west.everything_of_ours() == ON_THE_MEMBER


async def test_of_two_joins_that_race_exactly_one_wins(fleet: Fleet, west: Side) -> None:
    outcomes = await asyncio.gather(
        fleet.join("one", west), fleet.join("two", west), return_exceptions=True
    )

    refused = [each for each in outcomes if isinstance(each, CannotJoin)]
    assert len(refused) == 1
    winner = "one" if outcomes[0] is None else "two"
    assert f"cluster {winner} has this ID" in str(refused[0]) or "has joined as" in str(refused[0])
    left = await west.everything_of_ours()
    assert f"serviceaccounts/karmada-{winner}" in left
    assert "serviceaccounts/karmada-impersonator" in left
    assert len([each for each in left if each.startswith("clusterroles/")]) == 2


async def test_a_name_that_belongs_to_another_cluster_is_refused(fleet: Fleet, west: Side) -> None:
    await fleet.join("west", west)
    other = await fleet.add_member("other")

    with pytest.raises(CannotJoin, match="the name belongs to another cluster"):
        await fleet.join("west", other)

    assert await other.everything_of_ours() == set()


async def test_a_dry_run_tells_the_steps_and_takes_none(fleet: Fleet, west: Side) -> None:
    await fleet.join("west", west, is_dry_run=True)

    assert "would create namespace karmada-cluster on the member" in fleet.messages
    assert await west.everything_of_ours() == set()
    assert await fleet.hub.everything_of_ours() == set()


@pytest.mark.parametrize("name", ["a.b", "hub", "x" * 49, "Upper"])
async def test_a_bad_name_is_refused_before_anything_is_asked(
    fleet: Fleet, west: Side, name: str
) -> None:
    with pytest.raises(CannotJoin, match=r"metadata\.name"):
        await fleet.join(name, west)

    assert await west.everything_of_ours() == set()
    assert await fleet.hub.everything_of_ours() == set()


async def test_the_hub_does_not_join_itself(fleet: Fleet) -> None:
    with pytest.raises(CannotJoin, match="it is the hub itself"):
        await fleet.join("self", fleet.hub)

    assert await fleet.hub.everything_of_ours() == set()


async def test_members_that_cannot_be_used_are_refused_in_a_sentence(
    fleet: Fleet, west: Side
) -> None:
    settings = west.settings
    spoiled = {
        "refused the connection": replace(settings, server="https://127.0.0.1:9"),
        "its certificate is not trusted": replace(settings, trust=Trust(_another_authority())),
        "credentials: have they expired": replace(settings, identity=Credentials(token="old")),
        "needs tls-server-name": replace(
            settings, trust=replace(settings.trust, server_name="elsewhere")
        ),
    }
    for sentence, unusable in spoiled.items():
        with pytest.raises(ClusterspaceError, match=sentence):
            await fleet.join("west", Side(unusable, west.client))

    assert await west.everything_of_ours() == set()
    assert await fleet.hub.everything_of_ours() == set()


async def test_a_kubeconfig_whose_certificate_has_expired_is_refused(
    fleet: Fleet, west: Side
) -> None:
    pki = fleet.directory / "west" / "pki"
    pair = KeyPair((pki / "ca.crt").read_bytes(), (pki / "ca.key").read_bytes())
    two_years_ago = SystemClock().now() - 2 * 365 * 24 * 3600
    held = Authority.load(pair).issue_client("admin", ("system:masters",), two_years_ago)
    expired = Credentials(certificate=Pem(held.certificate), key=Pem(held.key))

    with pytest.raises(
        ClusterspaceError, match="the certificate in its kubeconfig has expired, at 20"
    ):
        await fleet.join("west", Side(replace(west.settings, identity=expired), west.client))

    assert await west.everything_of_ours() == set()
    assert await fleet.hub.everything_of_ours() == set()


async def test_a_user_without_rights_cannot_join_a_cluster(fleet: Fleet, west: Side) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    place = ResourcePath(manifests.SERVICE_ACCOUNTS, "default")
    await west.client.create(place, account)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    issued = await west.client.create(place.named("nobody").with_subresource("token"), asked)
    token = find_at(issued, "status", "token")

    nobody = replace(west.settings, identity=Credentials(token=token))

    with pytest.raises(CannotJoin, match="is no administrator there"):
        await fleet.join("west", Side(nobody, west.client))

    assert await west.everything_of_ours() == set()
    assert await fleet.hub.everything_of_ours() == set()


async def test_a_join_that_fails_half_way_takes_back_what_it_made(fleet: Fleet, west: Side) -> None:
    # The hub has no room for the execution namespace: an old one is still going away.
    place = manifests.namespace_path("karmada-es-west")
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "karmada-es-west", "finalizers": ["example.com/held"]},
    }
    held = await fleet.hub.client.create(place.collection, body)
    await fleet.hub.client.delete(place, DeleteOptions(uid_of(held)))

    with pytest.raises(CannotJoin, match="is being deleted: join again when it is gone"):
        await fleet.join("west", west)

    assert "it failed: taking back what this join has made" in fleet.messages

    await until(lambda: _is_clean(west))

    async def is_held_by_others_alone() -> bool:
        namespace = await fleet.hub.client.get(place)
        return not find_at(namespace, "spec", "finalizers")

    await until(is_held_by_others_alone)  # the hub is done with it, and has time for us
    assert await fleet.hub.everything_of_ours() <= {
        "namespaces/karmada-es-west",
        "namespaces/karmada-cluster",
    }


async def test_a_cluster_may_be_told_to_say_who_it_is(fleet: Fleet, tmp_path: Path) -> None:
    member = await fleet.add_member("west")

    with pytest.raises(CannotJoin, match=r"it has no ClusterProperty id\.k8s\.io"):
        await fleet.join("west", member, creation=Creation.REFUSE)
    await fleet.join("west", member, creation=Creation.CREATE)

    found = await member_access.read_identity(member.client)
    assert found.properties == {"id.k8s.io": found.kube_system_uid}
    await fleet.unjoin("west", member=member.settings)
    assert (await member_access.read_identity(member.client)).declared == found.kube_system_uid


async def test_a_cluster_is_known_by_what_it_says_of_itself(fleet: Fleet, west: Side) -> None:
    said = member_access.property_object("cluster-of-west")
    await west.client.create(ResourcePath(member_access.PROPERTIES), said)

    await fleet.join("west", west)

    assert find_at(await fleet.cluster("west"), "spec", "id") == "cluster-of-west"


async def test_a_cluster_that_dies_is_tainted_and_leaves_by_force(
    fleet: Fleet, tmp_path: Path
) -> None:
    directory = tmp_path / "mortal"
    directory.mkdir()
    async with fleet.controllers():
        async with hub_for_test(directory, name="west") as settings:
            async with client_for_test(settings) as client:
                await fleet.join("west", Side(settings, client))

            async def is_ready() -> bool:
                return (await fleet.ready("west"))[0] == "True"

            await until(is_ready)
        await _place_something(fleet)

        async def is_tainted() -> bool:
            return await fleet.taints("west") == {"cluster.karmada.io/not-ready:NoSchedule"}

        await until(is_tainted)
        assert await fleet.ready("west") == ("False", "ClusterNotReachable")
        assert find_at(await fleet.cluster("west"), "status", "kubernetesVersion")

    started = asyncio.get_running_loop().time()
    await fleet.unjoin("west", is_forced=True)
    assert asyncio.get_running_loop().time() - started < 10

    with pytest.raises(NotFound):
        await fleet.cluster("west")
    written = await fleet.hub.client.get(manifests.left_behind_path("west"))
    assert "placed: ConfigMap default/settings" in written["data"]["left-behind"]
    assert "the member could not be cleaned" in written["data"]["left-behind"]
    assert "karmada-controller-manager:karmada-west" in written["data"]["left-behind"]


async def test_a_work_that_nobody_withdraws_is_named_and_holds_the_cluster(
    fleet: Fleet, west: Side
) -> None:
    await fleet.join("west", west)
    await _place_something(fleet)

    with pytest.raises(CannotLeave, match="Work settings is not withdrawn from the member yet"):
        await fleet.unjoin("west", wait_seconds=0.2, keeps_resources=True)

    assert "  ConfigMap default/settings" in fleet.messages
    assert "1 placed objects stay on the member:" in fleet.messages
    waits = [each for each in fleet.messages if each.startswith("waiting")]
    assert waits == ["waiting, 0.2s at most: Work settings is not withdrawn from the member yet"]
    work = await fleet.hub.client.get(manifests.works_path("west").named("settings"))
    assert work["spec"]["preserveResourcesOnDeletion"] is True
    assert await west.everything_of_ours() == ON_THE_MEMBER


async def test_a_member_of_two_hubs_keeps_what_the_other_hub_needs(
    fleet: Fleet, west: Side, tmp_path: Path
) -> None:
    directory = tmp_path / "second"
    directory.mkdir()
    async with running_fleet(directory) as second:
        await fleet.join("west", west)
        await second.join("shared", west)

        await second.unjoin("shared", member=west.settings)
        with pytest.raises(CannotJoin, match="join under another name"):
            await second.join("west", west)
        await second.join("shared", west)
        await fleet.unjoin("west", member=west.settings)

        left = await west.everything_of_ours()
        assert "serviceaccounts/karmada-shared" in left
        assert "serviceaccounts/karmada-impersonator" in left
        assert "clusterroles/karmada-controller-manager:karmada-west" not in left


async def test_a_join_that_was_killed_half_way_is_completed_by_the_next(
    fleet: Fleet, west: Side
) -> None:
    hub = await fleet.hub.client.get(manifests.namespace_path("kube-system"))
    killed = MemberAccess("west", west.client, Journal("west"), SystemClock())
    await killed.prepare(uid_of(hub))

    await fleet.join("west", west)

    assert await west.everything_of_ours() == ON_THE_MEMBER
    await fleet.unjoin("west")
    await until(lambda: _is_clean(west))


async def test_a_leave_that_was_killed_after_it_gave_up_its_rights_goes_on(
    fleet: Fleet, west: Side
) -> None:
    await fleet.join("west", west)
    cleaner = Cleaner(west.client, is_administrator=True)

    async def clean_and_die(hub_id: str, before_removal: BeforeRemoval) -> object:
        await cleaner.clean("west", hub_id, before_removal)
        raise ClusterUnreachable("west", "the process was killed here", was_sent=True)

    leaving = Leave(fleet.hub.client, "west", clean_and_die)
    await leaving.begin()
    with pytest.raises(CannotLeave, match="the process was killed here"):
        await leaving.step()

    await fleet.unjoin("west")

    assert fleet.messages[-1] == "cluster west has left"


async def test_a_join_of_a_leaving_cluster_is_refused_with_what_to_do(
    fleet: Fleet, west: Side
) -> None:
    await fleet.join("west", west)
    await _place_something(fleet)
    with pytest.raises(CannotLeave):
        await fleet.unjoin("west", wait_seconds=0.1)
    before = await fleet.hub.client.get(manifests.secret_path("west"))

    with pytest.raises(CannotJoin, match=r"it is leaving the fleet.*`clusterspace unjoin west`"):
        await fleet.join("west", west)

    assert await fleet.hub.client.get(manifests.secret_path("west")) == before
    await fleet.unjoin("west", is_forced=True)

    async def joins_again() -> bool:
        try:
            await fleet.join("west", west)
        except CannotJoin as error:
            return "is being deleted: join again when it is gone" not in error.why
        return True

    await until(joins_again)
    assert not is_being_deleted(await fleet.cluster("west"))


async def annotate(hub: ClusterClient, place: ResourcePath, key: str, value: str) -> None:
    present = await hub.get(place)
    marks = {**annotations_of(present), key: value}
    await commit(hub, place, present, with_metadata(present, annotations=marks))


class HurriedHub(ClusterClient):
    """A hub on which somebody writes to every object just before our first write to it."""

    def __init__(self, hub: ClusterClient) -> None:
        super().__init__(hub.connection)
        self.hurried: set[str] = set()
        self.beats = 0

    async def patch(
        self,
        place: ResourcePath,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions = WriteOptions(),  # noqa: B008,
    ) -> Object:
        if str(place) not in self.hurried:
            self.hurried.add(str(place))
            self.beats += 1
            target = place.with_subresource("")
            await annotate(self, target, "test/beat", str(self.beats))
        return await super().patch(place, patch_type, patch, options)


async def test_a_forced_leave_goes_on_when_somebody_writes_in_between(
    fleet: Fleet, west: Side
) -> None:
    await fleet.join("west", west)
    await _place_something(fleet)
    hub = HurriedHub(fleet.hub.client)

    async def clean(_hub_id: str, before_removal: BeforeRemoval) -> None:
        hub.hurried.clear()
        await before_removal()
        hub.hurried.clear()

    await keep_resources(hub, "west")
    hub.hurried.clear()
    leave = Leave(hub, "west", clean)
    await leave.begin()
    left = await leave.force()

    assert left == ["perhaps placed: ConfigMap default/settings"]
    with pytest.raises(NotFound):
        await fleet.cluster("west")


async def test_joining_again_goes_on_when_somebody_writes_in_between(
    fleet: Fleet, west: Side
) -> None:
    await fleet.join("west", west)
    request = JoinRequest("west", west.settings, Location(region="eu-1"))
    hub = HurriedHub(fleet.hub.client)
    joining = PushJoin(request, hub, west.client, open_client, fleet.messages.append)
    found = await joining.preflight()
    await annotate(fleet.hub.client, manifests.cluster_path("west"), "test/team", "a")
    hub.hurried |= {str(manifests.secret_path(each)) for each in ("west", "west-impersonator")}

    await joining.join(found)

    joined = await fleet.cluster("west")
    assert joined["spec"]["region"] == "eu-1"
    assert annotations_of(joined)["test/team"] == "a"


async def test_dead_credentials_are_no_proof_that_a_member_is_clean(
    fleet: Fleet, west: Side
) -> None:
    await fleet.join("west", west)
    place = manifests.secret_path("west")
    secret = await fleet.hub.client.get(place)
    dead = {**secret, "data": {**secret["data"], "token": "bm8="}}
    await commit(fleet.hub.client, place, secret, dead)

    for _ in range(2):
        with pytest.raises(CannotLeave, match="the member cannot be cleaned: Unauthorized"):
            await fleet.unjoin("west", wait_seconds=0.2)
    assert await west.everything_of_ours() == ON_THE_MEMBER

    await fleet.unjoin("west", member=west.settings)
    await until(lambda: _is_clean(west))


async def _is_clean(member: Side) -> bool:
    return not await member.everything_of_ours()


async def _place_something(fleet: Fleet) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default"},
    }
    work = {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": "settings", "finalizers": ["karmada.io/execution-controller"]},
        "spec": {"workload": {"manifests": [manifest]}},
    }
    await fleet.hub.client.create(manifests.works_path("west"), work)


def _another_authority() -> Pem:
    return Pem(Authority.create("somebody else", 1_700_000_000.0).pair.certificate)


WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.shop.example.com"},
    "spec": {
        "group": "shop.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


async def test_a_new_kind_on_a_member_is_known_within_a_status_period(fleet: Fleet) -> None:
    member = await fleet.add_member("west")
    await fleet.join("west", member)

    async def knows(kind: str) -> bool:
        enabled: list[Object] = (
            find_at(await fleet.cluster("west"), "status", "apiEnablements") or []
        )
        return any(kind == each["kind"] for one in enabled for each in one["resources"])

    async with fleet.controllers():
        await until(lambda: knows("ConfigMap"))
        definitions = GroupVersionResource(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions"
        )
        await member.client.create(ResourcePath(definitions), WIDGETS)
        # It was known after a minute, which is longer than this waits.
        await until(lambda: knows("Widget"), 30)
