"""A list of one member, of which only what is new is read whole.

    asked for the first time           whole
    again within minutes               whole; the texts of its objects are kept
    from then on                       metadata alone ──all known──────────> put together
                                                      ──a few are not──> those, by name ──┘
                                                      ──many are not───> whole, as if never tried

All of it is asked for as the caller, with the caller's own parameters: the member decides about
rights, selectors, pages and versions as it does without us. What is put together is the member's
own list at its own version, object for object: where one of them has changed since, the list is
read whole. So it is as fresh as the member's word, after a write of the caller's or anybody's.

A list of metadata is mostly a quarter of the work for a member. Where it is not, or where objects
change faster than they are listed, whole lists are asked for, and metadata ever more rarely.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from clusterspace.apiserver.http.request_info import JSON, Query
from clusterspace.builtins import resources as builtins
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import AnswerOverrun, ApiError, ClusterError, ClusterMisbehaved
from clusterspace.fleet.gateway import fanout
from clusterspace.fleet.gateway.clusters import Link
from clusterspace.fleet.gateway.fanout import FleetContext
from clusterspace.fleet.gateway.merge.events import Head
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.merge.lists import (
    METADATA_LIST,
    ClusterList,
    read_cluster_list,
    read_metadata_list,
)
from clusterspace.fleet.gateway.object_cache import CachedKind, KindKey, ListHistory, digest_of
from clusterspace.fleet.gateway.renaming import encode, renamer
from clusterspace.fleet.gateway.routes import HUB
from clusterspace.kube.json_errors import UNREADABLE

_ACCEPT: Final = f"{JSON};as={METADATA_LIST};v=v1;g=meta.k8s.io,{JSON}"
_MOST_FETCHED: Final = 8
"""How many objects are asked for one by one before the whole list is."""
_AT_ONCE: Final = 256
"""Objects whose texts are made in one step: a millisecond of work."""
_WHERE: Final = ("continue", "resourceVersion", "resourceVersionMatch")
_NEVER_KEPT: Final = frozenset({("", "secrets")})

MakeRequest = Callable[[Link], ApiRequest]

_heads: Final = msgspec.json.Decoder(Head)


async def ask_for_list(
    context: FleetContext, link: Link, make_request: MakeRequest, *, token: str = ""
) -> Reply:
    """Ask one cluster for a list, for metadata first where that has paid before.

    The reply is the one that `fanout.ask_for_list` would give.
    """
    cache = context.fleet.cache
    if not cache.most_bytes or not _is_cacheable(context, link):
        return await fanout.ask_for_list(context, link, make_request, token=token)
    # All pages of a list, and lists of it from different versions, go much alike.
    query = [pair for pair in context.info.query.pairs if pair[0] not in _WHERE]
    history = cache.history(link.cluster, context.path, query)
    if history.tries_metadata():
        found = await _ConditionalList(context, link, make_request, history).ask(token)
        if found is not None:
            context.note_list(found)
            return found
    started = cache.clock.monotonic()
    reply = await fanout.ask_for_list(context, link, make_request, token=token)
    history.note_whole(cache.clock.monotonic() - started, len(reply.body))
    if reply.listed is None or not history.is_repeated or not cache.has_room(len(reply.body)):
        return reply
    return replace(reply, listed=await _keep(context, reply.listed, make_request(link)))


def _is_cacheable(context: FleetContext, link: Link) -> bool:
    """Whether a list is one whose objects may be kept.

    Those of custom kinds are not: what is read of one may change with its definition, while the
    object, and its version, stay the same. Secrets are nobody's to keep.
    """
    info = context.info
    try:
        # What is judged or sorted here is read in the member's own words, not in what is shown.
        is_of_objects = not context.representation.transform and context.field_filter is None
    except ApiError:
        return False  # it cannot be asked for or answered like this: who asks will say so
    return (
        is_of_objects
        and link.cluster != HUB
        and info.method == "GET"
        and not info.subresource
        and (info.group, info.resource) not in _NEVER_KEPT
        and builtins.find_resource(info.group, info.version, info.resource) is not None
    )


def _is_of_now(request: ApiRequest) -> bool:
    """Whether a list is of what there is now: its version is the newest one then."""
    return not any(key in ("resourceVersion", "continue") for key, _ in request.query)


async def _keep(context: FleetContext, listed: ClusterList, request: ApiRequest) -> ClusterList:
    """Keep the objects of a list, and return it with the texts they have from now on."""
    rename = renamer(listed.naming, context.subject)
    kept: list[tuple[bytes, msgspec.Raw]] = []
    for start in range(0, len(listed.items), _AT_ONCE):
        for item in listed.items[start : start + _AT_ONCE]:
            # The digest is of the metadata as the member wrote it, before its names are changed.
            digest = digest_of(item.get("metadata", b""))
            kept.append((digest, msgspec.Raw(encode(rename(item)))))
        await asyncio.sleep(0)
    cache = context.fleet.cache
    version = listed.metadata.resource_version if _is_of_now(request) else ""
    now = cache.clock.monotonic()
    kind = CachedKind(listed.kind, listed.api_version, used_at=now, version=version)
    cache.put(KindKey(listed.naming, context.subject), kind, kept)
    return replace(listed, items=(), texts=[text for _, text in kept])


class _ConditionalList:
    """One list that is put together from metadata and what is known of the objects it names."""

    def __init__(
        self, context: FleetContext, link: Link, make_request: MakeRequest, history: ListHistory
    ) -> None:
        self._context = context
        self._link = link
        self._make_request = make_request
        self._history = history
        self._cache = context.fleet.cache
        self._key = KindKey(context.route.naming_in(link.cluster), context.subject)

    async def ask(self, token: str) -> Reply | None:
        """Return the list, or why there is none; None when it has to be asked for whole."""
        kind = self._cache.find(self._key)
        if kind is None:
            return None
        list_kind, api_version = kind.list_kind, kind.api_version
        started = self._cache.clock.monotonic()
        try:
            request = self._make_request(self._link)
        except ApiError:
            return None  # which says so, when it is asked for whole
        reply = await fanout.ask_one(self._link, lambda _: self._for_metadata(request))
        naming = self._key.naming
        try:
            if reply.failure is not None:
                raise reply.failure
            reported = read_metadata_list(reply.body, naming.cluster)
            if reported is None:
                # It knows no such form, and has answered with the list itself.
                self._history.note_metadata(0.0, sufficed=False)
                listed = read_cluster_list(reply.body, naming, self._context.api_version)
                return replace(reply, listed=listed)
            metadata, named = reported
            if token and metadata.continue_token == token:
                raise AnswerOverrun(naming.cluster, "its list does not end", code=200)
        except (ApiError, ClusterError) as failure:
            is_misread = isinstance(failure, ClusterMisbehaved) or reply.status == 406
            if is_misread and not isinstance(failure, AnswerOverrun):
                # Something on the way may stumble over the form. The list itself is asked for as
                # ever, and this way ever more rarely.
                self._history.note_metadata(0.0, sufficed=False)
                return None
            return replace(reply, failure=failure)
        version = metadata.resource_version if _is_of_now(request) else ""
        texts = self._cache.texts(self._key, version, list(map(digest_of, named)))
        missing = [at for at, text in enumerate(texts) if text is None]
        if len(missing) <= _MOST_FETCHED:
            await self._fetch(named, texts, missing)
        known = [text for text in texts if text is not None]
        seconds = self._cache.clock.monotonic() - started
        is_whole = len(known) == len(texts)
        self._history.note_metadata(seconds, sufficed=is_whole)
        if not is_whole:
            return None
        listed = ClusterList(naming, list_kind, api_version, metadata, texts=known)
        if self._context.hold is not None:
            # What a client takes its time to read may have left the cache by then: it counts as the
            # answer that it stands for would have.
            reading = self._context.hold.read(naming.cluster, self._cache.most_bytes)
            try:
                reading.resize(sum(map(len, known)))
                reading.whole()
            except ClusterError as no_room:
                return Reply(naming.cluster, reply.status, failure=no_room)
        return replace(reply, listed=listed, body=b"")

    def _for_metadata(self, request: ApiRequest) -> ApiRequest:
        headers = (pair for pair in request.headers if pair[0] != "accept")
        return replace(request, headers=(*headers, ("accept", _ACCEPT)))

    async def _fetch(
        self, named: Sequence[msgspec.Raw], texts: list[msgspec.Raw | None], missing: Sequence[int]
    ) -> None:
        """Fill in the texts of a few objects, each in the state that the list has named."""

        async def fetch(at: int) -> None:
            wanted = digest_of(named[at])
            try:
                head = _heads.decode(named[at])
            except UNREADABLE:
                return
            selected = f"metadata.name={head.name}"
            if head.namespace:
                selected += f",metadata.namespace={head.namespace}"
            query = Query((("fieldSelector", selected),))
            reply = await fanout.ask_one(
                self._link,
                lambda link: self._context.request_to(
                    link, query, seconds=self._context.fleet.limits.list_seconds
                ),
            )
            if reply.failure is not None:
                return  # the whole list will tell
            try:
                naming = self._key.naming
                listed = read_cluster_list(reply.body, naming, self._context.api_version)
            except ClusterMisbehaved:
                return
            # Changed once more since the list named it, it is not what the list is of.
            if len(listed.items) != 1 or digest_of(listed.items[0].get("metadata", b"")) != wanted:
                return
            one = await _keep(self._context, listed, self._make_request(self._link))
            texts[at] = one.texts[0]

        async with asyncio.TaskGroup() as group:
            for at in missing:
                group.create_task(fetch(at), name=f"fetch from {self._link.cluster}")
