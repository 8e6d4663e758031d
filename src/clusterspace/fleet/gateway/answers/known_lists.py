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

Of a Table the member is asked for the cells, and for metadata at the same time; what stands beside
the rows is known as objects are. See decision 0099.

A list of metadata is mostly a quarter of the work for a member. Where it is not, or where objects
change faster than they are listed, whole lists are asked for, and metadata ever more rarely.

What is selected or sorted here, by any field, is so by columns of the list that the member gave: it
is asked for the same list whatever the field.

    resourceVersion=0 (any state will do), or a state that is named exactly
        what the member has told this very caller, in the same words, a moment ago; and if that it
        may see it is longer ago than `REVIEWED_SECONDS`, the member is asked so. See decision 0051
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

import msgspec

from clusterspace.apiserver.http.request_info import JSON, PROTOBUF, Query
from clusterspace.builtins import resources as builtins
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import AnswerOverrun, ApiError, ClusterError, ClusterMisbehaved
from clusterspace.fleet.gateway import fanout, shared_watches
from clusterspace.fleet.gateway.answers import reviews
from clusterspace.fleet.gateway.clusters import Link
from clusterspace.fleet.gateway.fanout import FleetContext
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.merge.lists import (
    ClusterList,
    KnownRow,
    ListMetadata,
    beside_editor,
    read_cluster_list,
)
from clusterspace.fleet.gateway.merge.metadata_lists import (
    METADATA_LIST,
    Marked,
    Marks,
    NamedStates,
    marks_of,
    read_metadata_list,
)
from clusterspace.fleet.gateway.object_cache import (
    CachedKind,
    KindKey,
    ListHistory,
    digest_of,
)
from clusterspace.fleet.gateway.object_texts import KnownList, Text, Texts
from clusterspace.fleet.gateway.renaming import LAST_APPLIED, encode, renamer
from clusterspace.fleet.gateway.routes import HUB, MARKER, Subject, unqualifier
from clusterspace.kube.json_errors import UNREADABLE

_ACCEPT: Final = f"{JSON};as={METADATA_LIST};v=v1;g=meta.k8s.io,{JSON}"
_ACCEPT_PROTOBUF: Final = f"{PROTOBUF};as={METADATA_LIST};v=v1;g=meta.k8s.io,{_ACCEPT}"
_COMPARED_AT_ONCE: Final = 64
"""Objects of which both forms of their metadata are compared in one step: a millisecond of work."""
_MOST_FETCHED: Final = 8
"""How many objects are asked for one by one before the whole list is."""
_AT_ONCE: Final = 256
"""Objects whose texts are made in one step: a millisecond of work."""
_REVIEWED_EARLY: Final = 32
"""One of so many members is asked whether the caller may still see what is known, before it must
be: who asks seven times a second never waits for all."""
_MEMBERS_AT_ONCE: Final = 32
"""Members whose lists are looked into before others take their turn."""
_FEW: Final = 8
"""Of a list in order, that part of which is sooner sorted than found in the order of all."""
_WHERE: Final = ("continue", "resourceVersion", "resourceVersionMatch")
_NOTHING: Final = msgspec.Raw(b"")
"""Stands for what is not there: no text of a member's is like it."""
_NEVER_KEPT: Final = frozenset({("", "secrets")})

MakeRequest = Callable[[Link], ApiRequest]


class _Whole(msgspec.Struct):
    metadata: Marked


_read_whole: Final = msgspec.json.Decoder(_Whole).decode


