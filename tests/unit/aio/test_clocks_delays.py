from itertools import islice
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from clusterspace.aio import clocks


def test_delays_double_up_to_the_longest():
    assert list(islice(clocks.exponential(1, 10), 6)) == [1, 2, 4, 8, 10, 10]


def test_delays_go_on_for_ever_without_overflow():
    assert next(islice(clocks.exponential(1, 30, factor=10), 5000, None)) == 30


@given(st.floats(0.001, 10), st.floats(0.001, 1000), st.floats(0, 1), st.integers())
def test_jitter_shortens_within_its_spread(first: float, longest: float, spread: float, seed: int):
    plain = islice(clocks.exponential(first, longest), 20)
    shaken = islice(clocks.jittered(first, longest, Random(seed), spread=spread), 20)

    for full, delay in zip(plain, shaken, strict=True):
        assert full * (1 - spread) * 0.999 <= delay <= full <= longest


def test_the_same_random_source_gives_the_same_delays():
    first, second = (list(islice(clocks.jittered(1, 60, Random(4)), 8)) for _ in range(2))

    assert first == second
    assert len(set(first)) == 8
