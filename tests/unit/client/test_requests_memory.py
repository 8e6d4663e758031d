"""How much memory answers may take together, and who pays when it is too much."""

import pytest

from clusterspace.client.requests import AnswerMemory
from clusterspace.errors import AnswerOverrun, ClusterError


def test_an_answer_over_its_own_limit_is_given_up_and_counts_no_more():
    memory = AnswerMemory(100)
    with memory.holding() as hold:
        reading = hold.read("west", 10)
        reading.write(b"x" * 10)

        with pytest.raises(AnswerOverrun, match="more than 10 bytes"):
            reading.write(b"x")

        assert memory.used == 0


def test_whole_answers_count_until_their_request_is_answered():
    memory = AnswerMemory(100)
    with memory.holding() as hold:
        reading = hold.read("west", 50)
        reading.write(b"abc")

        assert reading.whole() == b"abc"
        assert memory.used == 3

    assert memory.used == 0


@pytest.mark.parametrize(
    ("size", "count"), [(1, 5_000), (64 * 1024, 700), (3, 7), (40 * 1024 * 1024, 2), (0, 0)]
)
def test_an_answer_is_all_of_its_parts_however_many_and_large_they_are(size: int, count: int):
    parts = [bytes([65 + number % 26]) * size for number in range(count)]
    with AnswerMemory(2**30).holding() as hold:
        reading = hold.read("west", 2**30)
        for part in parts:
            reading.write(part)

        assert reading.whole() == b"".join(parts)


def test_when_there_is_no_room_the_largest_pays_and_the_others_go_on():
    memory = AnswerMemory(100)
    with memory.holding() as first, memory.holding() as second:
        endless, small = first.read("west", 1000), second.read("east", 1000)
        endless.write(b"x" * 90)
        small.write(b"y" * 20)

        assert memory.used == 20
        with pytest.raises(ClusterError, match="no room for its answer now"):
            endless.write(b"x")
        small.write(b"y" * 30)
        assert small.whole() == b"y" * 50


def test_what_is_whole_is_not_given_up_for_what_is_still_read():
    memory = AnswerMemory(100)
    with memory.holding() as hold:
        whole, late = hold.read("west", 1000), hold.read("east", 1000)
        whole.write(b"x" * 90)
        whole.whole()

        with pytest.raises(ClusterError):
            late.write(b"y" * 20)

        assert memory.used == 90


def test_what_somebody_else_holds_counts_as_long_as_it_is_held():
    memory = AnswerMemory(100)
    with memory.holding() as hold:
        line = hold.read("west", 1000)
        line.resize(60)
        line.resize(0)
        assert memory.used == 0

        with pytest.raises(ClusterError):
            line.resize(101)
        assert memory.used == 0


def test_one_user_has_half_of_the_room_and_others_the_rest():
    memory = AnswerMemory(100)
    with memory.holding("slow") as slow, memory.holding("other") as other:
        taken = slow.read("west", 1000)
        taken.write(b"x" * 50)
        taken.whole()  # and its client does not read it

        with pytest.raises(ClusterError, match="no room for its answer now"):
            slow.read("west", 1000).write(b"x")
        other.read("west", 1000).write(b"y" * 50)
        assert memory.used == 100

    assert memory.used == 0
