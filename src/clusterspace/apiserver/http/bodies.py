"""What clients send, read once: JSON, YAML or Kubernetes protobuf to a plain object.

Size is limited before anything is parsed; depth, the number of parts and alias expansion while
parsing: a body of three megabytes must not cost more than a body of three megabytes. A body that
`is_large` is read in steps of Python, and so wants to be read off the event loop.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.apiserver.http.documents import (
    MAX_DEPTH,
    NotJson,
    TooDeep,
    YamlFault,
    compose_json,
    compose_yaml,
)
from clusterspace.apiserver.http.negotiation import JSON, PROTOBUF, YAML
from clusterspace.errors import BadRequest
from clusterspace.kube import statuses
from clusterspace.kube.json_errors import describe_json_error
from clusterspace.kube.protobuf.bodies import decode as decode_protobuf

BODY_LIMIT: Final = 3 * 1024 * 1024
"""As kube-apiserver: what fits into one etcd request, doubled."""

_SMALL_BYTES: Final = 64 * 1024
_SMALL_VALUES: Final = 1_000
"""What is worked on in the loop's own time: a thousand parts are 10 to 30 ms from body to store.
A Deployment as kubectl sends it has 150, a Pod with all its owners of fields 500."""

_SMALL_YAML_BYTES: Final = 8 * 1024
"""YAML has no signs that must be there, and costs ten times as much as JSON."""

_SMALL_PROTOBUF_BYTES: Final = 4 * 1024
"""Two bytes can be a message, and a message a dozen fields that are always there."""

_ACCEPTED: Final = (JSON, YAML, PROTOBUF)


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body, and what was said twice in it."""

    value: Any
    duplicates: tuple[str, ...] = ()
    """Paths of keys that came more than once; the last one won."""


class _DuplicateKey(Exception):
    """Raised to leave the fast path as soon as a key comes twice."""


class _Marked(dict[str, Any]):
    """An object that remembers which of its keys came twice."""

    twice: tuple[str, ...] = ()


def media_type_of(content_type: str) -> str:
    """Return the bare media type; a body without one is JSON, as Kubernetes takes it."""
    return content_type.partition(";")[0].strip().lower() or JSON


def is_large(raw: bytes, media_type: str = JSON) -> bool:
    """Whether a body, or an object as it is stored, may take longer than the loop should wait.

    An estimate from above that takes microseconds: signs inside texts count too.
    """
    if media_type == PROTOBUF:
        return len(raw) > _SMALL_PROTOBUF_BYTES
    if "yaml" in media_type and raw[:1] not in (b"{", b"["):
        return len(raw) > _SMALL_YAML_BYTES
    if len(raw) <= _SMALL_VALUES:
        return False
    if len(raw) > _SMALL_BYTES:
        return True
    return raw.count(b",") + raw.count(b"{") + raw.count(b"[") > _SMALL_VALUES


def read_body(raw: bytes, content_type: str, *, expected_kind: str = "") -> Body:
    """Decode a body by its content type; raise BadRequest or UnsupportedMediaType."""
    media_type = media_type_of(content_type)
    if media_type == JSON:
        return read_json(raw, expected_kind=expected_kind)
    if media_type == YAML:
        return read_yaml(raw)
    if media_type == PROTOBUF:
        return Body(decode_protobuf(raw))
    raise statuses.unsupported_media_type(_ACCEPTED)


def read_json(raw: bytes, *, expected_kind: str = "") -> Body:
    """Decode JSON strictly: no NaN, no trailing text, no nesting beyond the decoder's limit."""
    if is_large(raw):
        try:
            return Body(*compose_json(raw, max_depth=MAX_DEPTH))
        except NotJson as error:
            why = "a number or a text in the body has no meaning"
            raise BadRequest(_unreadable(raw, expected_kind, why)) from error
        except TooDeep as error:
            raise _too_deep() from error
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(_unreadable(raw, expected_kind, str(error))) from error
    except RecursionError as error:
        raise _too_deep() from error
    _refuse_depth(raw, value)
    return Body(value, tuple(_duplicates_in_json(raw)))


def refuse_shape(raw: bytes, media_type: str) -> None:
    """Refuse a body of more parts than one object may have, for those who only pass it on.

    What is not JSON is not refused here: where it goes wrong is told by whoever reads it.
    """
    is_json = media_type not in (YAML, PROTOBUF) and raw[:1] in (b"{", b"[")
    if is_json and is_large(raw):
        with suppress(NotJson, TooDeep):
            compose_json(raw, max_depth=MAX_DEPTH)


def _too_deep() -> BadRequest:
    return BadRequest(f"the body is nested more than {MAX_DEPTH} levels deep")


def _refuse_depth(raw: bytes, value: Any) -> None:
    """Refuse what is nested too deeply for those who walk it by recursion, behind us."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                below += cast("list[Any]", each)
        if not below:
            return
        level = below
    raise _too_deep()


def _unreadable(raw: bytes, expected_kind: str, otherwise: str) -> str:
    reason = describe_json_error(raw) or otherwise
    if not expected_kind:
        return reason
    shown = raw[:200].decode("utf-8", "replace")
    return (
        f"the object provided is unrecognized (must be of type {expected_kind}): "
        f"couldn't get version/kind; json parse error: {reason} ({shown})"
    )


def _duplicates_in_json(raw: bytes) -> Iterator[str]:
    """Name keys that come twice in one object, by a second pass only when there are any."""

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) != len(pairs):
            raise _DuplicateKey

    def mark_duplicates(pairs: list[tuple[str, Any]]) -> _Marked:
        marked = _Marked(pairs)
        counts = Counter(key for key, _ in pairs)
        marked.twice = tuple(key for key, count in counts.items() if count > 1)
        return marked

    try:
        json.loads(raw, object_pairs_hook=refuse_duplicates)
    except _DuplicateKey:
        marked = json.loads(raw, object_pairs_hook=mark_duplicates)
        yield from _paths_of_duplicates(marked, "")
    except RecursionError as error:
        raise _too_deep() from error


def _paths_of_duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _paths_of_duplicates(item, f"{path}[{index}]")
    elif isinstance(value, _Marked):
        for key in value.twice:
            yield f"{path}.{key}".lstrip(".")
        for key, item in value.items():
            yield from _paths_of_duplicates(item, f"{path}.{key}".lstrip("."))


def read_yaml(raw: bytes) -> Body:
    """Decode one YAML document into JSON's types."""
    if raw[:1] in (b"{", b"["):
        # Apply sends JSON under YAML's media type; JSON's own decoder is quicker and stricter.
        try:
            return read_json(raw)
        except BadRequest:
            pass
    try:
        value, duplicates = compose_yaml(raw)
    except YamlFault as fault:
        raise BadRequest(f"error converting YAML to JSON: yaml: {fault}") from fault
    return Body(value, duplicates)