class ListQuestion:
    """One list of all clusters that members are asked for, by one caller."""

    def __init__(self, context: FleetContext, query: Query, most: int = 0) -> None:
        self.context = context
        self._query = query
        """The parameters that are the same for all members and pages."""
        self.most = most
        """How many objects of each member are looked at, in their order; 0 is all of them."""
        self.is_cacheable = bool(context.fleet.cache.most_bytes) and _is_cacheable(context)
        self.is_table = self.is_cacheable and context.representation.is_table
        """Whether it is a Table, of which what stands beside the rows is kept."""
        # A thousand members are asked the same by the same, mostly: what is alike is made once.
        self._names_cluster = any(MARKER in value for _, value in query.pairs)
        self._keys: dict[str, KindKey] = {}
        self._callers: dict[bool, Hashable] = {}
        self._words: Hashable = None

    def key(self, cluster: str) -> KindKey:
        """Return under which key objects of a member are kept."""
        found = self._keys.get(cluster)
        if found is None:
            context = self.context
            if self.is_table:
                # With the labels of the cluster, which are beside each row: others, another key.
                beside = context.representation.meta_version
                found = KindKey(context.naming_in(cluster), context.subject, beside)
            else:
                found = KindKey(context.route.naming_in(cluster), context.subject)
            self._keys[cluster] = found
        return found

    def asked(self, cluster: str) -> Hashable:
        """Return what tells the list from any other, of anybody: who asks whom, in which words.

        Raises ApiError for who cannot ask members at all.
        """
        context, identities = self.context, self.context.fleet.identities
        is_plain = cluster in identities.plain_accounts
        caller = self._callers.get(is_plain)
        if caller is None:
            caller = identities.headers(context.http.user, cluster)
            self._callers[is_plain] = caller
        words = self._words
        if words is None or self._names_cluster:
            words = (context.path, context.query_for(self.key(cluster).naming, self._query).pairs)
            self._words = words
        return context.fleet.directory.identity(cluster), caller, words

    async def find_known(
        self, clusters: Collection[str], version_of: Callable[[str], tuple[str, bool]]
    ) -> dict[str, Reply]:
        """Return the lists that can be answered without asking members for them.

        `version_of` says which version will do, and whether only that: "0" is any. The caller must
        be one who may reach these clusters, and none of them be in trouble.
        """
        found: dict[str, KnownList] = {}
        if not self.is_cacheable or self.is_table:
            return {}
        context, cache = self.context, self.context.fleet.cache
        now = cache.clock.monotonic()
        oldest = now - context.fleet.limits.any_state_seconds
        for cluster in clusters:
            version, is_exact = version_of(cluster)
            known = None if cluster == HUB else self._find(cluster)
            if known is None or known.read_at <= oldest:
                continue
            if known.version == version if is_exact else version == "0":
                found[cluster] = known
        doubtful = to_be_reviewed(
            {cluster: each.allowed_at for cluster, each in found.items()}, now
        )

        async def review(link: Link) -> bool:
            try:
                return await reviews.may(context, link, "list")
            except (ApiError, ClusterError):
                return False  # asked for the list itself, it will say more

        for cluster, is_allowed in zip(
            doubtful, await fanout.ask_all(context, doubtful, review), strict=True
        ):
            if is_allowed:
                # As of before it was asked: what was taken away since counts from then on.
                found[cluster].allowed_at = now
            else:
                del found[cluster]
        replies: dict[str, Reply] = {}
        for number, (cluster, known) in enumerate(found.items(), 1):
            try:
                listed = await self.shown(cluster, known, self.most)
                if not self.most:  # of what is cut here no more is held than a page has
                    self.hold(cluster, Texts.weight_of(listed.texts))
            except (ClusterError, *UNREADABLE):
                continue  # asked for the list itself, it is left out with its reason
            replies[cluster] = Reply(cluster, 200, listed=listed)
            if not number % _MEMBERS_AT_ONCE:
                await asyncio.sleep(0)
        return replies

    def hold(self, cluster: str, size: int) -> None:
        """Count what is kept for this answer; raise ClusterError where there is no room.

        What a client takes its time to read may have left the cache by then.
        """
        if self.context.hold is not None:
            reading = self.context.hold.read(cluster, self.context.fleet.cache.most_bytes)
            reading.resize(size)
            reading.whole()

    def _find(self, cluster: str) -> KnownList | None:
        try:
            return self.context.fleet.cache.find_list(self.key(cluster), self.asked(cluster))
        except ApiError:
            return None  # who asks is nobody at members: they will say so

    async def shown(self, cluster: str, known: KnownList, most: int = 0) -> ClusterList:
        """Return what the client wants of a list, selected and in order: so many of a sorted one.

        Raises one of UNREADABLE for an object that cannot be read.
        """
        judged, key = self.context.field_filter, self.key(cluster)
        metadata, before = ListMetadata(known.version), known.weight
        if judged is None:
            texts = Texts(known.texts)
            return ClusterList(key.naming, known.kind, known.api_version, metadata, texts=texts)
        # Fields are compared in the member's own words, and texts have the names of the fleet.
        own = unqualifier(cluster)
        numbers: Sequence[int] = range(len(known.texts))
        for requirement, path in zip(judged.requirements, judged.paths, strict=True):
            column = await known.column(
                f"={path.text}", lambda text, path=path: judged.texts_at(path, text, own)
            )
            found = column.places(own(requirement.value))
            if len(numbers) == len(column.values) and requirement.is_equal:
                numbers = found
            elif len(found) != len(column.values):
                chosen = set(found)
                numbers = [at for at in numbers if (at in chosen) is requirement.is_equal]
            elif not requirement.is_equal:
                numbers = ()
        keys: Sequence[Any] = ()
        order = judged.order
        if order is not None:
            column = await known.column(f"<{order.path.text}", lambda text: order.key_in(text, own))
            if len(numbers) == len(column.values):
                numbers = column.order(is_descending=order.is_descending)
            elif len(numbers) * _FEW < len(column.values):
                key_at = column.values.__getitem__
                numbers = sorted(numbers, key=key_at, reverse=order.is_descending)
            else:
                # Of many that are wanted a few are shown: they come first in the order of all.
                chosen, ordered = set(numbers), column.order(is_descending=order.is_descending)
                numbers = list(islice((at for at in ordered if at in chosen), most or None))
            numbers = numbers[:most] if most else numbers
            keys = [column.values[at] for at in numbers]
        if known.weight != before:
            self.context.fleet.cache.weigh_lists(key)
        return ClusterList(
            key.naming,
            known.kind,
            known.api_version,
            metadata,
            texts=known.part(numbers),
            sort_keys=keys,
            is_sorted=order is not None,
        )


