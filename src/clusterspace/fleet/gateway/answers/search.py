"""One cluster that the request does not name: looked for among those the caller may reach."""

from dataclasses import replace
from typing import Final
from urllib.parse import quote

import msgspec

from clusterspace.apiserver.http.messages import Response
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ClusterMisbehaved
from clusterspace.fleet.gateway import fanout
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.answers.follow_ups import note_found
from clusterspace.fleet.gateway.answers.one import answer_one
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.flow import HUB, Naming, Reach, Reply
from clusterspace.fleet.gateway.merge import failures
from clusterspace.fleet.gateway.merge.lists import read_cluster_list
from clusterspace.fleet.gateway.routes import path_in_cluster
from clusterspace.kube import statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.selectors import parse_field_selector

_OBJECT_BYTES: Final = 4 * 1024 * 1024
"""More than any object has: one is looked for, in every cluster at once."""


async def answer_found(asking: Asking) -> Response | None:
    """Find the cluster that has the object, then ask it what was asked."""
    clusters = asking.fleet.everybody()
    if asking.route.reach is Reach.ANY and HUB not in clusters:
        clusters = (HUB, *clusters)
    targets = await asking.targets(clusters)
    links = await asking.links(targets.chosen)

    async def look(link: Link) -> Reply:
        reply = asking.note(await _look(asking, link))
        asking.note_list(reply)
        return reply

    at_once = asking.fleet.limits.clusters_at_once
    replies = await fanout.ask_all(links, look, at_once=at_once)
    any_will_do = asking.route.reach is Reach.ANY
    name = asking.route.info.name or _selected_name(asking)
    asking.note_skipped(targets.skipped)
    verdict = failures.judge_search(
        replies,
        targets.skipped,
        name=name,
        any_will_do=any_will_do,
        home=HUB if asking.fleet.federation else "",
        is_given_up=asking.is_given_up,
    )
    asking.refuse_or_warn(verdict)
    found = verdict.answered[0]
    note_found(asking, found)
    return await answer_one(asking, Naming(found.cluster))


async def _look(asking: Asking, link: Link) -> Reply:
    """Return the object, or what selects it alone; nothing selected is not found."""
    info = asking.route.info
    is_named = bool(info.name)
    request = ApiRequest(
        "GET",
        _object_path(asking) if is_named else asking.path,
        () if is_named else (("fieldSelector", info.query.get("fieldSelector")),),
        headers=(("accept", "application/json"), *asking.identity_for(link)),
        seconds=asking.fleet.limits.list_seconds,
        most_bytes=_OBJECT_BYTES,
        hold=asking.hold,
    )
    reply = await fanout.ask_one(link, lambda _: request)
    if reply.failure is not None:
        return reply
    check = _misbehaved_if_another if is_named else _not_found_if_empty
    return check(asking, reply)


class _Metadata(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct, rename="camel"):
    api_version: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_read_named = msgspec.json.Decoder(_Named).decode


def _misbehaved_if_another(asking: Asking, reply: Reply) -> Reply:
    """Take an answer for the object only if it says so: else every name would be everywhere."""
    try:
        found = _read_named(reply.body)
    except UNREADABLE:
        found = _Named()
    if (found.metadata.name, found.api_version) == (asking.route.info.name, asking.api_version):
        return reply
    why = "answered with something else than was asked for"
    return Reply(reply.cluster, failure=ClusterMisbehaved(reply.cluster, why, code=reply.status))


def _not_found_if_empty(asking: Asking, reply: Reply) -> Reply:
    info = asking.route.info
    try:
        count = read_cluster_list(reply.body, Naming(reply.cluster)).count
    except ClusterMisbehaved as nonsense:
        return Reply(reply.cluster, failure=nonsense)
    if count:
        return reply
    resource = GroupResource(info.group, info.resource)
    return Reply(reply.cluster, failure=statuses.not_found(resource, _selected_name(asking)))


def _object_path(asking: Asking) -> str:
    """Return the path of the object itself, whatever of it is asked for."""
    whole = replace(asking.route.info, subresource="", rest=(), is_watch_path=False)
    return quote(path_in_cluster(whole), safe="/:")


def _selected_name(asking: Asking) -> str:
    selector = parse_field_selector(asking.route.info.query.get("fieldSelector"))
    return selector.requires_exact("metadata.name") or ""
