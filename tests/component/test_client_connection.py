import asyncio
import contextlib
import gc
import gzip
import socket
import ssl
import weakref
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from aiohttp import web
from tests.component.fake_clusters import asked_by, connected, fake_cluster, status
from tests.component.serving.certificates import Authority

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection, ConnectionLimits
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import (
    AuthInfo,
    ConnectionSettings,
    Pem,
    TlsMaterial,
    Trust,
    client_context,
)
from clusterspace.errors import (
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
    Forbidden,
    InternalError,
    NotFound,
    TooManyRequests,
)
from clusterspace.kube.resources import GroupVersion
from clusterspace.testing.builders import PODS, config_map

GET = ApiRequest("GET", "/api/v1/pods")
PUT = ApiRequest("PUT", "/api/v1/namespaces/default/pods/web", body=b"{}")
DELETE = ApiRequest("DELETE", "/api/v1/namespaces/default/pods/web")
POST = ApiRequest("POST", "/api/v1/namespaces/default/pods", body=b"{}")
WRITES = [POST, PUT, DELETE]


def by_method(ask: ApiRequest) -> str:
    return ask.method


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(code: int):
    visits: list[str] = []

    async def canary(request: web.Request) -> web.Response:
        visits.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    async with fake_cluster(canary) as port:

        async def redirect(_request: web.Request) -> web.Response:
            return web.Response(status=code, headers={"Location": f"http://127.0.0.1:{port}/"})

        async with asked_by(redirect) as connection:
            for ask in (GET, POST):
                with pytest.raises(ClusterMisbehaved) as caught:
                    await connection.ask(ask)

    assert visits == []
    assert caught.value.cluster == "west"
    assert caught.value.code == code


async def test_a_proxy_s_page_is_no_missing_object():
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=404, text="<html>not here</html>", content_type="text/html")

    async with asked_by(answer) as connection:
        with pytest.raises(ClusterMisbehaved, match="404 with text/html"):
            await ClusterClient(connection).find(ResourcePath(PODS, "default", "web"))


async def test_a_missing_object_is_none():
    async def answer(_request: web.Request) -> web.Response:
        return status(404, "NotFound", name="web", kind="pods")

    async with asked_by(answer) as connection:
        pods = ClusterClient(connection)

        assert await pods.find(ResourcePath(PODS, "default", "web")) is None
        with pytest.raises(NotFound, match="NotFound it is"):
            await pods.get(ResourcePath(PODS, "default", "web"))


async def test_a_page_with_code_200_is_no_object_and_no_list():
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="<html>sign in</html>", content_type="text/html")

    async with asked_by(answer) as connection:
        pods = ClusterClient(connection)

        with pytest.raises(ClusterMisbehaved):
            await pods.get(ResourcePath(PODS, "default", "web"))
        with pytest.raises(ClusterMisbehaved):
            await pods.list_objects(ResourcePath(PODS))
        with pytest.raises(ClusterMisbehaved):
            await pods.create(ResourcePath(PODS, "default"), config_map("a"))


async def test_nobody_there_is_unreachable_and_nothing_was_sent(unused_tcp_port: int):
    settings = ConnectionSettings("west", f"http://127.0.0.1:{unused_tcp_port}")
    async with connected(settings) as connection:
        with pytest.raises(ClusterUnreachable) as caught:
            await connection.ask(POST)

    assert not caught.value.was_sent
    assert "west" in str(caught.value)


async def test_a_read_is_repeated_when_the_server_asks_for_patience():
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.method)
        if len(asked) == 1:
            return web.Response(status=503, headers={"Retry-After": "0"})
        return web.json_response({"kind": "PodList"})

    async with asked_by(answer) as connection:
        assert (await connection.ask(GET)).status == 200

    assert asked == ["GET", "GET"]


async def test_a_server_error_without_retry_after_is_not_repeated():
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.method)
        return status(500, "InternalError")

    async with asked_by(answer) as connection:
        with pytest.raises(InternalError):
            await connection.ask(GET)

    assert asked == ["GET"]


