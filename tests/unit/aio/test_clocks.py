import asyncio

from clusterspace.aio.clocks import Alarm, Clock, SystemClock
from clusterspace.testing.clocks import ManualClock


def test_the_system_clock_is_a_clock():
    clock: Clock = SystemClock()

    assert clock.now() > 1_500_000_000
    assert clock.monotonic() <= clock.monotonic()


async def test_sleeping_for_nothing_gives_others_a_turn():
    turns: list[str] = []

    async def take_turn() -> None:
        turns.append("other")

    async with asyncio.TaskGroup() as group:
        group.create_task(take_turn())
        await SystemClock().sleep(-1)
        turns.append("sleeper")
    assert turns == ["other", "sleeper"]


async def test_an_alarm_rings_once_at_its_time():
    clock = ManualClock()
    rung: list[float] = []
    alarm = Alarm(clock, lambda: rung.append(clock.monotonic()))

    alarm.set(5)
    await clock.advance(4.9)
    assert rung == []
    await clock.advance(20)
    assert rung == [5]


async def test_an_alarm_set_again_rings_at_the_new_time_only():
    clock = ManualClock()
    rung: list[float] = []
    alarm = Alarm(clock, lambda: rung.append(clock.monotonic()))

    alarm.set(5)
    alarm.set(2)
    await clock.advance(3)
    alarm.set(10)
    await clock.advance(20)

    assert rung == [2, 13]


async def test_a_cancelled_alarm_does_not_ring():
    clock = ManualClock()
    rung: list[float] = []
    alarm = Alarm(clock, lambda: rung.append(clock.monotonic()))

    alarm.set(1)
    alarm.cancel()
    alarm.cancel()
    await clock.advance(2)

    assert rung == []


async def test_an_alarm_may_be_set_again_by_what_it_calls():
    clock = ManualClock()
    rung: list[float] = []

    def ring() -> None:
        rung.append(clock.monotonic())
        alarm.set(1)

    alarm = Alarm(clock, ring)
    alarm.set(1)
    await clock.advance(3)
    alarm.cancel()

    assert rung == [1, 2, 3]
