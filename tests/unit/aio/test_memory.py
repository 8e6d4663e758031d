from clusterspace.aio.memory import AGAIN_SECONDS, RESERVE_BYTES, Burst

MIB = 1024 * 1024


def test_memory_is_given_back_once_a_burst_has_stopped_growing() -> None:
    burst = Burst(smallest=80 * MIB, previous=80 * MIB)

    assert not burst.is_over(300 * MIB, 5.0)
    assert burst.is_over(302 * MIB, 10.0)


def test_a_process_that_did_not_grow_is_left_alone() -> None:
    burst = Burst(smallest=80 * MIB, previous=80 * MIB)

    assert not any(burst.is_over(80 * MIB + RESERVE_BYTES // 2, 5.0 * n) for n in range(100))


def test_what_was_still_in_use_is_tried_again_later_and_not_at_every_look() -> None:
    burst = Burst(smallest=80 * MIB, previous=200 * MIB)
    assert burst.is_over(200 * MIB, 0.0)
    burst.end(190 * MIB, 0.0)

    assert not burst.is_over(190 * MIB, 5.0)
    assert burst.is_over(190 * MIB, AGAIN_SECONDS)
