"""`drain`, `rebalance` and `simulate` as people type them, on simulated members."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS, clusters_of
from clusterspace.cli.commands.clusters import cordon, uncordon
from clusterspace.cli.commands.moves import drain, rebalance, simulate
from clusterspace.cli.commands.why import why
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.kube.objects import Object, find_at, resource_version_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.moves import write_drain
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

STATEFUL_SETS = GroupVersionResource("apps", "v1", "statefulsets")
QUICKLY = EvictionSettings(each_second=50, settle_seconds=0)
"""As operators have it: taints evict nobody. A drain does."""
ONE_CLUSTER = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}
ON_WEST = {"clusterAffinity": {"clusterNames": ["west"]}}
TOLERANT = {
    **ONE_CLUSTER,
    "clusterTolerations": [{"key": "clusterspace.io/drain", "operator": "Exists"}],
}
BY_ROOM = {
    "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    }
}
SIDES: dict[str, Side] = {}
PLACEMENTS = {"web": ONE_CLUSTER, "pinned": ON_WEST, "calm": TOLERANT, "wide": BY_ROOM}


def policy(name: str, placement: Object, kind: str = "Deployment") -> Object:
    selector = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resourceSelectors": [selector], "placement": placement},
    }


def database() -> Object:
    labels = {"app": "ledger"}
    pod = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.example/ledger:1"}]},
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "ledger", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "serviceName": "ledger",
            "selector": {"matchLabels": labels},
            "template": pod,
            "volumeClaimTemplates": [claim],
        },
    }


async def type_in(fleet: Fleet, command: click.Command, *words: str, answer: str = "") -> Result:
    """Type a command as somebody in a shell does, who says `answer` when asked."""
    arguments = [*words, "--kubeconfig", str(fleet.directory / "hub" / "kubeconfig")]
    return await asyncio.to_thread(CliRunner().invoke, command, arguments, input=answer)


async def places(fleet: Fleet, name: str, kind: str = "deployment") -> list[str]:
    path = ResourcePath(RESOURCE_BINDINGS, "default", f"{name}-{kind}")
    binding = await fleet.hub.client.find(path)
    return [each.name for each in clusters_of(binding or {})]


async def versions(fleet: Fleet) -> dict[str, str]:
    """Return the versions of all that a command could have written."""
    found: dict[str, str] = {}
    for resource in (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS, PROPAGATION_POLICIES):
        for each in await fleet.hub.client.list_objects(ResourcePath(resource)):
            found[f"{resource} {each['metadata']['name']}"] = resource_version_of(each)
    for each in await fleet.hub.client.list_objects(ResourcePath(CLUSTERS)):
        found[f"taints of {each['metadata']['name']}"] = str(find_at(each, "spec", "taints"))
    return found


async def healthy(fleet: Fleet, name: str, kind: str = "deployment") -> set[str]:
    path = ResourcePath(RESOURCE_BINDINGS, "default", f"{name}-{kind}")
    binding = await fleet.hub.client.find(path)
    reports: list[Any] = find_at(binding or {}, "status", "aggregatedStatus") or []
    return {str(e["clusterName"]) for e in reports if e.get("health") == "Healthy"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """A fleet of two, and everything on west: east was cordoned when it came."""
    async with running_fleet(tmp_path_factory.mktemp("drain")) as fleet:
        for name in ("west", "east"):
            SIDES[name] = await fleet.add_sim(name, nodes=1)
            await fleet.join(name, SIDES[name])
        async with fleet.controllers(evictions=QUICKLY):
            for name in ("west", "east"):
                await until_ready(fleet, name)
            await type_in(fleet, cordon, "east")
            hub = fleet.hub.client
            policies = ResourcePath(PROPAGATION_POLICIES, "default")
            for name, placement in PLACEMENTS.items():
                made = deployment(name, replicas=6 if name == "wide" else 2)
                await hub.create(ResourcePath(DEPLOYMENTS, "default"), made)
                await hub.create(policies, policy(name, placement))
            await hub.create(ResourcePath(STATEFUL_SETS, "default"), database())
            await hub.create(policies, policy("ledger", ONE_CLUSTER, "StatefulSet"))
            for name in PLACEMENTS:
                await until_equal(lambda name=name: healthy(fleet, name), {"west"})
            await until_equal(lambda: healthy(fleet, "ledger", "statefulset"), {"west"})
            await type_in(fleet, uncordon, "east")
            yield fleet


async def test_a_failover_is_told_beforehand_and_touches_nothing(fleet: Fleet) -> None:
    before = await versions(fleet)

    told = await type_in(fleet, simulate, "failover", "--cluster", "west", "-o", "json")

    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    by_name = {each["name"]: each for each in found["previews"]}
    assert by_name["web"]["outcome"] == "moves"
    assert by_name["web"]["after"] == {"east": 2}
    assert by_name["pinned"]["outcome"] == "stops"
    assert "cluster affinity" in by_name["pinned"]["why"]
    # Half of the fleet is not most of it. A StatefulSet is not replaced on a word of silence.
    assert by_name["ledger"]["outcome"] == "stops"
    assert "only its own answer proves it" in by_name["ledger"]["why"]
    assert any("no ClusterTaintPolicy" in each for each in found["notes"])
    assert await versions(fleet) == before

    both = await type_in(
        fleet, simulate, "failover", "--cluster", "west", "--cluster", "east", "-o", "json"
    )
    assert {each["outcome"] for each in json.loads(both.stdout)["previews"]} == {"stays"}
    gone = await type_in(fleet, simulate, "failover", "--cluster", "nowhere")
    assert gone.exit_code == 1
    assert "`clusterspace clusters` shows those there are" in gone.stderr


async def test_a_policy_is_tried_by_name_of_its_filters(fleet: Fleet, tmp_path: Path) -> None:
    before = await versions(fleet)
    file = tmp_path / "policy.yaml"
    wanted = policy("new", {"clusterAffinity": {"clusterNames": ["east"]}})
    file.write_text(f"{json.dumps(deployment('new', replicas=2))}\n---\n{json.dumps(wanted)}")

    told = await type_in(fleet, simulate, str(file), "-o", "json")

    assert told.exit_code == 0, told.output
    (found,) = json.loads(told.stdout)
    assert (found["outcome"], found["after"]) == ("placed", {"east": 2})
    (other,) = found["others"]
    assert (other["cluster"], other["filter"]) == ("west", "ClusterAffinity")
    shown = await type_in(fleet, simulate, str(file))
    assert [line.split()[3:6] for line in shown.stdout.splitlines()[1:]] == [
        ["east", "2", "-"],
        ["west", "-", "ClusterAffinity"],
    ]
    # A policy is checked by the hub, and one that takes nothing from others says so.
    file.write_text(json.dumps(policy("second", ON_WEST) | {"spec": {"placement": {}}}))
    assert (await type_in(fleet, simulate, str(file))).exit_code == 1
    late = policy("late", {})
    late["spec"]["resourceSelectors"][0]["name"] = "web"
    file.write_text(json.dumps(late))
    shown = await type_in(fleet, simulate, str(file))
    assert "it follows policy default/web" in shown.stdout
    assert await versions(fleet) == before


async def test_workloads_are_placed_anew_after_a_look_at_before_and_after(fleet: Fleet) -> None:
    looked = await type_in(fleet, rebalance, "deployment/wide", "--dry-run")

    assert looked.exit_code == 0, looked.output
    assert "west:6" in looked.stdout
    assert await places(fleet, "wide") == ["west"]

    done = await type_in(fleet, rebalance, "deployment/wide", answer="y\n")

    assert done.exit_code == 0, done.output
    assert "1 workloads are placed anew" in done.stdout
    assert await places(fleet, "wide") == ["east", "west"]
    nothing = await type_in(fleet, rebalance, "deployment/nothing")
    assert nothing.exit_code == 1
    assert "is not placed" in nothing.stderr


async def test_a_drain_moves_what_may_move_and_says_what_cannot(fleet: Fleet) -> None:
    planned = await type_in(fleet, drain, "west", "-o", "json")

    assert planned.exit_code == 0, planned.output
    by_name = {each["name"]: each for each in json.loads(planned.stdout)["leaving"]["previews"]}
    assert {name: each["outcome"] for name, each in by_name.items()} == {
        "web": "moves",
        "wide": "moves",
        "ledger": "moves",
        "pinned": "stays",
        "calm": "stays",
    }
    assert by_name["ledger"]["workload_class"] == "exclusive"
    assert by_name["ledger"]["why"] == "starts when west has stopped it"
    assert by_name["ledger"]["kept_data"] == "data in data does not move along"
    assert "cluster affinity" in by_name["pinned"]["why"]
    assert "tolerates clusterspace.io/drain:NoExecute" in by_name["calm"]["why"]

    refused = await type_in(fleet, drain, "west", answer="n\n")
    assert refused.exit_code == 1
    assert "nothing was done" in refused.stderr
    cluster = ResourcePath(CLUSTERS, name="west")
    assert find_at(await fleet.hub.client.get(cluster), "spec", "taints") is None

    done = await type_in(fleet, drain, "west", "--yes", "--timeout", "120")

    assert done.exit_code == 0, done.output
    assert "west is drained: 3 workloads have left, and 2 cannot" in done.stdout
    moved = {name: await places(fleet, name) for name in PLACEMENTS}
    assert moved == {"web": ["east"], "wide": ["east"], "pinned": ["west"], "calm": ["west"]}
    assert await places(fleet, "ledger", "statefulset") == ["east"]
    path = ResourcePath(DEPLOYMENTS, "default", "web")
    assert await SIDES["west"].client.find(path) is None

    # The same command again only looks; and `why` has the whole story.
    again = await type_in(fleet, drain, "west")
    assert "is being drained since" in again.stderr

    async def is_told() -> bool:
        story = (await type_in(fleet, why, "deployment/web")).output
        return "clusterspace.io/drain:NoExecute" in story and "Evict from cluster west" in story

    await until(is_told)

    ended = await type_in(fleet, drain, "west", "--undo")
    assert ended.exit_code == 0
    assert find_at(await fleet.hub.client.get(cluster), "spec", "taints") is None
    assert "is not being drained" in (await type_in(fleet, drain, "west", "--undo")).stdout


async def test_a_heartbeat_in_the_same_moment_ends_no_command(fleet: Fleet) -> None:
    path = ResourcePath(CLUSTERS, name="west")
    hub = fleet.hub.client

    class Busy(ClusterClient):
        """Somebody else writes to the object right before each of the first two writes."""

        left = 2

        async def patch(self, *args: Any, **options: Any) -> Object:
            if self.left:
                self.left -= 1
                await edit(
                    hub, path, lambda each: with_metadata(each, labels={"n": str(self.left)})
                )
            return await super().patch(*args, **options)

    busy = Busy(hub.connection)
    assert await write_drain(busy, "west", SystemClock(), is_on=True)
    assert busy.left == 0
    assert not await write_drain(Busy(hub.connection), "west", SystemClock(), is_on=True)
    assert await write_drain(Busy(hub.connection), "west", SystemClock(), is_on=False)
    assert find_at(await hub.get(path), "spec", "taints") is None
