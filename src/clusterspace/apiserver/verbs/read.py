"""Get and list: one object, or a page with its continue token, at a revision."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from clusterspace.aio.slices import SLICE_BYTES
from clusterspace.apiserver import forms
from clusterspace.apiserver.forms import as_item, table_of
from clusterspace.apiserver.http.context import headers_for, off_loop
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import JSON, PROTOBUF, YAML
from clusterspace.apiserver.http.responses import as_yaml, is_pretty, json_response, value_response
from clusterspace.apiserver.options import (
    ListOptions,
    Selection,
    read_list_options,
    select,
    select_for,
    version_problem,
)
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.apiserver.verbs.resource_request import (
    ResourceRequest,
    Verb,
    answer_entry,
    answer_object,
    encoded_messages,
)
from clusterspace.errors import BadRequest, Compacted, Expired, FutureRevision
from clusterspace.kube import statuses
from clusterspace.kube.json_errors import describe_json_error
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.protobuf.encoding import encode_list
from clusterspace.kube.tables import in_version, partial_metadata_list

_FRESH_SECONDS: Final = 3.0
"""How long a read waits for a resourceVersion that has not happened yet, as kube-apiserver does."""

_SCAN: Final = 500
"""How many stored objects a selective page looks at in one step."""

_SPLICED: Final = 48
"""Stored objects that an answer is spliced from in one slice: about a tenth of a millisecond."""

_DECODED: Final = 200
_DECODED_BYTES: Final = 256 * 1024
"""Stored objects that are decoded, to be shown or selected, in the event loop's own time."""

_CONTINUE_VERSION: Final = "meta.k8s.io/v1"
_LARGEST_REVISION: Final = 2**63
PRESENT: Final = -1
"""In a continue token: as things are now, not at a revision."""


async def get(request: ResourceRequest) -> Response:
    """Answer GET on an object."""
    await wait_for_version(request.hub, request.info.query.get("resourceVersion"))
    entry = await request.hub.store.get(request.key)
    if entry is None:
        raise request.not_found()
    return await answer_entry(request, 200, entry)


async def list_objects(request: ResourceRequest) -> Response:
    """Answer GET on a collection."""
    options = read_list_options(request.info.query, is_watch=False)
    selection = await select_for(request.context.user, request.served, options)
    page = await read_page(request, options, selection)
    representation, served, context = request.representation, request.served, request.context
    if representation.media_type == PROTOBUF and not representation.transform:
        return await answer_page_in_protobuf(request, page)
    as_json = representation.media_type == JSON and not representation.transform
    is_spliced = as_json and served.form.conversion is None and not is_pretty(context)
    if is_spliced:
        return json_response(context, 200, await spliced_list(request, page))
    # An answer that takes longer to make than the event loop should wait is made beside it.
    if _are_many(page.entries):
        context.is_heavy = True

    def answer() -> Response:
        if as_json:
            items = forms.item_pieces(page.entries, served.form)
            return json_response(context, 200, [list_opening(request, page), *items, b"]}"])
        if representation.is_metadata_only and representation.media_type == JSON:
            version = representation.meta_version
            head = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": version,
                "metadata": page.metadata,
            }
            opening = forms.encode(head)[:-1] + b',"items":['
            pieces = forms.metadata_pieces(page.entries, served.form, version)
            return json_response(context, 200, [opening, *pieces, b"]}"])
        objects = [forms.decode_stored(each, served.form) for each in page.entries]
        body: Object
        if representation.is_table:
            body = table_of(
                objects,
                served.printer,
                list_metadata=page.metadata,
                include=options.include,
                now=request.hub.clock.now(),
            )
        elif representation.is_metadata_only:
            body = partial_metadata_list(objects, page.metadata)
        else:
            body = {
                "kind": served.info.list_kind,
                "apiVersion": served.info.api_version,
                "metadata": page.metadata,
                "items": [forms.as_item(each, served.form) for each in objects],
            }
        if representation.transform:
            body = in_version(body, representation.meta_version)
        in_protobuf = representation.media_type == PROTOBUF
        return value_response(context, 200, body, PROTOBUF if in_protobuf else JSON)

    response = await context.run(answer)
    return await as_yaml(context, response) if representation.media_type == YAML else response


