"""A certificate is revoked while its holder is at work: on open connections, streams, shells.

Every stream is open before anything is revoked, and all of them end within ten seconds, at the hub
and at the gateway. What was revoked does not come back by a TLS session that is resumed, and what
was not revoked goes on.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, grant, reaching, using
from tests.component.gateway.stream_clients import V5
from tests.component.gateway.test_fleet_streams import is_running
from tests.component.gateway.watch_streams import Watching, watching

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.revocations import NAME, NAMESPACE, user_key
from clusterspace.apiserver.identity.authority import Authority, KeyPair
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.client.upgrades import Tunnel, open_tunnel
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.revocations import Revocation, revoke
from clusterspace.testing.builders import CONFIG_MAPS, PODS, config_map, pod
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

REVOKED_SECONDS = 10.0
MAPS = "/api/v1/namespaces/default/configmaps"
POD = "/clusterspaces/west/api/v1/namespaces/default/pods/web"
LIST = ResourcePath(CONFIG_MAPS, NAMESPACE, NAME)
_BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
_TOKEN_REVIEWS = GroupVersionResource("authentication.k8s.io", "v1", "tokenreviews")
SOCKET_HEADERS = (
    ("Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Protocol", V5),
)


@dataclass
class Holder:
    """Somebody with a certificate, and what they have open."""

    name: str
    pair: KeyPair = field(repr=False)
    hub: Connection
    fleet: Connection
    hub_watch: Watching
    fleet_watch: Watching
    log: Watching
    shell: Tunnel
    shell_is_over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_lost_everything(self) -> bool:
        streams = (self.hub_watch, self.fleet_watch, self.log)
        return all(each.is_over for each in streams) and self.shell_is_over.is_set()

    async def until_lost(self) -> None:
        async with asyncio.timeout(REVOKED_SECONDS):
            for each in (self.hub_watch, self.fleet_watch, self.log):
                await each.until(lambda stream: stream.is_over)
            await self.shell_is_over.wait()


class Scene:
    """One fleet, and people who have certificates of its hub."""

    def __init__(self, site: Site, stack: AsyncExitStack) -> None:
        self.site = site
        self.stack = stack
        self.passed: list[str] = []
        pki = site.directory / "hub" / "pki"
        self.authority_file = pki / "ca.crt"
        self.authority = Authority.load(
            KeyPair(self.authority_file.read_bytes(), (pki / "ca.key").read_bytes())
        )

    def issue(self, name: str) -> KeyPair:
        return self.authority.issue_client(name, ("people",), SystemClock().now())

    def connection(self, pair: KeyPair, *, at_hub: bool) -> Connection:
        server = self.site.hub.settings.server if at_hub else self.site.url
        part = "hub" if at_hub else self.site.data_name
        authority = (self.site.directory / part / "pki" / "ca.crt").read_bytes()
        identity = AuthInfo(certificate=Pem(pair.certificate), key=Pem(pair.key))
        settings = ConnectionSettings("x", server, Trust(Pem(authority)), identity)
        made = Connection(settings, clock=SystemClock(), random=Random(1))
        self.stack.push_async_callback(made.close)
        return made

    async def admit(self, name: str) -> None:
        """Let somebody read here and there, and open shells."""
        rules = using("configmaps", "pods", "pods/log", "pods/exec")
        await grant(self.site.hub, name, [*rules, *reaching()], f"{name}-here")
        await grant(self.site.members["west"], name, rules, f"{name}-there")

    async def open(self, name: str, pair: KeyPair | None = None) -> Holder:
        """Have somebody open one stream of every kind."""
        pair = pair or self.issue(name)
        hub, fleet = (self.connection(pair, at_hub=each) for each in (True, False))
        enter = self.stack.enter_async_context
        exec_target = f"{POD}/exec?command=cat&stdin=true&stdout=true"
        holder = Holder(
            name,
            pair,
            hub,
            fleet,
            await enter(watching(hub, f"{MAPS}?watch=1")),
            await enter(watching(fleet, f"{MAPS}?watch=1")),
            await enter(watching(fleet, f"{POD}/log?follow=true")),
            await enter(
                open_tunnel(
                    fleet, ApiRequest("GET", exec_target, headers=SOCKET_HEADERS), "websocket"
                )
            ),
        )
        await holder.hub_watch.until_told(("ADDED", "first"))
        await holder.fleet_watch.until_told(("ADDED", "first"))
        assert holder.log.status == 200
        reading = asyncio.create_task(self._read(holder))
        self.stack.callback(reading.cancel)
        return holder

    async def _read(self, holder: Holder) -> None:
        try:
            while await holder.shell.read():
                pass
        except OSError:
            pass
        holder.shell_is_over.set()

    async def revoke(self, revocation: Revocation) -> None:
        await revoke(self.site.hub.settings, revocation)

    async def pass_a_round(self) -> None:
        """Return when everybody's streams have been looked at, here and there."""
        name = f"passer-by-{len(self.passed)}"
        self.passed.append(name)
        await self.admit(name)
        passer = await self.open(name)
        await self.revoke(Revocation.of_certificate(passer.pair.certificate))
        await passer.until_lost()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Scene]:
    directory = tmp_path_factory.mktemp("fleet")
    async with (
        fleet_site(directory, members=(), sims=("west",)) as site,
        AsyncExitStack() as stack,
    ):
        west = site.members["west"]
        await west.client.create(ResourcePath(PODS, "default"), pod("web"))
        for side in (site.hub, west):
            await side.client.create(ResourcePath(CONFIG_MAPS, "default"), config_map("first"))
        await until(lambda: is_running(west))
        yield Scene(site, stack)


