"""Lists and watches of a fleet that is written and broken all the time show what is there.

And to nobody who may not see it. Writers change objects at members and through the gateway. Readers
list, whole, selected, sorted, as Tables, from any version, at one and in pages, and watch from
there. Connections break, members refuse, are slow, go away and forget, the gateway is started anew,
with what it kept last or a while ago, what it keeps is forgotten, and rights come and go. In the
end all that was shown is held against each member's own log. The seed decides everything but the
scheduler; a failure prints it.
"""

import asyncio
import itertools
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.robustness.list_judge import JANE, ROOT
from tests.robustness.listed_fleet import TROUBLES, ListedFleet, listed_fleet

from clusterspace.fleet.gateway import fanout, object_cache, shared_watches, warm_files
from clusterspace.fleet.gateway.answers import known_lists, list_all, reviews
from clusterspace.fleet.gateway.answers.known_lists import ListQuestion
from clusterspace.fleet.gateway.answers.list_all import PagePlan, Stop
from clusterspace.fleet.gateway.fanout import FleetContext
from clusterspace.fleet.gateway.last_lists import LastLists, Question
from clusterspace.fleet.gateway.merge import failures
from clusterspace.fleet.gateway.object_cache import ObjectCache
from clusterspace.fleet.gateway.object_texts import Text
from clusterspace.fleet.gateway.shared_watches import SharedWatch, Subscription, WatchKey
from clusterspace.testing.steps import until


@dataclass(frozen=True)
class Run:
    """How much is done."""

    members: int
    lists: int
    readers: int = 3
    watchers: int = 4
    pause: float = 0.1
    """At most so long after each write of each writer."""
    flips: int = 0
    """At least so often rights are given or taken."""


def new_seed() -> int:
    return int(os.environ.get("CLUSTERSPACE_CRASH_SEED", random.randrange(2**32)))


@pytest.fixture(autouse=True)
def _whatever_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every list that can be put together from what is known be put together."""
    monkeypatch.setattr(object_cache, "_WORTHWHILE", float("inf"))
    monkeypatch.setattr(object_cache, "_LEAST_BYTES", 0)
    monkeypatch.setattr(object_cache, "_MOST_SKIPPED", 1)
    # In both forms, one after the other: our own hubs would soon be asked for JSON alone.
    forms = itertools.cycle((True, False))
    monkeypatch.setattr(ObjectCache, "takes_protobuf", lambda *_: next(forms))
    # ConfigMaps are not written to disk otherwise; what is, is to be put to the test.
    monkeypatch.setattr(warm_files, "_NEVER_WRITTEN", frozenset[tuple[str, str]]())
    # A right that is taken away counts at once for who would join a watch.
    monkeypatch.setattr(shared_watches, "REVIEWED_SECONDS", 0.0)


async def play(directory: Path, run: Run, seed: int, *, calm: bool = False) -> ListedFleet:
    """Carry out a run; return the fleet as it was in the end, with all that was shown."""
    async with listed_fleet(directory, run.members) as fleet:
        members = list(fleet.members.values())
        recorders = [asyncio.create_task(each.record()) for each in members]
        recorders.append(asyncio.create_task(fleet.note_stalls()))

        def is_done() -> bool:
            is_flipped = calm or fleet.troubles.get("flip", 0) >= run.flips
            return len(fleet.shown) >= run.lists and is_flipped

        async def again(what: Callable[[random.Random], Awaitable[None]], number: int) -> None:
            chance = random.Random(seed * 31 + number)
            while not is_done():
                await what(chance)
                await asyncio.sleep(run.pause * chance.random())

        async def again_as(
            what: Callable[[random.Random, str], Awaitable[None]], number: int
        ) -> None:
            chance = random.Random(seed * 37 + number)
            while not is_done():
                await what(chance, (ROOT, JANE)[number % 2])

        async def rage(chance: random.Random) -> None:
            await asyncio.sleep(0.1)
            await fleet.break_something(chance)

        async with asyncio.TaskGroup() as group:
            for number, member in enumerate(members):
                group.create_task(again(member.write, number))
            group.create_task(again(fleet.write_and_read, 100))
            group.create_task(again(fleet.write_and_read, 101))
            for number in range(run.readers):
                group.create_task(again_as(fleet.read, number))
            for number in range(run.watchers):
                group.create_task(again_as(fleet.watch, number))
            if not calm:
                group.create_task(again(rage, 102))
        for member in members:
            member.proxy.heal()
            await until_recorded(member)
        for task in recorders:
            task.cancel()
        await asyncio.wait(recorders)
        return fleet


async def until_recorded(member: Any) -> None:
    """Wait until a last change, which follows all others, is in the log."""
    chance = random.Random(1)
    before = len(member.log.changes)
    await member.write(chance)

    async def is_there() -> bool:
        log = member.log
        promised = max(each.revision for each in log.promises)
        deleted = {each.deleted for each in log.promises if each.deleted}
        is_newest = len(log.changes) > before and log.changes[-1].revision >= promised
        return is_newest and deleted <= {each.uid for each in log.changes if each.value is None}

    await until(is_there)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the lists that were put together, object by object."""
    found: list[int] = []
    texts = ObjectCache.texts

    def counted(cache: ObjectCache, *given: Any) -> list[Text | None]:
        result = texts(cache, *given)
        found.append(sum(each is not None for each in result))
        return result

    monkeypatch.setattr(ObjectCache, "texts", counted)
    return found


