"""Objects to answers, in the representation the client asked for."""

from dataclasses import dataclass

from clusterspace.apiserver import forms
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.negotiation import JSON
from clusterspace.apiserver.http.responses import json_response, value_response
from clusterspace.apiserver.store.revisions import KeyValue
from clusterspace.apiserver.tables import read_include, table_of
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.builtins.printers.cells import Printer
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.tables import partial_metadata


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change left behind."""

    kube_object: Object
    entry: KeyValue | None
    """The stored entry to answer from; None for a dry run and for an object that is now gone."""


async def answer_entry(ask: ResourceRequest, code: int, entry: KeyValue) -> Response:
    """Answer with a stored object; its bytes are spliced when nothing else is asked for."""
    representation, form = ask.representation, ask.served.form
    is_as_stored = representation.media_type == JSON and not representation.transform
    if is_as_stored and form.conversion is None and not ask.info.query.is_true("pretty"):
        return json_response(ask.context, code, forms.object_bytes(entry, form))
    ask.context.weigh(entry.value)
    if is_as_stored:
        return await ask.context.run(
            lambda: json_response(ask.context, code, forms.object_bytes(entry, form))
        )
    held = await ask.context.run(lambda: forms.decode_stored(entry, form))
    return await answer_object(ask, code, held)


async def answer_object(ask: ResourceRequest, code: int, kube_object: Object) -> Response:
    """Answer with an object, as itself, as a Table of one row, or as its metadata."""
    media_type = ask.representation.media_type
    return await ask.context.run(
        lambda: value_response(ask.context, code, represent(ask, kube_object), media_type)
    )


async def answer_changed(ask: ResourceRequest, changed: Changed, code: int = 200) -> Response:
    """Answer with what a change left behind."""
    if changed.entry is not None:
        return await answer_entry(ask, code, changed.entry)
    return await answer_object(ask, code, changed.kube_object)


def represent(ask: ResourceRequest, kube_object: Object, printer: Printer | None = None) -> Object:
    """Return an object in the asked representation, with the resource's printer or another."""
    if ask.representation.is_table:
        return table_of(
            [kube_object],
            printer or ask.served.printer,
            list_metadata=metadata_of(kube_object),
            include=read_include(ask.info.query.get("includeObject")),
            now=ask.hub.clock.now(),
        )
    if ask.representation.is_metadata_only:
        return partial_metadata(kube_object)
    return kube_object
