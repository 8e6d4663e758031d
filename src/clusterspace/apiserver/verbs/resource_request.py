"""What every verb begins and ends with: the request as one value, bodies in, objects out."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.forms import encode_entries, table_of
from clusterspace.apiserver.http.bodies import Body, read_body
from clusterspace.apiserver.http.context import RequestContext, headers_for
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import JSON, PROTOBUF, Representation, RequestInfo
from clusterspace.apiserver.http.responses import is_pretty, json_response, value_response
from clusterspace.apiserver.options import read_include
from clusterspace.apiserver.state import Author, HubState
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.builtins.printers.cells import Printer
from clusterspace.errors import ApiError, BadRequest, Cause, RequestEntityTooLarge
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, metadata_of, name_of
from clusterspace.kube.protobuf.wire import Envelope, write_envelope
from clusterspace.kube.resources import parse_api_version
from clusterspace.kube.tables import in_version, partial_metadata

_ENCODED_BYTES: Final = 64 * 1024
_ENCODED_AT_ONCE: Final = 200
"""Stored objects that become protobuf in one go, of so many bytes in the event loop's own time."""

_WARNING_LIMIT: Final = 25
"""Naming more unknown fields than anybody reads helps nobody."""


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """A request for a resource that is served: the one argument of every verb.

    The context has read the URL; this adds what the hub knows of the resource it names, and the
    representation agreed on.
    """

    hub: HubState
    context: RequestContext
    served: Served
    representation: Representation

    @property
    def info(self) -> RequestInfo:
        """What the URL says."""
        return self.context.info

    @property
    def author(self) -> Author:
        """Who asks, as those who write have it."""
        context = self.context
        return Author(context.user, context.warn, context.run, context.annotate)

    @property
    def key(self) -> str:
        """The storage key of the object the URL names."""
        return self.served.key(self.info.namespace, self.info.name)

    async def read_body(self) -> Body:
        """Read and decode the body."""
        raw = await self.read_raw_body()
        content_type, kind = self.context.header("content-type"), self.served.info.kind
        return await self.context.run(lambda: read_body(raw, content_type, expected_kind=kind))

    async def read_raw_body(self) -> bytes:
        """Read the body; one that makes a large object is waited with until others are done."""
        raw = await self.context.read_body()
        await self.context.take_turn()
        return raw

    async def read_small_body(self, kind: str) -> Body:
        """Read a body that says what to do and is not kept, such as options or a question.

        Nobody writes those by the thousand fields, so one like that is refused, and the others
        may be worked on without a thought of how long it takes.
        """
        raw = await self.context.read_body()
        if self.context.is_heavy:
            raise RequestEntityTooLarge(f"Request entity too large: {kind} has too many parts")
        return read_body(raw, self.context.header("content-type"), expected_kind=kind)

    def not_found(self) -> ApiError:
        """Return the refusal for an object that is not there."""
        return statuses.not_found(self.served.info.group_resource, self.info.name)


Verb: TypeAlias = Callable[[ResourceRequest], Awaitable[Response | None]]
"""Answers a request; None when it has sent the answer itself."""


async def read_incoming(
    request: ResourceRequest, field_validation: str, *, is_kept: bool = True
) -> Object:
    """Read a body that must be an object of the resource's kind, in its normal form."""
    kind = request.served.info.kind
    body = await (request.read_body() if is_kept else request.read_small_body(kind))
    checked = require_kind(body.value, request.served)
    reading = await request.context.run(lambda: request.served.rules.read(checked))
    complain(request, reading.unknown_fields, body, field_validation)
    return reading.kube_object


def require_kind(value: Any, served: Served) -> Object:
    """Return the body as an object of the kind the URL stands for, or refuse it."""
    info = served.info
    if not isinstance(value, dict):
        raise _wrong(served, "the object provided is unrecognized")
    kube_object = cast("Object", value)
    kind, api_version = kube_object.get("kind"), kube_object.get("apiVersion")
    if kind is None and api_version is None and not served.is_custom:
        # Typed endpoints take a body that leaves both out, as kube-apiserver does.
        return {"kind": info.kind, "apiVersion": info.api_version, **kube_object}
    unrecognized = f"the object provided is unrecognized (must be of type {info.kind})"
    if not isinstance(kind, str) or not kind:
        raise BadRequest(f"{unrecognized}: couldn't get version/kind; Object 'Kind' is missing")
    if not isinstance(api_version, str) or not api_version:
        raise BadRequest(
            f"{unrecognized}: couldn't get version/kind; Object 'apiVersion' is missing"
        )
    given = parse_api_version(api_version)
    refused = f'{kind} in version "{info.version}" cannot be handled as a {info.kind}'
    if given.group != info.group:
        raise BadRequest(
            f'{refused}: no kind "{kind}" is registered for version "{given}" in scheme '
            '"pkg/api/legacyscheme/scheme.go:30"'
        )
    if kind != info.kind:
        package = info.group.partition(".")[0] or "core"
        raise BadRequest(
            f"{refused}: converting ({given.version}.{kind}) to ({package}.{info.kind}): "
            "unknown conversion"
        )
    if api_version != info.api_version:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match "
            f"the expected API version ({info.api_version})"
        )
    metadata = kube_object.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _wrong(served, "metadata is not an object")
    return {**kube_object, "metadata": metadata or {}}


