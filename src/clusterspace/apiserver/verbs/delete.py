"""Delete an object, or everything a selector selects."""

from typing import Any

from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import json_response, value_response
from clusterspace.apiserver.options import read_delete_options, read_list_options
from clusterspace.apiserver.removal import Removed, remove
from clusterspace.apiserver.selection import select_for
from clusterspace.apiserver.verbs.answers import answer_entry, answer_object
from clusterspace.apiserver.verbs.read import list_pieces, read_page
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.errors import NotFound
from clusterspace.kube import statuses
from clusterspace.kube.objects import name_of, uid_of


async def delete(ask: ResourceRequest) -> Response:
    """Answer DELETE on an object."""
    options = read_delete_options(ask.info.query, await _read_options(ask))
    return await _answer(ask, await remove(ask.hub, ask.served, ask.key, options))


async def delete_collection(ask: ResourceRequest) -> Response:
    """Answer DELETE on a collection: each selected object on its own, as one DELETE would."""
    options = read_delete_options(ask.info.query, await _read_options(ask))
    listing = read_list_options(ask.info.query, is_watch=False)
    selection = await select_for(ask.context.user, ask.served, listing)
    page = await read_page(ask, listing, selection)
    for entry in page.entries:
        try:
            await remove(ask.hub, ask.served, entry.key, options)
        except NotFound:
            continue  # somebody else was quicker; gone is gone
    return json_response(ask.context, 200, list_pieces(ask, page))


async def _read_options(ask: ResourceRequest) -> Any:
    if not await ask.context.read_body():
        return None
    return (await ask.read_small_body("DeleteOptions")).value


async def _answer(ask: ResourceRequest, left: Removed) -> Response:
    if left.entry is not None:
        return await answer_entry(ask, 200, left.entry)
    if not left.is_gone or ask.served.returns_deleted:
        return await answer_object(ask, 200, left.kube_object)
    resource, held = ask.served.info.group_resource, left.kube_object
    return value_response(ask.context, 200, statuses.deleted(resource, name_of(held), uid_of(held)))