def to_be_reviewed(allowed_at: Mapping[str, float], now: float) -> list[str]:
    """Return the members that are asked whether they still allow what they did at these times.

    All that have to be. What a thousand members have told at once they would so have to confirm at
    once, every ten seconds; where none has to, a few are asked before, by each who comes by.
    """
    latest = now - shared_watches.REVIEWED_SECONDS
    due = [cluster for cluster, at in allowed_at.items() if at <= latest]
    if due:
        return due
    aging = now - shared_watches.REVIEWED_SECONDS / 2
    old = (cluster for cluster, at in allowed_at.items() if at <= aging)
    return nsmallest(len(allowed_at) // _REVIEWED_EARLY, old, key=allowed_at.__getitem__)


async def ask_for_list(
    question: ListQuestion, link: Link, make_request: MakeRequest, *, token: str = ""
) -> Reply:
    """Ask one cluster for a list, for metadata first where that has paid before.

    The reply is the one that `fanout.ask_for_list` would give.
    """
    context, cache = question.context, question.context.fleet.cache
    if link.cluster == HUB or not question.is_cacheable:
        return await fanout.ask_for_list(context, link, make_request, token=token)
    # All pages of a list, and lists of it from different versions, go much alike.
    try:
        query = [pair for pair in make_request(link).query if pair[0] not in _WHERE]
    except (ApiError, ClusterError) as failure:
        return Reply(link.cluster, failure=failure)
    await cache.before_lists(link.cluster)
    form = ("as", context.representation.transform)
    history = cache.history(link.cluster, context.path, [*query, form] if form[1] else query)
    # What is looked into here is kept from the first time on: else all of it would be in memory at
    # once, and be read again for the next field.
    is_kept = history.is_repeated and not (question.is_table and history.is_short)
    if not is_kept and context.field_filter is None:
        started = cache.clock.monotonic()
        reply = await fanout.ask_for_list(context, link, make_request, token=token)
        history.note_whole(cache.clock.monotonic() - started, len(reply.body))
        return reply
    # An answer counts until its objects are kept, and what is shown of them from then on: never
    # both, or lists would be left out for want of room that fit when they are read.
    with context.fleet.memory.holding(context.http.user.name) as hold:
        reply = await _ask_and_keep(
            question, link, lambda link: replace(make_request(link), hold=hold), history, token
        )
    try:
        question.hold(link.cluster, len(reply.body) or _weight_of(reply.listed))
    except ClusterError as no_room:
        return Reply(link.cluster, reply.status, failure=no_room)
    return reply


def _weight_of(listed: ClusterList | None) -> int:
    if listed is None:
        return 0
    return Texts.weight_of(listed.texts) + sum(
        len(each.beside) for each in listed.rows if each.beside is not msgspec.UNSET
    )


async def _ask_and_keep(
    question: ListQuestion,
    link: Link,
    make_request: MakeRequest,
    history: ListHistory,
    token: str,
) -> Reply:
    context, cache = question.context, question.context.fleet.cache
    if history.tries_metadata():
        found = await _ConditionalList(question, link, make_request, history).ask(token)
        if found is not None:
            context.note_list(found)
            context.note_refusal(found)
            return found
    started = cache.clock.monotonic()
    reply = await fanout.ask_for_list(context, link, make_request, token=token, is_judged=False)
    history.note_whole(cache.clock.monotonic() - started, len(reply.body))
    if isinstance(reply.failure, ApiError):
        cache.forget_list(question.key(link.cluster), question.asked(link.cluster))
    if reply.listed is None:
        return reply
    if not cache.has_room(len(reply.body)):
        return await fanout.judged(context, reply)
    request = make_request(link)
    try:
        texts = await _keep(question, reply.listed, request)
    except UNREADABLE:
        return reply  # there is a row without its object: it is shown as it is
    if question.is_table:
        return reply
    return await _answered(question, replace(reply, body=b""), request, texts, started)


async def _answered(
    question: ListQuestion,
    reply: Reply,
    request: ApiRequest,
    texts: Sequence[Text],
    asked_at: float,
) -> Reply:
    """Return a reply, of which there are texts by now, with what the client wants of them."""
    cluster, cache, listed = reply.cluster, question.context.fleet.cache, reply.listed
    if listed is None:
        return reply
    # As old as the question: the member may have answered at once, and the rest have taken long.
    metadata = listed.metadata
    known = KnownList(listed.kind, listed.api_version, metadata.resource_version, asked_at, texts)
    is_all = not metadata.continue_token and not any(key == "continue" for key, _ in request.query)
    if is_all and known.version:
        cache.note_list(question.key(cluster), question.asked(cluster), known)
    try:
        shown = await question.shown(cluster, known)
    except UNREADABLE as error:
        why = f"its list has an object that cannot be read: {error}"
        return Reply(cluster, reply.status, failure=ClusterMisbehaved(cluster, why, code=200))
    return replace(reply, listed=replace(shown, metadata=metadata))


def _is_cacheable(context: FleetContext) -> bool:
    """Whether a list is one whose objects may be kept.

    Those of custom kinds are not: what is read of one may change with its definition, while the
    object, and its version, stay the same. Secrets are nobody's to keep.
    """
    info = context.info
    try:
        is_of_objects = not context.representation.transform
        judged = context.field_filter
        if context.representation.is_table and judged is None:
            is_of_objects = context.info.query.get("includeObject") in ("", "Metadata")
    except ApiError:
        return False  # it cannot be asked for or answered like this: who asks will say so
    if judged is not None:
        # Columns are of texts as clients see them, from which the member's own words follow: not in
        # what `kubectl apply` remembers, nor where a search writes whose object it is.
        paths = (*judged.paths, *((judged.order.path,) if judged.order else ()))
        is_of_objects = (
            is_of_objects
            and not judged.namespaces
            and not context.route.naming_in("").shows_source
            and not any(LAST_APPLIED in each.text.replace("\\", "") for each in paths)
        )
    return (
        is_of_objects
        and info.method == "GET"
        and not info.subresource
        and (info.group, info.resource) not in _NEVER_KEPT
        and builtins.find_resource(info.group, info.version, info.resource) is not None
    )


def _is_of_now(request: ApiRequest) -> bool:
    """Whether a list is of what there is now: its version is the newest one then."""
    return not any(key in ("resourceVersion", "continue") for key, _ in request.query)


async def _keep(question: ListQuestion, listed: ClusterList, request: ApiRequest) -> Sequence[Text]:
    """Keep the objects of a list, or what stands beside its rows, and return them as they are kept.

    In the same order. Raises one of UNREADABLE where there is no metadata.
    """
    kept: list[tuple[bytes, msgspec.Raw]] = []
    found = _elements(listed, question.context.subject)
    # The digest is of the metadata as the member wrote it, before its names are changed.
    while batch := [
        (digest_of(metadata), msgspec.Raw(encode(shown)))
        for metadata, shown in islice(found, _AT_ONCE)
    ]:
        kept += batch
        await asyncio.sleep(0)
    cache = question.context.fleet.cache
    version = listed.metadata.resource_version if _is_of_now(request) else ""
    now = cache.clock.monotonic()
    kind = CachedKind(listed.kind, listed.api_version, used_at=now, version=version)
    return await cache.keep(question.key(listed.cluster), kind, kept)


class _Beside(msgspec.Struct):
    metadata: msgspec.Raw


_read_beside: Final = msgspec.json.Decoder(_Beside).decode


def _elements(listed: ClusterList, subject: Subject) -> Iterator[tuple[msgspec.Raw, Any]]:
    """Yield the metadata of each object of a list, and what clients are shown of it."""
    if listed.is_table:
        shown = beside_editor(listed.naming, subject)
        for row in listed.rows:
            beside = _NOTHING if row.beside is msgspec.UNSET else row.beside
            yield _read_beside(beside).metadata, shown(beside)
        return
    rename = renamer(listed.naming, subject)
    for item in listed.items:
        yield item.get("metadata", _NOTHING), rename(item)


class _ConditionalList:
    """One list that is put together from metadata and what is known of the objects it names."""

    def __init__(
        self, question: ListQuestion, link: Link, make_request: MakeRequest, history: ListHistory
    ) -> None:
        self._question = question
        self._context = question.context
        self._link = link
        self._make_request = make_request
        self._history = history
        self._cache = question.context.fleet.cache
        self._key = question.key(link.cluster)
        self._digest = b""
        self._before: Sequence[Text] = ()

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
        takes_protobuf = self._cache.takes_protobuf(self._link.cluster)
        accept = _ACCEPT_PROTOBUF if takes_protobuf else _ACCEPT
        async with asyncio.TaskGroup() as group:
            cells = group.create_task(self._cells(request)) if self._question.is_table else None
            reply = await fanout.ask_one(
                self._link, lambda _: self._for_metadata(request, accept), (JSON, PROTOBUF)
            )
        table = None if cells is None else cells.result()
        named = await self._read(reply, request, token)
        if not isinstance(named, NamedStates):
            return named
        naming = self._key.naming
        # Without what follows, most of which is done once for each state.
        seconds = self._cache.clock.monotonic() - started
        if named.is_protobuf:
            self._cache.note_protobuf(naming.cluster, pays=self._history.pays(seconds))
        elif takes_protobuf:
            self._cache.refuse_protobuf(naming.cluster)
        texts = await self._texts(named, request)
        missing = [at for at, text in enumerate(texts) if text is None]
        if len(missing) <= _MOST_FETCHED:
            await self._fetch(named, texts, missing)
        known = [text for text in texts if text is not None]
        is_whole = len(known) == len(texts)
        if is_whole and self._digest and not named.are_unchanged:
            self._cache.note_named(self._key, self._asked(request), self._digest, known)
        if self._question.is_table:
            # Of one moment: a cluster gives a version to one state, so nothing was written between
            # the two answers.
            is_whole &= table is not None and (
                (table.metadata, len(table.rows)) == (named.metadata, len(known))
            )
        self._history.note_metadata(seconds, sufficed=is_whole)
        if not is_whole:
            return None
        if table is not None:
            besides = zip(table.rows, Texts(known), strict=True)
            rows = [KnownRow(row.cells, row.conditions, beside) for row, beside in besides]
            return replace(reply, listed=replace(table, rows=rows), body=b"")
        listed = ClusterList(naming, list_kind, api_version, named.metadata)
        reply = replace(reply, listed=listed, body=b"")
        return await _answered(self._question, reply, request, known, started)

    async def _read(
        self, reply: Reply, request: ApiRequest, token: str
    ) -> NamedStates | Reply | None:
        """Return which states a member names; or the reply it is instead, None if it is none."""
        cluster, media_type = reply.cluster, reply.headers.get("content-type", "")
        is_protobuf = media_type.partition(";")[0].strip() == PROTOBUF
        try:
            if reply.failure is not None:
                raise reply.failure
            named = read_metadata_list(
                reply.body,
                cluster,
                is_protobuf=is_protobuf,
                are_unchanged=lambda items: self._are_unchanged(items, request),
            )
            if named is None:
                # It knows no such form, and has answered with the list itself.
                self._history.note_metadata(0.0, sufficed=False)
                if self._question.is_table:
                    return None
                return await fanout.take_apart(self._context, reply, token=token)
            if token and named.metadata.continue_token == token:
                raise AnswerOverrun(cluster, "its list does not end", code=200)
            version = named.metadata.resource_version if _is_of_now(request) else ""
            if self._cache.has_gone_back(self._key, version):
                return None  # nothing is known any more
        except (ApiError, ClusterError) as failure:
            is_misread = isinstance(failure, ClusterMisbehaved) or reply.status == 406
            if is_misread and not isinstance(failure, AnswerOverrun):
                # Something on the way may stumble over the form. The list itself is asked for as
                # ever, and this way ever more rarely.
                self._cache.refuse_protobuf(cluster)
                self._history.note_metadata(0.0, sufficed=False)
                return None
            if isinstance(failure, ApiError):
                self._cache.forget_list(self._key, self._question.asked(cluster))
            return replace(reply, failure=failure)
        return named

    def _asked(self, request: ApiRequest) -> Hashable:
        """Return what tells one list of metadata from others, each page of it from the next."""
        where = tuple(pair for pair in request.query if pair[0] in ("continue", "limit"))
        return self._question.asked(self._link.cluster), where

    def _are_unchanged(self, items: memoryview, request: ApiRequest) -> bool:
        """Whether a member has named just these before, and what it named is kept still."""
        self._digest = digest_of(items)
        self._before = self._cache.named_before(self._key, self._asked(request), self._digest)
        return bool(self._before)

    async def _texts(self, named: NamedStates, request: ApiRequest) -> list[Text | None]:
        """Return the text of each state that a member names; None for what is not known."""
        version = named.metadata.resource_version if _is_of_now(request) else ""
        if named.are_unchanged:
            return list(self._before)
        texts = self._cache.texts(self._key, version, list(map(digest_of, named.states)))
        missing = [at for at, text in enumerate(texts) if text is None]
        if missing and (named.is_protobuf or self._question.is_table):
            await self._compare(named, texts, missing)
        return texts

    def _for_metadata(self, request: ApiRequest, accept: str) -> ApiRequest:
        headers = (pair for pair in request.headers if pair[0] != "accept")
        return replace(request, headers=(*headers, ("accept", accept)))

    async def _cells(self, request: ApiRequest) -> ClusterList | None:
        """Ask for the Table without what stands beside its rows; None for anything else."""
        query = tuple(pair for pair in request.query if pair[0] != "includeObject")
        bare = replace(request, query=(*query, ("includeObject", "None")))
        reply = await fanout.ask_one(self._link, lambda _: bare)
        if reply.failure is not None:
            return None
        try:
            listed = read_cluster_list(reply.body, self._key.naming, self._context.api_version)
        except ClusterMisbehaved:
            return None
        return listed if listed.is_table else None

    async def _compare(
        self, named: NamedStates, texts: list[Text | None], missing: Sequence[int]
    ) -> None:
        """Fill in the texts of states that are known by their metadata in other bytes.

        What is found is remembered, so that each state is compared once.
        """
        known: dict[Marks, bytes] = {}
        kept = self._cache.unaliased(self._key)
        for number, (digest, text) in enumerate(
            zip(kept, Texts(list(kept.values())), strict=True), 1
        ):
            with suppress(*UNREADABLE):
                known[marks_of(_read_whole(text).metadata)] = digest
            if not number % _COMPARED_AT_ONCE:
                await asyncio.sleep(0)
        found: dict[bytes, bytes] = {}
        for number, at in enumerate(missing if known else (), 1):
            with suppress(KeyError, *UNREADABLE):
                digest = known[named.marks(at)]
                texts[at], found[digest_of(named.states[at])] = kept[digest], digest
            if not number % _COMPARED_AT_ONCE:
                await asyncio.sleep(0)
        self._cache.alias(self._key, found)

    async def _fetch(
        self, named: NamedStates, texts: list[Text | None], missing: Sequence[int]
    ) -> None:
        """Fill in the texts of a few objects, each in the state that the list has named."""

        async def fetch(at: int) -> None:
            try:
                head = named.head(at)
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
            try:
                ((metadata, _),) = _elements(listed, self._context.subject)
            except (ValueError, *UNREADABLE):
                return
            if not named.is_of(at, metadata):
                return
            (texts[at],) = await _keep(self._question, listed, self._make_request(self._link))
            self._cache.alias(self._key, {digest_of(named.states[at]): digest_of(metadata)})

        async with asyncio.TaskGroup() as group:
            for at in missing:
                group.create_task(fetch(at), name=f"fetch from {self._link.cluster}")
