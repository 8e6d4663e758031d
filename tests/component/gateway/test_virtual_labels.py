"""Labels that objects have by their cluster: in selectors, and never at a member."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    TABLE,
    Site,
    fleet_site,
    grant,
    member_at,
    reaching,
    using,
    without_federation,
)
from tests.component.gateway.watch_streams import watching

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.testing.builders import NAMESPACES, SECRETS, namespace, secret
from clusterspace.testing.faults import FaultProxy, fault_proxy
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import delete, edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/api/v1/namespaces/shop/secrets"
SHOP = ResourcePath(SECRETS, "shop")
INITIAL = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
NAME = "clusterspace.io/cluster"
OF = "cluster.clusterspace.io"
CLUSTERS: Mapping[str, Any] = {
    "east": (
        {"region": "eu", "provider": "aws", "zones": ["eu-a", "eu-b"]},
        {"env": "prod", "example.com/tier": "gold", "weight": "10", "region": "not-this"},
    ),
    "north": ({}, {"env": "prod", "region": "polar"}),
    "west": (
        {"region": "us", "provider": "gcp", "zones": ["us-a"]},
        {"env": "test", "weight": "5"},
    ),
}
FULL: Mapping[str, str] = {
    "h": "h",
    "e": "e.clusterspace.east",
    "d": "d.clusterspace.east",
    "n": "n.clusterspace.north",
    "w": "w.clusterspace.west",
}

# Each selector, whose objects it selects, and the cluster it names, if it names just one. On the
# hub is h, in east are e and d, in north n, which stores a label with our key, and in west w. All
# have app=web but d, which has app=db.
FORMS: list[tuple[str, str, str]] = [
    (f"{NAME}=west", "w", "west"),
    (f"{NAME}==west", "w", "west"),
    (f"{NAME} = west", "w", "west"),
    (f"{NAME} in (west)", "w", "west"),
    (f"{NAME} in (west,)", "w", ""),
    (f"{NAME} in (east,west)", "edw", ""),
    (f"{NAME} in (east,nowhere)", "ed", ""),
    (f"{NAME}=karmada", "h", "karmada"),
    (f"{NAME}=hub", "h", "karmada"),
    (f"{NAME} in (hub,north)", "hn", ""),
    (f"{NAME}!=west", "hedn", ""),
    (f"{NAME}!=hub", "ednw", ""),
    (f"{NAME} notin (east,karmada)", "nw", ""),
    (NAME, "hednw", ""),
    (f"!{NAME}", "", ""),
    (f"{NAME}=", "", ""),
    (f"{NAME}=nowhere", "", "nowhere"),
    (f"{NAME}=stored", "", "stored"),
    (f"{NAME}=east,{NAME}=west", "", ""),
    (f"{NAME} in (east,west),{NAME}!=east", "w", ""),
    (f"{NAME} in (east,west),{NAME} in (west,north)", "w", "west"),
    (f"app=web,{NAME}=east", "e", "east"),
    (f"{NAME}=east,app!=web", "d", "east"),
    (f"{NAME}=east,!app", "", "east"),
    (f"app in (db),{NAME}", "d", ""),
    (f"{OF}/region=eu", "ed", ""),
    (f"{OF}/region=not-this", "", ""),
    (f"{OF}/region in (eu,polar)", "edn", ""),
    (f"{OF}/region!=eu", "hnw", ""),
    (f"{OF}/region notin (eu,us)", "hn", ""),
    (f"{OF}/region", "ednw", ""),
    (f"!{OF}/region", "h", ""),
    (f"{OF}/provider=gcp", "w", ""),
    (f"{OF}/zone=eu-b", "ed", ""),
    (f"{OF}/zone!=eu-b", "hnw", ""),
    (f"{OF}/zone notin (eu-a,us-a)", "hn", ""),
    (f"{OF}/env=prod,{OF}/provider", "ed", ""),
    (f"{OF}/env=prod,app=web", "en", ""),
    (f"{OF}/weight>7", "ed", ""),
    (f"{OF}/weight<7", "w", ""),
    (f"example.com.{OF}/tier=gold", "ed", ""),
    (f"!example.com.{OF}/tier,{NAME}!=hub", "nw", ""),
    (f"{NAME}=east,{OF}/region=us", "", "east"),
    (f"{NAME}=west,{OF}/region=us", "w", "west"),
    (f"{OF}/nobody-has-this", "", ""),
]


@dataclass
class Labelled:
    """A fleet whose members tell what they were asked."""

    site: Site
    members: dict[str, Side] = field(default_factory=dict)
    proxies: dict[str, FaultProxy] = field(default_factory=dict)

    def heard(self) -> dict[str, list[str]]:
        """Return what members were asked since the last time, but for looks at their health."""
        asked = {
            name: [each for each in proxy.requests if "secrets" in each]
            for name, proxy in self.proxies.items()
        }
        for proxy in self.proxies.values():
            proxy.requests.clear()
        return {name: each for name, each in asked.items() if each}

    async def are_watched(self, members: Iterable[str]) -> bool:
        """Whether each of these members has been asked for a watch since the last time."""
        asked = {name: " ".join(proxy.requests) for name, proxy in self.proxies.items()}
        return all("watch=" in asked[name] for name in members)

    async def relabel(self, cluster: str, **labels: str) -> None:
        """Give a Cluster these labels, and wait until the gateway knows."""

        def change(existing: Object) -> Object:
            return with_metadata(existing, labels={**CLUSTERS[cluster][1], **labels})

        await edit(self.site.hub.client, manifests.cluster_path(cluster), change)
        wanted = {key: labels.get(key) for key in ("mark", "other")}

        async def is_known() -> bool:
            known = self.site.running.fleet.directory.labels(cluster)
            found = {key: known.get(f"{OF}/{key}", (None,)) for key in wanted}
            return {key: next(iter(values)) for key, values in found.items()} == wanted

        await until(is_known)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Labelled]:
    async with AsyncExitStack() as stack:
        directory = tmp_path_factory.mktemp("fleet")
        site = await stack.enter_async_context(fleet_site(directory, members=()))
        await site.hub.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        made = secret("h", {}, namespace="shop", labels={"app": "web"})
        await site.hub.client.create(SHOP, made)
        if await site.hub.client.find(manifests.namespace_path("karmada-cluster")) is None:
            await site.hub.client.create(
                ResourcePath(NAMESPACES), manifests.namespace("karmada-cluster")
            )
        fleet = Labelled(site)
        for name, (spec, labels) in CLUSTERS.items():
            member = hub_for_test(directory / name, name=name)
            settings = await stack.enter_async_context(member)
            client = await stack.enter_async_context(client_for_test(settings))
            await client.create(ResourcePath(NAMESPACES), namespace("shop"))
            objects = {name[0]: {"app": "web"}} | ({"d": {"app": "db"}} if name == "east" else {})
            if name == "north":
                objects["n"][NAME] = "stored"
            for each, own in objects.items():
                await client.create(SHOP, secret(each, {}, namespace="shop", labels=own))
            proxy = await stack.enter_async_context(fault_proxy(client.connection))
            await stack.enter_async_context(member_at(site, name, proxy.settings.server))
            fleet.members[name] = Side(settings, client)
            fleet.proxies[name] = proxy

            def change(existing: Object, spec: Any = spec, labels: Any = labels) -> Object:
                labelled = with_metadata(existing, labels=labels)
                return {**labelled, "spec": {**labelled["spec"], **spec}}

            await edit(site.hub.client, manifests.cluster_path(name), change)

            async def is_known(name: str = name, count: int = len(spec) + len(labels)) -> bool:
                own = site.running.fleet.directory.labels(name)
                return len(own) == 1 + count - (name == "east")  # region is said twice there

            await until(is_known)
        yield fleet


def selecting(selector: str, more: str = "") -> str:
    return f"{PATH}?labelSelector={quote(selector)}{more}"


def says_nothing_virtual(asked: Mapping[str, list[str]]) -> bool:
    return "clusterspace.io" not in str(asked)


@pytest.mark.parametrize(("selector", "selected", "named"), FORMS)
async def test_a_selector_selects_clusters_and_members_never_hear_of_it(
    fleet: Labelled, selector: str, selected: str, named: str
):
    site, wanted = fleet.site, [FULL[each] for each in selected]
    members = {FULL[each].rpartition(".")[2] for each in selected if each != "h"}
    fleet.heard()

    listed = await site.ask("GET", selecting(selector))
    asked = fleet.heard()
    paged = await site.ask("GET", selecting(selector, "&limit=1"))
    paged_names = list(paged.names)
    while token := paged.body["metadata"].get("continue"):
        paged = await site.ask("GET", selecting(selector, f"&limit=1&continue={quote(token)}"))
        paged_names += paged.names
    fleet.heard()
    connection = site.connection("root-token")
    async with watching(connection, selecting(selector, f"&watch=1{INITIAL}")) as found:
        await found.until(lambda each: bool(each.ends))
        await until(lambda: fleet.are_watched(members))  # what is under way is heard later
    watched = fleet.heard()
    deleting = selecting(selector, "&dryRun=All")
    deleted = await site.ask("DELETE", deleting)
    told = fleet.heard()

    assert sorted(listed.names) == sorted(wanted), listed.body
    assert (listed.body["kind"], listed.warning) == ("SecretList", "")
    assert sorted(paged_names) == sorted(wanted)
    assert sorted(name for _, name in found.told) == sorted(wanted)
    assert not found.is_broken
    # Targets are pruned before anybody is asked. Where the app decides, members are asked for that.
    assert set(asked) == members or "app" in selector
    assert set(watched) == members or "app" in selector
    for requests in (asked, watched, told):
        assert says_nothing_virtual(requests)
    if not named:
        assert (deleted.code, told) == (405, {})
    elif named not in ("karmada", *CLUSTERS):
        assert (deleted.code, told) == (404, {})
    else:
        assert deleted.code == 200, deleted.body
        assert set(told) == members or ("app" in selector and set(told) == {named})
        if selected:
            assert sorted(deleted.names) == sorted(wanted)


@pytest.mark.parametrize("selector", [f"{NAME}=west", f"{OF}/region", f"{NAME}=nowhere"])
async def test_a_watch_goes_on_from_the_version_of_a_list_with_the_same_selector(
    fleet: Labelled, selector: str
):
    listed = await fleet.site.ask("GET", selecting(selector))
    version = quote(listed.body["metadata"]["resourceVersion"])

    connection = fleet.site.connection("root-token")
    more = f"&watch=1&resourceVersion={version}"
    async with watching(connection, selecting(selector, more)) as resumed:
        for name in ("east", "west"):
            made = secret(f"{name}-new", {}, namespace="shop")
            await fleet.members[name].client.create(SHOP, made)
        if listed.names:
            await resumed.until_told(("ADDED", "west-new.clusterspace.west"))
        for name in ("east", "west"):
            await delete(fleet.members[name].client, SHOP.at(f"shop/{name}-new"))
        if listed.names:
            await resumed.until_told(("DELETED", "west-new.clusterspace.west"))

    assert resumed.status == 200
    of_east = [name for _, name in resumed.told if "east" in name]
    assert bool(of_east) is (selector == f"{OF}/region")


@pytest.mark.parametrize(("selector", "selected", "named"), FORMS)
async def test_what_kubectl_would_delete_is_of_clusters_that_the_selector_names(
    fleet: Labelled, selector: str, selected: str, named: str
):
    path, site = selecting(selector), fleet.site
    says_where = any(f"{NAME}{sign}" in selector for sign in ("=", "==", " in", " =", "  ="))
    wanted = [FULL[each] for each in selected if says_where or each == "h"]

    listed = await site.ask("GET", path, headers=(("Kubectl-Command", "kubectl delete"),))
    pruned = await site.ask("GET", path, headers=(("Kubectl-Command", "kubectl apply"),))

    assert listed.code == 200, listed.body
    assert sorted(listed.names) == sorted(wanted), named
    # Of what its manifests do not have, `apply --prune` deletes all that it is shown.
    assert [each for each in pruned.names if each != "h"] == []
    assert says_nothing_virtual(fleet.heard())


async def test_a_stored_label_does_not_count_and_stays_what_it_is(fleet: Labelled):
    stored = await fleet.members["north"].client.get(SHOP.at("shop/n"))
    shown = await fleet.site.ask("GET", f"{PATH}/n.clusterspace.north")

    assert stored["metadata"]["labels"] == shown.body["metadata"]["labels"]
    assert stored["metadata"]["labels"][NAME] == "stored"


@pytest.mark.parametrize("name", ["h", "e.clusterspace.east"])
async def test_what_is_read_can_be_written_back_and_stores_no_label(fleet: Labelled, name: str):
    site = fleet.site
    (found,) = [
        each
        for each in (await site.ask("GET", selecting(f"{NAME},app=web"))).body["items"]
        if each["metadata"]["name"] == name
    ]

    put = await site.ask("PUT", f"{PATH}/{name}", {**found, "data": {"k": "MQ=="}})
    merge = await site.ask(
        "PATCH", f"{PATH}/{name}", put.body, content_type="application/merge-patch+json"
    )

    assert (put.code, merge.code) == (200, 200), (put.body, merge.body)
    side = site.hub if name == "h" else fleet.members["east"]
    stored = await side.client.get(SHOP.at(f"shop/{name[0]}"))
    assert stored["metadata"]["labels"] == {"app": "web"}


async def test_tables_show_the_labels_and_whole_objects_do_not(fleet: Labelled):
    accept = (("Accept", TABLE),)
    rows = (await fleet.site.ask("GET", PATH, headers=accept)).body["rows"]
    whole = await fleet.site.ask("GET", f"{PATH}?includeObject=Object", headers=accept)
    single = await fleet.site.ask("GET", f"{PATH}/w.clusterspace.west", headers=accept)

    shown = {each["object"]["metadata"]["name"]: each["object"]["metadata"] for each in rows}
    assert shown["h"]["labels"] == {"app": "web", NAME: "karmada"}
    assert shown["n.clusterspace.north"]["labels"][NAME] == "north"
    assert shown["w.clusterspace.west"]["labels"] == {
        "app": "web",
        NAME: "west",
        f"{OF}/region": "us",
        f"{OF}/provider": "gcp",
        f"{OF}/zone": "us-a",
        f"{OF}/env": "test",
        f"{OF}/weight": "5",
    }
    assert single.body["rows"][0]["object"]["metadata"]["labels"][f"{OF}/region"] == "us"
    objects = {each["object"]["metadata"]["name"]: each["object"] for each in whole.body["rows"]}
    assert objects["w.clusterspace.west"]["metadata"]["labels"] == {"app": "web"}


@pytest.mark.parametrize(
    ("selector", "code", "names"),
    [(f"{NAME}=west", 200, ["w"]), (f"{OF}/region!=us", 200, []), (f"{NAME}=east", 200, [])],
)
async def test_a_path_that_names_a_cluster_is_selected_from_all_the_same(
    fleet: Labelled, selector: str, code: int, names: list[str]
):
    path = PATH.replace("secrets", "clusterspaces/west/secrets")
    query = f"?labelSelector={quote(selector)}"
    fleet.heard()

    listed = await fleet.site.ask("GET", path + query)
    heard = fleet.heard()
    deleted = await fleet.site.ask("DELETE", f"{path}{query}&dryRun=All")

    assert (listed.code, listed.names) == (code, names)
    assert says_nothing_virtual(heard)
    # Who is not selected is not even asked to delete nothing.
    assert deleted.code == 200
    assert bool(fleet.heard()) is bool(names)


async def test_a_watch_of_one_cluster_by_its_labels_is_refused(fleet: Labelled):
    path = PATH.replace("secrets", "clusterspaces/west/secrets")

    refused = await fleet.site.ask("GET", f"{path}?watch=1&labelSelector={OF}/region%3Dus")

    assert refused.code == 400
    assert "watch all clusters" in refused.message


async def test_a_selector_that_cannot_be_read_is_refused(fleet: Labelled):
    refused = await fleet.site.ask("GET", selecting(f"{NAME} in west"))

    assert (refused.code, fleet.heard()) == (400, {})


async def test_a_cluster_that_is_relabelled_enters_a_watch_and_ends_it_when_it_leaves(
    fleet: Labelled,
):
    connection = fleet.site.connection("root-token")
    path = selecting(f"{OF}/mark=yes", f"&watch=1{INITIAL}")
    async with watching(connection, path) as found:
        await found.until(lambda each: bool(each.ends))
        assert found.told == []

        await fleet.relabel("west", mark="yes")
        await found.until_told(("ADDED", "w.clusterspace.west"))
        await fleet.relabel("west", mark="yes", other="x")
        assert not found.is_over
        await fleet.relabel("west", mark="no")
        await found.until(lambda each: each.is_over)

    last = found.events[-1]
    assert (last["type"], last["object"]["code"]) == ("ERROR", 410)
    assert "cluster west was relabelled" in last["object"]["message"]
    await fleet.relabel("west")


async def test_a_version_of_other_labels_is_not_gone_on_from(fleet: Labelled):
    await fleet.relabel("west", mark="yes")
    listed = await fleet.site.ask("GET", selecting(f"{OF}/mark=yes"))
    await fleet.relabel("west")
    version = quote(listed.body["metadata"]["resourceVersion"])

    path = selecting(f"{OF}/mark=yes", f"&watch=1&resourceVersion={version}")
    refused = await fleet.site.ask("GET", path)

    assert listed.names == ["w.clusterspace.west"]
    assert (refused.code, refused.body["reason"]) == (410, "Expired")


async def test_nobody_learns_how_clusters_are_labelled_that_they_may_not_reach(fleet: Labelled):
    site = fleet.site
    await grant(site.hub, "jane", [*reaching("east"), *using("secrets")], "jane-east")
    await grant(fleet.members["east"], "jane", using("secrets"), "jane-there")

    answers = [
        await site.ask("GET", selecting(selector), token="jane-token")
        for selector in (f"{OF}/region=us", f"{OF}/region=nowhere", f"{NAME}=west", f"{NAME}=x")
    ]
    reachable = await site.ask("GET", selecting(f"{OF}/region"), token="jane-token")

    seen = [(each.code, each.names, each.warning) for each in answers]
    assert seen == [(200, [], "")] * 4
    assert reachable.names == [FULL["e"], FULL["d"]] or reachable.names == [FULL["d"], FULL["e"]]


async def test_a_view_without_the_hub_answers_too(fleet: Labelled):
    async with without_federation(fleet.site) as members_only:
        for name in CLUSTERS:
            await members_only.wait_for(name)
        of_west = await members_only.ask("GET", selecting(f"{NAME}=west"))
        of_hub = await members_only.ask("GET", selecting(f"{NAME}=hub"))
        bare = await members_only.ask(
            "GET", selecting(f"{NAME}=west", "&fieldSelector=metadata.name%3De")
        )

    assert of_west.names == [FULL["w"]]
    assert (of_hub.code, of_hub.names, of_hub.body["kind"]) == (200, [], "SecretList")
    assert (bare.code, bare.names) == (200, [])
