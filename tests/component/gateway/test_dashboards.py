"""Dashboards of others: what Headlamp asks, and watches and logs over WebSockets."""

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site
from tests.conformance.real_kubernetes import TOKEN, running_kubernetes

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import config_map
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = GroupVersionResource("", "v1", "pods")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"containers": [{"name": "web", "image": "web:1"}]},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    place = tmp_path_factory.mktemp("fleet")
    async with fleet_site(place, members=(), sims=("east",)) as running:
        await running.members["east"].client.create(ResourcePath(PODS, "default"), POD)
        yield running


HEADLAMP = {
    "api/v1": "configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims"
    " persistentvolumes pods resourcequotas secrets serviceaccounts services",
    "apis/admissionregistration.k8s.io/v1": "mutatingwebhookconfigurations"
    " validatingwebhookconfigurations",
    "apis/apiextensions.k8s.io/v1": "customresourcedefinitions",
    "apis/apps/v1": "daemonsets deployments replicasets statefulsets",
    "apis/autoscaling/v2": "horizontalpodautoscalers",
    "apis/batch/v1": "cronjobs jobs",
    "apis/coordination.k8s.io/v1": "leases",
    "apis/discovery.k8s.io/v1": "endpointslices",
    "apis/networking.k8s.io/v1": "ingressclasses ingresses networkpolicies",
    "apis/node.k8s.io/v1": "runtimeclasses",
    "apis/policy/v1": "poddisruptionbudgets",
    "apis/rbac.authorization.k8s.io/v1": "clusterrolebindings clusterroles rolebindings roles",
    "apis/scheduling.k8s.io/v1": "priorityclasses",
    "apis/storage.k8s.io/v1": "storageclasses",
}
"""What Headlamp's screens list, in all namespaces."""


@asynccontextmanager
async def opened(
    url: str, path: str, *protocols: str, token: str = ROOT, **headers: str
) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
    """Open a WebSocket as a dashboard does: with an Origin, and whatever protocols it knows."""
    said = {"Origin": url, **({"Authorization": f"Bearer {token}"} if token else {}), **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url + path, protocols=protocols, headers=said, ssl=False) as socket,
    ):
        yield socket


async def event(socket: aiohttp.ClientWebSocketResponse) -> Any:
    return json.loads(await socket.receive_str(timeout=30))


async def refused(url: str, path: str, *protocols: str, **options: str) -> int:
    with pytest.raises(aiohttp.WSServerHandshakeError) as failure:
        async with opened(url, path, *protocols, **options):
            pass
    return failure.value.status


