"""Initial events, live events, bookmarks, the end."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.feeds import (
    JSON_FRAMING,
    PROTOBUF_FRAMING,
    Change,
    Framing,
    Missed,
    Style,
    Watcher,
)
from clusterspace.apiserver.forms import EncodedObjects, encode_entry, table_of
from clusterspace.apiserver.http.context import headers_for
from clusterspace.apiserver.http.messages import Stream
from clusterspace.apiserver.http.request_info import JSON, PROTOBUF, Representation
from clusterspace.apiserver.options import (
    ListOptions,
    Selection,
    read_list_options,
    select_for,
    version_problem,
)
from clusterspace.apiserver.store.interface import Event, KeyValue, Revision
from clusterspace.apiserver.verbs.read import selected, wait_for_version
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.errors import ApiError, BadRequest, Compacted, Expired
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, resource_version_of
from clusterspace.kube.protobuf.wire import Envelope, write_envelope
from clusterspace.kube.selectors import parse_field_selector
from clusterspace.kube.tables import IncludeObject, in_version, partial_metadata
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
    framing: Framing = JSON_FRAMING

    def render(self, entry: KeyValue, *, is_stored: bool = True) -> bytes:
        return forms.object_bytes(entry, self.form)


@dataclass(frozen=True, slots=True)
class _ProtobufStyle:
    """Objects as protobuf, encoded once for the event and for the lists that follow it."""

    form: forms.Form
    encoded: EncodedObjects
    key: Hashable
    framing: Framing = PROTOBUF_FRAMING

    def render(self, entry: KeyValue, *, is_stored: bool = True) -> bytes:
        # What left a selection has the revision of the content that replaced it. Kept under that
        # revision, the old content would be read for the new one, and written back over it.
        encode = self.encoded.message if is_stored else encode_entry
        message = encode(entry, self.form)
        return write_envelope(Envelope(self.form.api_version, self.form.kind, message))


@dataclass(frozen=True, slots=True)
class _ShownStyle:
    """Objects as Table rows or as metadata."""

    served: Served
    representation: Representation
    include: IncludeObject
    now: Callable[[], float]
    key: Hashable
    with_columns: bool = True

    def render(self, entry: KeyValue, *, is_stored: bool = True) -> bytes:
        shown = self.show([forms.decode_stored(entry, self.served.form)])
        return self.framing.encode(shown)

    @property
    def framing(self) -> Framing:
        is_protobuf = self.representation.media_type == PROTOBUF
        return PROTOBUF_FRAMING if is_protobuf else JSON_FRAMING

    def show(self, objects: list[Object]) -> Object:
        version = self.representation.meta_version
        if self.representation.is_metadata_only:
            return in_version(partial_metadata(objects[0]), version)
        shown = table_of(
            objects,
            self.served.printer,
            list_metadata={"resourceVersion": resource_version_of(objects[0])},
            include=self.include,
            now=self.now(),
        )
        shown = in_version(shown, version)
        return shown if self.with_columns else {**shown, "columnDefinitions": None}


def _styles(request: ResourceRequest, options: ListOptions) -> Callable[[bool], Style]:
    """Return the style for the first event and for the ones after it.

    The key is made once for a watch: it is looked at for every event.
    """
    resource, representation = request.served.info.group_version_resource, request.representation
    if not representation.transform and representation.media_type == PROTOBUF:
        in_protobuf = _ProtobufStyle(
            request.served.form, request.hub.encoded, key=(resource, representation)
        )
        return lambda _is_first: in_protobuf
    if not representation.transform:
        plain = _PlainStyle(request.served.form, resource)
        return lambda _is_first: plain
    first, later = (
        _ShownStyle(
            request.served,
            representation,
            options.include,
            request.hub.clock.now,
            key=(resource, representation, options.include, with_columns),
            with_columns=with_columns,
        )
        for with_columns in (True, False)
    )
    if representation.is_metadata_only:
        return lambda _is_first: first
    return lambda is_first: first if is_first else later


async def watch(request: ResourceRequest) -> None:
    """Answer GET with `watch=1`: a stream of events until somebody ends it."""
    # The stream starts with everything there is, or behind the version the client has seen. What
    # happened meanwhile is read from the store's log until nothing is missing, and from then on the
    # feed delivers. `watcher.seen` is the thread through all three: everything at or below it has
    # been written, and `Watcher.offer` skips what is not above it, so that an event that two of
    # them show is written once.
    #
    #     revision        41   42   43   44   45   46 …
    #     _send_initial   ADDED of all that was stored at 43, in batches; seen = 43
    #     feeds.missed                  44   45: committed while the batches drained
    #     the feed                                46: delivered as it is committed
    options = _named(read_list_options(request.info.query, is_watch=True), request.info.name)
    selection = await select_for(request.context.user, request.served, options)
    start = await _starting_revision(request, options)
    media_type = request.representation.media_type
    content_type = media_type if media_type == JSON else f"{media_type};stream=watch"
    stream = request.context.request.start_stream(200, headers_for(request.context, content_type))
    watcher = Watcher(
        stream,
        prefix=request.served.prefix(request.info.namespace),
        selection=selection,
        style_of=_styles(request, options),
        seen=start or Revision(0),
        owner=request.context.user.name,
    )
    request.context.on_end = watcher.end
    feeds, feed_prefix = request.hub.feeds, request.served.prefix()
    resource = (request.info.group, request.info.version, request.info.resource)
    metrics.watch_started(*resource)
    try:
        if start is None:
            await _send_initial(request, options, selection, watcher, stream)
        request.context.initialized()
        # Joining fails while the log has something this watcher has not seen. The look and the
        # joining are one step without an await between them, so nothing can be committed in
        # between that neither `missed` nor the feed shows.
        if request.served.webhook is not None:
            await _follow_log(request, options, feed_prefix, watcher, stream)
        else:
            while not feeds.join(feed_prefix, watcher):
                missed = feeds.missed(feed_prefix, watcher.seen)
                await _catch_up(request, missed, watcher, stream)
            await _stay(request, options, feed_prefix, watcher)
    except Compacted:
        # The status line is sent: all that is left is an event that says 410.
        stream.write_framed(watcher.style().framing.error(Expired(statuses.WATCH_TOO_OLD)))
    except ApiError as error:
        if request.served.webhook is None:
            raise
        watcher.end(error)  # a webhook that fails: the client is told why, and lists again
    finally:
        metrics.watch_ended(*resource)
        feeds.leave(feed_prefix, watcher)
    stream.end()


async def _catch_up(
    request: ResourceRequest, missed: Missed, watcher: Watcher, stream: Stream
) -> None:
    """Offer what the log has and the watcher has not seen, in the version it watches."""
    for index, change in enumerate(missed.changes):
        watcher.offer(await _converted(request, change))
        if index % _DRAIN_EVERY == 0:
            await stream.drain()
    # Past what concerns other resources, too: otherwise a quiet resource never joins.
    watcher.seen = max(watcher.seen, missed.upto)


async def _converted(request: ResourceRequest, change: Change) -> Change:
    """Return a change in the version that is watched."""
    event, served = change.event, request.served
    if served.webhook is None or not event.key.startswith(served.prefix(request.info.namespace)):
        return change
    item, previous = event.item, event.previous
    if not event.is_delete:
        (item,) = await served.converted((item,))
    if previous is not None:
        (previous,) = await served.converted((previous,))
    return Change(Event(event.type, item, previous))


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


async def _starting_revision(request: ResourceRequest, options: ListOptions) -> Revision | None:
    """Return the revision to go on from; None to begin with everything there is."""
    text = options.resource_version
    problem = version_problem(text) if text else ""
    if problem:
        # Kubernetes answers 500 without a reason here, where a list answers 400.
        shown = statuses.quoted(text[:64])
        raise ApiError(f"resourceVersion: Invalid value: {shown}: {problem}")
    if options.send_initial_events:
        await wait_for_version(request.hub, text)
        return None
    if text in ("", "0"):
        if options.send_initial_events is None:
            return None
        return request.hub.store.current_revision
    return Revision(int(text))


async def _send_initial(
    request: ResourceRequest,
    options: ListOptions,
    selection: Selection,
    watcher: Watcher,
    stream: Stream,
) -> None:
    """Write everything there is as ADDED, at one revision."""
    page = await request.hub.store.range(request.served.prefix(request.info.namespace))
    for start in range(0, len(page.items), _DRAIN_EVERY):
        entries = page.items[start : start + _DRAIN_EVERY]
        shown = await request.served.converted(entries)
        for entry in await selected(request, selection, shown):
            style = watcher.style()
            watcher.write_framed(style.framing.frame("ADDED", style.render(entry)))
        await stream.drain()
        # A selector that lets nothing through never fills the buffer, and others wait meanwhile.
        await asyncio.sleep(0)
    # The page is of one moment, however long it took to send: what was written since then is
    # still missing, and comes from the log.
    watcher.seen = page.revision
    if options.send_initial_events and options.allow_bookmarks:
        watcher.write_framed(_bookmark(request, watcher, page.revision, is_end_of_initial=True))


def _bookmark(
    request: ResourceRequest,
    watcher: Watcher,
    revision: Revision,
    *,
    is_end_of_initial: bool = False,
) -> bytes:
    """Return the event that says "you have seen everything up to here".

    Its object is empty but for the version. As a Table it is the row of that empty object, as
    kube-apiserver sends it: clients look for the mark of the end in the row.
    """
    info = request.served.info
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if is_end_of_initial:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    empty: Object = {"kind": info.kind, "apiVersion": info.api_version, "metadata": metadata}
    style = watcher.style()
    shown = style.show([empty]) if isinstance(style, _ShownStyle) else empty
    return style.framing.frame("BOOKMARK", style.framing.encode(shown))


async def _stay(
    request: ResourceRequest, options: ListOptions, feed_prefix: str, watcher: Watcher
) -> None:
    """Wait for the end, with a bookmark now and then for those who asked."""
    clock, random = request.hub.clock, request.hub.random
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
            # The feed's revision, not the store's: up to there everything that concerns this
            # watcher is in the stream, and a client that resumes behind it misses nothing.
            upto = request.hub.feeds.revision(feed_prefix, watcher)
            # A watch from a version of the future waits in silence until the store gets there, as
            # kube-apiserver's does. A bookmark before that would lead its client back.
            if watcher.seen <= upto:
                watcher.write_framed(_bookmark(request, watcher, upto))
            owes_bookmark = until < last_bookmark


async def _follow_log(
    request: ResourceRequest,
    options: ListOptions,
    feed_prefix: str,
    watcher: Watcher,
    stream: Stream,
) -> None:
    """Follow the changes of a resource whose objects a webhook converts, until the end.

    A feed delivers at once, in one step of the event loop, and cannot wait for a webhook. So this
    watcher is no part of one. It is woken by a change, reads the log, converts what it finds, and
    waits again. The order matters: it is armed before the log is read, so that what is written
    while a webhook takes its time wakes it once more.
    """
    hub, clock = request.hub, request.hub.clock
    seconds = options.timeout_seconds or _SHORTEST_SECONDS * (1 + hub.random.random())
    deadline = clock.monotonic() + seconds
    next_bookmark = min(clock.monotonic() + BOOKMARK_SECONDS, deadline - _LAST_BOOKMARK_SECONDS)
    hub.feeds.stand_apart(feed_prefix, watcher)
    resource = (request.info.group, request.info.version, request.info.resource)
    with hub.feeds.waker(feed_prefix) as waker:
        while not watcher.ended.done() and clock.monotonic() < deadline:
            woken = waker.arm()
            if hub.catalog.find(*resource) is not request.served:
                return  # defined otherwise by now, or no more: the client comes back
            await _catch_up(request, hub.feeds.missed(feed_prefix, watcher.seen), watcher, stream)
            now = clock.monotonic()
            if options.allow_bookmarks and next_bookmark <= now < deadline:
                if watcher.seen <= hub.store.current_revision:  # and not in the future
                    watcher.write_framed(_bookmark(request, watcher, watcher.seen))
                last = deadline - _LAST_BOOKMARK_SECONDS
                next_bookmark = min(now + BOOKMARK_SECONDS, last) if now < last else deadline
            until = min(deadline, next_bookmark) if options.allow_bookmarks else deadline
            waiting = [watcher.ended, woken]
            timeout = max(until - clock.monotonic(), 0)
            await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
