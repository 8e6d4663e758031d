"""The page at /ui: its files, and sessions in place of tokens."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    ROOT,
    Site,
    another_view,
    fleet_site,
    grant,
    reaching,
    using,
)
from tests.component.gateway.page_browsers import JANE, OWN_PAGE, Browser, logged_in

from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.errors import ClusterUnreachable, NotFound
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.page import login_address
from clusterspace.roots.settings import FleetSettings
from clusterspace.testing.hubs import part_of_hub

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        await grant(running.hub, "jane", reaching("east"), "jane-reaches")
        await grant(running.hub, "jane", using("configmaps"), "jane-uses")
        yield running


async def test_the_page_is_served_to_anybody_with_headers_that_let_nothing_foreign_in(site: Site):
    page = await Browser(site).ask("GET", "/ui/", said=(("Sec-Fetch-Dest", "document"),))

    assert page.code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cross-origin-opener-policy"] == "same-origin"


async def test_a_file_that_the_browser_has_already_is_not_sent_again(site: Site):
    first = await Browser(site).ask("GET", "/ui/style.css")
    again = await Browser(site).ask(
        "GET", "/ui/style.css", said=(*OWN_PAGE, ("If-None-Match", first.headers["etag"]))
    )

    assert first.headers["content-type"] == "text/css; charset=utf-8"
    assert (first.code, again.code) == (200, 304)


@pytest.mark.parametrize(
    "path", ["/ui/../main.py", "/ui/%2e%2e/app.py", "/ui/__init__.py", "/ui/a/b"]
)
async def test_nothing_but_the_page_s_own_files_is_found_below_it(site: Site, path: str):
    assert (await Browser(site).ask("GET", path)).code in (400, 404)


async def test_a_login_is_exchanged_for_a_cookie_that_is_not_the_token(site: Site):
    answer = await Browser(site).log_in(JANE)

    cookie = answer.headers["set-cookie"]
    assert answer.body["user"] == "jane"
    assert answer.body["readOnly"] is True
    assert cookie.startswith("__Host-clusterspace-")
    assert JANE not in cookie
    for each in ("Path=/", "Secure", "HttpOnly", "SameSite=Strict", "Max-Age="):
        assert each in cookie
    assert "Domain" not in cookie


async def test_a_session_reads_with_the_rights_of_its_user(site: Site):
    jane = await logged_in(site)

    maps = await jane.ask("GET", f"/clusterspaces/hub{MAPS}")
    secrets = await jane.ask("GET", "/clusterspaces/hub/api/v1/namespaces/default/secrets")

    assert maps.code == 200
    assert secrets.code == 403
    assert 'User "jane" cannot list resource "secrets"' in secrets.message


async def test_a_session_changes_nothing_until_its_user_asks_for_that(site: Site):
    jane = await logged_in(site)
    made = f"/clusterspaces/hub{MAPS}"

    refused = await jane.ask("POST", made, MAP)
    asked = await jane.ask("PUT", "/ui/session", {"readOnly": False})
    allowed = await jane.ask("POST", made, MAP)
    await jane.ask("PUT", "/ui/session", {"readOnly": True})
    again = await jane.ask("POST", made, MAP)

    assert refused.code == 403
    assert "read-only" in refused.message
    assert asked.body["readOnly"] is False
    assert allowed.code == 201
    assert again.code == 403


async def test_a_read_only_session_may_ask_what_its_user_may(site: Site):
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "configmaps"}},
    }
    jane = await logged_in(site)

    answer = await jane.ask(
        "POST",
        "/clusterspaces/hub/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        review,
    )

    assert answer.body["status"]["allowed"] is True


async def test_after_logging_out_the_cookie_opens_nothing(site: Site):
    jane = await logged_in(site)

    ended = await jane.ask("DELETE", "/ui/session")

    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert (await jane.ask("GET", "/ui/session")).code == 401
    assert (await jane.ask("GET", MAPS)).code == 401


async def test_a_wrong_token_opens_no_session(site: Site):
    answer = await Browser(site).ask("POST", "/ui/session", token="guessed")

    assert answer.code == 401
    assert "set-cookie" not in answer.headers


async def test_nobody_opens_no_session(site: Site):
    assert (await Browser(site).ask("POST", "/ui/session")).code == 401


async def test_a_session_cannot_make_codes_or_sessions(site: Site):
    jane = await logged_in(site)

    assert (await jane.ask("POST", "/ui/session")).code == 401
    assert (await jane.ask("POST", "/ui/code")).code == 401


async def test_an_address_of_the_command_logs_in_once(site: Site):
    settings = site.connection(ROOT).settings
    address = await login_address(settings)
    code = address.partition("#code=")[2]
    said = (*OWN_PAGE, ("Authorization", f"Clusterspace-Code {code}"))

    first = await Browser(site).ask("POST", "/ui/session", said=said)
    second = await Browser(site).ask("POST", "/ui/session", said=said)

    assert address.startswith(f"{site.url}/ui/#code=")
    assert first.body["user"] == "root"
    assert second.code == 401


async def test_whoever_has_a_certificate_is_logged_in_by_the_command_as_its_user(site: Site):
    admin = read_kubeconfig((site.directory / "hub" / "kubeconfig",)).settings("", cluster="hub")
    authority = (site.directory / "fleet" / "pki" / "ca.crt").read_bytes()
    settings = ConnectionSettings("fleet", site.url, Trust(Pem(authority)), admin.identity)
    code = (await login_address(settings)).partition("#code=")[2]
    browser = Browser(site)

    answer = await browser.ask(
        "POST",
        "/ui/session",
        said=(*OWN_PAGE, ("Authorization", f"Clusterspace-Code {code}")),
    )
    browser.cookie = answer.headers["set-cookie"].partition(";")[0]
    listed = await browser.ask("GET", f"/clusterspaces/hub{MAPS}")

    assert "system:masters" in answer.body["groups"]
    assert listed.code == 200


async def test_a_server_without_the_page_says_so_to_the_command(site: Site):
    settings = FleetSettings(
        hub=part_of_hub(site.directory / "hub", "fleet"),
        data_dir=site.directory / "pageless",
        serves_page=False,
    )
    async with running_fleet(settings) as pageless:
        authority = (site.directory / "pageless" / "pki" / "ca.crt").read_bytes()
        there = ConnectionSettings(
            "fleet", pageless.url, Trust(Pem(authority)), AuthInfo(token=ROOT)
        )

        with pytest.raises(NotFound, match="--ui=false"):
            await login_address(there)


async def test_a_session_of_one_server_is_nothing_at_another(site: Site):
    jane = await logged_in(site)

    async with another_view(site, "beside") as beside:
        name = jane.cookie.partition("=")[0]
        port = beside.url.rpartition(":")[2]
        renamed = jane.cookie.replace(name, f"__Host-clusterspace-{port}")

        assert (await Browser(beside, renamed).ask("GET", MAPS)).code == 401


async def test_a_watch_of_the_page_ends_when_its_user_logs_out(site: Site):
    jane = await logged_in(site)
    watch = ApiRequest(
        "GET",
        f"/clusterspaces/hub{MAPS}",
        (("watch", "1"),),
        (*OWN_PAGE, ("Cookie", jane.cookie)),
    )

    async with site.connection("").stream(watch) as stream:
        assert stream.status == 200
        await jane.ask("DELETE", "/ui/session")
        with pytest.raises(ClusterUnreachable, match="broke off"):
            assert [chunk async for chunk in stream.chunks()] == [], "it goes on"
