"""Karmada's search: what ResourceRegistries select, in the names that clusters have for it.

    search/cache/PATH            lists and single objects, as a list
    proxying/karmada/proxy/PATH  an API server: get, list and watch of what is selected; writes and
                                 subresources go to the one cluster that has the object; what no
                                 registry speaks of is the control plane's

Objects say in an annotation which cluster they are from. Nothing is kept here for registries:
clusters are asked, as the caller, as everywhere in the view. So who sees what is for each cluster
to decide, and what is shown is what is there now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from clusterspace.apis.registries import Namespaces
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest, Conflict, Details, Expired, NotFound
from clusterspace.fleet.gateway import virtual_labels
from clusterspace.fleet.gateway.answers.list_all import list_all
from clusterspace.fleet.gateway.answers.single import answer_single, look_for
from clusterspace.fleet.gateway.answers.watch_all import watch_all
from clusterspace.fleet.gateway.clusters import Link
from clusterspace.fleet.gateway.fanout import FleetContext, fan_out, find_targets
from clusterspace.fleet.gateway.merge import failures
from clusterspace.fleet.gateway.merge.failures import Reply, Skipped, Verdict
from clusterspace.fleet.gateway.routes import (
    HUB,
    Naming,
    Reach,
    Route,
    Search,
    path_in_cluster,
)
from clusterspace.kube import statuses
from clusterspace.kube.resources import GroupResource

_NOBODY: Final = "NOBODY"
"""What no cluster is called: names of clusters are in lower case."""


async def answer_search(context: FleetContext, search: Search) -> Response | None:
    """Answer a request at one of the paths of Karmada's search."""
    info, registries = context.info, context.fleet.registries
    if search is Search.CACHE and not (info.is_resource and info.verb in ("get", "list")):
        raise statuses.method_not_served(
            "search/cache lists objects: GET it, with the path of a resource behind it; to watch "
            "and to write, use proxying/karmada/proxy"
        )
    if not info.is_resource or registries is None:
        return await _answer_from_hub(context)
    selected = await registries.select(context.subject)
    if search is Search.PROXY and not selected.is_registered:
        return await _answer_from_hub(context)
    namespace = info.namespace if info.is_in_namespace else ""
    clusters = selected.in_namespace(namespace)
    if search is Search.CACHE:
        if info.subresource:
            raise BadRequest("search/cache knows no subresources")
        return await list_all(_narrowed(_as_list(context), clusters))
    if info.is_watch:

        def end_if_changed() -> None:
            # What the client has it has by a selection that is no more: only a new list says what
            # of it is selected still.
            now = registries.selected_now(context.subject).in_namespace(namespace)
            if now != clusters:
                context.http.end(Expired("ResourceRegistries select other clusters; list again"))

        with registries.following(end_if_changed):
            return await watch_all(_narrowed(context, clusters))
    if info.verb == "list":
        return await list_all(_narrowed(context, clusters))
    if not info.name:
        raise statuses.method_not_served(
            f"{info.verb} is not served here: no cluster is named; use a cluster's own address"
        )
    cluster = await _find(context, tuple(clusters))
    naming = Naming(cluster, shows_source=True)
    route = replace(context.route, reach=Reach.ONE, naming=naming)
    return await answer_single(replace(context, route=route), naming)


async def _answer_from_hub(context: FleetContext) -> Response | None:
    naming = Naming(HUB)
    route = Route(context.info, Reach.ONE, naming, is_relayed=True)
    return await answer_single(replace(context, route=route), naming)


def _as_list(context: FleetContext) -> FleetContext:
    """Return a request for one object as one for a list: of each cluster that has it."""
    info = context.info
    if not info.name:
        return context
    pairs = (*info.query.pairs, ("fieldSelector", f"metadata.name={info.name}"))
    listed = replace(info, verb="list", name="", query=Query(pairs))
    listed = replace(listed, path="/" + path_in_cluster(listed).removeprefix("/"))
    return replace(context, route=replace(context.route, info=listed))


def _narrowed(context: FleetContext, clusters: Mapping[str, Namespaces]) -> FleetContext:
    """Return a list or watch of all clusters as one of these: a selector by the cluster's name."""
    info = context.info
    term = f"{virtual_labels.CLUSTER} in ({','.join(clusters) or _NOBODY})"
    own = info.query.get("labelSelector")
    others = (pair for pair in info.query.pairs if pair[0] != "labelSelector")
    query = Query((*others, ("labelSelector", f"{own},{term}" if own else term)))
    route = replace(
        context.route,
        info=replace(info, query=query),
        namespaces={each: names for each, names in clusters.items() if names}
        if not info.is_in_namespace
        else {},
    )
    return replace(context, route=route)


async def _find(context: FleetContext, clusters: Sequence[str]) -> str:
    """Return the one of these clusters that has the object; Conflict when several have."""
    info = context.info

    async def look(link: Link) -> Reply:
        reply = await look_for(context, link, info.name)
        context.note_list(reply)
        return reply

    def judge(replies: Sequence[Reply], skipped: Sequence[Skipped]) -> Verdict:
        return failures.judge(replies, skipped, is_given_up=context.is_given_up)

    missing = statuses.not_found(GroupResource(info.group, info.resource), info.name)
    targets = await find_targets(context, clusters)
    if not targets.chosen and not targets.skipped:
        raise missing
    try:
        found = [each.cluster for each in (await fan_out(context, targets, look, judge)).answered]
    except NotFound as error:
        raise missing from error
    if len(found) > 1:
        what = f'Operation cannot be fulfilled on {info.resource} "{info.name}"'
        raise Conflict(f"{what}: it is in {len(found)} clusters: {', '.join(found)}", Details())
    return found[0]
