"""Seats are taken in a fair order, whatever one flow brings."""

from itertools import combinations

import pytest
from tests.unit.apiserver.http.fairness.levels import Stage

from clusterspace.apiserver.http.fairness.fair_queues import ONE_SEAT, Queuing, Ticket, Width, deal


def begun(tickets: list[Ticket | None]) -> list[bool]:
    return [ticket is not None and ticket.has_begun for ticket in tickets]


def test_requests_begin_at_once_while_there_are_seats() -> None:
    stage = Stage(3)

    tickets = [stage.ask("jane") for _ in range(4)]

    assert begun(tickets) == [True, True, True, False]
    assert (stage.level.seats_in_use, stage.level.waiting) == (3, 1)


def test_who_comes_last_is_next_when_the_others_are_one_flow() -> None:
    stage = Stage(1)
    first = stage.ask("flood")
    flood = [stage.ask("flood") for _ in range(40)]
    stage.time.pass_(0.5)
    jane = stage.ask("jane")
    stage.time.pass_(0.5)
    assert first is not None
    assert jane is not None

    stage.level.finish(first)

    assert jane.has_begun
    assert not any(begun(flood))


def test_what_a_flood_gets_back_for_being_quick_is_not_held_against_others() -> None:
    stage = Stage(16)
    tickets = [stage.ask("flood") for _ in range(250)]
    for at in range(0, 160, 16):
        stage.time.pass_(0.0002)  # far less than is guessed
        for ticket in tickets[at : at + 16]:
            assert ticket is not None
            stage.level.finish(next(each for each in tickets if each and is_served(each)))
    jane = stage.ask("jane")
    assert jane is not None
    assert not jane.has_begun

    stage.level.finish(next(each for each in tickets if each and is_served(each)))

    assert jane.has_begun


def is_served(ticket: Ticket) -> bool:
    return ticket.queue is not None and ticket in ticket.queue.executing


@pytest.mark.parametrize("flood", [10, 100, 290])
def test_a_flood_leaves_another_half_however_many_queues_it_fills(flood: int) -> None:
    stage = Stage(10)

    served = stage.serve({"flood": (flood, 0.01, ONE_SEAT), "jane": (10, 0.01, ONE_SEAT)}, 4)

    most = 10 * 4 * 100
    assert served["jane"] + served["flood"] >= most * 0.99
    assert served["jane"] >= most * 0.45


def test_who_asks_for_little_has_it_all_beside_a_flood() -> None:
    stage = Stage(10)

    served = stage.serve({"flood": (200, 0.01, ONE_SEAT), "jane": (1, 0.01, ONE_SEAT)}, 4)

    # Alone it would be 400; each waits for the first of ten seats to be free, 0.01 s at most.
    assert served["jane"] >= 190


def test_parts_are_of_seats_and_time_not_of_requests() -> None:
    stage = Stage(10, queues=64, hand=1)
    clients = {
        "wide": (20, 0.1, Width(5)),
        "long": (20, 0.5, ONE_SEAT),
        "short": (20, 0.01, ONE_SEAT),
    }

    served = stage.serve(clients, 20)

    work = {
        "wide": served["wide"] * 0.5,
        "long": served["long"] * 0.5,
        "short": served["short"] * 0.01,
    }
    assert max(work.values()) <= 1.3 * min(work.values()), work


def test_nobody_starves_behind_a_steady_stream_of_others() -> None:
    stage = Stage(2)
    others = {f"user-{number}": (3, 0.02, ONE_SEAT) for number in range(40)}

    served = stage.serve({**others, "jane": (1, 0.02, ONE_SEAT)}, 20)

    assert served["jane"] >= 0.5 * 20 / 0.02 * 2 / 41


def test_a_wide_request_gets_its_seats_although_narrow_ones_keep_coming() -> None:
    stage = Stage(10)

    served = stage.serve({"narrow": (50, 0.01, ONE_SEAT), "wide": (1, 0.01, Width(10))}, 2)

    assert served["wide"] >= 10


def test_one_that_is_wider_than_the_level_is_served_alone() -> None:
    stage = Stage(4)
    running = stage.ask("jane")
    wide = stage.ask("carl", Width(9))
    assert running is not None
    assert wide is not None
    assert not wide.has_begun

    stage.level.finish(running)

    assert wide.has_begun
    assert begun([stage.ask("jane")]) == [False]


def test_a_level_without_seats_serves_nobody_but_one_at_a_time_without_queues() -> None:
    stage = Stage(0)

    assert begun([stage.ask("jane")]) == [False]
    stage.level.configure(None)
    assert begun([stage.ask("jane"), stage.ask("jane")]) == [True, False]


def test_who_was_idle_has_not_saved_up() -> None:
    stage = Stage(1, hand=1)
    stage.serve({"busy": (5, 0.01, ONE_SEAT)}, 20)

    rested = stage.serve({"rested": (5, 0.01, ONE_SEAT)}, 10)

    assert rested["rested"] <= 0.55 * 10 / 0.01


def test_queues_that_are_full_refuse_and_say_why() -> None:
    stage = Stage(1, queues=8, hand=2, length=3)
    stage.ask("jane")

    waiting = [stage.ask("jane") for _ in range(8)]

    assert [ticket is not None for ticket in waiting] == [True] * 6 + [False] * 2
    assert stage.tally.rejected == {"queue-full": 2}
    assert stage.ask("carl") is not None


def test_without_queues_what_has_no_seat_is_refused() -> None:
    stage = Stage(2)
    stage.level.configure(None)

    assert [stage.ask("jane") is not None for _ in range(3)] == [True, True, False]
    assert stage.tally.rejected == {"concurrency-limit": 1}


