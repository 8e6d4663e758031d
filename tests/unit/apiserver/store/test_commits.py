import asyncio

from clusterspace.apiserver.store.commits import Submission, decide_batch
from clusterspace.apiserver.store.index import Delete, Put, Write
from clusterspace.apiserver.store.interface import ABSENT, Event, KeyValue, Revision
from clusterspace.errors import RevisionMismatch

HELD = KeyValue("/a", b"old", Revision(2), Revision(5))


async def outcomes(*writes: Write) -> list[Event | str]:
    """Decide writes as one batch on a store at revision 9 that holds /a."""
    loop = asyncio.get_running_loop()
    submissions = [Submission(write, loop.create_future()) for write in writes]
    verdicts = decide_batch(submissions, {"/a": HELD}, Revision(9))
    assert [verdict.submission for verdict in verdicts] == submissions
    return [
        verdict.outcome if isinstance(verdict.outcome, Event) else type(verdict.outcome).__name__
        for verdict in verdicts
    ]


async def test_later_writes_of_a_batch_see_the_earlier_ones() -> None:
    first, second, third = await outcomes(
        Put("/a", b"1", Revision(5)),
        Delete("/a", Revision(10)),
        Put("/a", b"2", ABSENT),
    )
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert isinstance(third, Event)
    assert second.previous == first.item
    assert (third.is_create, third.revision) == (True, 12)


async def test_a_lost_comparison_costs_the_others_nothing_not_even_a_revision() -> None:
    lost, won, lost_too = await outcomes(
        Put("/a", b"", ABSENT), Put("/b", b"", ABSENT), Put("/b", b"", ABSENT)
    )
    assert lost == lost_too == RevisionMismatch.__name__
    assert isinstance(won, Event)
    assert won.revision == 10
