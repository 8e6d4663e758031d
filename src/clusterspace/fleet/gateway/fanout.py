"""Targets to Replies: all asked at once, as many as allowed, each with a deadline of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from clusterspace.apiserver.http.relays import open_answer
from clusterspace.client.answers import failure_of
from clusterspace.client.connection import Connection
from clusterspace.client.requests import Answer, ApiRequest
from clusterspace.errors import (
    AnswerOverrun,
    ApiError,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
)
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.flow import Reply
from clusterspace.kube import plain_text, statuses

Result = TypeVar("Result")


async def ask_all(
    links: Sequence[Link], ask: Callable[[Link], Awaitable[Result]], *, at_once: int
) -> list[Result]:
    """Ask every cluster and return what came of each, in the order given.

    `ask` has a deadline of its own and does not fail: a cluster that does is one of its results.
    """
    gate = asyncio.Semaphore(at_once)

    async def ask_in_turn(link: Link) -> Result:
        # The clock starts inside the gate, so a long queue is not blamed on the cluster.
        async with gate:
            return await ask(link)

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask_in_turn(link), name=f"ask {link.cluster}") for link in links]
    return [task.result() for task in asked]


async def ask_one(link: Link, make_ask: Callable[[Link], ApiRequest]) -> Reply:
    """Ask one cluster, once; its refusal, its silence and its nonsense are Replies too."""
    try:
        ask = make_ask(link)
        answer = await exchange(link.connection, ask)
    except (ApiError, ClusterError) as failure:
        return Reply(link.cluster, failure=failure)
    failure = failure_of(link.cluster, answer) or _nonsense(link.cluster, answer)
    if (
        isinstance(failure, ApiError)
        and statuses.is_about_the_version(failure)
        and not _names_version(ask)
    ):
        # Clients start over when they are told this. Only a version that was asked for can be too
        # old: a cluster that says so of none would have every client start over, for ever.
        why = f"answered {answer.status} about a resourceVersion that nobody asked for"
        failure = ClusterMisbehaved(link.cluster, why, code=answer.status)
    return Reply(link.cluster, answer.status, dict(answer.headers), answer.body, failure)


async def exchange(connection: Connection, ask: ApiRequest) -> Answer:
    """Return a whole answer of any status within the deadline.

    Nothing is repeated: whoever waits for the answers of many would wait for the repetitions too.
    """
    has_begun = False
    try:
        async with asyncio.timeout(ask.seconds), AsyncExitStack() as stack:
            answer = await open_answer(stack, connection, ask)
            has_begun = True
            return await answer.read(ask.most_bytes, ask.hold)
    except TimeoutError as error:
        if has_begun:
            why = f"did not come to the end of its answer within {ask.seconds:g}s"
            raise AnswerOverrun(connection.cluster, why) from error
        why = f"gave no answer within {ask.seconds:g}s"
        raise ClusterTimeout(connection.cluster, why) from error


def _names_version(ask: ApiRequest) -> bool:
    asked = dict(ask.query)
    return bool(asked.get("continue")) or asked.get("resourceVersion", "") not in ("", "0")


def _nonsense(cluster: str, answer: Answer) -> ClusterMisbehaved | None:
    """Return the failure of an answer that says all is well and is not Kubernetes' own."""
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
    if media_type == "application/json":
        return None
    said = plain_text.line(media_type, 64) or "no content type"
    return ClusterMisbehaved(cluster, f"answered {answer.status} with {said}", code=answer.status)
