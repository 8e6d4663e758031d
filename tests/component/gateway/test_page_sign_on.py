"""The page where an issuer is configured: people log in there, and the hub says who they are."""

import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner
from playwright.async_api import Browser
from tests.component.gateway.page_chromium import needs_chromium, running_chromium
from tests.component.issuers import Issuer, running_issuer

from clusterspace.cli.main import main
from clusterspace.client.connection import Connection
from clusterspace.client.requests import Answer, ApiRequest
from clusterspace.client.settings import ConnectionSettings, Pem, Trust
from clusterspace.fleet.page.sign_on import SignOnSettings
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import FleetSettings, HubSettings
from clusterspace.testing.hubs import client_for_test, part_of_hub

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENT = "the page"
SECRET = "a secret: 100%"


@dataclass
class Front:
    """A fleet API server whose page sends people to an issuer, and one browser's cookies."""

    issuer: Issuer
    url: str
    connection: Connection
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **others: Any) -> Answer:
        headers = (
            ("Host", urlsplit(self.url).netloc),
            ("Sec-Fetch-Site", others.get("site", "cross-site")),
            ("Sec-Fetch-Dest", others.get("dest", "document")),
            ("Cookie", "; ".join(f"{key}={value}" for key, value in self.cookies.items())),
            *others.get("headers", ()),
        )
        request = ApiRequest(others.get("method", "GET"), path, headers=headers)
        answer = await self.connection.exchange(request)
        if given := answer.headers.get("set-cookie"):
            name, _, value = given.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def sent_away(self) -> str:
        """Begin a login; return where at the issuer the browser is sent."""
        return (await self.get("/ui/sign-on", site="same-origin")).headers["location"]

    async def back_from(self, address: str) -> str:
        """Go to the issuer; return with what it sends back, as a path of ours."""
        parts = urlsplit(address)
        settings = ConnectionSettings(
            cluster="the issuer",
            server=f"https://{parts.netloc}",
            trust=Trust(Pem(self.issuer.authority.encode())),
        )
        async with client_for_test(settings) as issuer:
            request = ApiRequest("GET", f"{parts.path}?{parts.query}")
            back = urlsplit((await issuer.connection.exchange(request)).headers["location"])
        return f"{back.path}?{back.query}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Front]:
    place = tmp_path_factory.mktemp("front")
    (place / "issuer").mkdir()
    (place / "secret").write_text(f"{SECRET}\n")
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(running_issuer(place / "issuer"))
        (issuer.directory / "client_secret").write_text(SECRET)
        config = issuer.config(issuer={"audiences": [CLIENT]})
        (place / "sso.yaml").write_text(yaml.safe_dump(config))
        hub = HubSettings(
            place / "hub", store="memory", port=0, authentication_file=place / "sso.yaml"
        )
        await stack.enter_async_context(running_hub(hub))
        sign_on = SignOnSettings(
            issuer.url, CLIENT, place / "secret", authority=issuer.authority.encode()
        )
        settings = FleetSettings(
            hub=part_of_hub(place / "hub", "fleet"),
            data_dir=place / "fleet",
            port=0,
            sign_on=sign_on,
        )
        running = await stack.enter_async_context(running_fleet(settings))
        authority = (place / "fleet" / "pki" / "ca.crt").read_bytes()
        fleet = ConnectionSettings(cluster="fleet", server=running.url, trust=Trust(Pem(authority)))
        client = await stack.enter_async_context(client_for_test(fleet))
        yield Front(issuer, running.url, client.connection)


@pytest.fixture(autouse=True)
def fresh(front: Front) -> None:
    """Have a browser that knows nothing, and an issuer that lets people in."""
    front.cookies.clear()
    front.issuer.behave()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@needs_chromium
async def test_somebody_logs_in_at_the_issuer_and_is_back_where_they_were(
    front: Front, browser: Browser
):
    context = await browser.new_context(ignore_https_errors=True)
    page = await context.new_page()
    await page.goto(f"{front.url}/ui/#/search?kind=pods")

    await page.get_by_role("button", name=f"Log in at {urlsplit(front.issuer.url).netloc}").click()
    await page.wait_for_selector("header.top")

    assert "sso:jane" in await page.inner_text("header.top")
    assert page.url == f"{front.url}/ui/#/search?kind=pods"
    cookies = [each.get("sameSite") for each in await context.cookies(front.url)]
    assert cookies == ["Strict"], "the sealed one is gone"
    await context.close()


