"""What people wait for and read of a propagated workload: its conditions, and each step's event."""

from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from tests.flows.members import SIM
from tests.flows.stages import MEMBERS, MIXED, Stage, kubectl_apply, staged

from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.events import EVENTS
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.testing.builders import DEPLOYMENTS, config_map, deployment
from clusterspace.testing.steps import until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY: Final = "policy.karmada.io/v1alpha1"
PLACEMENT: Final = {"clusterAffinity": {"clusterNames": list(MEMBERS)}}
ON_TEMPLATE: Final = {
    "ApplyPolicySucceed",
    "GetReplicasSucceed",
    "GetDependenciesSucceed",
    "ScheduleBindingSucceed",
    "ApplyOverridePolicySucceed",
    "SyncWorkSucceed",
    "SyncSucceed",
    "AggregateStatusSucceed",
}
ON_BINDING: Final = {
    "ScheduleBindingSucceed",
    "SyncScheduleResultToDependenciesSucceed",
    "SyncWorkSucceed",
    "AggregateStatusSucceed",
}
ON_WORK: Final = {
    "WorkDispatching",
    "SyncSucceed",
    "ReflectStatusSucceed",
    "InterpretHealthSucceed",
}


def policy(kind: str, name: str = "web", **spec: object) -> Object:
    selected = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": POLICY,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resourceSelectors": [selected], **spec},
    }


def workload() -> Object:
    web = deployment("web")
    source = [{"configMapRef": {"name": "settings"}}]
    web["spec"]["template"]["spec"]["containers"][0]["envFrom"] = source
    return web


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A workload on its way to two members, one of which pulls."""
    async with staged(SIM, MIXED, tmp_path_factory.mktemp("stage"), nodes=1) as stage:
        hub = stage.hub
        rule = {"overriders": {"labelsOverrider": [{"operator": "add", "value": {"a": "b"}}]}}
        await kubectl_apply(hub, config_map("settings"))
        await kubectl_apply(hub, policy("OverridePolicy", overrideRules=[rule]))
        await kubectl_apply(
            hub, policy("PropagationPolicy", placement=PLACEMENT, propagateDeps=True)
        )
        await kubectl_apply(hub, workload())
        yield stage


async def test_describe_tells_each_step_of_a_workload_on_its_way(stage: Stage) -> None:
    await until_equal(lambda: reasons(stage, "Deployment", "web"), ON_TEMPLATE)
    await until_equal(lambda: reasons(stage, "ResourceBinding", "web-deployment"), ON_BINDING)
    for member in MEMBERS:
        await until_equal(lambda: reasons(stage, "Work", "web-", member), ON_WORK)  # noqa: B023


async def test_a_wait_for_an_available_template_ends(stage: Stage) -> None:
    await until_equal(lambda: available(stage, "web"), ("True", "in all clusters"))


async def test_the_member_that_keeps_a_template_from_being_available_is_named(
    stage: Stage,
) -> None:
    nowhere = {"operator": "add", "path": "/spec/template/spec/nodeSelector", "value": {"a": "b"}}
    target = {"clusterNames": [MEMBERS[1]]}
    rule = {"targetCluster": target, "overriders": {"plaintext": [nowhere]}}
    await kubectl_apply(stage.hub, policy("OverridePolicy", "stuck", overrideRules=[rule]))
    await kubectl_apply(stage.hub, policy("PropagationPolicy", "stuck", placement=PLACEMENT))

    await kubectl_apply(stage.hub, deployment("stuck"))

    await until_equal(lambda: available(stage, "stuck"), ("False", MEMBERS[1]))


async def available(stage: Stage, name: str) -> tuple[str, str]:
    """Return whether a template is, and where the message says so."""
    template = await stage.hub.get(ResourcePath(DEPLOYMENTS, "default", name))
    found = find_condition(find_at(template, "status", "conditions"), "Available") or {}
    return str(found.get("status")), str(found.get("message")).partition(":")[0]


async def reasons(stage: Stage, kind: str, name: str, member: str = "") -> set[str]:
    """Return why there are events about an object; the name of a Work goes on behind its dash."""
    events = await stage.hub.list_objects(ResourcePath(EVENTS))
    about = ((each["involvedObject"], str(each["reason"])) for each in events)
    return {
        reason
        for subject, reason in about
        if subject["kind"] == kind
        and (subject["name"] == name or (name.endswith("-") and subject["name"].startswith(name)))
        and subject.get("namespace", "").endswith(member)
    }
