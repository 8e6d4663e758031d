"""What a policy would do, asked of the fleet API server by the page."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.component.gateway.fleet_site import ROOT, Heard, Site, fleet_site, grant
from tests.component.gateway.page_browsers import Browser, logged_in
from tests.component.gateway.page_fleet import furnish

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.simulation import simulate_files

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICIES = GroupVersionResource("policy.karmada.io", "v1alpha1", "propagationpolicies")


def policy(*clusters: str, **selector: str) -> dict[str, Any]:
    """Return a policy for a Deployment that is on the hub, or for one beside it."""
    selected = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", **selector}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "tried", "namespace": "shop"},
        "spec": {
            "resourceSelectors": [selected],
            "placement": {"clusterAffinity": {"clusterNames": list(clusters)}},
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("f"), members=(), sims=("east",)) as running:
        await furnish(running)
        yield running


async def simulate(browser: Browser, *objects: Any, text: bytes = b"", **more: Any) -> Heard:
    body = text or yaml.safe_dump_all(objects).encode()
    return await browser.ask("POST", "/ui/simulation", body, **more)


async def test_a_policy_is_tried_by_the_engine_of_the_command_and_nothing_is_written(site: Site):
    root = await logged_in(site, ROOT)
    tried = policy("east", "south", name="cart")

    answer = await simulate(root, tried)
    told = await simulate_files([tried], site.hub.settings)

    (preview,) = answer.body["previews"]
    assert preview["after"] == {"east": 2}
    assert preview["after"] == told[0].after
    assert {each["cluster"]: each["filter"] for each in preview["others"]} == {
        each.cluster: each.filter for each in told[0].others
    }
    assert {each["cluster"] for each in preview["others"]} == {"north", "south"}
    assert await site.hub.client.find(ResourcePath(POLICIES, "shop", "tried")) is None


async def test_who_may_not_write_policies_is_told_by_the_hub_and_learns_nothing(site: Site):
    jane = await logged_in(site)

    answer = await simulate(jane, policy("east"))

    assert answer.code == 403
    assert 'User "jane" cannot' in answer.message
    assert "previews" not in answer.body


async def test_what_its_user_may_not_read_is_not_read_for_them(site: Site):
    tries: dict[str, Any] = {
        "apiGroups": ["policy.karmada.io"], "resources": ["*"], "verbs": ["get", "create"],
    }  # fmt: skip
    await grant(site.hub, "carl", [tries], "carl-tries")
    carl = await logged_in(site, "carl-token")

    answer = await simulate(carl, policy("east"))

    assert answer.code == 403
    assert 'User "carl" cannot list resource "deployments"' in answer.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"kind: ConfigMap\n", "there is no PropagationPolicy"),
        (b"- a\n", "send objects as YAML"),
        (b"a: [\n", "error converting YAML"),
        (b"[" * 100_000, "error converting YAML"),
        (b"a: &a [x]\nb: [*a, *a]\n", "yaml"),
    ],
    ids=["no policy", "a list", "broken", "deep", "aliases"],
)
async def test_what_is_no_policy_is_refused_with_the_reason(site: Site, text: bytes, said: str):
    answer = await simulate(await logged_in(site, ROOT), text=text)

    assert answer.code == 400
    assert said in answer.message


async def test_nobody_and_no_other_site_has_anything_simulated(site: Site):
    root = await logged_in(site, ROOT)

    anonymous = await simulate(Browser(site), policy("east"))
    foreign = await simulate(root, policy("east"), said=(("Sec-Fetch-Site", "cross-site"),))
    plain = await site.ask("POST", "/ui/simulation", b"a: b", token="")

    assert anonymous.code == 401
    assert foreign.code == 403
    assert plain.code == 401
