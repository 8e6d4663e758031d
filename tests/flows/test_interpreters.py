"""Kinds of people's own, on a Push and a Pull member: what scripts say of them is done."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.component.interpreter_answerer import patched, running_answerer

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.interpreters import CUSTOMIZATIONS, SCRIPT_FIELDS, WEBHOOK_CONFIGURATIONS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.commit import commit
from clusterspace.errors import Invalid
from clusterspace.fleet.interpretation.lua_workers import LuaWorker
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.stage import (
    Fleet,
    Side,
    register,
    running_agent,
    running_fleet,
    until_ready,
)
from clusterspace.testing.steps import edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

SITES = GroupVersionResource("shop.example.com", "v1", "sites")
DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
EVENTS = GroupVersionResource("", "v1", "events")
PUSH, PULL = "west", "east"
KINDS = ("Site", "Mine", "Trap", "Stall", "Well")


def definition(kind: str) -> Object:
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.shop.example.com"},
        "spec": {
            "group": "shop.example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }


def site(name: str, kind: str = "Site", **spec: Any) -> Object:
    return {
        "apiVersion": "shop.example.com/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def customization(name: str, kind: str = "Site", **scripts: str) -> Object:
    return {
        "apiVersion": "config.karmada.io/v1alpha1",
        "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": name},
        "spec": {
            "target": {"apiVersion": "shop.example.com/v1", "kind": kind},
            "customizations": {field: {"luaScript": text} for field, text in scripts.items()},
        },
    }


def policy(name: str, kind: str = "Site", **placement: Any) -> Object:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "propagateDeps": True,
            "resourceSelectors": [
                {"apiVersion": "shop.example.com/v1", "kind": kind, "name": name}
            ],
            "placement": {"clusterAffinity": {"clusterNames": [PUSH, PULL]}, **placement},
        },
    }


DIVIDED: dict[str, Any] = {
    "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {
            "staticWeightList": [
                {"targetCluster": {"clusterNames": [PUSH]}, "weight": 1},
                {"targetCluster": {"clusterNames": [PULL]}, "weight": 2},
            ]
        },
    }
}

ALL = {
    "replicaResource": """
        function GetReplicas(obj)
          return obj.spec.size, {resourceRequest = {cpu = obj.spec.cpu}}
        end""",
    "replicaRevision": """
        function ReviseReplica(obj, count) obj.spec.size = count return obj end""",
    "retention": """
        function Retain(desired, observed)
          desired.spec.paused = observed.spec.paused
          return desired
        end""",
    "statusReflection": """
        function ReflectStatus(obj)
          if obj.status == nil then return {} end
          return {up = obj.status.up}
        end""",
    "statusAggregation": """
        function AggregateStatus(desired, items)
          local up = 0
          for _, each in ipairs(items) do
            if each.status ~= nil and each.status.up ~= nil then up = up + each.status.up end
          end
          desired.status = {up = up}
          return desired
        end""",
    "healthInterpretation": """
        function InterpretHealth(obj)
          return obj.status ~= nil and obj.status.up == obj.spec.size
        end""",
    "dependencyInterpretation": """
        function GetDependencies(obj)
          return {{apiVersion = "v1", kind = "ConfigMap", namespace = obj.metadata.namespace,
                   name = obj.spec.settings}}
        end""",
}


@dataclass(frozen=True)
class Site:
    fleet: Fleet
    members: dict[str, Side]

    @property
    def hub(self) -> Any:
        return self.fleet.hub.client

    async def place(self, wanted: Object, plural: str = "sites", **placement: Any) -> ResourcePath:
        resource = GroupVersionResource("shop.example.com", "v1", plural)
        name, kind = wanted["metadata"]["name"], wanted["kind"]
        await self.hub.create(ResourcePath(resource, "default"), wanted)
        await self.hub.create(
            ResourcePath(PROPAGATION_POLICIES, "default"), policy(name, kind, **placement)
        )
        return ResourcePath(resource, "default", name)

    async def reasons_about(self, kind: str, name: str) -> set[str]:
        events = await self.hub.list_objects(ResourcePath(EVENTS))
        return {
            each["reason"]
            for each in events
            if (each["involvedObject"]["kind"], each["involvedObject"]["name"]) == (kind, name)
        }


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(
            running_fleet(tmp_path_factory.mktemp("interpreters"))
        )
        await stack.enter_async_context(fleet.controllers())
        members = {name: await fleet.add_member(name) for name in (PUSH, PULL)}
        await fleet.join(PUSH, members[PUSH])
        await register(fleet, PULL, members[PULL])
        await stack.enter_async_context(running_agent(members[PULL], webhook_cidrs=LOOPBACK))
        for name in members:
            await until_ready(fleet, name)
        for client in (fleet.hub.client, *(each.client for each in members.values())):
            for kind in KINDS:
                await client.create(ResourcePath(DEFINITIONS), definition(kind))

        async def serves_all(name: str) -> bool:
            listed = find_at(await fleet.cluster(name), "status", "apiEnablements") or []
            kinds = [r["kind"] for each in listed for r in each["resources"]]
            return {*KINDS} <= {*kinds}

        for name in members:
            await until(lambda name=name: serves_all(name))
        yield Site(fleet, members)


async def test_what_scripts_say_of_a_kind_is_done_on_push_and_pull_members(here: Site) -> None:
    await here.hub.create(ResourcePath(CUSTOMIZATIONS), customization("sites", **ALL))
    await here.hub.create(ResourcePath(CONFIG_MAPS, "default"), config_map("colours"))
    path = await here.place(site("front", size=3, cpu="1", settings="colours"), **DIVIDED)
    binding = ResourcePath(RESOURCE_BINDINGS, "default", "front-site")

    # GetReplicas, and by ReviseReplica each cluster has its share.
    for name, share in ((PUSH, 1), (PULL, 2)):
        member = here.members[name].client

        async def size(member: Any = member) -> Any:
            return find_at(await member.find(path), "spec", "size")

        await until_equal(size, share)
        # GetDependencies
        await until(lambda m=member: m.find(ResourcePath(CONFIG_MAPS, "default", "colours")))
    bound = await here.hub.get(binding)
    assert bound["spec"]["replicas"] == 3
    needs = {"namespace": "default", "resourceRequest": {"cpu": "1"}}
    assert bound["spec"]["replicaRequirements"] == needs

    # ReflectStatus, InterpretHealth and AggregateStatus.
    for name, share in ((PUSH, 1), (PULL, 2)):
        up = {"up": share, "noise": "not reported"}
        await commit_status(here.members[name].client, path, up)

    async def shown() -> Any:
        items = find_at(await here.hub.get(binding), "status", "aggregatedStatus") or []
        told = {each["clusterName"]: (each["health"], each.get("status")) for each in items}
        return told, (await here.hub.get(path)).get("status")

    healthy = {PUSH: ("Healthy", {"up": 1}), PULL: ("Healthy", {"up": 2})}
    await until_equal(shown, (healthy, {"up": 3}))

    # Retain: what the member sets stays through the next update.
    for side in here.members.values():
        await edit(side.client, path, lambda live: with_value(live, True, "spec", "paused"))
    await edit(here.hub, path, lambda live: with_value(live, "2", "spec", "cpu"))
    for side in here.members.values():

        async def settled(side: Side = side) -> Any:
            live = await side.client.get(path)
            return find_at(live, "spec", "cpu"), find_at(live, "spec", "paused")

        await until_equal(settled, ("2", True))


def said_by_webhook(context: Object) -> Object:
    """Say of a Stall what `ALL` says of a Site."""
    request = context["request"]
    about = request["object"]
    status = about.get("status") or {}
    match request["operation"]:
        case "InterpretReplica":
            return {"replicas": about["spec"]["size"]}
        case "ReviseReplica":
            share = request["replicas"]
            return patched({"op": "replace", "path": "/spec/size", "value": share})
        case "InterpretDependency":
            name = about["spec"]["settings"]
            needed = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
            return {"dependencies": [{**needed, "namespace": about["metadata"]["namespace"]}]}
        case "InterpretStatus":
            return {"rawStatus": {"up": status.get("up")}}
        case "InterpretHealth":
            return {"healthy": status.get("up") == about["spec"]["size"]}
        case "AggregateStatus":
            reported = [each.get("status") or {} for each in request["aggregatedStatus"]]
            up = sum(each.get("up") or 0 for each in reported)
            return patched({"op": "add", "path": "/status", "value": {"up": up}})
        case "Retain":
            paused = request["observedObject"]["spec"].get("paused", False)
            return patched({"op": "add", "path": "/spec/paused", "value": paused})
        case _:
            return {"components": []}


async def test_what_a_webhook_says_of_a_kind_is_done_on_push_and_pull_members(here: Site) -> None:
    async with running_answerer("Stall") as answerer:
        answerer.says = said_by_webhook
        await here.hub.create(ResourcePath(WEBHOOK_CONFIGURATIONS), answerer.configuration)
        await here.hub.create(ResourcePath(CONFIG_MAPS, "default"), config_map("awnings"))
        wanted = site("corner", "Stall", size=3, settings="awnings")
        path = await here.place(wanted, "stalls", **DIVIDED)
        binding = ResourcePath(RESOURCE_BINDINGS, "default", "corner-stall")

        for name, share in ((PUSH, 1), (PULL, 2)):
            member = here.members[name].client

            async def size(member: Any = member) -> Any:
                return find_at(await member.find(path), "spec", "size")

            await until_equal(size, share)
            await until(lambda m=member: m.find(ResourcePath(CONFIG_MAPS, "default", "awnings")))
            await commit_status(member, path, {"up": share, "noise": "not reported"})

        async def shown() -> Any:
            items = find_at(await here.hub.get(binding), "status", "aggregatedStatus") or []
            told = {each["clusterName"]: (each["health"], each.get("status")) for each in items}
            return told, (await here.hub.get(path)).get("status")

        healthy = {PUSH: ("Healthy", {"up": 1}), PULL: ("Healthy", {"up": 2})}
        await until_equal(shown, (healthy, {"up": 3}))

        for side in here.members.values():
            await edit(side.client, path, lambda live: with_value(live, True, "spec", "paused"))
        await edit(here.hub, path, lambda live: with_value(live, "red", "spec", "colour"))
        for side in here.members.values():

            async def settled(side: Side = side) -> Any:
                live = await side.client.get(path)
                return find_at(live, "spec", "colour"), find_at(live, "spec", "paused")

            await until_equal(settled, ("red", True))
        asked = {each["request"]["operation"] for each in answerer.asked}
        assert asked >= {*SCRIPT_FIELDS} - {"InterpretComponent"}

        # It fails: what it said last stays, and an event says who failed.
        answerer.says = lambda _: {"successful": False}
        await edit(here.hub, path, lambda live: with_value(live, "blue", "spec", "colour"))
        await until(lambda: fails(here, "Stall", "corner"))
        for name, share in ((PUSH, 1), (PULL, 2)):
            live = await here.members[name].client.get(path)
            assert (live["spec"]["colour"], live["spec"]["size"]) == ("red", share)


async def test_each_script_runs_once_for_each_version_of_an_object(
    here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.hub.create(ResourcePath(CUSTOMIZATIONS), customization("wells", "Well", **ALL))
    runs = Counter[bytes]()
    ask = LuaWorker.ask

    async def counted(worker: LuaWorker, raw: bytes) -> bytes:
        runs[raw] += 1
        return await ask(worker, raw)

    monkeypatch.setattr(LuaWorker, "ask", counted)
    path = await here.place(site("deep", "Well", size=2, cpu="1", settings="none"), "wells")
    binding = ResourcePath(RESOURCE_BINDINGS, "default", "deep-well")
    for side in here.members.values():
        await until(lambda side=side: side.client.find(path))
        await commit_status(side.client, path, {"up": 2})

    async def shown() -> Any:
        items = find_at(await here.hub.find(binding), "status", "aggregatedStatus") or []
        return {each["clusterName"]: each["health"] for each in items}

    await until_equal(shown, {PUSH: "Healthy", PULL: "Healthy"})
    # All controllers look again at the binding and its Works, and nobody asks of what is the same.
    await edit(here.hub, binding, lambda held: with_value(held, "seen", "metadata", "labels", "x"))
    await edit(here.hub, path, lambda held: with_value(held, "2", "spec", "cpu"))
    for side in here.members.values():

        async def cpu(side: Side = side) -> Any:
            return find_at(await side.client.get(path), "spec", "cpu")

        await until_equal(cpu, "2")
    functions = {raw: msgspec.json.decode(raw)[1] for raw in runs}
    assert {"GetReplicas", "ReviseReplica", "InterpretHealth"} <= {*functions.values()}
    assert {functions[raw]: count for raw, count in runs.items() if count > 1} == {}


async def fails(here: Site, kind: str, name: str) -> bool:
    return "GetComponentsFailed" in await here.reasons_about(kind, name)


async def test_a_mended_script_is_asked_again_about_what_is_placed_already(here: Site) -> None:
    broken = "function InterpretHealth(obj) return obj.nothing.here end"
    path = ResourcePath(CUSTOMIZATIONS, name="mines")
    await here.hub.create(
        path.collection, customization("mines", "Mine", healthInterpretation=broken)
    )
    await here.place(site("gold", "Mine"), "mines")
    binding = ResourcePath(RESOURCE_BINDINGS, "default", "gold-mine")

    async def health() -> Any:
        items = find_at(await here.hub.find(binding), "status", "aggregatedStatus") or []
        return {each["clusterName"]: each["health"] for each in items}

    await until_equal(health, {PUSH: "Unknown", PULL: "Unknown"})
    works = await here.hub.list_objects(ResourcePath(WORKS, execution_namespace(PULL)))
    (work,) = (w for w in works if w["spec"]["workload"]["manifests"][0]["kind"] == "Mine")
    await until(lambda: _says(here, "Work", work["metadata"]["name"], "InterpretHealthFailed"))

    well = "function InterpretHealth(obj) return true end"
    where = ("spec", "customizations", "healthInterpretation", "luaScript")
    await edit(here.hub, path, lambda live: with_value(live, well, *where))

    await until_equal(health, {PUSH: "Healthy", PULL: "Healthy"})


async def test_a_script_without_end_holds_up_its_own_kind_alone(here: Site) -> None:
    trap = "function GetReplicas(obj) while true do end end"
    await here.hub.create(
        ResourcePath(CUSTOMIZATIONS), customization("traps", "Trap", replicaResource=trap)
    )
    for number in range(4):
        await here.place(site(f"trap-{number}", "Trap"), "traps")
    await here.place(site("beside", size=3, settings="colours"), **DIVIDED)

    async def size() -> Any:
        live = await here.members[PUSH].client.find(ResourcePath(SITES, "default", "beside"))
        return find_at(live, "spec", "size")

    await until_equal(size, 1)
    await until(lambda: _says(here, "Trap", "trap-0", "GetReplicasFailed"))
    # Not taken for a kind without replicas, which would run in full everywhere.
    assert await here.hub.find(ResourcePath(RESOURCE_BINDINGS, "default", "trap-0-trap")) is None


async def test_two_customizations_may_not_contradict_each_other(here: Site) -> None:
    first = customization("firsts", "First", healthInterpretation="function InterpretHealth() end")
    again = customization("again", "First", healthInterpretation="function InterpretHealth() end")
    needs = customization(
        "needs", "First", dependencyInterpretation="function GetDependencies() end"
    )
    await here.hub.create(ResourcePath(CUSTOMIZATIONS), first)

    with pytest.raises(Invalid, match="firsts has a script for it already"):
        await here.hub.create(ResourcePath(CUSTOMIZATIONS), again)

    await here.hub.create(ResourcePath(CUSTOMIZATIONS), needs)


async def commit_status(member: Any, path: ResourcePath, status: Object) -> None:
    live = await member.get(path)
    await commit(member, path, live, {**live, "status": status})


async def _says(here: Site, kind: str, name: str, reason: str) -> bool:
    return reason in await here.reasons_about(kind, name)
