"""What a plan takes in memory does not grow with what is in it."""

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterspace.fleet.migration.apply import CarriedItems
from clusterspace.fleet.migration.plan import (
    PlanItem,
    PlannedCluster,
    PlannedOwner,
    PlanSpec,
    Verdict,
    assign_policies,
    in_order,
    new_plan,
    read_plan,
    write_plan,
)
from clusterspace.fleet.migration.progress import CHUNK, Chunk, Item, Tally
from clusterspace.fleet.migration.proof import compare
from clusterspace.fleet.migration.snapshots import Identities, Identity, Snapshot, encode

FEW, MANY = 600, 2400


def items(count: int) -> Iterator[PlanItem]:
    for number in reversed(range(count)):
        team, name = f"team-{number % 20}", f"app-{number}"
        yield PlanItem(
            api_version="apps/v1",
            kind="Deployment",
            namespace=team,
            name=name,
            take=True,
            verdict=Verdict.SAME,
            owner=PlannedOwner(kind="Helm", name=name, evidence="meta.helm.sh/release-name"),
            needs=(f"Namespace {team}", f"ConfigMap {team}/{name}", f"Secret {team}/{name}"),
            rank=4,
            resource="deployments",
            uid=f"uid-{number}",
            resource_version=str(number),
        )


def made_and_read(count: int, directory: Path) -> None:
    """Make a plan, write it, read it, and begin with it."""
    spec = PlanSpec(hub_uid="h", cluster=PlannedCluster(name="west", uid="w"), made_at="now")
    made = new_plan("west-1", spec, assign_policies(in_order(items(count)), "west-1"))
    file = directory / f"{count}.yaml"
    with file.open("w") as writing:
        writing.writelines(write_plan(made))
    with file.open("rb") as reading:
        read = read_plan(reading, "west.yaml")
    assert read.digest == made.digest
    assert read.takes == count


def carried(count: int, _directory: Path) -> None:
    """Go through the parts of a migration as apply and undo do."""
    policies, tally = CarriedItems(), Tally()
    every = assign_policies(in_order(items(count)), "west-1")
    chunk: list[Item] = []
    number = 0
    for each in every:
        chunk.append(Item(each))
        if len(chunk) == CHUNK:
            part = Chunk(number, chunk, [], "1")
            policies.note(part)
            tally.note(part)
            chunk, number = [], number + 1
    assert sum(len(policies.by(each)) for each in policies.policies) == count
    assert tally.counts.total() == count


def proved(count: int, _directory: Path) -> None:
    """Compare what runs with what ran, as `prove` does."""
    facts = {"container web": "containerd://0123456789abcdef", "restarts of web": "0"}

    def running() -> Snapshot:
        pods = (
            Identity("Pod", "shop", f"web-{number}", f"uid-{number}", facts=facts, info={"p": "R"})
            for number in range(count)
        )
        return Snapshot("west", "w", "ann", "then", "now", (), Identities(pods))

    assert compare(running(), running()).is_unchanged
    assert sum(1 for _ in encode(running())) > count


@pytest.mark.parametrize("work", [made_and_read, carried, proved])
def test_four_times_as_many_objects_take_no_more_memory(
    work: Callable[[int, Path], None], tmp_path: Path
) -> None:
    work(FEW, tmp_path)  # what is imported and remembered by then is not counted
    peaks: dict[int, int] = {}
    tracemalloc.start()
    try:
        for count in (FEW, MANY):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            work(count, tmp_path)
            peaks[count] = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()

    # As objects in memory they took more than a kilobyte each.
    assert peaks[MANY] - peaks[FEW] < 100 * (MANY - FEW), peaks
