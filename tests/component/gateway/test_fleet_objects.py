"""One object in one cluster, through the fleet: every verb reaches the right one, and no other."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    HOSTILE,
    ROOT,
    TABLE,
    Site,
    fleet_site,
    without_federation,
)
from tests.component.gateway.watch_streams import watching

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.upgrades import open_tunnel
from clusterspace.fleet.gateway.merge import versions
from clusterspace.kube.objects import Object, find_at
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    config_map,
    deployment,
    namespace,
    pod,
)
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYS = "/apis/apps/v1/namespaces/default/deployments"
PATCHES = {
    "application/merge-patch+json": {"data": {"k": "2"}},
    "application/strategic-merge-patch+json": {"data": {"k": "2"}},
    "application/json-patch+json": [{"op": "replace", "path": "/data/k", "value": "2"}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(
        tmp_path_factory.mktemp("fleet"), members=("east",), sims=("west",)
    ) as it:
        yield it


async def held(site: Site, cluster: str, name: str) -> Object | None:
    side = site.hub if cluster == "hub" else site.members[cluster]
    return await side.client.find(ResourcePath(CONFIG_MAPS, "default", name))


async def test_a_create_goes_to_the_cluster_in_the_name_and_to_no_other(site: Site):
    made = await site.ask("POST", MAPS, config_map("made.clusterspace.west", {"k": "1"}))

    assert (made.code, made.body["metadata"]["name"]) == (201, "made.clusterspace.west")
    assert (await held(site, "west", "made") or {}).get("data") == {"k": "1"}
    assert await held(site, "east", "made") is None
    assert await held(site, "hub", "made") is None


@pytest.mark.parametrize("namespace", ["default", "default.clusterspace.west"])
async def test_a_pod_to_debug_a_node_is_in_the_cluster_of_the_node(site: Site, namespace: str):
    """kubectl makes its name of that of the node: `node-debugger-n1.clusterspace.west-xxxxx`."""
    name = f"node-debugger-n1.clusterspace.west-{len(namespace)}"
    spec = {"nodeName": "n1.clusterspace.west", "containers": [{"name": "c", "image": "i"}]}
    path = f"/api/v1/namespaces/{namespace}/pods"

    made = await site.ask("POST", path, {"metadata": {"name": name}, "spec": spec})

    assert made.code == 201, made.body
    own = f"node-debugger-n1-{len(namespace)}"
    assert made.body["metadata"]["name"] == f"{own}.clusterspace.west"
    assert made.body["spec"]["nodeName"] == "n1.clusterspace.west"
    found = await site.members["west"].client.get(ResourcePath(PODS, "default", own))
    assert found["spec"]["nodeName"] == "n1"

    elsewhere = {"metadata": {"name": "p.clusterspace.east"}, "spec": spec}
    refused = await site.ask("POST", "/api/v1/namespaces/default/pods", elsewhere)
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
    assert "names two clusters" in refused.message


def printed(table: Any) -> list[list[Any]]:
    """Return what kubectl would print, without the age."""
    columns = [each["name"] for each in table["columnDefinitions"]]
    age = columns.index("Age")
    return [row[:age] + row[age + 1 :] for row in (columns, *(r["cells"] for r in table["rows"]))]


@pytest.mark.parametrize(
    ("path", "name", "cluster"),
    [
        ("default/configmaps/shown", "shown", "karmada"),
        ("default/configmaps/shown.clusterspace.west", "shown.clusterspace.west", "west"),
        ("default.clusterspace.west/configmaps/shown", "shown", "west"),
        ("default.clusterspace.west/configmaps?labelSelector=shown", "shown", "west"),
        ("default/configmaps?fieldSelector=metadata.name%3Dshown", "shown", "karmada"),
        ("default/clusterspaces/west/configmaps/shown", "shown", "west"),
    ],
)
async def test_a_single_object_is_printed_with_its_cluster(
    site: Site, path: str, name: str, cluster: str
):
    for side in (site.hub, site.members["west"]):
        place = ResourcePath(CONFIG_MAPS, "default", "shown")
        if await side.client.find(place) is None:
            made = config_map("shown", labels={"shown": ""})
            await side.client.create(place.collection, made)

    path = f"/api/v1/namespaces/{path}"
    table = (await site.ask("GET", path, headers=(("Accept", TABLE),))).body

    assert printed(table) == [["Name", "Cluster", "Data"], [name, cluster, 0]]
    if "?" in path:
        version = table["metadata"]["resourceVersion"]
        query = f"&watch=true&resourceVersion={version}"
        async with watching(site.connection(ROOT), path + query, accept=TABLE) as found:
            side = site.hub if cluster == "karmada" else site.members["west"]
            place = ResourcePath(CONFIG_MAPS, "default", "shown")
            for value in ("1", "2"):
                current = await side.client.get(place)
                await side.client.update(place, {**current, "data": {"k": value}})
            await found.until(lambda each: len(each.lines) == 2)
            await side.client.update(place, {**await side.client.get(place), "data": {}})
        cells = [event["object"]["rows"][0]["cells"][:3] for event in found.events[:2]]
        assert cells == [[name, cluster, 1]] * 2


MERGE = "application/merge-patch+json"


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("PATCH", "/scale", {"spec": {"replicas": 5}}, "what its template says will be put back"),
        ("PATCH", "", {"spec": {"paused": True}}, "what its template says will be put back"),
        ("DELETE", "", None, "and will be made again"),
    ],
)
async def test_scaling_a_managed_copy_says_that_it_will_be_put_back(
    site: Site, method: str, path: str, body: Any, says: str
):
    """kubectl said "scaled", and a minute later it was not."""
    west = site.members["west"].client
    deploys = "/apis/apps/v1/namespaces/default/deployments"
    for name, labels in (("copied", {"karmada.io/managed": "true"}), ("by-hand", {})):
        made = deployment(name)
        made = {**made, "metadata": {**made["metadata"], "labels": labels}}
        if await west.find(ResourcePath(DEPLOYMENTS, "default", name)) is None:
            await west.create(ResourcePath(DEPLOYMENTS, "default"), made)

    for form in ("default/deployments/copied.clusterspace.west",
                 "default.clusterspace.west/deployments/copied"):  # fmt: skip
        where = f"/apis/apps/v1/namespaces/{form}{path}?dryRun=All"
        copied = await site.ask(method, where, body, content_type=MERGE)
        assert copied.code == 200, copied.body
        assert "deployments.apps copied in cluster west is a copy that the hub keeps" in (
            copied.warning
        )
        assert says in copied.warning
    own = f"{deploys}/by-hand.clusterspace.west{path}?dryRun=All"
    assert (await site.ask(method, own, body, content_type=MERGE)).warning == ""


async def test_a_pod_made_at_the_fleet_address_says_that_nothing_will_run_it(site: Site):
    """`kubectl run` said "created", and the pod stayed Pending for ever."""
    on_hub = await site.ask("POST", "/api/v1/namespaces/default/pods", pod("lonely"))
    on_west = await site.ask(
        "POST", "/api/v1/namespaces/default/pods", pod("lonely.clusterspace.west")
    )

    assert (on_hub.code, on_west.code) == (201, 201)
    assert "pod lonely is a template on the hub, where nothing runs: it stays Pending" in (
        on_hub.warning
    )
    assert "lonely.clusterspace.CLUSTER" in on_hub.warning
    assert on_west.warning == ""


async def test_wide_pods_show_the_node_by_the_name_it_has_in_the_fleet(site: Site):
    made = {**pod("placed"), "spec": {**pod("placed")["spec"], "nodeName": "west-node-0"}}
    await site.members["west"].client.create(ResourcePath(PODS, "default"), made)
    listed = "/api/v1/namespaces/default/pods"

    for path in (listed, f"{listed}/placed.clusterspace.west"):
        table = (await site.ask("GET", path, headers=(("Accept", TABLE),))).body
        columns = [each["name"] for each in table["columnDefinitions"]]
        row = next(r["cells"] for r in table["rows"] if r["cells"][0].startswith("placed"))
        assert row[columns.index("Node")] == "west-node-0.clusterspace.west"
        assert row[columns.index("Nominated Node")] == "<none>"


async def test_a_scale_is_shown_in_its_own_columns(site: Site):
    await site.members["west"].client.create(
        ResourcePath(DEPLOYMENTS, "default"), deployment("scaled")
    )
    path = "/apis/apps/v1/namespaces/default/deployments/scaled.clusterspace.west/scale"

    table = (await site.ask("GET", path, headers=(("Accept", TABLE),))).body

    columns = [each["name"] for each in table["columnDefinitions"]]
    assert columns == ["Name", "Cluster", "Desired", "Available", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:3] == ["scaled.clusterspace.west", "west", 1]


async def test_a_bare_name_is_the_hub_s(site: Site):
    made = await site.ask("POST", MAPS, config_map("bare"))

    assert (made.code, made.body["metadata"]["name"]) == (201, "bare")
    assert await held(site, "hub", "bare")
    assert await held(site, "west", "bare") is None


async def test_a_get_repeats_the_name_it_was_asked_for(site: Site):
    await site.members["west"].client.create(
        ResourcePath(CONFIG_MAPS, "default"), config_map("seen")
    )

    found = await site.ask("GET", f"{MAPS}/seen.clusterspace.west")
    plain = await site.ask("GET", "/api/v1/namespaces/default/clusterspaces/west/configmaps/seen")
    spaced = await site.ask("GET", "/api/v1/namespaces/default.clusterspace.west/configmaps/seen")

    assert found.body["metadata"]["name"] == "seen.clusterspace.west"
    assert found.body["metadata"]["namespace"] == "default"
    assert plain.body["metadata"]["name"] == "seen"
    assert spaced.body["metadata"]["name"] == "seen"
    assert spaced.body["metadata"]["namespace"] == "default.clusterspace.west"


async def test_what_was_read_can_be_written_back(site: Site):
    await site.ask("POST", MAPS, config_map("round.clusterspace.west", {"k": "1"}))
    found = (await site.ask("GET", f"{MAPS}/round.clusterspace.west")).body

    changed = {**found, "data": {"k": "2"}}
    written = await site.ask("PUT", f"{MAPS}/round.clusterspace.west", changed)
    again = await site.ask("PUT", f"{MAPS}/round.clusterspace.west", changed)

    assert (written.code, written.body["data"]) == (200, {"k": "2"})
    assert (again.code, again.body["reason"]) == (409, "Conflict")
    stored = await held(site, "west", "round") or {}
    assert (stored["metadata"]["name"], stored["data"]) == ("round", {"k": "2"})


@pytest.mark.parametrize("media_type", PATCHES)
async def test_every_patch_reaches_its_cluster(site: Site, media_type: str):
    name = f"p{len(media_type)}"
    await site.ask("POST", MAPS, config_map(f"{name}.clusterspace.west", {"k": "1"}))

    url = f"{MAPS}/{name}.clusterspace.west"
    patched = await site.ask("PATCH", url, PATCHES[media_type], content_type=media_type)

    assert (patched.code, patched.body["metadata"]["name"]) == (200, f"{name}.clusterspace.west")
    assert (await held(site, "west", name) or {})["data"] == {"k": "2"}


async def test_an_apply_creates_under_the_cluster_s_own_name(site: Site):
    wanted = config_map("applied.clusterspace.west", {"k": "1"})
    url = f"{MAPS}/applied.clusterspace.west?fieldManager=me"

    first = await site.ask("PATCH", url, wanted, content_type="application/apply-patch+yaml")
    second = await site.ask("PATCH", url, wanted, content_type="application/apply-patch+yaml")

    assert (first.code, second.code) == (201, 200)
    assert second.body["metadata"]["name"] == "applied.clusterspace.west"
    assert first.body["metadata"]["resourceVersion"] == second.body["metadata"]["resourceVersion"]
    assert (await held(site, "west", "applied") or {})["data"] == {"k": "1"}


async def test_a_delete_deletes_one_and_says_which(site: Site):
    for cluster in ("west", "east"):
        await site.ask("POST", MAPS, config_map(f"gone.clusterspace.{cluster}"))

    deleted = await site.ask("DELETE", f"{MAPS}/gone.clusterspace.west")

    assert (deleted.code, deleted.body["details"]["name"]) == (200, "gone.clusterspace.west")
    assert await held(site, "west", "gone") is None
    assert await held(site, "east", "gone")
    missing = await site.ask("GET", f"{MAPS}/gone.clusterspace.west")
    assert (missing.code, missing.body["details"]["name"]) == (404, "gone.clusterspace.west")


async def test_a_version_of_the_whole_fleet_is_understood_in_a_write(site: Site):
    await site.ask("POST", MAPS, config_map("vector.clusterspace.west", {"k": "1"}))
    url = f"{MAPS}/vector.clusterspace.west"
    found = (await site.ask("GET", url)).body

    def at(version: str) -> Object:
        return {**found, "metadata": {**found["metadata"], "resourceVersion": version}}

    stale = versions.encode({"karmada": "7", "west": "1"})
    fresh = versions.encode({"karmada": "7", "west": found["metadata"]["resourceVersion"]})

    assert (await site.ask("PUT", url, at(stale))).code == 409
    assert (await site.ask("PUT", url, at(fresh))).code == 200
    broken = await site.ask("PUT", url, at(f"{fresh[:-4]}AAAA"))
    assert (broken.code, broken.body["reason"]) == (410, "Expired")


async def test_subresources_reach_their_cluster(site: Site):
    created = await site.ask("POST", DEPLOYS, deployment("shop.clusterspace.west", replicas=1))
    assert created.code == 201, created.body
    url = f"{DEPLOYS}/shop.clusterspace.west/scale"

    scale = (await site.ask("GET", url)).body
    # Without its version: the member's controllers write to the Deployment at the same time.
    wanted = {**scale, "metadata": {"name": scale["metadata"]["name"]}, "spec": {"replicas": 2}}
    scaled = await site.ask("PUT", url, wanted)
    patch = {"spec": {"replicas": 3}}
    again = await site.ask("PATCH", url, patch, content_type="application/merge-patch+json")

    assert scale["metadata"]["name"] == "shop.clusterspace.west"
    assert (scaled.code, scaled.body["spec"]) == (200, {"replicas": 2})
    assert (again.code, again.body["spec"]) == (200, {"replicas": 3})
    stored = await site.members["west"].client.get(ResourcePath(DEPLOYMENTS, "default", "shop"))
    assert stored["spec"]["replicas"] == 3


async def test_a_cluster_nobody_knows_is_told_apart_from_an_object_nobody_knows(site: Site):
    got = await site.ask("GET", f"{MAPS}/x.clusterspace.mars")
    made = await site.ask("POST", MAPS, config_map("x.clusterspace.mars"))

    assert (got.code, got.message) == (404, "there is no cluster 'mars' in the fleet")
    assert (made.code, made.message) == (400, "there is no cluster 'mars' in the fleet")


async def test_two_clusters_in_one_request_are_refused(site: Site):
    path = "/api/v1/namespaces/default/clusterspaces/west/configmaps/x.clusterspace.east"
    answer = await site.ask("GET", path)

    assert answer.code == 400
    assert "two clusters: west in the URL, and east" in answer.message


async def test_nothing_is_deleted_in_all_clusters_at_once(site: Site):
    answer = await site.ask("DELETE", MAPS)
    one = await site.ask("DELETE", "/api/v1/namespaces/nowhere.clusterspace.west/configmaps")

    assert (answer.code, answer.body["reason"]) == (405, "MethodNotAllowed")
    assert one.code == 200


async def test_the_prefix_form_is_the_cluster_itself(site: Site):
    await site.members["west"].client.create(
        ResourcePath(CONFIG_MAPS, "default"), config_map("raw")
    )
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"

    found = await site.ask("GET", f"/clusterspaces/west{MAPS}/raw")
    version = await site.ask("GET", "/clusterspaces/west/version")
    karmada = await site.ask(
        "GET", f"/apis/cluster.karmada.io/v1alpha1/clusters/west/proxy{MAPS}/raw"
    )
    hub = await site.ask("GET", "/clusterspaces/hub/apis/cluster.karmada.io/v1alpha1/clusters")
    rows = await site.ask("GET", f"/clusterspaces/west{MAPS}", headers=(("Accept", table),))

    assert found.body["metadata"]["name"] == karmada.body["metadata"]["name"] == "raw"
    assert version.body["major"] == "1"
    assert [name for name in hub.names if name != HOSTILE] == ["east", "west"]
    assert [column["name"] for column in rows.body["columnDefinitions"]][:2] == ["Name", "Data"]


async def events_of(site: Site, path: str, count: int) -> list[Any]:
    """Return the first events of a watch."""
    async with (
        asyncio.timeout(60),
        site.connection("root-token").stream(ApiRequest("GET", path)) as stream,
    ):
        assert stream.status == 200
        said = b""
        async for chunk in stream.chunks():
            said += chunk
            lines = said.splitlines()
            if len(lines) >= count and said.endswith(b"\n"):
                return [json.loads(line) for line in lines[:count]]
    raise AssertionError("the watch ended")


async def test_a_watch_of_one_cluster_comes_with_the_names_that_were_asked_for(site: Site):
    await site.members["west"].client.create(
        ResourcePath(CONFIG_MAPS, "default"), config_map("watched")
    )
    selector = "fieldSelector=metadata.name%3Dwatched.clusterspace.west&watch=true"
    spaced = "/api/v1/namespaces/default.clusterspace.west/configmaps"

    (by_name,) = await events_of(site, f"{MAPS}?{selector}", 1)
    (by_space,) = await events_of(
        site, f"{spaced}?watch=true&fieldSelector=metadata.name%3Dwatched", 1
    )
    (plain,) = await events_of(
        site,
        "/api/v1/namespaces/default/clusterspaces/west/configmaps"
        "?watch=true&fieldSelector=metadata.name%3Dwatched",
        1,
    )

    assert by_name["type"] == "ADDED"
    assert by_name["object"]["metadata"]["name"] == "watched.clusterspace.west"
    assert by_space["object"]["metadata"]["namespace"] == "default.clusterspace.west"
    assert plain["object"]["metadata"]["name"] == "watched"


async def test_logs_and_shells_are_passed_on(site: Site):
    west = site.members["west"].client
    await west.create(ResourcePath(PODS, "default"), pod("shell"))

    async def runs() -> bool:
        found = await west.get(ResourcePath(PODS, "default", "shell"))
        return find_at(found, "status", "phase") == "Running"

    await until(runs)
    url = "/api/v1/namespaces/default/pods/shell.clusterspace.west"
    log = await site.ask("GET", f"{url}/log?tailLines=1")
    headers = (
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
    )
    ask = ApiRequest("GET", f"{url}/exec?command=pwd&stdout=true", headers=headers)

    assert log.code == 200
    async with open_tunnel(site.connection("root-token"), ask, "websocket") as shell:
        said = b""
        async with asyncio.timeout(60):
            while b"Success" not in said:
                said += await shell.read()
    assert b"/" in said


async def test_yaml_comes_to_those_who_ask_for_it(site: Site):
    await site.ask("POST", MAPS, config_map("yaml.clusterspace.west", {"k": "1"}))
    accept = (("Accept", "application/yaml"),)

    one = await site.ask("GET", f"{MAPS}/yaml.clusterspace.west", headers=accept)
    listed = await site.ask("GET", MAPS, headers=accept)

    assert b"name: yaml.clusterspace.west\n" in one.body
    assert b"    name: yaml.clusterspace.west\n" in listed.body


async def test_get_ns_or_create_ns_works_where_only_a_member_has_the_namespace(site: Site):
    await site.members["west"].client.create(ResourcePath(NAMESPACES), namespace("only-west"))
    path = "/api/v1/namespaces/only-west"

    missing = await site.ask("GET", path)
    named = await site.ask("GET", f"{path}.clusterspace.west")
    listed = await site.ask("GET", "/api/v1/namespaces")
    selected = await site.ask("GET", "/api/v1/namespaces?fieldSelector=metadata.name%3Donly-west")
    made = await site.ask("POST", "/api/v1/namespaces", namespace("only-west"))
    found = await site.ask("GET", path)
    filled = await site.ask(
        "POST", f"{path}/configmaps", config_map("first", {}, namespace="only-west")
    )

    assert (missing.code, missing.body["reason"]) == (404, "NotFound")
    assert named.body["metadata"]["name"] == "only-west.clusterspace.west"
    assert "only-west.clusterspace.west" in listed.names
    assert (selected.code, selected.names) == (200, [])
    assert (made.code, found.code, filled.code) == (201, 200, 201)


async def test_without_the_hub_a_namespace_is_there_when_any_member_has_it(site: Site):
    await site.members["west"].client.create(ResourcePath(NAMESPACES), namespace("west-alone"))
    async with without_federation(site) as members_only:
        found = await members_only.ask("GET", "/api/v1/namespaces/west-alone")
        missing = await members_only.ask("GET", "/api/v1/namespaces/nowhere")

    assert (found.code, found.body["metadata"]["name"]) == (200, "west-alone")
    assert (missing.code, missing.body["reason"]) == (404, "NotFound")


@pytest.mark.parametrize(
    ("collection", "made"),
    [
        (ResourcePath(CONFIG_MAPS, "default"), config_map("awaited")),
        (ResourcePath(NAMESPACES), namespace("awaited")),
    ],
    ids=["configmaps", "namespaces"],
)
async def test_a_list_by_a_name_that_nothing_has_is_empty_and_can_be_watched_from(
    site: Site, collection: ResourcePath, made: Object
):
    path, selector = collection.path, "fieldSelector=metadata.name%3Dawaited"
    async with without_federation(site) as members_only:
        listed = await members_only.ask("GET", f"{path}?{selector}")
        missing = await members_only.ask("GET", f"{path}/awaited")
        version = listed.body["metadata"]["resourceVersion"]
        watch = f"{path}?{selector}&watch=true&resourceVersion={version}"
        async with watching(members_only.connection(ROOT), watch) as stream:
            await stream.until(lambda stream: stream.status == 200)
            await site.members["west"].client.create(collection, made)
            await stream.until(lambda stream: bool(stream.told))
        found = await members_only.ask("GET", f"{path}?{selector}")

    assert (listed.code, listed.names) == (200, [])
    assert missing.code == 404
    assert stream.told == [("ADDED", "awaited.clusterspace.west")]
    assert found.names == ["awaited"]