def test_an_exempt_level_has_no_limit() -> None:
    stage = Stage(0)
    stage.level.configure(None, is_exempt=True)

    assert begun([stage.ask("root", Width(10)) for _ in range(100)]) == [True] * 100


def test_one_flow_has_no_more_than_its_share_and_others_pass_it() -> None:
    stage = Stage(10, share=2)

    jane = [stage.ask("jane") for _ in range(12)]
    carl = [stage.ask("carl") for _ in range(5)]

    assert sum(begun(jane)) == 5
    assert sum(begun(carl)) == 5
    assert jane[0] is not None
    stage.level.finish(jane[0])
    assert sum(begun(jane)) == 6


def test_one_flow_has_no_more_than_the_server_can_use() -> None:
    stage = Stage(100, share=2, most_per_flow=8)

    assert sum(begun([stage.ask("jane") for _ in range(20)])) == 8


def test_beside_others_one_flow_has_no_more_than_may_become_ready_at_once() -> None:
    stage = Stage(100, share=2, most_per_flow=8)
    jane = stage.ask("jane")
    assert jane is not None
    stage.level.finish(jane)
    flood = [stage.ask("flood") for _ in range(20)]
    assert sum(begun(flood)) == 2

    stage.time.pass_(2)  # jane is not heard of again
    assert flood[0] is not None
    stage.level.finish(flood[0])

    assert sum(begun(flood)) == 9


def test_controllers_share_commits_also_beside_others() -> None:
    stage = Stage(100, share=2, most_per_flow=8, beside_others=4)
    stage.ask("jane")

    assert sum(begun([stage.ask("controllers") for _ in range(20)])) == 4


def test_who_writes_one_thing_after_the_other_does_not_wait_for_what_the_last_one_costs() -> None:
    stage = Stage(100, share=2, most_per_flow=16, beside_others=4)
    stage.ask("carl")
    write = stage.ask("jane", Width(1, 10, 0.1))
    assert write is not None
    stage.level.finish(write)
    assert stage.flow("jane").seats == 10

    read = stage.ask("jane")

    assert read is not None
    assert read.has_begun
    # Half of the level is the bound all the same: others must find seats.
    more = [stage.ask("jane", Width(1, 10, 0.1)) for _ in range(4)]
    assert sum(begun(more)) == 3


def test_seats_after_a_write_are_kept_while_its_watchers_are_told() -> None:
    stage = Stage(5)
    write = stage.ask("jane", Width(1, 5, 0.1))
    waiting = stage.ask("carl")
    assert write is not None
    assert waiting is not None

    stage.level.finish(write)
    assert (stage.level.executing, stage.level.seats_in_use) == (0, 5)
    assert not waiting.has_begun
    stage.time.pass_(0.1)

    assert waiting.has_begun
    assert stage.level.seats_in_use == 1


def test_whoever_waits_no_longer_is_out_of_every_count() -> None:
    stage = Stage(1)
    running = stage.ask("jane")
    late, gone, last = (stage.ask("jane", Width(3)) for _ in range(3))
    assert running is not None
    assert late is not None
    assert gone is not None
    assert last is not None

    stage.level.leave(late, is_late=True)
    stage.level.leave(gone, is_late=False)
    stage.level.finish(running)

    assert last.has_begun
    stage.level.finish(last)
    assert (stage.level.waiting, stage.level.seats_waiting, stage.level.seats_in_use) == (0, 0, 0)
    assert (stage.level.timed_out, stage.level.cancelled) == (1, 1)
    assert stage.tally.rejected == {"time-out": 1, "cancelled": 1}
    assert (stage.tally.waiting, stage.tally.executing, stage.tally.executing_seats) == (0, 0, 0)


def test_fewer_queues_serve_out_who_is_in_the_others() -> None:
    stage = Stage(1, queues=64, hand=1)
    running = stage.ask("jane")
    waiting = [stage.ask(f"user-{number}") for number in range(30)]
    assert running is not None

    stage.level.configure(Queuing(1, 1, 50))
    stage.level.finish(running)
    for _ in range(30):
        for ticket in waiting:
            if ticket is not None and ticket.has_begun and ticket.began >= 0:
                ticket.began = -1.0
                stage.level.finish(ticket)

    assert all(begun(waiting))
    assert stage.level.is_idle
    stage.level.configure(Queuing(1, 1, 50))
    assert set(stage.level.queues) <= {0}


# -- shuffle sharding ------------------------------------------------------------------------------


def test_a_hand_has_different_queues_and_is_always_the_same() -> None:
    hands = [deal(f"user-{number}", 128, 6) for number in range(500)]

    assert all(len(set(hand)) == 6 and set(hand) <= set(range(128)) for hand in hands)
    assert hands == [deal(f"user-{number}", 128, 6) for number in range(500)]


def test_hands_are_spread_over_all_queues() -> None:
    dealt = [index for number in range(2000) for index in deal(f"user-{number}", 128, 6)]

    counts = [dealt.count(index) for index in range(128)]
    assert min(counts) > 50
    assert max(counts) < 150


def test_two_flows_nearly_never_share_all_their_queues() -> None:
    hands = [frozenset(deal(f"user-{number}", 128, 6)) for number in range(200)]

    shared = [len(one & other) for one, other in combinations(hands, 2)]
    assert max(shared) < 6
    assert sum(count > 2 for count in shared) < 0.01 * len(shared)


def test_a_flow_beside_one_that_fills_its_queues_is_not_refused() -> None:
    stage = Stage(1, queues=64, hand=8, length=10)
    while stage.ask("flood") is not None:
        pass

    refused = sum(stage.ask(f"user-{number}") is None for number in range(100))

    assert refused == 0
