"""Who reads Secrets, and who tries to log in, leaves a line: on the hub and on the gateway."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from tests.component.audit_lines import flat, wait_written
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, heard
from tests.component.gateway.watch_streams import watching
from tests.component.serving.wire import RawClient, get

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http import guards
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import AuthInfo, ConnectionSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRETS = "/api/v1/namespaces/kube-system/secrets"
PROXY = "/apis/cluster.karmada.io/v1alpha1/clusters/east/proxy"
WRONG = "abcdef.0123456789abcdef"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        yield running


async def ask_hub(site: Site, path: str, token: str) -> int:
    hub = site.hub.settings
    settings = ConnectionSettings("hub", hub.server, hub.trust, AuthInfo(token=token))
    connection = Connection(settings, clock=SystemClock(), random=Random(1))
    try:
        return heard(await connection.exchange(ApiRequest("GET", path))).code
    finally:
        await connection.close()


class AuditFile:
    """The lines that come after this was made."""

    def __init__(self, path: Path) -> None:
        wait_written()
        self._path = path
        self._from = len(path.read_bytes()) if path.exists() else 0

    @property
    def raw(self) -> bytes:
        wait_written()
        return self._path.read_bytes()[self._from :]

    def lines(self, **wanted: Any) -> list[dict[str, Any]]:
        found = (flat(json.loads(line)) for line in self.raw.splitlines())
        return [each for each in found if wanted.items() <= each.items()]


def hub_file(site: Site) -> AuditFile:
    return AuditFile(site.directory / "hub" / "audit.log")


def fleet_file(site: Site) -> AuditFile:
    return AuditFile(site.directory / "fleet" / "audit.log")


@pytest.mark.parametrize("path", [SECRETS, f"{SECRETS}/some", "/api/v1/secrets"])
async def test_a_read_of_secrets_on_the_hub_is_told(site: Site, path: str) -> None:
    told = hub_file(site)
    code = await ask_hub(site, path, ROOT)

    (line,) = told.lines(user="root", resource="secrets")
    assert line["verb"] == ("get" if path.endswith("some") else "list")
    assert (line["code"], line["sourceIP"]) == (code, "127.0.0.1")


async def test_a_refused_read_of_secrets_is_told_too(site: Site) -> None:
    told = hub_file(site)

    assert await ask_hub(site, SECRETS, "jane-token") == 403
    assert told.lines(user="jane", resource="secrets", code=403)


async def test_a_read_of_secrets_through_the_proxy_is_told(site: Site) -> None:
    told = hub_file(site)
    await ask_hub(site, f"{PROXY}{SECRETS}", ROOT)

    (line,) = told.lines(user="root", subresource="proxy", stage="ResponseComplete")
    assert line["path"].endswith("/secrets")


async def test_a_watch_of_secrets_is_told_when_it_begins(site: Site) -> None:
    told = fleet_file(site)
    async with watching(site.connection(ROOT), f"{SECRETS}?watch=1"):
        assert told.lines(user="root", verb="watch", stage="ResponseStarted")


async def test_reads_of_secrets_at_the_gateway_are_told_for_every_form_of_path(site: Site) -> None:
    told = fleet_file(site)
    for path in (SECRETS, f"/clusterspaces/east{SECRETS}", f"{SECRETS}/x.clusterspace.east"):
        await site.ask("GET", path)

    reads = told.lines(user="root", resource="secrets")
    assert [each["verb"] for each in reads if each["verb"] != "watch"] == ["list", "list", "get"]


async def test_other_reads_are_not_told(site: Site) -> None:
    told = hub_file(site)
    await ask_hub(site, "/api/v1/namespaces/default/configmaps", ROOT)

    assert not told.lines(user="root")


async def test_a_failed_login_is_told_without_its_credential(site: Site) -> None:
    on_hub, on_fleet = hub_file(site), fleet_file(site)
    assert await ask_hub(site, SECRETS, WRONG) == 401
    assert (await site.ask("GET", SECRETS, token=WRONG)).code == 401

    for told in (on_hub, on_fleet):
        (line,) = told.lines(code=401)
        assert (line["sourceIP"], line["credential"]) == ("127.0.0.1", "bootstrap-token")
        assert (line["path"], line["code"]) == (SECRETS, 401)
        assert WRONG.encode() not in told.raw
        assert WRONG.partition(".")[2].encode() not in told.raw


async def test_guesses_are_a_few_lines_and_are_told_to_wait(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take longer for all of them than the limit allows for.
    monkeypatch.setattr(guards, "FAILURES_A_SECOND", 1.0)
    told = hub_file(site)
    known, guesser = await raw_client(site), await raw_client(site)
    try:
        assert (await known.ask(get("/api", f"Authorization: Bearer {ROOT}"))).status == 200
        codes: list[int] = []
        for number in range(300):
            answer = await guesser.ask(get("/api", f"Authorization: Bearer guess-{number}"))
            codes.append(answer.status)
        still_known = await known.ask(get("/api", f"Authorization: Bearer {ROOT}"))
    finally:
        known.vanish()
        guesser.vanish()

    assert set(codes) == {401, 429}
    assert codes.count(401) < 200
    assert still_known.status == 200
    assert len(told.lines(code=401)) <= 5


async def raw_client(site: Site) -> RawClient:
    """Return a client of the hub that asks once and does not try again."""
    url = urlsplit(site.hub.settings.server)
    authority = site.directory / "hub" / "pki" / "ca.crt"
    tls = ssl.create_default_context(cafile=str(authority))
    return RawClient(*await asyncio.open_connection(url.hostname, url.port, ssl=tls))
