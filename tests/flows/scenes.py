"""Recorded stories of propagation, played on a stage of our own, and what is to be seen after each.

A scene is a list of steps: something is done, or something is looked at. What is looked at has to
become equal to what was recorded, except where `docs/karmada-compatibility.md` says otherwise.
"""

import re
from collections.abc import Iterable
from typing import Any

from tests.corpus import load_scenario
from tests.flows.recordings import Symbols, differences
from tests.flows.stages import (
    KUBECTL,
    RESOURCES,
    SIM,
    Stage,
    edit,
    kubectl_apply,
    resource_path_of,
)

from clusterspace.apis.clusters import CLUSTERS, taints_of
from clusterspace.apis.policies import CLUSTER_PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership.controller import CORDON
from clusterspace.fleet.propagation.statuses import FULLY_APPLIED
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of, with_value
from clusterspace.roots.workloads import PromoteRequest, look, promote
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, namespace
from clusterspace.testing.steps import delete, until, until_equal

WORDS = {
    "clusterrole": "ClusterRole",
    "clusters": "Cluster",
    "cm": "ConfigMap",
    "cpp": "ClusterPropagationPolicy",
    "crb": "ClusterResourceBinding",
    "deploy": "Deployment",
    "ns": "Namespace",
    "pp": "PropagationPolicy",
    "rb": "ResourceBinding",
    "works": "Work",
}
KNOWN = (
    # Written on the page, with reasons: docs/karmada-compatibility.md, "Propagation".
    r"Work status\.conditions\[1\]\.message: .*already exists in the cluster.*",
    r"ResourceBinding status\.aggregatedStatus\[0\]\.appliedMessage: .*already exists in the.*",
    r"Work metadata\.annotations\[clusterspace\.io/taken-over\]: nothing recorded, .*",
    r"Deployment status\.conditions: nothing recorded, .*",
    r"(Propagation|Override)Policy spec\.resourceSelectors\[\d\]\.namespace: .*, nothing here",
    r"Work status\.manifestStatuses\[0\]\.status\.conditions: nothing recorded, .*",
    r"ResourceBinding status\.aggregatedStatus\[\d\]\.status\.conditions: nothing recorded, .*",
)
_COUNTERS = r"(replicas|unavailableReplicas|updatedReplicas)"
SIMULATED = (r"Deployment status\.conditions\[1\]\.message: 'ReplicaSet .*",)
"""The hash in the name of a ReplicaSet is another one on simulated members."""
TIMED = (r"Deployment status\.conditions\[1\]\.(message|reason): .*",)
"""What a Deployment says of a rollout that is stuck depends on when its controller looked."""
STUCK = (
    rf"Deployment status\.{_COUNTERS}: .*",
    rf"Work status\.manifestStatuses\[0\]\.status\.{_COUNTERS}: .*",
    rf"ResourceBinding status\.aggregatedStatus\[\d\]\.status\.{_COUNTERS}: .*",
)
"""Simulated Deployments do not keep old pods that never ran; then a rollout is not stuck."""
ROLLED_OUT = ("override_and_cluster_scope", "conflict_matrix")
"""Scenes in which a rollout gets stuck, for want of nodes."""
LEFT_OVER = {"promote": "dup"}
"""A policy that was still there from another scene when it was recorded."""
DUP = ResourcePath(DEPLOYMENTS, "default", "dup")


