"""What `kubectl describe` tells of a propagated workload: the events Karmada's users watch for."""

from pathlib import Path
from typing import Final

from tests.flows.members import SIM
from tests.flows.stages import MEMBERS, MIXED, Stage, kubectl_apply, staged

from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.events import EVENTS
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map, deployment
from clusterspace.testing.steps import until_equal

POLICY: Final = "policy.karmada.io/v1alpha1"
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


def policy(kind: str, **spec: object) -> Object:
    selected = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": POLICY,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"resourceSelectors": [selected], **spec},
    }


def workload() -> Object:
    web = deployment("web")
    source = [{"configMapRef": {"name": "settings"}}]
    web["spec"]["template"]["spec"]["containers"][0]["envFrom"] = source
    return web


async def test_describe_tells_each_step_of_a_workload_on_its_way(tmp_path: Path) -> None:
    async with staged(SIM, MIXED, tmp_path) as stage:
        hub = stage.hub
        placement = {"clusterAffinity": {"clusterNames": list(MEMBERS)}}
        overriders = {"labelsOverrider": [{"operator": "add", "value": {"by": "override"}}]}
        await kubectl_apply(hub, config_map("settings"))
        await kubectl_apply(
            hub, policy("OverridePolicy", overrideRules=[{"overriders": overriders}])
        )
        await kubectl_apply(
            hub, policy("PropagationPolicy", placement=placement, propagateDeps=True)
        )

        await kubectl_apply(hub, workload())

        await until_equal(lambda: reasons(stage, "Deployment", "web"), ON_TEMPLATE)
        await until_equal(lambda: reasons(stage, "ResourceBinding", "web-deployment"), ON_BINDING)
        for member in MEMBERS:
            await until_equal(lambda: reasons(stage, "Work", "web-", member), ON_WORK)  # noqa: B023


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
