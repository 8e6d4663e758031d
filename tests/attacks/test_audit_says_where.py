"""The gateway's record of who did what says in which cluster, and who says so."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.attacks.test_audit_tells_of_secrets import AuditFile, fleet_file, hub_file
from tests.component.gateway.fleet_site import Site, fleet_site, heard

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.hostile import ESCAPES, Behaviour, HostileMember, answering, refusing

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/shop/configmaps"
SECRETS = "/api/v1/namespaces/shop/secrets"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        for side in (running.hub, running.members["east"]):
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def member(site: Site) -> AsyncGenerator[HostileMember]:
    async with hostile_in(site, refusing(500, "InternalError")) as running:
        yield running


@pytest.fixture
def behave(site: Site, member: HostileMember) -> Callable[[Behaviour], None]:
    def change(behaviour: Behaviour) -> None:
        member.behave = behaviour
        site.running.fleet.directory.troubles.let_go(HOSTILE)

    return change


@pytest.mark.parametrize(
    ("method", "path", "name", "cluster"),
    [
        ("POST", MAPS, "in-body.clusterspace.east", "east"),
        ("POST", "/api/v1/namespaces/shop/clusterspaces/east/configmaps", "in-url", "east"),
        ("POST", f"/clusterspaces/east{MAPS}", "prefix", "east"),
        ("POST", MAPS, "on-hub", "karmada"),
        ("DELETE", f"{MAPS}/in-body.clusterspace.east", "", "east"),
    ],
)
async def test_a_write_says_in_which_cluster(
    site: Site, method: str, path: str, name: str, cluster: str
) -> None:
    told = fleet_file(site)
    body = config_map(name, namespace="shop") if name else None

    assert (await site.ask(method, path, body)).code in (200, 201)

    (line,) = told.lines(user="root", resource="configmaps")
    assert line["cluster"] == cluster
    assert line["reportedBy"] == cluster  # the UID is what that cluster says
    assert line["name"] == (name or path.rpartition("/")[2])


async def test_a_read_of_secrets_says_where_and_nothing_when_it_is_everywhere(site: Site) -> None:
    told = fleet_file(site)
    for path in (f"/clusterspaces/east{SECRETS}", f"{SECRETS}/x.clusterspace.east", SECRETS):
        await site.ask("GET", path)

    lines = told.lines(user="root", resource="secrets")
    assert [each.get("cluster") for each in lines] == ["east", "east", None]


async def test_a_write_to_a_cluster_that_is_not_there_says_which(site: Site) -> None:
    told = fleet_file(site)
    await site.ask("POST", f"/clusterspaces/nowhere{MAPS}", config_map("a", namespace="shop"))

    (line,) = told.lines(user="root", cluster="nowhere")
    assert line["code"] >= 400


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/shop/pods/web/proxy/reset",
        "/api/v1/namespaces/shop/services/web/proxy/reset",
        "/api/v1/nodes/one/proxy/reset",
    ],
)
async def test_a_get_into_what_runs_in_a_cluster_is_told_as_on_the_hub(
    site: Site, behave: Callable[[Behaviour], None], path: str
) -> None:
    behave(answering(200, b'{"metadata":{"name":"lie","uid":"lie"}}'))
    at_fleet, at_hub = fleet_file(site), hub_file(site)
    await site.ask("GET", f"/clusterspaces/{HOSTILE}{path}")
    proxy = f"/apis/cluster.karmada.io/v1alpha1/clusters/{HOSTILE}/proxy{path}"
    await site.hub.client.connection.exchange(ApiRequest("GET", proxy))

    (line,) = at_fleet.lines(subresource="proxy", stage="ResponseComplete")
    asked = f"/clusterspaces/{HOSTILE}{path}"
    assert (line["cluster"], line["path"], line["code"]) == (HOSTILE, asked, 200)
    assert "uid" not in line
    (line,) = at_hub.lines(resource="clusters", subresource="proxy", stage="ResponseComplete")
    assert line["path"] == proxy
    assert "uid" not in line


def created(**metadata: Any) -> Behaviour:
    said = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}
    return answering(201, msgspec.json.encode(said))


async def post(site: Site, body: dict[str, Any]) -> dict[str, Any]:
    told = fleet_file(site)
    path = f"/api/v1/namespaces/shop/clusterspaces/{HOSTILE}/configmaps"
    assert (await site.ask("POST", path, body)).code == 201
    return only_line(told)


def only_line(told: AuditFile) -> dict[str, Any]:
    (line,) = told.lines(verb="create", resource="configmaps")
    return line


async def test_a_member_does_not_choose_the_name_of_what_was_created(
    site: Site, behave: Callable[[Behaviour], None]
) -> None:
    behave(created(name="kube-root-ca.crt", uid="u-1"))

    line = await post(site, config_map("mine", namespace="shop"))

    assert (line["name"], line["reportedBy"]) == ("mine", HOSTILE)


async def test_a_name_that_only_the_member_knows_is_told_as_its_word_and_is_short(
    site: Site, behave: Callable[[Behaviour], None]
) -> None:
    behave(created(name=ESCAPES + "n" * 1_000_000, uid=ESCAPES + "u" * 1_000_000))
    made = config_map("", namespace="shop")
    made["metadata"] = {"generateName": "web-", "namespace": "shop"}

    line = await post(site, made)

    assert line["reportedBy"] == HOSTILE
    assert line["name"].isprintable()
    assert len(line["name"]) <= 253
    assert line["uid"].isprintable()
    assert len(line["uid"]) <= 64
    assert len(json.dumps(line)) < 4096


@pytest.mark.parametrize("path", [MAPS, f"{MAPS}?limit=500", "/api/v1/namespaces", "/api/v1/pods"])
async def test_head_of_a_fleet_list_is_answered_as_get_without_its_body(
    site: Site, path: str
) -> None:
    shown = await site.ask("GET", path)
    answer = heard(await site.connection("root-token").exchange(ApiRequest("HEAD", path)))

    assert (answer.code, answer.body) == (shown.code, b"")
    assert answer.headers["content-type"] == shown.headers["content-type"]
    assert (await site.ask("GET", path)).code == shown.code  # the connection is none the worse
