"""Whom a request reaches, and what it is called there."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clusterspace.errors import BadRequest, MalformedSelector, MethodNotAllowed, NotFound
from clusterspace.fleet.gateway.routes import (
    HUB,
    BodyNames,
    FleetRequestInfo,
    Naming,
    Reach,
    Route,
    Search,
    qualify,
    read_fleet_request,
    route_for,
)

PODS = "/api/v1/namespaces/default/pods"
KARMADA = "/apis/cluster.karmada.io/v1alpha1/clusters"


def read(method: str, url: str) -> FleetRequestInfo:
    path, _, query = url.partition("?")
    return read_fleet_request(method, path, query)


def routed(
    method: str, url: str, body: BodyNames | None = None, *, federation: bool = True
) -> Route:
    names = None if body is None else lambda: body
    return route_for(read(method, url), federation=federation, body_names=names)


def plainly(cluster: str) -> Naming:
    return Naming(cluster)


def by_name(cluster: str) -> Naming:
    return Naming(cluster, qualifies_names=True)


def by_namespace(cluster: str) -> Naming:
    return Naming(cluster, qualifies_namespaces=True)


# What the two forms have in common.


@pytest.mark.parametrize("federation", [True, False])
@pytest.mark.parametrize(
    ("url", "own_path"),
    [
        ("/api/v1/namespaces/ns/clusterspaces/m1/pods/p", "/api/v1/namespaces/ns/pods/p"),
        ("/api/v1/clusterspaces/m1/nodes/n", "/api/v1/nodes/n"),
        ("/api/v1/clusterspaces/m1/namespaces/ns", "/api/v1/namespaces/ns"),
        ("/api/v1/clusterspaces/m1/namespaces/ns/pods/p", "/api/v1/namespaces/ns/pods/p"),
        ("/api/v1/watch/clusterspaces/m1/nodes/n", "/api/v1/watch/nodes/n"),
        (
            "/apis/apps/v1/watch/namespaces/ns/clusterspaces/m1/deployments",
            "/apis/apps/v1/watch/namespaces/ns/deployments",
        ),
        (
            "/api/v1/namespaces/ns/clusterspaces/m1/pods/p/log?follow=true",
            "/api/v1/namespaces/ns/pods/p/log",
        ),
        (
            "/api/v1/namespaces/clusterspaces/clusterspaces/m1/pods/clusterspaces",
            "/api/v1/namespaces/clusterspaces/pods/clusterspaces",
        ),
        ("/api/v1/namespaces/ns/%63lusterspaces/m1/pods/p", "/api/v1/namespaces/ns/pods/p"),
    ],
)
def test_the_explicit_segment_is_gone_before_anyone_looks(
    url: str, own_path: str, federation: bool
) -> None:
    request = read("GET", url)

    assert request.path == own_path
    assert request.clusterspace == "m1"
    assert route_for(request, federation=federation) == Route(request, Reach.ONE, plainly("m1"))


def test_a_resource_that_is_called_clusterspaces_can_be_served() -> None:
    listed = read("GET", "/apis/example.com/v1/namespaces/ns/clusterspaces")
    one = read("GET", "/apis/example.com/v1/namespaces/ns/clusterspaces/mine")

    assert (listed.resource, listed.clusterspace) == ("clusterspaces", None)
    assert (one.name, one.clusterspace) == ("mine", None)


def test_two_explicit_segments_are_refused() -> None:
    with pytest.raises(BadRequest, match="clusterspaces twice"):
        read("GET", "/api/v1/clusterspaces/m1/namespaces/ns/clusterspaces/m2/pods")


@pytest.mark.parametrize("word", ["karmada", "hub"])
def test_the_control_plane_has_two_names_in_urls(word: str) -> None:
    explicit = routed("GET", f"/api/v1/clusterspaces/{word}/nodes", federation=False)
    prefix = routed("GET", f"/clusterspaces/{word}/api/v1/nodes", federation=False)

    assert explicit.naming == prefix.naming == plainly(HUB)


# The prefix form.


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/clusterspaces/m1", "/"),
        ("/clusterspaces/m1/", "/"),
        ("/clusterspaces/m1/version", "/version"),
        ("/clusterspaces/m1/apis/apps/v1", "/apis/apps/v1"),
        ("/clusterspaces/m1/api/v1/namespaces/ns/pods/p", "/api/v1/namespaces/ns/pods/p"),
        (f"/clusterspaces/m1{PODS}/p.clusterspace.m2", f"{PODS}/p.clusterspace.m2"),
        (
            "/clusterspaces/m1/api/v1/clusterspaces/m2/nodes",
            "/api/v1/clusterspaces/m2/nodes",
        ),
        ("/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy", "/"),
        ("/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/nodes", "/api/v1/nodes"),
    ],
)
def test_a_prefix_makes_one_cluster_an_api_server_and_nothing_is_looked_into(
    url: str, path: str
) -> None:
    route = routed("GET", url, federation=False)

    assert route.info.path == path
    assert (route.reach, route.naming, route.is_relayed) == (Reach.ONE, plainly("m1"), True)


def test_a_relayed_path_keeps_its_escapes_and_its_last_slash() -> None:
    url = "/clusterspaces/m1/api/v1/namespaces/ns/services/web/proxy/a%20b/"

    assert read("GET", url).raw_path == "/api/v1/namespaces/ns/services/web/proxy/a%20b/"


@pytest.mark.parametrize("name", ["web", "web.clusterspace.m1"])
@pytest.mark.parametrize("end", ["/proxy", "/proxy/", "/proxy/a", "/proxy/a/"])
def test_a_proxied_path_keeps_its_last_slash(name: str, end: str) -> None:
    route = routed("GET", f"/api/v1/namespaces/ns/services/{name}{end}")

    assert route.info.path == f"/api/v1/namespaces/ns/services/web{end}"


def test_a_path_without_a_clusterspace_keeps_its_escapes_too() -> None:
    assert read("GET", "/api/v1/namespaces/ns/pods/p/proxy/a%20b/").raw_path == (
        "/api/v1/namespaces/ns/pods/p/proxy/a%20b/"
    )


@pytest.mark.parametrize(
    "prefix",
    ["", "/clusterspaces/all", "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy"],
)
def test_the_prefix_of_all_clusters_is_no_prefix(prefix: str) -> None:
    assert routed("GET", f"{prefix}{PODS}") == routed("GET", PODS)
    assert routed("GET", f"{prefix}/api/v1/clusterspaces/m1/nodes").naming == plainly("m1")
    assert routed("GET", f"{prefix}/version").reach is Reach.ALL


def test_the_clusters_of_karmada_are_objects_like_others() -> None:
    url = "/apis/cluster.karmada.io/v1alpha1/clusters/m1"

    assert routed("GET", url).naming == plainly(HUB)
    assert not read("GET", f"{url}/status").is_prefix


# Names.


def test_the_cluster_gets_its_own_names() -> None:
    route = routed("GET", "/api/v1/namespaces/ns/pods/p.clusterspace.m1/log?container=c")

    assert route.naming == by_name("m1")
    assert (route.info.name, route.info.subresource) == ("p", "log")
    assert route.info.path == "/api/v1/namespaces/ns/pods/p/log"
    assert route.info.query.get("container") == "c"


@pytest.mark.parametrize("cluster", ["m1", HUB])
@pytest.mark.parametrize("clusterspace", ["", "/clusterspaces/all", "/clusterspaces/{cluster}"])
def test_a_qualified_name_is_echoed_whatever_the_form(cluster: str, clusterspace: str) -> None:
    space = clusterspace.format(cluster=cluster)
    route = routed("GET", f"/api/v1/namespaces/ns{space}/pods/{qualify('p', cluster)}")

    assert route == Route(route.info, Reach.ONE, by_name(cluster))
    assert route.info.path == "/api/v1/namespaces/ns/pods/p"


@given(st.integers(1, 253), st.booleans())
def test_long_names_and_names_with_the_marker_reach_the_last_cluster(
    length: int, federation: bool
) -> None:
    name = qualify("n" * length, "m2")
    route = routed("GET", f"{PODS}/{qualify(name, 'm1')}", federation=federation)

    assert (route.info.name, route.naming.cluster) == (name, "m1")


@pytest.mark.parametrize("federation", [True, False])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_qualified_namespace_pins_everything_to_one_cluster(
    method: str, federation: bool
) -> None:
    url = "/api/v1/namespaces/default.clusterspace.m1/pods"
    route = routed(method, url, BodyNames(name="p"), federation=federation)

    assert route == Route(route.info, Reach.ONE, by_namespace("m1"))
    assert (route.info.namespace, route.info.path) == ("default", PODS)


def test_name_and_namespace_may_both_be_qualified() -> None:
    route = routed("GET", "/api/v1/namespaces/ns.clusterspace.m1/pods/p.clusterspace.m1")

    assert route.naming == Naming("m1", qualifies_names=True, qualifies_namespaces=True)
    assert route.info.path == "/api/v1/namespaces/ns/pods/p"


def test_an_object_that_is_a_namespace_is_echoed_by_its_name() -> None:
    route = routed("GET", "/api/v1/namespaces/default.clusterspace.m1")

    assert route.naming == by_name("m1")
    assert (route.info.name, route.info.namespace) == ("default", "default")
    assert route.info.path == "/api/v1/namespaces/default"


def test_the_old_way_to_watch_is_kept() -> None:
    route = routed("GET", "/api/v1/watch/namespaces/ns/pods/p.clusterspace.m1")

    assert route.info.path == "/api/v1/watch/namespaces/ns/pods/p"
    assert route.info.is_watch


bases = st.sampled_from(["/api/v1", "/apis/apps/v1", "/api/v1/watch", "/apis/apps/v1/watch"])
scopes = st.sampled_from(["", "/namespaces/ns", "/namespaces/watch", "/namespaces/default"])
objects = st.sampled_from(
    ["/pods", "/pods/p", "/namespaces/p", "/watch", "/watch/p", "/pods/p/log", "/a/b/c/d"]
)


@pytest.mark.parametrize("prefix", ["", "/clusterspaces/m1", f"{KARMADA}/m1/proxy"])
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/mine/namespaces",
        "/api/v1/namespaces/mine/namespaces/yours",
        "/api/v1/namespaces/mine/namespaces/mine",
        "/api/v1/namespaces/mine.clusterspace.m1/namespaces/yours",
        "/api/v1/namespaces/mine/namespaces/yours.clusterspace.m1",
        "/api/v1/namespaces/mine/namespaces/yours/status",
        "/api/v1/namespaces/mine/status/yours",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "POST"])
def test_a_namespace_within_a_namespace_is_no_path(method: str, path: str, prefix: str) -> None:
    with pytest.raises(NotFound):
        routed(method, prefix + path, BodyNames(name="p"))


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/mine/clusterspaces/m1/namespaces/yours",
        "/api/v1/watch/namespaces/mine/namespaces/yours",
    ],
)
def test_nor_is_it_one_with_a_word_in_between(path: str) -> None:
    with pytest.raises(NotFound):
        routed("GET", path)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/ns/pods/...clusterspace.m1",
        "/api/v1/namespaces/ns/pods/..clusterspace.m1",
        "/api/v1/namespaces/...clusterspace.m1/pods/p",
        "/api/v1/namespaces/..clusterspace.m1",
    ],
)
def test_what_is_left_of_a_name_never_walks_up_the_path(path: str) -> None:
    with pytest.raises(BadRequest, match="dot segment"):
        routed("DELETE", path)


@given(bases, scopes, objects)
def test_a_request_in_a_clusters_own_words_is_not_changed(base: str, scope: str, tail: str) -> None:
    assume(base.startswith("/apis") or not scope or tail != "/namespaces/p")
    request = read("GET", f"{base}{scope}{tail}")

    assert route_for(request, federation=True).info == request


@given(bases, scopes, st.sampled_from(["/pods/{name}", "/pods/{name}/log", "/a/{name}/b/c"]))
def test_only_the_name_of_a_path_is_changed(base: str, scope: str, tail: str) -> None:
    route = routed("GET", base + scope + tail.format(name="p.clusterspace.m1"))

    assert route.info.path == base + scope + tail.format(name="p")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("web.clusterspace.m1", "web"),
        ("web.clusterspace.m1:8080", "web:8080"),
        ("https:web.clusterspace.m1:https", "https:web:https"),
    ],
)
def test_what_is_proxied_to_may_have_a_scheme_and_a_port(name: str, own: str) -> None:
    route = routed("GET", f"/api/v1/namespaces/ns/services/{name}/proxy/metrics")

    assert route.naming == by_name("m1")
    assert route.info.path == f"/api/v1/namespaces/ns/services/{own}/proxy/metrics"


@pytest.mark.parametrize("word", ["hub", "all"])
@pytest.mark.parametrize(
    "url", ["/api/v1/namespaces/ns/pods/p.clusterspace.{}", "/api/v1/namespaces/p.clusterspace.{}"]
)
def test_a_name_cannot_use_the_words_of_urls(url: str, word: str) -> None:
    with pytest.raises(BadRequest, match=r"p\.clusterspace\.karmada"):
        routed("GET", url.format(word))


# Names in the query and in the body.


@pytest.mark.parametrize(
    ("query", "naming"),
    [
        ("fieldSelector=metadata.name%3Dp.clusterspace.m1", by_name("m1")),
        ("fieldSelector=metadata.name%3Dp.clusterspace.m1&watch=true", by_name("m1")),
        ("fieldSelector=spec.nodeName%3Dn.clusterspace.m1,status.phase!%3DFailed", by_name("m1")),
        ("fieldSelector=involvedObject.uid%3Dn.clusterspace.m1", by_name("m1")),
        ("fieldSelector=involvedObject.namespace%3Dns.clusterspace.m1", by_namespace("m1")),
        ("labelSelector=kubernetes.io/service-name%3Dweb.clusterspace.m1", by_name("m1")),
        ("labelSelector=app%3Dx,job-name+in+(a.clusterspace.m1,b.clusterspace.m1)", by_name("m1")),
    ],
)
@pytest.mark.parametrize("federation", [True, False])
def test_a_selector_that_names_an_object_names_its_cluster(
    query: str, naming: Naming, federation: bool
) -> None:
    route = routed("GET", f"{PODS}?{query}", federation=federation)

    assert route == Route(route.info, Reach.ONE, naming)


@pytest.mark.parametrize(
    "query",
    [
        "fieldSelector=metadata.name!%3Dp.clusterspace.m1",
        "fieldSelector=spec.nodeName%3Dn",
        "fieldSelector=metadata.namespace%3Dns",
        "labelSelector=app%3Dweb.clusterspace.m1",
        "labelSelector=job-name!%3Dweb.clusterspace.m1",
    ],
)
def test_a_selector_that_names_no_object_reaches_every_cluster(query: str) -> None:
    assert routed("GET", f"{PODS}?{query}").reach is Reach.ALL


def test_a_selector_of_one_bare_name_is_read_like_a_bare_name() -> None:
    url = f"{PODS}?fieldSelector=metadata.name%3Dp&watch=true"

    assert routed("GET", url, federation=True).naming == plainly(HUB)
    assert routed("GET", url, federation=False).reach is Reach.UNSAID


def test_a_selector_nobody_can_read_is_refused() -> None:
    with pytest.raises(MalformedSelector):
        routed("GET", f"{PODS}?fieldSelector=metadata.name")


def test_the_body_is_read_only_when_the_url_names_no_object() -> None:
    def read_body() -> BodyNames:
        raise AssertionError("the body was read")

    for method, url in [("PUT", f"{PODS}/p"), ("PATCH", f"{PODS}/p"), ("GET", PODS)]:
        route_for(read(method, url), federation=True, body_names=read_body)
    route_for(read("POST", f"{PODS}/p/eviction"), federation=True, body_names=read_body)
    route_for(read("POST", f"/clusterspaces/m1{PODS}"), federation=True, body_names=read_body)


def test_a_namespace_in_the_body_counts_too() -> None:
    body = BodyNames(name="p", namespace="default.clusterspace.m1")

    assert routed("POST", PODS, body).naming == by_namespace("m1")


# Contradictions.


@pytest.mark.parametrize(
    ("url", "body"),
    [
        ("/api/v1/namespaces/ns/clusterspaces/m1/pods/p.clusterspace.m2", BodyNames()),
        ("/api/v1/namespaces/ns.clusterspace.m2/clusterspaces/m1/pods", BodyNames()),
        ("/api/v1/namespaces/ns.clusterspace.m1/pods/p.clusterspace.m2", BodyNames()),
        (
            "/api/v1/clusterspaces/m1/pods?fieldSelector=metadata.name%3Dp.clusterspace.m2",
            BodyNames(),
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name%3Dp.clusterspace.m1,"
            "metadata.namespace%3Dns.clusterspace.m2",
            BodyNames(),
        ),
        ("/api/v1/namespaces/ns/clusterspaces/m1/pods", BodyNames(name="p.clusterspace.m2")),
        ("/api/v1/namespaces/ns.clusterspace.m2/pods", BodyNames(name="p.clusterspace.m1")),
        ("/api/v1/pods", BodyNames("p.clusterspace.m1", "ns.clusterspace.m2")),
    ],
)
@pytest.mark.parametrize("federation", [True, False])
def test_a_request_that_names_two_clusters_is_refused_and_told_both(
    url: str, body: BodyNames, federation: bool
) -> None:
    with pytest.raises(BadRequest, match="two clusters") as refusal:
        routed("POST", url, body, federation=federation)

    assert "m1 in" in refusal.value.message
    assert "m2 in" in refusal.value.message


# No cluster is said.


@pytest.mark.parametrize("suffix", ["", "/log", "/status"])
def test_a_bare_name_is_the_hubs_or_is_looked_for(suffix: str) -> None:
    federated = routed("GET", f"{PODS}/p{suffix}", federation=True)
    alone = routed("GET", f"{PODS}/p{suffix}", federation=False)

    assert federated == Route(federated.info, Reach.ONE, plainly(HUB))
    assert alone.reach is Reach.UNSAID


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("PUT", f"{PODS}/p"),
        ("PATCH", f"{PODS}/p/status"),
        ("DELETE", f"{PODS}/p"),
        ("POST", f"{PODS}/p/eviction"),
        ("GET", f"{PODS}/p/exec"),
        ("POST", f"{PODS}/p/exec"),
        ("GET", f"{PODS}/p/portforward"),
        ("GET", f"{PODS}/p/proxy/path"),
        ("POST", PODS),
    ],
)
def test_what_does_something_is_never_guessed_at(method: str, url: str) -> None:
    assert routed(method, url, BodyNames(name="p"), federation=True).naming == plainly(HUB)
    with pytest.raises(BadRequest, match=r"p\.clusterspace\.CLUSTER") as refusal:
        routed(method, url, BodyNames(name="p"), federation=False)
    assert "default.clusterspace.CLUSTER" in refusal.value.message


def test_a_create_without_a_name_is_taught_the_other_ways() -> None:
    with pytest.raises(BadRequest, match="the new object in nodes") as refusal:
        routed("POST", "/api/v1/nodes", BodyNames(generate_name="n-"), federation=False)

    assert "clusterspaces/CLUSTER in the URL" in refusal.value.message


@pytest.mark.parametrize(
    "collection",
    [
        "/api/v1/namespaces",
        "/api/v1/persistentvolumes",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/storage.k8s.io/v1/storageclasses",
    ],
)
def test_what_scripts_look_up_before_they_create_it_is_looked_up_where_it_is_created(
    collection: str,
) -> None:
    read = routed("GET", f"{collection}/x")
    created = routed("POST", collection, BodyNames(name="x"))

    assert read.naming == created.naming == plainly(HUB)


@pytest.mark.parametrize(
    "url", ["/api/v1/namespaces/x", "/api/v1/namespaces?fieldSelector=metadata.name%3Dx"]
)
def test_a_namespace_without_a_cluster_is_the_hub_s_where_that_is_in_view(url: str) -> None:
    assert routed("GET", url, federation=True).naming == plainly(HUB)
    assert routed("GET", url, federation=False).reach is Reach.ANY


@pytest.mark.parametrize("federation", [True, False])
def test_all_namespaces_are_those_of_every_cluster(federation: bool) -> None:
    assert routed("GET", "/api/v1/namespaces", federation=federation).reach is Reach.ALL


def test_a_namespace_of_another_group_is_an_object_like_others() -> None:
    route = routed("GET", "/apis/example.com/v1/namespaces/x.clusterspace.m1")

    assert routed("GET", "/apis/example.com/v1/namespaces/x").naming == plainly(HUB)
    assert (route.naming, route.info.path) == (by_name("m1"), "/apis/example.com/v1/namespaces/x")


@pytest.mark.parametrize("federation", [True, False])
def test_what_i_may_do_is_asked_of_every_cluster(federation: bool) -> None:
    url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    there = BodyNames(namespace="shop.clusterspace.m1")

    assert routed("POST", url, BodyNames(), federation=federation).reach is Reach.ALL
    assert routed("POST", url, there, federation=federation).naming.cluster == "m1"


@pytest.mark.parametrize("federation", [True, False])
@pytest.mark.parametrize("resource", ["subjectaccessreviews", "selfsubjectrulesreviews"])
def test_other_questions_about_rights_are_the_hub_s(resource: str, federation: bool) -> None:
    url = f"/apis/authorization.k8s.io/v1/{resource}"

    assert routed("POST", url, BodyNames(), federation=federation).naming == plainly(HUB)


@pytest.mark.parametrize(
    "url", [PODS, f"{PODS}?fieldSelector=metadata.name%3Dp", f"{PODS}?labelSelector=a%3Db"]
)
@pytest.mark.parametrize("federation", [True, False])
def test_nothing_is_deleted_in_every_cluster(url: str, federation: bool) -> None:
    with pytest.raises(MethodNotAllowed, match="say which"):
        routed("DELETE", url, federation=federation)


@pytest.mark.parametrize("url", ["/version", "/api", "/apis/apps/v1", "/openapi/v3", "/healthz"])
def test_other_paths_are_about_the_whole_fleet(url: str) -> None:
    assert routed("GET", url, federation=False).reach is Reach.ALL


def test_in_a_collection_members_are_told_apart_and_the_hub_keeps_its_names() -> None:
    every, unsaid = routed("GET", PODS), routed("GET", f"{PODS}/p", federation=False)

    assert every.naming_in("m1") == by_name("m1")
    assert every.naming_in(HUB) == Naming(HUB, qualifies_marked=True)
    assert unsaid.naming_in("m1") == plainly("m1")
    assert routed("GET", f"{PODS}/p.clusterspace.m1").naming_in("m1") == by_name("m1")


SEARCH = "/apis/search.karmada.io/v1alpha1"


@pytest.mark.parametrize("federation", [True, False])
@pytest.mark.parametrize("before", ["", "/clusterspaces/hub", "/clusterspaces/karmada"])
@pytest.mark.parametrize(
    ("url", "search", "own_path"),
    [
        ("search/cache/api/v1/nodes", Search.CACHE, "/api/v1/nodes"),
        (
            "search/cache/apis/apps/v1/deployments?limit=1",
            Search.CACHE,
            "/apis/apps/v1/deployments",
        ),
        (
            f"proxying/karmada/proxy{PODS}/a.clusterspace.b",
            Search.PROXY,
            f"{PODS}/a.clusterspace.b",
        ),
        ("proxying/any/proxy/version", Search.PROXY, "/version"),
        ("proxying/karmada/proxy", Search.PROXY, "/"),
    ],
)
def test_the_paths_of_search_are_read_as_what_is_behind_them(
    url: str, search: Search, own_path: str, before: str, *, federation: bool
) -> None:
    route = routed("GET", f"{before}{SEARCH}/{url}", federation=federation)

    assert (route.info.search, route.info.path, route.reach) == (search, own_path, Reach.ALL)
    assert route.naming_in("m1") == Naming("m1", shows_source=True)


@pytest.mark.parametrize(
    "url", ["resourceregistries", "search/opensearch/api/v1/pods", "proxying/karmada", "search"]
)
def test_what_is_beside_the_paths_of_search_is_read_as_ever(url: str) -> None:
    assert read("GET", f"{SEARCH}/{url}").search is None


def test_search_is_not_behind_the_address_of_a_member() -> None:
    assert read("GET", f"/clusterspaces/m1{SEARCH}/search/cache/api/v1/pods").search is None
