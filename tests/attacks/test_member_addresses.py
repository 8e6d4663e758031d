"""Whoever says where a member is wants gateway and controllers to fetch what only they can reach.

The attacker may even join clusters. A listener on this machine stands for whatever must not be
asked; it counts connections, for a refusal that comes after the handshake comes too late.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio
from aiohttp import web
from click.testing import CliRunner
from tests.component.fake_clusters import fake_cluster
from tests.component.gateway.fleet_site import write_member

from clusterspace.aio.clocks import SystemClock
from clusterspace.cli.main import main
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import (
    AddressRules,
    SocketAddress,
    is_of_this_machine,
    problem_with_host,
)
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.client.upgrades import open_tunnel
from clusterspace.errors import AddressNotAllowed, ClusterError, Invalid, UnusableKubeconfig
from clusterspace.fleet.membership import manifests
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.roots.clients import command_rules, member_rules
from clusterspace.roots.controllers import run_controllers
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import FleetSettings, HubSettings
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.certificates import loopback_tls
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.stage import quick
from clusterspace.testing.steps import stop, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HIDDEN = ip_network("127.0.0.2/32")
"""A part of this machine that the operator allows; the rest of it stays refused."""

REFUSED_ENDPOINTS = (
    "http://10.0.0.7:8080",
    "file:///etc/passwd",
    "gopher://10.0.0.7",
    "https://",
    "https:///etc",
    "10.0.0.7:6443",
    "https://user:password@10.0.0.7",
    "https://10.0.0.7?path=/",
    "https://10.0.0.7/#x",
    "https://10.0.0.7/../../secret",
    "https://10.0.0.7/a//b",
    "https://10.0.0.7/%2e%2e/",
    "https://10.0.0.7\\@evil.example.com",
    "https://10.0.0.7\r\nX-Injected: yes",
    "https://10.0.0.7/\r\n",
    "https://10.0.0.7/\tx",
    "https://10.0.0.7 ",
    "https://ex\u00e4mple.com",
    "https://10.0.0.7:0",
    "https://10.0.0.7:99999",
    "https://10.0.0.7:x",
    "https://127.0.0.1:6443",
    "https://127.9.9.9",
    "https://[::1]:6443",
    "https://0.0.0.0",
    "https://[::]",
    "https://169.254.169.254/latest",
    "https://169.254.1.1",
    "https://[fe80::1]",
    "https://[fe80::1%25eth0]",
    "https://[fd00:ec2::254]",
    "https://100.100.100.200",
    "https://168.63.129.16",
    "https://224.0.0.1",
    "https://[ff02::1]",
    "https://255.255.255.255",
    "https://[::ffff:127.0.0.1]",
    "https://[::ffff:10.0.0.7]",
    "https://[::127.0.0.1]",
    "https://[64:ff9b::7f00:1]",
    "https://[2002:7f00:1::]",
    "https://2130706433",
    "https://127.1",
    "https://0x7f.0.0.1",
    "https://0177.0.0.1",
    "https://0x7f000001",
    "https://-evil.example.com",
)
FINE_ENDPOINTS = (
    "https://10.0.0.7:6443",
    "https://192.168.1.4",
    "https://172.16.0.9:443/",
    "https://100.64.0.3:6443",
    "https://203.0.113.4:6443",
    "https://[2001:db8::1]:6443",
    "https://[fd12:3456::1]:6443",
    "https://rancher.example.com/k8s/clusters/c-m-1a2b3c",
    "https://west.internal.:6443",
    "https://my_member:6443",
)


def cluster(**spec: object) -> Object:
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "odd"},
        "spec": {"syncMode": "Push", **spec},
    }


@dataclass
class Listener:
    """Something on this machine that nobody is to connect to."""

    port: int = 0
    connections: int = 0

    async def accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


@asynccontextmanager
async def listening(host: str = "127.0.0.1") -> AsyncGenerator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(listener.accept, host, 0)
    listener.port = server.sockets[0].getsockname()[1]
    async with server:
        yield listener


@dataclass
class StrictFleet:
    """A hub, a gateway and controllers whose operator allowed nothing."""

    hub: ClusterClient
    gateway: ClusterClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[StrictFleet]:
    directory = tmp_path_factory.mktemp("strict")
    settings = HubSettings(directory / "hub", port=0, store="memory")
    async with running_hub(settings):
        reached = read_kubeconfig([directory / "hub" / "kubeconfig"]).settings(cluster="hub")
        async with client_for_test(reached) as hub:
            await hub.create(ResourcePath(NAMESPACES), namespace("karmada-cluster"))
            async with running_fleet(FleetSettings(reached, directory / "fleet", port=0)):
                files = [directory / part / "kubeconfig" for part in ("fleet", "hub")]
                found = read_kubeconfig(files).settings(cluster="f")
                async with client_for_test(found) as gateway:
                    yield StrictFleet(hub, gateway)


@pytest.mark.parametrize("endpoint", REFUSED_ENDPOINTS)
async def test_no_cluster_is_where_only_the_hub_can_reach(
    fleet: StrictFleet, endpoint: str
) -> None:
    with pytest.raises(Invalid, match=r"spec\.apiEndpoint"):
        await fleet.hub.create(
            manifests.cluster_path("odd").collection, cluster(apiEndpoint=endpoint)
        )


@pytest.mark.parametrize("endpoint", FINE_ENDPOINTS)
async def test_members_are_in_private_networks_behind_names_and_behind_paths(
    fleet: StrictFleet, endpoint: str
) -> None:
    place = manifests.cluster_path("odd").collection
    made = await fleet.hub.connection.ask(
        ApiRequest(
            "POST",
            place.path,
            query=(("dryRun", "All"),),
            headers=(("Content-Type", "application/json"),),
            body=json.dumps(cluster(apiEndpoint=endpoint)).encode(),
        )
    )

    assert made.status == 201


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"proxyURL": "http://127.0.0.1:3128"}, "spec.proxyURL"),
        ({"proxyURL": "http://10.0.0.7:3128\r\nX: y"}, "spec.proxyURL"),
        ({"proxyURL": "ftp://10.0.0.7"}, "spec.proxyURL"),
        ({"proxyURL": "http://10.0.0.7/path"}, "spec.proxyURL"),
        ({"proxyHeader": {"X": "a\r\nInjected: yes"}}, "spec.proxyHeader"),
        ({"proxyHeader": {"X\r\nInjected": "yes"}}, "spec.proxyHeader"),
    ],
)
async def test_no_proxy_leads_astray_or_carries_lines_of_its_own(
    fleet: StrictFleet, spec: Object, place: str
) -> None:
    odd = cluster(apiEndpoint="https://10.0.0.7", **spec)

    with pytest.raises(Invalid, match=place):
        await fleet.hub.create(manifests.cluster_path("odd").collection, odd)


async def test_a_name_that_leads_to_this_machine_is_connected_to_by_nobody(
    fleet: StrictFleet,
) -> None:
    """The hub stores a name; gateway, relay and controllers each look where it leads."""
    async with listening() as secret:
        await write_member(fleet.hub, "rebound", f"https://localhost:{secret.port}")
        controllers = asyncio.create_task(
            run_controllers(quick(fleet.hub.connection.settings, member_cidrs=()), SystemClock())
        )
        try:
            relayed = f"{manifests.cluster_path('rebound').path}/proxy/api/v1/namespaces"
            answers = [
                await fleet.gateway.connection.exchange(
                    ApiRequest("POST", "/clusterspaces/rebound/api/v1/namespaces")
                ),
                await fleet.hub.connection.exchange(ApiRequest("POST", relayed)),
            ]
            listed = await fleet.gateway.connection.exchange(
                ApiRequest("GET", "/api/v1/namespaces")
            )
            message = await ready_message(fleet, "rebound")
        finally:
            await stop(controllers)

    assert secret.connections == 0
    for each in answers:
        told = json.loads(each.body)["message"]
        assert each.status in (503, 504)  # the hub's relay, and the gateway: nobody was reached
        assert "its address is not allowed: it is a loopback address" in told
        assert "--allow-member-cidrs" in told
        assert "localhost" not in told
        assert "127.0.0.1" not in told
    assert listed.status == 200
    assert "localhost" not in listed.headers.get("warning", "")
    assert "127.0.0.1" not in listed.headers.get("warning", "")
    assert "its address is not allowed" in message
    assert "it leads to 127.0.0.1" in message or "it leads to ::1" in message


async def ready_message(fleet: StrictFleet, name: str) -> str:
    """Wait until the controllers have looked; return what the Ready condition says."""
    found: Object = {}

    async def is_told() -> bool:
        nonlocal found
        held = await fleet.hub.get(manifests.cluster_path(name))
        found = find_condition(find_at(held, "status", "conditions"), "Ready") or {}
        return bool(found)

    await until(is_told)
    return str(found["message"])


@dataclass
class ChangingNames:
    """A DNS server of the attacker's: each question gets the next answer."""

    answers: Sequence[tuple[str, ...]]
    asked: list[str] = field(default_factory=list[str])

    async def __call__(self, host: str, port: int) -> Sequence[SocketAddress]:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port)) for address in answer]


