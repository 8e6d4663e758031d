"""The steps tests are made of: wait until something holds, change an object, stop a task."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, WriteOptions
from clusterspace.errors import Conflict, NotFound
from clusterspace.kube.objects import Object, uid_of
from clusterspace.testing.crashes import Killed

PATIENCE: Final = 30.0
"""How long a test waits for what takes a moment on an idle machine."""

_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.1
_CANCELLED_AGAIN: Final = 1.0
_PLAIN: Final = WriteOptions()

Look = Callable[[], Awaitable[Any] | Any]


async def until(look: Look, seconds: float = PATIENCE, *, explain: Look | None = None) -> Any:
    """Look until there is something to see, and return it.

    Servers give no event for most of what tests wait for. When it does not happen in time the
    test fails, with what `explain` sees instead.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            pause = _PAUSE
            # The timeout cancels once, and what is looked at may mistake that for its own: it is
            # the clock that ends the loop then.
            while loop.time() < deadline:
                if seen := await _seen_by(look):
                    return seen
                await asyncio.sleep(pause)
                # Most looks are requests, which take their time from what is waited for.
                pause = min(1.2 * pause, _LONGEST_PAUSE)
    instead = "" if explain is None else f"; there is {await _seen_by(explain)!r}"
    raise AssertionError(f"it did not happen within {seconds:g} s{instead}")


async def until_equal(look: Look, wanted: Any, seconds: float = PATIENCE) -> None:
    """Look until what is seen equals what is wanted; fail with what was seen last."""
    seen: Any = None

    async def is_equal() -> bool:
        nonlocal seen
        seen = await _seen_by(look)
        return seen == wanted

    try:
        await until(is_equal, seconds)
    except AssertionError:
        raise AssertionError(f"saw {seen!r}, not {wanted!r}") from None


async def edit(
    cluster_client: ClusterClient,
    place: ResourcePath,
    change: Callable[[Object], Object],
    options: WriteOptions = _PLAIN,
) -> Object:
    """Change an object as a user would, whoever else writes it at the same time."""
    while True:
        try:
            existing = await cluster_client.get(place)
            return await cluster_client.update(place, change(existing), options)
        except Conflict:
            continue


async def delete(cluster_client: ClusterClient, place: ResourcePath) -> None:
    """Delete the object that is there now, if there is one."""
    try:
        existing = await cluster_client.get(place)
        await cluster_client.delete(place, DeleteOptions(uid=uid_of(existing)))
    except NotFound:
        return


async def stop(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end; raise what one ended with, unless it was a kill.

    A task that starts something again whenever that fails may take the cancellation for such a
    failure: a leader that loses its lease just then ends with that, and is started once more.
    It is therefore cancelled until it ends.
    """
    running, deadline = set(tasks), asyncio.get_running_loop().time() + PATIENCE
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_CANCELLED_AGAIN)
        if running and asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not stopped within {PATIENCE:g} s: {running}")
    for task in tasks:
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, Killed):
            raise failure


async def _seen_by(look: Look) -> Any:
    seen = look()
    return await seen if inspect.isawaitable(seen) else seen