def _wrong(served: Served, why: str) -> BadRequest:
    kind, version = served.info.kind, served.info.version
    return BadRequest(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def complain(
    request: ResourceRequest,
    unknown: tuple[str, ...],
    body: Body,
    field_validation: str,
) -> None:
    """Warn of unknown and repeated fields, or refuse them, as the client asked."""
    if field_validation == "Ignore":
        return
    complaints = [f'unknown field "{path}"' for path in unknown[:_WARNING_LIMIT]]
    complaints += [f'duplicate field "{path}"' for path in body.duplicates[:_WARNING_LIMIT]]
    del complaints[_WARNING_LIMIT:]
    lines = body.duplicate_lines[:_WARNING_LIMIT]
    if lines and field_validation == "Strict":
        complaints = [in_yaml_words(lines), *complaints]
    else:
        complaints = [*lines, *complaints]
    if not complaints:
        return
    if field_validation == "Strict":
        raise _wrong(request.served, f"strict decoding error: {', '.join(complaints)}")
    for complaint in complaints:
        request.context.warn(complaint)


def in_yaml_words(lines: Sequence[str]) -> str:
    """Return what is wrong with lines of YAML as one complaint."""
    return "\n  ".join(("yaml: unmarshal errors:", *lines))


def place(request: ResourceRequest, kube_object: Object) -> Object:
    """Check the namespace against the URL and set it."""
    metadata = metadata_of(kube_object)
    given = metadata.get("namespace") or ""
    expected = request.info.namespace if request.served.info.namespaced else ""
    if given and given != expected:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if not expected:
        return {**kube_object, "metadata": {k: v for k, v in metadata.items() if k != "namespace"}}
    return {**kube_object, "metadata": {**metadata, "namespace": request.info.namespace}}


def require_name(request: ResourceRequest, kube_object: Object) -> None:
    """Refuse a body whose name is not the URL's."""
    given, expected = metadata_of(kube_object).get("name") or "", request.info.name
    if given and given != expected:
        raise BadRequest(
            f"the name of the object ({given}) does not match the name on the URL ({expected})"
        )


def refuse(request: ResourceRequest, kube_object: Object, found: tuple[Cause, ...]) -> None:
    """Raise Invalid with every cause, if there are any."""
    if found:
        raise statuses.invalid(request.served.info.group_kind, name_of(kube_object), found)


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a change."""

    kube_object: Object
    entry: KeyValue | None
    """The stored entry to answer from; None for a dry run and for an object that is now gone."""


async def answer_entry(request: ResourceRequest, code: int, entry: KeyValue) -> Response:
    """Answer with a stored object; its bytes are spliced when nothing else is asked for."""
    representation, form = request.representation, request.served.form
    (entry,) = await request.served.converted((entry,))
    if representation.media_type == PROTOBUF and not representation.transform:
        (message,) = await encoded_messages(request, (entry,))
        body = write_envelope(Envelope(form.api_version, form.kind, message))
        return Response(code, headers_for(request.context, PROTOBUF), body)
    is_as_stored = representation.media_type == JSON and not representation.transform
    if is_as_stored and form.conversion is None and not is_pretty(request.context):
        return json_response(request.context, code, forms.object_bytes(entry, form))
    request.context.weigh(entry.value)
    if is_as_stored:
        return await request.context.run(
            lambda: json_response(request.context, code, forms.object_bytes(entry, form))
        )
    kube_object = await request.context.run(lambda: forms.decode_stored(entry, form))
    return await answer_object(request, code, kube_object)


async def encoded_messages(
    request: ResourceRequest, entries: Sequence[KeyValue]
) -> Sequence[bytes]:
    """Return the protobuf messages of stored objects, encoding only what nobody has yet."""
    encoded, form, context = request.hub.encoded, request.served.form, request.context
    found = [encoded.find(entry, form) for entry in entries]
    missing = [entry for entry, message in zip(entries, found, strict=True) if message is None]
    if not missing:
        return cast("list[bytes]", found)
    if sum(len(entry.value) for entry in missing) > _ENCODED_BYTES:
        context.is_heavy = True
    made: list[bytes] = []
    # In steps, so that others have their turn in between; kept between them, on the event loop.
    for start in range(0, len(missing), _ENCODED_AT_ONCE):
        step = missing[start : start + _ENCODED_AT_ONCE]
        messages = await context.run(lambda step=step: encode_entries(step, form))
        for entry, message in zip(step, messages, strict=True):
            encoded.keep(entry, form, message)
        made += messages
    # Not read back from what is kept: it may be too much to be kept all at once.
    rest = iter(made)
    return [next(rest) if message is None else message for message in found]


async def answer_object(request: ResourceRequest, code: int, kube_object: Object) -> Response:
    """Answer with an object, as itself, as a Table of one row, or as its metadata."""
    media_type = request.representation.media_type
    return await request.context.run(
        lambda: value_response(request.context, code, represent(request, kube_object), media_type)
    )


async def answer_changed(request: ResourceRequest, changed: Changed, code: int = 200) -> Response:
    """Answer with what a change left behind."""
    if changed.entry is not None:
        return await answer_entry(request, code, changed.entry)
    return await answer_object(request, code, changed.kube_object)


def represent(
    request: ResourceRequest, kube_object: Object, printer: Printer | None = None
) -> Object:
    """Return an object in the asked representation, with the resource's printer or another."""
    representation = request.representation
    if representation.is_table:
        shown = table_of(
            [kube_object],
            printer or request.served.printer,
            list_metadata=metadata_of(kube_object),
            include=read_include(request.info.query.get("includeObject")),
            now=request.hub.clock.now(),
        )
        return in_version(shown, representation.meta_version)
    if representation.is_metadata_only:
        return in_version(partial_metadata(kube_object), representation.meta_version)
    return kube_object
