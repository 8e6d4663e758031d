"""Initial events, live events, bookmarks, the end."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.feeds import Style, Watcher, frame_error, frame_event
from clusterspace.apiserver.http.negotiation import Representation
from clusterspace.apiserver.http.responses import headers_for
from clusterspace.apiserver.http.streams import Stream
from clusterspace.apiserver.options import ListOptions, read_list_options
from clusterspace.apiserver.selection import Selection, select_for
from clusterspace.apiserver.store.revisions import KeyValue, Revision
from clusterspace.apiserver.tables import table_of
from clusterspace.apiserver.verbs.read import selected, wait_for_version
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.apiserver.versions import version_problem
from clusterspace.errors import ApiError, BadRequest, Compacted, Expired
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, resource_version_of
from clusterspace.kube.selectors import parse_field_selector
from clusterspace.kube.tables import IncludeObject, partial_metadata
from clusterspace.telemetry import metrics

_SHORTEST_SECONDS: Final = 1800.0
"""A watch without a timeout lives this long and up to twice it, so that reconnects spread out."""

BOOKMARK_SECONDS: Final = 60.0
_LAST_BOOKMARK_SECONDS: Final = 2.0
"""A planned end is announced this long before it, so that the client resumes from there."""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_DRAIN_EVERY: Final = 64


@dataclass(frozen=True, slots=True)
class _PlainStyle:
    """Objects as they are: stored bytes, spliced."""

    form: forms.Form
    key: Hashable

    def render(self, entry: KeyValue) -> bytes:
        return forms.object_bytes(entry, self.form)


@dataclass(frozen=True, slots=True)
class _ShownStyle:
    """Objects as Table rows or as metadata."""

    served: Served
    representation: Representation
    include: IncludeObject
    now: Callable[[], float]
    key: Hashable
    with_columns: bool = True

    def render(self, entry: KeyValue) -> bytes:
        return forms.encode(self.show([forms.decode_stored(entry, self.served.form)]))

    def show(self, objects: list[Object]) -> Object:
        if self.representation.is_metadata_only:
            return partial_metadata(objects[0])
        shown = table_of(
            objects,
            self.served.printer,
            list_metadata={"resourceVersion": resource_version_of(objects[0])},
            include=self.include,
            now=self.now(),
        )
        return shown if self.with_columns else {**shown, "columnDefinitions": None}


def _styles(ask: ResourceRequest, options: ListOptions) -> Callable[[bool], Style]:
    """Return the style for the first event and for the ones after it.

    The key is made once for a watch: it is looked at for every event.
    """
    resource, representation = ask.served.info.group_version_resource, ask.representation
    if not representation.transform:
        plain = _PlainStyle(ask.served.form, resource)
        return lambda _is_first: plain
    first, later = (
        _ShownStyle(
            ask.served,
            representation,
            options.include,
            ask.hub.clock.now,
            key=(resource, representation, options.include, with_columns),
            with_columns=with_columns,
        )
        for with_columns in (True, False)
    )
    if representation.is_metadata_only:
        return lambda _is_first: first
    return lambda is_first: first if is_first else later


async def watch(ask: ResourceRequest) -> None:
    """Answer GET with `watch=1`: a stream of events until somebody ends it."""
    options = _named(read_list_options(ask.info.query, is_watch=True), ask.info.name)
    selection = await select_for(ask.context.user, ask.served, options)
    start = await _starting_revision(ask, options)
    stream = ask.context.request.start_stream(200, headers_for(ask.context, "application/json"))
    watcher = Watcher(
        stream,
        prefix=ask.served.prefix(ask.info.namespace),
        selection=selection,
        style_of=_styles(ask, options),
        seen=start or Revision(0),
    )
    ask.context.on_end = watcher.end
    feed_prefix = ask.served.prefix()
    resource = (ask.info.group, ask.info.version, ask.info.resource)
    metrics.watch_started(*resource)
    try:
        if start is None:
            await _send_initial(ask, options, selection, watcher, stream)
        await _catch_up(ask, feed_prefix, watcher, stream)
        await _stay(ask, options, feed_prefix, watcher)
    except Compacted:
        stream.write_framed(frame_error(Expired(statuses.WATCH_TOO_OLD)))
    finally:
        metrics.watch_ended(*resource)
        ask.hub.feeds.leave(feed_prefix, watcher)
    stream.end()


def _named(options: ListOptions, name: str) -> ListOptions:
    """Watch one object when the path names one: who may watch it may not watch the others."""
    if not name:
        return options
    pinned = f"metadata.name={name}"
    if options.field_selector:
        given = parse_field_selector(options.field_selector).requires_exact("metadata.name")
        if given not in (None, name):
            raise BadRequest("the field selector names another object than the path")
        pinned = f"{options.field_selector},{pinned}"
    return replace(options, field_selector=pinned)


async def _starting_revision(ask: ResourceRequest, options: ListOptions) -> Revision | None:
    """Return the revision to go on from; None to begin with everything there is."""
    text = options.resource_version
    problem = version_problem(text) if text else ""
    if problem:
        # Kubernetes answers 500 without a reason here, where a list answers 400.
        shown = statuses.quoted(text[:64])
        raise ApiError(f"resourceVersion: Invalid value: {shown}: {problem}")
    if options.send_initial_events:
        await wait_for_version(ask.hub, text)
        return None
    if text in ("", "0"):
        if options.send_initial_events is None:
            return None
        return ask.hub.store.current_revision
    return Revision(int(text))


async def _send_initial(
    ask: ResourceRequest,
    options: ListOptions,
    selection: Selection,
    watcher: Watcher,
    stream: Stream,
) -> None:
    """Write everything there is as ADDED, at one revision."""
    page = await ask.hub.store.range(ask.served.prefix(ask.info.namespace))
    for start in range(0, len(page.items), _DRAIN_EVERY):
        entries = page.items[start : start + _DRAIN_EVERY]
        for entry in await selected(ask, selection, entries):
            watcher.write_framed(frame_event("ADDED", watcher.style().render(entry)))
        await stream.drain()
        # A selector that lets nothing through never fills the buffer, and others wait meanwhile.
        await asyncio.sleep(0)
    watcher.seen = page.revision
    if options.send_initial_events and options.allow_bookmarks:
        watcher.write_framed(_bookmark(ask, watcher, page.revision, is_end_of_initial=True))


def _bookmark(
    ask: ResourceRequest, watcher: Watcher, revision: Revision, *, is_end_of_initial: bool = False
) -> bytes:
    """Return the event that says "you have seen everything up to here".

    Its object is empty but for the version. As a Table it is the row of that empty object, as
    kube-apiserver sends it: clients look for the mark of the end in the row.
    """
    info = ask.served.info
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if is_end_of_initial:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    empty: Object = {"kind": info.kind, "apiVersion": info.api_version, "metadata": metadata}
    style = watcher.style()
    shown = style.show([empty]) if isinstance(style, _ShownStyle) else empty
    return frame_event("BOOKMARK", forms.encode(shown))


async def _catch_up(
    ask: ResourceRequest, feed_prefix: str, watcher: Watcher, stream: Stream
) -> None:
    """Write what the watcher missed until it has seen all there is, then join the feed.

    The look at the feed and the joining are one step without a wait between them, so nothing can
    happen in between that neither of them shows.
    """
    feeds = ask.hub.feeds
    while not feeds.join(feed_prefix, watcher):
        missed = feeds.missed(feed_prefix, watcher.seen)
        for index, change in enumerate(missed.changes):
            watcher.offer(change)
            if index % _DRAIN_EVERY == 0:
                await stream.drain()
        watcher.seen = max(watcher.seen, missed.upto)


async def _stay(
    ask: ResourceRequest, options: ListOptions, feed_prefix: str, watcher: Watcher
) -> None:
    """Wait for the end, with a bookmark now and then for those who asked."""
    clock, random = ask.hub.clock, ask.hub.random
    seconds = options.timeout_seconds or _SHORTEST_SECONDS * (1 + random.random())
    deadline = clock.monotonic() + seconds
    last_bookmark = deadline - _LAST_BOOKMARK_SECONDS
    owes_bookmark = options.allow_bookmarks and last_bookmark > clock.monotonic()
    while not watcher.ended.done():
        now = clock.monotonic()
        if now >= deadline:
            return
        until = min(now + BOOKMARK_SECONDS, last_bookmark) if owes_bookmark else deadline
        await asyncio.wait([watcher.ended], timeout=until - now)
        if owes_bookmark and not watcher.ended.done():
            watcher.write_framed(_bookmark(ask, watcher, ask.hub.feeds.revision(feed_prefix)))
            owes_bookmark = until < last_bookmark