async def test_what_is_shown_is_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seed = new_seed()
    print(f"seed {seed}")
    known = counting(monkeypatch)

    fleet = await play(tmp_path, Run(3, 120), seed)

    assert fleet.problems()[:3] == []
    assert sum(known) > 100  # else nothing was put to the test
    assert any(shown.who == JANE for shown in fleet.shown)
    assert any(shown.order for shown in fleet.shown)
    assert sum(len(told.segment.events) for told in fleet.told) > 100
    assert fleet.troubles


@pytest.mark.slow
async def test_ten_members_for_a_long_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seed = new_seed()
    print(f"seed {seed}")
    known = counting(monkeypatch)

    fleet = await play(tmp_path, Run(10, 5_000, 6), seed)

    print(len(fleet.shown), sum(known), fleet.troubles)
    assert fleet.problems()[:3] == []
    assert fleet.troubles.keys() == TROUBLES.keys()


# -- bugs that must be found -----------------------------------------------------------------------


class _Named(msgspec.Struct):
    uid: str = ""


def forget_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object is taken for what it was, whatever its version."""

    def digest_of(metadata: Any) -> bytes:
        return msgspec.json.decode(metadata or b"{}", type=_Named).uid.encode()

    monkeypatch.setattr(known_lists, "digest_of", digest_of)


def remember_the_answer(monkeypatch: pytest.MonkeyPatch, *, of_each_user: bool) -> None:
    """What a member named a moment ago is not asked for again."""
    remembered: dict[Any, Any] = {}
    uses: dict[Any, int] = {}
    ask_one = fanout.ask_one

    async def ask(link: Any, make_request: Any) -> Any:
        request = make_request(link)
        if not any("PartialObjectMetadataList" in value for _, value in request.headers):
            return await ask_one(link, make_request)
        user = [pair for pair in request.headers if pair[0].lower().startswith("impersonate")]
        key = (link.cluster, request.query, *(map(tuple, user) if of_each_user else ()))
        if key not in remembered or uses[key] > 5 or remembered[key].failure is not None:
            remembered[key], uses[key] = await ask_one(link, make_request), 0
        uses[key] += 1
        return remembered[key]

    patched = SimpleNamespace(**{**vars(fanout), "ask_one": ask})
    monkeypatch.setattr(known_lists, "fanout", patched)


def remember_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_the_answer(monkeypatch, of_each_user=False)


def remember_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_the_answer(monkeypatch, of_each_user=True)


def leave_out_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is not known is left out instead of read."""
    texts = ObjectCache.texts

    def known(cache: ObjectCache, *given: Any) -> list[Text]:
        return [each for each in texts(cache, *given) if each is not None]

    monkeypatch.setattr(ObjectCache, "texts", known)


