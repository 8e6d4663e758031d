"""Agents that are up to something: what they gain by the tunnel their cluster is reached by."""

import asyncio
import json
import struct
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    PULL,
    ROOT,
    Site,
    fleet_site,
    grant,
    until_reached,
)

from clusterspace.aio.multiplexer import Multiplexer, TransportStream
from clusterspace.aio.websockets import VERSION, Opcode, encode_frame, new_key
from clusterspace.apis import witnesses
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.tunnels import (
    LEASE_NAMESPACE,
    SUBRESOURCE,
    TunnelServer,
    lease_of,
)
from clusterspace.apiserver.http.agent_tunnels import PROTOCOL, REPLACED, SERVER_HEADER
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.settings import ConnectionSettings, Pem, Trust
from clusterspace.client.upgrades import Tunnel, open_tunnel
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import ApiError, BadRequest, Conflict, Forbidden, NotFound, Unauthorized
from clusterspace.fleet.membership.registration import (
    REGISTRATION_PLACE,
    AgentCredentials,
    read_registration,
)
from clusterspace.kube.objects import Object, name_of, uid_of, with_metadata
from clusterspace.testing import stage
from clusterspace.testing.steps import edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """A fleet of two Pull members. `evil` is registered, and its agent is whatever a test is."""
    directory = tmp_path_factory.mktemp("hostile")
    async with fleet_site(directory, members=("good",), mode=PULL, list_seconds=5.0) as running:
        evil = await running.fleet.add_member("evil")
        await stage.register(running.fleet, "evil", evil)
        running.members["evil"] = evil
        await running.wait_for("evil")
        yield running


@asynccontextmanager
async def agent_at(site: Site, name: str = "evil") -> AsyncGenerator[Connection]:
    """Connect to the fleet API server as an agent would."""
    registration = read_registration(await site.members[name].client.get(REGISTRATION_PLACE))
    authority = (site.directory / site.data_name / "pki" / "ca.crt").read_bytes()
    connection = Connection(
        ConnectionSettings("fleet", site.url, Trust(Pem(authority))),
        clock=site.hub.client.connection.clock,
        random=site.hub.client.connection.random,
        credentials=AgentCredentials(authority, registration.keyed),
    )
    try:
        yield connection
    finally:
        await connection.close()


def request_for(site: Site, cluster: str, **changed: str) -> ApiRequest:
    path = ResourcePath(CLUSTERS, name=cluster, subresource=SUBRESOURCE).path
    headers = {
        "Sec-WebSocket-Key": new_key(),
        "Sec-WebSocket-Version": VERSION,
        "Sec-WebSocket-Protocol": PROTOCOL,
        SERVER_HEADER: site.running.fleet.directory.tunnels.identity,
    }
    headers |= {key.replace("_", "-"): value for key, value in changed.items()}
    return ApiRequest("GET", path, headers=tuple(headers.items()))


@asynccontextmanager
async def evil_tunnel(site: Site) -> AsyncGenerator[Tunnel]:
    """Open the tunnel of `evil`, as its agent may."""
    async with (
        agent_at(site) as connection,
        open_tunnel(connection, request_for(site, "evil"), "websocket") as tunnel,
    ):
        await until_reached(site, "evil")
        # What the test before did is not to keep anybody from asking: how long it does is tested
        # with hostile members, whom nothing here is different from.
        site.running.fleet.directory.troubles.let_go("evil")
        yield tunnel


async def refusal_of(site: Site, request: ApiRequest, name: str = "evil") -> ApiError:
    async with agent_at(site, name) as connection:
        with pytest.raises(ApiError) as refused:
            async with open_tunnel(connection, request, "websocket"):
                pass
    return refused.value


# -- whose tunnel it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["good", "no-such-cluster"])
async def test_an_agent_opens_the_tunnel_of_its_own_cluster_alone(site: Site, cluster: str):
    refused = await refusal_of(site, request_for(site, cluster))

    assert isinstance(refused, Forbidden)
    assert 'cannot create resource "clusters/tunnel"' in refused.message
    await until_reached(site, "good")