@pytest.mark.parametrize("ask", WRITES, ids=by_method)
async def test_a_write_is_repeated_only_when_it_was_refused_unread(ask: ApiRequest):
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.method)
        code = 429 if len(asked) == 1 else 503
        return web.Response(status=code, headers={"Retry-After": "0"})

    async with asked_by(answer) as connection:
        assert (await connection.exchange(ask)).status == 503

    assert asked == [ask.method] * 2


@pytest.mark.parametrize("ask", WRITES, ids=by_method)
async def test_a_write_whose_connection_broke_is_not_repeated(ask: ApiRequest):
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.method)
        if request.method != "GET" and request.transport is not None:
            request.transport.abort()
        return web.json_response({"kind": "PodList"})

    async with asked_by(answer) as connection:
        # A connection that is kept alive first: the library would repeat on those by itself.
        await connection.ask(GET)
        with pytest.raises(ClusterUnreachable) as caught:
            await connection.ask(ask)

    assert asked == ["GET", ask.method]
    assert caught.value.was_sent


async def test_a_refusal_for_want_of_patience_is_passed_on():
    async def answer(_request: web.Request) -> web.Response:
        return status(429, "TooManyRequests", retryAfterSeconds=60)

    async with asked_by(answer) as connection:
        with pytest.raises(TooManyRequests):
            await connection.ask(POST)


async def test_a_silent_server_costs_no_more_than_the_deadline():
    async def answer(_request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with asked_by(answer) as connection:
        with pytest.raises(ClusterTimeout, match=r"within 0\.1s"):
            await connection.ask(replace(GET, seconds=0.1))
        with pytest.raises(ClusterTimeout):
            async with connection.stream(replace(GET, seconds=0.1)):
                pass


async def test_a_server_that_takes_no_connection_is_not_said_to_have_had_the_whole_deadline():
    # Its backlog takes connections, and nobody there ever says a word of TLS.
    silent = socket.create_server(("127.0.0.1", 0))
    settings = ConnectionSettings("west", f"https://127.0.0.1:{silent.getsockname()[1]}")
    limits = ConnectionLimits(connect_seconds=0.1)
    connection = Connection(settings, clock=SystemClock(), random=Random(1), limits=limits)
    patient = replace(POST, seconds=55.0)
    try:
        with pytest.raises(ClusterUnreachable, match="no connection in time"):
            async with connection.stream(patient):
                pass
        with pytest.raises(ClusterUnreachable, match="no connection in time"):
            await connection.ask(patient)
    finally:
        await connection.close()
        silent.close()


async def test_an_answer_over_the_limit_is_not_read_to_its_end():
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 100_000)

    async with asked_by(answer) as connection:
        with pytest.raises(ClusterMisbehaved, match="more than 1000 bytes"):
            await connection.ask(replace(GET, most_bytes=1000))


async def test_a_compressed_answer_is_read_and_a_bomb_is_not():
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip"
        body = gzip.compress(b"x" * (10_000_000 if "bomb" in request.path else 1000))
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with asked_by(answer) as connection:
        assert (await connection.ask(ApiRequest("GET", "/small"))).body == b"x" * 1000
        with pytest.raises(ClusterMisbehaved, match="more than 1000000 bytes"):
            await connection.ask(ApiRequest("GET", "/bomb", most_bytes=1_000_000))


async def test_an_encoding_nobody_asked_for_is_refused():
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b"x", headers={"Content-Encoding": "br"})

    async with asked_by(answer) as connection:
        with pytest.raises(ClusterMisbehaved, match="br"):
            await connection.ask(GET)


async def test_a_prefix_of_the_server_comes_before_every_path_and_names_are_encoded_once():
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return status(403, "Forbidden")

    async with fake_cluster(answer) as port:
        server = f"http://127.0.0.1:{port}/clusterspaces/west"
        async with connected(ConnectionSettings("west", server)) as connection:
            with pytest.raises(Forbidden):
                await ClusterClient(connection).get(ResourcePath(PODS, "default", "a%2Fb/c"))

    assert seen == ["/clusterspaces/west/api/v1/namespaces/default/pods/a%252Fb%2Fc"]


