"""One cluster: named by the request, or looked for among those the caller may reach.

It is asked as if it were alone, and answered in the words of the client.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import msgspec

from clusterspace.apis.stamps import MANAGED, RETAIN_REPLICAS
from clusterspace.apiserver.http.context import headers_for
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.relays import (
    UNKNOWN_THERE,
    is_short,
    refuse_stranger,
    relay,
    tunnel,
)
from clusterspace.apiserver.http.request_info import JSON, YAML, Query, RequestInfo, read_request
from clusterspace.apiserver.http.responses import (
    as_yaml,
    clean_event,
    headers_to_return,
    require_fit,
)
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import (
    ApiError,
    BadRequest,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
    NotFound,
    NotServed,
    ServiceUnavailable,
    Unauthorized,
)
from clusterspace.fleet.gateway import inbound, renaming, virtual_labels
from clusterspace.fleet.gateway.clusters import Link
from clusterspace.fleet.gateway.fanout import FleetContext, ask_one, fan_out, find_targets, send_one
from clusterspace.fleet.gateway.merge import failures
from clusterspace.fleet.gateway.merge.failures import Reply, Skipped, Verdict
from clusterspace.fleet.gateway.merge.lists import ClusterList, merge_tables, read_cluster_list
from clusterspace.fleet.gateway.renaming import NOT_OBJECTS
from clusterspace.fleet.gateway.routes import (
    HUB,
    Naming,
    Reach,
    Subject,
    path_in_cluster,
    qualify,
    split,
)
from clusterspace.fleet.gateway.streams import lines_of
from clusterspace.kube import plain_text, statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.selectors import parse_field_selector

_OBJECT_BYTES: Final = 4 * 1024 * 1024
"""More than any object has: one is looked for, in every cluster at once."""
_AS_METADATA: Final = (
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
)
_SHORT_BYTES: Final = 1024 * 1024
"""For the refusal of a watch, or a watch that is over at once."""


async def answer_single(context: FleetContext, naming: Naming) -> Response | None:
    """Answer with what one cluster answers."""
    context.http.cluster = naming.cluster
    try:
        link = await context.link(naming.cluster)
        # Behind the question whether the caller may reach it: others do not learn how it is.
        if silence := context.fleet.directory.troubles.find_silence(naming.cluster):
            raise ClusterUnreachable(naming.cluster, silence.why, was_sent=False)
        # A long answer ends when its caller may no longer reach the cluster.
        context.http.guards.append(lambda: context.link(naming.cluster))
        info = context.info
        if info.is_watch and context.cluster_selector.judges_labels:
            # Versions of one cluster do not say how it was labelled when they were given: whoever
            # went on from one would never learn that the cluster is selected no more.
            raise BadRequest(
                f"a watch of cluster {naming.cluster} alone cannot be selected by labels of the "
                "cluster, which may change; leave them out, or watch all clusters"
            )
        if info.verb == "list" and info.query.get("sortBy") and not context.route.is_relayed:
            context.http.warn(
                "sortBy counts in lists of all clusters, and this one is of a single cluster; "
                f"select it instead: labelSelector={virtual_labels.CLUSTER}={naming.cluster}"
            )
        if info.verb == "deletecollection" and not context.selects(naming.cluster):
            # Nobody is asked to delete nothing: a server that misreads that deletes everything.
            status = statuses.deleted(GroupResource(info.group, info.resource), "", "")
            return Response(200, headers_for(context.http, JSON), msgspec.json.encode(status))
        async with _while_alive(context, link):
            return await _answer(context, naming, link)
    except ClusterError as error:
        if naming.cluster != HUB:
            context.fleet.directory.troubles.note_single(naming.cluster, error)
        raise failures.failure_of_one(error, is_write=context.info.is_write) from error


@asynccontextmanager
async def _while_alive(context: FleetContext, link: Link) -> AsyncGenerator[None]:
    """Wait for an answer to begin for as long as its cluster answers something else.

    An answer may take long for good reasons: a webhook, a log that says nothing yet. A cluster that
    is frozen takes as long, and does not answer a look of our own either. So it is looked at after
    half the time that lists wait, and given up after the other half. ClusterTimeout then.
    """
    directory, request = context.fleet.directory, context.http.request
    seconds = context.fleet.limits.list_seconds / 2
    loop = asyncio.get_running_loop()
    looking: list[asyncio.Task[None]] = []
    silence: list[ClusterError] = []

    async def look() -> None:
        while not request.is_answering:
            found = await directory.troubles.look(link.cluster, directory.find_connection, seconds)
            is_silent = isinstance(found, ClusterUnreachable | ClusterTimeout)
            # What has begun meanwhile goes on, in the same step in which that is seen.
            if is_silent and not request.is_answering:
                silence.append(found)
                patience.reschedule(loop.time())
                return
            await asyncio.sleep(seconds)

    def start() -> None:
        looking.append(loop.create_task(look(), name=f"look {link.cluster}"))

    # Most answers are there long before: what they pay for is a timer.
    timer = None if link.is_hub else loop.call_later(seconds, start)
    patience = asyncio.timeout(None)
    try:
        async with patience:
            yield
    except TimeoutError as error:
        if not silence:
            raise
        raise ClusterTimeout(link.cluster, silence[0].why) from error
    finally:
        if timer is not None:
            timer.cancel()
        for each in looking:
            each.cancel()
            await asyncio.wait([each])


async def _answer(context: FleetContext, naming: Naming, link: Link) -> Response | None:
    http, info = context.http, context.info
    query = info.query
    if not context.route.is_relayed:
        version_for = await context.version_for(
            naming.cluster, query.get("resourceVersion").encode()
        )
        query = context.query_for(naming, query, version_for=version_for)
    passage = context.passage(link, query)
    if http.request.is_upgrade:
        path, _, inner_query = passage.target.partition("?")
        return await tunnel(http, passage, read_request(info.method, path, inner_query))
    if context.route.is_relayed or info.subresource in NOT_OBJECTS:
        return await relay(http, passage)
    # A Table has a column for the cluster, wherever it is from: kubectl prints several together.
    is_read = context.representation.is_table or context.fleet.sessions.reads(http, context.route)
    if info.method in ("GET", "HEAD") and naming.is_plain and not is_read:
        return await relay(http, passage)
    if info.is_watch:
        return await _relay_events(context, link, naming, query)

    # The whole answer is read, and put into the client's words.
    subject = context.subject
    sent, content_type = await http.read_body(), http.header("content-type")
    version_for = await context.version_for(naming.cluster, sent)
    body = await http.run(
        lambda: inbound.rewrite(sent, content_type, naming, subject, version_for=version_for)
    )
    seconds = context.fleet.limits.request_seconds
    # A create has its name in the body; a Namespace is not in one, though its path says so.
    name = info.name or split(http.new_name).name
    namespace = info.namespace if info.is_in_namespace else ""
    written = context.written_object(naming.cluster, namespace, name)
    before = await _look_before(context, link) if must_look(info, naming.cluster) else b""
    with context.fleet.writes.writing(written) if info.is_write else nullcontext():
        await context.fleet.all_heard()
        reply = await ask_one(
            link, lambda link: context.request_to(link, query, body=body, seconds=seconds)
        )
    if not isinstance(reply.failure, ClusterError):
        context.note(reply)
    # What is no answer of the cluster's is raised; a refusal in good form may pass.
    if isinstance(reply.failure, Unauthorized):
        raise CredentialsUnusable(reply.cluster, UNKNOWN_THERE)
    if isinstance(reply.failure, NotServed | ServiceUnavailable) and not reply.failure.details:
        raise reply.failure  # a plain sentence, as servers say of groups they do not have or reach
    is_answer = bool(reply.status) and isinstance(reply.failure, ApiError)
    if reply.failure is not None and not is_answer:
        raise reply.failure
    context.fleet.sessions.note_found(http, context.route, reply)
    http.weigh(reply.body)
    if info.is_write and reply.status < 300:
        advice = advice_for(info, naming.cluster, reply.body, before)
        if advice:
            http.warn(advice)

    def respond_renamed() -> Response:
        if context.representation.is_table and reply.status < 400:
            is_another = info.subresource not in ("", "status")
            rows = _Rows(context.labelled(naming), subject, is_another_kind=is_another)
            rewritten = rows.rewrite(reply.body)
        else:
            rewritten = renaming.rewrite_answer(reply.body, naming, subject)
        return send_one(http, reply, rewritten, link.speaker)

    response = await http.run(respond_renamed)
    is_yaml = context.representation.media_type == YAML and bool(response.body)
    return await as_yaml(http, response) if is_yaml else response


async def _look_before(context: FleetContext, link: Link) -> bytes:
    """Return the metadata of the object that a write is about; nothing when that fails."""
    whole = replace(context.info, subresource="", rest=())
    request = ApiRequest(
        "GET",
        quote(path_in_cluster(whole), safe="/:"),
        headers=(("accept", _AS_METADATA), *context.identity_for(link)),
        seconds=context.fleet.limits.list_seconds,
        most_bytes=_OBJECT_BYTES,
        hold=context.hold,
    )
    reply = await ask_one(link, lambda _: request)
    return b"" if reply.failure is not None else reply.body


class _Rows:
    """Tables of one cluster in the columns that lists of every cluster have."""

    def __init__(self, naming: Naming, subject: Subject, *, is_another_kind: bool = False) -> None:
        self._naming = naming
        self._subject = subject
        self._is_another_kind = is_another_kind
        """Whether they are of what a subresource is, a Scale: no list has its columns."""
        self._latest: ClusterList | None = None
        """The Table before: of a watch only the first one declares columns."""

    def rewrite(self, body: bytes) -> bytes:
        """Return a Table with its names changed and its cluster in a column; others as they are."""
        try:
            is_table = _read_kind(body).kind == "Table"
        except UNREADABLE as error:
            why = f"its answer cannot be read: {error}"
            raise ClusterMisbehaved(self._naming.cluster, why) from error
        if not is_table:
            return renaming.rewrite_answer(body, self._naming, self._subject)
        table = read_cluster_list(body, self._naming)
        if not table.columns and self._latest is None:
            # Nobody knows what its cells are: they stay where they are.
            return renaming.rewrite_answer(body, self._naming, self._subject)
        if not table.columns and self._latest is not None:
            table = replace(table, columns=self._latest.columns)
        self._latest = replace(table, rows=())
        columns = map(plain_text.lines_of_json, table.columns) if self._is_another_kind else ()
        pieces = merge_tables(
            (table,), subject=self._subject, metadata=table.metadata, columns=tuple(columns)
        )
        return b"".join(pieces)


# -- its events, as they come ----------------------------------------------------------------------


async def _relay_events(
    context: FleetContext, link: Link, naming: Naming, query: Query
) -> Response | None:
    """Pass a watch on, renaming what its events are about."""
    http, subject = context.http, context.subject
    request = context.request_to(link, query, seconds=context.fleet.limits.request_seconds)
    request = replace(request, headers=(*request.headers, ("accept-encoding", "identity")))
    has_rows = context.representation.is_table
    rows = _Rows(context.labelled(naming), subject)

    def rewrite(content: bytes) -> bytes:
        if has_rows:
            return rows.rewrite(content)
        return renaming.rewrite_answer(content, naming, subject)

    def shown(line: bytes) -> bytes:
        if not line.strip():
            return b""
        fit = line if link.is_hub else clean_event(link.cluster, line, has_rows=has_rows)
        return renamed_event(fit, naming, rewrite)

    async with AsyncExitStack() as stack:
        answer = await link.connection.open(stack, request)
        require_fit(http, link.cluster, answer.status)
        if is_short(answer):
            whole = await answer.read(_SHORT_BYTES, request.hold)
            refuse_stranger(link.cluster, whole)
            reply = Reply(link.cluster, whole.status, dict(whole.headers), whole.body)
            body = (
                renaming.rewrite_answer(whole.body, naming, subject) if whole.status >= 400 else b""
            )
            if whole.status < 400:
                body = b"".join(map(shown, whole.body.split(b"\n")))
            return send_one(http, reply, body, link.speaker)
        stream = http.request.start_stream(
            200, headers_to_return(http, answer.headers, link.speaker)
        )
        http.initialized()
        try:
            reading = lines_of(link.cluster, answer, context.fleet.memory)
            async with aclosing(reading) as batches:
                async for lines in batches:
                    stream.write(b"".join(map(shown, lines)))
                    await stream.drain()
        except ClusterError:
            # Cut, not ended: a client that saw an end would believe it had seen everything.
            await stream.cut()
            return None
        stream.end()
        return None


class _Event(msgspec.Struct):
    """One line of a watch; the object is not decoded here."""

    type: str
    object: msgspec.Raw


_events: Final = msgspec.json.Decoder(_Event)


def renamed_event(line: bytes, naming: Naming, rewrite: Callable[[bytes], bytes]) -> bytes:
    """Return one event with its object rewritten."""
    try:
        event = _events.decode(line)
    except UNREADABLE as error:
        raise ClusterMisbehaved(naming.cluster, f"its event cannot be read: {error}") from error
    renamed = rewrite(bytes(event.object))
    return b'{"type":%b,"object":%b}\n' % (msgspec.json.encode(event.type), renamed.rstrip())


# -- the cluster that has it -----------------------------------------------------------------------


async def find_naming(context: FleetContext) -> Naming | None:
    """Find the cluster that has the object; None when a selection finds it nowhere.

    Whoever gets an object that is nowhere is told so by NotFound. A list of nothing is a list.
    """
    any_will_do = context.route.reach is Reach.ANY
    clusters = context.fleet.all_clusters()
    if any_will_do and HUB not in clusters:
        clusters = (HUB, *clusters)
    selector = parse_field_selector(context.info.query.get("fieldSelector"))
    name = context.info.name or selector.requires_exact("metadata.name") or ""

    async def look(link: Link) -> Reply:
        reply = await look_for(context, link, name)
        context.note_list(reply)
        return reply

    def judge(replies: Sequence[Reply], skipped: Sequence[Skipped]) -> Verdict:
        return failures.judge_search(
            replies,
            skipped,
            name=name,
            any_will_do=any_will_do,
            is_given_up=context.is_given_up,
        )

    try:
        fanned = await fan_out(context, await find_targets(context, clusters), look, judge)
    except NotFound:
        if context.info.name:
            raise
        return None
    found = fanned.answered[0]
    context.fleet.sessions.note_found(context.http, context.route, found)
    return Naming(found.cluster)


class _Kind(msgspec.Struct):
    kind: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct, rename="camel"):
    api_version: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_read_kind: Final = msgspec.json.Decoder(_Kind).decode
_read_named: Final = msgspec.json.Decoder(_Named).decode


async def look_for(context: FleetContext, link: Link, name: str) -> Reply:
    """Return the object, or what selects it alone; nothing selected is not found."""
    info = context.info
    # The object itself, whatever of it is asked for.
    whole = replace(info, subresource="", rest=(), is_watch_path=False)
    request = ApiRequest(
        "GET",
        quote(path_in_cluster(whole), safe="/:") if info.name else context.path,
        () if info.name else (("fieldSelector", info.query.get("fieldSelector")),),
        headers=(("accept", "application/json"), *context.identity_for(link)),
        seconds=context.fleet.limits.list_seconds,
        most_bytes=_OBJECT_BYTES,
        hold=context.hold,
    )
    reply = await ask_one(link, lambda _: request)
    if reply.failure is not None:
        return reply
    if info.name:
        # It is the object only if it says so: else every name would be everywhere.
        try:
            found = _read_named(reply.body)
        except UNREADABLE:
            found = _Named()
        if (found.metadata.name, found.api_version) == (info.name, context.api_version):
            return reply
        why = "answered with another object than was asked for"
        failure = ClusterMisbehaved(reply.cluster, why, code=reply.status)
        return Reply(reply.cluster, failure=failure)
    try:
        count = read_cluster_list(reply.body, Naming(reply.cluster)).count
    except ClusterMisbehaved as nonsense:
        return Reply(reply.cluster, failure=nonsense)
    missing = statuses.not_found(GroupResource(info.group, info.resource), name)
    return reply if count else Reply(reply.cluster, failure=missing)


# -- what will become of a write -------------------------------------------------------------------
#
# Said in a Warning where it is not what it looks like. A copy on a member is put back to what its
# template says, a minute after kubectl has said "scaled". A pod on the hub waits for a policy,
# where `kubectl run` would have somebody wait for the pod.

_CHANGES: Final = frozenset({"update", "patch"})


class _WrittenMetadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None


class _Written(msgspec.Struct):
    metadata: _WrittenMetadata | None = None


_read_written: Final = msgspec.json.Decoder(_Written).decode


def must_look(info: RequestInfo, cluster: str) -> bool:
    """Whether the answer to a write will not say whether it was about a copy.

    A Scale has no labels, and what is deleted is often answered with a Status.
    """
    is_scale = info.subresource == "scale" and info.verb in _CHANGES
    is_delete = info.verb == "delete" and not info.subresource
    return cluster != HUB and bool(info.name) and (is_scale or is_delete)


def advice_for(info: RequestInfo, cluster: str, answer: bytes, before: bytes = b"") -> str:
    """Return what to say of a write that a cluster has carried out; empty when there is nothing.

    `before` is the object as it was, for those of which `must_look` says so.
    """
    try:
        metadata = _read_written(before or answer).metadata or _WrittenMetadata()
    except UNREADABLE:
        metadata = _WrittenMetadata()
    if cluster == HUB:
        is_pod = (info.group, info.resource, info.subresource) == ("", "pods", "")
        if not (is_pod and info.verb == "create" and metadata.name):
            return ""
        return (
            f"pod {metadata.name} is a template on the hub, where nothing runs: it stays Pending "
            "until a policy places it; to run it now, name a cluster: "
            f"{qualify(metadata.name, 'CLUSTER')}"
        )
    labels = metadata.labels or {}
    is_write = info.verb in _CHANGES and info.subresource in ("", "scale")
    is_retained = info.subresource == "scale" and labels.get(RETAIN_REPLICAS) == "true"
    if labels.get(MANAGED) != "true" or is_retained:
        return ""
    what = f"{info.resource}.{info.group}" if info.group else info.resource
    name = metadata.name or info.name
    copy = f"{what} {name} in cluster {cluster} is a copy that the hub keeps"
    if info.verb == "delete":
        return (
            f"{copy}, and will be made again; delete {name} on the hub instead, "
            f"or take {cluster} out of its policy"
        )
    if not is_write:
        return ""
    return (
        f"{copy}: what its template says will be put back; change {name} on the hub instead, "
        f"or write an OverridePolicy for {cluster}"
    )
