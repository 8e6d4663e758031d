"""Get and list: one object, or a page with its continue token, at a revision."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.continues import PRESENT, Continue, decode_continue, encode_continue
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.negotiation import JSON
from clusterspace.apiserver.http.responses import json_response, value_response
from clusterspace.apiserver.options import ListOptions, read_list_options
from clusterspace.apiserver.selection import Selection, select_for
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.revisions import KeyValue, Revision
from clusterspace.apiserver.tables import table_of
from clusterspace.apiserver.verbs.answers import answer_entry
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.apiserver.versions import version_problem
from clusterspace.errors import BadRequest, Compacted, Expired, FutureRevision
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import partial_metadata_list

_FRESH_SECONDS: Final = 3.0
"""How long a read waits for a resourceVersion that has not happened yet, as kube-apiserver does."""

_SCAN: Final = 500
"""How many stored objects a selective page looks at in one step."""

_SPLICED: Final = 5_000
"""Stored objects that one answer is spliced from in the event loop's own time: about 10 ms."""

_DECODED: Final = 200
_DECODED_BYTES: Final = 256 * 1024
"""Stored objects that are decoded, to be shown or selected, in the event loop's own time."""


async def get(ask: ResourceRequest) -> Response:
    """Answer GET on an object."""
    await wait_for_version(ask.hub, ask.info.query.get("resourceVersion"))
    entry = await ask.hub.store.get(ask.key)
    if entry is None:
        raise ask.not_found()
    return await answer_entry(ask, 200, entry)


async def list_objects(ask: ResourceRequest) -> Response:
    """Answer GET on a collection."""
    options = read_list_options(ask.info.query, is_watch=False)
    selection = await select_for(ask.context.user, ask.served, options)
    page = await read_page(ask, options, selection)
    if _is_long(ask, page):
        ask.context.is_heavy = True
    return await ask.context.run(lambda: _answer_page(ask, options, page))


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


def _is_long(ask: ResourceRequest, page: ListPage) -> bool:
    """Whether the answer takes longer to make than the event loop should wait."""
    wanted = ask.representation
    is_as_stored = wanted.media_type == JSON and not wanted.transform
    if is_as_stored and ask.served.form.conversion is None and not ask.info.query.is_true("pretty"):
        return len(page.entries) > _SPLICED
    return _are_many(page.entries)


def _are_many(entries: Sequence[KeyValue]) -> bool:
    return len(entries) > _DECODED or sum(len(each.value) for each in entries) > _DECODED_BYTES


async def selected(
    ask: ResourceRequest, selection: Selection, entries: Sequence[KeyValue]
) -> Sequence[KeyValue]:
    """Return the stored objects that are selected, looking at many of them off the event loop."""
    if selection.is_everything:
        return entries
    if _are_many(entries):
        return await off_loop(ask.context.user.name, lambda: selection.matching(entries))
    return selection.matching(entries)


async def read_page(ask: ResourceRequest, options: ListOptions, selection: Selection) -> ListPage:
    """Read one page at the revision the request asks for."""
    store, prefix = ask.hub.store, ask.served.prefix(ask.info.namespace)
    at, start_after = await _starting_point(ask, options, prefix)
    limit = 0 if _ignores_limit(options) else options.limit
    if selection.only_name is not None and ask.info.namespace == "" and ask.served.info.namespaced:
        pass  # the name may be in any namespace: nothing shorter than a scan will do
    elif selection.only_name is not None:
        return await _page_of_one(ask, selection, at)
    try:
        if limit == 0:
            page = await store.range(prefix, start_after=start_after, at=at)
            return ListPage(await selected(ask, selection, page.items), page.revision)
        return await _limited_page(ask, selection, limit, at, start_after)
    except Compacted as error:
        if start_after is None:
            raise Expired(statuses.LIST_TOO_OLD) from error
        token = encode_continue(Continue(PRESENT, start_after), prefix)
        raise Expired(statuses.CONTINUE_TOO_OLD, continue_token=token) from error
    except FutureRevision as error:
        # Whoever waits for a version has waited by now: only a forged token gets here.
        raise BadRequest("invalid continue token: its version has not happened yet") from error


