"""Answers onto the wire: our own, and what of another server's may go back.

A client trusts the server it asked, with its token. A member cluster is somebody else's: an answer
of its own that passed unchanged could send the client elsewhere (a redirect, and kubectl takes its
token along), set cookies for our address, ask for a password in our name, or print whatever it
likes on a terminal. So nothing passes because nobody thought of it:

    status    2xx, 4xx, 5xx, and 304 to who asked about a tag; any other is 502
    headers   those listed here, if they can be printed; all others stay
    Warning   the texts, few and short, each with the name of the cluster that says so
    text      a Status, and the cells of a Table: what terminals obey is replaced
    objects   bytes, as they are: whoever decodes JSON is not a terminal
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from typing import Any, Final, cast

import msgspec
import yaml

from clusterspace.apiserver.http.context import RequestContext, headers_for, warning_headers
from clusterspace.apiserver.http.messages import HeaderPairs, Response
from clusterspace.apiserver.http.request_info import (
    JSON,
    PROTOBUF,
    YAML,
    negotiate_status,
    read_accept,
)
from clusterspace.apiserver.http.websocket_streams import PROTOCOLS, TOKEN_PROTOCOL
from clusterspace.client.requests import Headers, unfit_status
from clusterspace.errors import ApiError, ClusterMisbehaved, MalformedObject
from clusterspace.kube import plain_text, statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.protobuf.bodies import decode as decode_protobuf
from clusterspace.kube.protobuf.encoding import encode as encode_protobuf

_YAML_STEP_BYTES: Final = 64 * 1024
"""How much JSON becomes YAML in one go: a tenth of a second."""

_SHOWN_TO_PEOPLE: Final = ("curl", "Wget", "Mozilla/5.0")
"""How clients introduce themselves that print an answer as it comes; browsers all say Mozilla."""

_read_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_elements: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def json_response(context: RequestContext, code: int, body: bytes | Sequence[bytes]) -> Response:
    """Answer with JSON bytes: a line that ends, or indented for people.

    Kubernetes ends the one with a newline and not the other.
    """
    if is_pretty(context):
        whole = body if isinstance(body, bytes) else b"".join(body)
        return Response(code, headers_for(context, JSON), msgspec.json.format(whole, indent=2))
    ended = body + b"\n" if isinstance(body, bytes) else [*body, b"\n"]
    return Response(code, headers_for(context, JSON), ended)


def is_pretty(context: RequestContext) -> bool:
    """Whether JSON is to be indented: the client says so, or is one that shows it to somebody."""
    query = context.info.query
    if query.get("pretty"):
        return query.is_true("pretty")
    return context.header("user-agent").startswith(_SHOWN_TO_PEOPLE)


def value_response(
    context: RequestContext, code: int, value: Any, media_type: str = JSON
) -> Response:
    """Answer with a value, as JSON, YAML or protobuf."""
    if media_type == YAML:
        return Response(code, headers_for(context, YAML), yaml_bytes(value))
    if media_type == PROTOBUF:
        return Response(code, headers_for(context, PROTOBUF), encode_protobuf(value))
    return json_response(context, code, msgspec.json.encode(value))


def indented_response(context: RequestContext, code: int, value: Any) -> Response:
    """Answer with a document that is no API object, which everybody gets indented."""
    body = msgspec.json.format(msgspec.json.encode(value), indent=2)
    return Response(code, headers_for(context, JSON), body)


async def as_yaml(context: RequestContext, response: Response) -> Response:
    """Return an answer in JSON as one in YAML; a long list is written some elements at a time.

    YAML takes a second for each megabyte, and there is one lane for everybody's long work. So each
    step of a list is a piece of work of its own, and others have their turn in between.
    """
    text = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    context.weigh(text)
    try:
        fields, listed, elements = await context.run(lambda: _read_list(text))
    except UNREADABLE:
        return response  # no JSON after all: somebody else's refusal, in whatever words
    # Keys are sorted. At the top of a document, elements are written as they are below a key: by
    # dashes in the first column.
    before = {name: value for name, value in fields.items() if name < listed}
    behind = {name: value for name, value in fields.items() if name > listed}
    pieces = [_yaml_of(before)] if before else []
    if listed:
        pieces.append(f"{listed}:\n".encode())
    for batch in _batches(elements):
        pieces += (await context.run(lambda batch=batch: _yaml_of(batch)),)
    if behind or not pieces:
        pieces.append(await context.run(lambda: _yaml_of(behind)))
    kept = [pair for pair in response.headers if pair[0].lower() != "content-type"]
    return Response(response.status, [*kept, ("Content-Type", YAML)], pieces)


def _read_list(text: bytes) -> tuple[dict[str, msgspec.Raw], str, list[msgspec.Raw]]:
    """Return the fields of a list or Table but one, that one's name, and its elements.

    What is no list is all fields; so is one that has no elements.
    """
    fields = _read_fields(text)
    for listed in ("items", "rows"):
        elements: list[msgspec.Raw] = []
        with suppress(*UNREADABLE):
            elements = _read_elements(fields.get(listed, b"[]"))
        if elements:
            del fields[listed]
            return fields, listed, elements
    return fields, "", []


def _batches(elements: Sequence[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    batch: list[msgspec.Raw] = []
    size = 0
    for element in elements:
        batch.append(element)
        size += len(element)
        if size >= _YAML_STEP_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _yaml_of(texts: Any) -> bytes:
    return yaml_bytes(msgspec.json.decode(msgspec.json.encode(texts)))


def yaml_bytes(value: Any) -> bytes:
    """Return a value as YAML, keys sorted as Kubernetes sorts them."""
    text = StringIO()
    dumper = _Dumper(text, default_flow_style=False, allow_unicode=True)
    dumper.write(value)
    return text.getvalue().encode()


class _Dumper(yaml.CSafeDumper):
    """The safe dumper without aliases: equal parts are written out.

    It hands every event to the emitter by itself. The emitter's own way takes the whole document
    in one call, a quarter of a second for a megabyte, during which no other thread gets a turn.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Never refer back."""
        return True

    def write(self, value: Any) -> None:
        """Write one document."""
        self.emit(yaml.StreamStartEvent())
        self.emit(yaml.DocumentStartEvent(explicit=False))
        for event in self._events_of(self.represent_data(value)):
            self.emit(event)
        self.emit(yaml.DocumentEndEvent(explicit=False))
        self.emit(yaml.StreamEndEvent())

    def _events_of(self, node: Any) -> Iterator[yaml.Event]:
        if isinstance(node, yaml.ScalarNode):
            resolve = cast("Callable[..., str]", self.resolve)
            plain = resolve(yaml.ScalarNode, node.value, (True, False)) == node.tag
            quoted = resolve(yaml.ScalarNode, node.value, (False, True)) == node.tag
            yield yaml.ScalarEvent(None, node.tag, (plain, quoted), node.value, style=node.style)
        elif isinstance(node, yaml.SequenceNode):
            yield yaml.SequenceStartEvent(None, node.tag, True, flow_style=node.flow_style)
            for element in node.value:
                yield from self._events_of(element)
            yield yaml.SequenceEndEvent()
        else:
            yield yaml.MappingStartEvent(None, node.tag, True, flow_style=node.flow_style)
            for key, value in node.value:
                yield from self._events_of(key)
                yield from self._events_of(value)
            yield yaml.MappingEndEvent()


def text_response(context: RequestContext, code: int, text: str) -> Response:
    """Answer in plain text."""
    return Response(code, headers_for(context, "text/plain; charset=utf-8"), text.encode())


def error_response(context: RequestContext, error: ApiError) -> Response:
    """Answer with the Status of an error, in a form the client reads."""
    media_type = negotiate_status(context.header("accept"))
    status = statuses.status_of(error)
    try:
        answer = value_response(context, error.code, status, media_type)
    except MalformedObject:
        # Another cluster's refusal, passed on, may hold what has no place in protobuf.
        answer = value_response(context, error.code, status)
    if error.details is None or not error.details.retry_after_seconds:
        return answer
    retry_after = ("Retry-After", str(error.details.retry_after_seconds))
    return Response(answer.status, [*answer.headers, retry_after], answer.body)


# -- answers of other servers ----------------------------------------------------------------------

PASSED_ON: Final = frozenset(
    {
        "accept", "accept-encoding", "accept-language", "cache-control", "content-encoding",
        "content-type", "if-match", "if-modified-since", "if-none-match", "kubectl-command",
        "kubectl-session", "origin", "range", "sec-websocket-extensions", "sec-websocket-key",
        "sec-websocket-protocol", "sec-websocket-version", "traceparent", "tracestate",
        "user-agent", "x-stream-protocol-version",
    }
)  # fmt: skip
"""The headers of a request that its target gets to see; all others stay here."""


def headers_to_pass(pairs: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers of a request that go along."""
    passed: list[tuple[str, str]] = []
    for name, value in pairs:
        if name not in PASSED_ON:
            continue
        if name == PROTOCOLS:
            # Without the one in which browsers hide their token.
            named = (each.strip() for each in value.split(","))
            value = ", ".join(each for each in named if not each.startswith(TOKEN_PROTOCOL))
        if value:
            passed.append((name, value))
    return tuple(passed)