async def status_of(connection: Connection, path: str = MAPS) -> int:
    async with connection.stream(ApiRequest("GET", path)) as answer:
        return answer.status


async def test_a_revoked_certificate_ends_everything_it_had_opened(scene: Scene) -> None:
    for name in ("vera", "vito"):
        await scene.admit(name)
    vera, vito = await scene.open("vera"), await scene.open("vito")
    assert not vera.has_lost_everything

    await scene.revoke(Revocation.of_certificate(vera.pair.certificate))
    await vera.until_lost()

    # On connections that were open all the time, and on new ones.
    assert [await status_of(each) for each in (vera.hub, vera.fleet)] == [401, 401]
    again = [scene.connection(vera.pair, at_hub=each) for each in (True, False)]
    assert [await status_of(each) for each in again] == [401, 401]
    last = vera.hub_watch.events[-1]
    assert (last["type"], last["object"]["code"]) == ("ERROR", 401)
    assert not any(each.is_over for each in (vito.hub_watch, vito.fleet_watch, vito.log))
    assert not vito.shell_is_over.is_set()


async def test_a_user_is_revoked_until_a_new_certificate_is_issued(scene: Scene) -> None:
    await scene.admit("uma")
    uma = await scene.open("uma")

    await scene.revoke(Revocation.of_user("uma", SystemClock().now()))
    await uma.until_lost()

    later = scene.authority.issue_client("uma", (), SystemClock().now() + 2)
    renewed = await scene.open("uma", later)
    # Whatever else is revoked meanwhile: who was renewed is not cut for what they had before.
    await scene.pass_a_round()
    assert await status_of(renewed.hub) == 200
    assert not any(each.is_over for each in (renewed.hub_watch, renewed.fleet_watch, renewed.log))


async def test_a_binding_that_is_replaced_by_its_equal_cuts_nobody(scene: Scene) -> None:
    await scene.admit("rita")
    rita = await scene.open("rita")
    hub = scene.site.hub.client
    place = ResourcePath(_BINDINGS, name="rita-here")
    binding = await hub.get(place)

    await hub.connection.ask(ApiRequest("DELETE", place.path))
    made = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
    await hub.create(place.collection, {**made, "metadata": {"name": "rita-here"}})
    await scene.pass_a_round()

    assert not any(each.is_over for each in (rita.hub_watch, rita.fleet_watch, rita.log))


async def test_a_removed_binding_ends_streams_at_hub_and_gateway(scene: Scene) -> None:
    await scene.admit("rolf")
    rolf = await scene.open("rolf")

    place = ResourcePath(_BINDINGS, name="rolf-here")
    await scene.site.hub.client.connection.ask(ApiRequest("DELETE", place.path))

    await rolf.until_lost()
    last = rolf.hub_watch.events[-1]
    assert (last["type"], last["object"]["code"]) == ("ERROR", 403)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("at_hub", [True, False], ids=["hub", "gateway"])
