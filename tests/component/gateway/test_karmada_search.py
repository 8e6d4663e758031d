"""Karmada's search at the fleet address: what ResourceRegistries select can be found and reached.

The tests are those of Karmada's own suite (`search_test.go`), by the names of its specs, on
simulated members; then what that suite does not ask: rights, writes in every form, clusters that
are away.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    ROOT,
    Heard,
    Site,
    fleet_site,
    grant,
    member_at,
    reaching,
    using,
)
from tests.component.gateway.silent_members import NOBODY_LISTENS

from clusterspace.apis.registries import CACHED_FROM, RESOURCE_REGISTRIES
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, annotations_of, uid_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    config_map,
    deployment,
    namespace,
    pod,
    secret,
)
from clusterspace.testing.steps import edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

API = "/apis/search.karmada.io/v1alpha1"
CACHE = f"{API}/search/cache"
PROXY = f"{API}/proxying/karmada/proxy"
REGISTRIES = ResourcePath(RESOURCE_REGISTRIES)
NODES = GroupVersionResource("", "v1", "nodes")
JANE = "jane-token"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """Two simulated members with a node each, and objects in namespaces test and other."""
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=(), sims=("member1", "member2")) as running:
        for name, side in running.members.items():
            for inside in ("test", "other"):
                await side.client.create(ResourcePath(NAMESPACES), namespace(inside))
                made = secret(f"{inside}-of-{name}", namespace=inside)
                await side.client.create(ResourcePath(SECRETS, inside), made)
            place = ResourcePath(DEPLOYMENTS, "test")
            await side.client.create(place, deployment(f"web-of-{name}", namespace="test"))
            created = pod(f"pod-of-{name}", namespace="test")
            await side.client.create(ResourcePath(PODS, "test"), created)
        yield running


def registry(*kinds: str, clusters: Any = None, **more: Any) -> Object:
    """Return a registry of kinds, each written as `apps/v1/Deployment` or `v1/Pod@namespace`."""
    selectors: list[Object] = []
    for each in kinds:
        kind, _, inside = each.partition("@")
        version, _, name = kind.rpartition("/")
        selectors.append({"apiVersion": version, "kind": name, "namespace": inside})
    affinity = clusters if isinstance(clusters, dict) else {"clusterNames": list(clusters or ())}
    spec = {"targetCluster": affinity, "resourceSelectors": selectors, **more}
    return {
        "apiVersion": "search.karmada.io/v1alpha1",
        "kind": "ResourceRegistry",
        "metadata": {"generateName": "rr-"},
        "spec": spec,
    }


@asynccontextmanager
async def registered(site: Site, *kinds: str, clusters: Any = None) -> AsyncGenerator[Object]:
    """Have a registry for as long as the block lasts."""
    hub = site.hub.client
    made = await hub.create(REGISTRIES, registry(*kinds, clusters=clusters))
    try:
        yield made
    finally:
        place = REGISTRIES.named(made["metadata"]["name"])
        await hub.delete(place, DeleteOptions(uid_of(made)))


async def search(site: Site, path: str, *, token: str = ROOT) -> Heard:
    heard = await site.ask("GET", CACHE + path, token=token)
    assert heard.code == 200, heard.body
    return heard


async def until_found(site: Site, path: str, name: str, *, is_there: bool = True) -> None:
    """Search until a name is among what is found, or is not any more."""

    async def is_so() -> bool:
        return (name in (await search(site, path)).names) is is_there

    await until(is_so)


async def until_listed(site: Site, path: str, *, is_empty: bool = False) -> Heard:
    """List through the proxy until there is something, or nothing any more."""

    async def listed() -> Heard | None:
        heard = await site.ask("GET", PROXY + path)
        assert heard.code == 200, heard.body
        return heard if bool(heard.names) is not is_empty else None

    return await until(listed)


def sources_of(heard: Heard) -> dict[str, str]:
    return {
        each["metadata"]["name"]: annotations_of(each)[CACHED_FROM] for each in heard.body["items"]
    }


DEPLOYMENTS_PATH = "/apis/apps/v1/deployments"
PODS_PATH = "/api/v1/pods"
NODES_PATH = "/api/v1/nodes"
ROLES_PATH = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS_PATH = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


# -- search/cache ----------------------------------------------------------------------------------


async def test_service_should_be_not_searchable(site: Site):
    found = await search(site, "/api/v1/services")

    assert found.body["kind"] == "ServiceList"
    assert found.names == []


async def test_deployments_of_member1_should_be_searchable_and_those_of_member2_not(site: Site):
    async with registered(site, "apps/v1/Deployment", clusters=["member1"]):
        await until_found(site, DEPLOYMENTS_PATH, "web-of-member1")
        found = await search(site, DEPLOYMENTS_PATH)
        inside = await search(site, "/apis/apps/v1/namespaces/test/deployments")
        elsewhere = await search(site, "/apis/apps/v1/namespaces/other/deployments")
        one = await search(site, "/apis/apps/v1/namespaces/test/deployments/web-of-member1")
        none = await search(site, "/apis/apps/v1/namespaces/test/deployments/web-of-member2")
        by_label = await search(site, f"{DEPLOYMENTS_PATH}?labelSelector=no%3Dsuch")

    assert sources_of(found) == {"web-of-member1": "member1"}
    assert found.body["kind"] == "DeploymentList"
    assert inside.names == one.names == ["web-of-member1"]
    assert elsewhere.names == none.names == by_label.names == []


async def test_nodes_of_both_members_should_be_searchable(site: Site):
    async with registered(site, "v1/Node", clusters=["member1", "member2"]):
        await until_found(site, NODES_PATH, "member1-node-0")
        await until_found(site, NODES_PATH, "member2-node-0")


async def test_pods_should_be_searchable_by_two_registries(site: Site):
    async with (
        registered(site, "v1/Pod", clusters=["member1"]),
        registered(site, "v1/Pod", clusters=["member2"]),
    ):
        await until_found(site, PODS_PATH, "pod-of-member1")
        await until_found(site, PODS_PATH, "pod-of-member2")


async def test_what_a_registry_selects_changes_with_it(site: Site):
    """[clusterrole] and [clusterrolebinding] should be searchable, and should not."""
    kind = "rbac.authorization.k8s.io/v1"
    async with registered(site, f"{kind}/ClusterRole", clusters=["member1"]) as made:
        await until_found(site, ROLES_PATH, "cluster-admin")
        assert (await search(site, BINDINGS_PATH)).names == []

        both = registry(f"{kind}/ClusterRole", f"{kind}/ClusterRoleBinding", clusters=["member1"])
        place = REGISTRIES.named(made["metadata"]["name"])
        await edit(site.hub.client, place, lambda found: {**found, "spec": both["spec"]})
        await until_found(site, BINDINGS_PATH, "cluster-admin")
    await until_found(site, BINDINGS_PATH, "cluster-admin", is_there=False)


async def test_member_clusters_that_join_and_are_relabelled_are_reconciled(site: Site):
    """[member clusters joined] and [updated, deleted label] could reconcile ResourceRegistry."""
    key = "karmada-cluster.k8s.some.com/managed"
    chosen = {"labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}

    async def label(name: str, value: str | None) -> None:
        await edit(
            site.hub.client,
            manifests.cluster_path(name),
            lambda found: with_metadata(found, labels={key: value} if value else None),
        )

    async with registered(site, "v1/Pod", clusters=chosen):
        assert (await search(site, PODS_PATH)).names == []
        for name in ("member1", "member2"):
            await label(name, "true")
            await until_found(site, PODS_PATH, f"pod-of-{name}")
        for name in ("member2", "member1"):
            await label(name, None)
            await until_found(site, PODS_PATH, f"pod-of-{name}", is_there=False)
    async with registered(site, "v1/Pod", clusters=["late"]):
        assert (await search(site, PODS_PATH)).names == []
        async with member_at(site, "late", NOBODY_LISTENS):

            async def is_missed() -> bool:
                return "late" in (await site.ask("GET", CACHE + PODS_PATH)).message

            await until(is_missed)


async def test_search_cache_only_lists(site: Site):
    written = await site.ask("POST", f"{CACHE}{PODS_PATH}", pod("x"))
    watched = await site.ask("GET", f"{CACHE}{PODS_PATH}?watch=true")
    nowhere = await site.ask("GET", f"{CACHE}/healthz")
    opensearch = await site.ask("GET", f"{API}/search/opensearch{PODS_PATH}")

    assert (written.code, watched.code, nowhere.code, opensearch.code) == (405, 405, 405, 404)


# -- the proxy -------------------------------------------------------------------------------------


async def test_create_update_delete_resource_registry(site: Site):
    inside = "/api/v1/namespaces/test/pods"
    assert (await until_listed(site, inside, is_empty=True)).body["kind"] == "PodList"
    await until_listed(site, NODES_PATH, is_empty=True)
    async with registered(site, "v1/Node", clusters=["member1", "member2"]):
        await until_listed(site, NODES_PATH)
        await until_listed(site, inside, is_empty=True)
        async with registered(site, "v1/Node", "v1/Pod", clusters=["member1", "member2"]):
            await until_listed(site, inside)
            await until_listed(site, NODES_PATH)
    await until_listed(site, inside, is_empty=True)
    await until_listed(site, NODES_PATH, is_empty=True)


@pytest_asyncio.fixture(loop_scope="module")
async def nodes(site: Site) -> AsyncGenerator[Site]:
    async with registered(site, "v1/Node", clusters=["member1", "member2"]):
        await until_listed(site, NODES_PATH)
        yield site


async def test_could_get_node(nodes: Site):
    found = await nodes.ask("GET", f"{PROXY}{NODES_PATH}/member1-node-0")
    absent = await nodes.ask("GET", f"{PROXY}{NODES_PATH}/nobody")

    assert found.body["metadata"]["name"] == "member1-node-0"
    assert annotations_of(found.body)[CACHED_FROM] == "member1"
    assert (absent.code, absent.message) == (404, 'nodes "nobody" not found')


async def test_could_list_nodes(nodes: Site):
    found = await nodes.ask("GET", PROXY + NODES_PATH)

    assert sources_of(found) == {"member1-node-0": "member1", "member2-node-0": "member2"}


async def test_could_chunk_list_nodes(nodes: Site):
    first = await nodes.ask("GET", f"{PROXY}{NODES_PATH}?limit=1")
    token = first.body["metadata"]["continue"]
    second = await nodes.ask("GET", f"{PROXY}{NODES_PATH}?limit=999999999999&continue={token}")

    assert first.names == ["member1-node-0"]
    assert second.names == ["member2-node-0"]


async def watch(site: Site, path: str, events: list[Object]) -> None:
    request = ApiRequest("GET", path)
    async with site.connection(ROOT).stream(request) as stream:
        rest = b""
        async for chunk in stream.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            events += [json.loads(line) for line in lines if line]


@asynccontextmanager
async def watching(site: Site, path: str) -> AsyncGenerator[list[Object]]:
    events: list[Object] = []
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch(site, path, events))
        try:
            yield events
        finally:
            task.cancel()


async def test_could_list_and_watch_nodes(nodes: Site):
    listed = await nodes.ask("GET", PROXY + NODES_PATH)
    version = listed.body["metadata"]["resourceVersion"]
    path = f"{PROXY}{NODES_PATH}?watch=true&resourceVersion={version}"
    async with watching(nodes, path) as events:
        client = nodes.members["member1"].client

        def noted(node: Object) -> Object:
            return with_metadata(node, annotations={**annotations_of(node), "seen": "true"})

        await edit(client, ResourcePath(NODES).named("member1-node-0"), noted)

        async def is_told() -> Object | None:
            found = (each["object"] for each in events)
            return next((each for each in found if "seen" in annotations_of(each)), None)

        told = await until(is_told)

    assert told["metadata"]["name"] == "member1-node-0"
    assert annotations_of(told)[CACHED_FROM] == "member1"


async def test_a_watch_ends_when_other_clusters_are_selected(nodes: Site):
    async with watching(nodes, f"{PROXY}{NODES_PATH}?watch=true") as events:

        async def has_both() -> bool:
            return len(events) >= 2

        await until(has_both)
        (made,) = await nodes.hub.client.list_objects(REGISTRIES)
        fewer = {"clusterNames": ["member1"]}
        place = REGISTRIES.named(made["metadata"]["name"])
        await edit(
            nodes.hub.client,
            place,
            lambda found: {**found, "spec": {**found["spec"], "targetCluster": fewer}},
        )

        async def is_ended() -> bool:
            return events[-1]["type"] == "ERROR"

        await until(is_ended)

    assert events[-1]["object"]["code"] == 410
    assert not any(each["type"] == "DELETED" for each in events)


async def test_could_patch_nodes(nodes: Site):
    patch = {"metadata": {"annotations": {"patched": "true", CACHED_FROM: "nonsense"}}}
    done = await nodes.ask(
        "PATCH", f"{PROXY}{NODES_PATH}/member1-node-0", patch, content_type=STRATEGIC
    )
    stored = await nodes.members["member1"].client.get(ResourcePath(NODES).named("member1-node-0"))

    assert done.code == 200, done.body
    assert annotations_of(done.body)[CACHED_FROM] == "member1"
    assert annotations_of(stored)["patched"] == "true"
    assert CACHED_FROM not in annotations_of(stored)


async def test_could_update_node(nodes: Site):
    found = await nodes.ask("GET", PROXY + NODES_PATH)
    node = next(each for each in found.body["items"] if "member2" in each["metadata"]["name"])
    wanted = with_metadata(node, annotations={**annotations_of(node), "updated": "true"})
    place = ResourcePath(NODES).named("member2-node-0")

    done = await nodes.ask("PUT", f"{PROXY}{NODES_PATH}/member2-node-0", wanted)
    stored = await nodes.members["member2"].client.get(place)

    assert done.code == 200, done.body
    assert annotations_of(stored)["updated"] == "true"
    assert CACHED_FROM not in annotations_of(stored)


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/merge-patch+json", {"metadata": {"annotations": {CACHED_FROM: "x"}}}),
        (
            "application/json-patch+json",
            [
                {"op": "add", "path": "/metadata/labels/a", "value": "b"},
                {
                    "op": "add",
                    "path": "/metadata/annotations/resource.karmada.io~1cached-from-cluster",
                    "value": "x",
                },
            ],
        ),
        (
            "application/apply-patch+yaml",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"annotations": {CACHED_FROM: "x", "mine": "y"}},
            },
        ),
    ],
)
async def test_what_is_shown_of_the_source_is_never_stored(
    nodes: Site, content_type: str, patch: Any
):
    query = "?fieldManager=test" if "apply" in content_type else ""
    path = f"{PROXY}{NODES_PATH}/member1-node-0{query}"
    done = await nodes.ask("PATCH", path, patch, content_type=content_type)
    stored = await nodes.members["member1"].client.get(ResourcePath(NODES).named("member1-node-0"))

    assert done.code == 200, done.body
    assert CACHED_FROM not in json.dumps(stored)


async def test_all_secrets_should_be_listed_from_two_namespaces(site: Site):
    async with (
        registered(site, "v1/Secret@test", clusters=["member1"]),
        registered(site, "v1/Secret@other", "v1/Secret@none", clusters=["member1"]),
    ):
        await until_listed(site, "/api/v1/namespaces/test/secrets")
        await until_listed(site, "/api/v1/namespaces/other/secrets")
        everywhere = await site.ask("GET", f"{PROXY}/api/v1/secrets")
        system = await site.ask("GET", f"{PROXY}/api/v1/namespaces/kube-system/secrets")
        cached = await search(site, "/api/v1/secrets")

    assert set(everywhere.names) == {"test-of-member1", "other-of-member1"}
    assert set(cached.names) == {"test-of-member1", "other-of-member1"}
    assert system.names == []


async def test_what_no_registry_speaks_of_is_the_control_planes(site: Site):
    path = "/api/v1/namespaces/default/configmaps"
    made = await site.ask("POST", PROXY + path, config_map("through-the-proxy"))
    stored = await site.hub.client.find(ResourcePath(CONFIG_MAPS, "default", "through-the-proxy"))
    groups = await site.ask("GET", f"{PROXY}/apis")
    version = await site.ask("GET", f"{PROXY}/version")

    assert made.code == 201
    assert stored is not None
    assert CACHED_FROM not in annotations_of(made.body)
    assert groups.body["kind"] == "APIGroupList"
    assert version.code == 200


async def test_an_object_of_two_clusters_is_a_conflict_and_a_new_one_has_no_place(site: Site):
    async with registered(site, "v1/Namespace", clusters=["member1", "member2"]):
        await until_listed(site, "/api/v1/namespaces")
        both = await site.ask("GET", f"{PROXY}/api/v1/namespaces/test")
        created = await site.ask("POST", f"{PROXY}/api/v1/namespaces", namespace("new"))
        emptied = await site.ask("DELETE", f"{PROXY}/api/v1/namespaces")

    assert both.code == 409
    assert "it is in 2 clusters: member1, member2" in both.message
    assert (created.code, emptied.code) == (405, 405)
    for side in site.members.values():
        assert await side.client.find(ResourcePath(NAMESPACES, "", "test")) is not None


async def test_a_command_that_deletes_what_it_lists_is_shown_nothing_of_members(site: Site):
    async with registered(site, "v1/Pod", clusters=["member1", "member2"]):
        path = "/api/v1/namespaces/test/pods"
        await until_listed(site, path)
        command = (("Kubectl-Command", "kubectl delete"),)
        spared = await site.ask("GET", PROXY + path, headers=command)
        one = "labelSelector=clusterspace.io%2Fcluster%3Dmember1"
        named = await site.ask("GET", f"{PROXY}{path}?{one}", headers=command)

    assert spared.names == []
    assert "on members are left alone" in spared.warning
    assert set(sources_of(named).values()) == {"member1"}


async def test_logs_are_read_where_the_pod_is(site: Site):
    async with registered(site, "v1/Pod", clusters=["member1", "member2"]):
        await until_listed(site, PODS_PATH)
        place = ResourcePath(PODS, "test", "pod-of-member2")

        async def runs() -> bool:
            found = await site.members["member2"].client.get(place)
            return found["status"].get("phase") == "Running"

        await until(runs)
        log = await site.ask("GET", f"{PROXY}/api/v1/namespaces/test/pods/pod-of-member2/log")

    assert log.code == 200, log.body


async def test_a_table_names_the_cluster(nodes: Site):
    table = await nodes.ask("GET", PROXY + NODES_PATH, headers=(("Accept", TABLE),))

    columns = [each["name"] for each in table.body["columnDefinitions"]]
    at = columns.index("Cluster")
    shown = [(row["cells"][0], row["cells"][at]) for row in table.body["rows"]]
    assert shown == [("member1-node-0", "member1"), ("member2-node-0", "member2")]
    assert annotations_of(table.body["rows"][0]["object"])[CACHED_FROM] == "member1"


# -- whose rights, and clusters that are away ------------------------------------------------------


async def test_registries_give_nobody_a_right(site: Site):
    await grant(site.hub, "jane", reaching("member1", "member2"), "jane-reaches")
    await grant(site.members["member1"], "jane", using("pods"), "jane-uses-pods")
    async with registered(site, "v1/Pod", "v1/Secret", clusters=["member1", "member2"]):
        await until_found(site, PODS_PATH, "pod-of-member2")
        pods = await site.ask("GET", CACHE + PODS_PATH, token=JANE)
        proxied = await site.ask("GET", PROXY + PODS_PATH, token=JANE)
        secrets = await site.ask("GET", f"{CACHE}/api/v1/secrets", token=JANE)
        path = "/api/v1/namespaces/test/secrets/test-of-member1"
        one = await site.ask("GET", PROXY + path, token=JANE)
        gone = await site.ask("DELETE", PROXY + path, token=JANE)
        carl = await site.ask("GET", CACHE + PODS_PATH, token="carl-token")

    assert set(sources_of(pods).values()) == set(sources_of(proxied).values()) == {"member1"}
    assert "1 of 2 clusters not allowed: member2" in pods.warning
    assert (secrets.code, one.code, gone.code, carl.code) == (403, 403, 403, 403)
    for each in (secrets, one, gone):
        assert "test-of-member2" not in str(each.body)


async def test_a_cluster_that_is_away_is_named_and_its_objects_are_not_denied(site: Site):
    async with (
        member_at(site, "lost", NOBODY_LISTENS),
        registered(site, "v1/Pod", clusters=["member1", "lost"]),
    ):
        await until_found(site, PODS_PATH, "pod-of-member1")
        found = await search(site, PODS_PATH)
        path = f"{PROXY}/api/v1/namespaces/test/pods"
        nowhere = await site.ask("GET", f"{path}/nobody")
        kept = await site.ask("GET", f"{path}?resourceVersion=0")

    assert set(sources_of(found).values()) == {"member1"}
    assert "1 of 2 clusters unreachable: lost" in found.warning
    assert nowhere.code == 503
    assert kept.code == 503


# -- what the hub makes of a registry --------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"targetCluster": {}}, "spec.resourceSelectors"),
        ({"resourceSelectors": []}, "spec.targetCluster"),
        (
            {"targetCluster": {}, "resourceSelectors": [{"apiVersion": "a/b/c", "kind": "X"}]},
            "spec.resourceSelectors[0].apiVersion",
        ),
        (
            {"targetCluster": {}, "resourceSelectors": [{"apiVersion": "v1", "kind": ""}]},
            "spec.resourceSelectors[0].kind",
        ),
        (
            {
                "targetCluster": {},
                "resourceSelectors": [{"apiVersion": "v1", "kind": "Pod", "namespace": "A_b"}],
            },
            "spec.resourceSelectors[0].namespace",
        ),
        (
            {
                "targetCluster": {
                    "fieldSelector": {"matchExpressions": [{"key": "zoo", "operator": "In"}]}
                },
                "resourceSelectors": [],
            },
            "spec.targetCluster.fieldSelector",
        ),
        ({"targetCluster": [], "resourceSelectors": {}}, "spec.resourceSelectors"),
    ],
)
async def test_a_registry_that_means_nothing_is_refused(site: Site, spec: Object, place: str):
    path = f"/clusterspaces/hub{REGISTRIES.path}"
    refused = await site.ask("POST", path, {**registry(), "spec": spec})

    assert refused.code == 422
    assert place in refused.message


async def test_opensearch_is_stored_with_a_warning(site: Site):
    store = {"addresses": ["https://127.0.0.1:9200"], "secretRef": {"namespace": "a", "name": "b"}}
    made = registry("v1/Pod", backendStore={"openSearch": store})
    answer = await site.ask("POST", f"/clusterspaces/hub{REGISTRIES.path}?dryRun=All", made)

    assert answer.code == 201, answer.body
    assert "spec.backendStore.openSearch is stored but not acted on" in answer.warning
