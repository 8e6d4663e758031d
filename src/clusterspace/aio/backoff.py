"""Jittered delays as plain iterators of seconds."""

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias

Delays: TypeAlias = Callable[[], Iterator[float]]
"""Starts a new series of delays; a series that ends means giving up."""


def exponential(first: float, longest: float, *, factor: float = 2.0) -> Iterator[float]:
    """Yield delays that grow by the factor, without end, and stay at the longest."""
    delay = min(first, longest)
    while True:
        yield delay
        delay = min(delay * factor, longest)


def jittered(
    first: float, longest: float, random: Random, *, factor: float = 2.0, spread: float = 0.5
) -> Iterator[float]:
    """Yield growing delays, each shortened by a random part of itself, at most `spread`.

    Those who failed together would otherwise come back together. Jitter only shortens, so
    `longest` is a promise.
    """
    for delay in exponential(first, longest, factor=factor):
        yield delay * (1 - spread * random.random())