async def test_a_resumed_session_is_no_way_around(
    scene: Scene, version: ssl.TLSVersion, at_hub: bool, tmp_path: Path
) -> None:
    name = f"tess-{version.name.lower().replace('_', '-')}-{at_hub}".lower()
    pair = scene.issue(name)
    (tmp_path / "pair.pem").write_bytes(pair.certificate + pair.key)
    part, server = (
        ("hub", scene.site.hub.settings.server)
        if at_hub
        else (scene.site.data_name, scene.site.url)
    )
    context = ssl.create_default_context(cafile=str(scene.site.directory / part / "pki" / "ca.crt"))
    context.maximum_version = version
    context.load_cert_chain(tmp_path / "pair.pem")
    place = urlsplit(server)
    address = (str(place.hostname), int(place.port or 0))

    def ask(session: ssl.SSLSession | None) -> tuple[int, str, bool, ssl.SSLSession | None]:
        with (
            socket.create_connection(address, 10) as plain,
            context.wrap_socket(plain, server_hostname=address[0], session=session) as secured,
        ):
            path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
            body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
            head = (
                f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            secured.sendall(head.encode() + body)
            answer = b""
            while more := secured.recv(65536):
                answer += more
            user = json.loads(answer.partition(b"\r\n\r\n")[2]).get("status", {})
            found = user.get("userInfo", {}).get("username", "") if isinstance(user, dict) else ""
            return int(answer.split()[1]), found, bool(secured.session_reused), secured.session

    code, user, _, session = await asyncio.to_thread(ask, None)
    assert (code, user) == (201, name)
    code, user, is_resumed, session = await asyncio.to_thread(ask, session)
    assert (code, user, is_resumed) == (201, name, True)

    await scene.revoke(Revocation.of_certificate(pair.certificate))

    async def is_refused() -> bool:
        code, _, is_resumed, _ = await asyncio.to_thread(ask, session)
        assert is_resumed
        return code == 401

    async with asyncio.timeout(REVOKED_SECONDS):
        await until(is_refused)


async def test_whoever_is_denied_has_no_credential_left(scene: Scene) -> None:
    site = scene.site
    await scene.admit("jane")
    assert (await site.ask("GET", MAPS, token="jane-token")).code == 200

    await scene.revoke(Revocation.of_all("jane"))

    async def is_out() -> bool:
        return (await site.ask("GET", MAPS, token="jane-token")).code == 401

    async with asyncio.timeout(REVOKED_SECONDS):
        await until(is_out)
    assert await status_of(scene.connection(scene.issue("jane"), at_hub=True)) == 401
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "jane-token"},
    }
    path = ResourcePath(_TOKEN_REVIEWS)
    answered = await site.hub.client.create(path, review)
    assert "authenticated" not in answered["status"]


async def test_the_list_comes_back_when_it_is_deleted_whole(scene: Scene) -> None:
    pair, hub = scene.issue("dora"), scene.site.hub.client
    await scene.revoke(Revocation.of_certificate(pair.certificate))
    before = (await hub.get(LIST))["data"]

    await hub.connection.ask(ApiRequest("DELETE", LIST.path))
    assert await status_of(scene.connection(pair, at_hub=True)) == 401

    async def is_back() -> bool:
        found = await hub.find(LIST)
        return found is not None and found["data"] == before

    await until(is_back)
    assert await status_of(scene.connection(pair, at_hub=True)) == 401


async def test_an_entry_that_cannot_be_read_harms_nobody_else(scene: Scene) -> None:
    hub = scene.site.hub.client
    odd: dict[str, Any] = {
        "data": {"user-0000": "not JSON", "serial-xyz": "{}", user_key("x"): '{"user":"root"}'}
    }
    headers = (("Content-Type", "application/merge-patch+json"),)
    await scene.revoke(Revocation.of_user("nobody-yet", SystemClock().now()))
    ask = ApiRequest("PATCH", LIST.path, headers=headers, body=json.dumps(odd).encode())
    assert (await hub.connection.ask(ask)).status == 200

    assert (await scene.site.ask("GET", MAPS, token=ROOT)).code == 200
