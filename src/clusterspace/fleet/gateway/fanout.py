"""From one request to many clusters and back: whom to ask, all at once, and what to make of it.

    clusters ──> Targets ──ask each, in its own time──> Replies ──judge──> a Verdict

Every answer that many clusters have a part in comes this way: lists, watches, searches, reviews.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

from clusterspace.apiserver.http.middleware.authorize import refusal
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
    Forbidden,
)
from clusterspace.fleet.gateway.context import FleetContext
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.identity import proxy_request
from clusterspace.fleet.gateway.merge.failures import Reply, Skipped, Verdict
from clusterspace.fleet.gateway.merge.lists import ListMetadata, read_cluster_list
from clusterspace.fleet.gateway.names import HUB
from clusterspace.kube import plain_text, statuses


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster that a request would reach, and what stands in the way."""

    cluster: str
    refusal: Forbidden | None = None
    """The hub's, when the caller may not reach the cluster."""
    problem: ClusterError | None = None
    """Why nobody could reach it just now."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The clusters to ask, and those left out."""

    chosen: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()


async def find_targets(context: FleetContext, clusters: Iterable[str]) -> Targets:
    """Choose whom to ask of these, and say who is left out and why."""
    named = tuple(clusters)
    directory, user = context.fleet.directory, context.http.user
    members = [each for each in named if each != HUB]
    reachable = await context.fleet.gatekeeper.admit(user, "get", members)

    def candidate(cluster: str) -> Candidate:
        if cluster == HUB:
            return Candidate(HUB)
        reason = reachable.find_refusal(cluster)
        refused = None if reason is None else refusal(user, proxy_request("get", cluster), reason)
        problem = directory.problem_with(cluster) or directory.troubles.find(cluster, user.name)
        return Candidate(cluster, refused, problem)

    return pick_targets(map(candidate, named))


def pick_targets(candidates: Iterable[Candidate]) -> Targets:
    """Choose whom nothing stands in the way of; the order stays.

    The refusal comes first: who may not reach a cluster does not learn how it is.
    """
    chosen: list[str] = []
    skipped: list[Skipped] = []
    for each in candidates:
        if each.refusal is not None:
            skipped.append(Skipped(each.cluster, each.refusal.message, each.refusal))
        elif each.problem is not None:
            skipped.append(Skipped(each.cluster, each.problem.why, each.problem))
        else:
            chosen.append(each.cluster)
    return Targets(tuple(chosen), tuple(skipped))


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Fanned:
    """What came of asking many clusters: all their replies, and those that are answered with."""

    replies: Sequence[Reply]
    answered: Sequence[Reply]


async def fan_out(
    context: FleetContext,
    targets: Targets,
    ask: Callable[[Link], Awaitable[Reply]],
    judge: Callable[[Sequence[Reply], Sequence[Skipped]], Verdict],
) -> Fanned:
    """Ask all targets at once and judge what came of it; raise what is to be answered instead.

    Of what is missing from the answer the client is warned.
    """
    replies = await ask_all(context, targets.chosen, ask)
    context.note_skipped(targets.skipped)
    verdict = judge(replies, targets.skipped)
    context.refuse_or_warn(verdict)
    return Fanned(replies, verdict.answered)


async def ask_all(
    context: FleetContext, clusters: Sequence[str], ask: Callable[[Link], Awaitable[Result]]
) -> list[Result]:
    """Ask each of these clusters and return what came of it, in the order given.

    `ask` has a deadline of its own and does not fail: a cluster that does is one of its results.
    """
    links = [await context.fleet.directory.link(each) for each in clusters]
    gate = asyncio.Semaphore(context.fleet.limits.clusters_at_once)

    async def ask_in_turn(link: Link) -> Result:
        # The clock starts inside the gate, so a long queue is not blamed on the cluster.
        async with gate:
            return await ask(link)

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask_in_turn(link), name=f"ask {link.cluster}") for link in links]
    return [task.result() for task in asked]


async def ask_for_list(
    context: FleetContext,
    link: Link,
    make_request: Callable[[Link], ApiRequest],
    *,
    token: str = "",
    needs_version: bool = False,
) -> Reply:
    """Ask one cluster for a list, take it apart, and remember how that went.

    `token` is what the list goes on from: a cluster that answers with the same one has no end.
    `needs_version` is for who will watch from there.
    """
    reply = await ask_one(link, make_request)
    if reply.failure is None:
        try:
            naming = context.route.naming_in(link.cluster)
            listed = read_cluster_list(reply.body, naming, context.api_version)
            if token and listed.metadata.continue_token == token:
                raise ClusterMisbehaved(link.cluster, "its list goes on and on", code=200)
            if needs_version and not listed.metadata.resource_version:
                raise ClusterMisbehaved(link.cluster, "its list has no resourceVersion", code=200)
        except ClusterMisbehaved as nonsense:
            reply = Reply(link.cluster, reply.status, failure=nonsense)
        else:
            reply = replace(reply, listed=listed)
            # A long list takes a while to be taken apart, and others take their turn.
            await asyncio.sleep(0)
    context.note(reply)
    metadata = ListMetadata() if reply.listed is None else reply.listed.metadata
    context.note_list(reply, is_whole=not metadata.continue_token)
    if metadata.resource_version:
        lapses = context.fleet.lapses
        lapses.note_version(context.list_key(link.cluster), metadata.resource_version)
    return reply


async def ask_one(link: Link, make_request: Callable[[Link], ApiRequest]) -> Reply:
    """Ask one cluster, once; its refusal, its silence and its nonsense are Replies too."""
    try:
        request = make_request(link)
        answer = await exchange(link.connection, request)
    except (ApiError, ClusterError) as failure:
        return Reply(link.cluster, failure=failure)
    failure = failure_of(link.cluster, answer)
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
    if failure is None and media_type != "application/json":
        # It says that all is well, and is not Kubernetes' own: a page of a proxy on the way.
        why = (
            f"answered {answer.status} with {plain_text.line(media_type, 64) or 'no content type'}"
        )
        failure = ClusterMisbehaved(link.cluster, why, code=answer.status)
    asked = dict(request.query)
    version = asked.get("resourceVersion") or "0"
    names_version = bool(asked.get("continue")) or version != "0"
    is_about_version = isinstance(failure, ApiError) and statuses.is_about_the_version(failure)
    if is_about_version and not names_version:
        # Clients start over when they are told this. Only a version that was asked for can be too
        # old: a cluster that says so of none would have every client start over, for ever.
        why = f"answered {answer.status} about a resourceVersion that nobody asked for"
        failure = ClusterMisbehaved(link.cluster, why, code=answer.status)
    return Reply(link.cluster, answer.status, dict(answer.headers), answer.body, failure)


async def exchange(connection: Connection, request: ApiRequest) -> Answer:
    """Return a whole answer of any status within the deadline.

    Nothing is repeated: whoever waits for the answers of many would wait for the repetitions too.
    """
    has_begun = False
    try:
        async with asyncio.timeout(request.seconds), AsyncExitStack() as stack:
            answer = await open_answer(stack, connection, request)
            has_begun = True
            return await answer.read(request.most_bytes, request.hold)
    except TimeoutError as error:
        if has_begun:
            why = f"did not come to the end of its answer within {request.seconds:g}s"
            raise AnswerOverrun(connection.cluster, why) from error
        why = f"gave no answer within {request.seconds:g}s"
        raise ClusterTimeout(connection.cluster, why) from error
