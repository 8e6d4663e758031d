"""Programs are told of clusters by ClusterProfiles and Secrets, if an administrator says so."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import jwt
import pytest
import pytest_asyncio
from tests.flows.consumers import ConsumerSite, consumer, consumer_site

from clusterspace.apis.consumers import CLUSTER_CONSUMERS, CLUSTER_PROFILES
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Forbidden, Invalid, Unauthorized
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import labels_of, with_value
from clusterspace.testing.builders import CONFIG_MAPS, SECRETS, secret
from clusterspace.testing.hubs import KUBERNETES, OURS
from clusterspace.testing.steps import edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")
LAMP = ResourcePath(CONFIG_MAPS, "default", "lamp")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ConsumerSite]:
    async with consumer_site(tmp_path_factory.mktemp("fleet")) as made:
        yield made


async def test_a_profile_says_how_a_cluster_is_and_where_it_is_reached(site: ConsumerSite) -> None:
    await site.prepare("profiled")
    await site.introduce(consumer("profiled", outputs=("ClusterProfile",)))

    async def is_whole() -> bool:
        found = await site.profiles("profiled")
        return set(found) == {"east", "west"} and all("status" in e for e in found.values())

    await until(is_whole)
    west = (await site.profiles("profiled"))["west"]
    assert west["spec"]["clusterManager"] == {"name": "clusterspace"}
    assert labels_of(west)["x-k8s.io/cluster-manager"] == "clusterspace"
    status = west["status"]
    assert status["version"]["kubernetes"].startswith("v1.")
    healthy = find_condition(status["conditions"], "ControlPlaneHealthy") or {}
    assert healthy["status"] == "True"
    properties = {each["name"]: each["value"] for each in status["properties"]}
    assert properties["kubernetes-fleet.io/node-count"] == "1"
    assert properties["cluster.clusterset.k8s.io"]
    (provider,) = status["accessProviders"]
    assert provider["cluster"]["server"].endswith("/clusters/west/proxy")
    assert provider["cluster"]["certificate-authority-data"]
    assert status["credentialProviders"] == [provider]
    assert await site.hub.list_objects(ResourcePath(SECRETS, "profiled")) == []


async def test_argo_cd_reaches_a_cluster_with_what_lies_in_its_secret(site: ConsumerSite) -> None:
    await site.prepare("argocd", "east", "west")
    await site.label("west", tier="gold")
    await site.introduce(consumer("argocd", outputs=("ArgoCDSecret",)))

    found = await site.credentials("argocd", "west")
    held = await site.hub.get(ResourcePath(SECRETS, "argocd", "west"))
    assert labels_of(held)["argocd.argoproj.io/secret-type"] == "cluster"
    assert labels_of(held)["tier"] == "gold"
    assert found["name"] == "west"
    config = json.loads(found["config"])
    assert config["tlsClientConfig"]["caData"]
    claims: Any = jwt.decode(config["bearerToken"], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] <= 3600
    assert claims["kubernetes.io"]["secret"]["name"] == "west"
    async with site.reached(found["server"], config["bearerToken"]) as argo:
        assert (await argo.get(LAMP))["data"] == {"in": "west"}


async def test_a_consumer_follows_the_labels_of_clusters(site: ConsumerSite) -> None:
    await site.prepare("followers", "east", "west")
    await site.label("west", ring="one")
    chosen = {"matchLabels": {"ring": "one"}}
    await site.introduce(consumer("followers", labelSelector=chosen))

    async def told_of() -> set[str]:
        return set(await site.profiles("followers"))

    await until_equal(told_of, {"west"})
    found = await site.credentials("followers", "west")
    await site.label("west", ring="two")
    await site.label("east", ring="one")
    await until_equal(told_of, {"east"})

    async def is_gone() -> bool:
        return await site.hub.find(ResourcePath(SECRETS, "followers", "west")) is None

    await until(is_gone)
    async with site.reached(found["server"], found["token"]) as late:
        with pytest.raises(Unauthorized):
            await late.get(LAMP)
    await site.label("east")
    await site.label("west")


async def test_who_is_suspended_or_deleted_has_no_credential_any_more(site: ConsumerSite) -> None:
    await site.prepare("leaving", "east", "west")
    await site.introduce(consumer("leaving"))
    path = ResourcePath(CLUSTER_CONSUMERS, "", "leaving")

    async def secrets() -> list[Any]:
        return await site.hub.list_objects(ResourcePath(SECRETS, "leaving"))

    first = await site.credentials("leaving", "west")
    await edit(site.hub, path, lambda held: with_value(held, True, "spec", "suspend"))
    await until_equal(secrets, [])
    assert set(await site.profiles("leaving")) == {"east", "west"}, "they hold no secret"
    await edit(site.hub, path, lambda held: with_value(held, False, "spec", "suspend"))
    second = await site.credentials("leaving", "west")
    async with site.reached(second["server"], second["token"]) as program:
        assert await program.get(LAMP)
    await site.delete(path)
    await until_equal(secrets, [])
    await until_equal(lambda: site.profiles("leaving"), {})
    for each in (first, second):
        async with site.reached(each["server"], each["token"]) as late:
            with pytest.raises(Unauthorized):
                await late.get(LAMP)


async def test_a_secret_that_is_deleted_ends_its_token_and_is_made_anew(
    site: ConsumerSite,
) -> None:
    await site.prepare("careless", "west")
    await site.introduce(consumer("careless", clusterNames=["west"]))
    first = await site.credentials("careless", "west")
    await site.delete(ResourcePath(SECRETS, "careless", "west"))
    async with site.reached(first["server"], first["token"]) as late:
        with pytest.raises(Unauthorized):
            await late.get(LAMP)
    # Secrets are not watched: any change of a cluster, or five minutes, bring it back.
    await site.label("west", looked="again")
    second = await site.credentials("careless", "west")
    assert second["token"] != first["token"]
    await site.label("west")


async def test_without_a_grant_in_its_namespace_a_consumer_says_what_is_missing(
    site: ConsumerSite,
) -> None:
    await site.prepare("ungranted", "west", allows=False)
    await site.introduce(consumer("ungranted", clusterNames=["west"]))

    await until_equal(lambda: site.condition("ungranted"), ("False", "CredentialsForbidden"))
    assert set(await site.profiles("ungranted")) == {"west"}
    assert await site.hub.list_objects(ResourcePath(SECRETS, "ungranted")) == []
    await site.allow("ungranted")
    await site.label("west", looked="twice")
    await site.credentials("ungranted", "west")
    await until_equal(lambda: site.condition("ungranted"), ("True", "AllPublished"))
    await site.label("west")


async def test_what_somebody_else_made_under_a_name_is_left_alone(site: ConsumerSite) -> None:
    await site.prepare("crowded", "west")
    theirs = await site.hub.create(
        ResourcePath(SECRETS, "crowded"), secret("west", {"password": "x"}, namespace="crowded")
    )
    await site.introduce(consumer("crowded", clusterNames=["west"]))

    await until_equal(lambda: site.condition("crowded"), ("False", "NameTaken"))
    assert await site.hub.get(ResourcePath(SECRETS, "crowded", "west")) == theirs


async def test_a_profile_that_somebody_changes_is_put_right(site: ConsumerSite) -> None:
    await site.prepare("meddlers")
    await site.introduce(consumer("meddlers", outputs=("ClusterProfile",), clusterNames=["west"]))
    path = ResourcePath(CLUSTER_PROFILES, "meddlers", "west")
    await until(lambda: site.hub.find(path))
    await edit(site.hub, path, lambda held: with_value(held, "mine", "spec", "displayName"))

    async def shown() -> str:
        return (await site.hub.get(path))["spec"]["displayName"]

    await until_equal(shown, "west")


async def test_a_consumer_that_makes_no_sense_is_refused(site: ConsumerSite) -> None:
    made = consumer("odd", labelSelector={"matchExpressions": [{"key": "a", "operator": "In"}]})
    with pytest.raises(Invalid, match="In and NotIn need values"):
        await site.introduce(made)
    with pytest.raises(Invalid, match="tokenSeconds"):
        await site.introduce(with_value(consumer("odd"), 86400, "spec", "tokenSeconds"))
    with pytest.raises(Invalid, match="outputs"):
        await site.introduce(with_value(consumer("odd"), ["Everything"], "spec", "outputs"))


@pytest.mark.parametrize(
    "hub_kind", [OURS, pytest.param(KUBERNETES, marks=pytest.mark.slow)], ids=str
)
async def test_at_the_fleet_address_it_is_the_same_on_either_hub(
    tmp_path: Path, hub_kind: str
) -> None:
    async with consumer_site(tmp_path, hub_kind=hub_kind, at_fleet=True) as site:
        await site.prepare("tools", "west")
        await site.introduce(consumer("tools", clusterNames=["west"]))
        found = await site.credentials("tools", "west")
        profile = (await site.profiles("tools"))["west"]
        providers = profile["status"]["accessProviders"]
        assert {each["cluster"]["server"] for each in providers} == {found["server"]}
        async with site.reached(found["server"], found["token"]) as program:
            assert (await program.get(LAMP))["data"] == {"in": "west"}
        other = found["server"].replace("/west", "/east")
        async with site.reached(other, found["token"]) as thief:
            with pytest.raises(Forbidden):
                await thief.get(LAMP)
        await site.delete(ResourcePath(CLUSTER_CONSUMERS, "", "tools"))

        async def is_refused() -> bool:
            async with site.reached(found["server"], found["token"]) as late:
                try:
                    await late.get(LAMP)
                except Unauthorized:
                    return True
                return False

        # The fleet API server, and a kube-apiserver, remember for some seconds whose a token is.
        await until(is_refused)
