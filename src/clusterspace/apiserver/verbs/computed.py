"""Get and list of kinds that nobody stores: objects are worked out when they are asked for."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from clusterspace.apiserver.forms import as_item, table_of
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.options import read_list_options, select
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, answer_object
from clusterspace.apiserver.verbs.subresources import Verb
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.tables import in_version, partial_metadata_list

WorkOut: TypeAlias = Callable[[HubState], Awaitable[Iterable[Object]]]
"""Works out every object of the kind as things are now."""


def computed_verbs(path: str, work_out: WorkOut) -> Mapping[tuple[str, str], Verb]:
    """Return `get` and `list` of the kind at `group/resource`."""

    async def get(request: ResourceRequest) -> Response:
        for each in await work_out(request.hub):
            if (namespace_of(each), name_of(each)) == (request.info.namespace, request.info.name):
                return await answer_object(request, 200, each)
        raise request.not_found()

    async def list_objects(request: ResourceRequest) -> Response:
        served, representation = request.served, request.representation
        options = read_list_options(request.info.query, is_watch=False)
        selection = select(served, options)
        found = [
            each
            for each in await work_out(request.hub)
            if request.info.namespace in ("", namespace_of(each)) and selection.matches(each)
        ]
        found.sort(key=lambda each: (namespace_of(each), name_of(each)))
        metadata: Object = {}
        if representation.is_table:
            body = table_of(
                found,
                served.printer,
                list_metadata=metadata,
                include=options.include,
                now=request.hub.clock.now(),
            )
        elif representation.is_metadata_only:
            body = partial_metadata_list(found, metadata)
        else:
            body = {
                "kind": served.info.list_kind,
                "apiVersion": served.info.api_version,
                "metadata": metadata,
                "items": [as_item(each, served.form) for each in found],
            }
        if representation.transform:
            body = in_version(body, representation.meta_version)
        return value_response(request.context, 200, body, representation.media_type)

    return {(path, "get"): get, (path, "list"): list_objects}
