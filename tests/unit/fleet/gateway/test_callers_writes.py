"""What a caller has just written: known from before it is sent, forgotten soon, bounded."""

from clusterspace.fleet.gateway.callers import Writes, WrittenObject
from clusterspace.testing.clocks import ManualClock

WEB = WrittenObject("jane", "east", "deployments.apps", "shop", "web")


async def test_a_write_is_known_from_before_it_is_sent_and_for_a_while() -> None:
    clock = ManualClock()
    writes = Writes(clock)

    assert not writes.knows(WEB)
    with writes.writing(WEB):
        with writes.writing(WEB):
            assert writes.knows(WEB)
        await clock.advance(60)
        assert writes.knows(WEB), "it is still under way"
    await clock.advance(9)
    assert writes.knows(WEB)
    await clock.advance(2)
    assert not writes.knows(WEB)


def test_a_write_is_the_writers_own() -> None:
    writes = Writes(ManualClock())

    with writes.writing(WEB):
        pass

    for other in (
        WrittenObject("carl", "east", "deployments.apps", "shop", "web"),
        WrittenObject("jane", "west", "deployments.apps", "shop", "web"),
        WrittenObject("jane", "east", "deployments.apps", "shop", "api"),
        WrittenObject("jane", "east", "deployments.apps", "lab", "web"),
    ):
        assert not writes.knows(other)


def test_a_write_whose_name_the_cluster_finds_may_be_any() -> None:
    writes = Writes(ManualClock())

    with writes.writing(WrittenObject("jane", "east", "deployments.apps", "shop", "")):
        assert writes.knows(WEB)


def test_the_oldest_writes_go_first() -> None:
    writes = Writes(ManualClock(), most=2)
    names = ("a", "b", "c")
    written = [WrittenObject("jane", "east", "deployments.apps", "shop", name) for name in names]

    for each in written:
        with writes.writing(each):
            pass

    assert [writes.knows(each) for each in written] == [False, True, True]