async def test_a_token_that_was_replaced_is_read_again_when_the_old_one_is_refused(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("old\n")

    async def answer(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer old":
            token.write_text("new\n")
            return status(401, "Unauthorized")
        return web.json_response({"kind": "Pod"})

    async with fake_cluster(answer) as port:
        identity = AuthInfo(token_file=token)
        settings = ConnectionSettings("west", f"http://127.0.0.1:{port}", identity=identity)
        async with connected(settings) as connection:
            assert (await connection.ask(POST)).status == 200


async def test_a_token_file_that_is_not_there_names_the_cluster(tmp_path: Path):
    identity = AuthInfo(token_file=tmp_path / "token")
    settings = ConnectionSettings("west", "http://127.0.0.1:1", identity=identity)
    async with connected(settings) as connection:
        with pytest.raises(CredentialsUnusable, match=r"cluster west: .*token cannot be read"):
            await connection.ask(GET)


async def test_an_error_in_the_reader_s_own_block_is_not_blamed_on_the_cluster():
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({})

    async with asked_by(answer) as connection:
        with pytest.raises(OSError, match=r"^mine$"):
            async with connection.stream(GET):
                raise OSError("mine")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    authority.issue("server", host="10.9.9.9")
    authority.issue("admin", user="admin")
    return authority


def tls_of(directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    context.load_verify_locations(directory / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def whoami(request: web.Request) -> web.Response:
    assert request.transport is not None
    shown = request.transport.get_extra_info("ssl_object").getpeercert()
    return web.json_response({"kind": "Shown", "has": bool(shown)})


@pytest.mark.usefixtures("authority")
async def test_the_server_is_verified_by_the_name_it_should_have(tmp_path: Path):
    trust = Trust(Pem(file=tmp_path / "ca.crt"))
    async with fake_cluster(whoami, ssl_context=tls_of(tmp_path)) as port:
        wrong = ConnectionSettings("west", f"https://127.0.0.1:{port}", trust)
        async with connected(wrong) as connection:
            with pytest.raises(ClusterUnreachable, match="certificate is not trusted"):
                await connection.ask(replace(GET, seconds=2))
        right = replace(wrong, trust=replace(trust, server_name="10.9.9.9"))
        async with connected(right) as connection:
            assert (await connection.ask(GET)).body == b'{"kind": "Shown", "has": false}'


@pytest.mark.usefixtures("authority")
async def test_a_client_certificate_is_shown(tmp_path: Path):
    identity = AuthInfo(
        certificate=Pem(data=(tmp_path / "admin.crt").read_bytes()),
        key=Pem(file=tmp_path / "admin.key"),
    )
    trust = Trust(Pem(file=tmp_path / "ca.crt"), server_name="10.9.9.9")
    async with fake_cluster(whoami, ssl_context=tls_of(tmp_path)) as port:
        settings = ConnectionSettings("west", f"https://127.0.0.1:{port}", trust, identity)
        async with connected(settings) as connection:
            assert (await connection.ask(GET)).body == b'{"kind": "Shown", "has": true}'


@pytest.mark.usefixtures("authority")
async def test_the_next_connection_resumes_the_session_of_the_last_one(tmp_path: Path):
    seen: list[tuple[bool, bool]] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        tls: ssl.SSLObject = request.transport.get_extra_info("ssl_object")
        seen.append((bool(tls.session_reused), bool(tls.getpeercert())))
        return web.json_response({}, headers={"Connection": "close"})

    identity = AuthInfo(
        certificate=Pem(file=tmp_path / "admin.crt"), key=Pem(file=tmp_path / "admin.key")
    )
    trust = Trust(Pem(file=tmp_path / "ca.crt"), server_name="10.9.9.9")
    async with fake_cluster(answer, ssl_context=tls_of(tmp_path)) as port:
        settings = ConnectionSettings("west", f"https://127.0.0.1:{port}", trust, identity)
        async with connected(settings) as connection:
            for _ in range(3):
                await connection.ask(GET)

    assert seen == [(False, True), (True, True), (True, True)]


@pytest.mark.usefixtures("authority")
def test_a_session_is_for_one_server_and_ends_with_it(tmp_path: Path):
    trust = Trust(Pem(file=tmp_path / "ca.crt"))
    context = client_context(trust, TlsMaterial((tmp_path / "ca.crt").read_bytes(), b"", b""))
    context.check_hostname = False
    before, restarted = tls_of(tmp_path), tls_of(tmp_path)

    def is_resumed(name: str, server: ssl.SSLContext) -> bool:
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = context.wrap_bio(to_client, to_server, server_hostname=name)
        theirs = server.wrap_bio(to_server, to_client, server_side=True)
        for step in (ours.do_handshake, theirs.do_handshake) * 2 + (lambda: ours.read(1),):
            with contextlib.suppress(ssl.SSLWantReadError):
                step()
        return bool(theirs.session_reused)

    assert [is_resumed("api.example", before) for _ in range(3)] == [False, True, True]
    assert [is_resumed("api.example", restarted) for _ in range(2)] == [False, True]
    # A proxy before the server could else go on with its own session in the server's name.
    assert not is_resumed("proxy.example", restarted)


@pytest.mark.usefixtures("authority")
def test_a_connection_that_ended_leaves_its_session_and_nothing_else(tmp_path: Path):
    authority = (tmp_path / "ca.crt").read_bytes()
    context = client_context(Trust(), TlsMaterial(authority, b"", b""))
    context.check_hostname = False
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(to_client, to_server, server_hostname="api.example")
    theirs = tls_of(tmp_path).wrap_bio(to_server, to_client, server_side=True)
    for each in (ours, theirs, ours, theirs):
        with contextlib.suppress(ssl.SSLWantReadError):
            each.do_handshake()

    connection, trusting = weakref.ref(ours), weakref.ref(context)
    del ours
    assert connection() is None
    del context
    gc.collect()
    assert trusting() is None


async def test_a_key_that_is_none_is_unusable():
    identity = AuthInfo(certificate=Pem(data=b"no"), key=Pem(data=b"key"))
    settings = ConnectionSettings("west", "https://127.0.0.1:1", identity=identity)
    async with connected(settings) as connection:
        with pytest.raises(CredentialsUnusable, match="certificates cannot be used"):
            await connection.ask(GET)


async def test_more_requests_than_allowed_at_once_wait_for_their_turn():
    at_once: set[int] = set()
    under_way = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal under_way
        under_way += 1
        at_once.add(under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return web.json_response({})

    async with asked_by(answer) as connection:
        connection._requests = asyncio.Semaphore(3)
        async with asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(connection.ask(GET))

    assert max(at_once) == 3


async def test_a_log_is_read_as_it_grows():
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["follow"] == "true"
        response = web.StreamResponse()
        await response.prepare(request)
        for line in (b"one\n", b"two\n"):
            await response.write(line)
            await asyncio.sleep(0.02)
        return response

    place = ResourcePath(PODS, "default", "web").with_subresource("log")
    async with (
        asked_by(answer) as connection,
        ClusterClient(connection).stream(place, (("follow", "true"),)) as log,
    ):
        chunks = [chunk async for chunk in log.chunks()]

    assert chunks == [b"one\n", b"two\n"]


async def test_a_refused_log_is_raised():
    async def answer(_request: web.Request) -> web.Response:
        return status(403, "Forbidden")

    async with asked_by(answer) as connection:
        with pytest.raises(Forbidden):
            async with ClusterClient(connection).stream(ResourcePath(PODS, "default", "web")):
                pass


async def test_a_new_certificate_is_shown_and_what_is_under_way_goes_on(
    tmp_path: Path, authority: Authority
):
    shown: list[bytes] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        shown.append(request.transport.get_extra_info("ssl_object").getpeercert(True))
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(0.1 if request.path == "/slow" else 0)
        await response.write(b"done")
        return response

    old = (tmp_path / "admin.crt").read_bytes()
    identity = AuthInfo(
        certificate=Pem(file=tmp_path / "admin.crt"), key=Pem(file=tmp_path / "admin.key")
    )
    trust = Trust(Pem(file=tmp_path / "ca.crt"), server_name="10.9.9.9")
    async with fake_cluster(answer, ssl_context=tls_of(tmp_path)) as port:
        settings = ConnectionSettings("west", f"https://127.0.0.1:{port}", trust, identity)
        async with (
            connected(settings) as connection,
            connection.stream(ApiRequest("GET", "/slow")) as slow,
        ):
            new = authority.issue("admin", user="admin")
            connection.credentials.refused()  # what is on disk is to be read again
            await connection.ask(GET)
            assert [chunk async for chunk in slow.chunks()] == [b"done"]

    assert shown == [ssl.PEM_cert_to_DER_cert(old.decode()), new]


async def test_a_request_that_is_passed_on_speaks_for_its_client():
    heard: list[list[str]] = []

    async def answer(request: web.Request) -> web.Response:
        heard.append([*request.headers.getall("User-Agent"), request.headers["Accept-Encoding"]])
        return web.json_response({"kind": "Pod"})

    async with asked_by(answer) as connection:
        await connection.ask(GET)
        own = (("user-agent", "kubectl/1"), ("accept-encoding", "identity"))
        await connection.ask(replace(GET, headers=own))

    assert heard[0][0].startswith("clusterspace/")
    assert heard[0][1] == "gzip"
    assert heard[1] == ["kubectl/1", "identity"]


async def test_a_header_that_comes_twice_is_read_as_one_list():
    async def answer(_request: web.Request) -> web.Response:
        response = web.json_response({"kind": "Pod"})
        response.headers.add("Warning", '299 - "one"')
        response.headers.add("Warning", '299 - "two"')
        return response

    async with asked_by(answer) as connection:
        answered = await connection.ask(GET)

    assert answered.headers["warning"] == '299 - "one", 299 - "two"'


async def test_a_stream_whose_connection_was_closed_meanwhile_is_unreachable() -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await asyncio.sleep(5)
        return response

    async with asked_by(trickle) as connection, connection.stream(GET) as answer:
        chunks = answer.chunks()
        assert await anext(chunks) == b"first\n"
        await connection.close()

        with pytest.raises(ClusterUnreachable, match="the connection was closed"):
            await anext(chunks)


async def test_a_version_whose_resources_are_none_fails_alone():
    documents: dict[str, object] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1"}]}],
        },
        "/api/v1": {"kind": "APIResourceList", "resources": 5},
        "/apis/apps/v1": {
            "kind": "APIResourceList",
            "resources": [{"name": "deployments", "kind": "Deployment", "verbs": ["get"]}],
        },
    }

    async def handle(request: web.Request) -> web.StreamResponse:
        return web.json_response(documents[request.path])

    async with asked_by(handle) as connection:
        served = await Discovery(connection).served()

    assert [each.plural for each in served.resources] == ["deployments"]
    assert served.failed == (GroupVersion("", "v1"),)


async def test_asking_often_what_a_cluster_serves_reads_nothing_that_is_as_before():
    document: dict[str, object] = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [],
    }
    changed = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        tag = '"2"' if changed.is_set() else '"1"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.json_response(document, headers={"ETag": tag})

    async with asked_by(handle) as connection:
        discovery = Discovery(connection, fresh_seconds=0)
        first = await discovery.served()
        again = await discovery.served()
        changed.set()
        document["metadata"] = {"resourceVersion": "2"}
        later = await discovery.served()

    assert again is first
    assert later == first
    assert later is not first
