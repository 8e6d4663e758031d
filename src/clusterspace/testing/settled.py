"""A barrier: all that this event loop was going to do about what has happened is done.

A test that claims "nothing happens" cannot wait for nothing; how long would be long enough? It
can wait until everything that could have happened had its turn:

    await hub.update(place, changed)
    await settled()
    assert await versions(hub) == before

It sees what runs in this event loop. Other processes are out of its sight, and a cluster that
cannot be asked counts as one that says nothing.
"""

import asyncio
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar

from clusterspace.aio.queues import WorkQueue
from clusterspace.client.requests import key_of
from clusterspace.client.resources import ListOptions
from clusterspace.controllers.informers import Informer
from clusterspace.errors import ClusterspaceError
from clusterspace.kube.objects import name_of, namespace_of, resource_version_of
from clusterspace.testing.steps import PATIENCE, until

T = TypeVar("T")
_Contents: TypeAlias = dict[tuple[Any, ...], list[object]]

_SOON_SECONDS: Final = 1.0
"""Longer than any controller waits for more of the same, or before the first of its retries."""

_ANSWER_SECONDS: Final = 2.0
_HEARTBEATS: Final = ("events", "internalmemberclusters", "leases", "memberclusters")
"""Collections that change all the time, and that nobody takes orders from."""

_NOT_BEGUN: Final = Informer.wait_synced.__name__
"""The function in which a controller waits for each of its sources."""


async def settled(*, lied_to_by: Collection[str] = (), seconds: float = PATIENCE) -> None:
    """Wait until informers are up to date, queues are worked off, and nothing came of it.

    What comes up again and again, like a look every second or a retry of what fails, counts as
    done when it was done once more and changed nothing in any collection that is watched here.
    Clusters that lie are not asked what they hold: nobody may come to believe it. A controller that
    waits for the first list of such a cluster, or of one that cannot be asked, has not begun, and
    what is in its queue is not waited for.
    """
    try:
        async with asyncio.timeout(seconds):
            # To ask for every collection takes far longer than all else here, so we begin with
            # what informers know: where that is old, it is not what there is afterwards.
            now, seen = _known(lied_to_by), None
            # Every event up to `seen` is in a cache, and its keys are in the queues, before these
            # are worked off. If that wrote anything, `seen` is not what there is afterwards; nor
            # is it if a controller has begun since, whose queue nobody waited for.
            while now != seen:
                seen = now
                await _work_off()
                now = await _caught_up(lied_to_by)
    except TimeoutError:
        raise AssertionError(f"something still goes on after {seconds:g} s") from None


def _known(lied_to_by: Collection[str]) -> _Contents:
    """Return the content of every watched collection as its informers know it, and who works."""
    found = _at_queues()
    for place, informer in _asked_for(lied_to_by):
        found.setdefault(place, []).append(_cached(informer))
    return found


async def _caught_up(lied_to_by: Collection[str]) -> _Contents:
    """Return the content of every watched collection, once its informers know it, and who works."""
    found: _Contents = {}
    for place, informer in _asked_for(lied_to_by):
        content = await until(lambda each=informer: _versions(each))
        found.setdefault(place, []).append(content)
    return found | _at_queues()


def _asked_for(lied_to_by: Collection[str]) -> list[tuple[tuple[Any, ...], Informer]]:
    return [
        ((each.cluster, each.path, each.selection), each)
        for each in _at_work(Informer)
        if each.path.resource.resource not in _HEARTBEATS and each.cluster not in lied_to_by
    ]


def _at_queues() -> _Contents:
    queues: list[WorkQueue[Any]] = _at_work(WorkQueue)
    return {("at work",): [{id(each) for each in queues}]}


async def _versions(informer: Informer) -> object:
    """Return the versions in a collection, or nothing while the informer knows others."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            listed = await informer.cluster_client.list_objects(
                informer.path, informer.selection or ListOptions()
            )
    except (ClusterspaceError, TimeoutError):
        return "cannot be asked"
    live = {key_of(namespace_of(each), name_of(each)): resource_version_of(each) for each in listed}
    return ("holds", live) if _cached(informer) == ("holds", live) else None


def _cached(informer: Informer) -> object:
    """Return the versions an informer knows of, or nothing before it has listed them."""
    # An empty cache equals an empty collection before it was ever listed, too; and who waits for
    # the list has yet to begin.
    if not informer.has_synced:
        return None
    known = {key: informer.cache.find_version(key) for key in informer.cache}
    return ("holds", {key: each and each.resource_version for key, each in known.items()})


async def _work_off() -> None:
    """Wait until every key that is due now or soon was worked on, where anybody works."""
    queues: list[WorkQueue[Any]] = _at_work(WorkQueue)
    for queue in queues:
        due = queue.due_within(_SOON_SECONDS)

        def is_worked_off(queue: WorkQueue[Any] = queue, due: dict[Any, float] = due) -> bool:
            # A key that is due at another time than it was has been worked on meanwhile.
            now = queue.due_within(_SOON_SECONDS)
            return not any(key in now and now[key] in (when, 0.0) for key, when in due.items())

        await until(is_worked_off)


def _at_work(kind: type[T]) -> list[T]:
    """Return the objects of a kind that tasks of this loop are at work on, each once."""
    found: dict[int, T] = {}
    for task in asyncio.all_tasks():
        frames = list(_frames(task.get_coro()))
        # A controller has no workers until its sources have synced, if they ever do.
        if any(frame.f_code.co_name == _NOT_BEGUN for frame in frames):
            continue
        for names in (frame.f_locals for frame in frames):
            at_hand = [*names.values(), *getattr(names.get("self"), "__dict__", {}).values()]
            found |= {id(each): each for each in at_hand if isinstance(each, kind)}
    return list(found.values())


def _frames(waiting: Any) -> Iterator[FrameType]:
    """Yield the functions a task is in, from its first to the one that waits."""
    while waiting is not None:
        for prefix in ("cr", "ag", "gi"):
            if frame := getattr(waiting, f"{prefix}_frame", None):
                yield frame
        waiting = next(
            (
                inner
                for prefix in ("cr", "ag", "gi")
                if (inner := getattr(waiting, f"{prefix}_await", None)) is not None
            ),
            None,
        )