RETURNED: Final = frozenset(
    {
        "accept-ranges", "content-disposition", "content-encoding", "content-language",
        "content-range", "content-type", "etag", "last-modified", "retry-after", "vary",
        "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid", "x-varied-accept",
    }
)  # fmt: skip
"""The headers of an answer that clients get to see; all others stay here."""

_ENCODINGS: Final = ("gzip", "identity")
_LONGEST_VALUE: Final = 1024
_UNCHANGED: Final = 304
_CONDITIONS: Final = ("if-none-match", "if-modified-since")

_MOST_WARNINGS: Final = 5
_LONGEST_WARNING: Final = 256
"""A cluster's warnings together stay below what one server's warnings may be: 4096 characters."""
_WARNING: Final = re.compile(r'299 \S{1,256} "((?:[^"\\]|\\.){0,4096})"')
_ESCAPED: Final = re.compile(r"\\(.)")

_LONGEST_KIND: Final = 64
_MOST_ROW_BYTES: Final = 64 * 1024
"""Of the cells of one row, and of all columns: what is decoded in one go is never long."""
_MOST_ROWS: Final = 100_000
"""Clients ask for 500 at a time; whoever asks for all at once in such a cluster wants no Table."""


def require_fit(context: RequestContext, cluster: str, status: int) -> None:
    """Raise ClusterMisbehaved for a status that must not reach a client: above all a redirect."""
    if status == _UNCHANGED and any(context.header(name) for name in _CONDITIONS):
        return
    if unfit := unfit_status(cluster, status):
        raise unfit