class Player:
    """Plays one scene."""

    def __init__(self, stage: Stage, kind: str) -> None:
        self._stage = stage
        self._is_simulated = kind == SIM
        self._scene = ""
        self._earlier: set[str] = set()
        """Works that other scenes left."""
        self._symbols = Symbols()
        self.compared: list[str] = []
        """Everything that was found equal to what was recorded."""

    async def play(self, scene: str) -> None:
        self._scene = scene
        self._earlier = {str(resource_path_of(each)) for each in await self._works("")}
        for step in load_scenario("karmada", scene)["steps"]:
            if "action" in step:
                await self._act(str(step["action"]), step.get("manifests") or [])
            else:
                await self._see(str(step["see"]), step["objects"])

    async def _act(self, action: str, manifests: list[Object]) -> None:
        words = action.split()
        match words:
            case ["apply", *_]:
                for manifest in manifests:
                    await self._apply(manifest)
            case ["legacy", _, "on", member, *_]:
                for manifest in manifests:
                    await kubectl_apply(self._stage.client_of(member.rstrip(":")), manifest)
            case ["drift:", *_]:
                await self._drift("member1")
            case ["karmadactl", *command]:
                await self._command(command)
            case _:
                await self._act_on_hub(words)

    async def _act_on_hub(self, words: list[str]) -> None:
        hub = self._stage.hub
        match words:
            case ["scale", "on", "hub", "to", "3"]:
                await edit(hub, DUP, lambda held: with_value(held, 3, "spec", "replicas"))
            case ["template", "deleted", *_]:
                await delete(hub, DUP)
            case ["all", "templates", "deleted", *_]:
                for each in await hub.list_objects(ResourcePath(DEPLOYMENTS, "default")):
                    if name_of(each).startswith("c-"):
                        await delete(hub, ResourcePath(DEPLOYMENTS, "default", name_of(each)))
            case ["ClusterPropagationPolicy", "deleted,", *_]:
                await delete(hub, ResourcePath(CLUSTER_PROPAGATION_POLICIES, "", "cpp"))
            case ["create", "ns", name]:
                await hub.create(ResourcePath(NAMESPACES), namespace(name))
            case ["delete", "ns", name, *_]:
                await delete(hub, ResourcePath(NAMESPACES, "", name))
            case _:
                raise AssertionError(f"nobody knows how to do this: {words}")

    async def _command(self, command: list[str]) -> None:
        match command:
            case ["promote", *_]:
                await self._promote()
            case [what, member]:
                await self._cordon(member, is_cordoned=what == "cordon")
            case _:
                raise AssertionError(f"no such command: {command}")

    async def _apply(self, manifest: Object) -> None:
        if manifest["kind"] == "OverridePolicy":
            # It was recorded that it came after the template had been placed without it.
            await self._until_applied(name_of(manifest))
        await kubectl_apply(self._stage.hub, manifest)

    async def _until_applied(self, name: str) -> None:
        place = ResourcePath(RESOURCE_BINDINGS, "default", f"{name}-deployment")

        async def is_applied() -> bool:
            binding = await self._stage.hub.find(place) or {}
            return is_true(find_at(binding, "status", "conditions"), FULLY_APPLIED)

        await until(is_applied)

    async def _drift(self, member: str) -> None:
        place = DUP.with_subresource("scale")
        scale = await self._stage.client_of(member).get(place)
        scaled = with_value(scale, 9, "spec", "replicas")
        await self._stage.client_of(member).update(place, scaled, KUBECTL)

    async def _cordon(self, member: str, *, is_cordoned: bool) -> None:
        taints = [CORDON.to_object()] if is_cordoned else []

        def change(cluster: Object) -> Object:
            others = [each for each in taints_of(cluster) if each.get("key") != CORDON.key]
            return with_value(cluster, [*others, *taints], "spec", "taints")

        await edit(self._stage.hub, ResourcePath(CLUSTERS, "", member), change)

    async def _promote(self) -> None:
        stage = self._stage
        member = stage.members["member1"].settings
        request = PromoteRequest("deployment", "legacy", "default", "member1", member)
        prospect = await look(request, stage.fleet.hub.settings)
        assert not prospect.effect.on_pods
        await promote(request, prospect, stage.fleet.hub.settings, stage.fleet.messages.append)

    async def _see(self, see: str, recorded: Any) -> None:
        side, word, *rest = see.replace(":", "", 1).split()
        if word == "events":
            return  # for people; what ours say is tested where they are made
        kind = WORDS[word]
        if recorded is None:
            await self._until_gone(side, kind, rest)
            return
        wanted = [each for each in recorded.get("items", [recorded]) if self._is_ours(each)]
        if "items" in recorded and kind == "Work":
            await self._until_only(wanted, rest)
        for each in wanted:
            await self._until_alike(side, each)

    async def _until_gone(self, side: str, kind: str, rest: list[str]) -> None:
        place = ResourcePath(RESOURCES[kind], "" if kind == "Namespace" else "default", rest[0])

        async def is_gone() -> bool:
            return await self._stage.client_of(side).find(place) is None

        await until(is_gone)
        self.compared.append(f"{side} {kind} {rest[0]} is gone")

    async def _until_only(self, wanted: Iterable[Object], rest: list[str]) -> None:
        """Wait until there are no other Works than were recorded."""
        inside = rest[1] if rest[0] == "-n" else ""
        names = {str(resource_path_of(each)) for each in wanted}

        async def of_this_scene() -> set[str]:
            held = {str(resource_path_of(each)) for each in await self._works(inside)}
            return held - self._earlier

        await until_equal(of_this_scene, names)

    async def _works(self, inside: str) -> list[Object]:
        return await self._stage.hub.list_objects(ResourcePath(RESOURCES["Work"], inside))

    async def _until_alike(self, side: str, recorded: Object) -> None:
        place, found = resource_path_of(recorded), list[str]()

        async def is_alike() -> bool:
            held = await self._stage.client_of(side).find(place)
            if held is None or is_being_deleted(held):
                found[:] = [f"{place} is not there"]
                return False
            symbols = self._symbols.copy()
            found[:] = self._differences(recorded, held, symbols)
            if not found:
                self._symbols.take(symbols)
            return not found

        await until(is_alike, explain=lambda: [f"{side} {place}", *found])
        self.compared.append(f"{side} {place}")

    def _is_ours(self, recorded: Object) -> bool:
        """Whether there is such an object here: members are reached in a way of our own."""
        name = name_of(recorded)
        return not name.startswith("karmada-impersonator") and name != LEFT_OVER.get(self._scene)

    def _known(self) -> tuple[str, ...]:
        is_stuck = self._scene in ROLLED_OUT
        simulated = (*SIMULATED, *(STUCK if is_stuck else ())) if self._is_simulated else ()
        return (*KNOWN, *simulated, *(TIMED if is_stuck else ()))

    def _differences(self, recorded: Object, held: Object, symbols: Symbols) -> list[str]:
        """Return the differences that no page gives a reason for."""
        known = self._known()
        found = differences(_in_part(recorded), _in_part(held), symbols)
        told = [(each, f"{recorded['kind']} {each}") for each in found]
        return [
            each
            for each, text in told
            if not any(re.fullmatch(pattern, text, re.DOTALL) for pattern in known)
        ]


def _in_part(kube_object: Object) -> Object:
    """Return what a scene is about: of a Cluster its taints, the rest is membership's."""
    if kube_object["kind"] != "Cluster":
        return kube_object
    return {"kind": "Cluster", "taints": find_at(kube_object, "spec", "taints")}
