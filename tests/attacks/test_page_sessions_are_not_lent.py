"""Another site, another user or a member tries to use somebody's session of the page."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import Site, fleet_site, grant, reaching, using
from tests.component.gateway.page_browsers import OWN_PAGE, Browser, logged_in

from clusterspace.aio.clocks import SystemClock
from clusterspace.fleet.page.sessions import Credential, Sessions
from clusterspace.testing.clocks import ManualClock

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/clusterspaces/hub/api/v1/namespaces/default/configmaps"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "forged-"}}
UPGRADE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
)
ELSEWHERE = "https://evil.example"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        await grant(running.hub, "jane", reaching("east"), "jane-reaches")
        await grant(running.hub, "jane", using("configmaps"), "jane-uses")
        await grant(running.members["east"], "jane", using("pods", "pods/exec"), "jane-runs")
        yield running


def origin_of(site: Site) -> str:
    return site.url


@pytest.mark.parametrize(
    "said",
    [
        (("Sec-Fetch-Site", "cross-site"),),
        (("Sec-Fetch-Site", "same-site"),),
        (("Sec-Fetch-Site", "none"),),
        (("Origin", ELSEWHERE),),
        (("Origin", "null"),),
        (("Sec-Fetch-Site", "same-origin"), ("Origin", ELSEWHERE)),
        (),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_other_site_can_use_a_session(
    site: Site, method: str, said: tuple[tuple[str, str], ...]
):
    jane = await logged_in(site)
    await jane.ask("PUT", "/ui/session", {"readOnly": False})

    answer = await jane.ask(method, MAPS, MAP if method == "POST" else None, said=said)

    assert answer.code == 403
    assert "requests of the page itself" in answer.message


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_no_other_site_can_ask_for_writes_or_log_somebody_out(site: Site, method: str):
    jane = await logged_in(site)
    body = {"readOnly": False} if method == "PUT" else None

    forged = await jane.ask(method, "/ui/session", body, said=(("Sec-Fetch-Site", "cross-site"),))

    assert forged.code == 403
    assert (await jane.ask("GET", "/ui/session")).body["readOnly"] is True


async def test_no_other_site_opens_a_websocket_with_a_session(site: Site):
    jane = await logged_in(site)
    await jane.ask("PUT", "/ui/session", {"readOnly": False})
    shell = "/clusterspaces/east/api/v1/namespaces/default/pods/web/exec?command=id&stdout=true"

    foreign = await jane.ask("GET", shell, said=(*UPGRADE, ("Origin", ELSEWHERE)))
    own = await jane.ask("GET", shell, said=(*UPGRADE, ("Origin", origin_of(site))))

    assert foreign.code == 403
    assert "requests of the page itself" in foreign.message
    assert own.code == 405, "the member runs no pods, and that is all that stands in the way"


async def test_a_session_that_reads_opens_no_shell_and_no_proxy(site: Site):
    jane = await logged_in(site)
    pod = "/clusterspaces/east/api/v1/namespaces/default/pods/web"

    shell = await jane.ask("GET", f"{pod}/exec?command=id", said=(*UPGRADE, *OWN_PAGE))
    proxied = await jane.ask("GET", f"{pod}/proxy/")

    assert "read-only" in shell.message
    assert "read-only" in proxied.message


@pytest.mark.parametrize("destination", ["document", "iframe", "script", "image", "serviceworker"])
async def test_what_a_member_answers_is_no_document_and_no_script_here(
    site: Site, destination: str
):
    jane = await logged_in(site)
    said = (("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Dest", destination))

    with_session = await jane.ask("GET", "/clusterspaces/east/api/v1/pods", said=said)
    without = await Browser(site).ask("GET", "/clusterspaces/east/version", said=said)

    assert (with_session.code, without.code) == (403, 403)
    assert "not shown in a browser" in with_session.message


async def test_a_made_up_session_is_nobody_s(site: Site):
    jane = await logged_in(site)
    name = jane.cookie.partition("=")[0]

    for made_up in ("", "jane", "0" * 43, jane.cookie.partition("=")[2][:-1]):
        assert (await Browser(site, f"{name}={made_up}").ask("GET", MAPS)).code in (401, 403)


async def test_a_session_is_its_own_user_s_however_the_request_is_dressed(site: Site):
    jane = await logged_in(site)

    acting = await jane.ask("GET", MAPS, said=(*OWN_PAGE, ("Impersonate-User", "root")))
    begun = await Browser(site).ask(
        "POST",
        "/ui/session",
        said=(*OWN_PAGE, ("Impersonate-User", "jane")),
        token="root-token",
    )

    assert acting.code == 403
    assert begun.code == 400
    assert "without impersonation" in begun.message


async def test_one_user_s_many_sessions_end_nobody_else_s():
    sessions = Sessions(SystemClock())
    janes = sessions.open("jane", Credential("jane-token"))

    for _ in range(3000):
        sessions.open("mallory", Credential("mallory-token"))

    assert sessions.find(janes) is not None


async def test_a_session_ends_by_itself():
    clock = ManualClock()
    sessions = Sessions(clock, seconds=100, idle_seconds=10)
    idle = sessions.open("jane", Credential("jane-token"))
    await clock.advance(11)
    used = sessions.open("jane", Credential("jane-token"))
    for _ in range(20):
        await clock.advance(5)
        sessions.find(used)

    assert sessions.find(idle) is None
    assert sessions.find(used) is None


async def test_no_token_can_be_read_from_what_is_kept():
    sessions = Sessions(SystemClock())
    secret = sessions.open("jane", Credential("a-token-to-look-for"))
    session = sessions.find(secret)

    assert session is not None
    assert "a-token-to-look-for" not in repr(vars(sessions)) + repr(session.sealed)
    assert secret not in repr(vars(sessions))
    assert sessions.credential_of(session, secret).token == "a-token-to-look-for"