async def answer_page_in_protobuf(request: ResourceRequest, page: "ListPage") -> Response:
    """Answer with a list whose items are as they are kept, or about to be kept, encoded."""
    info, messages = request.served.info, await encoded_messages(request, page.entries)
    pieces = encode_list(info.api_version, info.list_kind, page.metadata, messages)
    return Response(200, headers_for(request.context, PROTOBUF), pieces)


@dataclass(frozen=True, slots=True)
class ListPage:
    """The selected objects of one page, and where the list goes on."""

    entries: Sequence[KeyValue]
    revision: Revision
    continue_token: str = ""
    remaining: int | None = None
    """How many more there are; unknown when a selector decides."""

    @property
    def metadata(self) -> Object:
        """The ListMeta of the page."""
        metadata: Object = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            metadata["continue"] = self.continue_token
        if self.remaining:
            metadata["remainingItemCount"] = self.remaining
        return metadata


def _are_many(entries: Sequence[KeyValue]) -> bool:
    return len(entries) > _DECODED or sum(len(each.value) for each in entries) > _DECODED_BYTES


async def selected(
    request: ResourceRequest, selection: Selection, entries: Sequence[KeyValue]
) -> Sequence[KeyValue]:
    """Return the stored objects that are selected, looking at many of them off the event loop."""
    if selection.is_everything:
        return entries
    if _are_many(entries):
        return await off_loop(request.context.user.name, lambda: selection.matching(entries))
    return selection.matching(entries)


async def read_page(
    request: ResourceRequest, options: ListOptions, selection: Selection
) -> ListPage:
    """Read one page at the revision the request asks for."""
    store, served = request.hub.store, request.served
    prefix = served.prefix(request.info.namespace)
    at, start_after = await _starting_point(request, options, prefix)
    # `resourceVersion=0` means "from a cache", and kube-apiserver's answers whole.
    ignores_limit = options.resource_version == "0" and options.version_match != "Exact"
    is_in_one_place = bool(request.info.namespace) or not served.info.namespaced
    if selection.only_name is not None and is_in_one_place:
        revision = at or store.current_revision
        entry = await store.get(served.key(request.info.namespace, selection.only_name), at=at)
        if entry is not None:
            (entry,) = await served.converted((entry,))
        is_selected = entry is not None and selection.matches_entry(entry)
        return ListPage([entry] if entry is not None and is_selected else [], revision)
    try:
        if ignores_limit or options.limit == 0:
            page = await store.range(prefix, start_after=start_after, at=at)
            items = await served.converted(page.items)
            return ListPage(await selected(request, selection, items), page.revision)
        return await _limited_page(request, selection, options.limit, at, start_after)
    except Compacted as error:
        if start_after is None:
            raise Expired(statuses.LIST_TOO_OLD) from error
        token = encode_continue(Continue(PRESENT, start_after), prefix)
        raise Expired(statuses.CONTINUE_TOO_OLD, continue_token=token) from error
    except FutureRevision as error:
        # Whoever waits for a version has waited by now: only a forged token gets here.
        raise BadRequest("invalid continue token: its version has not happened yet") from error


async def _starting_point(
    request: ResourceRequest, options: ListOptions, prefix: str
) -> tuple[Revision | None, str | None]:
    """Return the revision to read at (None for now) and the key to start behind."""
    if options.continue_token:
        if options.resource_version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        last = decode_continue(options.continue_token, prefix)
        return None if last.revision == PRESENT else Revision(last.revision), last.last_key
    await wait_for_version(request.hub, options.resource_version)
    version = parse_version(options.resource_version)
    is_exact = options.version_match == "Exact" or (
        options.limit > 0 and version > 0 and not options.version_match
    )
    return (Revision(version) if is_exact else None), None