def ways_in(port: int, proxy_url: str = "") -> ConnectionSettings:
    rules = AddressRules((HIDDEN,))
    server = f"https://localhost:{port}"
    trust = loopback_tls().trust
    return ConnectionSettings("west", server, trust, proxy_url=proxy_url, address_rules=rules)


@asynccontextmanager
async def connection(
    settings: ConnectionSettings, dns: ChangingNames
) -> AsyncGenerator[Connection]:
    opened = Connection(settings, clock=SystemClock(), random=Random(1), resolve=dns)
    try:
        yield opened
    finally:
        await opened.close()


async def knock(opened: Connection, way: str) -> None:
    """Ask for something once, by a request or by an upgrade."""
    if way == "request":
        await opened.exchange(ApiRequest("POST", "/api", body=b"{}"))
        return
    headers = (("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="))
    async with open_tunnel(opened, ApiRequest("GET", "/exec", headers=headers), "websocket"):
        return


WAYS = ("request", "upgrade")


@asynccontextmanager
async def two_faces() -> AsyncGenerator[tuple[int, list[str], Listener]]:
    """A member at 127.0.0.2 and, at the same port of 127.0.0.1, what must not be asked."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        seen.append(request.transport.get_extra_info("sockname")[0])
        if request.headers.get("Upgrade"):
            upgraded = web.WebSocketResponse()
            await upgraded.prepare(request)
            return upgraded
        return web.json_response({})

    async with listening("127.0.0.1") as secret:
        tls = loopback_tls().context
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, shutdown_timeout=0.05, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.2", secret.port, ssl_context=tls).start()
        try:
            yield secret.port, seen, secret
        finally:
            await runner.cleanup()


@pytest.mark.parametrize("way", WAYS)
async def test_a_name_that_changes_its_answer_after_the_check_changes_nothing(way: str) -> None:
    dns = ChangingNames((("127.0.0.2",), ("127.0.0.1",)))
    async with two_faces() as (port, seen, secret):
        async with connection(ways_in(port), dns) as opened:
            await knock(opened, way)
        assert dns.asked == ["localhost"]  # once: what was judged is what was connected to
        async with connection(ways_in(port), dns) as opened:
            with pytest.raises(AddressNotAllowed) as refused:
                await knock(opened, way)

    assert seen == ["127.0.0.2"]
    assert secret.connections == 0
    assert refused.value.address == "127.0.0.1"
    assert "127.0.0.1" not in str(refused.value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answer", [("127.0.0.2", "127.0.0.1"), ("127.0.0.1", "127.0.0.2")])
async def test_a_name_with_one_bad_address_among_good_ones_is_refused_as_a_whole(
    way: str, answer: tuple[str, ...]
) -> None:
    dns = ChangingNames((answer,))
    async with (
        two_faces() as (port, seen, secret),
        connection(ways_in(port), dns) as opened,
    ):
        with pytest.raises(AddressNotAllowed):
            await knock(opened, way)

    assert (seen, secret.connections) == ([], 0)


@pytest.mark.parametrize("way", WAYS)
async def test_a_proxy_is_connected_to_by_the_same_rules(way: str) -> None:
    async with listening() as secret:
        settings = ways_in(6443, proxy_url=f"http://proxy.example.com:{secret.port}")
        async with connection(settings, ChangingNames((("127.0.0.1",),))) as opened:
            with pytest.raises(AddressNotAllowed):
                await knock(opened, way)

    assert secret.connections == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "127.1", "2130706433", "[::ffff:7f00:1]"])
async def test_an_address_written_out_is_judged_before_it_is_connected_to(
    way: str, host: str
) -> None:
    """Settings that nobody has checked before, as a cluster that was let in long ago has them."""
    async with listening() as secret:
        settings = ConnectionSettings(
            "west", f"https://{host}:{secret.port}", address_rules=AddressRules()
        )
        plain = Connection(settings, clock=SystemClock(), random=Random(1))
        try:
            with pytest.raises(ClusterError):
                await knock(plain, way)
        finally:
            await plain.close()

    assert secret.connections == 0


async def test_a_kubeconfig_leads_where_its_owner_likes() -> None:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.json_response({})

    async with fake_cluster(handle) as port:
        settings = ConnectionSettings("west", f"http://127.0.0.1:{port}")
        opened = Connection(settings, clock=SystemClock(), random=Random(1))
        answer = await opened.exchange(ApiRequest("GET", "/"))
        await opened.close()

    assert answer.status == 200


@pytest.mark.parametrize("text", ["\r\nX-Injected: yes", "\n", "\t", "\x00", " "])
@pytest.mark.parametrize("field_name", ["server", "proxy_url"])
async def test_no_connection_is_made_of_control_characters(field_name: str, text: str) -> None:
    fine, odd = "https://10.0.0.7", f"https://10.0.0.7{text}"
    server, proxy = (odd, "") if field_name == "server" else (fine, odd)

    with pytest.raises(UnusableKubeconfig, match="control characters"):
        ConnectionSettings("west", server, proxy_url=proxy)


async def test_the_hub_and_this_machine_are_no_members_of_their_own() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 9))
        except OSError:
            pytest.skip("this machine has no network")
        own = probe.getsockname()[0]
    rules = AddressRules(hub_addresses=frozenset({ip_address("10.0.0.5")}))

    assert is_of_this_machine(ip_address(own))
    assert not is_of_this_machine(ip_address("203.0.113.4"))
    assert "machine" in problem_with_host(rules, own)
    assert "the hub's own" in problem_with_host(rules, "10.0.0.5")
    assert problem_with_host(AddressRules((ip_network(f"{own}/32"),)), own) == ""
    found = await member_rules(ConnectionSettings("hub", "https://10.0.0.5:5443"))
    assert "the hub's own" in problem_with_host(found, "10.0.0.5")


async def test_a_command_looks_on_this_machine_only_next_to_a_hub_that_is_there_too() -> None:
    here = command_rules(ConnectionSettings("hub", "https://127.0.0.1:5443"))
    elsewhere = command_rules(ConnectionSettings("hub", "https://hub.example.com:5443"))

    assert problem_with_host(here, "127.0.0.1") == ""
    assert problem_with_host(here, "169.254.169.254") != ""
    assert problem_with_host(elsewhere, "127.0.0.1") != ""


@pytest.mark.parametrize("part", ["hub", "fleet", "controllers"])
async def test_operators_allow_ranges_by_flag_variable_and_file(part: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"{part}: {{allow-member-cidrs: [10.1.0.0/16, 'fd00::/8']}}")
    variable = {f"CLUSTERSPACE_{part.upper()}_ALLOW_MEMBER_CIDRS": "10.2.0.0/16"}
    show = ["config", "show", part]

    by_file = CliRunner().invoke(main, show, env={"CLUSTERSPACE_CONFIG": str(file)})
    by_variable = CliRunner().invoke(main, show, env=variable)
    wrong = CliRunner().invoke(main, [part, "--allow-member-cidrs", "127.0.0.1/8"])

    assert "10.1.0.0/16,fd00::/8" in by_file.output
    assert "10.2.0.0/16" in by_variable.output
    assert wrong.exit_code == 2
    assert "--allow-member-cidrs" in wrong.output
    assert "127.0.0.0/8" in wrong.output


async def test_a_hub_that_is_told_a_range_lets_members_be_there(tmp_path: Path) -> None:
    settings = HubSettings(tmp_path, port=0, store="memory", member_cidrs=(HIDDEN,))
    async with running_hub(settings):
        reached = read_kubeconfig([tmp_path / "kubeconfig"]).settings(cluster="hub")
        async with client_for_test(reached) as hub:
            place = manifests.cluster_path("near").collection
            made = manifests.Endpoint("https://127.0.0.2:6443")
            await hub.create(place, manifests.cluster("near", "n", made, manifests.NOWHERE))
            other = manifests.cluster(
                "far", "f", manifests.Endpoint("https://127.0.0.3:6443"), manifests.NOWHERE
            )
            with pytest.raises(Invalid, match="a loopback address"):
                await hub.create(place, other)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ("http", b"nonsense\r\n\r\n"),
        ("http", b"HTTP/1.1 999999 Odd\r\n\r\n"),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
        ("http", b""),
        ("https", b"nonsense\r\n\r\n"),
    ],
)
async def test_no_failure_tells_users_where_a_member_is(way: str, scheme: str, said: bytes) -> None:
    """Who may list the fleet is told which cluster failed, and how; its address is not theirs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        settings = ConnectionSettings("west", f"{scheme}://127.0.0.1:{port}")
        opened = Connection(settings, clock=SystemClock(), random=Random(1))
        with pytest.raises(ClusterError) as failed:
            await knock(opened, way)
        await opened.close()

    assert str(failed.value).startswith("cluster west: ")
    assert "127.0.0.1" not in str(failed.value)
    assert str(port) not in str(failed.value)
