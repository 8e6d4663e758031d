"""Users reach every member through the hub, whoever joined it and whoever writes its roles."""

from base64 import b64encode
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from clusterspace.apis.clusters import CLUSTERS, PULL, PUSH
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import CannotJoin, Forbidden
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.member_access import Journal, Tokens, obtain_token
from clusterspace.fleet.membership.push_join import endpoint_of, secrets_for
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, uid_of, with_metadata, with_value
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import Fleet, Side, running_fleet
from clusterspace.testing.steps import delete, edit, until

KARMADAS_RULES = [
    {
        "apiGroups": [""],
        "resources": ["users"],
        "verbs": ["impersonate"],
        "resourceNames": ["jane"],
    }
]
BESIDE = "karmada-impersonator:karmada-west"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with running_fleet(tmp_path) as running:
        yield running


@pytest.fixture
async def west(fleet: Fleet) -> Side:
    return await fleet.add_member("west")


async def shows_itself(fleet: Fleet) -> bool:
    """Whether the hub's administrator sees the member through the hub."""
    path = f"{ResourcePath(CLUSTERS, name='west').path}/proxy/api/v1/namespaces/kube-system"
    try:
        await fleet.hub.client.connection.ask(ApiRequest("GET", path))
    except Forbidden:
        return False
    return True


async def join_by_karmadactl(fleet: Fleet, west: Side, mode: str = PUSH) -> None:
    """Do to hub and member what `karmadactl join west` does, in its order.

    In mode Pull it is what a stock karmada-agent does, which reports the same credentials.
    """

    def unmarked(kube_object: Object) -> Object:
        return with_metadata(kube_object, annotations=None, ownerReferences=None)

    account, role = manifests.account_name("west"), manifests.role_name("west")
    member, hub = west.client, fleet.hub.client
    await member.create(
        ResourcePath(manifests.NAMESPACES), unmarked(manifests.namespace("karmada-cluster"))
    )
    full = await member.create(
        ResourcePath(manifests.CLUSTER_ROLES), unmarked(manifests.full_role("west", ""))
    )
    for each in (account, manifests.IMPERSONATOR):
        body = unmarked(manifests.service_account(each, "", full))
        await member.create(manifests.account_path(each).collection, body)
    bound = unmarked(manifests.role_binding(full, account, ""))
    await member.create(manifests.role_binding_path(role).collection, bound)
    journal, clock = Journal("west"), member.connection.clock
    tokens = Tokens(
        await obtain_token(member, account, journal, clock),
        await obtain_token(member, manifests.IMPERSONATOR, journal, clock),
    )
    endpoint = endpoint_of(west.settings)
    await hub.create(ResourcePath(manifests.NAMESPACES), manifests.namespace("karmada-cluster"))
    secrets = secrets_for("west", endpoint, tokens)
    for secret in secrets:
        await hub.create(manifests.secret_path("").collection, secret)
    uid = uid_of(await member.get(manifests.namespace_path("kube-system")))
    desired = with_value(manifests.cluster("west", uid, endpoint), mode, "spec", "syncMode")
    cluster = await hub.create(ResourcePath(CLUSTERS), desired)
    owner = manifests.owner_of_secrets(cluster)
    for name in ("west", "west-impersonator"):
        await edit(
            hub,
            manifests.secret_path(name),
            lambda each: with_metadata(each, ownerReferences=[owner]),
        )


async def make_karmadas_role(west: Side, rules: list[dict[str, Any]]) -> Object:
    """Put the role on the member that Karmada's controllers write there."""
    labels = {"karmada.io/system": "true", "karmada.io/managed": "true"}
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": manifests.IMPERSONATOR, "labels": labels},
        "rules": rules,
    }
    return await west.client.create(ResourcePath(manifests.CLUSTER_ROLES), body)


async def is_ready(fleet: Fleet) -> bool:
    return (await fleet.ready("west"))[0] == "True"


async def condition_of(fleet: Fleet) -> Object | None:
    cluster = await fleet.cluster("west")
    return find_condition(find_at(cluster, "status", "conditions"), "ImpersonationGranted")


async def test_a_cluster_that_karmadactl_joined_shows_itself(fleet: Fleet, west: Side) -> None:
    await join_by_karmadactl(fleet, west)
    assert not await shows_itself(fleet)

    async with fleet.controllers():
        await until(lambda: shows_itself(fleet))
        assert await condition_of(fleet) is None

        # It leaves as it came, and what the controllers made for it goes.
        await fleet.unjoin("west")

    roles = await west.names_of(ResourcePath(manifests.CLUSTER_ROLES))
    bindings = await west.names_of(ResourcePath(manifests.CLUSTER_ROLE_BINDINGS))
    assert BESIDE not in roles | bindings
    assert manifests.role_name("west") in roles, "karmadactl made it, and removes it"


async def test_a_pull_cluster_whose_agent_reports_credentials_shows_itself(
    fleet: Fleet, west: Side
) -> None:
    await join_by_karmadactl(fleet, west, mode=PULL)

    async with fleet.controllers():
        await until(lambda: shows_itself(fleet))