async def test_an_agent_of_a_cluster_that_is_none_finds_nothing(site: Site):
    """Not even an administrator has a tunnel without a Cluster."""
    request = request_for(site, "no-such-cluster")
    with pytest.raises(NotFound):
        async with open_tunnel(site.connection(ROOT), request, "websocket"):
            pass


async def test_nobody_who_may_only_look_opens_a_tunnel(site: Site):
    with pytest.raises(Forbidden):
        async with open_tunnel(
            site.connection("jane-token"), request_for(site, "evil"), "websocket"
        ):
            pass


PLACES = (
    "/api/v1/namespaces/default/configmaps",
    "/apis/cluster.karmada.io/v1alpha1/clusters",
    "/apis/cluster.karmada.io/v1alpha1/clusters/good/proxy/api/v1/secrets",
    "/apis/cluster.karmada.io/v1alpha1/clusters/good/proxy/api/v1/pods/x/tunnel",
    "/apis/cluster.karmada.io/v1alpha1/clusters/evil/../good/tunnel",
    "/apis/cluster.karmada.io/v1alpha1/clusters/%67ood/tunnel",
    "/apis/cluster.karmada.io/v1alpha1/clusters/evil/tunnel/",
    "/apis/cluster.karmada.io/v1alpha1/clusters/evil/tunnel/x",
    "/apis/cluster.karmada.io/v1alpha1/clusters/evil.clusterspace.good/tunnel",
    "/clusterspaces/good/api/v1/secrets",
    "/clusterspaces/good/apis/cluster.karmada.io/v1alpha1/clusters/evil/tunnel",
    "/apis/cluster.karmada.io/v1alpha1/clusterspaces/good/clusters/evil/tunnel",
    "/api",
    "/metrics",
)


@pytest.mark.parametrize("path", PLACES)
async def test_an_agent_reaches_nothing_else_at_the_gateway(site: Site, path: str):
    async with agent_at(site) as connection:
        answer = await connection.exchange(ApiRequest("GET", path, is_repeated=False))

        assert answer.status in (400, 401)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({SERVER_HEADER.replace("-", "_"): "another"}, Conflict),
        ({"Sec_WebSocket_Protocol": "v9.tunnel.clusterspace.io"}, BadRequest),
        ({"Sec_WebSocket_Version": "12"}, BadRequest),
    ],
    ids=["for another server", "of another version", "of another WebSocket"],
)
async def test_a_handshake_that_is_not_ours_is_refused(
    site: Site, changed: dict[str, str], expected: type[ApiError]
):
    refused = await refusal_of(site, request_for(site, "evil", **changed))

    assert isinstance(refused, expected)
    assert site.running.fleet.directory.problem_with("evil") is not None


async def test_impersonation_does_not_make_an_agent(site: Site):
    """Whoever is an administrator asks for no tunnel as somebody's agent."""
    request = request_for(site, "good")
    acting = (
        ("Impersonate-User", "system:karmada:agent:good"),
        ("Impersonate-Group", "system:karmada:agents"),
    )
    with pytest.raises((Forbidden, Unauthorized)):
        async with open_tunnel(
            site.connection("carl-token"),
            replace(request, headers=(*request.headers, *acting)),
            "websocket",
        ):
            pass
    await until_reached(site, "good")