@pytest.mark.parametrize("server", ["fleet", "hub"])
async def test_headlamp_finds_all_that_its_screens_show(site: Site, server: str):
    url = site.url if server == "fleet" else site.hub.settings.server
    reviews = "/apis/authorization.k8s.io/v1"
    aggregated = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
    access = {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "default"}}
    headers = {"Authorization": f"Bearer {ROOT}", "Accept": "application/json"}

    async with aiohttp.ClientSession(url, headers=headers) as session:

        async def ask(method: str, path: str, body: Any = None, **said: str) -> Any:
            async with session.request(method, path, json=body, headers=said, ssl=False) as answer:
                assert answer.status in (200, 201), f"{path}: {await answer.text()}"
                return (
                    json.loads(await answer.text()) if answer.content_type != "text/plain" else {}
                )

        await ask("GET", "/healthz")
        assert (await ask("GET", "/version"))["gitVersion"].startswith("v1.")
        await ask("POST", f"{reviews}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
        who = await ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        assert who["status"]["userInfo"]["username"] == "root"
        may = await ask("POST", f"{reviews}/selfsubjectaccessreviews", {"spec": access})
        assert may["status"]["allowed"] is True
        for place in ("/api", "/apis"):
            found = await ask("GET", place, Accept=aggregated)
            assert found["items"][0]["versions"][0]["resources"]
        assert "/api/v1/pods" in (await ask("GET", "/openapi/v2"))["paths"]
        for group, names in HEADLAMP.items():
            for name in names.split():
                listed = await ask("GET", f"/{group}/{name}")
                version = listed["metadata"]["resourceVersion"]
                watched = f"/{group}/{name}?watch=1&resourceVersion={version}"
                async with opened(url, watched) as socket:
                    assert not socket.closed
        if server == "fleet":
            pods = await ask("GET", "/api/v1/pods")
            assert "web.clusterspace.east" in [each["metadata"]["name"] for each in pods["items"]]
            metrics = await ask("GET", "/apis/metrics.k8s.io/v1beta1/nodes")
            assert metrics["items"]


async def test_a_shell_is_opened_with_the_protocols_that_headlamp_names(site: Site):
    pod = "/api/v1/namespaces/default/pods/web.clusterspace.east"
    asked = "container=web&command=echo&command=hello&stdin=false&stdout=true&stderr=true&tty=false"
    names = ("base64.binary.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "channel.k8s.io")

    async def is_running() -> bool:
        return (await site.ask("GET", pod)).body["status"].get("phase") == "Running"

    await until(is_running)
    async with opened(site.url, f"{pod}/exec?{asked}", *names) as socket:
        heard = [message.data async for message in socket]

    assert socket.protocol in names
    assert any(b"hello" in each for each in heard)


@pytest.mark.parametrize("server", ["fleet", "hub"])
async def test_each_event_of_a_watch_is_one_text_message(site: Site, server: str):
    url = site.url if server == "fleet" else site.hub.settings.server
    name = f"told-to-{server}"
    listed = await site.ask("GET", MAPS)
    version = listed.body["metadata"]["resourceVersion"] if server == "fleet" else "0"

    async with opened(url, f"{MAPS}?watch=1&resourceVersion={version}") as socket:
        made = config_map(name)
        await site.hub.client.create(ResourcePath(manifests.CONFIG_MAPS, "default"), made)
        seen = [await event(socket)]
        while seen[-1]["object"]["metadata"]["name"] != name:
            seen.append(await event(socket))

    assert seen[-1]["type"] == "ADDED"


async def test_the_watch_of_a_fleet_tells_of_members_by_their_names(site: Site):
    east = site.members["east"].client

    async with opened(site.url, f"{MAPS}?watch=1") as socket:
        await east.create(ResourcePath(manifests.CONFIG_MAPS, "default"), config_map("eastern"))
        names: list[str] = []
        while "eastern.clusterspace.east" not in names:
            names.append((await event(socket))["object"]["metadata"]["name"])


async def test_a_dashboard_offers_a_protocol_and_sends_pings(site: Site):
    async with opened(site.url, f"{MAPS}?watch=1", "base64.binary.k8s.io") as socket:
        assert socket.protocol == "base64.binary.k8s.io"
        await event(socket)
        await socket.send_str("whatever it says is nobody's business")
        await socket.ping(b"there?")
        await event(socket)


async def test_a_watch_that_has_an_end_says_goodbye(site: Site):
    async with opened(site.hub.settings.server, f"{MAPS}?watch=1&timeoutSeconds=1") as socket:
        async for _ in socket:
            pass

        assert socket.close_code == 1000


async def test_nobody_writes_for_a_client_that_has_left(site: Site):
    streams = site.running.fleet.streams
    before = len(streams)

    async with opened(site.url, f"{MAPS}?watch=1") as socket:
        await event(socket)
        await until(lambda: len(streams) > before)

    await until(lambda: len(streams) == before)


@pytest.mark.parametrize(
    ("protocol", "is_text"), [("", False), ("binary.k8s.io", False), ("base64.binary.k8s.io", True)]
)
async def test_a_log_is_read_as_it_is_or_in_base64(site: Site, protocol: str, is_text: bool):
    path = "/api/v1/namespaces/default/pods/web.clusterspace.east/log"

    async def has_log() -> bool:
        answer = await site.ask("GET", path)
        return answer.code == 200 and bool(answer.body)

    await until(has_log)
    plain = (await site.ask("GET", path)).body.decode()

    async with opened(site.url, path, *([protocol] if protocol else [])) as socket:
        message = await socket.receive(timeout=30)

    read = base64.b64decode(message.data) if is_text else message.data
    assert isinstance(message.data, str) is is_text
    assert read.decode().splitlines()[0] == plain.splitlines()[0]


async def test_a_token_may_come_as_a_protocol(site: Site):
    hidden = base64.urlsafe_b64encode(ROOT.encode()).decode().rstrip("=")
    bearer = f"base64url.bearer.authorization.k8s.io.{hidden}"

    async with opened(site.url, f"{MAPS}?watch=1", bearer, "v1.k8s.io", token="") as socket:
        assert socket.protocol == "v1.k8s.io"
        assert (await event(socket))["type"] == "ADDED"


@pytest.mark.parametrize(
    ("protocols", "code"),
    [
        ((), 403),
        (("base64url.bearer.authorization.k8s.io.bm9ib2R5", "v1.k8s.io"), 401),
        (("base64url.bearer.authorization.k8s.io.bm9ib2R5",), 400),
        (("base64url.bearer.authorization.k8s.io.!", "v1.k8s.io"), 400),
        (("base64url.bearer.authorization.k8s.io.Zm9vDQpYOiB5", "v1.k8s.io"), 400),
    ],
)
async def test_who_may_not_watch_is_refused_before_anything_is_opened(
    site: Site, protocols: tuple[str, ...], code: int
):
    assert await refused(site.url, f"{MAPS}?watch=1", *protocols, token="") == code


async def test_a_refusal_is_an_ordinary_answer(site: Site):
    assert (
        await refused(site.hub.settings.server, f"{MAPS}?watch=1&labelSelector=a%3D%3D%3D") == 400
    )
    log = "/api/v1/namespaces/default/pods/web.clusterspace.east/log"
    assert await refused(site.url, log, "unheard.of") == 400


async def test_kubernetes_sends_the_same_messages(
    site: Site, tmp_path_factory: pytest.TempPathFactory
):
    with running_kubernetes(tmp_path_factory.mktemp("real")) as real:
        heard: list[Any] = []
        for url, token in ((real.url, TOKEN), (site.hub.settings.server, ROOT)):
            for accept in ("application/json", "application/vnd.kubernetes.protobuf;stream=watch"):
                # From whatever its cache has: one that has just begun may be behind its own writes.
                path = "/api/v1/namespaces?watch=1&resourceVersion=0&fieldSelector="
                path += "metadata.name%3Ddefault"
                async with opened(url, path, "one", token=token, Accept=accept) as socket:
                    message = await socket.receive(timeout=30)
                    start = message.data[:7]
                    heard.append((url, socket.protocol, message.type, start, message.data[-1:]))

    theirs, ours = heard[:2], heard[2:]
    assert [each[1:4] for each in ours] == [each[1:4] for each in theirs]
    assert ours[0][4] == theirs[0][4]
