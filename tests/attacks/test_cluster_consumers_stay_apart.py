"""A program that is told of some clusters wants others, or what belongs to another program."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from tests.flows.consumers import (
    BINDINGS,
    RBAC,
    ConsumerSite,
    consumer,
    consumer_site,
)

from clusterspace.apis.consumers import (
    CLUSTER_CONSUMERS,
    CLUSTER_PROFILES,
    CONSUMER_LABEL,
    RENEWS,
    profile_for,
    read_consumer,
)
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, PatchType
from clusterspace.errors import Forbidden
from clusterspace.fleet.membership.consumers import token_request
from clusterspace.fleet.membership.manifests import SERVICE_ACCOUNTS
from clusterspace.kube.objects import Object, annotations_of, metadata_of, uid_of, with_value
from clusterspace.testing.builders import CONFIG_MAPS, SECRETS, secret
from clusterspace.testing.hubs import client_for_test, part_of_hub
from clusterspace.testing.steps import edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")
ANNOTATIONS = ("metadata", "annotations")
LAMP = ResourcePath(CONFIG_MAPS, "default", "lamp")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ConsumerSite]:
    async with consumer_site(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stolen(site: ConsumerSite) -> AsyncGenerator[ClusterClient]:
    """The controllers, as whoever holds their credential."""
    part = part_of_hub(site.fleet.directory / "hub", "controllers")
    async with client_for_test(part) as client:
        yield client


async def test_the_secret_of_one_consumer_opens_nothing_of_another(site: ConsumerSite) -> None:
    await site.prepare("mine", "west")
    await site.prepare("theirs", "east")
    await site.introduce(consumer("mine", clusterNames=["west"]))
    await site.introduce(consumer("theirs", clusterNames=["east"]))
    mine = await site.credentials("mine", "west")
    theirs = await site.credentials("theirs", "east")

    async with site.reached(mine["server"], mine["token"]) as program:
        assert await program.get(LAMP), "what it is for, it opens"
        with pytest.raises(Forbidden):
            await program.get(ResourcePath(SECRETS, "default", "any"))
    async with site.reached(theirs["server"], mine["token"]) as thief:
        with pytest.raises(Forbidden):
            await thief.get(LAMP)
    async with site.reached(site.fleet.hub.settings.server, mine["token"]) as thief:
        for path in (
            ResourcePath(SECRETS, "theirs", "east"),
            ResourcePath(SECRETS, "karmada-cluster", "west"),
            ResourcePath(CLUSTER_CONSUMERS, "", "theirs"),
        ):
            with pytest.raises(Forbidden):
                await thief.get(path)


@pytest.mark.parametrize("said", ["whenever", "9999-01-01T00:00:00Z", ""])
async def test_what_is_written_beside_a_token_keeps_no_token_back(
    site: ConsumerSite, said: str
) -> None:
    space = f"scribble-{len(said)}"
    await site.prepare(space, "east", "west")
    await site.introduce(consumer(space, clusterNames=["east", "west"]))
    first = [await site.credentials(space, name) for name in ("east", "west")]
    places = [ResourcePath(SECRETS, space, name) for name in ("east", "west")]
    for place in places:
        await edit(site.hub, place, lambda held: with_value(held, said, *ANNOTATIONS, RENEWS))
    await site.label("east", scribbled=space)

    for place, before in zip(places, first, strict=True):

        async def is_renewed(place: ResourcePath = place) -> bool:
            return annotations_of(await site.hub.get(place)).get(RENEWS) != said

        await until(is_renewed)
        assert (await site.credentials(space, place.name))["token"] != before["token"]


async def test_a_namespace_cannot_give_itself_more_clusters(site: ConsumerSite) -> None:
    await site.prepare("greedy", "west")
    made = await site.introduce(consumer("greedy", clusterNames=["west"]))
    await site.credentials("greedy", "west")
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "admin"}
    subjects = [{"kind": "User", "apiGroup": RBAC, "name": "mallory"}]
    head: Object = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": "m"}}
    binding = {**head, "roleRef": ref, "subjects": subjects}
    await site.hub.create(ResourcePath(BINDINGS, "greedy"), binding)
    own = site.fleet.hub.settings
    impersonated = replace(own.identity.impersonation, user="mallory")
    settings = replace(own, identity=replace(own.identity, impersonation=impersonated))
    async with client_for_test(settings) as mallory:
        consumers = ResourcePath(CLUSTER_CONSUMERS)
        wider = with_value(made, ["east", "west"], "spec", "clusterAffinity", "clusterNames")
        with pytest.raises(Forbidden):
            await mallory.update(consumers.named("greedy"), wider)
        with pytest.raises(Forbidden):
            await mallory.create(consumers, consumer("more", space="greedy"))
        # What looks like the consumer's own, for a cluster that it is not told of: a Secret that
        # waits for a token, with the label and the owner.
        east = {"metadata": {"name": "east"}}
        metadata = {**metadata_of(profile_for(read_consumer(made), east)), "namespace": "greedy"}
        bait = {**secret("east", namespace="greedy"), "metadata": metadata, "type": "Opaque"}
        await mallory.create(ResourcePath(SECRETS, "greedy"), bait)
    await site.label("east", looked="again")

    async def is_gone() -> bool:
        found = await site.hub.find(ResourcePath(SECRETS, "greedy", "east"))
        assert found is None or not found.get("data"), "it was given a token"
        return found is None

    await until(is_gone)
    assert set(await site.profiles("greedy")) == {"west"}
    await until_equal(lambda: site.condition("greedy"), ("True", "AllPublished"))


async def test_stolen_controllers_give_no_tokens_where_nobody_said_so(
    site: ConsumerSite, stolen: ClusterClient
) -> None:
    await site.prepare("victim", "west", allows=False)
    theirs = await site.hub.create(
        ResourcePath(SECRETS, "victim"), secret("vault", {"key": "x"}, namespace="victim")
    )
    made = await site.introduce(consumer("victim", clusterNames=["west"]))
    labelled = consumer_secret(made, "forged")
    token = ResourcePath(SERVICE_ACCOUNTS, "victim", "reader", "token")
    with pytest.raises(Forbidden):
        await stolen.create(token, token_request(theirs, 600))
    with pytest.raises(Forbidden):
        await stolen.create(ResourcePath(SECRETS, "victim"), labelled)
    await refused_deletion(stolen, ResourcePath(SECRETS, "victim", "vault"), theirs)
    changed = {"data": {"key": "eQ=="}, "metadata": {"labels": {CONSUMER_LABEL: "victim"}}}
    version = {**changed["metadata"], "resourceVersion": metadata_of(theirs)["resourceVersion"]}
    with pytest.raises(Forbidden):
        await stolen.patch(
            ResourcePath(SECRETS, "victim", "vault"),
            PatchType.MERGE,
            {**changed, "metadata": version},
        )


async def test_stolen_controllers_touch_only_what_is_a_consumers_where_somebody_said_so(
    site: ConsumerSite, stolen: ClusterClient
) -> None:
    await site.prepare("granted", "west")
    made = await site.introduce(consumer("granted", clusterNames=["west"]))
    await site.credentials("granted", "west")
    inside = ResourcePath(SECRETS, "granted")
    theirs = await site.hub.create(inside, secret("vault", {"key": "x"}, namespace="granted"))
    with pytest.raises(Forbidden):
        await stolen.create(inside, secret("plain", {"key": "x"}, namespace="granted"))
    await refused_deletion(stolen, inside.named("vault"), theirs)
    other = ResourcePath(SERVICE_ACCOUNTS, "granted", "default", "token")
    with pytest.raises(Forbidden):  # the role names one account
        await stolen.create(other, token_request(theirs, 600))
    with pytest.raises(Forbidden):
        await stolen.connection.ask(
            ApiRequest("DELETE", "/api/v1/namespaces/granted/secrets", body=b"{}")
        )
    profile = profile_for(read_consumer(made), {"metadata": {"name": "mine"}})
    profile["metadata"] = {"name": "mine", "namespace": "granted"}
    kept = await site.hub.create(ResourcePath(CLUSTER_PROFILES, "granted"), profile)
    path = ResourcePath(CLUSTER_PROFILES, "granted", "mine")
    await refused_deletion(stolen, path, kept)


def consumer_secret(made: Object, name: str) -> Object:
    metadata: Any = metadata_of(profile_for(read_consumer(made), {"metadata": {"name": name}}))
    return {**secret(name), "metadata": metadata}


async def refused_deletion(client: ClusterClient, path: ResourcePath, held: Object) -> None:
    with pytest.raises(Forbidden):
        await client.delete(path, DeleteOptions(uid_of(held)))
