"""Whoever can write a field that the page shows tries to have a browser run it."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site
from tests.component.gateway.page_chromium import needs_chromium, running_chromium, visitor
from tests.component.gateway.page_fleet import EVENTS, PODS, furnish, furnish_moves, place

from clusterspace.client.requests import ResourcePath

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

HOSTILE = " ".join(
    (
        "<img src=x onerror=window.hurt=1>",
        "<script>window.hurt=1</script>",
        "</pre></td><svg onload=window.hurt=1>",
        "\"><iframe srcdoc='<script>parent.hurt=1</script>'></iframe>",
        "<a href=javascript:window.hurt=1>x</a>",
        "<style>*{display:none}</style>",
    )
)
SEEN = "onerror=window.hurt=1"
"""What is to be read on the page: as text."""
KEPT = {"kind", "apiVersion", "resourceVersion", "uid", "continue", "resource", "scope", "version"}
"""What the page finds its way by. All other texts are the attacker's, names of objects too: a
member answers whatever it likes."""
SCREENS = {
    "what is broken": "#/fleet",
    "an object": "#/object/apps:v1/Deployment/shop/pay",
    "an object of a member": "#/object/apps:v1/Deployment/shop/web.clusterspace.east",
    "a pod of a member": "#/object/v1/Pod/shop/{pod}.clusterspace.east",
    "a search": "#/search?kind=pods",
    "what is on its way": "#/moves",
}


def poisoned(value: Any, key: str = "") -> Any:
    """Return an answer with the attack behind every text in it."""
    if isinstance(value, dict):
        return {each: poisoned(inner, each) for each, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(each, key) for each in value]
    if isinstance(value, str) and key not in KEPT:
        return f"{value} {HOSTILE}"
    return value


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=(), sims=("east",)) as running:
        await furnish(running)
        # One field that travels the whole way, from an object to the screen.
        await place(running, "trap", {"east": {"applied": False, "appliedMessage": HOSTILE}})
        await furnish_moves(running, HOSTILE)
        about = {"kind": "Deployment", "namespace": "shop", "name": "web"}
        message = f"Put back in the cluster east: {HOSTILE}"
        event = {"apiVersion": "v1", "kind": "Event", "reason": "DriftRepaired", "count": 9}
        await running.hub.client.create(
            ResourcePath(EVENTS, "shop"),
            {**event, "metadata": {"name": "x"}, "involvedObject": about, "message": message},
        )
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


async def answer_poisoned(route: Route) -> None:
    url = route.request.url
    if "watch=1" in url:
        await route.fulfill(body="", content_type="application/json")
        return
    answer = await route.fetch()
    body = await answer.json()
    is_discovery = "/apis" in url and url.endswith(("/api", "/apis"))
    content = body if is_discovery or url.endswith("/api") else poisoned(body)
    await route.fulfill(
        status=answer.status,
        headers={"content-type": "application/json", "warning": f'299 - "{HOSTILE[:60]}"'},
        body=json.dumps(content),
    )


@pytest.mark.parametrize("screen", SCREENS)
async def test_no_field_of_any_answer_is_more_than_text(site: Site, browser: Browser, screen: str):
    async with visitor(browser, site) as root:
        await root.log_in(ROOT)
        for path in ("**/clusterspaces/**", "**/api/**", "**/apis/**"):
            await root.page.route(path, answer_poisoned)
        pods = await site.members["east"].client.list_objects(ResourcePath(PODS, "shop"))
        await root.open(SCREENS[screen].format(pod=pods[0]["metadata"]["name"]))
        await root.page.reload()

        await root.until_reads(SEEN)

        assert await root.page.evaluate("window.hurt") is None
        assert (
            await root.page.locator("main script, main iframe, main svg, main style").count() == 0
        )
        assert await root.page.locator("main img, [onerror], [onload]").count() == 0
        links = await root.page.eval_on_selector_all("a", "all => all.map(each => each.protocol)")
        assert set(links) == {"https:"}
        assert root.problems == []


async def test_a_message_of_a_member_is_text_on_its_whole_way(site: Site, browser: Browser):
    async with visitor(browser, site) as root:
        await root.log_in(ROOT)

        await root.until_reads(SEEN, ".problems")
        await root.until_reads("put back 9 times within the hour: <img", ".problems")

        assert await root.page.evaluate("window.hurt") is None
        assert root.problems == []


@pytest.mark.parametrize("button", ["Log of web-", "Logs of all 2 pods"])
async def test_lines_of_a_log_are_text(site: Site, browser: Browser, button: str):
    async def write(route: Route) -> None:
        asked = json.loads(route.request.post_data or "{}")["paths"]
        if "/log?" not in asked[0]:
            await route.continue_()
            return
        lines = [
            json.dumps({"at": at, **part})
            for at in range(len(asked))
            for part in ({"status": 200}, {"text": f"{HOSTILE}\n" * 3})
        ]
        await route.fulfill(body="\n".join(lines), content_type="text/html")

    async with visitor(browser, site) as root:
        await root.page.route("**/ui/several", write)
        await root.log_in(ROOT, "#/object/apps:v1/Deployment/shop/web")
        await root.page.get_by_role("button", name=button).first.click()

        await root.until_reads(SEEN, "pre.log")

        assert await root.page.locator("pre.log *:not(span)").count() == 0
        assert await root.page.evaluate("window.hurt") is None


async def test_fields_that_differ_are_text(site: Site, browser: Browser):
    async def write(route: Route) -> None:
        asked = json.loads(route.request.post_data or "{}")["paths"]
        lines: list[str] = []
        for at in range(len(asked)):
            fields = {HOSTILE: HOSTILE, "containers": [{"name": HOSTILE, "image": HOSTILE}]}
            copy = {"metadata": {"managedFields": [{"manager": HOSTILE, "time": HOSTILE}]}}
            lines.append(json.dumps({"at": at, "status": 200}))
            text = json.dumps({**copy, "spec": fields})
            lines += [json.dumps({"at": at, "text": text}), json.dumps({"at": at, "end": True})]
        await route.fulfill(body="\n".join(lines), content_type="text/html")

    async with visitor(browser, site) as root:
        await root.page.route("**/ui/several", write)
        await root.log_in(ROOT, "#/object/apps:v1/Deployment/shop/web")

        await root.until_reads(SEEN, "section[aria-labelledby=differs]")
        await root.until_reads(SEEN, "section[aria-labelledby=places]")

        assert await root.page.locator("main img, main script, main svg, main iframe").count() == 0
        assert await root.page.evaluate("window.hurt") is None
        assert root.problems == []


async def test_what_a_policy_would_do_is_text(site: Site, browser: Browser):
    async def preview(route: Route) -> None:
        others = [{"cluster": HOSTILE, "filter": HOSTILE, "reason": HOSTILE}]
        said = {"kind": HOSTILE, "namespace": HOSTILE, "name": HOSTILE, "outcome": HOSTILE}
        counts = {"before": {HOSTILE: 1}, "after": {HOSTILE: 2}, "why": HOSTILE, "others": others}
        await route.fulfill(json={"previews": [{**said, **counts}]})

    async with visitor(browser, site) as root:
        await root.log_in(ROOT)
        await root.page.route("**/ui/simulation", preview)
        await root.page.route("**/apis/policy.karmada.io/**", answer_poisoned)
        await root.open("#/whatif?kind=PropagationPolicy&namespace=shop&name=web")
        await root.page.get_by_role("button", name="Show where things would go").click()

        await root.until_reads(SEEN, "section[aria-labelledby=tried-0]")

        assert await root.page.locator("main img, main script, main svg, main iframe").count() == 0
        assert await root.page.evaluate("window.hurt") is None
        assert root.problems == []


async def test_what_became_of_a_migration_s_objects_is_text(site: Site, browser: Browser):
    async with visitor(browser, site) as root:
        await root.log_in(ROOT, "#/moves")
        await root.page.route("**/migrationitems*", answer_poisoned)
        await root.page.get_by_role("button", name="Objects of west-1").click()

        await root.until_reads(SEEN, "section[aria-labelledby=items]")

        assert await root.page.locator("main img, main script, main svg, main iframe").count() == 0
        assert await root.page.evaluate("window.hurt") is None
        assert root.problems == []


async def test_what_a_program_writes_in_a_shell_is_text(site: Site, browser: Browser):
    async with visitor(browser, site) as root:
        await root.log_in(ROOT, "#/object/apps:v1/Deployment/shop/web")
        await root.page.get_by_role("button", name="Allow changes for 15 minutes").click()
        await root.page.get_by_role("button", name="Shell in web-").first.click()
        await root.page.wait_for_selector("#typed:enabled")
        await root.page.keyboard.type("echo '<img src=x onerror=window.hurt=1>'")
        await root.page.keyboard.press("Enter")

        await root.until_reads(f"\n<img src=x {SEEN}", "section.shell pre")

        assert await root.page.locator("section.shell pre *").count() == 0
        assert await root.page.evaluate("window.hurt") is None
        assert root.problems == []


async def test_what_a_server_says_would_change_is_text(site: Site, browser: Browser):
    async def answer(route: Route) -> None:
        if route.request.method in ("PUT", "PATCH"):
            await answer_poisoned(route)
        else:
            await route.continue_()

    async with visitor(browser, site) as root:
        await root.page.route("**/deployments/web?*", answer)
        await root.log_in(ROOT, "#/object/apps:v1/Deployment/shop/web")
        await root.page.get_by_role("button", name="Allow changes for 15 minutes").click()
        await root.page.get_by_role("button", name="Edit YAML").click()
        await root.page.get_by_role("button", name="Show what would change").click()

        await root.until_reads(SEEN, "dialog .diff")

        assert await root.page.locator("dialog img, dialog script, dialog svg").count() == 0
        assert await root.page.evaluate("window.hurt") is None
        assert root.problems == []


async def test_markup_cannot_be_made_of_text_even_by_a_mistake_of_ours(
    site: Site, browser: Browser
):
    async with visitor(browser, site) as root:
        await root.log_in(ROOT)

        for attempt in (
            "() => { document.body.innerHTML = '<b>x</b>' }",
            "() => { const made = document.createElement('script'); made.text = 'hurt=1' }",
            "() => { document.createElement('iframe').srcdoc = '<b>x</b>' }",
        ):
            with pytest.raises(Exception, match=r"TrustedHTML|TrustedScript"):
                await root.page.evaluate(attempt)


async def test_no_frame_holds_the_page(site: Site, browser: Browser):
    async def frame(route: Route) -> None:
        inner = f"<iframe src='{site.url}/ui/'></iframe>"
        await route.fulfill(body=inner, content_type="text/html")

    async with visitor(browser, site) as root:
        await root.log_in(ROOT)
        await root.page.route("https://localhost/**", frame)
        await root.page.goto("https://localhost/")
        await root.page.wait_for_load_state()

        assert [await each.locator("#page").count() for each in root.page.frames] == [0, 0]


async def test_no_other_site_reads_or_writes_with_somebody_s_session(site: Site, browser: Browser):
    async def page(route: Route) -> None:
        await route.fulfill(body="<p>come in</p>", content_type="text/html")

    async with visitor(browser, site) as root:
        await root.log_in(ROOT)
        await root.page.route("https://localhost/**", page)
        await root.page.goto("https://localhost/")
        answered: list[int] = []
        root.page.on("response", lambda answer: answered.append(answer.status))
        done = await root.page.evaluate(
            """async (url) => {
                const tries = [];
                const blind = {mode: "no-cors"};
                for (const options of [{}, blind, {...blind, method: "POST", body: "x"}]) {
                    try {
                        const answer = await fetch(url, {credentials: "include", ...options});
                        tries.push(`${answer.type} ${answer.status}`);
                    } catch (error) { tries.push("refused"); }
                }
                const socket = new WebSocket(url.replace("https", "wss"));
                tries.push(await new Promise((told) => {
                    socket.onopen = () => told("open");
                    socket.onerror = () => told("refused");
                }));
                return tries;
            }""",
            f"{site.url}/clusterspaces/hub/api/v1/namespaces",
        )

        assert done == ["refused", "opaque 0", "opaque 0", "refused"]
        assert set(answered) == {403}, "it was the server that refused, and not a lost connection"
        cookies = await root.context.cookies(site.url)
        (cookie,) = [each for each in cookies if "clusterspace" in (each.get("name") or "")]
        assert cookie.get("httpOnly") is True
        assert cookie.get("secure") is True
        assert cookie.get("sameSite") == "Strict"
