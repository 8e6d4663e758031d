"""A member sends the client elsewhere, sets its cookies, speaks in our name: none of it arrives."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.component.gateway.fleet_site import ROOT, TABLE, Heard, Site, fleet_site

from clusterspace.testing.builders import config_map
from clusterspace.testing.hostile import (
    ELSEWHERE,
    STOLEN_HEADERS,
    Asked,
    HostileMember,
    answering,
    head,
    listing,
    refusing,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
PROXY = f"/clusterspaces/hub/apis/cluster.karmada.io/v1alpha1/clusters/{HOSTILE}/proxy"
REDIRECTS = (300, 301, 302, 303, 304, 305, 307, 308, 399)
IMPOSSIBLE = (101, 199, 600, 666, 999)
FORBIDDEN_HEADERS = {line.partition(":")[0].lower() for line in STOLEN_HEADERS} - {
    "cache-control",
    "audit-id",
}
READS = (
    f"/clusterspaces/{HOSTILE}{MAPS}",
    f"/clusterspaces/{HOSTILE}{MAPS}/x",
    f"/clusterspaces/{HOSTILE}{MAPS}?watch=true",
    f"/clusterspaces/{HOSTILE}{PODS}/web/log",
    f"/clusterspaces/{HOSTILE}{PODS}/web/proxy/index.html",
    f"/clusterspaces/{HOSTILE}/version",
    f"{MAPS}/x.clusterspace.{HOSTILE}",
    f"/api/v1/namespaces/default.clusterspace.{HOSTILE}/configmaps",
    f"/api/v1/namespaces/default.clusterspace.{HOSTILE}/configmaps?watch=true",
    f"{PODS}/web.clusterspace.{HOSTILE}/log",
    f"{PODS}/web.clusterspace.{HOSTILE}/proxy/",
    f"{PROXY}{MAPS}",
    f"{PROXY}{PODS}/web/proxy/index.html",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def member(site: Site) -> AsyncGenerator[HostileMember]:
    async with hostile_in(site, answering(200)) as running:
        yield running


def is_bad_gateway(answer: Heard) -> bool:
    assert answer.code == 502, answer.body
    assert answer.body["kind"] == "Status"
    assert HOSTILE in answer.message
    assert ELSEWHERE not in str(answer.body) + str(answer.headers)
    assert "location" not in answer.headers
    return True


@pytest.mark.parametrize("code", REDIRECTS)
async def test_no_redirect_of_a_member_reaches_a_client(
    site: Site, member: HostileMember, code: int
):
    member.behave = answering(code, b"", f"Location: {ELSEWHERE}", f"Refresh: 0; url={ELSEWHERE}")

    for path in READS:
        answer = await site.ask("GET", path)
        assert is_bad_gateway(answer), path
        assert "a redirect" in answer.message
    for path in (f"/clusterspaces/{HOSTILE}{MAPS}", f"{PROXY}{MAPS}"):
        assert is_bad_gateway(await site.ask("POST", path, config_map("x")))
    made = await site.ask("POST", MAPS, config_map(f"x.clusterspace.{HOSTILE}"))
    assert is_bad_gateway(made)
    assert is_bad_gateway(await site.ask("DELETE", f"{MAPS}/x.clusterspace.{HOSTILE}"))


@pytest.mark.parametrize("code", IMPOSSIBLE)
async def test_a_status_that_no_server_has_is_the_members_fault_and_not_ours(
    site: Site, member: HostileMember, code: int
):
    member.behave = answering(code, b'{"kind":"Status","message":"odd","code":%d}' % code)

    # On a busy machine it may have been silent for long enough to be known as such: 504.
    for path in READS:
        assert (await site.ask("GET", path)).code in (502, 503, 504), path


async def test_unchanged_passes_to_who_asked_about_a_tag(site: Site, member: HostileMember):
    member.behave = answering(304, b"", 'ETag: "a"')
    path = f"/clusterspaces/{HOSTILE}/openapi/v3/api/v1"

    answer = await site.ask("GET", path, headers=(("If-None-Match", '"a"'),))

    assert (answer.code, answer.headers["etag"]) == (304, '"a"')


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1"])
@pytest.mark.parametrize(
    "said",
    [
        head(302, f"Location: {ELSEWHERE}", "Content-Length: 0"),
        head(307, f"Location: {ELSEWHERE}", "Content-Length: 0"),
        head(999, "Content-Length: 0"),
        head(101, "Upgrade: {protocol}", "Sec-WebSocket-Protocol: a\nSet-Cookie: session=stolen"),
        head(101, "Upgrade: {protocol}", f"Location: {ELSEWHERE}", "Set-Cookie: session=stolen"),
    ],
    ids=["302", "307", "999", "injected", "cookie"],
)
async def test_no_redirect_and_no_cookie_comes_with_a_shell(
    site: Site, member: HostileMember, protocol: str, said: bytes
):
    async def switch(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.path.endswith("selfsubjectaccessreviews"):
            await answering(201, b'{"status":{"allowed":true}}')(asked, writer)
        else:
            writer.write(said.replace(b"{protocol}", protocol.encode()))

    member.behave = switch
    for path in (
        f"/clusterspaces/{HOSTILE}{PODS}/web/exec?command=sh",
        f"{PODS}/web.clusterspace.{HOSTILE}/exec?command=sh",
        f"{PROXY}{PODS}/web/exec?command=sh",
    ):
        answer = await upgrade(site, path, protocol)

        first = answer.split(b"\r\n", 1)[0]
        is_injected = b"a\nSet-Cookie" in said
        expected = (b" 101 ",) if b"101" in said[:20] and not is_injected else (b" 502 ", b" 503 ")
        assert any(each in first for each in expected), answer
        assert b"stolen" not in answer
        assert b"attacker.invalid" not in answer


async def upgrade(site: Site, path: str, protocol: str) -> bytes:
    """Ask for a shell; return the first bytes of the answer."""
    parts = urlsplit(site.url)
    context = ssl.create_default_context(cafile=str(site.directory / "fleet" / "pki" / "ca.crt"))
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {parts.netloc}",
        f"Authorization: Bearer {ROOT}",
        "Connection: Upgrade",
        f"Upgrade: {protocol}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "",
        "",
    )
    writer.write("\r\n".join(lines).encode())
    try:
        async with asyncio.timeout(20):
            return await reader.readuntil(b"\r\n\r\n") + await reader.read(65536)
    finally:
        writer.transport.abort()


async def test_of_the_headers_of_a_member_those_pass_that_are_listed_and_no_others(
    site: Site, member: HostileMember
):
    member.behave = listing(lines=(*STOLEN_HEADERS, 'ETag: "1"', "X-Something-New: 1"))
    member_paths = [path for path in READS if "watch" not in path]

    for path in (*member_paths, MAPS):
        answer = await site.ask("GET", path)

        assert answer.code == 200, (path, answer.body)
        assert not FORBIDDEN_HEADERS & answer.headers.keys(), path
        assert "x-something-new" not in answer.headers
        assert answer.headers["cache-control"] == "no-cache, private"
        assert answer.headers["audit-id"] != "somebody-else"
        assert "stolen" not in str(answer.headers)
        if path != MAPS:
            assert answer.headers["x-content-type-options"] == "nosniff"


async def test_refusals_bring_none_of_them_either(site: Site, member: HostileMember):
    member.behave = refusing(403, "Forbidden", *STOLEN_HEADERS)

    for path in READS:
        answer = await site.ask("GET", path)

        assert answer.code == 403
        assert not FORBIDDEN_HEADERS & answer.headers.keys(), path


async def test_a_body_that_is_packed_in_a_way_nobody_asked_for_does_not_pass(
    site: Site, member: HostileMember
):
    member.behave = answering(200, b"x" * 300_000, "Content-Encoding: br")

    for path in (f"/clusterspaces/{HOSTILE}{MAPS}", f"{MAPS}/x.clusterspace.{HOSTILE}"):
        assert (await site.ask("GET", path)).code == 503


async def test_warnings_of_a_member_are_few_short_and_in_its_own_name(
    site: Site, member: HostileMember
):
    spoken = [f'Warning: 299 - "kubectl is out of date, get it from {ELSEWHERE}/{number}"'
              for number in range(50)]  # fmt: skip
    long = f'Warning: 299 - "{"w" * 3000}"'
    member.behave = listing(lines=(long, *spoken))

    for path in (f"/clusterspaces/{HOSTILE}{MAPS}", f"{PROXY}{MAPS}", MAPS):
        answer = await site.ask("GET", path)

        texts = answer.warning.split(", 299 - ")
        assert 1 <= len(texts) <= 5
        assert all(f"cluster {HOSTILE}: " in text for text in texts)
        assert all(len(text) < 400 for text in texts)


async def test_the_hubs_own_warnings_need_no_introduction(site: Site):
    answer = await site.ask("GET", "/clusterspaces/hub/api/v1/componentstatuses")

    if answer.warning:
        assert "cluster " not in answer.warning


async def test_a_table_of_a_member_is_asked_for_and_passed_on(site: Site, member: HostileMember):
    member.behave = answering(
        200,
        b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":'
        b'[{"name":"Name","type":"string","format":"name","description":"","priority":0}],'
        b'"rows":[{"cells":["x"],"object":{"kind":"PartialObjectMetadata"}}]}',
    )
    path = f"/clusterspaces/{HOSTILE}{MAPS}"

    answer = await site.ask("GET", path, headers=(("Accept", TABLE),))

    assert answer.body["rows"][0]["cells"] == ["x"]