async def _page_of_one(ask: ResourceRequest, selection: Selection, at: Revision | None) -> ListPage:
    store = ask.hub.store
    revision = at or store.current_revision
    key = ask.served.key(ask.info.namespace, selection.only_name or "")
    entry = await store.get(key, at=at)
    chosen = [entry] if entry is not None and selection.matches_entry(entry) else []
    return ListPage(chosen, revision)


async def _limited_page(
    ask: ResourceRequest,
    selection: Selection,
    limit: int,
    at: Revision | None,
    start_after: str | None,
) -> ListPage:
    """Collect `limit` selected objects, all at one revision however many steps it takes."""
    store, prefix = ask.hub.store, ask.served.prefix(ask.info.namespace)
    step = limit if selection.is_everything else max(limit, _SCAN)
    chosen: list[KeyValue] = []
    while True:
        page = await store.range(prefix, start_after=start_after, limit=step, at=at)
        at = page.revision
        matching = await selected(ask, selection, page.items)
        wanted = matching[: limit - len(chosen)]
        chosen += wanted
        if len(chosen) == limit:
            start_after = wanted[-1].key
            behind = sum(entry.key > start_after for entry in page.items)
            left = behind + page.remaining
            return _cut_page(chosen, at, left, start_after, prefix, selection)
        if not page.more:
            return ListPage(chosen, at)
        start_after = page.items[-1].key


def _cut_page(  # noqa: PLR0913 - the end of one page, all of it named
    chosen: list[KeyValue],
    at: Revision,
    left: int,
    last_key: str,
    prefix: str,
    selection: Selection,
) -> ListPage:
    if left == 0:
        return ListPage(chosen, at)
    token = encode_continue(Continue(at, last_key), prefix)
    return ListPage(chosen, at, token, left if selection.is_everything else None)


async def _starting_point(
    ask: ResourceRequest, options: ListOptions, prefix: str
) -> tuple[Revision | None, str | None]:
    """Return the revision to read at (None for now) and the key to start behind."""
    if options.continue_token:
        if options.resource_version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        place = decode_continue(options.continue_token, prefix)
        at = None if place.revision == PRESENT else Revision(place.revision)
        return at, place.last_key
    await wait_for_version(ask.hub, options.resource_version)
    version = parse_version(options.resource_version)
    is_exact = options.version_match == "Exact" or (
        options.limit > 0 and version > 0 and not options.version_match
    )
    return (Revision(version) if is_exact else None), None


def _ignores_limit(options: ListOptions) -> bool:
    """Whether the answer comes whole: `resourceVersion=0` means "from a cache", which does so."""
    return options.resource_version == "0" and options.version_match != "Exact"


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


def _answer_page(ask: ResourceRequest, options: ListOptions, page: ListPage) -> Response:
    representation, served = ask.representation, ask.served
    if representation.media_type == JSON and not representation.transform:
        return json_response(ask.context, 200, list_pieces(ask, page))
    objects = [forms.decode_stored(each, served.form) for each in page.entries]
    body: Object
    if representation.is_table:
        body = table_of(
            objects,
            served.printer,
            list_metadata=page.metadata,
            include=options.include,
            now=ask.hub.clock.now(),
        )
    elif representation.is_metadata_only:
        body = partial_metadata_list(objects, page.metadata)
    else:
        info = served.info
        body = {"kind": info.list_kind, "apiVersion": info.api_version, "metadata": page.metadata}
        body["items"] = [forms.as_item(each, served.form) for each in objects]
    return value_response(ask.context, 200, body, representation.media_type)


def list_pieces(ask: ResourceRequest, page: ListPage) -> list[bytes]:
    """Return a list as pieces of stored bytes between the few that are made for this answer."""
    info = ask.served.info
    # A list of custom objects says so when nothing continues it; a built-in one says nothing.
    metadata = {"continue": "", **page.metadata} if ask.served.is_custom else page.metadata
    head = {"kind": info.list_kind, "apiVersion": info.api_version, "metadata": metadata}
    opening = forms.encode(head)[:-1] + b',"items":['
    return [opening, *forms.item_pieces(page.entries, ask.served.form), b"]}"]
