"""Logs, shells and ports of pods anywhere in the fleet, over every protocol that clients speak."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, grant, reaching
from tests.component.gateway.stream_clients import (
    PORT_FORWARD,
    SPDY,
    V4,
    V5,
    WEB_SOCKET,
    ask,
    spdy,
    web_socket,
)
from tests.component.sim_clients import SpdyClient

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.kube.objects import find_at
from clusterspace.testing.builders import PODS, pod
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

POD = "/api/v1/namespaces/default/pods/web.clusterspace.west"
SUCCESS = {"metadata": {}, "status": "Success"}
FORMS = (
    POD,
    "/api/v1/namespaces/default.clusterspace.west/pods/web",
    "/api/v1/namespaces/default/clusterspaces/west/pods/web",
    "/clusterspaces/west/api/v1/namespaces/default/pods/web",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """A fleet in which east and west have a pod of the same name."""
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=(), sims=("east", "west")) as it:
        for side in it.members.values():
            made = pod("web")
            container = {**made["spec"]["containers"][0], "ports": [{"containerPort": 80}]}
            made = {**made, "spec": {**made["spec"], "containers": [container]}}
            await side.client.create(ResourcePath(PODS, "default"), made)
        for side in it.members.values():
            await until(lambda side=side: is_running(side))
        yield it


async def is_running(side: Side) -> bool:
    found = await side.client.get(ResourcePath(PODS, "default", "web"))
    return find_at(found, "status", "phase") == "Running"


def run(*command: str, stdin: bool = False) -> str:
    words = "".join(f"&command={word}" for word in command)
    return f"exec?stdout=true&stderr=true&stdin={str(stdin).lower()}{words}"


async def said_by(site: Site, target: str, protocol: str) -> dict[int, bytes]:
    """Return all that a command says, by channel."""
    client = await web_socket(site, target, protocol)
    try:
        return await client.rest()
    finally:
        await client.close()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("protocol", [V5, V4])
async def test_a_command_runs_in_the_cluster_that_was_named(site: Site, form: str, protocol: str):
    written = await said_by(site, f"{POD}/{run('sh', '-c', 'echo%20west%3E/tmp/here')}", V5)
    look = run("cat", "/tmp/here")

    said = await said_by(site, f"{form}/{look}", protocol)
    elsewhere = await said_by(site, f"{form.replace('west', 'east')}/{look}", protocol)

    assert json.loads(written[3]) == SUCCESS
    assert (said[1], json.loads(said[3])) == (b"west\n", SUCCESS)
    assert json.loads(elsewhere[3])["reason"] == "NonZeroExitCode"


async def test_the_end_of_stdin_passes_over_websocket_v5(site: Site):
    client = await web_socket(site, f"{POD}/{run('cat', stdin=True)}", V5)

    await client.send(b"\x00one ")
    await client.send(b"\x00two")
    await client.send(b"\xff\x00")
    said = await client.rest()
    await client.close()

    assert (said[1], json.loads(said[3])) == (b"one two", SUCCESS)


async def test_the_end_of_stdin_passes_over_spdy(site: Site):
    client = await spdy(site, f"{POD}/{run('cat', stdin=True)}", V5, V4)
    error, stdin, stdout, stderr = [
        await client.open(streamtype=kind) for kind in ("error", "stdin", "stdout", "stderr")
    ]

    await client.ping(7)
    await client.send(stdin, b"hello")
    await client.send(stdin, b"", is_last=True)
    await client.read_until_ended(error, stdout, stderr)
    await client.close()

    assert client.received[stdout] == b"hello"
    assert client.pings == [(7).to_bytes(4)]
    assert json.loads(client.received[error]) == SUCCESS


async def test_somebody_can_attach_to_what_already_runs(site: Site):
    client = await web_socket(site, f"{POD}/attach?stdin=true&stdout=true", V5)

    await client.send(b"\x00hello\n")

    said = b""
    while said != b"hello\n":
        message = await client.receive()
        assert message is not None
        assert message[0] == 1
        said += message[1:]
    await client.close()


@pytest.mark.parametrize("is_tunnelled", [False, True], ids=["spdy", "spdy-in-websocket"])
async def test_ports_are_forwarded(site: Site, is_tunnelled: bool):
    if is_tunnelled:
        tunnel = await web_socket(site, f"{POD}/portforward", f"SPDY/3.1+{PORT_FORWARD}")
        client = SpdyClient(tunnel)
    else:
        client = await spdy(site, f"{POD}/portforward", PORT_FORWARD)
    errors = await client.open(streamtype="error", port="80", requestid="0")
    data = await client.open(streamtype="data", port="80", requestid="0")

    await client.send(data, b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    await client.send(data, b"", is_last=True)
    await client.read_until_ended(data, errors)
    await client.close()

    assert b"default/web:80 GET /x" in client.received[data]
    assert client.received.get(errors, b"") == b""


async def test_a_port_is_forwarded_to_a_client_that_names_no_protocol(site: Site):
    """kr8s: it hung, because the upgrade was refused for want of a protocol."""
    client = await web_socket(site, f"{POD}/portforward?ports=80", "")

    for channel in (0, 1):
        assert await client.receive() == bytes((channel,)) + (80).to_bytes(2, "little")
    await client.send(b"\x00GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    answer = await client.receive()
    await client.close()

    assert answer is not None
    assert answer.startswith(b"\x00HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("target", "headers", "code", "message"),
    [
        (f"{POD.replace('web', 'webx')}/{run('ls')}", WEB_SOCKET, 404, 'pods "webx" not found'),
        (f"{POD}/{run('ls')}&container=none", SPDY, 400, "container none is not valid for pod web"),
        (f"{POD}/exec", SPDY, 400, "you must specify at least one command"),
        (f"{POD}.mars/{run('ls')}", SPDY, 404, "there is no cluster 'west.mars' in the fleet"),
        (
            f"{POD}/{run('ls')}",
            ("Connection: Upgrade", "Upgrade: h2c"),
            400,
            "unable to upgrade: 'h2c' is not supported",
        ),
    ],
)
async def test_a_refused_upgrade_is_a_status_and_ends_the_connection(
    site: Site, target: str, headers: tuple[str, ...], code: int, message: str
):
    method = "POST" if headers is SPDY else "GET"

    status, connection = await ask(site, method, target, *headers)
    body = json.loads(await connection.read_exactly(int(connection.headers["content-length"])))
    await connection.close()

    assert (status, body["kind"], body["code"]) == (code, "Status", code)
    assert message in body["message"]
    assert connection.headers["connection"] == "close"


async def test_whoever_may_only_read_gets_no_shell(site: Site):
    """To old clusters a WebSocket is a GET, and so the right to get pods/exec would be enough."""
    reading = [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["get", "list"]}]
    await grant(site.hub, "jane", reaching(), "reach")
    await grant(site.members["west"], "jane", reading, "peek")

    offered = f"Sec-WebSocket-Protocol: {V5}"
    target = f"{POD}/{run('ls')}"
    status, refused = await ask(site, "GET", target, *WEB_SOCKET, offered, token="jane-token")
    body = json.loads(await refused.read_exactly(int(refused.headers["content-length"])))
    await refused.close()

    assert status == 403
    assert 'cannot create resource "pods/exec"' in body["message"]


async def test_a_log_is_the_pods_own_and_takes_every_option(site: Site):
    whole = (await site.ask("GET", f"{POD}/log")).body.splitlines()
    last = await site.ask("GET", f"{POD}/log?tailLines=1&timestamps=true")
    brief = await site.ask("GET", f"{POD}/log?limitBytes=10")
    none = await site.ask("GET", f"{POD}/log?sinceSeconds=1&tailLines=0")
    before = await site.ask("GET", f"{POD}/log?previous=true")
    direct = await site.members["west"].client.connection.ask(
        ApiRequest("GET", "/api/v1/namespaces/default/pods/web/log")
    )

    assert direct.body.splitlines()[: len(whole)] == whole
    assert last.headers["content-type"].startswith("text/plain")
    assert last.body.count(b"\n") == 1
    assert last.body.split()[0].endswith(b"Z")
    assert len(brief.body) == 10
    assert none.body == b""
    assert (before.code, before.body["reason"]) == (400, "BadRequest")
    assert "previous terminated container" in before.message


async def test_a_followed_log_comes_as_it_is_written(site: Site):
    follow = ApiRequest("GET", f"{POD}/log?follow=true&tailLines=1")
    numbers: list[int] = []
    async with asyncio.timeout(60), site.connection(ROOT).stream(follow) as stream:
        async for chunk in stream.chunks():
            numbers += [int(line[:6]) for line in chunk.splitlines()]
            if len(numbers) >= 3:
                break

    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
