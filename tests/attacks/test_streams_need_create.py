"""A shell by GET: who may only look at a cluster opens no stream and no proxy into it."""

from collections.abc import AsyncGenerator
from itertools import product

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import Site, fleet_site, grant
from tests.component.gateway.stream_clients import V5, WEB_SOCKET, ask

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.upgrades import open_tunnel
from clusterspace.errors import Forbidden
from clusterspace.kube.objects import find_at
from clusterspace.testing.builders import PODS, pod
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

JANE, CARL = "jane-token", "carl-token"
POD = "/api/v1/namespaces/default/pods/web"
KARMADA = "/apis/cluster.karmada.io/v1alpha1/clusters/west/proxy"
FORMS = (
    f"{POD}.clusterspace.west",
    "/api/v1/namespaces/default.clusterspace.west/pods/web",
    "/api/v1/namespaces/default/clusterspaces/west/pods/web",
    f"/clusterspaces/west{POD}",
    f"{KARMADA}{POD}",
)
STREAMS = ("exec?command=pwd&stdout=true", "attach?stdout=true", "portforward?ports=80")
INTO_CLUSTER = (
    f"{POD}/proxy/",
    "/api/v1/namespaces/default/services/web/proxy/metrics",
    "/api/v1/nodes/west-1/proxy/pods",
    f"{KARMADA.replace('west', 'inner')}/api/v1/pods",
)
OFFERED = f"Sec-WebSocket-Protocol: {V5}"


def reaching_with(*verbs: str) -> list[dict[str, object]]:
    resources = ["clusters/proxy"]
    return [{"apiGroups": ["cluster.karmada.io"], "resources": resources, "verbs": [*verbs]}]


def everywhere(*verbs: str) -> list[dict[str, object]]:
    return [{"apiGroups": ["", "cluster.karmada.io"], "resources": ["*"], "verbs": [*verbs]}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """Jane may do everything in west, and look at it. Carl may reach west, and look there."""
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=(), sims=("west",)) as running:
        west = running.members["west"]
        await west.client.create(ResourcePath(PODS, "default"), pod("web"))
        await until(lambda: is_running(west))
        await grant(running.hub, "jane", reaching_with("get"), "jane-looks")
        await grant(west, "jane", everywhere("*"), "jane-does")
        await grant(running.hub, "carl", reaching_with("get", "create"), "carl-reaches")
        await grant(west, "carl", everywhere("get", "list"), "carl-looks")
        yield running


async def is_running(side: Side) -> bool:
    found = await side.client.get(ResourcePath(PODS, "default", "web"))
    return find_at(found, "status", "phase") == "Running"


async def by_web_socket(site: Site, target: str, token: str) -> tuple[int, str]:
    """Open a stream by GET; return the code, and what a refusal says."""
    status, connection = await ask(site, "GET", target, *WEB_SOCKET, OFFERED, token=token)
    said = b"" if status == 101 else await connection.reader.read(2_000)
    await connection.close()
    return status, said.decode()


@pytest.mark.parametrize(("form", "stream"), list(product(FORMS, STREAMS)))
async def test_who_may_get_a_cluster_opens_no_stream_in_it(site: Site, form: str, stream: str):
    status, said = await by_web_socket(site, f"{form}/{stream}", JANE)

    assert status == 403
    assert 'cannot create resource \\"clusters/proxy\\"' in said


@pytest.mark.parametrize(("form", "stream"), list(product(FORMS, STREAMS)))
async def test_who_may_get_a_stream_in_a_cluster_does_not_open_it(
    site: Site, form: str, stream: str
):
    status, said = await by_web_socket(site, f"{form}/{stream}", CARL)

    assert status == 403
    assert f'cannot create resource \\"pods/{stream.partition("?")[0]}\\"' in said


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", INTO_CLUSTER)
@pytest.mark.parametrize("form", ["/clusterspaces/west", KARMADA])
async def test_who_may_get_a_cluster_proxies_to_nothing_in_it(
    site: Site, form: str, path: str, method: str
):
    answer = await site.ask(method, form + path, token=JANE)

    assert answer.code == 403
    if method != "HEAD":
        assert 'cannot create resource "clusters/proxy"' in answer.message


@pytest.mark.parametrize("stream", STREAMS)
async def test_the_hub_itself_passes_no_stream_on_for_who_may_only_get_a_cluster(
    site: Site, stream: str
):
    hub, as_jane = site.hub.client.connection, (("Impersonate-User", "jane"),)
    target = f"{KARMADA}{POD}/{stream}"

    with pytest.raises(Forbidden, match='cannot create resource "clusters/proxy"'):
        async with open_tunnel(hub, ApiRequest("GET", target, headers=as_jane), "websocket"):
            pass
    plain = await hub.exchange(ApiRequest("GET", target, headers=as_jane))
    log = await hub.exchange(ApiRequest("GET", f"{KARMADA}{POD}/log", headers=as_jane))

    assert (plain.status, log.status) == (403, 200)


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_member_asked_directly_opens_no_stream_for_who_may_only_get_it(
    site: Site, stream: str
):
    as_carl = (("Impersonate-User", "carl"), ("Impersonate-Group", "ops"))
    member = site.members["west"].client.connection

    answer = await member.exchange(ApiRequest("GET", f"{POD}/{stream}", headers=as_carl))

    part = stream.partition("?")[0]
    assert answer.status == 403
    assert f'cannot create resource \\"pods/{part}\\"'.encode() in answer.body


async def test_who_may_get_a_cluster_still_reads_in_it(site: Site):
    for form in FORMS:
        assert (await site.ask("GET", form, token=JANE)).code == 200
        assert (await site.ask("GET", f"{form}/log", token=JANE)).code == 200


async def test_who_may_create_both_gets_a_shell_by_every_form(site: Site):
    await grant(site.members["west"], "carl", everywhere("create"), "carl-creates")

    for form in FORMS:
        status, said = await by_web_socket(site, f"{form}/{STREAMS[0]}", CARL)
        assert status == 101, said


async def may_jane(site: Site, verb: str, subresource: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "resource": "pods",
                "verb": verb,
                "subresource": subresource,
                "namespace": "default.clusterspace.west",
            }
        },
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await site.ask("POST", path, review, token=JANE)
    return answer.body["status"]["allowed"]


async def test_may_i_says_what_would_happen(site: Site):
    assert await may_jane(site, "get", "log")
    assert not await may_jane(site, "get", "exec")
    assert not await may_jane(site, "create", "exec")
    assert not await may_jane(site, "get", "proxy")
