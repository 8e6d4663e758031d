"""How much begins before the loop looks at its sockets again, and whose it is."""

from collections import Counter
from collections.abc import Callable

from clusterspace.apiserver.http.fairness.turns import TURN_SECONDS, Turns


class Loop:
    """An event loop of which a test turns every turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        return self.now

    def soon(self, act: Callable[[], None]) -> None:
        self._ready.append(act)

    def turn(self, *, working: float = 0.0) -> None:
        """Run what was ready, of which the rest took so long."""
        self.now += working
        ready, self._ready = self._ready, []
        for act in ready:
            act()

    @property
    def is_idle(self) -> bool:
        return not self._ready


class Level:
    def __init__(self, name: str, waiting: int, weight: float, begun: list[str]) -> None:
        self.name = name
        self.waiting = waiting
        self.weight = weight
        self.progress = 0.0
        self._begun = begun

    def begin_next(self) -> bool:
        if not self.waiting:
            return False
        self.waiting -= 1
        self.progress += 1 / self.weight
        self._begun.append(self.name)
        return True


def test_what_is_ready_begins_for_so_long_and_no_longer() -> None:
    loop = Loop()
    turns = Turns(loop.monotonic, loop.soon)
    begun = 0
    while turns.take(loop.now):
        begun += 1
        loop.now += TURN_SECONDS / 4  # what began runs at once

    assert begun == 4
    loop.turn()
    assert turns.take(loop.now)


def test_an_idle_server_has_no_turns() -> None:
    loop = Loop()
    turns = Turns(loop.monotonic, loop.soon)

    assert turns.take(loop.now)
    loop.turn()

    assert loop.is_idle


def test_long_requests_begin_one_at_a_time_and_short_ones_many() -> None:
    loop, begun = Loop(), list[str]()
    turns = Turns(loop.monotonic, loop.soon)
    level = Level("lists", 50_000, 1, begun)
    turns.wait(level)

    def begun_in_a_turn(after: int, working: float) -> int:
        for _ in range(after):
            loop.turn(working=working)
        before = len(begun)
        loop.turn(working=working)
        return len(begun) - before

    assert begun_in_a_turn(12, 0.01) == 1
    assert begun_in_a_turn(12, 0.0001) > 20


def test_levels_that_wait_have_turns_by_their_seats() -> None:
    loop, begun = Loop(), list[str]()
    turns = Turns(loop.monotonic, loop.soon)
    for level in (Level("many", 10_000, 90, begun), Level("few", 10_000, 10, begun)):
        turns.wait(level)
    while len(begun) < 1000:
        loop.turn(working=0.003)

    counts = Counter(begun)
    assert 8 <= counts["many"] / counts["few"] <= 10


def test_a_level_that_comes_later_has_not_saved_turns_up() -> None:
    loop, begun = Loop(), list[str]()
    turns = Turns(loop.monotonic, loop.soon)
    turns.wait(Level("early", 10_000, 1, begun))
    while len(begun) < 200:
        loop.turn(working=0.003)
    begun.clear()
    turns.wait(Level("late", 10_000, 1, begun))
    while len(begun) < 100:
        loop.turn(working=0.003)

    assert 40 <= Counter(begun)["late"] <= 60


def test_a_level_without_seats_does_not_keep_the_loop_turning() -> None:
    loop, begun = Loop(), list[str]()
    turns = Turns(loop.monotonic, loop.soon)
    turns.wait(Level("full", 0, 1, begun))
    for _ in range(4):
        loop.turn()

    assert loop.is_idle