def headers_to_return(
    context: RequestContext, answer: Mapping[str, str], speaker: str, *, is_unpacked: bool = False
) -> HeaderPairs:
    """Return the headers of an answer that go back, with the request's name and all warnings.

    `speaker` is the cluster its warnings are said to be from; empty for the hub's own, which needs
    no introduction. `is_unpacked` says that the body no longer has the encoding it came in.
    """
    kept = [
        (name, value)
        for name, value in answer.items()
        if name in RETURNED and value.isprintable() and len(value) <= _LONGEST_VALUE
    ]
    if is_unpacked:
        kept = [pair for pair in kept if pair[0] != "content-encoding"]
    return [
        ("Audit-Id", context.request_id),
        ("Cache-Control", "no-cache, private"),
        ("X-Content-Type-Options", "nosniff"),
        *kept,
        *warning_headers([*context.warnings, *warnings_in(answer, speaker)]),
    ]


def require_encoding(cluster: str, headers: Mapping[str, str]) -> None:
    """Raise ClusterMisbehaved for a body that is packed in a way nobody asked for."""
    encoding = headers.get("content-encoding", "identity")
    if encoding not in _ENCODINGS:
        named = plain_text.line(encoding, 64)
        raise ClusterMisbehaved(cluster, f"answered in the encoding {named!r}, unasked")


def warnings_in(headers: Mapping[str, str], speaker: str) -> list[str]:
    """Return the warnings of an answer, each text once, as the words of its cluster."""
    header = headers.get("warning", "")[: 64 * 1024]
    said = dict.fromkeys(_ESCAPED.sub(r"\1", found[1]) for found in _WARNING.finditer(header))
    texts = [plain_text.line(text, _LONGEST_WARNING) for text in list(said)[:_MOST_WARNINGS]]
    return [f"cluster {speaker}: {text}" for text in texts] if speaker else texts


def clean_failure(body: bytes, media_type: str) -> bytes:
    """Return the body of a refusal with every text in it fit to be printed.

    A Status stays the Status it is. Of any other text the line breaks stay too: it is a page of
    what runs in the cluster, and no sentence that kubectl puts behind its own.
    """
    media_type = media_type.strip().lower()
    if media_type.startswith("application/json"):
        try:
            decoded: Any = msgspec.json.decode(body)
            is_object = isinstance(decoded, dict)
            is_status = is_object and cast("Any", decoded).get("kind") == "Status"
            cleaned = cast("Any", plain_text.lines_of_json(decoded) if is_status else decoded)
        except UNREADABLE:
            return plain_text.line(body.decode(errors="replace")).encode()
        return body if cleaned == decoded else msgspec.json.encode(cleaned)
    if media_type.startswith(PROTOBUF):
        try:
            return encode_protobuf(plain_text.lines_of_json(decode_protobuf(body)))
        except (ApiError, RecursionError):
            return b""  # no Status, and nothing that anybody could read
    if media_type.startswith("text/") or not media_type:
        pieces = body.decode(errors="replace").splitlines(keepends=False)
        cleaned_text = "\n".join(map(plain_text.line, pieces))
        return cleaned_text.encode() + (b"\n" if body.endswith(b"\n") else b"")
    return body


class _Row(msgspec.Struct, rename={"beside": "object"}, omit_defaults=True):
    cells: msgspec.Raw
    conditions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    beside: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Table(msgspec.Struct, rename="camel", omit_defaults=True):
    """A Table whose parts are text still; what it has besides has no meaning, and is dropped."""

    kind: msgspec.Raw = msgspec.Raw(b"null")
    api_version: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    column_definitions: msgspec.Raw = msgspec.Raw(b"null")
    rows: msgspec.Raw = msgspec.Raw(b"null")


