"""May I: a question that each cluster answers for itself, and the fleet for all of them.

The answer is yes when every cluster says yes; else it says who does and who does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import CONNECTS, JSON
from clusterspace.apiserver.http.responses import value_response
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ClusterMisbehaved, RequestEntityTooLarge
from clusterspace.fleet.gateway import inbound
from clusterspace.fleet.gateway.clusters import Link
from clusterspace.fleet.gateway.fanout import FleetContext, ask_one, fan_out, find_targets
from clusterspace.fleet.gateway.merge import failures
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.routes import HUB, Naming, Reach
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object, find_at

_WRITES: Final = frozenset({"create", "update", "patch", "delete"})
"""Verbs that reach a cluster by the right of their own name; all others look."""
_MOST_NAMED: Final = 10
_MOST_REVIEW_BYTES: Final = 64 * 1024


async def answer_review(context: FleetContext) -> Response:
    """Ask every cluster the question is about; one that is out of reach has no say."""
    http, clusters = context.http, context.fleet.all_clusters()
    if context.route.reach is Reach.ONE:
        clusters = (context.route.naming.cluster,)
        await context.require(clusters[0], "get")
    targets = await find_targets(context, clusters)
    body = await http.read_body()
    if http.is_heavy:
        # Every cluster is asked, and nobody asks about a thousand things at once.
        raise RequestEntityTooLarge("Request entity too large: the review has too many parts")

    async def ask(link: Link) -> Reply:
        version_for = await context.version_for(link.cluster)
        own = inbound.rewrite(
            body,
            http.header("content-type"),
            Naming(link.cluster),
            context.subject,
            version_for=version_for,
        )
        query, seconds = context.info.query, context.fleet.limits.list_seconds
        reply = await ask_one(
            link, lambda link: context.request_to(link, query, body=own, seconds=seconds)
        )
        if reply.failure is None:
            try:
                read_opinion(reply)
            except ClusterMisbehaved as nonsense:
                reply = Reply(link.cluster, reply.status, failure=nonsense)
        return context.note(reply)

    answered = (await fan_out(context, targets, ask, failures.judge)).answered
    review: dict[str, Any] = msgspec.json.decode(answered[0].body)
    # A yes is none where the hub lets the caller only look.
    opinions = [read_opinion(reply) for reply in answered]
    members = [each.cluster for each in opinions if each.cluster != HUB]
    reachable = await context.fleet.gatekeeper.admit(http.user, _reach_verb_in(review), members)
    for index, opinion in enumerate(opinions):
        refused = None if opinion.cluster == HUB else reachable.find_refusal(opinion.cluster)
        if refused is not None:
            why = refused or f"not allowed to reach cluster {opinion.cluster} for this"
            opinions[index] = Opinion(opinion.cluster, is_allowed=False, reason=why)
    return value_response(http, 201, {**review, "status": merge_opinions(opinions)})


def _reach_verb_in(review: Object) -> str:
    """Return the right on `clusters/proxy` that what a review asks about would take."""
    if find_at(review, "spec", "resourceAttributes", "subresource") in CONNECTS:
        return "create"
    kinds = ("resourceAttributes", "nonResourceAttributes")
    verbs = [find_at(review, "spec", kind, "verb") for kind in kinds]
    return next((verb for verb in verbs if verb in _WRITES), "get")


async def may(context: FleetContext, link: Link, verb: str) -> bool:
    """Ask a cluster whether the caller may do this now to all that a request is about.

    Who may see single objects only, by their names, is told no. So is whoever a cluster has no
    clear yes for, whatever the reason.
    """
    info = context.info
    attributes = {
        "verb": verb,
        "group": info.group,
        "version": info.version,
        "resource": info.resource,
        "subresource": info.subresource,
        "namespace": info.namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    request = ApiRequest(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        headers=(("accept", JSON), ("content-type", JSON), *context.identity_for(link)),
        body=msgspec.json.encode(review),
        seconds=context.fleet.limits.list_seconds,
        most_bytes=_MOST_REVIEW_BYTES,
    )
    reply = await ask_one(link, lambda _: request)
    return reply.failure is None and read_opinion(reply).is_allowed


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one cluster says of somebody's right to do something."""

    cluster: str
    is_allowed: bool
    reason: str = ""


def read_opinion(reply: Reply) -> Opinion:
    """Read an access review that a cluster answered; ClusterMisbehaved when it is none."""
    try:
        review: Any = msgspec.json.decode(reply.body)
    except UNREADABLE as error:
        raise ClusterMisbehaved(reply.cluster, "its access review cannot be read") from error
    allowed = find_at(review, "status", "allowed") if isinstance(review, dict) else None
    if not isinstance(allowed, bool):
        raise ClusterMisbehaved(reply.cluster, "its access review decides nothing")
    reason = find_at(cast("Object", review), "status", "reason")
    return Opinion(reply.cluster, allowed, str(reason or ""))


def merge_opinions(opinions: Sequence[Opinion]) -> Mapping[str, Any]:
    """Return the status of the fleet's own answer; there must be an opinion.

    A right that some clusters refuse is none of the whole fleet's: whoever relies on a yes would
    be refused halfway.
    """
    willing = [each.cluster for each in opinions if each.is_allowed]
    refusing = [each for each in opinions if not each.is_allowed]
    if not refusing:
        return {"allowed": True, "reason": opinions[0].reason}
    if not willing:
        return {"allowed": False, "reason": refusing[0].reason}
    denied = _enumerated([each.cluster for each in refusing])
    return {"allowed": False, "reason": f"denied in {denied}; allowed in {_enumerated(willing)}"}


def _enumerated(clusters: Sequence[str]) -> str:
    more = len(clusters) - _MOST_NAMED
    listed = ", ".join(clusters[:_MOST_NAMED])
    return f"{listed} and {more} more" if more > 0 else listed
