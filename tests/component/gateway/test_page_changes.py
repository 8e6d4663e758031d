"""What the page changes: nothing unasked, nothing unseen, and nothing that would be refused."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Response
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, grant, reaching
from tests.component.gateway.page_browsers import JANE
from tests.component.gateway.page_chromium import (
    Visitor,
    needs_chromium,
    running_chromium,
    visitor,
)
from tests.component.gateway.page_fleet import DEPLOYMENTS, furnish, set_status

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.kube.objects import Object, with_metadata

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_chromium]

WEB = "#/object/apps:v1/Deployment/shop/web"
CART = "#/object/apps:v1/Deployment/shop/cart"
WEB_IN_EAST = "#/object/apps:v1/Deployment/shop/web.clusterspace.east"
ALLOW = "Allow changes for 15 minutes"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("f"), members=(), sims=("east",)) as running:
        await furnish(running)
        looking: dict[str, Any] = {
            "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"],
        }  # fmt: skip
        scaling = {**looking, "resources": ["deployments/scale"], "verbs": ["get", "patch"]}
        await grant(running.hub, "jane", [*reaching("east"), looking], "jane-looks")
        await grant(running.hub, "carl", [looking, scaling], "carl-scales")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    async with running_chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def root(site: Site, browser: Browser) -> AsyncGenerator[Visitor]:
    """The administrator, who looks at a Deployment."""
    async with visitor(browser, site) as found:
        await found.log_in(ROOT, WEB)
        yield found
        assert found.problems == []


async def press(who: Visitor, name: str) -> None:
    await who.page.get_by_role("button", name=name, exact=True).click()


async def allow_changes(who: Visitor) -> None:
    await press(who, ALLOW)
    await who.until_reads("Changes allowed for 15 min", "header.top")


def deployment_at(name: str) -> ResourcePath:
    return ResourcePath(DEPLOYMENTS, "shop", name)


async def spec_of(client: ClusterClient, name: str) -> Object:
    return (await client.get(deployment_at(name)))["spec"]


async def test_nothing_is_changed_before_it_was_allowed_and_seen(root: Visitor, site: Site):
    await root.until_reads("You have the right to scale it, restart it, edit it", ".actions")
    assert await root.page.get_by_role("button", name="Scale").count() == 0

    await allow_changes(root)
    await press(root, "Scale…")
    await root.page.fill("#replicas", "5")
    await press(root, "Show what would change")
    await root.until_reads("+   replicas: 5", "dialog")
    shown = await root.text("dialog")
    before = await spec_of(site.hub.client, "web")
    await root.picture("change-light")
    await press(root, "Change it")
    await root.until_reads("The server has taken the change", "dialog")

    assert "-   replicas: 2" in shown
    command = "kubectl --context hub scale deployments.apps/web -n shop"
    assert f"{command} --current-replicas=2 --replicas=5" in shown
    assert before["replicas"] == 2
    assert (await spec_of(site.hub.client, "web"))["replicas"] == 5


async def test_a_session_goes_back_to_reading_when_it_is_told_to(root: Visitor):
    await allow_changes(root)
    await root.page.wait_for_selector("text=Edit YAML…")

    await press(root, "Read-only again")

    await root.page.get_by_role("button", name=ALLOW).wait_for()
    assert await root.page.get_by_role("button", name="Edit").count() == 0


@pytest.mark.parametrize(
    ("token", "offered"),
    [(JANE, []), ("carl-token", ["Scale…"])],
    ids=["a viewer", "who may scale"],
)
async def test_who_looks_sees_no_button_that_would_be_refused(
    site: Site, browser: Browser, token: str, offered: list[str]
):
    async with visitor(browser, site) as who:
        reviews: list[Response] = []
        who.page.on(
            "response",
            lambda answer: reviews.append(answer) if "accessreviews" in answer.url else None,
        )
        await who.log_in(token, WEB)
        await who.until_reads("kind: Deployment")
        if offered:
            await allow_changes(who)
            await who.page.get_by_role("button", name=offered[0]).wait_for()
        while len(reviews) < 3:
            await who.page.wait_for_event("response")
        await who.page.evaluate("new Promise(requestAnimationFrame)")

        assert await who.page.locator(".actions button").all_inner_texts() == offered


async def test_a_restart_in_one_cluster_reaches_that_cluster_alone(root: Visitor, site: Site):
    await root.open(WEB_IN_EAST)
    await allow_changes(root)

    await press(root, "Restart…")
    await press(root, "Show what would change")
    await root.until_reads("kubectl.kubernetes.io/restartedAt", "dialog")
    assert "kubectl rollout restart deployments.apps/web.clusterspace.east -n shop" in (
        await root.text("dialog")
    )
    await press(root, "Change it")
    await root.until_reads("The server has taken the change", "dialog")

    stamped = "kubectl.kubernetes.io/restartedAt"
    there = (await spec_of(site.members["east"].client, "web"))["template"]["metadata"]
    on_hub = (await spec_of(site.hub.client, "web"))["template"]["metadata"]
    assert stamped in there["annotations"]
    assert stamped not in on_hub.get("annotations", {})


async def test_yaml_is_edited_with_the_keyboard_alone(root: Visitor, site: Site):
    keyboard = root.page.keyboard
    await root.open(CART)
    await root.page.get_by_role("button", name=ALLOW).focus()
    await keyboard.press("Enter")
    await root.page.get_by_role("button", name="Scale…").wait_for()
    assert await root.page.evaluate("document.activeElement.textContent") == "Scale…"
    for _ in range(2):
        await keyboard.press("Tab")
    await keyboard.press("Enter")
    await root.page.wait_for_selector("#edited")
    assert await root.page.evaluate("document.activeElement.id") == "edited"

    await keyboard.press("Control+Home")
    await keyboard.type("unheard: of\n")
    await keyboard.press("Tab")
    await keyboard.press("Enter")
    await root.until_reads('unknown field "unheard"', "dialog")
    await keyboard.press("Shift+Tab")
    await keyboard.press("Control+Home")
    await keyboard.press("Shift+ArrowDown")
    await keyboard.press("Delete")
    text = await root.page.input_value("#edited")
    await root.page.fill("#edited", text.replace("replicas: 2", "replicas: 3", 1))
    await keyboard.press("Tab")
    await keyboard.press("Enter")
    await root.until_reads("replicas: 3", "dialog .diff")
    await root.page.wait_for_function("document.activeElement.textContent === 'Change it'")
    await keyboard.press("Enter")
    await root.until_reads("The server has taken the change", "dialog")
    await keyboard.press("Escape")
    await root.page.wait_for_selector("dialog", state="detached")

    assert (await spec_of(site.hub.client, "cart"))["replicas"] == 3


async def test_what_somebody_else_changed_meanwhile_is_shown_and_not_overwritten(
    root: Visitor, site: Site
):
    hub, pay = site.hub.client, deployment_at("pay")
    await root.open("#/object/apps:v1/Deployment/shop/pay")
    await allow_changes(root)
    await press(root, "Edit YAML…")
    text = await root.page.input_value("#edited")
    await root.page.fill("#edited", text.replace("replicas: 2", "replicas: 4", 1))
    await press(root, "Show what would change")
    await root.until_reads("replicas: 4", "dialog .diff")
    current = await hub.get(pay)
    await hub.update(pay, with_metadata(current, annotations={"owner": "carl"}))

    await press(root, "Change it")
    await root.until_reads("somebody else has changed the object", "dialog")
    shown = await root.text("dialog .diff")
    untouched = await spec_of(hub, "pay")
    await press(root, "Go on from there")
    await root.until_reads("-     owner: carl", "dialog .diff")

    assert "+     owner: carl" in shown
    assert untouched["replicas"] == 2


async def test_a_status_that_moves_on_is_no_conflict(root: Visitor, site: Site):
    hub, pay = site.hub.client, deployment_at("pay")
    await root.open("#/object/apps:v1/Deployment/shop/pay")
    await allow_changes(root)
    await press(root, "Edit YAML…")
    text = await root.page.input_value("#edited")
    await root.page.fill("#edited", text.replace("replicas: 2", "replicas: 6", 1))
    await press(root, "Show what would change")
    await root.until_reads("replicas: 6", "dialog .diff")
    await set_status(site, pay, {"replicas": 1})

    await press(root, "Change it")
    await root.until_reads("The server has taken the change", "dialog")

    assert (await spec_of(hub, "pay"))["replicas"] == 6


async def test_an_edit_that_changes_nothing_cannot_be_sent(root: Visitor):
    await allow_changes(root)
    await press(root, "Edit YAML…")

    await press(root, "Show what would change")

    await root.until_reads("Nothing would change", "dialog")
    assert await root.page.get_by_role("button", name="Change it", exact=True).count() == 0


async def test_an_edit_without_a_version_is_not_sent(root: Visitor):
    await allow_changes(root)
    await press(root, "Edit YAML…")
    text = await root.page.input_value("#edited")
    kept = [each for each in text.splitlines() if "resourceVersion" not in each]
    await root.page.fill("#edited", "\n".join(kept))

    await press(root, "Show what would change")

    await root.until_reads("leave metadata.resourceVersion", "dialog")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_stands_in_the_way_of_a_screen_reader_that_changes_something(
    site: Site, browser: Browser, scheme: Any
):
    async with visitor(browser, site, color_scheme=scheme) as root:
        await root.log_in(ROOT, WEB)
        await allow_changes(root)
        await press(root, "Edit YAML…")
        text = await root.page.input_value("#edited")
        await root.page.fill("#edited", text.replace("  replicas: ", "  replicas: 1", 1))
        await press(root, "Show what would change")
        await root.page.wait_for_selector("dialog .diff")
        await root.picture(f"edit-{scheme}")

        assert "Found 0" in (await Axe().run(root.page)).generate_report()