def take_what_is_there_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that has changed once more is shown as it is now, in a list of before."""
    original = known_lists.digest_of

    class Same(bytes):
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        def __hash__(self) -> int:
            return super().__hash__()

    async def late(self: Any, named: Any, texts: Any, missing: Any) -> None:
        await asyncio.sleep(0.02)  # long enough for a write
        await fetch(self, named, texts, missing)

    fetch = known_lists._ConditionalList._fetch
    # Digests of this kind cannot be written down.
    monkeypatch.setattr(warm_files, "_NEVER_WRITTEN", frozenset({("", "configmaps")}))
    monkeypatch.setattr(known_lists, "digest_of", lambda text: Same(original(text)))
    monkeypatch.setattr(known_lists._ConditionalList, "_fetch", late)


def share_with_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who watches the same has a part in the same watch, whoever it is."""
    of = WatchKey.of

    def nobodys(*given: Any) -> WatchKey:
        return replace(of(*given), headers=())

    monkeypatch.setattr(WatchKey, "of", nobodys)
    monkeypatch.setattr(shared_watches, "REVIEWED_SECONDS", float("inf"))


def review_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that was allowed once may be joined for as long as it is open."""
    monkeypatch.setattr(shared_watches, "REVIEWED_SECONDS", float("inf"))


def keep_nothing_for_who_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who joins is told what comes from then on, wherever it had come to."""
    monkeypatch.setattr(SharedWatch, "covers", lambda *_: True)
    monkeypatch.setattr(SharedWatch, "_keep", lambda *_: None)


def repeat_what_was_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has listed what a watch has not come to is told of it all the same."""
    subscribe, lines_of = SharedWatch.subscribe, shared_watches.lines_of

    def forgetful(watch: SharedWatch, version: str) -> Subscription:
        subscription = subscribe(watch, version)
        watch._ahead.clear()
        return subscription

    async def late(*given: Any) -> AsyncGenerator[list[bytes]]:
        async for lines in lines_of(*given):
            await asyncio.sleep(0.1)  # long enough for a list
            yield lines

    monkeypatch.setattr(SharedWatch, "subscribe", forgetful)
    monkeypatch.setattr(shared_watches, "lines_of", late)


def lose_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client for whom much waits is told of it without some of it."""
    put = Subscription.put

    def put_some(subscription: Subscription, event: Any, size: int) -> None:
        if len(subscription._waiting) < 1 or event.change is None:
            put(subscription, event, size)

    monkeypatch.setattr(Subscription, "put", put_some)


def recall_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one user was shown of a member that is away, all are."""
    question_to = FleetContext.question_to

    def nobodys(context: FleetContext, *given: Any) -> Question | None:
        asked = question_to(context, *given)
        return asked and Question(asked.caller._replace(identity=b""), asked.words)

    monkeypatch.setattr(FleetContext, "question_to", nobodys)


def recall_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a member was before it went away is shown as what it is."""
    monkeypatch.setattr(failures, "shown_as_they_were", lambda _: "all is well")


def tell_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one user was told, all are who say that any state will do."""
    asked = ListQuestion.asked

    def nobodys(question: ListQuestion, cluster: str) -> tuple[Any, ...]:
        member, _, words = cast("tuple[Any, ...]", asked(question, cluster))
        return (member, words)

    async def is_allowed(*_: Any) -> bool:
        return True

    monkeypatch.setattr(ListQuestion, "asked", nobodys)
    monkeypatch.setattr(reviews, "may", is_allowed)


def lose_what_does_not_fit_of_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for who has a right in some members only, and now and then."""
    put = Subscription.put

    def put_some(subscription: Subscription, event: Any, size: int) -> None:
        of_jane = any(value == "jane" for _, value in subscription._watch.key.headers)
        if not of_jane or not subscription._waiting or event.change is None:
            put(subscription, event, size)

    monkeypatch.setattr(Subscription, "put", put_some)


def recall_what_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user was shown of a member stays shown while it is away, refused since or not."""
    monkeypatch.setattr(LastLists, "note_refusal", lambda *_: None)


def recall_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown of a member that is away is the oldest that is known, not the newest."""
    note = LastLists.note

    def note_once(
        kept: LastLists, question: Question, token: str, reply: Any, asked_at: float
    ) -> None:
        if reply.failure is not None or kept.find(question) is None:
            note(kept, question, token, reply, asked_at)

    monkeypatch.setattr(LastLists, "note", note_once)


