"""Taints and labels of a MemberCluster count for everybody who looks at its Cluster."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.component.invited_members import Invited, placed, work_for

from clusterspace.errors import Invalid
from clusterspace.fleet.membership.controller import CORDON, TaintEdit, edited_taints, with_taints
from clusterspace.kube.objects import Object, find_at, labels_of, with_metadata, with_value
from clusterspace.testing.stage import running_fleet
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

GPU: Object = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Invited]:
    async with running_fleet(tmp_path_factory.mktemp("fleet")) as running:
        invited = Invited(running)
        member = await running.add_member("west")
        await invited.invite()
        async with invited.controllers(), invited.agent(member):
            await invited.until_joined()
            yield invited


@pytest_asyncio.fixture(loop_scope="module")
async def joined(fleet: Invited) -> Invited:
    """Return a fleet whose cluster has no taints, whatever the test before left on it."""
    await taint(fleet)
    await fleet.change_cluster(lambda held: with_taints(held, []))
    await until_taints(fleet)
    return fleet


async def taints_of(invited: Invited) -> list[Object]:
    return find_at(await invited.fleet.cluster("west"), "spec", "taints") or []


async def until_taints(invited: Invited, *wanted: Object) -> None:
    async def are_so() -> bool:
        return await taints_of(invited) == list(wanted)

    await until(are_so)


async def taint(invited: Invited, *taints: Object) -> None:
    await invited.change(lambda held: with_value(held, list(taints), "spec", "taints"))


async def test_a_taint_comes_onto_the_cluster_and_goes_again(joined: Invited) -> None:
    await taint(joined, GPU)
    await until_taints(joined, GPU)
    await taint(joined)
    await until_taints(joined)


async def test_one_key_may_have_two_values_and_both_count(joined: Invited) -> None:
    other = {**GPU, "value": "new"}
    await taint(joined, GPU, other)
    await until_taints(joined, GPU, other)


async def test_taints_that_others_set_stay_when_ours_go(joined: Invited) -> None:
    cordoned = edited_taints([], TaintEdit(added=(CORDON,)))
    await joined.change_cluster(lambda held: with_taints(held, cordoned))
    await taint(joined, GPU)
    await until_taints(joined, CORDON.to_object(), GPU)
    await taint(joined)
    await until_taints(joined, CORDON.to_object())


async def test_a_mirrored_taint_that_somebody_removed_is_put_back(joined: Invited) -> None:
    await taint(joined, GPU)
    await until_taints(joined, GPU)
    await joined.change_cluster(lambda held: with_taints(held, []))
    await until_taints(joined, GPU)


async def test_a_taint_never_evicts_what_is_placed(joined: Invited) -> None:
    await joined.order(work_for("west", "kept"))
    await joined.until_placed("kept")
    await taint(joined, GPU)
    await until_taints(joined, GPU)
    assert await placed(joined, "west") == {"kept"}


async def test_labels_come_along_and_what_people_give_the_cluster_stays(joined: Invited) -> None:
    await joined.change_cluster(
        lambda held: with_metadata(held, labels={**labels_of(held), "by": "hand"})
    )

    async def until_labels(**wanted: str) -> None:
        async def are_so() -> bool:
            held = labels_of(await joined.fleet.cluster("west"))
            return {key: held[key] for key in held if "/" not in key} == wanted

        await until(are_so)

    await joined.change(lambda held: with_metadata(held, labels={"region": "eu"}))
    await until_labels(by="hand", region="eu")
    await joined.change(lambda held: with_metadata(held, labels={}))
    await until_labels(by="hand")


@pytest.mark.parametrize(
    ("taints", "complaint"),
    [
        ([{**GPU, "key": "-no-"}], "name part must consist of"),
        ([{**GPU, "value": "not valid!"}], "a valid label must be"),
        ([GPU, GPU], "Duplicate value"),
        ([{**GPU, "effect": "NoExecute"}], 'supported values: "NoSchedule"'),
    ],
    ids=["key", "value", "duplicate", "effect"],
)
async def test_a_taint_that_cannot_be_meant_is_refused(
    joined: Invited, taints: list[Object], complaint: str
) -> None:
    with pytest.raises(Invalid, match=complaint):
        await taint(joined, *taints)
