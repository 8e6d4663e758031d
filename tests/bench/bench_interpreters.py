"""What scripts cost: the same templates to the same members, with and without a customization.

python -m tests.bench interpreters

Half of the kinds of a fleet may be people's own. The hub, the controllers and the workers that run
scripts are processes as users start them; counted is what all of them take, CPU and not time. After
the first look at an object everything that is asked of it is remembered, so a cold start shows what
the scripts themselves cost.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench.api_servers import ApiServer, running_hub, usage_of
from tests.bench.bench_propagation import until_applied, working_fleet
from tests.bench.propagation_fleet import (
    SPACE,
    Fleet,
    Members,
    NotInTime,
    create_templates,
    joined_fleet,
    sim_members,
    until_quiet,
    watching,
)

from clusterspace.aio import event_loop
from clusterspace.apis.interpreters import CUSTOMIZATIONS
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object

TEMPLATES = 5000
WARM = 200
PATIENCE = 1800.0
"""So many objects take a while; what is measured is not time."""
MEMBERS = 2
MOST = 1.3
BUILT_IN, SCRIPTED = "built-in", "scripted"

SCRIPTS = {
    "replicaResource": "function GetReplicas(obj) return 2, nil end",
    "replicaRevision": """
        function ReviseReplica(obj, count)
          obj.data.count = tostring(count)
          return obj
        end""",
    "retention": "function Retain(desired, observed) return desired end",
    "healthInterpretation": "function InterpretHealth(obj) return obj.data ~= nil end",
    "statusReflection": "function ReflectStatus(obj) return {region = obj.data.region} end",
    "dependencyInterpretation": "function GetDependencies(obj) return {} end",
}
CUSTOMIZATION: Object = {
    "apiVersion": "config.karmada.io/v1alpha1",
    "kind": "ResourceInterpreterCustomization",
    "metadata": {"name": "configmaps"},
    "spec": {
        "target": {"apiVersion": "v1", "kind": "ConfigMap"},
        "customizations": {field: {"luaScript": text} for field, text in SCRIPTS.items()},
    },
}


def processor_seconds(fleet: Fleet) -> float:
    """Return what all have taken, the workers of the controllers included."""
    (controllers,) = fleet.processes["controllers"]
    listed = Path(f"/proc/{controllers}/task/{controllers}/children").read_text().split()
    workers = tuple(int(each) for each in listed)
    everybody = {**fleet.processes, "workers": workers}
    return sum(usage_of(each).cpu_seconds for each in everybody.values())


async def measure(fleet: Fleet, prefix: str, number: int = TEMPLATES) -> float:
    """Return the milliseconds of a processor that one object took, from template to status."""
    known = len(await fleet.hub.list_objects(ResourcePath(RESOURCE_BINDINGS, SPACE)))
    await until_quiet(fleet, PATIENCE)
    before = processor_seconds(fleet)
    async with watching(fleet.members.values()) as sightings:
        await create_templates(fleet, prefix, number)
        for each in sightings:
            await each.until_seen(number, PATIENCE)
    await until_applied(fleet, known + number, PATIENCE)
    await until_quiet(fleet, PATIENCE)
    return (processor_seconds(fleet) - before) / (number * MEMBERS) * 1e3


async def measure_fleet(directory: Path, hub: ApiServer, members: Members, kind: str) -> float:
    """Return what an object took on a fleet of its own, which has the customization or has none."""
    # What is placed before a customization comes is looked at anew when it does. A fleet for each
    # keeps that, and what is left of the other, out of the figures.
    async with (
        joined_fleet(directory, hub, members) as joined,
        working_fleet(joined, directory) as fleet,
    ):
        if kind == SCRIPTED:
            await fleet.hub.create(ResourcePath(CUSTOMIZATIONS), CUSTOMIZATION)
        await measure(fleet, "warm", WARM)
        return await measure(fleet, kind)


def main() -> None:
    taken: dict[str, float] = {}
    for kind in (BUILT_IN, SCRIPTED):
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            directory = Path(name)
            hub = stack.enter_context(running_hub(directory / "hub"))
            members = stack.enter_context(sim_members(directory, MEMBERS))
            try:
                taken[kind] = event_loop.run(measure_fleet(directory, hub, members, kind))
            except NotInTime as late:
                sys.exit(f"interpreters: {late}")
        print(
            f"{TEMPLATES} templates, {kind}: {taken[kind]:.2f} ms of a processor each", flush=True
        )
    ratio = taken[SCRIPTED] / taken[BUILT_IN]
    print(f"to {MEMBERS} members: by scripts {ratio:.2f}x of built in (goal: {MOST:g}x)")


if __name__ == "__main__":
    main()
