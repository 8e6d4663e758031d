"""Where each cluster begins, and who is missing: all that is found out before the first event."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from clusterspace.errors import Expired, Forbidden
from clusterspace.fleet.gateway import fanout
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.answers.every_watch.ways import ClusterWay, Received
from clusterspace.fleet.gateway.answers.every_watch.wishes import WatchWish
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.flow import Reply, Skipped
from clusterspace.fleet.gateway.merge import failures
from clusterspace.fleet.gateway.merge.lists import ClusterList


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known of every cluster before the first event."""

    followed: Mapping[str, str]
    """The version of each cluster that the client goes on from."""
    listed: Sequence[ClusterList]
    """The first page of each cluster that the client has nothing of yet."""
    silent: Sequence[str]
    """Clusters the client has nothing of, which cannot be asked now."""
    held: Collection[str] = ()
    """Clusters whose objects the client would delete if they were not among the initial events."""


async def open_watch(asking: Asking, wish: WatchWish) -> Opening:
    """Find out where each cluster begins, and refuse what would be taken for whole and is not."""
    fleet = asking.fleet
    wanted = await asking.positions(wish.version)
    targets = await asking.targets(fleet.everybody())
    followed = wanted if wish.resumes else {}
    _require_all(followed, fleet.everybody(), targets.skipped)
    unseen = [each for each in targets.chosen if each not in followed]
    received = await _first_pages(asking, wish, unseen, wanted)
    lost = [each.reply for each in received if each.part is None]
    going_on = [Reply(each, 200) for each in targets.chosen if each in followed]
    asking.note_skipped(targets.skipped)
    held = _held_by_client(wish, wanted, fleet.everybody())
    verdict = failures.judge(
        [*(each.reply for each in received), *going_on],
        targets.skipped,
        held=held,
        is_given_up=asking.is_given_up,
    )
    asking.refuse_or_warn(verdict)
    for reply in verdict.answered:
        if fleet.lapses.refuses_watches(asking.list_key(reply.cluster)):
            why = "does not allow this watch; its objects are shown as they were"
            asking.context.warn(f"cluster {reply.cluster}: {why}")
    unreachable = [each.cluster for each in lost if failures.may_recover(each.failure)]
    unreachable += [each.cluster for each in targets.skipped if failures.may_recover(each.error)]
    return Opening(
        followed=followed,
        held=held,
        listed=[each.part for each in received if each.part is not None],
        silent=[each for each in unreachable if each not in followed],
    )


def _held_by_client(
    wish: WatchWish, wanted: Mapping[str, str], everybody: Collection[str]
) -> Collection[str]:
    """Return the clusters whose objects the client would delete if its stream began without them.

    Only who waits for the end of the initial events deletes what was not among them.
    """
    if not wish.sends_initial:
        return ()
    return wanted.keys() if wish.version not in ("", "0") else everybody


def _require_all(
    followed: Mapping[str, str], everybody: Iterable[str], skipped: Iterable[Skipped]
) -> None:
    """Refuse to go on without a cluster the client has objects of, or from the middle of one."""
    for cluster, version in followed.items():
        if not version:
            why = f"only a part of cluster {cluster} had been told"
            raise Expired(f"the resourceVersion cannot be continued from: {why}; list again")
    out_of_reach = {each.cluster for each in skipped if isinstance(each.error, Forbidden)}
    missing = sorted(followed.keys() - (set(everybody) - out_of_reach))
    if missing:
        raise Expired(f"cluster {missing[0]} is out of reach now; list again")


async def _first_pages(
    asking: Asking, wish: WatchWish, clusters: Sequence[str], wanted: Mapping[str, str]
) -> list[Received]:
    async def receive(link: Link) -> Received:
        way = ClusterWay(asking, link.cluster)
        version = wanted.get(link.cluster, "")
        return await way.first_page(link, version, is_all=not wish.starts_now)

    links = await asking.links(clusters)
    at_once = asking.fleet.limits.clusters_at_once
    return await fanout.ask_all(links, receive, at_once=at_once)
