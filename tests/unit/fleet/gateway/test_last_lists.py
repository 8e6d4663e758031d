"""What is kept of members' answers: for who was given them, within a bound, for a time."""

import pytest

from clusterspace.errors import ClusterTimeout
from clusterspace.fleet.gateway.last_lists import Caller, LastLists, Question, digest_of
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.merge.lists import ClusterList, ListMetadata
from clusterspace.fleet.gateway.routes import Naming
from clusterspace.testing.clocks import ManualClock

HOUR = 3600.0
NOW = ManualClock().monotonic()


def asked(
    user: str = "jane", resource: str = "pods", words: str = "all", cluster: str = "east"
) -> Question:
    return Question(Caller(cluster, digest_of([user]), "", resource), digest_of([words]))


def answered(version: str = "7", *, goes_on: str = "", size: int = 100) -> Reply:
    metadata = ListMetadata(version, goes_on)
    listed = ClusterList(Naming("east"), "PodList", "v1", metadata)
    return Reply("east", 200, {"warning": "old"}, b"x" * size, listed=listed)


async def test_an_answer_is_found_by_who_was_given_it_and_by_nobody_else():
    clock = ManualClock()
    last = LastLists(clock, 1 << 20, HOUR)
    last.note(asked(), "", answered(), NOW)
    await clock.advance(12)

    found = last.find(asked())

    assert found is not None
    assert (found.version, found.age) == ("7", 12)
    assert found.pages[0].reply.headers == {}
    others = (asked("carl"), asked(resource="nodes"), asked(words="web"), asked(cluster="west"))
    assert [last.find(each) for each in others] == [None] * 4


def test_a_refusal_takes_everything_of_the_kind_and_a_failure_nothing():
    last = LastLists(ManualClock(), 1 << 20, HOUR)
    for words in ("all", "web"):
        last.note(asked(words=words), "", answered(), NOW)
    last.note(asked("carl"), "", answered(), NOW)
    last.note(asked(), "", Reply("east", failure=ClusterTimeout("east", "late")), NOW)
    assert last.find(asked()) is not None

    last.note_refusal(asked().caller)

    assert [last.find(asked(words=each)) for each in ("all", "web")] == [None, None]
    assert last.find(asked("carl")) is not None


async def test_a_list_that_was_under_way_when_a_refusal_came_is_not_kept_behind_it():
    clock = ManualClock()
    last = LastLists(clock, 1 << 20, HOUR)
    await clock.advance(5)
    last.note_refusal(asked().caller)

    last.note(asked(), "", answered(), NOW + 4)

    assert last.find(asked()) is None
    await clock.advance(1)
    last.note(asked(), "", answered(), NOW + 5.5)
    assert last.find(asked()) is not None


async def test_a_slow_list_does_not_take_the_place_of_a_newer_one_and_a_restored_member_does():
    clock = ManualClock()
    last = LastLists(clock, 1 << 20, HOUR)
    await clock.advance(5)
    last.note(asked(), "", answered("70"), NOW + 4)

    last.note(asked(), "", answered("60"), NOW + 3)

    found = last.find(asked())
    assert found is not None
    assert (found.version, found.age) == ("70", 1)
    await clock.advance(5)
    last.note(asked(), "", answered("8"), NOW + 9)
    found = last.find(asked())
    assert found is not None
    assert found.version == "8"


def test_secrets_are_not_kept_nor_anything_where_it_is_off():
    last, off = LastLists(ManualClock(), 1 << 20, HOUR), LastLists(ManualClock(), 1 << 20, 0)
    last.note(asked(resource="secrets"), "", answered(), NOW)
    off.note(asked(), "", answered(), NOW)

    assert (last.used_bytes, off.used_bytes) == (0, 0)
    assert off.find(asked()) is None


async def test_nothing_is_shown_that_is_too_old_or_older_than_what_the_client_has():
    clock = ManualClock()
    last = LastLists(clock, 1 << 20, HOUR)
    last.note(asked(), "", answered("70"), NOW)

    assert last.find(asked(), wanted="9") is not None
    assert last.find(asked(), wanted="71") is None
    assert last.find(asked(), wanted="70", exactly=True) is not None
    assert last.find(asked(), wanted="69", exactly=True) is None
    await clock.advance(HOUR + 1)
    assert last.find(asked()) is None
    last.sweep({"east"})
    assert last.used_bytes == 0


def test_pages_follow_each_other_and_leave_together():
    last = LastLists(ManualClock(), 1 << 20, HOUR)
    last.note(asked(), "", answered(goes_on="a"), NOW)
    last.note(asked(), "a", answered(goes_on="b"), NOW)
    assert last.find(asked()) is None, "a part would pass for the whole"
    last.note(asked(), "b", answered(), NOW)
    found = last.find(asked())
    assert found is not None
    assert len(found.pages) == 3

    last.note(asked(), "", answered("8", size=10), NOW)

    found = last.find(asked())
    assert found is not None
    assert (len(found.pages), found.version) == (1, "8")
    assert last.used_bytes < 1000


def test_pages_that_lead_to_each_other_have_an_end():
    last = LastLists(ManualClock(), 1 << 20, HOUR)
    last.note(asked(), "", answered(goes_on="a"), NOW)
    last.note(asked(), "a", answered(goes_on="a"), NOW)

    assert last.find(asked()) is None


def test_who_has_most_makes_room_and_nothing_large_is_kept_at_all():
    last = LastLists(ManualClock(), 100_000, HOUR)
    last.note(asked("jane"), "", answered(size=20_000), NOW)
    for number in range(20):
        last.note(asked("greedy", resource=f"r{number}"), "", answered(size=20_000), NOW)

    assert last.used_bytes <= 100_000
    assert last.find(asked("jane")) is not None
    last.note(asked("jane"), "", answered(size=30_000), NOW)
    assert last.find(asked("jane")) is None  # what it was before is not what it was last


@pytest.mark.parametrize("members", [set[str](), {"west"}])
def test_a_cluster_that_left_is_forgotten(members: set[str]):
    last = LastLists(ManualClock(), 1 << 20, HOUR)
    last.note(asked(), "", answered(), NOW)

    last.sweep(members)

    assert last.used_bytes == 0