async def test_the_newest_tunnel_counts_and_the_older_one_is_told_so(site: Site):
    async with evil_tunnel(site) as older:
        carried = Multiplexer(
            older, site.hub.client.connection.clock, is_client=True, accept=TransportStream
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(carried.run())
            async with evil_tunnel(site):
                await running
    assert carried.close_code == REPLACED


async def test_who_may_write_leases_does_not_say_whom_agents_let_in(site: Site):
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]
    await grant(site.hub, "jane", rules, "leases")
    rogue = lease_of(TunnelServer("0123456789abcdef", "https://127.0.0.1:1"), 1.8e9)
    place = ResourcePath(LEASES, LEASE_NAMESPACE)
    path = f"/clusterspaces/hub{place.path}"

    async def is_granted() -> bool:
        named = with_metadata(rogue, name="jane-s-own")
        return (await site.ask("POST", path, named, token="jane-token")).code in (201, 409)

    await until(is_granted)
    answer = await site.ask("POST", path, rogue, token="jane-token")

    assert answer.code == 403
    assert "which servers agents let into their clusters" in answer.message
    ours = site.running.fleet.directory.tunnels.identity
    existing = await site.hub.client.get(place.named(f"clusterspace-tunnel-{ours}"))
    moved = with_metadata(existing, annotations={"clusterspace.io/server": "https://127.0.0.1:1"})
    put = await site.ask("PUT", f"{path}/clusterspace-tunnel-{ours}", moved, token="jane-token")
    assert put.code == 403


async def test_who_may_write_leases_is_not_believed_about_clusters(site: Site):
    """Nor does an agent say of others that they do not answer."""
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]
    await grant(site.hub, "jane", rules, "more-leases")
    away = frozenset({uid_of(await site.fleet.cluster("evil"))})
    rogue = witnesses.lease_of(
        witnesses.WitnessReport("rogue", "here", away, others_asked=1, others_heard=1), 1.8e9
    )
    place = ResourcePath(LEASES, witnesses.LEASE_NAMESPACE)
    path = f"/clusterspaces/hub{place.path}"

    async def is_granted() -> bool:
        named = with_metadata(rogue, name="jane-s-other")
        return (await site.ask("POST", path, named, token="jane-token")).code in (201, 409)

    await until(is_granted)
    answer = await site.ask("POST", path, rogue, token="jane-token")
    assert answer.code == 403
    assert "which clusters answer" in answer.message

    # One that is there, by the administrator, is not changed by her either.
    existing = await site.hub.client.create(place, rogue)
    put = await site.ask("PUT", f"{path}/{name_of(rogue)}", existing, token="jane-token")
    assert put.code == 403
    async with stage.as_agent(site.members["evil"]) as agent:
        with pytest.raises(Forbidden):
            await agent.update(place.named(name_of(rogue)), existing)


async def test_the_agent_of_a_cluster_that_left_opens_no_tunnel_of_who_has_its_name_now(
    site: Site,
):
    """A certificate outlives its cluster. What was issued before the next one came is over."""
    former = await site.fleet.add_member("gone")
    await stage.register(site.fleet, "gone", former)
    site.members["gone"] = former
    await site.wait_for("gone")
    async with agent_at(site, "gone") as connection:
        request = request_for(site, "gone")
        async with open_tunnel(connection, request, "websocket"):
            await until_reached(site, "gone")
        await stage.unregister(site.fleet, "gone", former)
        await site.wait_for("gone", is_gone=True)
        left = time.time()

        async def is_refused() -> bool:
            try:
                async with open_tunnel(connection, request_for(site, "gone"), "websocket"):
                    return False
            except (Forbidden, NotFound, Unauthorized):
                return True

        await until(is_refused)
        await until(lambda: time.time() > left + 1)  # certificates are dated to the second
        other = await site.fleet.add_member("gone-2")
        await stage.register(site.fleet, "gone", other)
        await site.wait_for("gone")

        assert await is_refused()
    site.members["gone"] = other
    async with pulled_again(site, "gone"):
        assert site.running.fleet.directory.tunnels.is_open("gone")


# -- what it does inside ---------------------------------------------------------------------------


async def assert_well(site: Site) -> None:
    """Ask the fleet as its users do: the good member is there, and the gateway is as ever."""
    listed = await site.ask("GET", MAPS)
    assert listed.code == 200
    assert any(name.endswith(".clusterspace.good") for name in listed.names)


def frame(kind: int, stream: int, content: bytes = b"") -> bytes:
    raw = struct.pack(">BII", kind, stream, len(content)) + content
    return encode_frame(Opcode.BINARY, raw, is_client=True)