@needs_chromium
async def test_who_is_not_let_in_is_told_so_and_can_begin_again(front: Front, browser: Browser):
    front.issuer.behave(error="access_denied")
    context = await browser.new_context(ignore_https_errors=True)
    page = await context.new_page()
    await page.goto(f"{front.url}/ui/")

    await page.get_by_role("button", name="Log in at").click()

    await page.get_by_text("The issuer did not let you in").wait_for()
    front.issuer.behave()
    await page.get_by_role("button", name="Log in at").click()
    await page.wait_for_selector("header.top")
    await context.close()


async def test_a_browser_is_sent_to_the_issuer_with_a_challenge_and_without_a_secret(front: Front):
    address = await front.sent_away()

    asked = parse_qs(urlsplit(address).query)
    assert address.startswith(f"{front.issuer.url}/authorize?tenant=one&")
    assert asked["client_id"] == [CLIENT]
    assert asked["scope"] == ["openid profile email"]
    assert asked["redirect_uri"] == [f"{front.url}/ui/sign-on/done"]
    assert asked["code_challenge_method"] == ["S256"]
    assert SECRET not in address
    sealed = next(iter(front.cookies.values()))
    assert asked["state"][0] not in sealed


async def test_what_comes_back_is_a_code_for_one_login(front: Front):
    back = await front.back_from(await front.sent_away())
    answer = await front.get(back)

    assert answer.status == 303
    assert answer.headers["referrer-policy"] == "no-referrer"
    code = re.fullmatch(r"/ui/#code=([\w-]+)", answer.headers["location"])
    assert code is not None
    own = {"site": "same-origin", "dest": "empty", "method": "POST"}
    login = (("Authorization", f"Clusterspace-Code {code[1]}"),)
    assert (await front.get("/ui/session", headers=login, **own)).status == 200
    assert (await front.get("/ui/session", headers=login, **own)).status == 401


@pytest.mark.parametrize("planted", ["another", ""])
async def test_a_login_that_somebody_else_began_is_refused(front: Front, planted: str):
    back = await front.back_from(await front.sent_away())
    front.cookies.clear()
    if planted:
        await front.sent_away()

    assert (await front.get(back)).headers["location"] == "/ui/#sign-on=late"


async def test_the_same_answer_of_the_issuer_logs_in_once(front: Front):
    back = await front.back_from(await front.sent_away())
    kept = dict(front.cookies)
    assert "#code=" in (await front.get(back)).headers["location"]
    front.cookies.update(kept)

    assert (await front.get(back)).headers["location"] == "/ui/#sign-on=failed"


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ({"error": "access_denied"}, "denied"),
        ({"error": "<script>alert(1)</script>"}, "failed"),
        ({"claims": {"nonce": "of another login"}}, "failed"),
        ({"claims": {"aud": "another client"}}, "unknown"),
        ({"claims": {"exp": 1}}, "unknown"),
        ({"claims": {"sub": None}}, "unknown"),
    ],
)
async def test_a_login_that_fails_says_why_in_a_word_of_ours(
    front: Front, behaviour: dict[str, Any], reason: str
):
    front.issuer.behave(**behaviour)
    answer = await front.get(await front.back_from(await front.sent_away()))

    assert answer.headers["location"] == f"/ui/#sign-on={reason}"
    assert answer.body == b""


async def test_words_of_a_stranger_are_sent_nowhere(front: Front):
    state = parse_qs(urlsplit(await front.sent_away()).query)["state"][0]
    said = urlencode({"state": state, "error": "//evil.example\r\nX: y", "error_description": "x"})

    answer = await front.get(f"/ui/sign-on/done?{said}")

    assert answer.headers["location"] == "/ui/#sign-on=failed"
    assert "x" not in answer.headers


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ui-oidc-issuer-url", "https://sso.example.com"], "go together"),
        (["--ui-oidc-client-id", "page"], "go together"),
        (["--ui-oidc-issuer-url", "http://sso", "--ui-oidc-client-id", "p"], "no https address"),
        (["--ui-oidc-ca-file", __file__], "give --ui-oidc-issuer-url"),
        (["--ui-oidc-scope", "email"], "`openid` has to be one of them"),
    ],
)
async def test_half_an_issuer_is_refused_in_a_sentence(
    options: list[str], said: str, tmp_path: Path
):
    answer = CliRunner().invoke(main, ["fleet", "--data-dir", str(tmp_path), *options])

    assert answer.exit_code == 2
    assert said in answer.output
