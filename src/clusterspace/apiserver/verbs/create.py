"""Names, defaults, rules, write: a new object."""

from typing import Final

from clusterspace.apiserver.admissions import Author
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.options import WriteOptions, read_write_options
from clusterspace.apiserver.ownership import write_of
from clusterspace.apiserver.verbs.answers import answer_entry, answer_object
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, place, read_incoming
from clusterspace.apiserver.writing import begin_new, finish_new, write_new
from clusterspace.errors import ApiError, BadRequest
from clusterspace.kube import statuses
from clusterspace.kube.names import generate_name
from clusterspace.kube.objects import Object, metadata_of, name_of

_GENERATED_TRIES: Final = 8
"""As kube-apiserver: five random characters collide now and then in a crowded namespace."""


async def create(ask: ResourceRequest) -> Response:
    """Answer POST on a collection."""
    query, agent = ask.info.query, ask.context.header("user-agent")
    options = read_write_options(query, kind="CreateOptions", user_agent=agent)
    incoming = place(ask, await read_incoming(ask, options.field_validation))
    if metadata_of(incoming).get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    return await create_object(ask, incoming, options)


async def create_object(
    ask: ResourceRequest, incoming: Object, options: WriteOptions, *, tracks_fields: bool = True
) -> Response:
    """Create an object whose body has been read; apply uses it for what is not there yet."""
    if name_of(incoming) or not metadata_of(incoming).get("generateName"):
        return await _create_named(ask, incoming, options, tracks_fields=tracks_fields)
    for attempt in range(_GENERATED_TRIES):
        base = str(metadata_of(incoming)["generateName"])
        metadata = {**metadata_of(incoming), "name": generate_name(base, ask.hub.random)}
        named = {**incoming, "metadata": metadata}
        try:
            return await _create_named(ask, named, options, tracks_fields=tracks_fields)
        except ApiError as error:
            if error.reason != "AlreadyExists" or attempt == _GENERATED_TRIES - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _create_named(
    ask: ResourceRequest, incoming: Object, options: WriteOptions, *, tracks_fields: bool
) -> Response:
    run, user = ask.context.run, ask.context.user
    newborn = await run(lambda: begin_new(ask.hub, ask.served, incoming, user))
    write = write_of(ask.hub, ask.served, manager=options.field_manager)
    owners = write if tracks_fields else None
    author = Author(user, ask.context.warn, run)
    new = await finish_new(ask.hub, ask.served, newborn, author, owners)
    if options.dry_run:
        await _refuse_taken(ask, new)
        return await answer_object(ask, 201, new)
    return await answer_entry(ask, 201, await write_new(ask.hub, ask.served, new, run))


async def _refuse_taken(ask: ResourceRequest, new: Object) -> None:
    key = ask.served.key(ask.info.namespace, name_of(new))
    if await ask.hub.store.get(key) is not None:
        raise statuses.already_exists(ask.served.info.group_resource, name_of(new))
