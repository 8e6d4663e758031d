"""Scripts that speak for a kind are asked by a plan and by `promote`, as by the controllers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner
from tests.component.migration.living import (
    DEFINITIONS,
    SHOP,
    WEST,
    WIDGETS,
    Site,
    apply_plan,
    differences,
    is_served,
    living_cluster,
    state_of,
    undo_plan,
    widget_definition,
)

from clusterspace.apis.interpreters import CUSTOMIZATIONS
from clusterspace.apis.policies import CLUSTER_OVERRIDE_POLICIES
from clusterspace.cli.commands.workloads import promote
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.migration.plan import PlanItem, Verdict
from clusterspace.fleet.migration.planning import PlanRequest, plan_cluster
from clusterspace.fleet.migration.progress import MigrationStore
from clusterspace.roots.interpreting import interpreting
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import delete, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

GEAR = ResourcePath(WIDGETS, SHOP, "gear")
KEEPS_SIZE = """
function Retain(desired, observed)
  desired.spec.size = observed.spec.size
  return desired
end
"""
COUNTS = "function GetReplicas(obj) return obj.spec.size, {} end"
GROWS = """
function ReviseReplica(obj, count)
  obj.spec.size = count + 1
  return obj
end
"""
NEEDS_SETTINGS = """
function GetDependencies(obj)
  return {{apiVersion = "v1", kind = "ConfigMap", namespace = obj.metadata.namespace,
           name = "settings"}}
end
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def living(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with living_cluster(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(living: Site) -> AsyncIterator[Site]:
    yield living
    await delete(living.hub, ResourcePath(CUSTOMIZATIONS, name="widgets"))
    await delete(living.hub, ResourcePath(CLUSTER_OVERRIDE_POLICIES, name="larger"))


async def say(site: Site, **scripts: str) -> None:
    customization: dict[str, Any] = {
        "apiVersion": "config.karmada.io/v1alpha1",
        "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": "widgets"},
        "spec": {
            "target": {"apiVersion": "example.com/v1", "kind": "Widget"},
            "customizations": {field: {"luaScript": text} for field, text in scripts.items()},
        },
    }
    await site.hub.create(ResourcePath(CUSTOMIZATIONS), customization)


async def override_size(site: Site) -> None:
    larger: dict[str, Any] = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterOverridePolicy",
        "metadata": {"name": "larger"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "example.com/v1", "kind": "Widget"}],
            "overrideRules": [
                {
                    "overriders": {
                        "plaintext": [{"path": "/spec/size", "operator": "replace", "value": 9}]
                    }
                }
            ],
        },
    }
    await site.hub.create(ResourcePath(CLUSTER_OVERRIDE_POLICIES), larger)


async def planned(site: Site) -> tuple[Any, PlanItem]:
    async with interpreting(site.hub) as interpreter:
        asked = PlanRequest("west-1", WEST)
        plan = await plan_cluster(site.hub, site.member, asked, 0.0, interpreter=interpreter)
    return plan, next(each for each in plan.spec.items if each.kind == "Widget")


async def test_what_a_script_keeps_for_the_member_does_not_change(site: Site) -> None:
    await override_size(site)
    _, without = await planned(site)
    assert (without.verdict, without.changes) == (Verdict.CHANGES, ("spec.size",))

    await say(site, retention=KEEPS_SIZE)
    plan, item = await planned(site)

    assert (item.verdict, item.take) == (Verdict.SAME, True)
    # And what the plan says is what the controllers do.
    before = await state_of(site.member, is_whole=False)
    await apply_plan(site, plan)
    await settled()
    assert (await site.member.get(GEAR))["spec"] == {"size": 3}
    await undo_plan(site, plan.name)
    await MigrationStore(site.hub, plan.name).forget()
    assert differences(before, await state_of(site.member, is_whole=False)) == []


async def test_what_a_script_writes_for_replicas_is_seen_beforehand(site: Site) -> None:
    await say(site, replicaResource=COUNTS, replicaRevision=GROWS)

    _, item = await planned(site)

    assert (item.verdict, item.changes, item.take) == (Verdict.CHANGES, ("spec.size",), False)


async def test_what_a_script_says_it_needs_is_named(site: Site) -> None:
    await say(site, dependencyInterpretation=NEEDS_SETTINGS)

    _, item = await planned(site)

    assert f"ConfigMap {SHOP}/settings" in item.needs


async def test_an_object_whose_script_fails_is_not_taken(site: Site) -> None:
    await say(site, replicaResource="function GetReplicas(obj) return obj.spec.no.such end")

    _, item = await planned(site)

    assert (item.verdict, item.take) == (Verdict.REFUSED, False)
    assert "GetReplicas" in item.reason or "InterpretReplica" in item.reason


async def test_promote_names_what_a_script_says_it_needs(site: Site) -> None:
    await say(site, dependencyInterpretation=NEEDS_SETTINGS)
    await site.hub.create(ResourcePath(NAMESPACES), namespace(SHOP))
    await site.hub.create(ResourcePath(DEFINITIONS), widget_definition())
    await until(lambda: is_served(site.hub))
    words = ("widgets", "gear", "-n", SHOP, "-C", WEST, "-d", "--dry-run")
    hub = ("--kubeconfig", str(site.fleet.directory / "hub" / "kubeconfig"))

    told = await asyncio.to_thread(CliRunner().invoke, promote, [*words, *hub])

    assert "settings" in told.output, told.output
