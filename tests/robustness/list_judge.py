"""What readers of a fleet were shown, held against what its members did and said; pure.

    MemberLog   what happened in a member, told by itself, and which writes were promised when
    Heard       what a member has answered to whom, noted on the way between it and the gateway
    Shown       a list as a reader got it, page by page
    Told        a watch as a client got it

Nothing here asks the gateway what it thinks it knows. A list has to be a state that the member had,
no older than any write that was acknowledged before it was asked for, and each object on it one
that the member has named to this very reader: while they asked, or a moment before for who says
that any state will do. What a member that is away is shown as has to be the member's own answer to
the same reader and the same question, since the gateway was started, as old as the Warning says,
not from before a refusal, and not older than what the reader has seen since.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clusterspace.fleet.gateway.merge import versions
from clusterspace.testing.watch_histories import ClusterLog, Logged, Segment, problems_of

MOST_SECONDS = 5.0
"""How long a member may take to answer a list."""
ROOT, JANE = "root-token", "jane-token"
Items = Mapping[str, tuple[str, str]]
"""Version and value of each object, by name."""


@dataclass(frozen=True)
class Change:
    """One change in the log of a member; `value` is None for a deletion."""

    revision: int
    name: str
    value: str | None
    side: str = ""
    uid: str = ""


@dataclass(frozen=True)
class Promise:
    """A write that was acknowledged: its version, or the UID of what it has deleted."""

    at: float
    revision: int = 0
    deleted: str = ""


@dataclass
class MemberLog:
    """All that happened in a member, and what of it was acknowledged when."""

    changes: list[Change] = field(default_factory=list[Change])
    promises: list[Promise] = field(default_factory=list[Promise])
    has_forgotten: bool = False
    """Whether it was listed anew where a watch was to go on: of its events only the sum counts."""

    def watched(self, side: str) -> ClusterLog:
        """Return what happened, as it is told to who selects one side."""
        logged = [
            Logged(
                each.revision,
                f"shop/{each.name}",
                each.uid,
                None if each.value is None else {"side": each.side},
            )
            for each in self.changes
        ]
        forgotten = 2**62 if self.has_forgotten else 0
        return ClusterLog(logged, lambda labels: side in ("", labels["side"]), forgotten=forgotten)


class _History:
    """A member's log, to be asked for states and promises as often as there were lists."""

    def __init__(self, log: MemberLog) -> None:
        self._revisions: list[int] = []
        self._states: list[dict[str, tuple[str, str, str]]] = []
        self.values = {(each.name, str(each.revision)): each.value for each in log.changes}
        state: dict[str, tuple[str, str, str]] = {}
        for each in log.changes:
            state = {**state}
            if each.value is None:
                state.pop(each.name, None)
            else:
                state[each.name] = (str(each.revision), each.value, each.side)
            self._revisions.append(each.revision)
            self._states.append(state)
        gone = {each.uid: each.revision for each in log.changes if each.value is None}
        self._promised_at: list[float] = []
        self._promised: list[int] = []
        newest = 0
        for promise in sorted(log.promises, key=lambda each: each.at):
            newest = max(newest, promise.revision or gone[promise.deleted])
            self._promised_at.append(promise.at)
            self._promised.append(newest)

    def promised(self, before: float) -> int:
        """Return the newest revision that was acknowledged before a moment."""
        count = bisect_left(self._promised_at, before)
        return self._promised[count - 1] if count else 0

    def at(self, revision: int, side: str) -> Items:
        """Return what there was at a revision, of what is selected."""
        count = bisect_right(self._revisions, revision)
        state = self._states[count - 1] if count else {}
        return {name: held[:2] for name, held in state.items() if side in ("", held[2])}

    def since(self, revision: int, side: str) -> Iterator[tuple[int, Items]]:
        """Yield all states from a revision on, each with the revision at which it began."""
        yield revision, self.at(revision, side)
        for later in self._revisions[bisect_right(self._revisions, revision) :]:
            yield later, self.at(later, side)


@dataclass(frozen=True)
class Heard:
    """An answer of a member to a list, or the beginning of a watch."""

    at: float
    life: int
    """Which gateway asked: it is started anew now and then."""
    who: str
    cluster: str
    status: int
    selector: str
    is_watch: bool = False
    version: int = 0
    objects: frozenset[tuple[str, str]] = frozenset()
    """Name and version of each object."""


@dataclass(frozen=True)
class Page:
    """One page of a list, from when it was asked for until it was there."""

    started: float
    ended: float
    life: int
    items: Mapping[str, Items]
    warning: str
    ages: Mapping[str, float]
    """The members that were away and are shown as they were, and how long ago it says that was."""
    permitted: frozenset[str]
    """The members in which the reader had a right all the time."""
    forbidden: frozenset[str]
    """The members in which the reader had none all the time."""


