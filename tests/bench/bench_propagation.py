"""How fast templates get to members, what each object costs, and what a cold start costs.

python -m tests.bench propagation

The hub and the controllers are processes as users start them, with the product's timings. Members
are real kube-apiservers where they are found, and simulated ones. Time runs from the first create
on the hub to the moment a watch on the last member shows the last object; CPU is counted until
nobody has anything left to do.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tests.bench.api_servers import ApiServer, Usage, find_kubernetes, running_hub, usage_of
from tests.bench.fleet_processes import find_series, series_of
from tests.bench.propagation_fleet import (
    CONFIG_MAPS,
    PATIENCE,
    SPACE,
    Fleet,
    Members,
    NotInTime,
    Sighting,
    config_map,
    controllers_of,
    create_space,
    create_templates,
    joined_fleet,
    policy,
    real_members,
    settled,
    sim_members,
    until_quiet,
    watching,
)

from clusterspace.aio import event_loop
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import PatchType
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import find_at, resource_version_of
from clusterspace.testing.steps import until

TEMPLATES = 400
ROUNDS = 3
CHANGES = 60
LARGE_TEMPLATES = 5000
LARGE_MEMBERS = 10
LARGE_PATIENCE = 1200.0

SHORT_VERBS = ("get", "list", "create", "update", "patch", "delete")
RARE = 0.02

GOAL_PER_SECOND = 70.0
GOAL_SECONDS = 0.3
BASELINE = """\
Karmada v1.18.2 with real kube-apiservers on a quiet machine with two cores:
  400 ConfigMaps to two members in 173 s by default (5 objects/s),
  in 55 s with every limit raised (14 objects/s)"""

Measure = Callable[[Path, ApiServer, Members], Coroutine[Any, Any, None]]
Start = Callable[[Path], AbstractContextManager[Members]]


# -- what is counted -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Costs:
    """What everybody has cost up to a moment, and what was asked of the hub."""

    used: Mapping[str, Usage]
    requests: Mapping[str, float]


async def costs_of(fleet: Fleet) -> Costs:
    answer = await fleet.hub.connection.ask(ApiRequest("GET", "/metrics"))
    series = find_series(answer.body.decode(), "apiserver_request_total")
    used = {name: usage_of(processes) for name, processes in fleet.processes.items()}
    return Costs(used, series)


def print_costs(before: Costs, after: Costs, objects: int) -> None:
    for name, used in after.used.items():
        cpu = used.cpu_seconds - before.used[name].cpu_seconds
        print(
            f"  {name:12} {cpu:7.2f} CPU s {cpu / objects * 1e3:7.2f} ms an object "
            f"{used.resident_bytes / 1e6:7.0f} MB resident"
        )


def print_requests(before: Costs, after: Costs, templates: int) -> None:
    """Print what was asked of the hub for one template, the rare things left out."""
    asked = Counter[str]()
    for labels, value in after.requests.items():
        told = msgspec.json.decode(_as_json(labels), type=dict[str, str])
        if told["verb"] in SHORT_VERBS:
            part = f"/{told['subresource']}" if told["subresource"] else ""
            what = f"{told['verb']} {told['resource']}{part} {told['code']}"
            asked[what] += round(value - before.requests.get(labels, 0))
    often = [(what, number / templates) for what, number in asked.most_common()]
    for what, each in often:
        if each >= RARE:
            print(f"  {each:6.2f} x {what}")


def _as_json(labels: str) -> str:
    return '{"' + labels.strip("{}").replace('",', '","').replace('="', '":"') + "}"


# -- what is measured ------------------------------------------------------------------------------


async def measure_mass(fleet: Fleet, prefix: str, templates: int, patience: float) -> float:
    """Send many templates to all members; return how many member objects came a second."""
    known = len(await fleet.hub.list_objects(ResourcePath(RESOURCE_BINDINGS, SPACE)))
    before = await costs_of(fleet)
    async with watching(fleet.members.values()) as sightings:
        started = time.perf_counter()
        await create_templates(fleet, prefix, templates)
        for each in sightings:
            await each.until_seen(templates, patience)
        elapsed = time.perf_counter() - started
    await until_applied(fleet, known + templates, patience)
    told = time.perf_counter() - started
    quiet = await until_quiet(fleet, patience) - started
    objects = templates * len(fleet.members)
    print(
        f"{templates} templates to {len(fleet.members)} members: {objects} objects in "
        f"{elapsed:.1f} s, {objects / elapsed:.0f} objects/s; told by all bindings after "
        f"{told:.1f} s, quiet after {quiet:.1f} s"
    )
    after = await costs_of(fleet)
    print_costs(before, after, objects)
    print("  asked of the hub, a template:")
    print_requests(before, after, templates)
    return objects / elapsed


async def until_applied(fleet: Fleet, number: int, patience: float) -> None:
    """Wait until as many bindings as there are templates say that all is applied."""

    async def are_applied() -> bool:
        bindings = await fleet.hub.list_objects(ResourcePath(RESOURCE_BINDINGS, SPACE))
        told = [find_at(each, "status", "conditions") for each in bindings]
        return sum(is_true(each, "FullyApplied") for each in told) >= number

    await until(are_applied, patience)


async def measure_latency(fleet: Fleet) -> float:
    """Change one template over and over; return the median time to its member."""
    member = next(iter(fleet.members))
    place = ResourcePath(CONFIG_MAPS, SPACE, "changing")
    await fleet.hub.create(
        ResourcePath(PROPAGATION_POLICIES, SPACE), policy("one", [member], name=place.name)
    )
    await fleet.hub.create(place.collection, config_map(place.name))
    async with watching([fleet.members[member]], reads=True) as [sighting]:
        await sighting.until(lambda: place.key in sighting.seen, PATIENCE)
        await until_quiet(fleet)
        seconds = [
            await _time_change(fleet, place, sighting, f"change {number}")
            for number in range(CHANGES)
        ]
    seconds.sort()
    median, worst = statistics.median(seconds), seconds[int(len(seconds) * 0.99)]
    print(
        f"one change to one member, {CHANGES} times: p50 {median * 1e3:.0f} ms, "
        f"p90 {seconds[int(len(seconds) * 0.9)] * 1e3:.0f} ms, p99 {worst * 1e3:.0f} ms"
    )
    return median


async def _time_change(fleet: Fleet, place: ResourcePath, sighting: Sighting, text: str) -> float:
    held = await fleet.hub.get(place)
    patch = {"metadata": {"resourceVersion": resource_version_of(held)}, "data": {"text": text}}
    started = time.perf_counter()
    await fleet.hub.patch(place, PatchType.MERGE, patch)
    await sighting.until(lambda: sighting.texts.get(place.key) == text, PATIENCE)
    elapsed = time.perf_counter() - started
    # Statuses go back in the meantime, and the next change comes at no moment in particular.
    await asyncio.sleep(0.3 + elapsed % 0.1)
    return elapsed


async def measure_cold_start(fleet: Fleet, directory: Path, objects: int) -> None:
    """Start controllers where everything is as it should be; they have to look at all of it."""
    before = await costs_of(fleet)
    started = time.perf_counter()
    with controllers_of(fleet, directory) as running:

        async def have_looked() -> bool:
            return looks_of(running) >= objects

        await until(have_looked, LARGE_PATIENCE)
        looked = time.perf_counter() - started
        quiet = await until_quiet(running, LARGE_PATIENCE) - started
        after = await costs_of(running)
    print(
        f"cold start of the controllers: {objects} placed objects looked at after {looked:.1f} s, "
        f"quiet after {quiet:.1f} s"
    )
    began = {**before.used, "controllers": Usage(0, 0)}
    print_costs(Costs(began, before.requests), after, objects)


def looks_of(fleet: Fleet) -> float:
    """Return how many Works the executors of all members have been through."""
    try:
        done = series_of(fleet.metrics_port, "workqueue_work_duration_seconds_count")
    except OSError:  # they have only just been started
        return 0
    return sum(value for labels, value in done.items() if '"execution-' in labels)


# -- how it is run ---------------------------------------------------------------------------------


@asynccontextmanager
async def working_fleet(joined: Fleet, directory: Path) -> AsyncGenerator[Fleet]:
    """Run the controllers, and have a policy that sends every ConfigMap to every member."""
    with controllers_of(joined, directory) as fleet:
        await create_space(fleet)
        await settled(fleet)
        everywhere = policy("everywhere", fleet.members)
        await fleet.hub.create(ResourcePath(PROPAGATION_POLICIES, SPACE), everywhere)
        yield fleet


async def measure_small(directory: Path, hub: ApiServer, members: Members) -> None:
    async with (
        joined_fleet(directory, hub, members) as joined,
        working_fleet(joined, directory) as fleet,
    ):
        rates = [
            await measure_mass(fleet, f"round-{each}", TEMPLATES, PATIENCE)
            for each in range(ROUNDS)
        ]
        print(f"best of {ROUNDS}: {max(rates):.0f} objects/s (goal: {GOAL_PER_SECOND:g})")
        median = await measure_latency(fleet)
        print(f"p50 {median * 1e3:.0f} ms (goal: under {GOAL_SECONDS * 1e3:g})")


async def measure_large(directory: Path, hub: ApiServer, members: Members) -> None:
    async with joined_fleet(directory, hub, members) as joined:
        async with working_fleet(joined, directory) as fleet:
            await measure_mass(fleet, "large", LARGE_TEMPLATES, LARGE_PATIENCE)
        await measure_cold_start(joined, directory, LARGE_TEMPLATES * LARGE_MEMBERS)


def run(measure: Measure, start: Start) -> None:
    """Start a hub and members in an empty directory, and measure."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        hub = stack.enter_context(running_hub(directory / "hub"))
        members = stack.enter_context(start(directory))
        event_loop.run(measure(directory, hub, members))


def main() -> None:
    print(BASELINE)
    assets = find_kubernetes()
    try:
        if assets is None:
            print("\nno kube-apiserver and etcd found: set KUBEBUILDER_ASSETS to where they are")
        else:
            print("\n-- two real kube-apiservers")
            run(measure_small, lambda directory: real_members(directory, assets))
        print("\n-- two simulated members")
        run(measure_small, lambda directory: sim_members(directory, 2))
        print(f"\n-- {LARGE_MEMBERS} simulated members")
        run(measure_large, lambda directory: sim_members(directory, LARGE_MEMBERS))
    except NotInTime as late:
        sys.exit(f"propagation: {late}")


if __name__ == "__main__":
    main()