class _Event(msgspec.Struct, rename={"beside": "object"}):
    type: msgspec.Raw
    beside: msgspec.Raw = msgspec.Raw(b"null")


_read_table: Final = msgspec.json.Decoder(_Table).decode
_read_rows: Final = msgspec.json.Decoder(list[_Row] | None).decode
_read_cells: Final = msgspec.json.Decoder(list[Any]).decode
_read_columns: Final = msgspec.json.Decoder(
    list[dict[str, str | int | float | bool | None]] | None
).decode
_read_event: Final = msgspec.json.Decoder(_Event).decode


class _Count(threading.local):
    """What a decoder has left to count, in the thread that it runs in."""

    left: int = 0
    why: str = ""


_count: Final = _Count()


class _Counted(msgspec.Struct, gc=False):
    """Any object; nothing of it is kept."""

    def __post_init__(self) -> None:
        _count.left -= 1
        if _count.left < 0:
            raise ValueError(_count.why)


class _CountedList(msgspec.Struct):
    items: list[_Counted] | None = None
    rows: list[_Counted] | None = None


_count_elements: Final = msgspec.json.Decoder(_CountedList).decode


def require_elements(body: bytes, most: int, why: str) -> None:
    """Raise one of UNREADABLE, with this reason, when a list has more than so many elements.

    An element takes hundreds of bytes whatever it was made from, so of a hundred megabytes of `{},`
    there would be gigabytes. Counting skips what it counts, and keeps next to nothing.
    """
    _count.left, _count.why = most, why
    _count_elements(body)


def wants_table(context: RequestContext) -> bool:
    """Whether the client would have rows and columns, which it prints as they are."""
    return any(each.parameter("as") == "Table" for each in read_accept(context.header("accept")))


def clean_table(cluster: str, body: bytes) -> bytes:
    """Return a Table whose cells and columns can be printed; what is no Table stays as it is.

    Each step of it is short, whoever wrote the Table: rows are counted before they are taken apart,
    and looked into one by one. A long Table takes many steps, and is for the lane beside the loop.
    """
    is_changed = False
    try:
        table = _read_table(body)
        if len(table.kind) > _LONGEST_KIND or msgspec.json.decode(table.kind) != "Table":
            return body  # its kind may be escaped, so it is decoded
        if len(body) > _MOST_ROW_BYTES:
            require_elements(body, _MOST_ROWS, "it has too many rows")
        if len(table.column_definitions) > _MOST_ROW_BYTES:
            raise ClusterMisbehaved(cluster, "the columns of its Table are too long", code=200)
        columns = _read_columns(table.column_definitions)
        shown = plain_text.lines_of_json(columns)
        if shown != columns:
            is_changed, table.column_definitions = True, msgspec.Raw(msgspec.json.encode(shown))
        rows: list[_Row] = _read_rows(table.rows) or []
        for row in rows:
            if len(row.cells) > _MOST_ROW_BYTES:
                raise ClusterMisbehaved(cluster, "a row of its Table is too long", code=200)
            cells = _read_cells(row.cells)
            cleaned = [plain_text.cell(each) for each in cells]
            if cleaned != cells:
                is_changed, row.cells = True, msgspec.Raw(msgspec.json.encode(cleaned))
    except UNREADABLE as error:
        raise ClusterMisbehaved(cluster, "its Table cannot be read", code=200) from error
    if is_changed:
        table.rows = msgspec.Raw(msgspec.json.encode(rows))
        return msgspec.json.encode(table)
    return body


def clean_event(cluster: str, line: bytes, *, has_rows: bool) -> bytes:
    """Return one line of a watch, its error or the rows of its Table fit to be printed."""
    try:
        event = _read_event(line)
        is_long = len(event.type) > _LONGEST_KIND
        kind: Any = None if is_long else msgspec.json.decode(event.type)
    except UNREADABLE as error:
        raise ClusterMisbehaved(cluster, "its event cannot be read", code=200) from error
    content = bytes(event.beside)
    if kind == "ERROR":
        shown = clean_failure(content, "application/json")
    else:
        shown = clean_table(cluster, content) if has_rows and content.startswith(b"{") else content
    if shown == content:
        return line
    event.beside = msgspec.Raw(shown)
    return msgspec.json.encode(event)


def is_watch(context: RequestContext) -> bool:
    """Whether lines are asked for, here or of a server that the call is passed on to."""
    asked = context.info.proxied or context.info
    # One object is read as a whole, whatever the query says. Behind a proxy may be anything.
    is_named = asked.is_resource and bool(asked.name) and asked.subresource != "proxy"
    return asked.is_watch or (context.info.query.is_true("watch") and not is_named)