async def _limited_page(
    request: ResourceRequest,
    selection: Selection,
    limit: int,
    at: Revision | None,
    start_after: str | None,
) -> ListPage:
    """Collect `limit` selected objects, all at one revision however many steps it takes."""
    store, prefix = request.hub.store, request.served.prefix(request.info.namespace)
    step = limit if selection.is_everything else max(limit, _SCAN)
    chosen: list[KeyValue] = []
    while True:
        page = await store.range(prefix, start_after=start_after, limit=step, at=at)
        # The first step fixes the moment for the others: writes between two steps are not seen.
        at = page.revision
        items = await request.served.converted(page.items)
        matching = await selected(request, selection, items)
        fitting = matching[: limit - len(chosen)]
        chosen += fitting
        if len(chosen) == limit:
            last_key = fitting[-1].key
            remaining = page.remaining + sum(entry.key > last_key for entry in page.items)
            if remaining == 0:
                return ListPage(chosen, at)
            token = encode_continue(Continue(at, last_key), prefix)
            return ListPage(chosen, at, token, remaining if selection.is_everything else None)
        if not page.more:
            return ListPage(chosen, at)
        start_after = page.items[-1].key


def parse_version(text: str) -> int:
    """Read a resourceVersion; the empty one and `0` are both 0."""
    if not text:
        return 0
    problem = version_problem(text)
    if problem:
        shown = statuses.quoted(text[:64])
        raise BadRequest(
            f"invalid resource version: resourceVersion: Invalid value: {shown}: {problem}"
        )
    return int(text)


async def wait_for_version(hub: HubState, text: str) -> None:
    """Wait a moment for a version from the future; 504 when it does not come."""
    asked = parse_version(text)
    if asked <= hub.store.current_revision:
        return
    deadline = hub.clock.monotonic() + _FRESH_SECONDS
    while asked > hub.store.current_revision:
        if hub.clock.monotonic() >= deadline:
            raise statuses.version_too_large(asked, hub.store.current_revision)
        await asyncio.sleep(0.05)


async def spliced_list(request: ResourceRequest, page: ListPage) -> list[bytes]:
    """Return a list, made of stored bytes and the few that are made for this answer, in slices."""
    entries, form = page.entries, request.served.form
    pieces = [list_opening(request, page)]
    start, size = 0, 0
    for end, entry in enumerate(entries, 1):
        size += len(entry.value)
        if end < len(entries) and end - start < _SPLICED and size < SLICE_BYTES:
            continue
        if start:
            await request.context.request.next_slice()
            pieces.append(b",")
        # Joined here: to put thousands of pieces together takes as long as to make them.
        pieces.append(b"".join(forms.item_pieces(entries[start:end], form)))
        start, size = end, 0
    pieces.append(b"]}")
    return pieces


def list_opening(request: ResourceRequest, page: ListPage) -> bytes:
    """Return a list up to its first item."""
    info = request.served.info
    # A list of custom objects says so when nothing continues it; a built-in one says nothing.
    metadata = {"continue": "", **page.metadata} if request.served.is_custom else page.metadata
    head = {"kind": info.list_kind, "apiVersion": info.api_version, "metadata": metadata}
    return forms.encode(head)[:-1] + b',"items":['


@dataclass(frozen=True, slots=True)
class Continue:
    """The revision the first page was read at, and the last key it showed."""

    revision: int
    """`PRESENT` goes on from the key as things are now: not one moment, but better than nothing."""
    last_key: str


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def encode_continue(last: Continue, prefix: str) -> str:
    """Return an opaque token; keys are relative, so that no client learns our key space."""
    token = _Token(v=_CONTINUE_VERSION, rv=last.revision, start=last.last_key.removeprefix(prefix))
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def decode_continue(text: str, prefix: str) -> Continue:
    """Unpack a token; one we cannot read is refused, never taken for "from the start"."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadRequest(f"invalid continue token: continue key is not valid: {error}") from error
    try:
        token = msgspec.json.decode(raw, type=_Token)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = describe_json_error(raw) or str(error)
        raise BadRequest(f"invalid continue token: continue key is not valid: {why}") from error
    if token.v != _CONTINUE_VERSION:
        raise BadRequest(f"invalid continue token: server does not recognize version {token.v!r}")
    is_moment = token.rv == PRESENT or 0 < token.rv < _LARGEST_REVISION
    if not is_moment or ".." in token.start.split("/"):
        raise BadRequest("invalid continue token: continue key is not valid")
    return Continue(token.rv, prefix + token.start)


# -- kinds that nobody stores: worked out when they are asked for ----------------------------------

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