GARBAGE = {
    "no frames": b"\xff" * 4096,
    "HTTP": b"GET /api/v1/secrets HTTP/1.1\r\nHost: fleet\r\n\r\n",
    "a stream of its own": frame(1, 1) + frame(2, 1, b"GET /api HTTP/1.1\r\n\r\n"),
    "a giant frame": encode_frame(
        Opcode.BINARY, struct.pack(">BII", 2, 1, 1 << 31), is_client=True
    ),
    "text": b"\x81\x85abcd\0\0\0\0\0",
    "a flood of streams": b"".join(frame(1, number) for number in range(1, 500)),
    "a flood of resets": b"".join(frame(6, number) for number in range(1, 500)),
    "pings without end": frame(7, 0) * 2000,
    "answers to pings that nobody sent": frame(8, 0) * 2000,
    "frames without content": encode_frame(Opcode.BINARY, b"", is_client=True) * 2000,
    "pongs of the WebSocket": encode_frame(Opcode.PONG, b"", is_client=True) * 2000,
    "an unmasked frame": encode_frame(Opcode.BINARY, b"x", is_client=False),
    "an extension": b"\xc2\x80abcd",
    "a control frame in pieces": b"\x09\x80abcd",
}


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_whatever_is_no_answer_ends_the_tunnel(site: Site, garbage: str):
    async with evil_tunnel(site) as tunnel:
        await tunnel.write(GARBAGE[garbage])
        with_end = b""
        async with asyncio.timeout(20):
            while piece := await tunnel.read():
                with_end += piece

        assert b"\x88" in with_end  # closed, with a reason
    await assert_well(site)