@dataclass(frozen=True)
class Shown:
    """A list as a reader got it."""

    who: str
    side: str
    words: tuple[tuple[str, str], ...]
    """What was asked for, but for which page and which version."""
    selector: str
    """What members were to select by: what they do not know is selected by the gateway."""
    is_of_now: bool
    is_of_one_moment: bool
    """Whether all of it is of the version that it names. What comes on later pages may be newer,
    where they are not sorted."""
    vector: str
    pages: Sequence[Page]
    count: int
    order: Sequence[str] = ()
    """The values of what was asked for in their order, as they came."""
    wanted: str = ""
    """The version that was asked for, if one was."""
    is_exact: bool = False
    """Whether that, and no newer one, was asked for."""
    is_for_people: bool = False
    """Whether members that are away are shown as they were, and said to be so, on any page."""


@dataclass(frozen=True)
class Told:
    """A watch as a client got it."""

    who: str
    side: str
    life: int
    ended: float
    segment: Segment
    values: Sequence[tuple[str, str, str, str | None]]
    """Cluster, name, own version and value of each object; no value for one that is gone."""
    forbidden: frozenset[str]
    """The members that were told of though the client had no right, from before it asked on."""
    unsteady: frozenset[str]
    """The members in which the client's right was not there all the time."""


class Judge:
    """Finds every promise that was broken towards a reader."""

    def __init__(
        self,
        logs: Mapping[str, MemberLog],
        heard: Sequence[Heard],
        any_state_seconds: float,
        longest_stall: float = 0.0,
    ) -> None:
        self._most_seconds = 3 * MOST_SECONDS + longest_stall
        """How long before an answer it may have been asked for: for its metadata first, for what
        is new of it, and then whole, on a machine that was busy elsewhere."""
        self._clusters = list(logs)
        self._histories = {name: _History(log) for name, log in logs.items()}
        self._watched = {
            side: {name: log.watched(side) for name, log in logs.items()} for side in ("", "left")
        }
        self._any_state_seconds = any_state_seconds
        self._heard: defaultdict[tuple[str, str], list[Heard]] = defaultdict(list)
        for each in heard:
            self._heard[each.who, each.cluster].append(each)
        self._moments: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for key, answers in self._heard.items():
            self._moments[key] = [each.at for each in answers]

    def problems(self, shown: Sequence[Shown], told: Sequence[Told]) -> list[str]:
        """Return all that should not have been."""
        found: list[str] = []
        seen: defaultdict[tuple[object, ...], list[tuple[float, int]]] = defaultdict(list)
        for each in sorted(shown, key=lambda each: each.pages[-1].ended):
            found += self._problems_of_list(each, seen)
        for each in told:
            found += self._problems_of_watch(each)
        return found

    # -- watches ------------------------------------------------------------------------------

    def _problems_of_watch(self, told: Told) -> list[str]:
        found = [f"{told.who} is told of {each} without a right to" for each in told.forbidden]
        for cluster, name, version, value in told.values:
            if value is not None and self._histories[cluster].values.get((name, version)) != value:
                found.append(f"{cluster}/{name}@{version} is told as {value}, not as it was")
        found += [
            f"{told.who} is told of {cluster}, which has told them nothing"
            for cluster in {each[0] for each in told.values}
            if not any(
                each.life == told.life and each.at <= told.ended and each.status == 200
                for each in self._heard[told.who, cluster]
            )
        ]
        # Where a right comes and goes, so does what may be told.
        logs = self._watched[told.side]
        return found + problems_of(told.segment, logs, unjudged=told.unsteady)

    # -- lists --------------------------------------------------------------------------------

    def _problems_of_list(
        self, shown: Shown, seen: dict[tuple[object, ...], list[tuple[float, int]]]
    ) -> list[str]:
        found: list[str] = []
        at = versions.decode(shown.vector, self._clusters)
        wanted = versions.decode(shown.wanted, self._clusters) if shown.wanted else {}
        for cluster in at.keys() & wanted.keys():
            given, asked = int(at[cluster]), int(wanted[cluster])
            if given < asked or (shown.is_exact and given > asked):
                found.append(f"{cluster} is shown at {given}, and {asked} was asked for")
        ordered = [each for each in shown.order if each]
        if ordered != sorted(ordered):
            found.append(f"{shown.who}: {ordered} are not in their order")
        whole: defaultdict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        for page in shown.pages:
            for cluster, items in page.items.items():
                whole[cluster].update(items)
        if shown.count != sum(map(len, whole.values())):
            found.append(f"{shown.who}: an object is shown twice")
        for cluster in self._clusters:
            if cluster not in at:
                is_permitted = all(cluster in page.permitted for page in shown.pages)
                is_named = any(cluster in page.warning for page in shown.pages)
                if whole[cluster] or (is_permitted and not is_named):
                    found.append(f"{shown.who}: {cluster} is missing without a word")
                continue
            version = int(at[cluster])
            found += self._problems_of_part(shown, cluster, version, whole[cluster])
            key = (shown.who, shown.words, shown.pages[0].life, cluster)
            if shown.is_exact or not shown.is_of_now:
                # Who takes any state, or asks for a past one, has no claim that the next one is
                # newer: whoever has names the version, which is held against `wanted`.
                continue
            if not any(cluster in page.ages for page in shown.pages):
                seen[key].append((shown.pages[-1].ended, version))
                continue
            # In the order in which answers ended: what was seen before this was asked for.
            before = [each for ended, each in seen[key] if ended < shown.pages[0].started]
            if cluster in shown.pages[0].ages and before and version < max(before):
                found.append(
                    f"{cluster} is shown at {version}, before {max(before)} was seen: {shown.words}"
                )
        return found

    def _problems_of_part(
        self, shown: Shown, cluster: str, version: int, items: Items
    ) -> Iterator[str]:
        """Yield what is wrong with what a list has of one member."""
        history, who, first = self._histories[cluster], shown.who, shown.pages[0]
        for name, (own, value) in items.items():
            if history.values.get((name, own)) != value:
                yield f"{cluster}/{name}@{own} is shown as {value}, not as it was"
        promised = history.promised(first.started) if shown.is_of_now else 0
        if any(cluster in page.ages for page in shown.pages):
            promised = 0
        # On pages for people a member that is away is said to be so where it is shown; and when
        # its turn comes it may be well again, and newer than the list's version says.
        is_shown_later = shown.is_for_people and not (
            shown.is_of_one_moment or cluster in first.items
        )
        if version < promised and not is_shown_later:
            yield f"{cluster}: {version} is older than {promised}, promised"
        if shown.is_of_one_moment:
            expected = history.at(version, shown.side)
            if items != expected:
                yield f"{cluster} at {version}: {items} instead of {expected}"
        elif any(cluster in page.warning and cluster not in page.ages for page in shown.pages[1:]):
            pass  # people are told that the rest of it is missing
        elif not any(
            state == items for _, state in history.since(max(version, promised), shown.side)
        ):
            since = max(version, promised)
            yield f"{cluster} since {since}: {items} instead of any state that there was"
        for number, page in enumerate(shown.pages):
            part = page.items.get(cluster, {})
            is_begun = bool(part) or not (number or is_shown_later)
            if cluster in page.ages:
                yield from self._problems_of_last_state(shown, cluster, version, page)
            elif cluster in page.forbidden and is_begun:
                yield f"{who} is shown objects of {cluster} without a right to"
            elif is_begun:
                is_known = not shown.is_of_now or (shown.is_of_one_moment and number)
                earlier = self._any_state_seconds if is_known else 0.0
                heard = [
                    each
                    for each in self._lists(shown, cluster, page.started - earlier, page.ended)
                    if each.version == version or not shown.is_of_one_moment
                ]
                if not heard or not _named(part) <= _all_objects(heard):
                    named = [
                        f"{page.started - each.at:.3f} s before"
                        for each in self._lists(shown, cluster, 0.0, page.ended)
                        if each.version == version
                    ]
                    yield (
                        f"{who} is shown {cluster} at {version} as it was never shown to them: "
                        f"page {number} of {shown.words}, of now: {shown.is_of_now}, "
                        f"named {', '.join(named[-3:]) or 'never'}, {len(part)} objects"
                    )

    def _problems_of_last_state(
        self, shown: Shown, cluster: str, version: int, page: Page
    ) -> Iterator[str]:
        """Yield what is wrong with what is shown of a member that is away."""
        refused = [
            each.at
            for each in self._heard[shown.who, cluster]
            if each.status in (401, 403, 404) and not each.is_watch and each.at < page.started
        ]
        since = max(refused, default=0.0)
        given = [
            each
            for each in self._lists(shown, cluster, 0.0, page.ended)
            if each.life == page.life
            and (each.version == version or (not shown.is_of_one_moment and each.version > version))
        ]
        if not given or not _named(page.items.get(cluster, {})) <= _all_objects(given):
            yield f"{shown.who} is shown {cluster} as it was, as it was never shown to them"
        elif all(each.at < since for each in given):
            yield f"{shown.who} is shown {cluster} as it was before they were refused"
        age = page.ages[cluster]
        # In whole seconds since it was asked for, a while before the member's answer came by.
        if given and not any(page.started - each.at - 1.0 <= age for each in given):
            yield f"{shown.who} is shown {cluster} as it was {age} s ago, and it is older"
        if given and not any(age <= page.ended - each.at + self._most_seconds for each in given):
            yield f"{shown.who} is shown {cluster} as it was {age} s ago, and it was not then"

    def _lists(self, shown: Shown, cluster: str, since: float, until: float) -> Iterator[Heard]:
        """Yield what a member has answered the reader to the same question in a time."""
        heard, moments = self._heard[shown.who, cluster], self._moments[shown.who, cluster]
        for each in heard[bisect_left(moments, since) : bisect_right(moments, until)]:
            if each.status == 200 and each.selector == shown.selector and not each.is_watch:
                yield each


def _named(items: Items) -> frozenset[tuple[str, str]]:
    return frozenset((name, own) for name, (own, _) in items.items())


def _all_objects(heard: Sequence[Heard]) -> frozenset[tuple[str, str]]:
    return frozenset[tuple[str, str]]().union(*(each.objects for each in heard))
