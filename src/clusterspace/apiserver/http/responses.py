"""Answers onto the wire: JSON, YAML and protobuf bodies, Status bodies, warnings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import StringIO
from typing import Any, Final, cast

import msgspec
import yaml

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import HeaderPairs, Response
from clusterspace.apiserver.http.negotiation import JSON, PROTOBUF, YAML, negotiate_status
from clusterspace.errors import ApiError, MalformedObject
from clusterspace.kube import statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.protobuf.encoding import encode as encode_protobuf

_WARNING_TOTAL: Final = 4096
"""Headers have limits everywhere on the way; kube-apiserver stops at the same size."""

_YAML_STEP_BYTES: Final = 64 * 1024
"""How much JSON becomes YAML in one go: a tenth of a second."""

_read_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_elements: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def json_response(context: RequestContext, code: int, body: bytes | Sequence[bytes]) -> Response:
    """Answer with JSON bytes, indented when the client asks for it."""
    if context.info.query.is_true("pretty"):
        whole = body if isinstance(body, bytes) else b"".join(body)
        body = msgspec.json.format(whole, indent=2)
    return Response(code, headers_for(context, JSON), body)


def value_response(
    context: RequestContext, code: int, value: Any, media_type: str = JSON
) -> Response:
    """Answer with a value, as JSON, YAML or protobuf."""
    if media_type == YAML:
        return Response(code, headers_for(context, YAML), yaml_bytes(value))
    if media_type == PROTOBUF:
        return Response(code, headers_for(context, PROTOBUF), encode_protobuf(value))
    return json_response(context, code, msgspec.json.encode(value))


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


def headers_for(context: RequestContext, content_type: str) -> HeaderPairs:
    """Return the headers every answer has."""
    headers = [
        ("Audit-Id", context.request_id),
        ("Cache-Control", "no-cache, private"),
        ("Content-Type", content_type),
    ]
    if context.warnings:
        headers += warning_headers(context.warnings)
    return headers


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """Return Warning headers as kubectl shows them, up to a total size."""
    headers: list[tuple[str, str]] = []
    room = _WARNING_TOTAL
    for text in warnings:
        room -= len(text)
        if room < 0:
            break
        clean = "".join(each if each.isprintable() else " " for each in text)
        escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
        headers.append(("Warning", f'299 - "{escaped}"'))
    return headers