def misstate_the_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown of a member that is away is another age than it says."""
    monkeypatch.setattr(list_all, "written_age", lambda seconds: f"{int(seconds) + 60}s")


def take_any_state_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says that any state will do is shown the first one for ever."""
    find_list, note_list = ObjectCache.find_list, ObjectCache.note_list

    def note_once(cache: ObjectCache, key: Any, asked: Any, listed: Any) -> None:
        if find_list(cache, key, asked) is None:
            note_list(cache, key, asked, listed)

    def found_now(cache: ObjectCache, *given: Any) -> Any:
        known = find_list(cache, *given)
        if known is not None:
            known.read_at = cache.clock.monotonic()
        return known

    monkeypatch.setattr(ObjectCache, "find_list", found_now)
    monkeypatch.setattr(ObjectCache, "note_list", note_once)


def lose_the_rest_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that ends within a cluster is followed by one that begins with the next."""
    plan_page = list_all.plan_page

    def plan(lists: Any, room: int, *, is_fresh: bool) -> PagePlan:
        planned = plan_page(lists, room, is_fresh=is_fresh)
        clusters = [each.cluster for each in lists]
        if planned.stop is None or not planned.stop.token:
            return planned
        behind = clusters[clusters.index(planned.stop.cluster) + 1 :]
        return replace(planned, stop=Stop(behind[0]) if behind else None)

    monkeypatch.setattr(list_all, "plan_page", plan)


def sort_each_cluster_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in order within each run of a cluster's objects is taken to be in order."""
    sorted_page = list_all.sorted_page

    def by_cluster(*given: Any) -> list[Any]:
        return sorted(sorted_page(*given), key=lambda each: each.cluster)

    monkeypatch.setattr(list_all, "sorted_page", by_cluster)


def mix_up_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart each object is taken for the one that was read next to it."""
    restored = warm_files._restored

    def mixed_up(*given: Any, **named: Any) -> list[Any]:
        found: list[Any] = []
        for kind, texts in restored(*given, **named):
            shifted = [*list(texts.values())[1:], *list(texts.values())[:1]]
            pairs = dict(zip(texts, shifted, strict=True))
            found.append(warm_files._Restored(kind, pairs))
        return found

    monkeypatch.setattr(warm_files, "_restored", mixed_up)


def show_the_present_for_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for one version exactly is shown that or a later one."""
    added_to = list_all.Slice.added_to

    def or_later(wanted: list_all.Slice, query: Any) -> Any:
        match = list_all.NOT_OLDER if wanted.match == list_all.EXACT else wanted.match
        return added_to(replace(wanted, match=match), query)

    monkeypatch.setattr(list_all.Slice, "added_to", or_later)


@pytest.mark.slow
@pytest.mark.usefixtures("logged_errors")
@pytest.mark.parametrize(
    ("plant", "watchers", "complaint"),
    [
        (share_with_everybody, 4, "without a right to"),
        (review_nobody, 4, "without a right to"),
        (keep_nothing_for_who_comes_late, 4, "its log has|promises"),
        (repeat_what_was_listed, 4, "its log has|promises|goes back"),
        (lose_what_does_not_fit, 4, "its log has|promises"),
        (forget_the_version, 0, "not as it was|instead of"),
        (remember_for_all, 0, "without a right to|promised"),
        (remember_for_each, 0, "promised"),
        (leave_out_what_is_new, 0, "instead of"),
        (take_what_is_there_now, 0, "instead of"),
        (recall_for_everybody, 0, "never shown to them"),
        (recall_without_a_word, 0, "promised|without a right to"),
        (tell_everybody, 0, "without a right to|never shown to them"),
        (lose_what_does_not_fit_of_one_user, 6, "its log has|promises"),
        (recall_what_was_refused, 0, "before they were refused"),
        (recall_the_first, 0, "was seen"),
        (misstate_the_age, 0, "was not then"),
        (take_any_state_for_new, 0, "never shown to them"),
        (lose_the_rest_of_a_cluster, 0, "instead of any state"),
        (sort_each_cluster_alone, 0, "not in their order"),
        (mix_up_what_was_kept, 0, "not as it was|instead of|shown twice"),
        (show_the_present_for_the_past, 0, "was asked for|instead of"),
    ],
)
async def test_a_planted_bug_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    watchers: int,
    complaint: str,
):
    plant(monkeypatch)
    readers, lists = (3, 200) if watchers else (4, 300)

    run = Run(3, lists, readers, watchers, pause=0.03, flips=30)
    fleet = await play(tmp_path, run, new_seed())

    wanted = complaint.split("|")
    found = fleet.problems()
    assert any(each in problem for problem in found for each in wanted), found[:3]