class Answering(asyncio.Protocol):
    """Answers every request on a stream with the same bytes."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        if self.answer and b"\r\n\r\n" in data:
            self.transport.write(self.answer)


@asynccontextmanager
async def answering(site: Site, answer: bytes) -> AsyncGenerator[list[bytes]]:
    """Be the agent of `evil`, and answer everything alike; yield what was asked."""
    asked: list[bytes] = []

    class Protocol(Answering):
        def data_received(self, data: bytes) -> None:
            asked.append(data)
            super().data_received(data)

    Protocol.answer = answer
    async with evil_tunnel(site) as tunnel:
        clock = site.hub.client.connection.clock
        carried = Multiplexer(tunnel, clock, is_client=True, accept=Protocol)
        running = asyncio.create_task(carried.run())
        try:
            yield asked
        finally:
            running.cancel()
            await asyncio.wait([running])


def listed_answer() -> bytes:
    body = (
        b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
    )
    return ANSWER % (len(body), body)


BAD_ANSWERS = {
    "nothing": b"",
    "a redirect": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: https://127.0.0.1:1/\r\n"
    b"Content-Length: 0\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "two answers": listed_answer() * 2,
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000,
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"Content-Length: 90\r\n\r\n{}",
    "both framings": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\n\r\n",
    "a broken chunk": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
async def test_bad_answers_are_one_warning(site: Site, kind: str):
    async with answering(site, BAD_ANSWERS[kind]) as asked:
        listed = await site.ask("GET", MAPS)
        named = await site.ask("GET", f"{MAPS}/x.clusterspace.evil")

        assert any(b"GET /api/v1/namespaces/default/configmaps" in each for each in asked)
    assert listed.code == 200
    assert all(not name.endswith(".evil") for name in listed.names)
    if kind != "two answers":  # the first one is as good as any; the second is for nobody
        assert "evil" in listed.warning
    assert named.code != 200 or kind == "two answers"
    await assert_well(site)


async def test_an_agent_that_never_reads_is_one_warning_and_can_be_shut_out(site: Site):
    """What it is sent waits for it alone: nobody else does, and a goodbye does not either."""
    place = ResourcePath(CLUSTERS, name="evil")
    async with evil_tunnel(site):
        listed = await site.ask("GET", MAPS)
        assert listed.code == 200
        assert "evil" in listed.warning
        await assert_well(site)

        def forbid(cluster: Object) -> Object:
            return with_metadata(cluster, annotations={"clusterspace.io/view": "forbidden"})

        await edit(site.hub.client, place, forbid)
        try:

            async def is_shut_out() -> bool:
                return not site.running.fleet.directory.tunnels.is_open("evil")

            await until(is_shut_out)
        finally:
            await edit(
                site.hub.client, place, lambda cluster: with_metadata(cluster, annotations=None)
            )


FOREIGN = {
    "a name of another cluster": {"name": "x.clusterspace.good", "namespace": "default"},
    "a namespace of another cluster": {"name": "x", "namespace": "default.clusterspace.good"},
    "the hub's": {"name": "x.clusterspace.karmada", "namespace": "default"},
    "all": {"name": "x.clusterspace.all", "namespace": "default"},
}


@pytest.mark.parametrize("kind", FOREIGN)
async def test_an_agent_answers_for_its_own_cluster_whatever_it_says(site: Site, kind: str):
    metadata = {**FOREIGN[kind], "uid": "u-1", "resourceVersion": "7"}
    metadata["managedFields"] = []  # pyright: ignore[reportArgumentType]
    body = json.dumps(
        {
            "kind": "ConfigMapList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "7"},
            "items": [{"metadata": metadata, "data": {"k": "forged"}}],
        }
    ).encode()
    async with answering(site, ANSWER % (len(body), body)):
        listed = await site.ask("GET", MAPS)
        of_good = await site.ask("GET", f"/clusterspaces/good{MAPS}")
        named = await site.ask("GET", f"{MAPS}/x.clusterspace.good")

    forged = [each for each in listed.body["items"] if (each.get("data") or {}).get("k")]
    assert all(each["metadata"]["name"].endswith(".clusterspace.evil") for each in forged)
    assert b"forged" not in json.dumps(of_good.body).encode()
    assert named.code == 404
    await assert_well(site)


async def test_what_an_agent_is_asked_names_the_user_and_no_credential(site: Site):
    async with answering(site, listed_answer()) as asked:
        await site.ask("GET", MAPS)

    head = next(each for each in asked if b"configmaps" in each).lower()
    assert b"impersonate-user: root" in head
    assert b"authorization" not in head
    assert ROOT.encode() not in head


# -- who may have one at all -----------------------------------------------------------------------


async def test_the_hub_s_operator_forbids_the_view_and_the_tunnel_ends(site: Site):
    place = ResourcePath(CLUSTERS, name="evil")

    def forbid(cluster: Object) -> Object:
        return with_metadata(cluster, annotations={"clusterspace.io/view": "forbidden"})

    async with evil_tunnel(site) as tunnel:
        await edit(site.hub.client, place, forbid)
        async with asyncio.timeout(20):
            while await tunnel.read():
                pass
    try:
        refused = await refusal_of(site, request_for(site, "evil"))
        assert isinstance(refused, Forbidden)
        listed = await site.ask("GET", MAPS)
        assert "forbids its view" in listed.warning
    finally:
        await edit(site.hub.client, place, lambda cluster: with_metadata(cluster, annotations=None))


async def test_an_agent_that_does_not_allow_it_has_no_tunnel(site: Site):
    other = await site.fleet.add_member("shy")
    await stage.register(site.fleet, "shy", other)
    async with stage.running_agent(other, allows_view=False):
        await site.wait_for("shy")
        listed = await site.ask("GET", MAPS)

        assert "shy" in listed.warning
        assert "agent" in listed.warning
    site.members["shy"] = other
    async with pulled_again(site, "shy"):
        assert "shy" not in (await site.ask("GET", MAPS)).warning


@asynccontextmanager
async def pulled_again(site: Site, name: str) -> AsyncGenerator[None]:
    async with stage.running_agent(site.members[name]):
        await until_reached(site, name)
        yield
