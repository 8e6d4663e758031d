"""A hub that forgets the past, or with a planted bug: `python -m tests.robustness.hub_launcher`.

It takes the options of `clusterspace hub`, and before them `--forgetful` (the past is soon
compacted) and `--plant BUG`. What is changed is changed in this process, never in the product.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast

from tests.robustness.crash_writer import AnswersBeforeCommit

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver import feeds
from clusterspace.apiserver.feeds import Change, Feeds, Missed
from clusterspace.apiserver.store import sqlite
from clusterspace.apiserver.store.commits import Submission, decide_batch
from clusterspace.apiserver.store.interface import Event, Revision
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.cli.main import main
from clusterspace.roots import hub_state, stores

FORGETS_AFTER = 0.3


async def forget_the_past(store: SqliteStore, clock: Clock, _policy: object) -> None:
    """Forget, under load, everything from before this hub: what it does itself stays known."""
    started = store.history.newest
    await clock.sleep(FORGETS_AFTER)
    await store.compact(started)
    await asyncio.Event().wait()


class DropsEvents(feeds._Feed):
    """A planted bug: one change in fifty reaches no watcher."""

    one_in = 50

    def receive(self, events: tuple[Event, ...]) -> None:
        super().receive(tuple(event for event in events if event.revision % self.one_in))


class DropsFewEvents(DropsEvents):
    """The same bug, ten times as rare."""

    one_in = 500


class ResumesLate(Feeds):
    """A planted bug: a watch that resumes misses the first change since its place."""

    def missed(self, prefix: str, after: Revision) -> Missed:
        found = super().missed(prefix, after)
        return Missed(found.changes[1:], found.upto)


class TellsTheNewState(Change):
    """A planted bug: what left is shown as it is now, not as it last was."""

    def _shown(self, kind: str) -> Any:
        return self.event.previous if self.event.is_delete else self.event.item


class AnswersEarly(AnswersBeforeCommit):
    """The store's planted bug, for a store whose writes are refused now and then."""

    def _commit(self, batch: list[Submission]) -> None:
        verdicts = decide_batch(batch, self._heads, self._file.state.revision)
        commits = any(isinstance(each.outcome, Event) for each in verdicts)
        (super()._commit if commits else super(AnswersBeforeCommit, self)._commit)(batch)


def answer_before_commit() -> None:
    sqlite.GroupCommit = AnswersEarly


def drop_events() -> None:
    feeds._Feed = DropsEvents


def drop_few_events() -> None:
    feeds._Feed = DropsFewEvents


def resume_late() -> None:
    cast("Any", hub_state).Feeds = ResumesLate


def tell_the_new_state() -> None:
    cast("Any", feeds).Change = TellsTheNewState


PLANTS: dict[str, Callable[[], None]] = {
    "answer-before-commit": answer_before_commit,
    "drop-events": drop_events,
    "drop-few-events": drop_few_events,
    "resume-late": resume_late,
    "tell-the-new-state": tell_the_new_state,
}


def launch() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--forgetful", action="store_true")
    parser.add_argument("--plant", choices=PLANTS)
    chosen, options = parser.parse_known_args()
    if chosen.forgetful:
        cast("Any", stores).compact_forever = forget_the_past
    if chosen.plant:
        PLANTS[chosen.plant]()
    sys.argv = ["clusterspace", "hub", *options]
    main()


if __name__ == "__main__":
    launch()
