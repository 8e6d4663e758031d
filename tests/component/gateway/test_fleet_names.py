"""Names that look alike, odd names, wrong words: the right object, or a clear reason."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    Site,
    fleet_site,
    member_at,
    without_federation,
)

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import CONFIG_MAPS, config_map

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
MEMBERS = ("east", "north", "west")
LONGEST = "n" * 253
ODD = {
    "same": "the same name everywhere",
    "a.b.c": "dots",
    "pod.17ab3c": "a dot and digits, as events have",
    "clusterspace.x": "the word in front",
    "x.clusterspace": "the word at the end",
    LONGEST: "the longest name there is",
}


@dataclass
class Sites:
    federated: Site
    plain: Site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sites(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Sites]:
    """Every odd name is in every cluster; what is in the data says where."""
    directory = tmp_path_factory.mktemp("fleet")
    # Nobody is slow here but a busy machine, on which a short deadline leaves out a cluster.
    async with (
        fleet_site(directory, members=MEMBERS, list_seconds=30.0) as federated,
        without_federation(federated) as plain,
    ):
        for cluster in ("karmada", *MEMBERS):
            for name in (*ODD, *marked_names()):
                await put(federated, cluster, name)
        yield Sites(federated, plain)


def marked_names() -> tuple[str, ...]:
    """Names a cluster gave itself which read like names of the fleet."""
    return "twin.clusterspace.west", "twin.clusterspace.karmada", "twin.clusterspace.nobody"


async def put(site: Site, cluster: str, name: str) -> None:
    side = site.members.get(cluster, site.hub)
    await side.client.create(
        ResourcePath(CONFIG_MAPS, "default"), config_map(name, {"in": cluster})
    )


def where(found: Object) -> str:
    return str(found["data"]["in"])


@pytest.mark.parametrize("cluster", [*MEMBERS, "karmada"])
@pytest.mark.parametrize("name", ODD, ids=lambda name: ODD[name])
async def test_an_odd_name_reaches_its_own_cluster(sites: Sites, name: str, cluster: str):
    full = f"{name}.clusterspace.{cluster}"
    for site in (sites.federated, sites.plain):
        by_name = await site.ask("GET", f"{MAPS}/{full}")
        by_namespace = await site.ask(
            "GET", f"{MAPS.replace('default', f'default.clusterspace.{cluster}')}/{name}"
        )
        by_selector = await site.ask("GET", f"{MAPS}?fieldSelector=metadata.name%3D{full}")

        assert (by_name.code, where(by_name.body)) == (200, cluster)
        assert by_name.body["metadata"]["name"] == full
        assert (by_namespace.code, where(by_namespace.body)) == (200, cluster)
        assert [(where(each), each["metadata"]["name"]) for each in by_selector.body["items"]] == [
            (cluster, full)
        ]


async def test_every_name_in_a_list_leads_back_to_the_object_it_was_listed_for(sites: Sites):
    for site in (sites.federated, sites.plain):
        listed = await site.ask("GET", MAPS)
        ours = [each for each in listed.body["items"] if "in" in (each.get("data") or {})]
        named = [each["metadata"]["name"] for each in ours]
        assert len(named) == len(set(named))
        assert len(ours) == (len(ODD) + 3) * (4 if site is sites.federated else 3)
        for each in ours:
            again = await site.ask("GET", f"{MAPS}/{each['metadata']['name']}")
            assert (again.code, where(again.body)) == (200, where(each)), each["metadata"]["name"]


@pytest.mark.parametrize("cluster", [*MEMBERS, "karmada"])
@pytest.mark.parametrize("name", marked_names())
async def test_a_name_with_the_marker_in_it_is_read_from_its_end(
    sites: Sites, name: str, cluster: str
):
    answer = await sites.federated.ask("GET", f"{MAPS}/{name}.clusterspace.{cluster}")

    assert (answer.code, where(answer.body)) == (200, cluster)
    assert answer.body["metadata"]["name"] == f"{name}.clusterspace.{cluster}"


async def test_a_marked_name_alone_is_never_the_object_of_another_cluster(sites: Sites):
    """There is no `twin` in west, whatever other clusters call `twin.clusterspace.west`."""
    for site in (sites.federated, sites.plain):
        read = await site.ask("GET", f"{MAPS}/twin.clusterspace.west")
        deleted = await site.ask("DELETE", f"{MAPS}/twin.clusterspace.karmada")
        unknown = await site.ask("GET", f"{MAPS}/twin.clusterspace.nobody")

        assert [answer.code for answer in (read, deleted, unknown)] == [404, 404, 404]
        assert '"twin.clusterspace.west" not found' in read.message
        assert unknown.message == "there is no cluster 'nobody' in the fleet"


async def test_an_object_of_the_hub_that_reads_like_a_member_s_can_be_changed_and_deleted(
    sites: Sites,
):
    await put(sites.federated, "karmada", "late.clusterspace.west")
    full = "late.clusterspace.west.clusterspace.karmada"

    listed = await sites.federated.ask("GET", MAPS)
    read = await sites.federated.ask("GET", f"{MAPS}/{full}")
    written = await sites.federated.ask("PUT", f"{MAPS}/{full}", {**read.body, "data": {"in": "x"}})
    deleted = await sites.federated.ask("DELETE", f"{MAPS}/{full}")

    assert full in listed.names
    assert (read.code, written.code, deleted.code) == (200, 200, 200)
    place = ResourcePath(CONFIG_MAPS, "default", "late.clusterspace.west")
    assert await sites.federated.hub.client.find(place) is None


async def test_a_name_of_254_characters_is_too_long_for_its_cluster(sites: Sites):
    made = await sites.federated.ask("POST", MAPS, config_map(f"{LONGEST}n.clusterspace.east"))

    assert (made.code, made.body["reason"]) == (422, "Invalid")
    assert "must be no more than 253" in made.message


async def test_ambiguity_names_the_candidates(sites: Sites):
    read = await sites.plain.ask("GET", f"{MAPS}/same")

    assert (read.code, read.body["reason"]) == (400, "BadRequest")
    candidates = ", ".join(f"same.clusterspace.{cluster}" for cluster in MEMBERS)
    assert read.message == f"same is in 3 clusters; say which one: {candidates}"


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "DELETE", "POST"])
async def test_a_write_without_a_cluster_is_told_how_to_say_one(sites: Sites, verb: str):
    path = MAPS if verb == "POST" else f"{MAPS}/same"
    content_type = "application/merge-patch+json" if verb == "PATCH" else "application/json"

    answer = await sites.plain.ask(verb, path, config_map("same"), content_type=content_type)

    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert "use the name same.clusterspace.CLUSTER" in answer.message
    assert "the namespace default.clusterspace.CLUSTER" in answer.message


async def test_an_unknown_cluster_is_told_apart_from_an_unknown_object(sites: Sites):
    read = await sites.federated.ask("GET", f"{MAPS}/same.clusterspace.nowhere")
    made = await sites.federated.ask("POST", MAPS, config_map("same.clusterspace.nowhere"))
    explicit = await sites.federated.ask("GET", "/api/v1/clusterspaces/nowhere/configmaps")
    missing = await sites.federated.ask("GET", f"{MAPS}/none.clusterspace.east")

    for answer, code in ((read, 404), (made, 400), (explicit, 404)):
        assert (answer.code, answer.message) == (code, "there is no cluster 'nowhere' in the fleet")
    assert (missing.code, missing.message) == (
        404,
        'configmaps "none.clusterspace.east" not found',
    )


@pytest.mark.parametrize("word", ["all", "hub"])
async def test_a_reserved_word_in_a_name_is_refused_with_the_right_one(sites: Sites, word: str):
    read = await sites.federated.ask("GET", f"{MAPS}/same.clusterspace.{word}")
    made = await sites.federated.ask("POST", MAPS, config_map(f"new.clusterspace.{word}"))

    for answer, name in ((read, "same"), (made, "new")):
        assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
        assert f"cannot say {word}" in answer.message
        assert f"{name}.clusterspace.karmada" in answer.message


@pytest.mark.parametrize("word", ["all", "hub", "karmada"])
async def test_no_cluster_can_join_under_a_reserved_name(sites: Sites, word: str):
    endpoint = manifests.Endpoint("https://127.0.0.1:1")
    cluster = manifests.cluster(word, word, endpoint, manifests.NOWHERE)

    answer = await sites.federated.ask(
        "POST", "/clusterspaces/hub/apis/cluster.karmada.io/v1alpha1/clusters", cluster
    )

    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert "is reserved, as are all of: all, hub, karmada" in answer.message


BROKEN_TOKENS = ["garbage", "cc1~000000000000~east~cs1.x~", "eyJ2IjoibWV0YSJ9"]


@pytest.mark.parametrize("token", BROKEN_TOKENS)
async def test_a_broken_continue_token_is_refused(sites: Sites, token: str):
    answer = await sites.federated.ask("GET", f"{MAPS}?limit=1&continue={token}")

    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert "continue key is not valid: this server did not issue it" in answer.message


def elsewhere() -> str:
    return versions.encode({"karmada": "1", "some-other-fleet": "5"})


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("12345", "the version of one cluster, or of another server"),
        ("cs1.A", "it is damaged"),
        ("cs9.AAAA", "of another server"),
        (elsewhere(), "the clusters it was made for are not those there are now"),
    ],
    ids=["native", "damaged", "another edition", "another fleet"],
)
async def test_a_version_from_elsewhere_is_expired_and_says_to_list_again(
    sites: Sites, version: str, why: str
):
    answer = await sites.federated.ask("GET", f"{MAPS}?resourceVersion={version}")

    assert (answer.code, answer.body["reason"]) == (410, "Expired")
    assert why in answer.message
    assert answer.message.endswith("list again")


async def test_a_version_of_another_fleet_in_a_write_changes_nothing(sites: Sites):
    read = await sites.federated.ask("GET", f"{MAPS}/same.clusterspace.east")
    stale = {**read.body["metadata"], "resourceVersion": elsewhere()}
    body = {**read.body, "metadata": stale, "data": {"in": "changed"}}

    answer = await sites.federated.ask("PUT", f"{MAPS}/same.clusterspace.east", body)

    assert (answer.code, answer.body["reason"]) == (410, "Expired")
    again = await sites.federated.ask("GET", f"{MAPS}/same.clusterspace.east")
    assert where(again.body) == "east"


async def test_a_cluster_that_is_away_is_one_sentence_and_no_reason_to_try_again(sites: Sites):
    async with member_at(sites.federated, "away", "https://127.0.0.1:1"):
        read = await sites.federated.ask("GET", f"{MAPS}/same.clusterspace.away")

    assert (read.code, read.body["reason"]) == (504, "Timeout")
    assert "retry-after" not in read.headers
    assert read.message == "cluster away: refused the connection"
