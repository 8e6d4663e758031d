"""May I: a question that each cluster answers for itself, and the fleet for all of them."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import CONNECTS
from clusterspace.apiserver.http.responses import value_response
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ClusterMisbehaved, RequestEntityTooLarge
from clusterspace.fleet.gateway import fanout
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.flow import HUB, Naming, Reach, Reply, Route, Subject
from clusterspace.fleet.gateway.merge import failures, reviews
from clusterspace.fleet.gateway.merge.reviews import Opinion
from clusterspace.fleet.gateway.renaming import inbound
from clusterspace.kube.objects import find_at

_RESOURCE: Final = ("authorization.k8s.io", "selfsubjectaccessreviews")
_WRITES: Final = frozenset({"create", "update", "patch", "delete"})
"""Verbs that reach a cluster by the right of their own name; all others look."""


def is_review(route: Route) -> bool:
    """Whether somebody asks what they may do themselves."""
    info = route.info
    is_asked = (info.group, info.resource) == _RESOURCE and info.verb == "create"
    return is_asked and not route.is_relayed


async def answer_review(asking: Asking) -> Response:
    """Ask every cluster the question is about; one that is out of reach has no say."""
    is_about_one = asking.route.reach is Reach.ONE
    clusters = (asking.route.naming.cluster,) if is_about_one else asking.fleet.everybody()
    if is_about_one:
        await asking.require(asking.route.naming.cluster, "get")
    targets = await asking.targets(clusters)
    body = await asking.context.read_body()
    if asking.context.is_heavy:
        # Every cluster is asked, and nobody asks about a thousand things at once.
        raise RequestEntityTooLarge("Request entity too large: the review has too many parts")

    async def ask(link: Link) -> Reply:
        return asking.note(await _ask(asking, link, body))

    at_once = asking.fleet.limits.clusters_at_once
    replies = await fanout.ask_all(await asking.links(targets.chosen), ask, at_once=at_once)
    asking.refuse_or_warn(verdict := failures.judge(replies, targets.skipped))
    status = reviews.merge(await _within_reach(asking, verdict.answered))
    answered: dict[str, Any] = msgspec.json.decode(verdict.answered[0].body)
    return value_response(asking.context, 201, {**answered, "status": status})


async def _ask(asking: Asking, link: Link, body: bytes) -> Reply:
    """Return a review that says something; any other answer is a failure."""
    version_for = await asking.version_for(link.cluster)
    naming, subject = Naming(link.cluster), Subject.of(asking.route.info)
    content_type = asking.context.header("content-type")
    own = inbound.rewrite(body, content_type, naming, subject, version_for=version_for)
    query, seconds = asking.route.info.query, asking.fleet.limits.list_seconds

    def make_ask(link: Link) -> ApiRequest:
        return asking.ask(link, query, body=own, seconds=seconds)

    reply = await fanout.ask_one(link, make_ask)
    if reply.failure is not None:
        return reply
    try:
        reviews.read_opinion(reply)
    except ClusterMisbehaved as nonsense:
        return Reply(link.cluster, reply.status, failure=nonsense)
    return reply


async def _within_reach(asking: Asking, replies: Sequence[Reply]) -> list[Opinion]:
    """Return what clusters say; a yes is none where the hub lets the caller only look."""
    opinions = [reviews.read_opinion(reply) for reply in replies]
    verb = _reach_verb_in(replies[0].body)
    members = [each.cluster for each in opinions if each.cluster != HUB]
    reachable = await asking.fleet.gatekeeper.admit(asking.context.user, verb, members)

    def limited(opinion: Opinion) -> Opinion:
        refused = None if opinion.cluster == HUB else reachable.find_refusal(opinion.cluster)
        if refused is None:
            return opinion
        why = refused or f"not allowed to reach cluster {opinion.cluster} for this"
        return Opinion(opinion.cluster, is_allowed=False, reason=why)

    return [limited(each) for each in opinions]


def _reach_verb_in(review: bytes) -> str:
    """Return the right on `clusters/proxy` that what a review asks about would take."""
    asked: Any = msgspec.json.decode(review)
    if find_at(asked, "spec", "resourceAttributes", "subresource") in CONNECTS:
        return "create"
    kinds = ("resourceAttributes", "nonResourceAttributes")
    verbs = [find_at(asked, "spec", kind, "verb") for kind in kinds]
    return next((verb for verb in verbs if verb in _WRITES), "get")
