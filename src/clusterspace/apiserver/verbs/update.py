"""Replace an object, or one of its subresources."""

from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.verbs.answers import answer_changed
from clusterspace.apiserver.verbs.change import change
from clusterspace.apiserver.verbs.create import create_object
from clusterspace.apiserver.verbs.resource_request import (
    ResourceRequest,
    place,
    read_incoming,
    refuse,
    require_name,
)
from clusterspace.errors import BadRequest
from clusterspace.kube import causes
from clusterspace.kube.objects import Object, metadata_of, name_of


async def update(ask: ResourceRequest) -> Response:
    """Answer PUT on an object or its status."""
    query, agent = ask.info.query, ask.context.header("user-agent")
    options = read_write_options(query, kind="UpdateOptions", user_agent=agent)
    incoming = place(ask, await read_incoming(ask, options.field_validation))
    if not name_of(incoming):
        raise BadRequest("the name of the object must be given in its metadata")
    require_name(ask, incoming)
    rules, version = ask.served.rules, metadata_of(incoming).get("resourceVersion")
    is_there = await ask.hub.store.get(ask.key) is not None
    if not is_there and rules.creates_on_update and not version and not ask.info.subresource:
        return await create_object(ask, incoming, options)
    if is_there and rules.needs_version_to_update and version in (None, "", "0"):
        why = "must be specified for an update"
        refuse(ask, incoming, (causes.invalid("metadata.resourceVersion", 0, why),))

    def replace(old: Object) -> Object:
        if "managedFields" in metadata_of(incoming):
            return incoming
        # A client that left the owners out did not mean to forget them.
        owners = metadata_of(old).get("managedFields")
        if owners is None:
            return incoming
        return {**incoming, "metadata": {**metadata_of(incoming), "managedFields": owners}}

    return await answer_changed(ask, await change(ask, replace, options))