async def test_a_role_that_karmada_writes_is_left_to_karmada(fleet: Fleet, west: Side) -> None:
    written = await make_karmadas_role(west, KARMADAS_RULES)

    await fleet.join("west", west)

    assert await shows_itself(fleet), "a join that reports success is one that users can use"
    async with fleet.controllers():
        # Karmada's controllers write it again, with other subjects, and nobody answers back.
        await edit(
            west.client,
            manifests.role_path(manifests.IMPERSONATOR),
            lambda role: {**role, "rules": [{**KARMADAS_RULES[0], "resourceNames": ["carl"]}]},
        )
        rewritten = await west.client.get(manifests.role_path(manifests.IMPERSONATOR))
        beside = await west.client.get(manifests.role_path(BESIDE))
        await settled()
        assert await west.client.get(manifests.role_path(manifests.IMPERSONATOR)) == rewritten
        assert await west.client.get(manifests.role_path(BESIDE)) == beside
        assert await shows_itself(fleet)
        await fleet.unjoin("west", member=west.settings)

    roles = await west.names_of(ResourcePath(manifests.CLUSTER_ROLES))
    assert manifests.IMPERSONATOR in roles
    assert BESIDE not in roles
    assert uid_of(written) == uid_of(
        await west.client.get(manifests.role_path(manifests.IMPERSONATOR))
    )


async def test_rights_that_somebody_takes_away_come_back(fleet: Fleet, west: Side) -> None:
    await fleet.join("west", west)
    async with fleet.controllers():
        await delete(west.client, manifests.role_binding_path(manifests.IMPERSONATOR))
        await until(lambda: shows_itself(fleet))
        await edit(west.client, manifests.role_path(BESIDE), lambda role: {**role, "rules": []})
        await until(lambda: shows_itself(fleet))
        await fleet.unjoin("west")

    async def is_clean() -> bool:
        return not await west.everything_of_ours()

    await until(is_clean)


async def test_that_users_reach_a_member_is_told_as_karmada_tells_it(
    fleet: Fleet, west: Side
) -> None:
    await fleet.join("west", west)
    events = ResourcePath(EVENTS, "default")

    async def is_told() -> bool:
        listed = await fleet.hub.client.list_objects(events)
        about = [each for each in listed if find_at(each, "involvedObject", "name") == "west"]
        return any(each["reason"] == "SyncImpersonationConfigSucceed" for each in about)

    async with fleet.controllers():
        await until(is_told)


async def test_a_cluster_whose_users_stay_away_is_left_alone(fleet: Fleet, west: Side) -> None:
    await join_by_karmadactl(fleet, west)
    await edit(
        fleet.hub.client,
        manifests.cluster_path("west"),
        lambda cluster: with_value(cluster, None, "spec", "impersonatorSecretRef"),
    )
    async with fleet.controllers():
        await until(lambda: is_ready(fleet))
        await settled()

    assert BESIDE not in await west.names_of(ResourcePath(manifests.CLUSTER_ROLES))


async def test_a_token_that_the_member_does_not_accept_is_told_and_so_is_its_return(
    fleet: Fleet, west: Side
) -> None:
    await fleet.join("west", west)
    place = manifests.secret_path("west-impersonator")
    good = (await fleet.hub.client.get(place))["data"]["token"]
    async with fleet.controllers():

        async def with_token(encoded: str) -> None:
            await edit(
                fleet.hub.client, place, lambda each: with_value(each, encoded, "data", "token")
            )

        async def is_said(status: str) -> bool:
            return ((await condition_of(fleet)) or {}).get("status") == status

        await with_token(b64encode(b"nonsense").decode())
        await until(lambda: is_said("False"))
        said = await condition_of(fleet)
        assert said is not None
        assert said["reason"] == "CredentialsRefused"
        assert "join the cluster again" in said["message"]
        await until(lambda: is_ready(fleet))  # the hub itself is let in

        await with_token(good)
        await until(lambda: is_said("True"))


async def test_a_join_that_users_could_not_use_says_what_is_missing(
    fleet: Fleet, west: Side
) -> None:
    # Another hub has the name of the role, and its rules are its own.
    other = with_metadata(
        manifests.impersonation_role("west", "another-hub", None), ownerReferences=None
    )
    await west.client.create(ResourcePath(manifests.CLUSTER_ROLES), {**other, "rules": []})
    await make_karmadas_role(west, KARMADAS_RULES)

    with pytest.raises(CannotJoin, match="another-hub"):
        await fleet.join("west", west)

    assert await fleet.hub.client.find(manifests.cluster_path("west")) is None
    await delete(west.client, manifests.role_path(BESIDE))

    async def is_taken_back() -> bool:
        return "karmada-cluster" not in await west.names_of(ResourcePath(manifests.NAMESPACES))

    await until(is_taken_back)
    await fleet.join("west", west)
    assert await shows_itself(fleet)
